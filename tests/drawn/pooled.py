"""Cases of pooled VFs, written by hand: what was seen of kube-scheduler 1.37.1, one row after the other.

A node has two PFs. netdra offers the VFs of each together, in so many lanes, and each PF as a whole; claims use the
classes of a NetworkTopology. `tests/unit/slices/test_pooled.py` has the allocator alone answer, and
`tests/cluster/test_pooled_vfs.py` the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from netdra.model import names
from netdra.model.claim import DeviceClass, ResourceClaim
from netdra.model.inventory import Interface
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import ResourceSlice
from netdra.slices.allocator import Allocation, Allocator, Refusal, named
from tests.builders import OURS, exclusive, policy, sriov, topology
from tests.drawn.devices import Object

VFS = 8
SPEED = 100_000
BANDWIDTH = names.qualified(names.BANDWIDTH)
PFS = ("eth0", "eth1")
TOPOLOGY = topology(
    f"""
    - {{name: vf, type: sriov, selector: {{cel: '{OURS}.type == "vf"'}}}}
    - {{name: pf, type: host-device, selector: {{cel: '{OURS}.type == "pf"'}}}}
    """,
    name="pooled",
)
Given = Sequence[tuple[str, str, str]]
"""Of each device that a claim gets, in order: the request, the device, its bandwidth."""


@dataclass(frozen=True)
class Pod:
    """A pod with one claim, and the devices that it gets; none if it stays Pending."""

    requests: Sequence[Object]
    given: Given = ()
    constraints: Sequence[Object] = ()


def pooled(name: str = "r", *pfs: int, bandwidth: str = "", **fields: Any) -> Object:
    """A request for pooled VFs, of any PF or of these."""
    wanted: Object = {"deviceClassName": "pooled-vf"}
    if pfs:
        chosen = " || ".join(f'{OURS}.pfName == "{PFS[pf]}"' for pf in pfs)
        wanted["selectors"] = [{"cel": {"expression": chosen}}]
    if bandwidth:
        wanted["capacity"] = {"requests": {BANDWIDTH: bandwidth}}
    return {"name": name, "exactly": wanted | fields}


def whole(pf: int) -> Object:
    """A request for a PF as a whole."""
    selectors = [{"cel": {"expression": f'{OURS}.ifName == "{PFS[pf]}"'}}]
    return {"name": "r", "exactly": {"deviceClassName": "pooled-pf", "selectors": selectors}}


def either(*alternatives: Object) -> Object:
    """A request that the first of these requests that can be met meets; they are called a, b, …"""
    listed = [{"name": name, **each["exactly"]} for name, each in zip("abc", alternatives, strict=False)]
    return {"name": "r", "firstAvailable": listed}


DISTINCT: Object = {"distinctAttribute": f"{names.DRIVER}/pfName"}
SAME_NUMA: Object = {"matchAttribute": f"{names.DRIVER}/numaNode"}
TWO_OF_EACH = [pooled("a", bandwidth="40000"), pooled("b", bandwidth="40000")]
FULL = [Pod([pooled("r", pf, bandwidth="100000")], [("r", f"eth{pf}-vfs", "100000")]) for pf in (0, 1)]

ROWS: dict[str, tuple[int, Sequence[Pod]]] = {
    "distinct PFs": (1, [Pod(TWO_OF_EACH, [("a", "eth0-vfs", "40000"), ("b", "eth1-vfs", "40000")], [DISTINCT])]),
    "without a constraint both on one device": (
        1,
        [Pod(TWO_OF_EACH, [("a", "eth0-vfs", "40000"), ("b", "eth0-vfs", "40000")])],
    ),
    "the second on another device where the first has no room left": (
        1,
        [
            Pod(
                [pooled("a", bandwidth="70000"), pooled("b", bandwidth="70000")],
                [("a", "eth0-vfs", "70000"), ("b", "eth1-vfs", "70000")],
            )
        ],
    ),
    "more than is left on any": (
        1,
        [
            Pod([pooled("r", 0, bandwidth="65000")], [("r", "eth0-vfs", "65000")]),
            Pod([pooled("r", 1, bandwidth="52500")], [("r", "eth1-vfs", "52500")]),
            Pod([pooled(bandwidth="60000")]),
            Pod([pooled(bandwidth="47500")], [("r", "eth1-vfs", "47500")]),
        ],
    ),
    "default, least, rounded up to the step, most": (
        1,
        [
            Pod([pooled("r", 0)], [("r", "eth0-vfs", "12500")]),
            Pod([pooled("r", 0, bandwidth="50")], [("r", "eth0-vfs", "100")]),
            Pod([pooled("r", 0, bandwidth="150")], [("r", "eth0-vfs", "200")]),
            Pod([pooled("r", 1, bandwidth="100001")]),
            Pod([pooled("r", 1, bandwidth="100000")], [("r", "eth1-vfs", "100000")]),
            Pod([pooled("r", 1, bandwidth="100")]),
        ],
    ),
    "as many VFs as there are": (
        1,
        [
            *(Pod([pooled("r", 0, bandwidth="100")], [("r", "eth0-vfs", "100")]) for _ in range(VFS)),
            Pod([pooled("r", 0, bandwidth="100")]),
            Pod([pooled(bandwidth="100")], [("r", "eth1-vfs", "100")]),
        ],
    ),
    "the whole PF while VFs are in use": (
        1,
        [
            Pod([pooled("r", 0)], [("r", "eth0-vfs", "12500")]),
            Pod([whole(0)]),
            Pod([whole(1)], [("r", "eth1", "")]),
            Pod([pooled("r", 1)]),
        ],
    ),
    "one NUMA node and distinct PFs": (
        1,
        [Pod(TWO_OF_EACH, [("a", "eth0-vfs", "40000"), ("b", "eth1-vfs", "40000")], [SAME_NUMA, DISTINCT])],
    ),
    "count: different devices": (1, [Pod([pooled(count=2)], [("r", "eth0-vfs", "12500"), ("r", "eth1-vfs", "12500")])]),
    "count: one pool alone": (1, [Pod([pooled("r", 0, count=2)])]),
    "count: more than pools": (1, [Pod([pooled(count=3)])]),
    "count: lanes of one PF": (
        4,
        [
            Pod(
                [pooled("r", 0, count=3)],
                [("r", "eth0-vfs0", "12500"), ("r", "eth0-vfs1", "12500"), ("r", "eth0-vfs2", "12500")],
            ),
            Pod([pooled("r", 0, count=5)]),
        ],
    ),
    "count: distinct PFs": (
        2,
        [
            Pod([pooled(count=2)], [("r", "eth0-vfs0", "12500"), ("r", "eth1-vfs0", "12500")], [DISTINCT]),
            Pod([pooled(count=3)], (), [DISTINCT]),
        ],
    ),
    "two requests with count on the same devices": (
        1,
        [
            Pod(
                [pooled("a", count=2), pooled("b", count=2)],
                [
                    ("a", "eth0-vfs", "12500"),
                    ("a", "eth1-vfs", "12500"),
                    ("b", "eth0-vfs", "12500"),
                    ("b", "eth1-vfs", "12500"),
                ],
            )
        ],
    ),
    "all: a share of each": (
        2,
        [
            Pod(
                [pooled(bandwidth="1000", allocationMode="All")],
                [("r", f"eth{pf}-vfs{lane}", "1000") for pf in (0, 1) for lane in (0, 1)],
            )
        ],
    ),
    "all: one of them full": (1, [FULL[0], Pod([pooled(allocationMode="All")])]),
    "an alternative with fewer": (
        1,
        [Pod([either(pooled("r", 0, count=2), pooled("r", 0))], [("r/b", "eth0-vfs", "12500")])],
    ),
    "an alternative with less bandwidth": (
        1,
        [
            *(Pod([pooled("r", pf, bandwidth="60000")], [("r", f"eth{pf}-vfs", "60000")]) for pf in (0, 1)),
            Pod([either(pooled(bandwidth="60000"), pooled(bandwidth="30000"))], [("r/b", "eth0-vfs", "30000")]),
        ],
    ),
    "a whole PF or a VF": (
        1,
        [
            Pod([either(whole(0), pooled())], [("r/a", "eth0", "")]),
            *(Pod([either(whole(0), pooled())], [("r/b", "eth1-vfs", "12500")]) for _ in range(2)),
        ],
    ),
    "full": (1, [*FULL, Pod([pooled(bandwidth="100")])]),
}


def interfaces() -> tuple[Interface, ...]:
    """Two PFs on one NUMA node, each below a PCIe root of its own."""
    return tuple(
        interface
        for bus, pf in enumerate(PFS)
        for interface in sriov(pf, VFS, speed=SPEED, bus=bus, pcie_root=f"pci0000:{bus:02x}")
    )


def policies(lanes: int) -> list[DeviceExposurePolicy]:
    """The policies that offer the VFs together, in so many lanes, and the PFs whole."""
    amounts = {"default": "12500", "validRange": {"min": "100", "max": str(SPEED), "step": "100"}}
    together: Object = {
        "pooledVFs": {"lanes": lanes},
        "capacity": {"bandwidth": {"value": str(SPEED), "requestPolicy": amounts}},
        "supportedCNIPlugins": [{"name": "sriov"}],
    }
    return [
        policy("vfs", f'{OURS}.type == "vf"', **together),
        exclusive("pfs", f'{OURS}.type == "pf"', "host-device"),
    ]


def given(outcome: Allocation | Refusal) -> Given:
    """The devices of a pod's claim."""
    if not isinstance(outcome, Allocation) or outcome.claims[0].status.allocation is None:
        return []
    return [
        (result.request, result.device, str(result.consumed_capacity.get(BANDWIDTH, "")))
        for result in outcome.claims[0].status.allocation.devices.results
    ]


def claim(pod: Pod, name: str) -> ResourceClaim:
    """A pod's claim."""
    devices = {"requests": list(pod.requests), "constraints": list(pod.constraints)}
    made = {"metadata": {"name": name, "namespace": "pooled"}, "spec": {"devices": devices}}
    return msgspec.convert(made, ResourceClaim)


def allocate(
    row: str, slices: Iterable[ResourceSlice], classes: Iterable[DeviceClass], node: str
) -> list[Allocation | Refusal]:
    """The allocator's answers to the claims of a row's pods, one after the other."""
    allocator = Allocator(slices, classes, nodes=[named(node)])
    return [allocator.allocate(claim(pod, f"claim-{number}")) for number, pod in enumerate(ROWS[row][1])]
