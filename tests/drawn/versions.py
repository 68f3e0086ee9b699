"""Cases in which versions of kube-scheduler differ, written by hand, one row for each rule.

`tests/unit/slices/test_scheduler_versions.py` has netdra's allocator answer in each version, and
`tests/cluster/test_library_agreement.py` Kubernetes' own library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from netdra.model.claim import DeviceClass, ResourceClaim
from netdra.model.resource import ResourceSlice
from netdra.model.scheduler_version import SchedulerVersion
from netdra.slices.allocator import Allocation, Allocator, named
from tests.drawn.cases import Case, Step
from tests.drawn.claims import NAMESPACE, classes
from tests.drawn.devices import DRIVER, Object

NODE = "node-0"
NO_FIT, GIVEN_UP = "does not fit", "given up"
FULL, SHORT = f"{DRIVER}/slots", "slots"


@dataclass(frozen=True)
class Row:
    """A node's devices, and claims that come one after the other.

    Attributes:
        outcomes: what each claim gets, by the first version in which it does: devices with their consumption, or how
            the claim is refused.
        slices: how many slices the pool has.
    """

    devices: Sequence[Object]
    claims: Sequence[Object]
    outcomes: Mapping[str, Sequence[str]]
    slices: int = field(default=1)

    def expected(self, version: str) -> Sequence[str]:
        """The outcomes in a version."""
        first = max(
            known for known in self.outcomes if SchedulerVersion.parse(known) <= SchedulerVersion.parse(version)
        )
        return self.outcomes[first]

    def case(self, version: str) -> Case:
        """The row, played by the allocator with the rules of a version."""
        pool = {"name": "pool", "generation": 1, "resourceSliceCount": self.slices}
        spec = {"driver": DRIVER, "nodeName": NODE, "pool": pool, "devices": self.devices}
        header = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "slice"}}
        slices = [{**header, "spec": spec}]
        allocator = Allocator(
            [msgspec.convert(each, ResourceSlice) for each in slices],
            [msgspec.convert(each, DeviceClass) for each in classes()],
            nodes=[named(NODE)],
            version=SchedulerVersion.parse(version),
        )
        steps = []
        for number, devices in enumerate(self.claims):
            metadata = {"name": f"c{number}", "namespace": NAMESPACE}
            header = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata}
            claim = {**header, "spec": {"devices": devices}}
            outcome = allocator.allocate(msgspec.convert(claim, ResourceClaim))
            steps.append(Step(f"p{number}", (claim,), outcome))
        return Case("", "row", NODE, slices, set(), steps)


def outcome_of(step: Step) -> str:
    """The devices that a claim got, or its refusal, in the words of the rows."""
    if not isinstance(step.outcome, Allocation):
        return GIVEN_UP if step.outcome is not None and step.outcome.permanent else NO_FIT
    allocation = step.outcome.claims[0].status.allocation
    assert allocation is not None
    results = allocation.devices.results
    return ", ".join(
        " ".join((result.device, *(f"{name}={amount}" for name, amount in sorted(result.consumed_capacity.items()))))
        for result in results
    )


def shared(name: str, **capacity: Any) -> Object:
    """A shared device; capacities are given by keyword, with `full` for the name with the driver's domain."""
    return {"name": name, "allowMultipleAllocations": True, "capacity": _named(capacity)}


def _named(values: Mapping[str, Any]) -> Object:
    return {{"full": FULL, "short": SHORT}[key]: value for key, value in values.items()}


def amount(value: str, **policy: Any) -> Object:
    """A capacity with a request policy."""
    return {"value": value, "requestPolicy": policy}


def asking(constraint: Object | None = None, /, *, count: int = 1, everything: bool = False, **amounts: str) -> Object:
    """A claim with one request for any devices."""
    exactly: Object = {"deviceClassName": "any", "tolerations": [{"operator": "Exists"}]}
    exactly |= {"allocationMode": "All"} if everything else {"count": count}
    if amounts:
        exactly["capacity"] = {"requests": _named(amounts)}
    constraints = [] if constraint is None else [constraint]
    return {"requests": [{"name": "r", "exactly": exactly}], "constraints": constraints}


def with_attribute(name: str, **value: Any) -> Object:
    """An exclusive device with at most one attribute."""
    return {"name": name, "attributes": {"about": value} if value else {}}


_TEN, _HALVES = amount("10", default="1"), {"min": "500m", "max": "3500m", "step": "500m"}
_STEPS = amount("10", default="1", validRange={"min": "1", "step": "1"})
_ABOUT = f"{DRIVER}/about"

ROWS: Mapping[str, Row] = {
    "requested without the domain": Row(
        [shared("a", full=_TEN)],
        [asking(full="3"), asking(short="3"), asking(full="5")],
        {
            "1.36": [f"a {FULL}=3", NO_FIT, f"a {FULL}=5"],
            "1.38": [f"a {FULL}=3", f"a {FULL}=3", NO_FIT],
        },
    ),
    "published without the domain": Row(
        [shared("a", short=_TEN)],
        [asking(short="3"), asking(full="3"), asking(short="5")],
        {
            "1.36": [f"a {SHORT}=3", NO_FIT, f"a {SHORT}=5"],
            "1.38": [f"a {SHORT}=3", f"a {SHORT}=3", NO_FIT],
        },
    ),
    "requested by both names": Row(
        [shared("a", full=_TEN)],
        [asking(full="3", short="3")],
        {"1.36": [NO_FIT], "1.38": [GIVEN_UP]},
    ),
    # Why netdra does not publish both: until 1.37 they are two capacities, and the device is given away twice.
    "published by both names": Row(
        [shared("a", full=amount("4", default="0"), short=amount("4", default="0"))],
        [asking(full="4"), asking(short="4")],
        {
            "1.36": [f"a {FULL}=4 {SHORT}=0", f"a {FULL}=0 {SHORT}=4"],
            "1.38": [f"a {FULL}=4", NO_FIT],
        },
    ),
    "a fraction of a step": Row(
        [shared("a", full=amount("10", default="1500m", validRange=_HALVES))],
        [asking(full="1200m"), asking(full="100m"), asking()],
        {
            "1.36": [f"a {FULL}=2", f"a {FULL}=500m", f"a {FULL}=1500m"],
            "1.38": [f"a {FULL}=1500m", f"a {FULL}=500m", f"a {FULL}=1500m"],
        },
    ),
    "a thousandth of a thousandth": Row(
        [shared("a", full=_STEPS)],
        [asking(full="1000001u")],
        {"1.36": [f"a {FULL}=2"], "1.38": [GIVEN_UP]},
    ),
    "more than can be counted in thousandths": Row(
        [shared("a", full=_STEPS)],
        [asking(full="9E")],
        {"1.36": [NO_FIT], "1.38": [GIVEN_UP]},
    ),
    "a negative amount": Row(
        [shared("a", full=_STEPS)],
        [asking(full="-1")],
        {"1.36": [f"a {FULL}=1"], "1.38": [GIVEN_UP]},
    ),
    "all devices of an incomplete pool": Row(
        [shared("a", full=_TEN)],
        [asking(everything=True)],
        {"1.36": [GIVEN_UP], "1.38": [NO_FIT]},
        slices=2,
    ),
    "all devices, of which one is full": Row(
        [shared("a", full=_TEN), with_attribute("b")],
        [asking(full="10"), asking(everything=True)],
        {"1.36": [f"a {FULL}=10", "b"], "1.37": [f"a {FULL}=10", NO_FIT]},
    ),
    "versions with build metadata": Row(
        [with_attribute("a", version="1.0.0+a"), with_attribute("b", version="1.0.0+b")],
        [asking({"matchAttribute": _ABOUT}, count=2)],
        {"1.36": [NO_FIT], "1.38": ["a, b"]},
    ),
    "distinct devices of one request": Row(
        [with_attribute("a", int=0), with_attribute("b", int=1), with_attribute("c", int=0)],
        [asking({"distinctAttribute": _ABOUT}, count=3)],
        {"1.36": ["a, b, c"], "1.37": [NO_FIT]},
    ),
}
