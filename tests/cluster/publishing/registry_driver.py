"""`netdra node --registry-socket` as a process, of a node that has interfaces, and no kubelet and no container runtime.

Used by the tests of the device registry, and by those of the effects of floods on the whole daemon.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from netdra.model.errors import NetdraError
from netdra.registry_client import RegistryClient
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import SLICE
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster import identities
from tests.cluster.publishing.scene import devices
from tests.kernel.conftest import Machine

HEALTH = "127.0.0.1:9400"
"""In the node's namespace."""
_NUMBERS = itertools.count(1)


@dataclass
class Daemon:
    """The driver of such a node.

    Attributes:
        process: to be killed and started again.
    """

    plane: ControlPlane
    api: Api
    node: str
    machine: Machine
    kubeconfig: Path
    folder: Path
    holder: subprocess.Popen[bytes] = field(init=False)
    process: Process = field(init=False)
    relay: str = ""
    name: str = ""

    @property
    def socket(self) -> Path:
        """The registry's."""
        return self.folder / "registry.sock"

    @property
    def state(self) -> Path:
        """The files that outlive the driver."""
        return self.folder / "state"

    @property
    def runtime(self) -> Path:
        """Where a runtime would listen for NRI plugins."""
        return self.folder / "nri.sock"

    def connect(self) -> None:
        """Have the API server reached from the node by its own address."""
        self.machine.run("ip", "link", "set", "lo", "up")
        self.holder = subprocess.Popen(("ip", "netns", "exec", self.machine.name, "sleep", "600"))
        until(lambda: Path(f"/proc/{self.holder.pid}/comm").read_text() == "sleep\n", "a process on the node")
        port = self.plane.server.rpartition(":")[2]
        self.relay = f"relay-{next(_NUMBERS)}"
        command = (sys.executable, "-m", "testbed.relay", str(self.holder.pid), port)
        self.plane.run(self.relay, command, lambda: f":{port}" in self.machine.run("ss", "-ltn"))

    def end(self) -> None:
        """Stop everything that was started."""
        if self.name:
            self.stop()
        self.plane.processes[self.relay].stop()
        self.holder.kill()
        self.holder.wait()

    def start(self) -> None:
        """Run it."""
        self.name = f"netdra-node-{next(_NUMBERS)}"
        (self.folder / "kubelet").mkdir(exist_ok=True)
        command = [
            *("ip", "netns", "exec", self.machine.name, sys.executable, "-m", "netdra", "node"),
            *(f"--kubeconfig={self.kubeconfig}", f"--node-name={self.node}", f"--state-dir={self.state}"),
            *(f"--kubelet-root={self.folder}/kubelet", f"--nri-socket={self.runtime}"),
            *(f"--cdi-dir={self.folder}/cdi", f"--registry-socket={self.socket}", f"--health-address={HEALTH}"),
        ]
        self.process = self.plane.run(self.name, command, self.serves)

    def serves(self) -> bool:
        """Whether the registry answers."""
        try:
            with RegistryClient(path=str(self.socket)) as client:
                client.registrations()
        except NetdraError:
            return False
        return True

    def stop(self) -> None:
        """End it."""
        self.plane.processes[self.name].stop()

    def metrics(self) -> str:
        """The text of its metrics."""
        ask = f"import urllib.request; print(urllib.request.urlopen('http://{HEALTH}/metrics').read().decode())"
        return self.machine.run(sys.executable, "-c", ask)

    def slices(self) -> list[Object]:
        """The slices that it has published."""
        return self.api.list(SLICE, fields=f"spec.nodeName={self.node}")

    def wait(self, device: str, name: str, *, there: bool = True) -> Object:
        """Wait until a published device has an attribute or capacity, or no longer has it."""

        def met(items: Any) -> bool:
            known = devices(items).get(device, {})
            return known != {} and (name in {**known.get("attributes", {}), **known.get("capacity", {})}) is there

        found = self.api.wait_for_all(SLICE, met, fields=f"spec.nodeName={self.node}")
        return devices(found)[device]


@contextmanager
def running(plane: ControlPlane, workspace: Workspace, machine: Machine) -> Iterator[Daemon]:
    """A driver that is to be started, with the rights of its service account."""
    identities.install(workspace.api)
    node = workspace.add_node()
    kubeconfig = identities.kubeconfig(plane, workspace.api, "netdra-node", node)
    with TemporaryDirectory(prefix="netdra-registry-") as folder:
        daemon = Daemon(plane, workspace.api, node, machine, kubeconfig, Path(folder))
        daemon.connect()
        try:
            yield daemon
        finally:
            daemon.end()
            workspace.api.delete_all(SLICE, fields=f"spec.nodeName={node}")
