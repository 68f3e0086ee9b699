"""The kubelet plugin under the real kubelet: registration, claims of real pods, the guard, restarts and successions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdra.exposure import expose
from netdra.model import documents, names
from netdra.slices.pack import layout
from testbed.api import Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, CLASS, manifest
from testbed.pods import Pods, is_running
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.builders import OURS, exclusive, inventory, sriov
from tests.cluster.pods import witness
from tests.cluster.pods.conftest import Machine

ROOT = Path(__file__).parents[3]
WITHIN = 180.0
MODULE = ("-m", "tests.cluster.pods.claim_plugin")


class Driver:
    """The plugin on a node, and the devices that it is for."""

    def __init__(self, machine: Machine, plane: ControlPlane, workspace: Workspace, pods: Pods) -> None:
        self.machine, self.plane, self.workspace, self.pods = machine, plane, workspace, pods
        self.node = machine.node
        (self.node.folder / "lib" / "netdra").mkdir(exist_ok=True)
        found = expose(
            inventory(*sriov("eth0", 4), node=self.node.name),
            (exclusive("vfs", f'{OURS}.type == "vf"', "sriov"),),
        )
        # The kubelet deletes slices of a driver that it does not know, but only when it starts.
        for each in layout(found, node=self.node.name).slices:
            workspace.create(documents.plain(each))
        self.device_class = workspace.name("vfs")
        selector = {"cel": {"expression": f'device.driver == "{names.DRIVER}"'}}
        workspace.create(manifest(CLASS, self.device_class, spec={"selectors": [selector]}))
        self.running: dict[str, Process] = {}

    def start(self, instance: str = "") -> None:
        """Start a daemon, and wait until the kubelet has taken it."""
        state = self.registered(instance)
        state.unlink(missing_ok=True)
        command = (sys.executable, *MODULE, str(self.plane.kubeconfig()), self.node.name, instance)
        environment = {"PYTHONPATH": str(ROOT)}
        name = f"plugin{instance}"
        self.running[instance] = self.node.start(name, command, lambda: times(state) > 0, environment)

    def stop(self, instance: str = "") -> None:
        self.running[instance].stop()

    def registered(self, instance: str = "") -> Path:
        return self.node.folder / "lib" / "netdra" / f"registered{instance}"

    def claim(self, name: str, **spec: object) -> Object:
        request = {"name": "net", "exactly": {"deviceClassName": self.device_class}}
        made = manifest(CLAIM, name, self.workspace.namespace, spec={"devices": {"requests": [request], **spec}})
        return self.workspace.api.create(made)

    def attach(self, claim: Object) -> None:
        self.node.run("env", f"PYTHONPATH={ROOT}", sys.executable, *MODULE, "attach", claim["metadata"]["uid"])

    def records(self) -> set[str]:
        folder = self.node.folder / "lib" / "netdra" / "claims"
        return {path.stem for path in folder.glob("*.json")}


def times(state: Path) -> int:
    return int(state.read_text() or "0") if state.exists() else 0


def health_of(status: Object) -> str:
    containers = status.get("containerStatuses", [])
    return ",".join(
        resource["health"]
        for container in containers
        for allocated in container.get("allocatedResourcesStatus", [])
        for resource in allocated.get("resources", [])
    )


@pytest.fixture
def driver(machine: Machine, control_plane: ControlPlane, workspace: Workspace, pods: Pods) -> Iterator[Driver]:
    made = Driver(machine, control_plane, workspace, pods)
    yield made
    pods.delete_all()
    for process in made.running.values():
        process.kill()


def test_a_pod_starts_when_its_claim_is_attached_and_sees_its_device(driver: Driver) -> None:
    driver.start()
    claim = driver.claim("c")
    driver.pods.add("p", "c")
    # Prepared, but nobody has attached anything: the sandbox is there, the container is not made.
    driver.pods.wait_event("p", "Failed", "unresolvable CDI devices dra.networking/claim=")
    uid = claim["metadata"]["uid"]
    assert driver.records() == {uid}
    driver.attach(claim)
    witness.hurry(driver.pods, "p", is_running)
    environment = driver.pods.exec("p", "env").splitlines()
    (device,) = driver.workspace.devices("c")
    assert f"NETDRA_C_NET_DEVICES={device}" in environment
    assert any(line.startswith("NETDRA_C_NET_PCI_ADDRESSES=0000:03:") for line in environment)
    path = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/c/net/dra.networking-metadata.json"
    assert f'"name": "{device}"' in driver.pods.exec("p", "cat", path)

    driver.pods.delete("p")
    until(lambda: not driver.records(), "the claim to be given back", seconds=WITHIN)
    assert list((driver.node.folder / "run" / "cdi").glob(f"*{uid}*")) == []


def test_a_refusal_is_an_event_of_the_pod_in_its_own_words(driver: Driver) -> None:
    driver.start()
    driver.claim("c", config=[{"opaque": {"driver": names.DRIVER, "parameters": {"kind": "Mine"}}}])
    driver.pods.add("p", "c")
    text = "contains configuration for dra.networking"
    event = driver.pods.wait_event("p", "FailedPrepareDynamicResources", text)
    assert "remove it from spec.devices.config" in event["message"]
    assert driver.records() == set()


def test_the_kubelet_takes_the_driver_again_after_either_restarts(driver: Driver) -> None:
    driver.start()
    claim = driver.claim("c")
    driver.pods.add("p", "c")
    until(lambda: driver.records() == {claim["metadata"]["uid"]}, "the claim to be prepared", seconds=WITHIN)
    driver.attach(claim)
    witness.hurry(driver.pods, "p", is_running)

    driver.machine.kubelet.process.restart()
    until(lambda: times(driver.registered()) > 1, "the kubelet to register the driver again", seconds=WITHIN)
    # Killed, it leaves its sockets behind.
    driver.running[""].kill()
    driver.start()
    driver.pods.delete("p")
    until(lambda: not driver.records(), "the claim to be given back", seconds=WITHIN)


@pytest.mark.parametrize("name", ["plugins/dra.networking/dra.sock", "plugins_registry/dra.networking-reg.sock"])
def test_the_kubelet_registers_the_driver_again_after_a_socket_is_deleted(driver: Driver, name: str) -> None:
    driver.start()
    (driver.node.folder / "lib" / "kubelet" / name).unlink()
    until(lambda: times(driver.registered()) > 1, "the kubelet to register the driver again", seconds=WITHIN)
    claim = driver.claim("c")
    driver.pods.add("p", "c")
    until(lambda: driver.records() == {claim["metadata"]["uid"]}, "the claim to be prepared", seconds=WITHIN)
    driver.attach(claim)
    witness.hurry(driver.pods, "p", is_running)
    driver.pods.delete("p")
    until(lambda: not driver.records(), "the claim to be given back", seconds=WITHIN)


def test_a_new_daemon_takes_over_before_the_old_one_stops(driver: Driver) -> None:
    driver.start("old")
    claim = driver.claim("c")
    driver.pods.add("p", "c")
    until(lambda: driver.records() == {claim["metadata"]["uid"]}, "the claim to be prepared", seconds=WITHIN)
    driver.start("new")
    driver.stop("old")
    driver.attach(claim)
    witness.hurry(driver.pods, "p", is_running)
    plugins = driver.node.folder / "lib" / "kubelet" / "plugins" / names.DRIVER
    assert [path.name for path in plugins.glob("*.sock")] == ["dra-new.sock"]
    driver.pods.delete("p")
    until(lambda: not driver.records(), "the claim to be given back", seconds=WITHIN)


def test_the_pod_status_reports_the_health_of_its_device(driver: Driver) -> None:
    driver.start()
    claim = driver.claim("c")
    driver.pods.add("p", "c")
    until(lambda: driver.records() == {claim["metadata"]["uid"]}, "the claim to be prepared", seconds=WITHIN)
    driver.attach(claim)
    witness.hurry(driver.pods, "p", is_running)
    driver.pods.wait("p", lambda pod: health_of((pod or {})["status"]) == "Healthy")
    sick = driver.node.folder / "lib" / "netdra" / "sick"
    sick.touch()
    driver.pods.wait("p", lambda pod: health_of((pod or {})["status"]) == "Unhealthy")
    sick.unlink()
    driver.pods.wait("p", lambda pod: health_of((pod or {})["status"]) == "Healthy")
