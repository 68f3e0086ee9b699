"""Faults that nodes report become taints: the real scheduler avoids the device, and Kubernetes evicts its pods."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from netdra.kernel.netns import Namespace
from netdra.kernel.sysfs import Sysfs
from netdra.model import documents
from netdra.model.health import HealthRule
from netdra.model.names import DRIVER
from netdra.model.plan import PlannedDevice
from netdra.model.policy import DeviceExposurePolicy
from netdra.node.health import service
from netdra.node.health.service import DeviceHealthWatch
from netdra.topology.devices import DeviceKey
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.kubectl import denial
from testbed.objects import POD, SLICE, manifest
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster import identities
from tests.cluster.daemons import running_controller

REPORT = "networking.dra.io/v1alpha1/NodeNetwork"
RULE = "resource.k8s.io/v1/DeviceTaintRule"
EVENT = "events.k8s.io/v1/Event"
POLICY = "networking.dra.io/v1alpha1/DeviceExposurePolicy"
NICS = 8
SYMBOLS = {
    "name": "symbols",
    "counter": "rdma_symbol_error",
    "atLeast": 10,
    "withinSeconds": 60,
    "recoverBelow": 5,
    "recoverAfterSeconds": 30,
    "effect": "NoExecute",
}


@pytest.fixture
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Process]:
    """The controller, which taints half of a node's devices at most."""
    with running_controller(control_plane, api, "--health-cluster-percent=100", "--health-node-percent=50") as process:
        yield process


@pytest.fixture
def node(workspace: Workspace, controller: Process) -> str:
    """A node with eight devices, whose report is there."""
    return reporting_node(workspace)


def reporting_node(workspace: Workspace) -> str:
    """Add a node with eight devices and a report."""
    name = workspace.add_node("faulty")
    devices = [{"name": f"nic{number}"} for number in range(NICS)]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    workspace.publish(name, manifest(SLICE, workspace.name("devices"), spec=spec))
    workspace.create(manifest(REPORT, name))
    return name


def report(workspace: Workspace, node: str, effect: str, *devices: str, pool: str = "") -> None:
    """The node reports faults of devices."""
    faults = [
        {
            "pool": pool or node,
            "device": device,
            "policy": "nics",
            "rule": "crc-errors",
            "effect": effect,
            "since": f"2026-11-30T00:00:0{place}Z",
            "counter": "rx_crc_errors",
            "increase": 412,
            "atLeast": 100,
            "withinSeconds": 3600,
            "values": ["00:10:11Z 1207", "00:12:41Z 1619"],
        }
        for place, device in enumerate(devices)
    ]
    status = {"faults": faults, "watchedDevices": NICS}
    workspace.api.patch(REPORT, node, {"status": status}, subresource="status")


def tainted(workspace: Workspace, node: str) -> dict[str, str]:
    """The effects of the taints on the node's devices."""
    rules = [rule["spec"] for rule in workspace.api.list(RULE)]
    return {
        rule["deviceSelector"]["device"]: rule["taint"]["effect"]
        for rule in rules
        if rule["deviceSelector"].get("pool") == node
    }


def until_tainted(workspace: Workspace, node: str, *devices: str, effect: str = "NoSchedule") -> None:
    """Wait until exactly these devices are tainted."""
    wanted = dict.fromkeys(devices, effect)
    until(lambda: tainted(workspace, node) == wanted, "the taints", detail=lambda: tainted(workspace, node))


def test_a_faulty_device_is_avoided_its_pod_is_evicted_and_it_comes_back(workspace: Workspace, node: str) -> None:
    kind = workspace.add_class("nics", f'device.driver == "{DRIVER}" && device.attributes.size() >= 0')
    asked = {"name": "nic", "exactly": {"deviceClassName": kind, "count": NICS, "allocationMode": "ExactCount"}}
    claim = workspace.add_claim("all", asked)
    pod = workspace.add_pod("holder", claim, node=node)
    workspace.wait_placed(pod, node)

    report(workspace, node, "NoSchedule", "nic3")
    until_tainted(workspace, node, "nic3")
    assert workspace.api.get(POD, pod, workspace.namespace)["metadata"].get("deletionTimestamp") is None
    report(workspace, node, "NoExecute", "nic3")
    workspace.api.wait_for(
        POD,
        pod,
        lambda found: found is None or bool(found["metadata"].get("deletionTimestamp")),
        namespace=workspace.namespace,
    )
    (rule,) = (each for each in workspace.api.list(RULE) if each["spec"]["deviceSelector"]["pool"] == node)
    assert "rx_crc_errors 412 in 3600 s" in next(iter(rule["metadata"]["annotations"].values()))
    # An administrator's change is undone, and his own rules stay.
    workspace.api.patch(RULE, rule["metadata"]["name"], {"spec": {"taint": {**rule["spec"]["taint"], "value": "x"}}})
    until(
        lambda: workspace.api.get(RULE, rule["metadata"]["name"])["spec"]["taint"]["value"] == "crc-errors",
        "the taint as it was",
    )
    report(workspace, node, "NoExecute")
    until_tainted(workspace, node)


def test_a_wrong_threshold_taints_half_of_a_node_one_event_reports_it_and_a_restart_changes_nothing(
    workspace: Workspace, node: str, controller: Process
) -> None:
    report(workspace, node, "NoSchedule", *(f"nic{number}" for number in range(NICS)))
    half = [f"nic{number}" for number in range(NICS // 2)]
    until_tainted(workspace, node, *half)

    def events() -> list[Object]:
        return [each for each in workspace.api.list(EVENT) if each.get("reason") == "HealthCapReached"]

    until(events, "the event")
    (event,) = events()
    assert "4 faulty devices are not tainted" in event["note"]
    assert event["regarding"]["name"] == "nics"
    controller.restart()
    controller.wait_ready()
    # A device that is repaired makes room for the next one; no other taint moves.
    report(workspace, node, "NoSchedule", *(f"nic{number}" for number in range(1, NICS)))
    until_tainted(workspace, node, *half[1:], f"nic{NICS // 2}")
    # A node reports no fault of another node's device.
    report(workspace, node, "NoSchedule", "nic0", pool="another-node")
    until_tainted(workspace, node)
    assert tainted(workspace, "another-node") == {}


@contextmanager
def nowhere(_: Collection[str]) -> Iterator[Mapping[str, Namespace]]:
    """No device is in a pod's namespace."""
    yield {}


@dataclass
class Counters:
    """netdra's watch of a node's counters, which are files, by a clock of the test; its faults are reported.

    Attributes:
        workspace, node: where faults are reported.
        folder: has the files.
        policy: the policy with the rules.
        clock: has the time.
    """

    workspace: Workspace
    node: str
    folder: Path
    policy: DeviceExposurePolicy
    clock: SimpleNamespace
    values: dict[str, int] = field(default_factory=dict)
    ready = True

    def __post_init__(self) -> None:
        self.count(**{f"nic{number}": 1000 for number in range(NICS)})
        parts = (self, nowhere, tuple, lambda _: None, self.node, self.folder)
        self.watch = DeviceHealthWatch(*parts, sysfs=Sysfs(str(self.folder)))

    @property
    def devices(self) -> Mapping[DeviceKey, PlannedDevice]:
        return {
            (self.node, name): PlannedDevice(
                request="", pool=self.node, device=name, rdma_device=f"rdma-{name}", policy=self.policy.name
            )
            for name in self.values
        }

    @property
    def health_rules(self) -> Mapping[str, tuple[HealthRule, ...]]:
        exposure = self.policy.spec.exposure
        return {self.policy.name: exposure.health} if exposure is not None else {}

    def count(self, **more: int) -> None:
        """Symbols are received with errors at the ports of devices."""
        for name, increase in more.items():
            self.values[name] = self.values.get(name, 0) + increase
            path = self.folder / f"class/infiniband/rdma-{name}/ports/1/counters/symbol_error"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{self.values[name]}\n")

    def after(self, seconds: float, **more: int) -> list[str]:
        """Errors occur and a sample is taken, some seconds after the former one; the faulty devices."""
        self.clock.now += seconds
        self.count(**more)
        asyncio.run(self.watch.sample())
        status = {"faults": msgspec.to_builtins(self.watch.faults), "watchedDevices": self.watch.watched}
        self.workspace.api.patch(REPORT, self.node, {"status": status}, subresource="status")
        return [fault.device for fault in self.watch.faults]


@pytest.fixture
def counters(workspace: Workspace, node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counters:
    """The counters of a node's devices, with a threshold that evicts."""
    exposure = {"supportedCNIPlugins": [{"name": "host-device", "exclusive": True}], "health": [SYMBOLS]}
    spec = {"selector": {"cel": "false"}, "exposure": exposure}
    stored = workspace.create(manifest(POLICY, workspace.name("rails"), spec=spec))
    clock = SimpleNamespace(now=1000.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(service, "time", clock)
    return Counters(workspace, node, tmp_path, documents.convert(stored, DeviceExposurePolicy, "stored"), clock)


def test_counters_beyond_a_threshold_evict_a_pod_until_they_have_rested_within_the_cap(
    workspace: Workspace, node: str, counters: Counters
) -> None:
    kind = workspace.add_class("rails", f'device.driver == "{DRIVER}"')

    def request(count: int) -> Object:
        return {"name": "nic", "exactly": {"deviceClassName": kind, "count": count, "allocationMode": "ExactCount"}}

    assert counters.after(0) == []
    pod = workspace.add_pod("holder", workspace.add_claim("own", request(1)), node=node)
    workspace.wait_placed(pod, node)
    (device,) = workspace.devices("own")
    other = next(name for name in counters.values if name != device)

    # Another device's errors, and fewer than the threshold, change nothing.
    assert counters.after(15, **{device: 9, other: 9}) == []
    assert counters.after(15, **{device: 1}) == [device]
    until_tainted(workspace, node, device, effect="NoExecute")
    workspace.api.wait_for(
        POD,
        pod,
        lambda found: found is None or bool(found["metadata"].get("deletionTimestamp")),
        namespace=workspace.namespace,
    )
    until(
        lambda: [each for each in evictions(workspace) if each["regarding"]["name"] == pod],
        "Kubernetes' own event of the eviction",
    )
    (rule,) = rules(workspace, node)
    assert "rdma_symbol_error 10 in 60 s" in next(iter(rule["metadata"]["annotations"].values()))
    workspace.release(pod, "own")
    next_pod = workspace.add_pod("next", workspace.add_claim("rest", request(NICS - 1)), node=node)
    workspace.wait_placed(next_pod, node)
    assert device not in workspace.devices("rest")
    workspace.release(next_pod, "rest")

    # Between the two thresholds the device stays faulty, and the taint is the same.
    counters.after(15, **{device: 6})
    assert counters.after(35) == [device]
    # Below the lower one it must have been for half a minute.
    assert counters.after(30) == [device]
    assert [each["metadata"]["uid"] for each in rules(workspace, node)] == [rule["metadata"]["uid"]]
    assert counters.after(30) == []
    until_tainted(workspace, node)
    whole = workspace.add_pod("whole", workspace.add_claim("all", request(NICS)), node=node)
    workspace.wait_placed(whole, node)
    workspace.release(whole, "all")

    assert len(counters.after(15, **dict.fromkeys(counters.values, 100))) == NICS
    until(lambda: len(tainted(workspace, node)) == NICS // 2, "half of the devices to be tainted")

    def is_told() -> bool:
        full = [each for each in workspace.api.list(EVENT) if each.get("reason") == "HealthCapReached"]
        return any(each["regarding"]["name"] == counters.policy.name for each in full)

    until(is_told, "the event of the cap")


def rules(workspace: Workspace, node: str) -> list[Object]:
    """The rules that taint a node's devices."""
    return [rule for rule in workspace.api.list(RULE) if rule["spec"]["deviceSelector"].get("pool") == node]


def evictions(workspace: Workspace) -> list[Object]:
    """The events by which Kubernetes reports that it deletes a pod because of a device's taint."""
    found = workspace.api.list(EVENT, workspace.namespace)
    return [each for each in found if each.get("reason") == "DeviceTaintManagerEviction"]


@pytest.mark.usefixtures("controller")
def test_the_controllers_account_writes_no_other_taint(control_plane: ControlPlane, api: Api) -> None:
    account = identities.kubeconfig(control_plane, api, "netdra-controller")
    selector = {"driver": DRIVER, "pool": "p", "device": "d"}
    taint = {"key": f"{DRIVER}/unhealthy", "value": "x", "effect": "NoSchedule"}
    right = {"deviceSelector": selector, "taint": taint}
    labels = {"networking.dra.io/health": "n"}

    def refusal(name: str, spec: Object, labels: dict[str, str]) -> str:
        written = manifest(RULE, name, spec=spec)
        written["metadata"]["labels"] = labels
        return denial(account, "create", "--dry-run=server", "-f", "-", text=json.dumps(written))

    wrong: tuple[tuple[str, Object, dict[str, str]], ...] = (
        ("mine", right, labels),
        ("netdra-health-x", right, {}),
        ("netdra-health-x", {**right, "deviceSelector": {"driver": DRIVER}}, labels),
        ("netdra-health-x", {**right, "deviceSelector": {**selector, "driver": "gpu.example.com"}}, labels),
        ("netdra-health-x", {**right, "taint": {**taint, "key": "example.com/mine"}}, labels),
    )
    until(lambda: "netdra's controller may" in refusal(*wrong[0]), "the policy to be heeded")
    for written in wrong:
        assert "netdra's controller may" in refusal(*written)
    assert refusal("netdra-health-x", right, labels) == ""
