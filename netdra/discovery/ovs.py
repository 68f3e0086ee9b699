"""The ports of each Open vSwitch bridge, asked of its database over its unix socket.

The kernel has one datapath for all bridges, and a bridge's own interface looks like any other internal port: the
database alone distinguishes them. Follows RFC 7047 (`transact`) and ovs-vswitchd.conf.db(5). Called by `live`, only on
machines that have such interfaces.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any

DATABASE = "/run/openvswitch/db.sock"
_TIMEOUT = 1.0
_MOST = 64 * 1024 * 1024
_TABLES = (("Bridge", ("name", "ports")), ("Port", ("_uuid", "interfaces")), ("Interface", ("_uuid", "name")))


def bridges(path: str = DATABASE) -> dict[str, str] | None:
    """The bridge of each interface by the interface's name; a bridge's own interface is its port too.

    None where the database cannot be asked: it is not there, denies it, or does not answer within a second.
    """
    request = {"method": "transact", "id": 0, "params": ["Open_vSwitch", *(_select(*table) for table in _TABLES)]}
    try:
        return _bridges(_ask(path, request))
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None


def _select(table: str, columns: tuple[str, ...]) -> dict[str, object]:
    return {"op": "select", "table": table, "where": [], "columns": list(columns)}


def _bridges(reply: Any) -> dict[str, str]:
    listed, ports, interfaces = (answer["rows"] for answer in reply["result"])
    names = {row["_uuid"][1]: _name(row) for row in interfaces}
    members = {row["_uuid"][1]: [names[uuid] for uuid in _uuids(row["interfaces"])] for row in ports}
    return {member: _name(row) for row in listed for port in _uuids(row["ports"]) for member in members[port]}


def _name(row: Any) -> str:
    if not isinstance(row["name"], str):
        raise TypeError("a name that is not text")
    return row["name"]


def _uuids(value: list[Any]) -> list[str]:
    """A set of one is written as its element: ["uuid", X], several as ["set", [["uuid", X], ...]]."""
    return [value[1]] if value[0] == "uuid" else [inner[1] for inner in value[1]]


def _ask(path: str, request: object) -> Any:
    """Send one request and read messages until its answer comes (the server may ask for an echo between)."""
    deadline = time.monotonic() + _TIMEOUT
    decoder = json.JSONDecoder()
    received = ""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        connection.settimeout(_TIMEOUT)
        connection.connect(path)
        connection.sendall(json.dumps(request).encode())
        # Each time, the message is read from its start, so the time is limited too where bytes come without end.
        while len(received) < _MOST and time.monotonic() < deadline:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            data = connection.recv(256 * 1024)
            if not data:
                raise ConnectionError
            received += data.decode("latin-1")
            while received:
                try:
                    message, end = decoder.raw_decode(received)
                except json.JSONDecodeError:
                    break
                received = received[end:].lstrip()
                if isinstance(message, dict) and "result" in message and message.get("id") == 0:
                    return message
    raise ConnectionError
