"""Faults that nodes report become taints: the real scheduler avoids the device, and Kubernetes evicts its pods."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from netdra.model.names import DRIVER
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
NICS = 8


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
