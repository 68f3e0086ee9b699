"""Whether a claim can be prepared beside the other claims of the node: by the records, the held devices and the slices.

Called by `netdra.node.claims.prepare` under the store's lock, before the claim is written down. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from netdra.model.errors import PermanentError, TemporaryError
from netdra.node.claims import checks
from netdra.node.claims.records import Records
from netdra.node.claims.store import KeptDevice, PreparedClaim
from netdra.node.view import HeldDevice, vf_of
from netdra.slices.exclusion import Holding, Pools
from netdra.topology.devices import DeviceKey, ShareKey


class VFTakenError(TemporaryError):
    """A VF that was chosen for a claim has become another claim's before it was written down."""


def check(
    made: PreparedClaim,
    records: Records,
    hidden: Collection[str],
    unrecorded: Sequence[HeldDevice],
    pools: Pools,
) -> None:
    """Check that a claim's devices exclude none that another claim has.

    Args:
        made: the claim that is to be written down.
        records: all records of the node; the claim's own is skipped.
        hidden: the claims without a readable record that may have VFs even without a sandbox that has a checkpoint.
        unrecorded: the held devices that these records do not have.
        pools: what the node publishes.

    Raises:
        VFTakenError: another claim has a VF that was chosen for this one.
        PermanentError: another claim has what this one was allocated.
    """
    _check_vfs(made, records, hidden, unrecorded)
    uses = _Uses(made, records)
    for holding in _stuck(records, unrecorded, made.claim.uid):
        uses.add(holding)
    for device in made.owned:
        wanted = _holding(device, made)
        problem = pools.conflict(wanted, uses)
        if problem:
            raise PermanentError(
                f'{checks.named(made.claim)}, request "{device.request}": device "{device.told.device}" '
                f'of pool "{device.told.pool}" cannot be used: {problem}',
                hint="delete the pod, so that it is scheduled again",
                code="ND2148",
            )
        uses.add(wanted)


def _check_vfs(
    made: PreparedClaim,
    records: Records,
    hidden: Collection[str],
    unrecorded: Sequence[HeldDevice],
) -> None:
    """Check that no other claim has a VF of a claim, under any device.

    Devices of single VFs exclude each other by their names and counters. A pooled VF has no such name.

    Args:
        made: the claim that is to be written down.
        records: as of `check`.
        hidden: as of `check`.
        unrecorded: the held devices that these records do not have.

    Raises:
        VFTakenError: another claim has a VF that was chosen for this one, or this one's pod has another VF.
        TemporaryError: which VFs are free is not known.
        PermanentError: another claim has a VF that this one was allocated by name.
    """
    wanted = {vf_of(device.facts): device for device in made.owned}
    if wanted.keys() <= {""}:
        return
    pooled = {(*device.key, device.told.share_id): vf for vf, device in wanted.items() if vf and device.facts.pooled}
    if pooled:
        _check_known(made, pooled, hidden, unrecorded)
    taken = [
        (vf_of(device.facts), device.facts.pooled, checks.named(record.claim))
        for vf in wanted
        for record in sorted(records.of_vf(vf), key=_uid)
        if _counts(record, made)
        for device in record.owned
        if vf_of(device.facts) == vf
    ] + [
        (device.vf, device.facts.pooled, f"the claim with uid {device.claim}")
        for device in unrecorded
        if device.claim != made.claim.uid and device.facts is not None
    ]
    for vf, is_pooled, holder in taken:
        device = wanted.get(vf) if vf else None
        if device is None or not (is_pooled or device.facts.pooled):
            continue
        what = f'{checks.named(made.claim)}, request "{device.request}": {holder} has VF {vf}'
        if device.facts.pooled:
            raise VFTakenError(what, code="ND2149")
        raise PermanentError(what, hint="delete the pod, so that it is scheduled again", code="ND2150")


def _check_known(
    made: PreparedClaim,
    chosen: Mapping[ShareKey, str],
    hidden: Collection[str],
    unrecorded: Iterable[HeldDevice],
) -> None:
    """Check that the VFs of all claims are known, and that pods have no other ones for the claim's shares."""
    known = {made.claim.uid}
    for device in unrecorded:
        known.add(device.claim)
        if device.claim == made.claim.uid and device.facts is not None:
            vf = chosen.get((*device.key, device.facts.share_id), device.vf)
            if device.facts.pooled and vf != device.vf:
                raise VFTakenError(
                    f"{checks.named(made.claim)}: its pod has VF {device.vf} already, not {vf}", code="ND2151"
                )
    if unknown := set(hidden) - known:
        raise TemporaryError(
            f"which VFs are free is not known: the record of claim {min(unknown)} cannot be read",
            hint="it is written again when its pod's sandbox starts, and removed after its pod is deleted",
            code="ND2152",
        )


def _stuck(records: Records, unrecorded: Collection[HeldDevice], uid: str) -> Iterator[Holding]:
    """Devices of other claims that no readable record has: not returned yet, or their record is bad."""
    unreadable = records.unreadable if unrecorded else ()
    for device in unrecorded:
        is_left = device.trouble or device.claim in unreadable
        if is_left and device.claim not in ("", uid) and device.claim not in records:
            trouble = f" ({device.trouble})" if device.trouble else ""
            yield Holding(key=device.key, holder=f"the claim with uid {device.claim}{trouble}")


@dataclass(frozen=True)
class _Uses:
    """The devices of other claims, and those of the claim itself that were compared already.

    Attributes:
        made: the claim.
        records: all records of the node.
        added: the uses that no record of another claim has.
    """

    made: PreparedClaim
    records: Records
    added: dict[DeviceKey, list[Holding]] = field(default_factory=dict)

    def add(self, use: Holding) -> None:
        """Count a further use."""
        self.added.setdefault(use.key, []).append(use)

    def of(self, key: DeviceKey) -> Sequence[Holding]:
        """The uses of a device."""
        recorded = [
            _holding(device, record)
            for record in sorted(self.records.of_device(key), key=_uid)
            if _counts(record, self.made)
            for device in record.owned
            if device.key == key
        ]
        return [*recorded, *self.added.get(key, ())]

    def has(self, key: DeviceKey) -> bool:
        """Whether a device is in use."""
        return key in self.added or any(_counts(record, self.made) for record in self.records.of_device(key))


def _counts(record: PreparedClaim, made: PreparedClaim) -> bool:
    """Whether a record is another claim's. One from before the machine's last start is in no pod now."""
    return record.boot_id == made.boot_id and record.claim.uid != made.claim.uid


def _uid(record: PreparedClaim) -> str:
    """The key by which messages list claims in the same order again."""
    return record.claim.uid


def _holding(device: KeptDevice, claim: PreparedClaim) -> Holding:
    return Holding(
        key=device.key,
        holder=checks.named(claim.claim),
        share_id=device.told.share_id,
        consumed=device.facts.consumed_capacity,
    )
