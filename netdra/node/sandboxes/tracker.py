"""The claims of pods (decision D52): a watch of this node's pods, and the claims that they name.

Asked by `netdra.node.sandboxes.hooks` when a sandbox begins, and by `netdra.node.claims`. A claim is read once, when a
pod that names it comes, and remembered as long as a pod names it: while it is reserved for a pod, its allocation cannot
change. A claim that was prepared for the pod needs no reading: its record has all, also while the API server is away.
If the watch does not have the pod yet, the API server is asked; a sandbox whose claims cannot be known is refused
(decision D12).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import msgspec

from netdra.kube.client import Client, Selection
from netdra.kube.errors import ApiError
from netdra.kube.reflector import Reflector
from netdra.kube.resources import RESOURCE_CLAIMS, Resource
from netdra.kube.store import Change, Store, key_of
from netdra.model import names
from netdra.model.claim import (
    AllocationResult,
    DeviceAllocationResult,
    ResourceClaim,
    ResourceClaimSpec,
    is_reserved_for,
)
from netdra.model.core import PodSpec, PodStatus
from netdra.model.errors import NetdraError, TemporaryError
from netdra.model.meta import ObjectMeta, OwnerReference
from netdra.model.plan import ClaimReference
from netdra.node.claims.store import POD_CLAIM_NAME, ClaimStore, PodReference, PodUser, PreparedClaim
from netdra.node.nri.hooks import Sandbox
from netdra.node.sandboxes.writer import STORED_CLAIMS, StoredClaim
from netdra.ops.boot import boot_id
from netdra.topology.bind import EXTENDED_RESOURCE_CLAIM

_NEVER = "-"  # no field of Kubernetes is called so

_ANNOTATIONS = (EXTENDED_RESOURCE_CLAIM, POD_CLAIM_NAME)


class _Marks(msgspec.Struct, frozen=True):
    """The one annotation that is inspected."""

    mirror: str = msgspec.field(default="", name="kubernetes.io/config.mirror")


class PodMeta(ObjectMeta, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pod's metadata without labels, annotations, finalizers and owners: kilobytes for each of hundreds of pods."""

    labels: Mapping[str, str] = msgspec.field(default_factory=dict, name=f"{_NEVER}labels")
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict, name=f"{_NEVER}annotations")
    finalizers: tuple[str, ...] = msgspec.field(default=(), name=f"{_NEVER}finalizers")
    owner_references: tuple[OwnerReference, ...] = msgspec.field(default=(), name=f"{_NEVER}owners")
    marks: _Marks = msgspec.field(default=_Marks(), name="annotations")


class WatchedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of this node."""

    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def group(self) -> str:
        """The name of its PodGroup, "" for none."""
        group = self.spec.scheduling_group
        return (group.pod_group_name or "") if group is not None else ""

    @property
    def is_finished(self) -> bool:
        """Whether its containers have ended for good."""
        return self.status.phase in ("Succeeded", "Failed")

    def is_of(self, uid: str) -> bool:
        """Whether this is the pod that the kubelet knows by a uid, which for a static pod is its mirror's mark."""
        return bool(uid) and uid in (self.metadata.uid, self.metadata.marks.mirror)


PODS = Resource("v1", "pods", WatchedPod, namespaced=True)


def claim_names(pod: WatchedPod) -> tuple[str, ...] | None:
    """The names of a pod's ResourceClaims, that for extended resources last; None while a claim is still to be made."""
    made = {status.name: status.resource_claim_name or "" for status in pod.status.resource_claim_statuses or ()}
    named: dict[str, None] = {}
    for claim in pod.spec.resource_claims or ():
        name = claim.resource_claim_name or made.get(claim.name)
        if name is None:
            return None
        if name:
            named[name] = None
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        named[extended.resource_claim_name] = None
    return tuple(named)


def needed(claim: ResourceClaim) -> ResourceClaim:
    """A claim without its requests and without other drivers' results: preparing and binding need neither."""
    metadata = claim.metadata
    marked = {name: value for name, value in metadata.annotations.items() if name in _ANNOTATIONS}
    allocation = claim.status.allocation
    devices = DeviceAllocationResult() if allocation is None else allocation.devices
    results = tuple(result for result in devices.results if result.driver == names.DRIVER)
    config = tuple(entry for entry in devices.config if entry.opaque and entry.opaque.driver == names.DRIVER)
    ours = DeviceAllocationResult(results=results, config=config if results else ())
    selector = allocation.node_selector if allocation is not None and results else None
    return ResourceClaim(
        metadata=ObjectMeta(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            annotations=marked,
            owner_references=metadata.owner_references if results or EXTENDED_RESOURCE_CLAIM in marked else (),
        ),
        spec=ResourceClaimSpec(),
        status=msgspec.structs.replace(
            claim.status,
            allocation=None if allocation is None else AllocationResult(devices=ours, node_selector=selector),
            devices=(),
        ),
    )


def is_ours(claim: ResourceClaim) -> bool:
    """Whether a claim, as `needed` returns it, has devices of netdra."""
    return claim.status.allocation is not None and bool(claim.status.allocation.devices.results)


log = logging.getLogger(__name__)

FRESH_SECONDS = 10.0
TURN_SECONDS = 1.0
AT_ONCE = 3  # claims of many pods that come together: else the first pods' hooks would wait for all of them


def pods_of(node: str) -> Selection:
    """The pods of a node."""
    # Of the API server: the kubelet's own pods (KEP-4188) lack `resourceClaimStatuses` (decision D81).
    return Selection(field_selector=f"spec.nodeName={node}")


@dataclass
class Tracker:
    """The pods of a node and their claims, kept current while `run` runs.

    Attributes:
        records: the claims that are prepared on this node. The kubelet prepares a pod's claims before its sandbox
            begins, so without a prepared claim no pod has one of netdra, known to the watch or not.
        note_read: called with each allocated claim of netdra that was read, byte for byte.
    """

    client: Client
    reflector: Reflector[WatchedPod]
    records: ClaimStore
    note_read: Callable[[StoredClaim], None] = lambda _: None
    _claims: dict[str, ResourceClaim] = field(default_factory=dict)
    _reading: dict[str, asyncio.Task[ResourceClaim]] = field(default_factory=dict)
    _few: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _read_at: dict[str, float] = field(default_factory=dict)
    _recorded_uids: dict[str, str] = field(default_factory=dict)  # as of the last reading of all records

    @classmethod
    def of_node(
        cls,
        client: Client,
        node: str,
        records: ClaimStore,
        note_read: Callable[[StoredClaim], None] = lambda _: None,
    ) -> Tracker:
        """The tracker of a node."""
        return cls(client, Reflector(client, PODS, Store(), pods_of(node)), records, note_read)

    @property
    def pods(self) -> Store[WatchedPod]:
        """The pods of the node as the watch has them."""
        return self.reflector.store

    @property
    def claims(self) -> tuple[ResourceClaim, ...]:
        """The claims of the known pods, those of other drivers without their allocation."""
        return tuple(self._claims.values())

    async def run(self) -> None:
        """Watch until cancelled."""
        with suppress(NetdraError):  # where the disk cannot be read, the claims are read from the API server
            await asyncio.to_thread(self._read_records)
        with self.pods.following(self._on_pod_change):
            try:
                await self.reflector.run()
            finally:
                for task in self._reading.values():
                    task.cancel()

    async def claims_of(self, sandbox: Sandbox, seconds: float) -> tuple[ClaimReference, ...]:
        """The pod's claims that have devices of netdra, in the order in which the pod names them.

        For a pod that the watch has, and that names no claim, nothing is waited for.

        Args:
            sandbox: the pod's.
            seconds: how long it may take.

        Raises:
            TemporaryError: the pod's claims cannot be known now.
        """
        pod = self.pods.objects.get(key_of(sandbox.namespace, sandbox.name))
        pod = pod if pod is not None and pod.is_of(sandbox.uid) else None
        named = claim_names(pod) if pod is not None else None
        if named == () or (named is None and not self.records.uids()):
            return ()
        try:
            async with asyncio.timeout(seconds):
                if pod is None or named is None:
                    pod = await self._get_pod(sandbox)
                    named = claim_names(pod)
                if named is None:
                    raise _unknown(sandbox, "not all of its claims are made yet")
                claims = [await self._claim(sandbox, pod, name) for name in named]
        except TimeoutError:
            raise _unknown(sandbox, f"the API server has not answered within {seconds:.1f} s") from None
        except ApiError as problem:
            raise _unknown(sandbox, problem.what) from None
        return tuple(claim for claim in claims if claim is not None)

    def remembered(self, claim: ClaimReference) -> ResourceClaim | None:
        """A claim as it was read for one of its pods; None if it was not."""
        stored = self._claims.get(key_of(claim.namespace, claim.name))
        return stored if stored is not None and stored.metadata.uid == claim.uid else None

    def users(self, claim: ResourceClaim) -> tuple[PodUser, ...]:
        """The pods of this node that a claim is reserved for, by themselves or with their PodGroup.

        A PodGroup's reservation counts for those of its pods that name the claim and have not finished: Kubernetes
        removes a finished pod's reservation, but not the PodGroup's.
        """
        namespace, name = claim.metadata.namespace, claim.metadata.name
        reserved = {user.uid for user in claim.status.reserved_for}
        is_of_group = any(user.resource != "pods" for user in claim.status.reserved_for)
        return tuple(
            PodUser(
                PodReference(name=pod.metadata.name, uid=pod.metadata.uid),
                pod.spec.host_network,
                pod.metadata.is_ending,
            )
            for pod in self.pods.objects.values()
            if pod.metadata.namespace == namespace
            and (
                pod.metadata.uid in reserved
                or (
                    is_of_group
                    and is_reserved_for(claim, pod.metadata.uid, pod.group)
                    and name in (claim_names(pod) or ())
                    and not pod.is_finished
                )
            )
        )

    async def just_read(self, wanted: ClaimReference) -> ResourceClaim | None:
        """A claim as it has just been read for a pod that the watch has; None if the caller must read it.

        Once for each reading: a claim that is prepared a second time may have been returned and allocated again in
        between.
        """
        key = key_of(wanted.namespace, wanted.name)
        if key in self._reading:
            with suppress(NetdraError):
                await self._read(key)
        claim, read_at = self._claims.get(key), self._read_at.pop(key, -math.inf)
        if claim is None or claim.metadata.uid != wanted.uid or time.monotonic() > read_at + FRESH_SECONDS:
            return None
        return claim if self.users(claim) else None

    def is_ending(self, sandbox: Sandbox) -> bool:
        """Whether the watch is sure that a sandbox's pod has finished, or is being deleted or gone."""
        pod = self.pods.objects.get(key_of(sandbox.namespace, sandbox.name))
        if pod is None or not pod.is_of(sandbox.uid):
            return self.pods.synced
        return pod.is_finished or pod.metadata.is_ending

    def knows_to_be_claimless(self, sandbox: Sandbox) -> bool:
        """Whether the watch is sure that a pod names no claim at all."""
        pod = self.pods.objects.get(key_of(sandbox.namespace, sandbox.name))
        return pod is not None and pod.is_of(sandbox.uid) and claim_names(pod) == ()

    async def at_rest(self) -> None:
        """Wait until no claim is being read."""
        while self._reading:
            await asyncio.wait(self._reading.values())

    async def _get_pod(self, sandbox: Sandbox) -> WatchedPod:
        """A pod that the watch does not have, or has without all of its claims, from the API server."""
        pod = await self.client.get(PODS, sandbox.name, sandbox.namespace)
        if not pod.is_of(sandbox.uid):
            raise _unknown(sandbox, "another pod has its name by now")
        self._forget_reserved_by_name(pod)
        return pod

    async def _claim(self, sandbox: Sandbox, pod: WatchedPod, name: str) -> ClaimReference | None:
        """A claim that is allocated, and reserved for the pod; None if it has no device of netdra."""
        key = key_of(sandbox.namespace, name)
        remembered = self._claims.get(key)
        if remembered is not None and is_reserved_for(remembered, pod.metadata.uid, pod.group):
            return remembered.reference if is_ours(remembered) else None
        recorded = self._recorded(sandbox.namespace, name, pod.metadata.uid)
        if recorded is not None and remembered is None:
            return recorded
        begun_before = key in self._reading
        claim = await self._read(key)
        if begun_before and not is_reserved_for(claim, pod.metadata.uid, pod.group):
            claim = await self._read(key)  # a reading for another pod may be from before this pod's reservation
        if claim.status.allocation is None:
            raise _unknown(sandbox, f'ResourceClaim "{key}" is not allocated')
        if not is_ours(claim):
            return None
        if not is_reserved_for(claim, pod.metadata.uid, pod.group):
            raise _unknown(sandbox, f'ResourceClaim "{key}" is not reserved for it')
        return claim.reference

    def _recorded(self, namespace: str, name: str, pod: str) -> ClaimReference | None:
        """A claim that was prepared for a pod in this boot: while the pod is there its allocation cannot change."""
        key = key_of(namespace, name)
        recorded = self._known_record(key, pod)
        if recorded is not None:
            return recorded
        found = [record.claim for record in self._read_records() if _is_record_for(record, key, pod)]
        return found[0] if len(found) == 1 else None

    def _known_record(self, key: str, pod: str) -> ClaimReference | None:
        """As `_recorded`, for the claims that had a record when all were last read: one system call for one file."""
        uid = self._recorded_uids.get(key)
        record = self.records.get(uid) if uid is not None else None
        return record.claim if record is not None and _is_record_for(record, key, pod) else None

    def _read_records(self) -> list[PreparedClaim]:
        records = self.records.all()
        keys = [key_of(record.claim.namespace, record.claim.name) for record in records]
        counts = Counter(keys)
        pairs = zip(keys, records, strict=True)
        self._recorded_uids = {key: record.claim.uid for key, record in pairs if counts[key] == 1}
        return records

    async def _read(self, key: str) -> ResourceClaim:
        """Read and remember a claim; all callers for a claim that is just being read wait for the same answer."""
        return await asyncio.shield(self._begin_reading(key))

    def _begin_reading(self, key: str) -> asyncio.Task[ResourceClaim]:
        task = self._reading.get(key)
        if task is None:
            task = self._reading[key] = asyncio.create_task(self._fetch(key))
            task.add_done_callback(lambda done: self._read_done(key, done))
        return task

    async def _fetch(self, key: str) -> ResourceClaim:
        namespace, _, name = key.partition("/")
        async with self._turn():
            whole, stored = await self.client.get_as_both(RESOURCE_CLAIMS, STORED_CLAIMS, name, namespace)
        claim = needed(whole)
        if claim.status.allocation is not None:
            self._claims[key], self._read_at[key] = claim, time.monotonic()
            if is_ours(claim):
                self.note_read(stored)
        return claim

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait until few others are reading, but not long: others may hang."""
        taken = False
        with suppress(TimeoutError):
            async with asyncio.timeout(TURN_SECONDS):
                taken = await self._few.acquire()
        try:
            yield
        finally:
            if taken:
                self._few.release()

    def _read_done(self, key: str, task: asyncio.Task[ResourceClaim]) -> None:
        self._reading.pop(key, None)
        if not task.cancelled() and (problem := task.exception()) is not None:
            level = logging.INFO if isinstance(problem, NetdraError) else logging.ERROR
            log.log(level, 'ResourceClaim "%s" is not read: %s', key, problem)

    def _on_pod_change(self, change: Change[WatchedPod]) -> None:
        """A new pod's claims are read before its sandbox begins; a gone pod's are forgotten unless others name them."""
        if change.new is None:
            self._forget()
            return
        old = change.old
        if (
            old is not None
            and old.metadata.uid == change.new.metadata.uid
            and claim_names(old) == claim_names(change.new)
        ):
            return
        self._forget_reserved_by_name(change.new)
        for name in claim_names(change.new) or ():
            if not self._is_known(change.new, key := key_of(change.new.metadata.namespace, name)):
                self._begin_reading(key)

    def _is_known(self, pod: WatchedPod, key: str) -> bool:
        """Whether a pod's claim need not be read: it is remembered, or a former process has prepared it for the pod."""
        claim, uid = self._claims.get(key), pod.metadata.uid
        if claim is not None:
            return is_reserved_for(claim, uid, pod.group)
        with suppress(NetdraError):
            return not pod.group and self._known_record(key, uid) is not None
        return False

    def _forget_reserved_by_name(self, pod: WatchedPod) -> None:
        """Forget the claims that are reserved for a new pod by its PodGroup's name only, so that they are read again.

        A pod does not know its PodGroup's uid. A PodGroup and a claim of these names may have been deleted and created
        again, while a finished pod of the former PodGroup still names the claim.
        """
        for name in claim_names(pod) or ():
            key = key_of(pod.metadata.namespace, name)
            claim = self._claims.get(key)
            if claim is not None and pod.group and not is_reserved_for(claim, pod.metadata.uid):
                del self._claims[key]

    def _forget(self) -> None:
        used = {
            key_of(pod.metadata.namespace, name)
            for pod in self.pods.objects.values()
            for name in claim_names(pod) or ()
        }
        for key in [key for key in self._claims if key not in used]:
            del self._claims[key]
            self._read_at.pop(key, None)


def _is_record_for(record: PreparedClaim, key: str, pod: str) -> bool:
    """Whether a record is of the claim of that name, and was made in this boot for a pod."""
    return (
        key_of(record.claim.namespace, record.claim.name) == key
        and record.boot_id == boot_id()
        and any(user.uid == pod for user in record.pods)
    )


def _unknown(sandbox: Sandbox, why: str) -> TemporaryError:
    return TemporaryError(
        f'pod "{sandbox.namespace}/{sandbox.name}": which networks it is to have cannot be known: {why}',
        hint="it is tried again by itself; see whether the API server can be reached from this node",
        code="ND2237",
    )
