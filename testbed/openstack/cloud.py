"""A cloud on loopback: Keystone and Neutron with their people, networks and NIC switch agents, as tests need them.

Used by `tests/cluster/neutron`, and from inside the SR-IOV machine (`testbed.vm.beside`). Both are the real programs
(`testbed.openstack.serve`); the agents, which would each be a process on a node, are heartbeats that Neutron is given.
An administrator's actions use the REST APIs.
"""

from __future__ import annotations

import http.client
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from testbed.openstack import environment
from testbed.openstack.serve import ADMIN_PASSWORD, KEYSTONE
from testbed.process import Ports, Process, answers

TIMEOUT = 60.0
START_SECONDS = 300.0
"""How long the start of either may take: many imports, which a busy machine reads slowly."""
PROJECT, OTHER_PROJECT = "kubernetes", "other"
NEUTRON_PASSWORD = "testbed-neutron"
VLANS: Mapping[str, tuple[int, int]] = {"physnet2": (200, 299), "physnet3": (300, 399)}
_FILE = "cloud.json"
_DATABASE, _INITIAL = "neutron.db", "neutron-initial.db"
_NEUTRON = """[DEFAULT]
auth_strategy = keystone
core_plugin = ml2
service_plugins = qos
api_paste_config = {environment}/etc/neutron/api-paste.ini
state_path = {folder}
transport_url = fake://
agent_down_time = 3600
pagination_max_limit = {page}
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
dhcp_agent_notification = false
use_stderr = true
[database]
connection = sqlite:///{folder}/neutron.db
sqlite_synchronous = false
[oslo_concurrency]
lock_path = {folder}/lock
[oslo_policy]
enforce_scope = true
enforce_new_defaults = true
policy_file = {folder}/policy.yaml
[oslo_messaging_notifications]
driver = noop
[keystone_authtoken]
www_authenticate_uri = {keystone}
auth_url = {keystone}
auth_type = password
username = neutron
password = {password}
project_name = service
user_domain_id = default
project_domain_id = default
service_token_roles = service
service_token_roles_required = true
[ml2]
type_drivers = flat,vlan,vxlan
tenant_network_types = vlan
mechanism_drivers = openvswitch,sriovnicswitch
extension_drivers = port_security,qos
[ml2_type_flat]
flat_networks = *
[ml2_type_vlan]
network_vlan_ranges = {vlans}
[ml2_type_vxlan]
vni_ranges = 1:100
[securitygroup]
enable_security_group = true
"""


class Said(NamedTuple):
    """A server's answer."""

    status: int
    headers: Mapping[str, str]
    body: Any


class RefusedError(Exception):
    """An administrator's call was refused; the text has the call and the answer."""


class User(NamedTuple):
    """A user of a project, with a password and an application credential of the same roles."""

    name: str
    password: str
    id: str
    project: str
    credential: str
    secret: str


class Cloud:
    """Keystone and Neutron, running while the `with` block does.

    Attributes:
        folder: configurations, databases and logs.
        processes: `keystone` and `neutron`, to be paused, killed or started again.
        users: by role, users of the project `kubernetes`: `member`, and `service` with member and service.
        projects: projects' ids by name.
    """

    folder: Path

    def __init__(self, folder: Path | None = None, *, token_seconds: int = 3600, page: int = 3) -> None:
        """Prepare, start nothing.

        Args:
            folder: where logs stay; without one, everything is temporary.
            token_seconds: how long a token is good for.
            page: how many objects Neutron lists at once.
        """
        self._page = page
        self._given_folder = folder
        self._token_seconds = token_seconds
        self._undo = ExitStack()
        self._host = "127.0.0.1"
        self._ports: dict[str, int] = {}
        self._token = ""
        self._read: dict[str, str] = {}
        self.processes: dict[str, Process] = {}
        self.users: dict[str, User] = {}
        self.projects: dict[str, str] = {}

    def __enter__(self) -> Self:
        """Start both and wait until they are ready.

        Raises:
            ProcessError, BuildError: one does not begin.
        """
        installed, state = environment.ensure()
        with ExitStack() as undo:
            self.folder = self._given_folder or Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="netdra-")))
            shutil.copytree(state, self.folder, dirs_exist_ok=True)
            ports = Ports("127.0.0.1")
            undo.callback(ports.close)
            undo.callback(self._kill_all)
            self._ports = {"keystone": ports.take(), "neutron": ports.take()}
            self.limit_tokens(self._token_seconds)
            self._start("keystone", installed, "/v3")
            self._people()
            vlans = ",".join(f"{physnet}:{low}:{high}" for physnet, (low, high) in VLANS.items())
            self._usual = _NEUTRON.format(
                environment=installed,
                folder=self.folder,
                keystone=self.url("keystone"),
                password=NEUTRON_PASSWORD,
                vlans=vlans,
                page=self._page,
            )
            self._configuration("neutron").write_text(self._usual)
            self.allow()
            self._start("neutron", installed, "/")
            self._copy(_DATABASE, _INITIAL)
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill both."""
        self._undo.close()

    def restore(self) -> None:
        """Delete all that was made in Neutron, and undo all settings: the cloud is as it was when it was ready.

        A server is restarted if it runs with other settings than the usual ones.
        """
        self.limit_tokens(self._token_seconds)
        self._configuration("neutron").write_text(self._usual)
        self.allow()
        for which in self.processes:
            self._follow_configuration(which)
        self._copy(_INITIAL, _DATABASE)

    def _copy(self, source: str, target: str) -> None:
        """Copy a database; SQLite lets servers that have either open continue with the copy."""
        with (
            closing(sqlite3.connect(self.folder / source)) as copied,
            closing(sqlite3.connect(self.folder / target)) as to,
        ):
            copied.backup(to)

    @property
    def keystone(self) -> Process:
        """Keystone's process."""
        return self.processes["keystone"]

    @property
    def neutron(self) -> Process:
        """Neutron's process."""
        return self.processes["neutron"]

    def url(self, server: str) -> str:
        """Where a server is: `keystone` or `neutron`."""
        return f"http://{self._host}:{self._ports[server]}"

    def limit_tokens(self, seconds: int) -> None:
        """Have Keystone issue tokens that are good for so long; it is restarted if it runs with another duration."""
        self._configuration("keystone").write_text(KEYSTONE.format(folder=self.folder, token_seconds=seconds))
        if "keystone" in self.processes:
            self._follow_configuration("keystone")

    def omit_login(self) -> None:
        """Restart Neutron without authentication, until `restore`."""
        # A client without a login has no role, so the policies that depend on roles are off, too.
        changes = {
            "auth_strategy = keystone": "auth_strategy = noauth",
            "enforce_scope = true": "enforce_scope = false",
            "enforce_new_defaults = true": "enforce_new_defaults = false",
        }
        self._change(changes)

    def load_drivers(self, *drivers: str) -> None:
        """Restart Neutron with further extension drivers, until `restore`."""
        usual = "extension_drivers = port_security,qos"
        self._change({usual: ",".join((usual, *drivers))})

    def _change(self, changes: Mapping[str, str]) -> None:
        changed = self._usual
        for former, text in changes.items():
            changed = changed.replace(former, text)
        self._configuration("neutron").write_text(changed)
        self._follow_configuration("neutron")

    def _configuration(self, which: str) -> Path:
        return self.folder / f"{which}.conf"

    def _follow_configuration(self, which: str) -> None:
        """Restart a server unless it runs and has read its configuration as it is now."""
        if self.processes[which].pid is None or self._read[which] != self._configuration(which).read_text():
            self.processes[which].restart()
            self._read[which] = self._configuration(which).read_text()

    def clouds(self, path: Path, role: str = "service", *, by: str = "credential", **auth: Any) -> Path:
        """Write a clouds.yaml for a user, as an administrator would, and return its path.

        Args:
            path: of the file.
            role: whose: one of `users`.
            by: how the user logs in: `credential` or `password`.
            auth: what stands otherwise in the file's `auth`.
        """
        user = self.users[role]
        if by == "credential":
            kind, own = (
                "v3applicationcredential",
                {
                    "application_credential_id": user.credential,
                    "application_credential_secret": user.secret,
                },
            )
        else:
            kind, own = (
                "password",
                {
                    "username": user.name,
                    "password": user.password,
                    "user_domain_id": "default",
                    "project_id": user.project,
                },
            )
        found = {"auth_type": kind, "region_name": "RegionOne"}
        if self._host != "127.0.0.1":  # the catalog has the loopback of the machine that both run on
            found["network_endpoint_override"] = self.url("neutron")
        found["auth"] = {"auth_url": f"{self.url('keystone')}/v3", **own, **auth}  # type: ignore[assignment]
        path.write_text(json.dumps({"clouds": {"openstack": found}}))
        return path

    def token(self, role: str = "service") -> str:
        """Log in as one of `users`, and return the token.

        Raises:
            RefusedError: Keystone does not let him.
        """
        user = self.users[role]
        return self._login(user.name, user.password, PROJECT)

    def ask(self, server: str, method: str, path: str, body: Any = None, token: str = "") -> Said:
        """One request, and its answer."""
        headers = {"Content-Type": "application/json"} | ({"X-Auth-Token": token} if token else {})
        connection = http.client.HTTPConnection(self._host, self._ports[server], timeout=TIMEOUT)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            data = answer.read()
            is_json = answer.headers.get_content_type() == "application/json"
            return Said(answer.status, dict(answer.getheaders()), json.loads(data) if is_json and data else data)
        finally:
            connection.close()

    def admin(self, server: str, method: str, path: str, body: Any = None) -> Any:
        """A request of the administrator's.

        Raises:
            RefusedError: it was refused.
        """
        said = self.ask(server, method, path, body, self._token)
        if said.status >= http.client.BAD_REQUEST:
            raise RefusedError(f"{method} {path} {body}: {said.status} {said.body}")
        return said.body

    def make(self, kind: str, **fields: Any) -> Any:
        """Make an object of Neutron's (`network`, `subnet`, `port` ...) as the administrator, and return it."""
        return self.admin("neutron", "POST", f"/v2.0/{kind}s", {kind: fields})[kind]

    def network(self, name: str, physnet: str, cidrs: Sequence[str] = (), **fields: Any) -> Any:
        """Make a network of the project `kubernetes` on a physical network, with subnets, and return it."""
        made = self.make(
            "network",
            **{
                "name": name,
                "project_id": self.projects[PROJECT],
                "provider:network_type": "vlan",
                "provider:physical_network": physnet,
                **fields,
            },
        )
        for cidr in cidrs:
            version = 6 if ":" in cidr else 4
            self.make("subnet", network_id=made["id"], cidr=cidr, ip_version=version, project_id=self.projects[PROJECT])
        return made

    def beat(self, host: str, **mappings: Sequence[str]) -> None:
        """Have the NIC switch agent of a host report that it lives, with its devices by physical network."""
        self._bus(
            "report_state", host=host, device_mappings={name: list(devices) for name, devices in mappings.items()}
        )

    def silence(self, host: str) -> None:
        """Have a host's agent not be heard of for a day."""
        self._bus("silence", host=host)

    def allow(self, **rules: str) -> None:
        """Have Neutron follow further rules of policy from its next request on, and no former ones of these.

        Args:
            rules: by target, with `__` for the colons in it.
        """
        plain = {target.replace("__", ":"): rule for target, rule in rules.items()}
        (self.folder / "policy.yaml").write_text(json.dumps(plain))

    def limit(self, ports: int) -> None:
        """How many ports the project `kubernetes` may have; -1 for any number."""
        self.admin("neutron", "PUT", f"/v2.0/quotas/{self.projects[PROJECT]}", {"quota": {"port": ports}})

    def ports(self) -> list[Any]:
        """All ports, as the administrator sees them."""
        ports: list[Any] = []
        marker = ""
        while True:
            try:
                page = self.admin("neutron", "GET", f"/v2.0/ports{marker}")["ports"]
            except RefusedError as problem:
                if "PortNotFound" not in str(problem):
                    raise
                ports, marker = [], ""  # the last port of a page was deleted meanwhile
                continue
            if not page:
                return ports
            ports += page
            marker = f"?marker={page[-1]['id']}"

    def revoke(self, token: str) -> None:
        """Make a token good for nothing."""
        connection = http.client.HTTPConnection(self._host, self._ports["keystone"], timeout=TIMEOUT)
        connection.request("DELETE", "/v3/auth/tokens", headers={"X-Auth-Token": self._token, "X-Subject-Token": token})
        assert connection.getresponse().status == http.client.NO_CONTENT
        connection.close()

    def share(self, folder: Path, host: str) -> None:
        """Write down how a process elsewhere that sees the folder can use the cloud, which it reaches at `host`."""
        shared = {
            "host": host,
            "ports": self._ports,
            "token": self._token,
            "projects": self.projects,
            "users": {role: user._asdict() for role, user in self.users.items()},
        }
        (folder / _FILE).write_text(json.dumps(shared))

    @classmethod
    def joined(cls, folder: Path) -> Self:
        """The cloud that another process runs and has shared in a folder: all but its processes, folder and logs.

        Raises:
            FileNotFoundError: none is shared there.
        """
        shared = json.loads((folder / _FILE).read_text())
        cloud = cls()
        cloud._host, cloud._ports, cloud._token = shared["host"], shared["ports"], shared["token"]
        cloud.projects = shared["projects"]
        cloud.users = {role: User(**user) for role, user in shared["users"].items()}
        return cloud

    def logs(self) -> str:
        """All that both have written."""
        return "".join(process.log.read_text(errors="replace") for process in self.processes.values())

    def _bus(self, door: str, **said: Any) -> None:
        found = self.ask("neutron", "POST", f"/bus/{door}", said)
        assert found.status == http.client.OK, found

    def _start(self, which: str, installed: Path, path: str) -> None:
        python = str(environment.python_of(installed))
        command = (python, "-W", "ignore", str(environment.SERVE), which, str(self.folder), str(self._ports[which]))
        process = Process(
            which, command, self.folder / f"{which}.log", answers(self.url(which) + path), environment.variables()
        )
        self.processes[which] = process
        self._read[which] = self._configuration(which).read_text()
        process.start()
        process.wait_ready(START_SECONDS)

    def _kill_all(self) -> None:
        for process in reversed(self.processes.values()):
            process.kill()

    def _people(self) -> None:
        """The project, Neutron's own user, and users of each role, with their application credentials."""
        self._token = self._login("admin", ADMIN_PASSWORD, "admin")
        for kind, url in (("identity", f"{self.url('keystone')}/v3"), ("network", self.url("neutron"))):
            service = self._keystone("POST", "service", type=kind, name=kind)
            place = {"service_id": service["id"], "region_id": "RegionOne", "url": url}
            for interface in ("public", "internal"):
                self._keystone("POST", "endpoint", interface=interface, **place)
        for name in ("service", PROJECT, OTHER_PROJECT):
            self.projects[name] = self._keystone("POST", "project", name=name, domain_id="default")["id"]
        roles = {each["name"]: each["id"] for each in self.admin("keystone", "GET", "/v3/roles")["roles"]}
        self._user("neutron", NEUTRON_PASSWORD, "service", (roles["admin"], roles["service"]))
        for role, named in (("member", ("member",)), ("service", ("member", "service"))):
            name, password = f"netdra-{role}", f"testbed-secret-of-{role}"
            user = self._user(name, password, PROJECT, [roles[each] for each in named])
            token = self._login(name, password, PROJECT)
            made = self.ask(
                "keystone",
                "POST",
                f"/v3/users/{user}/application_credentials",
                {"application_credential": {"name": "netdra"}},
                token,
            ).body["application_credential"]
            self.users[role] = User(name, password, user, self.projects[PROJECT], made["id"], made["secret"])

    def _user(self, name: str, password: str, project: str, roles: Sequence[str]) -> str:
        user: str = self._keystone("POST", "user", name=name, password=password, domain_id="default")["id"]
        for role in roles:
            self.admin("keystone", "PUT", f"/v3/projects/{self.projects[project]}/users/{user}/roles/{role}")
        return user

    def _keystone(self, method: str, kind: str, **fields: Any) -> Any:
        return self.admin("keystone", method, f"/v3/{kind}s", {kind: fields})[kind]

    def _login(self, name: str, password: str, project: str) -> str:
        user = {"name": name, "domain": {"id": "default"}, "password": password}
        scope = {"project": {"name": project, "domain": {"id": "default"}}}
        identity = {"methods": ["password"], "password": {"user": user}}
        said = self.ask("keystone", "POST", "/v3/auth/tokens", {"auth": {"identity": identity, "scope": scope}})
        if said.status != http.client.CREATED:
            raise RefusedError(f"{name} cannot log in: {said}")
        return {key.lower(): value for key, value in said.headers.items()}["x-subject-token"]
