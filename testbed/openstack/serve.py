"""Neutron or Keystone as one process, run by the interpreter of their own environment: `serve.py neutron FOLDER PORT`.

Each is the project's own WSGI application. Neutron answers one request at a time, for SQLite's sake. Its message bus is
not needed here, and replaced by doors into the functions that the bus would call:

- POST /bus/report_state {"host", "device_mappings": {physnet: [device]}}: the heartbeat of a NIC switch agent;
- POST /bus/silence {"host"}: that agent has not been heard of for a day;
- POST /bus/update_device {"host", "mac", "up"}: an agent's report on a device.

`serve.py prepare FOLDER` makes a cloud's initial state: databases, keys, projects, users and their roles.
"""

from __future__ import annotations

import datetime
import gc
import json
import os
import socketserver
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

ADMIN_PASSWORD = "testbed-admin"
# Without its cache Keystone asks its database 293 times for one list of roles: 420 ms of processor time instead of 13.
KEYSTONE = """[DEFAULT]
use_stderr = true
[database]
connection = sqlite:///{folder}/keystone.db
sqlite_synchronous = false
[token]
provider = fernet
expiration = {token_seconds}
[fernet_tokens]
key_repository = {folder}/fernet
[fernet_receipts]
key_repository = {folder}/fernet
[credential]
key_repository = {folder}/credential
[identity]
password_hash_rounds = 4
[cache]
enabled = true
backend = dogpile.cache.memory
"""


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Requests are not news."""


class _Threaded(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


def _spare_work() -> None:
    """Leave out work of Neutron that takes a sixth of its time and that tests cannot see.

    - oslo.db opens SQLite's file for each transaction, and SQLite parses 200 tables each time;
    - each change is read once more and sent to agents, by a bus that does not exist here.
    """
    from neutron.plugins.ml2 import ovo_rpc
    from oslo_db.sqlalchemy import engines
    from sqlalchemy import pool

    engines.pool.NullPool = pool.QueuePool
    ovo_rpc._ObjectChangeHandler.handle_event = lambda *_, **__: None  # noqa: SLF001
    gc.set_threshold(50_000)


def neutron() -> Application:
    """Neutron's application, with the doors of the bus beside it."""
    _spare_work()
    from neutron.db import agents_db
    from neutron.objects.agent import Agent
    from neutron.plugins.ml2 import rpc
    from neutron.wsgi.api import application
    from neutron_lib import constants, context
    from neutron_lib.plugins import directory

    plugin = directory.get_plugin()
    agents = agents_db.AgentExtRpcCallback(plugin)
    devices = rpc.RpcCallbacks(plugin.notifier, plugin.type_manager)

    def report_state(host: str, device_mappings: Any) -> Any:
        state = {
            "binary": constants.AGENT_PROCESS_NIC_SWITCH,
            "host": host,
            "topic": constants.L2_AGENT_TOPIC,
            "configurations": {"device_mappings": device_mappings, "extensions": ["qos"]},
            "agent_type": constants.AGENT_TYPE_NIC_SWITCH,
        }
        now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None).isoformat()
        return agents.report_state(context.get_admin_context(), agent_state={"agent_state": state}, time=now)

    def silence(host: str) -> Any:
        (agent,) = Agent.get_objects(context.get_admin_context(), host=host)
        agent.heartbeat_timestamp -= datetime.timedelta(days=1)
        agent.update()
        return host

    def update_device(host: str, mac: str, up: bool) -> Any:
        say = devices.update_device_up if up else devices.update_device_down
        return say(context.get_admin_context(), agent_id=f"nic-switch-agent.{host}", device=mac, host=host)

    doors: dict[str, Callable[..., Any]] = {
        "/bus/report_state": report_state,
        "/bus/silence": silence,
        "/bus/update_device": update_device,
    }

    def served(environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
        door = doors.get(environ["PATH_INFO"])
        if door is None:
            answer: Iterable[bytes] = application(environ, start)
            return answer
        given = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        said = json.dumps(door(**given), default=str).encode()
        start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(said)))])
        return [said]

    return served


def serve(which: str, folder: Path, port: int) -> None:
    """Answer until the process ends; the configuration is in the folder."""
    if which == "neutron":
        os.environ.update(OS_NEUTRON_CONFIG_DIR=str(folder), OS_NEUTRON_CONFIG_FILES="neutron.conf")
        sys.argv[1:] = []
        application = neutron()
    else:
        os.environ.update(OS_KEYSTONE_CONFIG_DIR=str(folder), OS_KEYSTONE_CONFIG_FILES="keystone.conf")
        sys.argv[1:] = []
        from keystone.wsgi.api import application as keystone

        application = keystone
    kind = WSGIServer if which == "neutron" else _Threaded
    with make_server("127.0.0.1", port, application, server_class=kind, handler_class=_Quiet) as server:
        server.serve_forever()


def prepare(folder: Path) -> None:
    """Make the databases, Keystone's keys and its first people."""
    folder.mkdir()
    config = folder / "keystone.conf"
    config.write_text(KEYSTONE.format(folder=folder, token_seconds=3600))
    whose = ("--keystone-user", str(os.getuid()), "--keystone-group", str(os.getgid()))
    for arguments in (
        ("db_sync",),
        ("fernet_setup", *whose),
        ("credential_setup", *whose),
        ("bootstrap", "--bootstrap-password", ADMIN_PASSWORD, "--bootstrap-region-id", "RegionOne"),
    ):
        call = "import sys; from keystone.cmd.manage import main; sys.exit(main())"
        command = (sys.executable, "-W", "ignore", "-c", call, "--config-file", str(config), *arguments)
        subprocess.run(command, check=True)
    config.unlink()
    from neutron.db.migration.models import head
    from sqlalchemy import create_engine

    # SQLite does not support all migrations; the models' tables are their result.
    head.get_metadata().create_all(create_engine(f"sqlite:///{folder}/neutron.db"))


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare(Path(sys.argv[2]))
    else:
        serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
