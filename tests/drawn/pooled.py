"""Cases of pooled devices, written by hand: what was seen of kube-scheduler 1.37.1, one row after the other.

Each row has a node of its own with two PFs. A PF is offered as pooled devices, the lanes, which several claims may have
at once, and as a whole that excludes them. `tests/unit/slices/test_pooled.py` has the allocator alone answer, and
`tests/cluster/test_scheduler_agreement.py` the scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from netdra.model.claim import DeviceClass, ResourceClaim
from netdra.model.resource import ResourceSlice
from netdra.slices.allocator import Allocation, Allocator, Refusal, named
from tests.drawn.cases import Case, Step
from tests.drawn.claims import NAMESPACE, classes
from tests.drawn.devices import DRIVER, Object

VFS = 8
SPEED = 100_000
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
    attributes = f'device.attributes["{DRIVER}"]'
    chosen = " || ".join(f'{attributes}.pfName == "eth{pf}"' for pf in pfs) or "true"
    wanted: Object = {
        "deviceClassName": "shared",
        "selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}' && ({chosen})"}}],
    }
    if bandwidth:
        wanted["capacity"] = {"requests": {f"{DRIVER}/bandwidth": bandwidth}}
    return {"name": name, "exactly": wanted | fields}


def whole(pf: int) -> Object:
    """A request for a PF as a whole."""
    expression = f'device.attributes["{DRIVER}"].pfName == "eth{pf}"'
    return {
        "name": "r",
        "exactly": {"deviceClassName": "exclusive", "selectors": [{"cel": {"expression": expression}}]},
    }


DISTINCT: Object = {"distinctAttribute": f"{DRIVER}/pfName"}
SAME_NUMA: Object = {"matchAttribute": f"{DRIVER}/numaNode"}
TWO_OF_EACH = [pooled("a", bandwidth="40000"), pooled("b", bandwidth="40000")]
FULL = [Pod([pooled("r", pf, bandwidth="100000")], [("r", f"eth{pf}-0", "100000")]) for pf in (0, 1)]

ROWS: dict[str, tuple[int, Sequence[Pod]]] = {
    "distinct PFs": (1, [Pod(TWO_OF_EACH, [("a", "eth0-0", "40000"), ("b", "eth1-0", "40000")], [DISTINCT])]),
    "without a constraint both on one device": (
        1,
        [Pod(TWO_OF_EACH, [("a", "eth0-0", "40000"), ("b", "eth0-0", "40000")])],
    ),
    "the second on another device where the first has no room left": (
        1,
        [
            Pod(
                [pooled("a", bandwidth="70000"), pooled("b", bandwidth="70000")],
                [("a", "eth0-0", "70000"), ("b", "eth1-0", "70000")],
            )
        ],
    ),
    "more than is left on any": (
        1,
        [
            Pod([pooled("r", 0, bandwidth="65000")], [("r", "eth0-0", "65000")]),
            Pod([pooled("r", 1, bandwidth="52500")], [("r", "eth1-0", "52500")]),
            Pod([pooled(bandwidth="60000")]),
            Pod([pooled(bandwidth="47500")], [("r", "eth1-0", "47500")]),
        ],
    ),
    "default, least, rounded up to the step, most": (
        1,
        [
            Pod([pooled("r", 0)], [("r", "eth0-0", "12500")]),
            Pod([pooled("r", 0, bandwidth="50")], [("r", "eth0-0", "100")]),
            Pod([pooled("r", 0, bandwidth="150")], [("r", "eth0-0", "200")]),
            Pod([pooled("r", 1, bandwidth="100001")]),
            Pod([pooled("r", 1, bandwidth="100000")], [("r", "eth1-0", "100000")]),
            Pod([pooled("r", 1, bandwidth="100")]),
        ],
    ),
    "as many VFs as there are": (
        1,
        [
            *(Pod([pooled("r", 0, bandwidth="100")], [("r", "eth0-0", "100")]) for _ in range(VFS)),
            Pod([pooled("r", 0, bandwidth="100")]),
            Pod([pooled(bandwidth="100")], [("r", "eth1-0", "100")]),
        ],
    ),
    "the whole PF while VFs are in use": (
        1,
        [
            Pod([pooled("r", 0)], [("r", "eth0-0", "12500")]),
            Pod([whole(0)]),
            Pod([whole(1)], [("r", "eth1", "")]),
            Pod([pooled("r", 1)]),
        ],
    ),
    "one NUMA node and distinct PFs": (
        1,
        [Pod(TWO_OF_EACH, [("a", "eth0-0", "40000"), ("b", "eth1-0", "40000")], [SAME_NUMA, DISTINCT])],
    ),
    "count: different devices": (1, [Pod([pooled(count=2)], [("r", "eth0-0", "12500"), ("r", "eth1-0", "12500")])]),
    "count: one pool alone": (1, [Pod([pooled("r", 0, count=2)])]),
    "count: more than pools": (1, [Pod([pooled(count=3)])]),
    "count: lanes of one PF": (
        4,
        [
            Pod(
                [pooled("r", 0, count=3)],
                [("r", "eth0-0", "12500"), ("r", "eth0-1", "12500"), ("r", "eth0-2", "12500")],
            ),
            Pod([pooled("r", 0, count=5)]),
        ],
    ),
    "count: distinct PFs": (
        2,
        [
            Pod([pooled(count=2)], [("r", "eth0-0", "12500"), ("r", "eth1-0", "12500")], [DISTINCT]),
            Pod([pooled(count=3)], (), [DISTINCT]),
        ],
    ),
    "two requests with count on the same devices": (
        1,
        [
            Pod(
                [pooled("a", count=2), pooled("b", count=2)],
                [
                    ("a", "eth0-0", "12500"),
                    ("a", "eth1-0", "12500"),
                    ("b", "eth0-0", "12500"),
                    ("b", "eth1-0", "12500"),
                ],
            )
        ],
    ),
    "all: a share of each": (
        2,
        [
            Pod(
                [pooled(bandwidth="1000", allocationMode="All")],
                [("r", f"eth{pf}-{lane}", "1000") for pf in (0, 1) for lane in (0, 1)],
            )
        ],
    ),
    "all: one of them full": (1, [FULL[0], Pod([pooled(allocationMode="All")])]),
    "an alternative with fewer": (
        1,
        [
            Pod(
                [
                    {
                        "name": "r",
                        "firstAvailable": [
                            {"name": "two", **pooled("r", 0, count=2)["exactly"]},
                            {"name": "one", **pooled("r", 0)["exactly"]},
                        ],
                    }
                ],
                [("r/one", "eth0-0", "12500")],
            )
        ],
    ),
    "full": (1, [*FULL, Pod([pooled(bandwidth="100")])]),
}


def slices(name: str, node: str, lanes: int) -> list[Object]:
    """Two PFs of one NUMA node, each with so many lanes of its VFs and its bandwidth."""
    made = []
    for pf in ("eth0", "eth1"):
        attributes = {f"{DRIVER}/pfName": {"string": pf}, f"{DRIVER}/numaNode": {"int": 0}}
        share = SPEED // lanes
        rate = {"default": "12500", "validRange": {"min": "100", "max": str(share), "step": "100"}}
        capacity = {
            f"{DRIVER}/vfs": {
                "value": str(VFS // lanes),
                "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "1"}},
            },
            f"{DRIVER}/bandwidth": {"value": str(share), "requestPolicy": rate},
        }

        def drawn(slots: int, pf: str = pf) -> list[Object]:
            return [{"counterSet": f"{pf}-counters", "counters": {"exclusion-slots": {"value": str(slots)}}}]

        pooled_devices: list[Object] = [
            {
                "name": f"{pf}-{lane}",
                "attributes": attributes,
                "allowMultipleAllocations": True,
                "capacity": capacity,
                "consumesCounters": drawn(VFS // lanes),
            }
            for lane in range(lanes)
        ]
        pf_device = {"name": pf, "attributes": attributes, "consumesCounters": drawn(VFS + 1)}
        counters = {"name": f"{pf}-counters", "counters": {"exclusion-slots": {"value": str(VFS + 1)}}}
        pool = {"name": f"{name}/{pf}", "generation": 1, "resourceSliceCount": 2}
        parts: list[Object] = [{"sharedCounters": [counters]}, {"devices": [*pooled_devices, pf_device]}]
        made += [
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": f"{name}-{pf}-{number}"},
                "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, **part},
            }
            for number, part in enumerate(parts)
        ]
    return made


def case(row: str, name: str, node: str) -> Case:
    """A row on a node, with what the allocator gives to its pods."""
    lanes, pods = ROWS[row]
    published = slices(name, node, lanes)
    allocator = Allocator(
        [msgspec.convert(each, ResourceSlice) for each in published],
        [msgspec.convert(each, DeviceClass) for each in classes()],
        nodes=[named(node)],
    )
    steps = []
    for number, pod in enumerate(pods):
        claim: Object = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": f"{name}-{number}", "namespace": NAMESPACE},
            "spec": {"devices": {"requests": list(pod.requests), "constraints": list(pod.constraints)}},
        }
        outcome = allocator.allocate(msgspec.convert(claim, ResourceClaim))
        steps.append(Step(f"{name}-{number}", (claim,), outcome))
    exclusive = {
        frozenset({(f"{name}/{pf}", pf), (f"{name}/{pf}", f"{pf}-{lane}")})
        for pf in ("eth0", "eth1")
        for lane in range(lanes)
    }
    return Case(row, name, node, published, exclusive, steps)


def given(outcome: Allocation | Refusal | None) -> Given:
    """What a pod's claim got."""
    if not isinstance(outcome, Allocation) or outcome.claims[0].status.allocation is None:
        return []
    return [
        (result.request, result.device, str(result.consumed_capacity.get(f"{DRIVER}/bandwidth", "")))
        for result in outcome.claims[0].status.allocation.devices.results
    ]
