"""Changes of policies, and the slices and statuses required after each: for `bench.hollow` and its test.

Requests to the API server here use the test bed's own client, not netdra's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdra.model.inventory import Interface
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import SLICE
from tests.builders import read_inventory
from tests.hollow_nodes import HollowNode

SLICES = 5
"""Of a node of the example."""
POLICY = "networking.dra.io/v1alpha1/DeviceExposurePolicy"
ROLLOUT = "networking.dra.io/v1alpha1/DeviceExposurePolicyRollout"
STATUSES = "deviceexposurepolicyrollouts"
PUT_OFF = "put off"
TOO_MANY = "429"
WAITING = "older generation"
EXAMPLE = Path(__file__).parents[1] / "examples" / "worker-1"
FIRST = (("bridge-br-data", 1), ("pf0-vfs", 8), ("pf1-vfs", 4))
"""The example's policies, and how many devices of a node each makes."""
_COUNTED = re.compile(r"apiserver_request_total\{([^}]*)\} (\S+)")
_WRITING = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})
_PORTS = "dra.networking/ports"
_PF1 = 'device.attributes["dra.networking"].pfName == "enp3s0f1"'
_LOW = f'device.attributes["dra.networking"].type == "vf" && {_PF1} && device.attributes["dra.networking"].vfIndex < 2'


@dataclass(frozen=True)
class Change:
    """A change of a policy, and the status that it must have in the end.

    Attributes:
        name: the change in words, for the figure.
        policy: the policy's name.
        spec: the changes in its spec.
        devices: how many devices of a node it then makes.
        failing: whether it fails on every node.
        slices: how many of a node's slices come out differently; one policy's additions are in all devices, too.
    """

    name: str
    policy: str
    spec: Object
    devices: int
    failing: bool = False
    slices: int = 1


def ports(count: int) -> Change:
    """The bridge's capacity becomes another; under 4, which one claim may ask for, the policy could not be used."""
    return Change("a capacity", "bridge-br-data", {"exposure": {"capacity": {"ports": {"value": str(count)}}}}, 1)


CHANGES = (
    ports(32),
    Change("a selector, fewer devices", "pf1-vfs", {"selector": {"cel": _LOW}}, 2),
    Change("an attribute of VFs", "pf0-vfs", {"exposure": {"additionalAttributes": {"tier": "gold"}}}, 8, slices=3),
    Change(
        "a selector that fails everywhere",
        "pf1-vfs",
        {"selector": {"cel": f'{_PF1} && device.attributes["bctl"].rdma'}},
        0,
        failing=True,
    ),
)


def says(node: HollowNode, change: Change) -> bool:
    """Whether a node's slices are as they must be after a change: nothing was lost on the way."""
    devices = [device for one in node.published for device in one.spec.devices]
    if change.policy == "bridge-br-data":
        wanted = change.spec["exposure"]["capacity"]["ports"]["value"]
        return [device.capacity[_PORTS].value for device in devices if device.name == "br-data"] == [wanted]
    if change.policy == "pf0-vfs":
        found = [device for device in devices if device.name.startswith("enp3s0f0v")]
        carried = {one.name: one.attributes.get("tier") for one in devices}
        gold = [name for name, tier in carried.items() if tier is not None and tier.string == "gold"]
        return (
            sorted(gold) == sorted(one.name for one in found) and len(gold) == change.devices and all(carried.values())
        )
    return len([device for device in devices if device.name.startswith("enp3s0f1v")]) == change.devices


def stored_ports(api: Api, nodes: Iterable[str]) -> dict[str, str]:
    """The bridge's capacity by node, as the API server has it."""
    wanted = frozenset(nodes)
    return {
        one["spec"]["nodeName"]: device["capacity"][_PORTS]["value"]
        for one in api.list(SLICE)
        if one["spec"].get("nodeName") in wanted
        for device in one["spec"].get("devices", [])
        if device["name"] == "br-data"
    }


def wait_status(api: Api, policy: str, nodes: int, devices: int, *, failing: bool, others: int = 0) -> Object:
    """Wait until a policy's rollout reports that all nodes have it, and its result; the rollout.

    Args:
        api: the administrator's client.
        policy: its name.
        nodes: how many there are of the kind that it is for.
        devices: how many it makes of each of these.
        failing: whether it fails on each of these.
        others: how many more nodes report, which have nothing that it matches.
    """

    def is_right(found: Object | None) -> bool:
        status = (found or {}).get("status", {})
        if found is None or status.get("observedGeneration") != api.get(POLICY, policy)["metadata"]["generation"]:
            return False
        problems = status.get("problems", [])
        failed = bool(problems) and problems[0]["nodes"] == nodes
        if any(WAITING in each["message"] for each in status["conditions"]):
            return False
        return (status.get("nodes", 0), status.get("devices", 0), failed) == (nodes + others, nodes * devices, failing)

    found = api.wait_for(ROLLOUT, policy, is_right, timeout=300.0)
    assert found is not None
    return found


def writes(plane: ControlPlane) -> dict[str, float]:
    """How many writes of each resource the API server has answered so far, by its own count.

    Those that it did not inspect, because there were too many at a time, are counted apart as `PUT_OFF`.
    """
    found: dict[str, float] = {"resourceslices": 0.0, STATUSES: 0.0, PUT_OFF: 0.0}
    for labels, count in _COUNTED.findall(plane.kubectl("get", "--raw", "/metrics")):
        said: dict[str, Any] = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if said["verb"] in _WRITING:
            name = "/".join(filter(None, (said["resource"], said["subresource"])))
            name = PUT_OFF if said["code"] == TOO_MANY else name
            found[name] = found.get(name, 0.0) + float(count)
    return found


def recorded() -> tuple[Interface, ...]:
    """The interfaces of the example's node."""
    path = EXAMPLE / "inventory.json"
    return read_inventory(path.read_text()).interfaces
