"""Prepare a claim, from top to bottom: read, choose, bind, check, wait for ports and addresses, record.

The claim is refused if it could not be attached. Its record has the answer to the kubelet together with the checked
plan of its network, which the hook executes when a pod begins (decision D52). The plan is bound and checked once: its
ports in Neutron (`ports`) and its addresses of PodNetworks (`assigned`) are references that are filled in when they are
known. The checks against other claims and the writing are one at a time on the node, also with two daemons. Faults that
pass are waited out inside a call, which the kubelet gives 45 seconds: it asks again only after a minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import msgspec

from netdra.kube.backoff import patiently
from netdra.kube.client import Client
from netdra.model import names
from netdra.model.claim import DeviceRequestAllocationResult, ResourceClaim
from netdra.model.errors import NetdraError, TemporaryError
from netdra.model.plan import Binding, ClaimReference, Plan, PlannedDevice, PlannedPort
from netdra.model.resource import DeviceAttribute
from netdra.node import faults
from netdra.node.claims import beside, checks
from netdra.node.claims.assigned import AssignedAddresses
from netdra.node.claims.beside import VFTakenError
from netdra.node.claims.reading import WatchedPods, get_claim, get_pods
from netdra.node.claims.records import FollowedRecords
from netdra.node.claims.store import (
    POD_CLAIM_NAME,
    ClaimStore,
    KeptDevice,
    PodReference,
    PreparedClaim,
    PreparedDevice,
    PreparedPlan,
    base_request,
    cdi_id,
)
from netdra.node.claims.vfs import VFChooser, recorded
from netdra.node.permits import NodePermits
from netdra.node.priority import Turns
from netdra.node.view import NodeView, SandboxHolder
from netdra.ops.boot import boot_id
from netdra.slices.exclusion import Pools
from netdra.topology.addresses import addressed
from netdra.topology.bind import bind
from netdra.topology.devices import DeviceKey, ShareKey, physnets, with_own_facts
from netdra.topology.ports import asked_for, with_ports
from netdra.topology.surroundings import Surroundings

log = logging.getLogger(__name__)

API_SECONDS = 30.0
VIEW_SECONDS = 5.0
PORTS_UNTIL = 36.0
"""Seconds after a call's beginning until which it waits for the controller, so that it can still give the reason."""

_CHOICES = 3
"""How often another VF is chosen where a second daemon of the node had the same idea."""

_Share = tuple[str, str, str, str]
"""Pool, device, share and request of an allocation's result."""


class DescribedFiles(Protocol):
    """The files of a claim beside its record: `netdra.node.cdi.files`."""

    def write_metadata(self, claim: PreparedClaim) -> None:
        """Write a claim's files before any pod has the claim."""

    def specified(self) -> Collection[str]:
        """The claims whose containers can be made."""


class Preparation:
    """Prepares the claims of one node."""

    def __init__(
        self,
        client: Client,
        node: str,
        view: NodeView,
        holder: SandboxHolder,
        store: ClaimStore,
        files: DescribedFiles,
        watched: WatchedPods,
        permits: NodePermits,
        turns: Turns,
        vfs: VFChooser,
        addresses: AssignedAddresses,
    ) -> None:
        """Begin; arguments as of `netdra.node.claims.handler.Claims`, and the VFs and addresses of its claims."""
        self._client, self._node, self._view, self._holder = client, node, view, holder
        self._store, self._files, self._vfs = store, files, vfs
        self._watched, self._permits, self._turns, self._addresses = watched, permits, turns, addresses
        self._records, self._pools = FollowedRecords(store), Pools(())

    async def prepare(self, wanted: ClaimReference) -> PreparedClaim:
        """A claim's record, once the claim is prepared. The caller has the claim's turn.

        Raises:
            NetdraError: the claim is refused, or could not be checked or written down.
        """
        began = asyncio.get_running_loop().time()
        before = await asyncio.to_thread(self._store.get, wanted.uid) if self._store.has(wanted.uid) else None
        if before is not None and await self._still(before):
            await asyncio.to_thread(self._files.write_metadata, before)
            # A former process may have died before the record was on the disk.
            await asyncio.to_thread(self._store.sync)
            return before
        try:
            for _ in range(_CHOICES):
                try:
                    return await self._prepare(wanted, began)
                except VFTakenError as problem:
                    log.info("another VF is chosen: %s", problem.what)
                    self._vfs.read_again()
            return await self._prepare(wanted, began)
        finally:
            self._vfs.release(wanted.uid)

    async def _prepare(self, wanted: ClaimReference, began: float) -> PreparedClaim:
        """Prepare a claim that is not prepared.

        Args:
            wanted: the claim.
            began: when the call began, on the event loop's clock.
        """
        made = await self._plan_just_read(wanted)
        if made is None:
            read = await patiently(lambda: self._read(wanted), API_SECONDS)
            made = await patiently(lambda: self._plan(*read), VIEW_SECONDS)
        made = await self._fill_in(made, began + PORTS_UNTIL)
        await asyncio.to_thread(self._record, made)
        self._addresses.check(made)
        self._vfs.note_recorded(made)
        return made

    async def _still(self, prepared: PreparedClaim) -> bool:
        """Whether a claim is prepared as it is allocated now, in this boot.

        Its pods may have its devices, so nothing else is checked again. A claim that was never unprepared, because the
        kubelet lost its state, may have been allocated other devices meanwhile.
        """
        if prepared.choosing or prepared.boot_id != boot_id():
            return False
        claim = await patiently(lambda: get_claim(self._client, prepared.claim), API_SECONDS)
        checks.check_identity(claim, prepared.claim)
        now = [_share(result) for result in checks.ours(claim)]
        return now == [(*device.key, device.told.share_id, device.told.requests[0]) for device in prepared.devices]

    async def _read(self, wanted: ClaimReference) -> tuple[ResourceClaim, tuple[PodReference, ...]]:
        """The claim as it is now and its pods, checked for reasons that lie in the claim itself."""
        await self._know_node()
        claim = await get_claim(self._client, wanted)
        return claim, await get_pods(self._client, self._node, self._watched, claim, wanted)

    async def _know_node(self) -> None:
        if not self._view.ready:
            raise TemporaryError(
                "netdra has not read this node's devices and the cluster's topologies yet",
                hint="see the driver's log, and whether it reaches the API server",
                code="ND2174",
            )

    async def _plan_just_read(self, wanted: ClaimReference) -> PreparedClaim | None:
        """The claim to be written down, from a claim that was read for its pod already; None if it is refused so.

        The reason is then given for the claim as the API server has it, whole.
        """
        claim = await self._watched.just_read(wanted) if self._view.ready else None
        if claim is None:
            return None
        try:
            pods = await get_pods(self._client, self._node, self._watched, claim, wanted)
            return await self._plan(claim, pods)
        except NetdraError:
            return None

    async def _plan(self, claim: ResourceClaim, pods: Sequence[PodReference]) -> PreparedClaim:
        """The claim to be written down: VFs are chosen, it is bound and checked against the node as it is."""
        pod_names = [pod.name for pod in pods]
        binding, plan = self.bind(claim, self._vfs.choose(claim), pod_names)
        former = self._store.get(claim.metadata.uid) if self._store.has(claim.metadata.uid) else None
        checks.check_hardware(claim, _facts(binding).values(), former, self._view)
        checks.check_shared(claim.reference, plan.plans, pod_names)
        return PreparedClaim(
            boot_id=boot_id(),
            claim=claim.reference,
            devices=tuple(self._devices(claim, binding)),
            pod_claim_name=claim.metadata.annotations.get(POD_CLAIM_NAME, ""),
            plan=plan,
            pods=tuple(pods),
        )

    def bind(
        self,
        claim: ResourceClaim,
        chosen: Mapping[ShareKey, PlannedDevice] = MappingProxyType({}),
        pods: Sequence[str] = (),
    ) -> tuple[Binding, PreparedPlan]:
        """A claim's devices and steps on this node as it is, and its plans, which the rules have checked.

        Args:
            claim: the claim.
            chosen: the VFs of its shares of pooled VFs.
            pods: the names of the pods that have it; without any, those that it is reserved for.

        Raises:
            NetdraError: the claim does not fit its topologies, or the node.
        """
        place = Surroundings(
            node=self._node,
            labels=self._view.labels,
            slices=self._view.slices,
            pods=tuple(pods) or None,
        )
        binding = bind([claim], self._view.topologies, self._view.devices, chosen, place)
        checks.check_binding(claim, binding)
        named = dict.fromkeys(plan.topology for plan in binding.plans)
        topologies = [self._view.topologies[name] for name in named if name in self._view.topologies]
        checked = self._permits.check(binding.plans, topologies)
        return binding, PreparedPlan.of(checked, topologies)

    def _devices(self, claim: ResourceClaim, binding: Binding) -> Iterator[KeptDevice]:
        attributes = _published(self._view, {(result.pool, result.device) for result in checks.ours(claim)})
        facts = _facts(binding)
        named: set[str] = set()
        for result in checks.ours(claim):
            request = base_request(result.request)
            # One CDI id per request is enough: a container with the request gets the edits of all its devices.
            first = request not in named
            named.add(request)
            yield KeptDevice(
                told=PreparedDevice(
                    requests=(result.request,),
                    pool=result.pool,
                    device=result.device,
                    cdi_ids=(cdi_id(claim.metadata.uid, request),) if first else (),
                    share_id=result.share_id or "",
                ),
                facts=facts[_share(result)],
                admin_access=bool(result.admin_access),
                attributes=with_own_facts(attributes.get((result.pool, result.device), {}), facts[_share(result)]),
            )

    async def _fill_in(self, made: PreparedClaim, until: float) -> PreparedClaim:
        """The claim with its ports in Neutron and its addresses, once all of them are known.

        Args:
            made: the claim without them.
            until: the latest time to stop waiting, on the event loop's clock.

        Raises:
            NetdraError: one is not known in time, is not of its device, or does not fit the step.
        """
        assert made.plan is not None
        plans, devices = made.plan.plans, made.devices
        if any(asked_for(plans)):
            bound = await self._wait_ports(made, until)
            plans = with_ports(plans, lambda _, device: bound.get((device.pool, device.device, device.share_id)))
            devices = tuple(
                device
                if device.admin_access
                else msgspec.structs.replace(device, port=bound.get((*device.key, device.told.share_id)))
                for device in devices
            )
        if any(addressed(plans)):
            plans = await self._wait_addresses(made.claim, plans, until)
        if plans is made.plan.plans:
            return made
        return msgspec.structs.replace(made, plan=made.plan.filled(plans), devices=devices)

    async def _wait_ports(self, made: PreparedClaim, until: float) -> Mapping[ShareKey, PlannedPort]:
        from netdra.node.claims import ports  # a node without such claims never needs it

        assert made.plan is not None
        if any(device.facts.pooled for device in made.devices):
            # After a crash, the same VFs are chosen again, and their ports need not be bound to others.
            choice = msgspec.structs.replace(made, plan=None, choosing=True)
            await asyncio.to_thread(self._record, choice)
        async with self._turns.aside():
            return await ports.wait_bound(self._client, self._node, made.plan.plans, min(ports.SECONDS, _left(until)))

    async def _wait_addresses(self, claim: ClaimReference, plans: Sequence[Plan], until: float) -> tuple[Plan, ...]:
        async with self._turns.aside():
            return await self._addresses.wait(claim, plans, physnets(self._view.slices), _left(until))

    def _record(self, made: PreparedClaim) -> None:
        """Check a claim against the devices of other claims and write it down, as one act.

        Raises:
            NetdraError: its devices exclude those of another claim, or it cannot be written down.
        """
        with self._store.saving(made) as save, self._store.locked():
            records = self._records.update()
            unrecorded = self._holder.unrecorded(records)
            beside.check(made, records, self._hidden(records.unreadable), unrecorded, self._pools_now())
            if made.choosing:
                save()
                return
            faults.point("prepare-begun")
            self._files.write_metadata(made)
            faults.point("prepare-described")
            save()
        faults.point("prepare-done")

    def _pools_now(self) -> Pools:
        """The published pools of the node. The caller has the store's lock."""
        slices = self._view.slices
        if not self._pools.are_of(slices):
            self._pools = Pools(slices)
        return self._pools

    def _hidden(self, unreadable: Collection[str]) -> set[str]:
        """The claims whose unreadable records may be the only ones that have their VFs.

        That is a record that a newer netdra wrote, and one of a claim whose containers can be made. Any other claim has
        nothing in a pod that no checkpoint has, and is prepared again, with other VFs, before its pod begins.
        """
        if not unreadable:
            return set()
        specified = self._files.specified()
        return {uid for uid in unreadable if uid in specified or self._store.is_newer(uid)}

    async def prepare_with_plan(self, wanted: ClaimReference) -> PreparedClaim:
        """A claim that is prepared, with its plan: a record without one is bound once more. The caller has its turn.

        Raises:
            NetdraError: the claim cannot be prepared or bound, or the record not be written.
        """
        record = await self.prepare(wanted)
        if record.plan is not None:
            return record
        await patiently(self._know_node, VIEW_SECONDS)
        claim = await patiently(lambda: get_claim(self._client, wanted), API_SECONDS)
        plan = self.bind(claim, recorded(record), [pod.name for pod in record.pods])[1]
        of_device = {(*device.key, device.facts.pci_address): device.port for device in record.devices}
        plans = with_ports(
            plan.plans, lambda _, device: of_device.get((device.pool, device.device, device.pci_address))
        )
        if any(addressed(plans)):
            plans = await self._wait_addresses(wanted, plans, asyncio.get_running_loop().time() + VIEW_SECONDS)
        whole = msgspec.structs.replace(record, plan=plan.filled(plans))
        await asyncio.to_thread(self._store.put, whole)
        self._addresses.check(whole)
        return whole


def _left(until: float) -> float:
    """The seconds until a time on the event loop's clock, at least one."""
    return max(1.0, until - asyncio.get_running_loop().time())


def _facts(binding: Binding) -> dict[_Share, PlannedDevice]:
    """The devices of a claim as they were when it was bound."""
    planned = (step.device for plan in binding.plans for step in plan.steps if step.device is not None)
    devices = (*planned, *(device.device for device in binding.plain))
    return {(device.pool, device.device, device.share_id, device.request): device for device in devices}


def _share(result: DeviceRequestAllocationResult) -> _Share:
    return result.pool, result.device, result.share_id or "", result.request


def _published(view: NodeView, wanted: Collection[DeviceKey]) -> dict[DeviceKey, Mapping[str, DeviceAttribute]]:
    """The attributes of some of the node's devices as they are published, under qualified names."""
    pools = {pool for pool, _ in wanted}
    return {
        (resource_slice.spec.pool.name, device.name): {
            names.qualified(name): attribute for name, attribute in device.attributes.items()
        }
        for resource_slice in view.slices
        if resource_slice.spec.driver == names.DRIVER and resource_slice.spec.pool.name in pools
        for device in resource_slice.spec.devices
        if (resource_slice.spec.pool.name, device.name) in wanted
    }
