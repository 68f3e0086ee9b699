"""Keeps a node's ResourceSlices as they should be: when the wanted slices change, and when others change the stored.

Run by `netdra.node.publishing.service`. Each pool is a key of a work queue, for itself: after a change of its wanted or
stored slices it is compared, written where it differs, and left alone until the reflector has seen those writes, so
that the next look begins from the stored slices and makes none twice. If the store then has the written slices, no
look follows. A write without an answer may have been done: a new slice has the same name in each try, so that the
server rejects a second one, and a pool that was written in part is completed, not begun again. The
kubelet wipes a driver's slices when it restarts; that is a change like any other. If another client's change comes
before a write, the pool's round ends: the next one begins from the slices that are there then.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from netdra.kube.client import Client, Selection
from netdra.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError, RefusedError, Status
from netdra.kube.features import Dropped, dropped
from netdra.kube.queue import AGAIN, WorkQueue
from netdra.kube.resources import RESOURCE_SLICES, Resource
from netdra.kube.store import Change, Store
from netdra.kube.undone import UndoneError, WrittenObject
from netdra.model import names
from netdra.model.meta import ObjectMeta, OwnerReference, order
from netdra.model.resource import API_VERSION, Device, ResourceSlice, ResourceSliceSpec
from netdra.node import metrics
from netdra.node.metrics import SLICE_WRITES
from netdra.node.publishing.reconcile import Writes, content, digest, reconcile
from netdra.ops.metrics import counted

log = logging.getLogger(__name__)

AT_ONCE = 12
"""How many pools are written at one time; more would only wait in the API server."""
MAX_ADOPTED = 64
"""How many of a pool's contents are remembered of which the server stores another content."""
_TRIES_OF_A_NAME = 8
"""How often a taken name is tried, in ten seconds or more. If the store has no such slice then, it is another's."""

Slices = Sequence[ResourceSlice]


class RefusedDevice(msgspec.Struct, frozen=True):
    """A device that the server does not take, with its reason."""

    device: str
    reason: str


class PoolWrites(msgspec.Struct, frozen=True):
    """The outcome of a pool's writes.

    Attributes:
        versions: the resourceVersions of the written slices, by the slices' names.
        deleted: the names of the slices that are gone.
        adopted: digest of a sent content -> digest of the stored one, where they differ.
        dropped: the fields that the server did not store.
        refusals: the devices that the server refused; the pool is not whole until they are left out.
        overtaken: whether another client's change came first, so that the pool has to be inspected again.
        taken: whether that was a slice with the name of a new one; mostly an earlier try made it.
    """

    versions: dict[str, str] = {}
    deleted: tuple[str, ...] = ()
    adopted: dict[bytes, bytes] = {}
    dropped: tuple[Dropped, ...] = ()
    refusals: tuple[RefusedDevice, ...] = ()
    overtaken: bool = False
    taken: bool = False

    @property
    def version(self) -> str:
        """The highest resourceVersion written, "" if none: a store that reached it has seen all of them."""
        return max(self.versions.values(), key=order, default="")


class StoredSlice(msgspec.Struct, frozen=True):
    """A slice as the store keeps it: its content stays text, which takes a seventh of the memory."""

    metadata: ObjectMeta
    spec: msgspec.Raw

    def read(self) -> ResourceSlice:
        """The slice, decoded again at each call."""
        return ResourceSlice(metadata=self.metadata, spec=_spec.decode(self.spec))


class _PoolName(msgspec.Struct, frozen=True):
    name: str


class _OfPool(msgspec.Struct, frozen=True):
    """The part of a slice's content that has its pool."""

    pool: _PoolName


STORED_SLICES = Resource(API_VERSION, "resourceslices", StoredSlice)

_spec = msgspec.json.Decoder(ResourceSliceSpec)
_pool_of = msgspec.json.Decoder(_OfPool)
_DEVICE = re.compile(r"spec\.devices\[(\d+)\]")


def of_node(node: str) -> Selection:
    """This driver's slices of a node."""
    return Selection(field_selector=f"spec.driver={names.DRIVER},spec.nodeName={node}")


def _no_report(_pool: str, _written: PoolWrites) -> None:
    """Without a report the outcome of writes is dropped."""


def _new_tag() -> str:
    return secrets.token_hex(8)


@dataclass
class _Pool:
    """One pool.

    Attributes:
        wanted: the slices that should be there.
        stored: the slices that are there, by name.
        adopted: see `reconcile`.
        refused: devices that the server does not take, as they were when it refused them.
        tag: the word of which new slices' names are made, until they are there.
        taken: in how many rounds one after the other such a name was taken already.
        was_written: whether the server has had the slices as they were wanted at some time.
    """

    wanted: tuple[ResourceSlice, ...] = ()
    stored: dict[str, StoredSlice] = field(default_factory=dict)
    adopted: dict[bytes, bytes] = field(default_factory=dict)
    refused: dict[str, Device] = field(default_factory=dict)
    tag: str = field(default_factory=_new_tag)
    taken: int = 0
    was_written: bool = False

    def legal(self) -> list[ResourceSlice]:
        """The wanted slices without the devices that the server refused, as long as these are unchanged."""
        if not self.refused:
            return list(self.wanted)
        valid = []
        for wanted in self.wanted:
            devices = tuple(device for device in wanted.spec.devices if self.refused.get(device.name) != device)
            if devices or wanted.spec.shared_counters:
                spec = msgspec.structs.replace(wanted.spec, devices=devices)
                valid.append(msgspec.structs.replace(wanted, spec=spec))
        return valid

    @property
    def left_out(self) -> list[str]:
        """The devices that are left out because the server refused them as they are."""
        if not self.refused:
            return []
        devices = (device for resource_slice in self.wanted for device in resource_slice.spec.devices)
        return [device.name for device in devices if self.refused.get(device.name) == device]

    @property
    def versions(self) -> dict[str, str]:
        """The stored slices' resourceVersions, by name."""
        return {name: stored.metadata.resource_version for name, stored in self.stored.items()}

    def learn(self, written: PoolWrites) -> None:
        """Remember the outcome of the pool's writes."""
        self.taken = self.taken + 1 if written.taken else 0
        if not written.overtaken or self.taken >= _TRIES_OF_A_NAME:
            self.tag, self.taken = _new_tag(), 0
        if len(self.adopted) > MAX_ADOPTED:
            self.adopted.clear()
        self.adopted |= written.adopted
        refused = {refusal.device for refusal in written.refusals}
        self.refused |= {
            device.name: device
            for resource_slice in self.wanted
            for device in resource_slice.spec.devices
            if device.name in refused
        }


class _Unseen(msgspec.Struct, frozen=True):
    """A pool's writes that the store has not seen yet.

    Attributes:
        version: see `PoolWrites`.
        deleted: see `PoolWrites`.
        versions: the resourceVersions of the pool's slices once the store has seen the writes, by name.
    """

    version: str
    deleted: tuple[str, ...]
    versions: dict[str, str]


@dataclass
class Publisher:
    """Publishes one node's slices.

    Attributes:
        store: the node's slices of this driver, kept by a reflector.
        owner: the Node, with which the slices are deleted; None while it does not exist, and nothing is written.
        report: called after each pool's writes, with their outcome.
    """

    client: Client
    store: Store[StoredSlice]
    owner: OwnerReference | None
    report: Callable[[str, PoolWrites], None] = _no_report
    _pools: dict[str, _Pool] = field(default_factory=dict)
    _unseen: dict[str, _Unseen] = field(default_factory=dict)
    _deferred: set[str] = field(default_factory=set)
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _all_seen: asyncio.Event = field(default_factory=asyncio.Event)
    _is_replaced: asyncio.Event = field(default_factory=asyncio.Event)
    _queue: WorkQueue[str] = field(init=False)

    def __post_init__(self) -> None:
        self._queue = WorkQueue("slices", self._reconcile, workers=AT_ONCE, fields=lambda pool: {"pool": pool})
        self._all_seen.set()

    def want(self, slices: Slices) -> None:
        """From now on these slices are to be there, and no others; names, generations and sizes do not matter."""
        by_pool: dict[str, list[ResourceSlice]] = {pool: [] for pool in self._pools}
        for wanted in slices:
            by_pool.setdefault(wanted.spec.pool.name, []).append(wanted)
        self.want_pools(by_pool)

    def want_pools(self, pools: Mapping[str, Slices]) -> None:
        """From now on these pools are to have these slices; a pool without slices is to go. Other pools stay wanted."""
        for pool, slices in pools.items():
            state = self._pools.setdefault(pool, _Pool())
            state.wanted = tuple(slices)
            self._queue.add(pool)
        self._wanted.set()

    @property
    def owner_uid(self) -> str:
        """The uid of the Node; "" while it does not exist."""
        return self.owner.uid if self.owner is not None else ""

    def belong(self, owner: OwnerReference | None) -> None:
        """The Node was created again, or deleted (None), and the slices of the former one are deleted with it."""
        self.owner = owner
        for pool in self._pools:
            self._queue.add(pool)

    @property
    def is_published(self) -> bool:
        """Whether the server has the wanted slices, as far as is known."""
        return self._wanted.is_set() and self.store.synced and not self._unseen and self._queue.is_idle

    async def wait_published(self) -> None:
        """Wait until the server has the wanted slices, as far as is known."""
        while not self.is_published:
            await self._wanted.wait()
            await self.store.wait_synced()
            await self._all_seen.wait()
            await self._queue.drain()

    async def wait_published_once(self) -> None:
        """Wait until the server has, or has had, the wanted slices of all pools.

        During an update the driver of the former version writes its own slices again and again. It ends when this one
        is ready, so this one must not wait for its end.
        """
        waits = [asyncio.create_task(self.wait_published()), asyncio.create_task(self._is_replaced.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    @property
    def refused(self) -> list[tuple[str, str]]:
        """The devices that the server refuses now, by pool and name."""
        return [(name, device) for name, pool in list(self._pools.items()) for device in pool.left_out]

    async def run(self) -> None:
        """Keep the slices as they should be, until cancelled. Nothing is written before something was wanted."""
        metrics.LEFT_OUT.labels("refused").set_function(lambda: len(self.refused))
        await self.store.wait_synced()
        with self.store.following(self._on_change):
            for name, stored in self.store.objects.items():
                self._on_change(Change(name, None, stored))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._see())
                await self._wanted.wait()
                tasks.create_task(self._queue.run())

    async def _reconcile(self, name: str) -> float | None:
        """Compare a pool and write the differing slices; until the store has seen these, it is not inspected again.

        Raises:
            ApiError: the server is away, or refuses the pool as a whole.
        """
        if name in self._unseen:
            self._deferred.add(name)
            return None
        pool = self._pools.setdefault(name, _Pool())
        before = pool.versions
        try:
            with counted(metrics.PUBLISHER_ROUNDS):
                written = await self._mend(name, pool)
        except ApiError:
            self._end(name, before)
            raise
        if written is None:
            self._end(name, before)
            return None
        left = {slice_name: version for slice_name, version in before.items() if slice_name not in written.deleted}
        after = left | written.versions
        self._unseen[name] = _Unseen(written.version, written.deleted, after)
        self._all_seen.clear()
        if written.refusals:
            self._deferred.add(name)
        self._let_go()
        return AGAIN if written.overtaken else None

    async def _mend(self, name: str, pool: _Pool) -> PoolWrites | None:
        """Compare a pool once and write the differing slices; None if none differs.

        Raises:
            ApiError: the server is away, or refuses the pool as a whole.
        """
        if self.owner is None:
            return None
        stored = [stored_slice.read() for stored_slice in pool.stored.values()]
        writes = reconcile(pool.legal(), stored, self.owner, tag=pool.tag, adopted=pool.adopted).get(name)
        if writes is None:
            pool.was_written = True
            return None
        identity, wanted = _identity(name, writes, self.owner), _digest(pool.legal(), self.owner)
        try:
            self.client.undone.check(identity, wanted)
        except UndoneError:
            if all(other.was_written for other in self._pools.values()):
                self._is_replaced.set()
            raise
        written = await write(self.client, writes)
        pool.was_written = pool.was_written or not (written.overtaken or written.refusals)
        if written.versions or written.deleted:
            self.client.undone.note(identity, wanted)
        metrics.OVERTAKEN.inc(written.overtaken)
        for entry in written.dropped:
            metrics.DROPPED.labels(entry.gate).inc()
        pool.learn(written)
        self.report(name, written)
        return written

    async def _see(self) -> None:
        """End rounds as the store sees their writes."""
        while True:
            await self.store.until(lambda: any(self._has_seen(unseen) for unseen in self._unseen.values()))
            self._let_go()

    def _let_go(self) -> None:
        """End the rounds of the pools whose writes the store has seen."""
        for name, unseen in list(self._unseen.items()):
            if self._has_seen(unseen):
                del self._unseen[name]
                self._end(name, unseen.versions)
        if not self._unseen:
            self._all_seen.set()

    def _end(self, name: str, versions: Mapping[str, str]) -> None:
        """A pool's round is over; another round follows if the store has other slices than this round's result."""
        pool = self._pools[name]
        if pool.versions != versions or name in self._deferred:
            self._deferred.discard(name)
            self._queue.add(name)
        elif not pool.wanted and not pool.stored:
            del self._pools[name]

    def _on_change(self, change: Change[StoredSlice]) -> None:
        for stored in filter(None, (change.old, change.new)):
            pool = _pool_of.decode(stored.spec).pool.name
            state = self._pools.setdefault(pool, _Pool())
            if stored is change.new:
                state.stored[change.key] = stored
            else:
                state.stored.pop(change.key, None)
            if pool not in self._unseen and not self._queue.is_busy(pool):
                self._queue.add(pool)

    def _has_seen(self, unseen: _Unseen) -> bool:
        gone = not any(name in self.store.objects for name in unseen.deleted)
        return gone and (not unseen.version or self.store.reached(unseen.version))


def _identity(pool: str, writes: Writes, owner: OwnerReference) -> WrittenObject:
    """A pool as an object that is written: its slices' names and generations change each time."""
    first = next(iter((*writes.updates, *writes.deletes, *writes.creates)))
    return WrittenObject(
        method="PUT",
        key=f"{RESOURCE_SLICES.path()}?pool={pool}",
        path=RESOURCE_SLICES.path(name=first.metadata.name),
        plural=RESOURCE_SLICES.plural,
        api_version=API_VERSION,
        kind="ResourceSlice",
        name=pool,
        owners=(owner,),
    )


def _digest(wanted: Slices, owner: OwnerReference) -> bytes:
    """A short stand-in for the content of a pool."""
    return b"".join([owner.uid.encode(), *sorted(digest(each.spec) for each in wanted)])


async def write(client: Client, writes: Writes) -> PoolWrites:
    """Write a pool: deletes, then updates, then creates.

    Raises:
        ApiError: the server is away, or refuses for a reason that is not a single device's.
    """
    answered: list[tuple[ResourceSlice, ResourceSlice]] = []
    deleted: list[str] = []
    for stale in writes.deletes:
        try:
            await client.delete(RESOURCE_SLICES, stale)
        except NotFoundError:
            pass
        except ConflictError:
            return _learned(answered, deleted, overtaken=True)
        deleted.append(stale.metadata.name)
        SLICE_WRITES.labels("delete").inc()
    for sent in (*writes.updates, *writes.creates):
        send = client.replace if sent.metadata.uid else client.create
        try:
            answered.append((sent, await send(RESOURCE_SLICES, sent)))
            SLICE_WRITES.labels("update" if sent.metadata.uid else "create").inc()
        except (ConflictError, AlreadyExistsError, NotFoundError) as problem:
            if isinstance(problem, NotFoundError) and not sent.metadata.uid:
                raise
            taken = isinstance(problem, AlreadyExistsError)
            return _learned(answered, deleted, overtaken=True, taken=taken)
        except RefusedError as problem:
            refusals = refused_devices(problem.status, sent)
            if not refusals:
                raise
            return _learned(answered, deleted, refusals=refusals)
    return _learned(answered, deleted)


def refused_devices(status: Status, sent: ResourceSlice) -> tuple[RefusedDevice, ...]:
    """The devices that a refusal names; none if it is about the slice as a whole."""
    causes = status.details.causes if status.details else None
    reasons: dict[int, str] = {}
    for cause in causes or ():
        match = _DEVICE.match(cause.field)
        if match is None:
            return ()
        reasons.setdefault(int(match[1]), f"{cause.field}: {cause.message}")
    return tuple(
        RefusedDevice(sent.spec.devices[index].name, reason)
        for index, reason in sorted(reasons.items())
        if index < len(sent.spec.devices)
    )


def _learned(
    answered: Sequence[tuple[ResourceSlice, ResourceSlice]],
    deleted: Sequence[str],
    *,
    refusals: tuple[RefusedDevice, ...] = (),
    overtaken: bool = False,
    taken: bool = False,
) -> PoolWrites:
    adopted: dict[bytes, bytes] = {}
    missing: list[Dropped] = []
    for sent, stored in answered:
        if sent.spec == stored.spec:
            continue
        digests = digest(sent.spec), digest(stored.spec)
        if digests[0] != digests[1]:
            adopted[digests[0]] = digests[1]
            missing += dropped(content(sent.spec), content(stored.spec))
    return PoolWrites(
        versions={stored.metadata.name: stored.metadata.resource_version for _, stored in answered},
        deleted=tuple(deleted),
        adopted=adopted,
        dropped=tuple(dict.fromkeys(missing)),
        refusals=refusals,
        overtaken=overtaken,
        taken=taken,
    )
