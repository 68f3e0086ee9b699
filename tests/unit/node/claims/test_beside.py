"""A claim is prepared only if its devices exclude no device that another claim of the node has."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from netdra.exposure.expose import expose
from netdra.model.errors import PermanentError
from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.node.claims.beside import check
from netdra.node.claims.records import Records
from netdra.node.claims.store import KeptDevice, PreparedClaim, PreparedDevice
from netdra.node.view import HeldDevice
from netdra.slices.exclusion import Pools
from netdra.slices.pack import layout
from tests import builders

NODE = "worker-1"
POOL = f"{NODE}/sriov-p0"
NETWORK_CARD = builders.inventory(*builders.sriov("p0", 2), node=NODE)
POLICIES = [
    builders.exclusive("whole", f'{builders.OURS}.type == "pf"', deviceNameSuffix="-whole"),
    builders.exclusive("vfs", f'{builders.OURS}.type == "vf"'),
]
SLICES = layout(expose(NETWORK_CARD, POLICIES), node=NODE).slices
EXCLUDED = 'device "p0-whole" of pool "worker-1/sriov-p0" cannot be used: .* "p0v0", which {} uses'


def claim(uid: str, device: str, pool: str = POOL, boot: str = "b") -> PreparedClaim:
    kept = KeptDevice(
        told=PreparedDevice(requests=("nic",), pool=pool, device=device, cdi_ids=()),
        facts=PlannedDevice(request="nic", pool=pool, device=device),
    )
    return PreparedClaim(boot_id=boot, claim=ClaimReference(namespace="ns", name=f"c-{uid}", uid=uid), devices=(kept,))


def held(uid: str, device: str, trouble: str = "") -> HeldDevice:
    return HeldDevice(key=(POOL, device), claim=uid, trouble=trouble)


def prepared(*records: PreparedClaim, unreadable: Sequence[str] = (), unrecorded: Sequence[HeldDevice] = ()) -> None:
    names = [f"{uid}.json.bad-0" for uid in unreadable]
    check(
        claim("1", "p0-whole"),
        Records({f"{record.claim.uid}.json": record for record in records}, names),
        (),
        unrecorded,
        Pools(SLICES),
    )


def test_a_device_that_excludes_one_of_another_claim_is_refused() -> None:
    with pytest.raises(PermanentError, match=EXCLUDED.format('ResourceClaim "ns/c-2"')):
        prepared(claim("2", "p0v0"))


@pytest.mark.parametrize(
    "other",
    [claim("2", "p0v0", pool="worker-1/other"), claim("2", "p0v0", boot="before"), claim("1", "p0v0")],
    ids=["in another pool", "of a former boot", "of the claim itself"],
)
def test_a_device_that_no_other_claim_has_now_excludes_nothing(other: PreparedClaim) -> None:
    prepared(other)


def test_a_device_without_a_readable_record_that_is_not_returned_is_in_use() -> None:
    with pytest.raises(PermanentError, match=EXCLUDED.format("the claim with uid 2")):
        prepared(unreadable=["2"], unrecorded=[held("2", "p0v0")])
    with pytest.raises(PermanentError, match=r"the claim with uid 2 \(no driver\) uses"):
        prepared(unrecorded=[held("2", "p0v0", trouble="no driver")])


@pytest.mark.parametrize(
    "unrecorded",
    [held("2", "p0v0"), held("", "p0v0", "no driver"), held("1", "p0v0", "no driver"), held("3", "p0v0", "no driver")],
    ids=["that is being returned", "of no claim", "of the claim itself", "of a claim whose record can be read"],
)
def test_a_device_without_a_record_excludes_nothing(unrecorded: HeldDevice) -> None:
    prepared(claim("3", "p0v1", pool="worker-1/other"), unrecorded=[unrecorded])
