"""A control plane on loopback: etcd, kube-apiserver, kube-scheduler and kube-controller-manager, ready in seconds.

Used by the fixtures of `tests/cluster` and by the benchmarks. Ports, certificates and state are its own, so several may
run side by side; every component is a `Process`, to be paused, killed or restarted by tests of faults.
"""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import ssl
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from testbed import commands
from testbed.access import ADMIN_GROUPS, Access
from testbed.api import TIMEOUT
from testbed.certificates import new_authority, new_signing_key
from testbed.commands import Settings, Wiring
from testbed.objects import SERVICE_ACCOUNT
from testbed.process import Ports, Process, ProcessError, answers

WEBHOOK_CLIENT = "kube-apiserver-webhooks"
"""The common name of the certificate that the API server presents to webhooks."""
_OBJECTS = "/registry/"
_KINDS = ("/registry/apiextensions.k8s.io/", "/registry/apiregistration.k8s.io/")
"""Below these keys etcd has the definitions of kinds, which cost the API server more than all other objects."""
_OF_COMPONENTS = "/kube-"
"""In the keys of the components' own namespaces, where they create objects as they begin, such as their accounts."""
_NAMESPACES, _EVENTS, _CLAIMS = "/registry/namespaces/", "/registry/events/", "/registry/resourceclaims/"
_OF_EVERY_NAMESPACE = ("/registry/serviceaccounts/{}/default", "/registry/configmaps/{}/kube-root-ca.crt")
"""The keys of the objects that the controller manager puts into each namespace."""
_AT_ONCE = 100
"""Keys in one request to etcd, which accepts 128."""


class ControlPlane(Access):
    """A control plane that runs while its `with` block does.

    Attributes:
        settings: what it was made from.
        folder: logs, certificates, kubeconfig files and etcd's data.
        processes: the components by program name, each after those that it needs, and the programs that `run` started.
    """

    folder: Path

    def __init__(self, settings: Settings | None = None, *, folder: Path | None = None) -> None:
        """Prepare, start nothing.

        Args:
            settings: gates, components and arguments.
            folder: where to leave the logs for later reading; without one, the files are in a temporary
                folder that goes with the control plane.
        """
        self.settings = settings or Settings()
        self.feature_gates = self.settings.feature_gates
        self.processes: dict[str, Process] = {}
        self._given_folder = folder
        self._ending: list[str] = []
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        """Start everything and wait until it is ready.

        Raises:
            ProcessError: a component does not become ready; the text has the end of its log.
            BuildError: a component is not built.
        """
        with ExitStack() as undo:
            self.folder = self._given_folder or Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="netdra-")))
            self.folder.mkdir(parents=True, exist_ok=True)
            self.authority = new_authority(self.folder / "certificates")
            ports = Ports(self.settings.address)
            undo.callback(ports.close)
            undo.callback(shutil.rmtree, self.folder / "etcd", ignore_errors=True)
            undo.callback(self._kill_all)
            self._start(self._wire(ports), ports)
            self._initial = self._keys()
            self._components = frozenset(self.processes)
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill everything: the data is not needed any more."""
        self._undo.close()

    @property
    def etcd(self) -> Process:
        """The etcd that holds all objects."""
        return self.processes["etcd"]

    @property
    def apiserver(self) -> Process:
        """The kube-apiserver."""
        return self.processes["kube-apiserver"]

    @property
    def scheduler(self) -> Process:
        """The kube-scheduler, where the settings have one."""
        return self.processes["kube-scheduler"]

    @property
    def controller_manager(self) -> Process:
        """The kube-controller-manager, where the settings have one."""
        return self.processes["kube-controller-manager"]

    def run(
        self,
        name: str,
        command: Sequence[str],
        ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a further program beside the components (a controller, hollow nodes), and wait until it is ready.

        It ends with the control plane if it is not stopped before, and its log is shown where theirs are. A name can
        be used again when its program has ended.

        Raises:
            ProcessError: the program did not become ready, or the last one of that name still runs.
        """
        before = self.processes.get(name)
        if before is not None and before.pid is not None:
            raise ProcessError(f"{name} still runs, as process {before.pid}")
        self.processes[name] = process = Process(name, command, self.folder / f"{name}.log", ready, environment)
        process.start()
        process.wait_ready()
        return process

    def clear(self) -> None:
        """Kill the programs that `run` started, and delete the objects that did not exist at first, except kinds.

        Objects are deleted in etcd, so neither finalizers nor the end of a namespace delay this. The components see
        each deletion, and continue. Their own namespaces stay as they are.
        """
        for name in self.processes.keys() - self._components:
            process = self.processes.pop(name)
            process.kill()
            process.log.unlink(missing_ok=True)
        new = sorted(self._keys() - self._initial)
        made = [key for key in new if not key.startswith(_KINDS) and _OF_COMPONENTS not in key]
        self._delete(made)

    def remove_namespace(self, name: str) -> bool:
        """Delete in etcd a namespace that holds no more than each new one, and claims that are being deleted.

        Without this, the controller manager lists and deletes the objects of some thirty kinds for each namespace,
        which costs the components 0.15 s of processor time: more than most tests. Where claims wait for it to remove
        their finalizer, the namespace goes with one of the next.

        Returns:
            False if the namespace holds something else, and stays.
        """
        keys = self._keys()
        self._ending = [ended for ended in self._ending if not self._try_remove(ended, keys)]
        if self._try_remove(name, keys):
            return True
        left = _beyond_new(name, keys)
        if all(key.startswith(_CLAIMS) for key in left):
            self._ending.append(name)
            return True
        return False

    def _try_remove(self, name: str, keys: Iterable[str]) -> bool:
        """Delete a namespace in etcd, with its events, if it holds no more than each new one."""
        if _beyond_new(name, keys):
            return False
        # The namespace first: the controller manager replaces what is missing in one that it knows.
        self._delete([f"{_NAMESPACES}{name}"])
        self._delete([key for key in keys if f"/{name}/" in key])
        return True

    def log_sizes(self) -> dict[str, int]:
        """How long each component's log is now, in bytes: what `log_tails` can begin after."""
        return {name: process.log.stat().st_size for name, process in self.processes.items()}

    def log_tails(self, since: Mapping[str, int], lines: int = 40) -> dict[str, str]:
        """The end of each component's log, from the given sizes on."""
        return {name: process.log_tail(lines, since.get(name, 0)) for name, process in self.processes.items()}

    def _wire(self, ports: Ports) -> Wiring:
        settings = self.settings
        hosts = ("localhost", "127.0.0.1", "kubernetes", "kubernetes.default.svc", settings.address, *settings.hosts)
        return Wiring(
            settings=settings,
            data=self.folder / "etcd",
            etcd=ports.take(),
            peer=ports.take(),
            apiserver=ports.take(),
            admission=self.folder / "admission.json",
            authority=self.authority.own.certificate,
            serving=self.authority.server("netdra-testbed", dict.fromkeys(hosts)),
            kubelet_client=self.authority.client("kube-apiserver-kubelet-client", ADMIN_GROUPS),
            service_accounts=new_signing_key(self.authority.folder / "service-accounts.key"),
        )

    def _present_certificate(self, wiring: Wiring) -> None:
        """Have the API server present a client certificate to webhooks that ask for one (docs/webhook.md)."""
        shown = self.authority.client(WEBHOOK_CLIENT, ())
        user = {"client-certificate": str(shown.certificate), "client-key": str(shown.key)}
        kubeconfig = wiring.admission.with_suffix(".kubeconfig")
        kubeconfig.write_text(
            json.dumps({"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]})
        )
        of_webhooks = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": str(kubeconfig),
        }
        plugins = [{"name": "ValidatingAdmissionWebhook", "configuration": of_webhooks}]
        configuration = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"}
        wiring.admission.write_text(json.dumps(configuration | {"plugins": plugins}))

    def _start(self, wiring: Wiring, ports: Ports) -> None:
        settings = self.settings
        self.server = settings.url(wiring.apiserver)
        self._etcd_url = settings.url(wiring.etcd, "http")
        self._add("etcd", commands.etcd(wiring), f"{self._etcd_url}/readyz")
        self._present_certificate(wiring)
        self._add("kube-apiserver", commands.apiserver(wiring), f"{self.server}/readyz")
        self._run("etcd", "kube-apiserver")
        # Only now: at their first try these two want an API server, or exit, or wait for seconds.
        if settings.scheduler:
            port, user = ports.take(), self.kubeconfig("system:kube-scheduler", ())
            self._add("kube-scheduler", commands.scheduler(wiring, port, user), f"{settings.url(port)}/readyz")
        if settings.controller_manager:
            port, user = ports.take(), self.kubeconfig("system:kube-controller-manager", ())
            command = commands.controller_manager(wiring, port, user)
            self._add("kube-controller-manager", command, f"{settings.url(port)}/healthz")
        self._run("kube-scheduler", "kube-controller-manager")
        if settings.controller_manager:
            # It calls itself healthy before its controllers run; this one's work is what the first pod waits for.
            with closing(self.client()) as api:
                api.wait_for(SERVICE_ACCOUNT, "default", lambda found: found is not None, namespace="default")

    def _keys(self) -> frozenset[str]:
        """The keys of all objects in etcd."""
        end = _OBJECTS[:-1] + chr(ord(_OBJECTS[-1]) + 1)
        asked = {"key": _encoded(_OBJECTS), "range_end": _encoded(end), "keys_only": True}
        return frozenset(base64.b64decode(found["key"]).decode() for found in self._ask_etcd("range", asked)["kvs"])

    def _delete(self, keys: Sequence[str]) -> None:
        """Delete objects in etcd."""
        for first in range(0, len(keys), _AT_ONCE):
            deleted = [{"requestDeleteRange": {"key": _encoded(key)}} for key in keys[first : first + _AT_ONCE]]
            self._ask_etcd("txn", {"success": deleted})

    def _ask_etcd(self, what: str, body: object) -> Any:
        """A request to etcd in JSON: `range` or `txn`."""
        connection = http.client.HTTPConnection(urlsplit(self._etcd_url).netloc, timeout=TIMEOUT)
        with closing(connection):
            connection.request("POST", f"/v3/kv/{what}", json.dumps(body))
            answer = connection.getresponse()
            data = answer.read()
        if answer.status != http.client.OK:
            raise ProcessError(f"etcd answered {what} with {answer.status}: {data.decode(errors='replace')}")
        return json.loads(data)

    def _add(self, name: str, command: list[str], ready: str) -> None:
        context = ssl.create_default_context(cafile=self.authority.own.certificate)
        self.processes[name] = Process(name, command, self.folder / f"{name}.log", answers(ready, context))

    def _run(self, *names: str) -> None:
        started = [self.processes[name] for name in names if name in self.processes]
        for process in started:
            process.start()
        for process in started:
            process.wait_ready()

    def _kill_all(self) -> None:
        for process in reversed(self.processes.values()):
            process.kill()


def _beyond_new(namespace: str, keys: Iterable[str]) -> list[str]:
    """Of all keys, those of objects in a namespace that a new one does not have; its events are not counted."""
    new = {key.format(namespace) for key in _OF_EVERY_NAMESPACE}
    return [key for key in keys if f"/{namespace}/" in key and not key.startswith(_EVENTS) and key not in new]


def _encoded(key: str) -> str:
    """A key as etcd's JSON has it."""
    return base64.b64encode(key.encode()).decode()
