"""`netdra node` on a real node beside its kubelet and containerd, and what pods need around it: policies, topologies.

The interfaces are the node's, made by iproute2. The controller's part, a topology's DeviceClasses, is done here.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from netdra.model.topology import NetworkTopology
from netdra.node import faults
from netdra.topology.classes import device_classes
from testbed.api import Api, Object
from testbed.build import program
from testbed.node import CommandError
from testbed.objects import SLICE, manifest
from testbed.process import Process
from testbed.recorder import Recorder
from testbed.workspace import Workspace
from tests.cluster import identities
from tests.cluster.pods.conftest import Machine

ROOT = Path(__file__).parents[3]
POLICY = "networking.dra.io/v1alpha1/DeviceExposurePolicy"
TOPOLOGY = "networking.dra.io/v1alpha1/NetworkTopology"
PLUGINS = ("host-local", "macvlan", "static")
WITHIN = 180.0
_PORT = 18080
# The leases of the network "pods" are those of eth0.
_KEPT = (
    "lib/netdra/sandboxes/*.jsonl*",
    "lib/netdra/sandboxes/devices/*",
    "lib/netdra/claims/*.json*",
    "lib/kubelet/plugins/dra.networking/dra-device-metadata/*",
    "run/cdi/dra.networking-*",
    "lib/cni/networks/*/*",
)
_READY = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)"


@dataclass
class Driver:
    """The driver of a node, which may be stopped, killed and started again."""

    machine: Machine
    api: Api
    plugins: Path
    kubeconfig: Path
    process: Process | None = None
    instance: str = ""
    port: int = _PORT

    def start(self, fault: str = "") -> None:
        """Start it and wait until it is ready, or with a fault point until it serves."""
        command = (
            *(sys.executable, "-m", "netdra", "node", f"--node-name={self.machine.node.name}"),
            *(f"--kubeconfig={self.kubeconfig}", f"--cni-path={self.plugins}"),
            *(f"--health-address=127.0.0.1:{self.port}", f"--instance={self.instance}"),
        )
        environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", faults.VARIABLE: fault}
        environment["PYTHONFAULTHANDLER"] = "1"  # a crash of the interpreter says where, in the log
        name = f"netdra-node{self.instance}"
        self.process = self.machine.node.start(name, command, self._is_ready, environment)

    def beside(self, instance: str) -> Driver:
        """A second one for the same node, not started, as in a rolling update."""
        return replace(self, process=None, instance=instance, port=self.port + 1)

    def kill(self) -> None:
        """Kill it, as a crash would."""
        assert self.process is not None
        self.process.kill()

    def restart(self, fault: str = "") -> None:
        """Kill it and start it again, perhaps with a fault point."""
        self.kill()
        self.start(fault)

    def wait_end(self) -> None:
        """Wait until it has died by itself."""
        assert self.process is not None
        deadline = time.monotonic() + WITHIN
        while self.process.pid is not None:
            assert time.monotonic() < deadline, "the driver has not come to its fault point"
            time.sleep(0.02)

    def publish(self, *interfaces: str) -> None:
        """Make veth devices of the node, and wait until they are published."""
        for name in interfaces:
            self.machine.node.run("ip", "link", "add", name, "type", "veth", "peer", "name", f"far-{name}")
            self.machine.node.run("ip", "link", "set", f"far-{name}", "up")
            self.machine.node.run("ip", "link", "set", name, "up")
        wanted = set(interfaces)

        def there(found: list[Object]) -> bool:
            devices = (device for each in found for device in each["spec"].get("devices", []))
            names = {device["attributes"]["dra.networking/ifName"].get("string") for device in devices}
            return wanted <= names

        self.api.wait_for_all(SLICE, there, fields=f"spec.nodeName={self.machine.node.name}")

    def links(self) -> set[str]:
        """The node's own interfaces."""
        found = self.machine.node.run("ip", "-o", "link", "show")
        return {line.split(": ")[1].split("@")[0] for line in found.splitlines()}

    def left(self) -> list[str]:
        """What there is on the node of any pod or claim: files and leases, by their paths."""
        return sorted(
            str(path.relative_to(self.machine.node.folder))
            for pattern in _KEPT
            for path in self.machine.node.folder.glob(pattern)
            if path.parent.name != "pods" and not path.name.startswith(("last_reserved_ip", "lock"))
        )

    def until_nothing_is_left(self) -> None:
        """Wait until there is nothing of any pod or claim on the node."""
        deadline = time.monotonic() + WITHIN
        while left := self.left():
            assert time.monotonic() < deadline, left
            time.sleep(0.1)

    def recorder(self, name: str) -> Recorder:
        """A CNI plugin that does as it is told."""
        return Recorder(self.plugins, name)

    def _is_ready(self) -> bool:
        try:
            self.machine.node.run(sys.executable, "-c", _READY, f"http://127.0.0.1:{self.port}/readyz")
        except CommandError:
            return False
        return True


@contextmanager
def running_driver(machine: Machine, api: Api, folder: Path, kubeconfig: Path) -> Iterator[Driver]:
    """A driver that runs, with a policy for interfaces whose names begin with `nic` and one for those with `mac`."""
    plugins = folder / "cni"
    plugins.mkdir()
    for name in PLUGINS:
        (plugins / name).symlink_to(program(name))
    number = uuid.uuid4().hex[:6]
    slots = {"slots": {"value": "8", "requestPolicy": {"default": "1"}}}
    policies = (
        policy(f"whole-{number}", "nic", {"supportedCNIPlugins": [{"name": "host-device", "exclusive": True}]}),
        policy(
            f"shared-{number}",
            "mac",
            {"allowMultipleAllocations": True, "supportedCNIPlugins": [{"name": "macvlan"}], "capacity": slots},
        ),
    )
    for each in policies:
        api.create(each)
    driver = Driver(machine, api, plugins, kubeconfig)
    try:
        driver.start()
        yield driver
    finally:
        if driver.process is not None:
            driver.process.stop()
        for each in policies:
            api.delete(POLICY, each["metadata"]["name"])


def policy(name: str, prefix: str, exposure: Mapping[str, Any]) -> Object:
    """A policy for interfaces whose names begin so."""
    cel = f'device.attributes["dra.networking"].ifName.startsWith("{prefix}")'
    return manifest(POLICY, name, spec={"selector": {"cel": cel}, "exposure": dict(exposure)})


def make_topology(workspace: Workspace, base: str, *steps: Object, exact: bool = False) -> str:
    """Make a topology with its DeviceClasses; return its name, which no other test has unless it is to be exact."""
    name = base if exact else workspace.name(base)
    whole = manifest(TOPOLOGY, name, spec={"steps": list(steps)})
    workspace.create(whole)
    for each in device_classes(msgspec.convert(whole, NetworkTopology)):
        workspace.create(msgspec.to_builtins(each))
    return name


def step(name: str, kind: str, config: Mapping[str, Any] | None = None, after: str = "", prefix: str = "") -> Object:
    """A step; without a dependency it is a root step for devices whose interfaces' names begin so."""
    cel = f'device.attributes["dra.networking"].ifName.startsWith("{prefix}")'
    place: Object = {"dependOn": [after]} if after else {"selector": {"cel": cel}}
    return {"name": name, "type": kind, **place, **({"config": dict(config)} if config else {})}


def account(machine: Machine, plane: Any, api: Api) -> Path:
    """The driver's own rights, with a token that is bound to its node."""
    identities.install(api)
    return identities.kubeconfig(plane, api, "netdra-node", machine.node.name)
