"""Prepare and unprepare claims: the `ClaimHandler` of the kubelet's services.

Prepare reads the claim, refuses it if it could not be attached, and writes down its answer to the kubelet together with
the checked plan of its network, which the hook executes when a pod begins (decision D52). A claim whose VFs have ports
in Neutron waits for them here (`ports`), and one whose steps have addresses of PodNetworks for these (`addresses`).
Unprepare goes by the written claim and asks no API server. The checks
against other claims and the writing are one at a time on the node, also with two daemons. Faults that pass are waited
out inside a call, which the kubelet gives 45 seconds: it asks again only after a minute.

The kubelet remembers that it has prepared a claim and does not ask again, even if the record is lost. So a claim
whose record is missing, unreadable, or of a netdra without plans is prepared again when a pod's hook needs it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import msgspec

from netdra.chain.report import DuplicateAddress
from netdra.kube.backoff import patiently
from netdra.kube.client import Client
from netdra.kube.errors import ApiError, NotFoundError
from netdra.kube.resources import RESOURCE_CLAIMS, Resource
from netdra.kube.store import Change
from netdra.model import names
from netdra.model.claim import DeviceRequestAllocationResult, ResourceClaim
from netdra.model.core import ClusterPod
from netdra.model.errors import NetdraError, PermanentError, TemporaryError
from netdra.model.node_network import AddressReport
from netdra.model.plan import Binding, ClaimReference, PlannedDevice
from netdra.model.pod_address import PodAddress
from netdra.model.resource import DeviceAttribute
from netdra.node import faults
from netdra.node.claims import beside, checks
from netdra.node.claims.beside import VFTakenError
from netdra.node.claims.checks import named
from netdra.node.claims.refused import RefusedAddresses
from netdra.node.claims.store import (
    POD_CLAIM_NAME,
    ClaimStore,
    KeptDevice,
    PodReference,
    PodUser,
    PreparedClaim,
    PreparedDevice,
    PreparedPlan,
    base_request,
    cdi_id,
)
from netdra.node.claims.unassigned import addresses_of, report
from netdra.node.claims.vfs import VFChooser, recorded
from netdra.node.permits import NodePermits
from netdra.node.priority import Turns
from netdra.node.view import NodeView, SandboxHolder
from netdra.ops.boot import boot_id
from netdra.ops.logs import fields
from netdra.topology.addresses import addressed
from netdra.topology.bind import bind
from netdra.topology.devices import DeviceKey, ShareKey, physnets, with_own_facts
from netdra.topology.ports import asked_for, with_ports
from netdra.topology.surroundings import Surroundings

if TYPE_CHECKING:
    from netdra.node.claims.addresses import NodeAddresses

log = logging.getLogger(__name__)


class WatchedPods(Protocol):
    """Pods and their claims without asking the API server: `netdra.node.sandboxes.tracker`."""

    def users(self, claim: ResourceClaim) -> tuple[PodUser, ...]:
        """The known pods of this node that a claim is reserved for."""

    async def just_read(self, wanted: ClaimReference) -> ResourceClaim | None:
        """A claim as it has just been read for one of its pods; None if it was not."""


_PODS = Resource("v1", "pods", ClusterPod, namespaced=True)


async def get_claim(client: Client, wanted: ClaimReference) -> ResourceClaim:
    """The claim as the API server has it now.

    Raises:
        ApiError: the API server did not answer.
        PermanentError: no such claim exists.
    """
    try:
        return await client.get(RESOURCE_CLAIMS, wanted.name, wanted.namespace)
    except NotFoundError:
        raise PermanentError(
            f"{named(wanted)} is not there any more", hint="delete the pod; its controller makes another one"
        ) from None


async def users_of(client: Client, claim: ResourceClaim, watched: WatchedPods) -> tuple[PodUser, ...]:
    """The pods that a claim is reserved for.

    A pod that is gone or was replaced does not count. A watched pod is not asked for: its network never changes. The
    pods of a PodGroup are those that are watched.

    Raises:
        ApiError: the API server did not answer.
    """
    known = {user.pod.uid: user for user in watched.users(claim)}
    users = list(known.values())
    for consumer in claim.status.reserved_for:
        if consumer.resource != "pods" or consumer.api_group or consumer.uid in known:
            continue
        try:
            pod = await client.get(_PODS, consumer.name, claim.metadata.namespace)
        except NotFoundError:
            continue
        if pod.metadata.uid == consumer.uid:
            reference = PodReference(name=consumer.name, uid=consumer.uid)
            users.append(PodUser(reference, pod.spec.host_network, pod.metadata.is_ending))
    return tuple(users)


API_SECONDS = 30.0
VIEW_SECONDS = 5.0
PORTS_UNTIL = 36.0
"""Seconds after a call's beginning until which it waits for the controller, so that it can still give the reason."""

_CHOICES = 3
"""How often another VF is chosen where a second daemon of the node had the same idea."""

_Share = tuple[str, str, str, str]
"""Pool, device, share and request of an allocation's result."""


class SideFiles(Protocol):
    """The files of a claim beside its record: `netdra.node.cdi.files`."""

    def write_metadata(self, claim: PreparedClaim) -> None:
        """Write a claim's files before any pod has the claim."""

    def specified(self) -> Collection[str]:
        """The claims whose containers can be made."""

    def remove_spec(self, uid: str) -> None:
        """Let no further container be made with a claim's devices."""

    def remove_all(self, uid: str) -> None:
        """Remove all files of a claim."""


class Claims:
    """The claims of one node."""

    def __init__(
        self,
        client: Client,
        node: str,
        view: NodeView,
        holder: SandboxHolder,
        store: ClaimStore,
        files: SideFiles,
        watched: WatchedPods,
        permits: NodePermits,
        turns: Turns,
        wait_examined: Callable[[Collection[PlannedDevice]], Awaitable[None]],
    ) -> None:
        """Begin.

        Args:
            client: for claims and their pods.
            node: the node's name.
            view: the node's devices, slices and topologies.
            holder: the held devices.
            store: where claims are written down.
            files: the claims' other files.
            watched: pods and their claims without asking the API server.
            permits: what authors of topologies may use of the node.
            turns: the claims that are worked on.
            wait_examined: waits until devices were examined since they came back from other pods.
        """
        self._client, self._node, self._view, self._holder = client, node, view, holder
        self._store, self._files = store, files
        self._watched, self._permits, self._turns, self._wait_examined = watched, permits, turns, wait_examined
        self._vfs = VFChooser(view, holder, store)
        self._addresses: NodeAddresses | None = None
        self._refused = RefusedAddresses()
        self._watching = ExitStack()
        self._address_lost: Callable[[], None] = lambda: None
        self._before_release: list[Callable[[str], Awaitable[None]]] = []
        self._hooked: Counter[str] = Counter()
        self._dropping: set[str] = set()
        self._drops: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Follow no addresses any longer."""
        self._watching.close()
        await asyncio.gather(*self._drops, return_exceptions=True)
        if self._addresses is not None:
            await self._addresses.aclose()

    async def report_addresses(self) -> AddressReport:
        """The addresses that claims of this node were prepared with and that no PodAddress assigns to them."""
        if self._addresses is None or not self._addresses.store.synced:
            return AddressReport()
        present = tuple(self._addresses.store.objects.values())
        return await asyncio.to_thread(lambda: report(self._store.all(), present))

    async def follow_addresses(self, wanted: Callable[[], Awaitable[None]], changed: Callable[[], None]) -> None:
        """Follow the addresses of the node's claims once there may be any.

        Args:
            wanted: returns once claims of the node may get addresses.
            changed: called when a claim may have lost an address, or an address was released.
        """
        self._address_lost = changed
        records: Sequence[PreparedClaim] = ()
        with suppress(NetdraError):  # where the disk cannot be read, they are followed from the next claim on
            records = await asyncio.to_thread(self._store.all)
        if not any(True for record in records for _ in addresses_of(record)):
            await wanted()
        followed = self._address_store()
        followed.follow()
        await followed.store.wait_synced()
        changed()

    def before_release(self, act: Callable[[str], Awaitable[None]]) -> None:
        """Have a function called with a claim's uid before the claim is released."""
        self._before_release.append(act)

    async def prepare(self, claim: ClaimReference) -> tuple[PreparedDevice, ...]:
        """Make a claim ready; see `ClaimHandler`. The caller has the claim's turn.

        Raises:
            NetdraError: the claim is refused, or could not be checked or written down.
        """
        prepared = await self._prepared(claim)
        await self._wait_examined([device.facts for device in prepared.devices])
        return prepared.told

    async def unprepare(self, claim: ClaimReference) -> None:
        """Forget a claim and remove its files; see `ClaimHandler`. The caller has the claim's turn.

        A pod stays in the cluster until its claims are unprepared. So on a file system that is read-only, files that
        let no container begin are left for `remove_given_up`.

        Raises:
            NetdraError: a pod's network could not be taken down, or the CDI specification not be removed.
        """
        for act in self._before_release:
            await act(claim.uid)
        self._refused.forget(claim.uid)
        await asyncio.to_thread(self._forget, claim.uid)

    def remove_given_up(self) -> None:
        """Remove the files of forgotten claims that could not be removed before, if they can be now.

        Raises:
            NetdraError: as of `unprepare`.
        """
        for uid in self._store.given_up():
            self._forget(uid)

    async def for_hook(self, claim: ClaimReference, until: float) -> PreparedClaim:
        """The record of a claim with its plan, for a pod that begins; the claim is prepared again if none exists.

        It is prepared in the claim's turn, which a caller that leaves does not end: the next hook finds it. A record
        that is in memory costs one system call.

        Args:
            claim: the claim.
            until: when the caller leaves, on the monotonic clock.

        Raises:
            NetdraError: no usable record exists, and the claim could not be prepared in time.
        """
        record = self._store.get(claim.uid) if claim.uid not in self._dropping else None
        if record is not None and record.plan is not None and record.boot_id == boot_id():
            return record
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                return await self._turns.run_alone(claim.uid, lambda: self._with_plan(claim))
        except TimeoutError:
            what = f"{named(claim)} has no record on this node, and is being prepared again"
            raise TemporaryError(what, hint="the pod is tried again by itself") from None

    @contextmanager
    def hooked(self, claims: Sequence[ClaimReference]) -> Iterator[None]:
        """A hook uses the plans of claims: they stay as they are."""
        self._hooked.update(claim.uid for claim in claims)
        try:
            yield
        finally:
            self._hooked -= Counter(claim.uid for claim in claims)

    async def refuse_addresses(self, claims: Sequence[ClaimReference], duplicates: Sequence[DuplicateAddress]) -> None:
        """Have claims get other addresses than those that other machines have, and be prepared again by the next hook.

        Raises:
            NetdraError: a record cannot be written.
        """
        self._refused.add(duplicates)
        for claim in claims:
            if any(entry.claim == claim.uid for entry in duplicates):
                await self._turns.run_alone(claim.uid, partial(asyncio.to_thread, self._drop_plan, claim.uid))

    def refused_addresses(self, claim: ClaimReference) -> tuple[DuplicateAddress, ...]:
        """The addresses of a claim that other machines have."""
        return self._refused.of(claim)

    def _drop_plan(self, uid: str) -> None:
        with self._store.locked():
            record = self._store.get(uid)
            if record is not None:
                self._store.put(msgspec.structs.replace(record, plan=None))

    async def release(self, claim: ClaimReference) -> None:
        """Release a claim that no pod has, in its turn.

        Raises:
            NetdraError: as `unprepare`.
        """
        await self._turns.run_alone(claim.uid, lambda: self.unprepare(claim))

    async def put_aside(self, uid: str) -> None:
        """Forget a claim that no pod has and whose record cannot be read, in its turn; the record is kept renamed.

        Raises:
            NetdraError: a file cannot be renamed or removed.
        """
        await self._turns.run_alone(uid, partial(asyncio.to_thread, self._put_aside, uid))

    def _put_aside(self, uid: str) -> None:
        with self._store.locked():
            if uid in self._store.damaged():  # it was not prepared again meanwhile
                self._files.remove_all(uid)
                self._store.put_aside(uid)

    async def is_needed(self, record: PreparedClaim, present: set[str]) -> bool:
        """Whether a pod of this node may need a prepared claim, by reading the claim and its pods from the API server.

        A watch may be behind the kubelet: a claim is prepared milliseconds after its pod was bound. A claim that is
        reserved for a PodGroup counts as needed as long as it is. A claim that cannot be read counts as needed.

        Args:
            record: the claim.
            present: uids of pods that were just read for other claims, and are on this node; those of this claim that
                are found to be are added.
        """
        pods = {user.uid: user.name for user in record.pods}
        if not present.isdisjoint(pods):
            return True
        try:
            claim = await self._client.get(RESOURCE_CLAIMS, record.claim.name, record.claim.namespace)
            if claim.metadata.uid == record.claim.uid:
                if any(consumer.resource != "pods" for consumer in claim.status.reserved_for):
                    return True
                pods |= {consumer.uid: consumer.name for consumer in claim.status.reserved_for}
        except NotFoundError:
            pass
        except ApiError:
            return True
        for uid, name in pods.items():
            if await self.has_pod(record.claim.namespace, name, uid):
                present.add(uid)
                return True
        return False

    async def has_pod(self, namespace: str, name: str, uid: str) -> bool:
        """Whether this node has a pod, by reading it from the API server. A pod that cannot be read counts as there."""
        try:
            pod = await self._client.get(_PODS, name, namespace)
        except NotFoundError:
            return False
        except ApiError:
            return True
        return pod.metadata.uid == uid and pod.spec.node_name == self._node

    async def _prepared(self, claim: ClaimReference) -> PreparedClaim:
        began = asyncio.get_running_loop().time()
        before = await asyncio.to_thread(self._store.get, claim.uid) if self._store.has(claim.uid) else None
        if before is not None and await self._still(before):
            await asyncio.to_thread(self._files.write_metadata, before)
            # A former process may have died before the record was on the disk.
            await asyncio.to_thread(self._store.sync)
            return before
        try:
            for _ in range(_CHOICES):
                try:
                    return await self._made(claim, began)
                except VFTakenError as problem:
                    log.info("another VF is chosen: %s", problem.what)
                    self._vfs.read_again()
            return await self._made(claim, began)
        finally:
            self._vfs.release(claim.uid)

    async def _made(self, claim: ClaimReference, began: float) -> PreparedClaim:
        """A claim that was not prepared, checked and written down."""
        made = await self._of_just_read(claim)
        if made is None:
            sound = await patiently(lambda: self._read(claim), API_SECONDS)
            made = await patiently(lambda: self._checked(*sound), VIEW_SECONDS)
        if made.plan is not None and any(asked_for(made.plan.plans)):
            if any(device.facts.pooled for device in made.devices):
                # After a crash, the same VFs are chosen again, and their ports need not be bound to others.
                choice = msgspec.structs.replace(made, plan=None, choosing=True)
                await asyncio.to_thread(self._settle, choice)
            made = await self._with_ports(made, began + PORTS_UNTIL)
        if made.plan is not None and any(addressed(made.plan.plans)):
            made = await self._with_addresses(made, began + PORTS_UNTIL)
        await asyncio.to_thread(self._settle, made)
        self._check_assigned(made)
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

    async def _with_plan(self, wanted: ClaimReference) -> PreparedClaim:
        """A claim that is prepared, with its plan: the record of a netdra that wrote none is bound once more.

        Raises:
            NetdraError: the claim cannot be prepared or bound, or the record not be written.
        """
        record = await self._prepared(wanted)
        if record.plan is not None:
            return record
        await patiently(self._know_node, VIEW_SECONDS)
        claim = await patiently(lambda: get_claim(self._client, wanted), API_SECONDS)
        plan = self.bind(claim, recorded(record), [pod.name for pod in record.pods])[1]
        of_device = {(*device.key, device.facts.pci_address): device.port for device in record.devices}
        plans = with_ports(
            plan.plans, lambda _, device: of_device.get((device.pool, device.device, device.pci_address))
        )
        whole = msgspec.structs.replace(record, plan=msgspec.structs.replace(plan, plans=plans))
        if any(addressed(plans)):
            whole = await self._with_addresses(whole, asyncio.get_running_loop().time() + VIEW_SECONDS)
        await asyncio.to_thread(self._store.put, whole)
        self._check_assigned(whole)
        return whole

    async def _of_just_read(self, wanted: ClaimReference) -> PreparedClaim | None:
        """The claim to be written down, from a claim that was read for its pod already; None if it is refused so.

        The reason is then given for the claim as the API server has it, whole.
        """
        claim = await self._watched.just_read(wanted) if self._view.ready else None
        try:
            return await self._checked(*await self._sound(claim, wanted)) if claim is not None else None
        except NetdraError:
            return None

    async def _know_node(self) -> None:
        if not self._view.ready:
            raise TemporaryError(
                "netdra has not read this node's devices and the cluster's topologies yet",
                hint="see the driver's log, and whether it reaches the API server",
            )

    async def _read(self, wanted: ClaimReference) -> tuple[ResourceClaim, tuple[PodReference, ...]]:
        """The claim as it is now and its pods, checked for reasons that lie in the claim itself."""
        await self._know_node()
        return await self._sound(await get_claim(self._client, wanted), wanted)

    async def _sound(
        self, claim: ResourceClaim, wanted: ClaimReference
    ) -> tuple[ResourceClaim, tuple[PodReference, ...]]:
        checks.check_identity(claim, wanted)
        checks.allocation_of(claim, self._node)
        checks.check_config(claim)
        owned = any(not result.admin_access for result in checks.ours(claim))
        users = await users_of(self._client, claim, self._watched) if owned else ()
        for user in users:
            if user.on_host_network:
                raise checks.on_host_network(claim, user.pod.name)
        # Its successor waits until a pod that is being deleted has ended.
        staying = tuple(user.pod for user in users if not user.is_ending)
        return claim, staying or tuple(user.pod for user in users)

    async def _checked(self, claim: ResourceClaim, pods: Sequence[PodReference]) -> PreparedClaim:
        """The claim to be written down, checked against the node as it is."""
        binding, plan = self.bind(claim, self._vfs.choose(claim), [pod.name for pod in pods])
        former = self._store.get(claim.metadata.uid) if self._store.has(claim.metadata.uid) else None
        checks.check_hardware(claim, _facts(binding).values(), former, self._view)
        checks.check_shared(claim.reference, plan.plans, [pod.name for pod in pods])
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
        checks.check_steps(binding)
        checks.check_network_shares(claim, binding.plans)
        named = dict.fromkeys(plan.topology for plan in binding.plans)
        topologies = [self._view.topologies[name] for name in named if name in self._view.topologies]
        checked = self._permits.check(binding.plans, topologies)
        return binding, PreparedPlan.of(checked, topologies)

    async def _with_ports(self, made: PreparedClaim, until: float) -> PreparedClaim:
        """The claim with its VFs' ports in Neutron, once all are bound.

        Args:
            made: the claim without them.
            until: the latest time to stop waiting, on the event loop's clock.

        Raises:
            NetdraError: a port is not bound in time, or is not of its VF.
        """
        from netdra.node.claims import ports as neutron_ports  # a node without such claims never needs it

        assert made.plan is not None
        left = max(1.0, until - asyncio.get_running_loop().time())
        async with self._turns.aside():
            bound = await neutron_ports.bound(
                self._client, self._node, made.plan.plans, min(neutron_ports.SECONDS, left)
            )
        plans = with_ports(made.plan.plans, lambda _, device: bound.get((device.pool, device.device, device.share_id)))
        return msgspec.structs.replace(
            made,
            plan=msgspec.structs.replace(made.plan, plans=self._permits.check(plans).plans),
            devices=tuple(
                device
                if device.admin_access
                else msgspec.structs.replace(device, port=bound.get((*device.key, device.told.share_id)))
                for device in made.devices
            ),
        )

    async def _with_addresses(self, made: PreparedClaim, until: float) -> PreparedClaim:
        """The claim with the addresses of its steps, once all of them are assigned.

        Args:
            made: the claim without them.
            until: the latest time to stop waiting, on the event loop's clock.

        Raises:
            NetdraError: an address is not assigned in time, or does not fit the step.
        """
        assert made.plan is not None
        node_addresses = self._address_store()
        left = max(1.0, until - asyncio.get_running_loop().time())
        async with self._turns.aside():
            refused = {entry.address for entry in self._refused.of(made.claim)}
            plans = await node_addresses.addressed(made.plan.plans, physnets(self._view.slices), left, refused)
        plan = msgspec.structs.replace(made.plan, plans=self._permits.check(plans).plans)
        return msgspec.structs.replace(made, plan=plan)

    def _address_store(self) -> NodeAddresses:
        from netdra.node.claims.addresses import NodeAddresses  # a node without such claims never needs it

        if self._addresses is None:
            self._addresses = NodeAddresses(self._client, self._node)
            self._watching.enter_context(self._addresses.store.following(self._on_address_change))
        return self._addresses

    def _on_address_change(self, change: Change[PodAddress]) -> None:
        before, after = (entry.spec if entry is not None else None for entry in (change.old, change.new))
        if after is not None and after.claim is None:
            self._address_lost()  # it is not assigned again before the node has reported
        if before is None or before.claim is None or before == after:
            return
        with suppress(NetdraError):
            if self._store.has(before.claim.uid):
                task = asyncio.create_task(self._drop_unused(before.claim.uid))
                self._drops.add(task)
                task.add_done_callback(self._drops.discard)

    async def _drop_unused(self, uid: str) -> None:
        """Have a claim prepared again whose address was released, or has other settings now, unless a pod has it."""

        async def drop() -> None:
            if self._hooked[uid] or self._holder.has_sandbox(uid):
                return
            self._dropping.add(uid)
            try:
                await asyncio.to_thread(self._drop_plan, uid)
            finally:
                self._dropping.discard(uid)

        try:
            await self._turns.run_alone(uid, drop)
        except NetdraError as problem:
            log.warning("%s", problem, extra=fields(claim=uid))
        self._address_lost()

    def _check_assigned(self, made: PreparedClaim) -> None:
        """Check that a claim still has its addresses, now that its record reports them as in use.

        A report that was made before does not have them, so they may be another claim's by now.

        Raises:
            TemporaryError: one was released meanwhile.
        """
        for _, address, name in addresses_of(made):
            entry = self._address_store().store.objects.get(name)
            if entry is None or entry.spec.claim is None or entry.spec.claim.uid != made.claim.uid:
                self._drop_plan(made.claim.uid)
                raise TemporaryError(
                    f"{named(made.claim)}: address {address} was released while the claim was prepared",
                    hint="the pod is tried again by itself",
                )

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

    def _settle(self, made: PreparedClaim) -> None:
        """Check a claim against the devices of other claims and write it down, as one act.

        Raises:
            NetdraError: its devices exclude those of another claim, or it cannot be written down.
        """
        with self._store.saving(made) as save, self._store.locked():
            records = self._store.all()
            unreadable = self._store.uids() - {record.claim.uid for record in records}
            recorded = {entry for record in records for entry, _ in beside.held_of(record)}
            unrecorded = self._holder.unrecorded(recorded)
            beside.check(made, records, unreadable, self._hidden(unreadable), unrecorded, self._view.slices)
            if made.choosing:
                save()
                return
            faults.point("prepare-begun")
            self._files.write_metadata(made)
            faults.point("prepare-described")
            save()
        faults.point("prepare-done")

    def _hidden(self, unreadable: Collection[str]) -> set[str]:
        """The claims whose unreadable records may be the only ones that have their VFs.

        That is a record that a newer netdra wrote, and one of a claim whose containers can be made. Any other claim has
        nothing in a pod that no checkpoint has, and is prepared again, with other VFs, before its pod begins.
        """
        if not unreadable:
            return set()
        specified = self._files.specified()
        return {uid for uid in unreadable if uid in specified or self._store.is_newer(uid)}

    def _forget(self, uid: str) -> None:
        with self._store.locked():
            faults.point("unprepare-begun")
            record = None
            with suppress(NetdraError):  # a record of a newer netdra is removed unread
                record = self._store.get(uid)
            self._files.remove_spec(uid)
            try:
                self._files.remove_all(uid)
                faults.point("unprepare-removed")
                self._store.remove(uid)
            except TemporaryError as problem:
                log.warning("unprepared, but %s", problem, extra=fields(claim=uid))
                self._store.give_up(uid)
        if record is not None:
            self._vfs.note_given_back(record)


def _facts(binding: Binding) -> dict[_Share, PlannedDevice]:
    """The devices of a claim as they were when it was bound."""
    planned = (step.device for plan in binding.plans for step in plan.steps if step.device is not None)
    devices = (*planned, *(device.device for device in binding.plain))
    return {(device.pool, device.device, device.share_id, device.request): device for device in devices}


def _share(result: DeviceRequestAllocationResult) -> _Share:
    return result.pool, result.device, result.share_id or "", result.request


def _published(view: NodeView, wanted: Collection[DeviceKey]) -> dict[DeviceKey, Mapping[str, DeviceAttribute]]:
    """The attributes of some of the node's devices as they are published, under qualified names."""
    return {
        (resource_slice.spec.pool.name, device.name): {
            names.qualified(name): attribute for name, attribute in device.attributes.items()
        }
        for resource_slice in view.slices
        if resource_slice.spec.driver == names.DRIVER
        for device in resource_slice.spec.devices
        if (resource_slice.spec.pool.name, device.name) in wanted
    }
