"""Choose VFs for claims of pooled VFs: a claim's shares and the node's devices in use → a VF for each (decision D53).

Called by `netdra.node.claims.prepare` before a claim is bound. The choice is durable once the claim's record is
written, which is checked against all other claims under the store's lock (`beside`). Until then the VFs are reserved
here. A claim that waits for ports in Neutron is recorded with its choice first; the controller is informed after that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from netdra.model.claim import DeviceRequestAllocationResult, ResourceClaim
from netdra.model.errors import TemporaryError
from netdra.model.plan import PlannedDevice
from netdra.node.claims import checks
from netdra.node.claims.store import ClaimStore, PreparedClaim
from netdra.node.view import HeldDevice, Holder, NodeView
from netdra.topology.devices import ShareKey


class VFChooser:
    """Chooses and reserves VFs. For one thread, but for `note_given_back`.

    The held devices are read when it begins, and again where what it remembers does not do: reading all records and
    checkpoints of a node takes longer than the rest of the choice.
    """

    def __init__(self, view: NodeView, holder: Holder, store: ClaimStore) -> None:
        """Begin; see `netdra.node.claims.handler.Claims`."""
        self._view, self._holder, self._store = view, holder, store
        self._known: dict[str, tuple[HeldDevice, ...]] | None = None
        self._reserved: dict[str, frozenset[str]] = {}
        self._given_back: dict[str, int] = {}
        self._count = 0

    def choose(self, claim: ResourceClaim) -> Mapping[ShareKey, PlannedDevice]:
        """A VF for each share of pooled VFs that a claim was allocated; they stay reserved until `release`.

        The VF that was returned longest ago comes first, so that a VF that no pod can use is not every pod's. The
        claim keeps the VFs that its record states, and a VF that a pod has for it already, whose record was lost.
        Another daemon may have another idea: `beside.check` finds that out.

        Raises:
            TemporaryError: no VF is free.
        """
        shares = [share for share in checks.ours(claim) if self._is_pooled(share)]
        if not shares:
            return {}
        uid = claim.metadata.uid
        record = self._store.get(uid)
        if self._known is None or (record is None and uid in self._known):
            self.read_again()
        try:
            chosen = self._chosen(claim, shares, record)
        except TemporaryError:
            self.read_again()  # another daemon may have released a VF
            chosen = self._chosen(claim, shares, record)
        self._reserved[uid] = frozenset(vf.pci_address for vf in chosen.values())
        return chosen

    def read_again(self) -> None:
        """Read the held devices: what another daemon does is not known here."""
        known: dict[str, tuple[HeldDevice, ...]] = {}
        for device in self._holder.held:
            known[device.claim] = (*known.get(device.claim, ()), device)
        self._known = known

    def release(self, uid: str) -> None:
        """End the reservation of a claim's VFs: its record has them now, or it is not prepared."""
        self._reserved.pop(uid, None)

    def note_recorded(self, record: PreparedClaim) -> None:
        """A claim has been written down: no other one gets its VFs."""
        if self._known is not None:
            self._known[record.claim.uid] = tuple(
                HeldDevice(key=device.key, claim=record.claim.uid, facts=device.facts) for device in record.devices
            )

    def note_given_back(self, record: PreparedClaim) -> None:
        """From now on the VFs of a claim are the last to be chosen."""
        if self._known is not None:
            self._known.pop(record.claim.uid, None)
        for device in record.devices:
            if device.facts.pooled:
                self._count += 1
                self._given_back[device.facts.pci_address] = self._count

    def _is_pooled(self, share: DeviceRequestAllocationResult) -> bool:
        facts = self._view.devices.get((share.pool, share.device))
        return facts is not None and facts.pooled and not share.admin_access

    def _chosen(
        self, claim: ResourceClaim, shares: Sequence[DeviceRequestAllocationResult], record: PreparedClaim | None
    ) -> dict[ShareKey, PlannedDevice]:
        had, taken = self._held(claim.metadata.uid, record)
        chosen: dict[ShareKey, PlannedDevice] = {}
        for share in shares:
            vfs = self._view.vfs.get((share.pool, share.device), ())
            kept = had.get(key_of(share))
            if kept is not None and (not kept.is_prepared or any(vf.pci_address == kept.vf for vf in vfs)):
                assert kept.facts is not None
                chosen[key_of(share)] = kept.facts
                continue
            free = [vf for vf in vfs if vf.pci_address not in taken]
            if not free:
                raise TemporaryError(
                    f'{checks.named(claim.reference)}, request "{share.request}": none of the {len(vfs)} VFs of device '
                    f'"{share.device}" of pool "{share.pool}" is free',
                    hint=(
                        "netdra retries automatically; if the problem remains, delete the pod, so "
                        "that it is scheduled again"
                    ),
                    code="ND2179",
                )
            chosen[key_of(share)] = vf = min(free, key=self._order(vfs))
            taken.add(vf.pci_address)
        return chosen

    def _held(self, uid: str, record: PreparedClaim | None) -> tuple[dict[ShareKey, HeldDevice], set[str]]:
        """The VFs that pods have for a claim's shares already, and all that are not free."""
        had = {
            (pool, device, share): HeldDevice(key=(pool, device), claim=uid, facts=facts)
            for (pool, device, share), facts in (recorded(record) if record is not None else {}).items()
        }
        known = self._known or {}
        for device in known.get(uid, ()):
            if device.facts is not None and device.facts.pooled:
                had[*device.key, device.facts.share_id] = device
        taken = {device.vf for devices in known.values() for device in devices}
        return had, taken.union(*(vfs for claim, vfs in self._reserved.items() if claim != uid))

    def _order(self, vfs: Sequence[PlannedDevice]) -> Callable[[PlannedDevice], tuple[object, ...]]:
        """The sort key by which the first VF is chosen."""
        groups = Counter(vf.iommu_group for vf in vfs if vf.iommu_group)
        return lambda vf: (
            groups[vf.iommu_group] > 1,  # a guest's driver would have the other functions of the group, too
            not vf.if_name,
            self._given_back.get(vf.pci_address, 0),
            vf.vf_index,
        )


def key_of(share: DeviceRequestAllocationResult) -> ShareKey:
    """Which share of which device an allocation's result is."""
    return share.pool, share.device, share.share_id or ""


def recorded(record: PreparedClaim) -> dict[ShareKey, PlannedDevice]:
    """The VFs that were chosen for a claim, by its record."""
    return {(*device.key, device.told.share_id): device.facts for device in record.devices if device.facts.pooled}
