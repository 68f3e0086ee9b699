"""A claim can be attached to several pods only if none of its steps moves a device or has the addresses of one pod."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.model.plan import ClaimReference, Plan, PlannedDevice, PlannedStep
from netdra.node.claims.checks import check_shared
from tests.plans import step

CLAIM = ClaimReference(namespace="ns", name="c", uid="1")
NIC = PlannedDevice(request="r", pool="p", device="ens1", if_name="ens1", pci_address="0000:03:00.0")
MOVED = step("vf", "sriov", "net1", device=NIC)
BESIDE = step("lan", "macvlan", "net1", device=NIC)
ADDRESSED = replace(BESIDE, pod_network="storage")


def plans(one: PlannedStep, claim: ClaimReference = CLAIM) -> Sequence[Plan]:
    return [Plan(topology="lan", claim=claim, steps=(one,))]


@pytest.mark.parametrize("one", [MOVED, ADDRESSED])
def test_one_pod_can_have_any_claim(one: PlannedStep) -> None:
    check_shared(CLAIM, plans(one), ["a"])


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (MOVED, r'step "vf" \(sriov\) moves device "ens1" into one pod'),
        (ADDRESSED, r'step "lan" \(macvlan\) has addresses of PodNetwork "storage", which only one pod can have'),
    ],
)
def test_a_claim_for_one_pod_is_rejected_for_two_and_waits_for_one_that_ends(one: PlannedStep, why: str) -> None:
    with pytest.raises(InvalidInputError, match=f'"ns/c" is shared by pods a, b, but {why}'):
        check_shared(CLAIM, plans(one), ["a", "b"])
    with pytest.raises(InvalidInputError, match="is shared by pods a, b"):
        check_shared(CLAIM, plans(one), ["a", "b"], ["z"])
    with pytest.raises(TemporaryError, match=f'"ns/c" is still used by pod z, which is ending: {why}'):
        check_shared(CLAIM, plans(one), ["b"], ["z"])


def test_several_pods_can_have_interfaces_beside_a_device() -> None:
    check_shared(CLAIM, plans(BESIDE), ["a", "b"], ["z"])


def test_devices_of_another_claim_are_not_shared() -> None:
    check_shared(CLAIM, plans(MOVED, replace(CLAIM, uid="2")), ["a", "b"], ["z"])
