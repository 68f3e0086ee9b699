"""Keeps a node's ResourceSlices as they should be: when what is wanted changes, and when somebody else changes them.

Run by `netdra.node.publishing.service`. Each pool is for itself: what is wanted of it or stored of it changed, so it is
compared, written where it differs, and left alone until the reflector has seen those writes, so that the next look
begins from the truth and makes nothing twice. If what it then has is what was written, there is no next look. The
kubelet wipes a driver's slices when it restarts; that is a change like any other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from netdra.kube.backoff import Backoff
from netdra.kube.client import Client, Selection
from netdra.kube.errors import ApiError
from netdra.kube.resources import Resource
from netdra.kube.store import Change, Store
from netdra.model import names
from netdra.model.errors import TemporaryError
from netdra.model.meta import ObjectMeta, OwnerReference
from netdra.model.resource import API_VERSION, Device, ResourceSlice, ResourceSliceSpec
from netdra.node import metrics
from netdra.node.publishing.publish import Written, write
from netdra.node.publishing.reconcile import reconcile
from netdra.ops.logs import fields
from netdra.ops.metrics import counted

log = logging.getLogger(__name__)

REFUSED_SECONDS = 30.0
AT_ONCE = 12
"""How many pools are written at one time; more would only wait in the API server."""
MAX_ADOPTED = 64
"""How many contents of a pool are remembered that the server keeps otherwise."""

Slices = Sequence[ResourceSlice]


class StoredSlice(msgspec.Struct, frozen=True):
    """A slice as the store keeps it: its content stays text, which takes a seventh of the memory."""

    metadata: ObjectMeta
    spec: msgspec.Raw

    def read(self) -> ResourceSlice:
        """The slice."""
        return ResourceSlice(metadata=self.metadata, spec=_spec.decode(self.spec))


class _PoolName(msgspec.Struct, frozen=True):
    name: str


class _OfPool(msgspec.Struct, frozen=True):
    """As much of a slice's content as says which pool it is of."""

    pool: _PoolName


STORED_SLICES = Resource(API_VERSION, "resourceslices", StoredSlice)

_spec = msgspec.json.Decoder(ResourceSliceSpec)
_pool_of = msgspec.json.Decoder(_OfPool)


def of_node(node: str) -> Selection:
    """Which slices are this driver's on a node."""
    return Selection(field_selector=f"spec.driver={names.DRIVER},spec.nodeName={node}")


def _no_report(_pool: str, _written: Written) -> None:
    """Nobody wants to know."""


@dataclass
class _Pool:
    """What is known of one pool.

    Attributes:
        wanted: the slices that should be there.
        stored: those that are, by name.
        adopted: see `reconcile`.
        refused: devices that the server does not take, as they were when it refused them.
    """

    wanted: tuple[ResourceSlice, ...] = ()
    stored: dict[str, StoredSlice] = field(default_factory=dict)
    adopted: dict[bytes, bytes] = field(default_factory=dict)
    refused: dict[str, Device] = field(default_factory=dict)

    def legal(self) -> list[ResourceSlice]:
        """What is wanted without the devices that the server refused, as long as they are as they were."""
        if not self.refused:
            return list(self.wanted)
        found = []
        for one in self.wanted:
            devices = tuple(device for device in one.spec.devices if self.refused.get(device.name) != device)
            if devices or one.spec.shared_counters:
                found.append(msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, devices=devices)))
        return found

    @property
    def left_out(self) -> list[str]:
        """The devices that are left out because the server refused them as they are."""
        if not self.refused:
            return []
        devices = (device for one in self.wanted for device in one.spec.devices)
        return [device.name for device in devices if self.refused.get(device.name) == device]

    @property
    def versions(self) -> dict[str, str]:
        """The stored slices' resourceVersions, by name."""
        return {name: one.metadata.resource_version for name, one in self.stored.items()}

    def learn(self, written: Written) -> None:
        """Remember what the server made of a write."""
        if len(self.adopted) > MAX_ADOPTED:
            self.adopted.clear()
        self.adopted |= written.adopted
        refused = {refusal.device for refusal in written.refusals}
        self.refused |= {
            device.name: device for one in self.wanted for device in one.spec.devices if device.name in refused
        }


class _Unseen(msgspec.Struct, frozen=True):
    """A pool's writes that the store has not seen yet, and what it will have of the pool when it has.

    Attributes:
        version: see `Written`.
        deleted: see `Written`.
        versions: the resourceVersions of the pool's slices, by name.
    """

    version: str
    deleted: tuple[str, ...]
    versions: dict[str, str]


@dataclass
class Publisher:
    """Publishes one node's slices.

    Attributes:
        client: where to.
        store: the node's slices of this driver, kept by a reflector.
        owner: the node that they go with.
        report: told of each pool's writes, and what became of them.
        settled: set while the server has what is wanted, as far as is known.
    """

    client: Client
    store: Store[StoredSlice]
    owner: OwnerReference
    report: Callable[[str, Written], None] = _no_report
    backoff: Backoff = field(default_factory=Backoff)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    _pools: dict[str, _Pool] = field(default_factory=dict)
    _wanting: bool = False
    _open: dict[str, None] = field(default_factory=dict)
    _busy: set[str] = field(default_factory=set)
    _unseen: dict[str, _Unseen] = field(default_factory=dict)
    _later: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    _turn: asyncio.Event = field(default_factory=asyncio.Event)

    def want(self, slices: Slices) -> None:
        """From now on these are to be there, and no others; names, generations and sizes do not matter."""
        by_pool: dict[str, list[ResourceSlice]] = {pool: [] for pool in self._pools}
        for one in slices:
            by_pool.setdefault(one.spec.pool.name, []).append(one)
        self.want_pools(by_pool)

    def want_pools(self, pools: Mapping[str, Slices]) -> None:
        """From now on these pools are to be so; one without slices is to go. The others stay as they are wanted."""
        self._wanting = True
        for pool, slices in pools.items():
            known = self._pools.setdefault(pool, _Pool())
            known.wanted = tuple(slices)
            self._begin(pool)
        self._check()

    @property
    def refused(self) -> list[tuple[str, str]]:
        """The devices that the server refuses now, by pool and name."""
        return [(name, device) for name, pool in list(self._pools.items()) for device in pool.left_out]

    async def run(self) -> None:
        """Keep the slices as they should be, until cancelled. Nothing is written before something was wanted."""
        metrics.LEFT_OUT.labels("refused").set_function(self._left_out)
        await self.store.wait_synced()
        with self.store.following(self._changed):
            for name, stored in self.store.objects.items():
                self._changed(Change(name, None, stored))
            self._check()
            async with asyncio.TaskGroup() as workers:
                workers.create_task(self._see())
                for _ in range(AT_ONCE):
                    workers.create_task(self._work())

    async def _work(self) -> None:
        """Take one pool after the other."""
        while True:
            pool = next((name for name in self._open if name not in self._busy), None) if self._wanting else None
            if pool is None:
                await self._turn.wait()
                continue
            del self._open[pool]
            await self._try(pool)

    async def _try(self, name: str) -> None:
        """Compare a pool and write what differs; until the store has seen that, it is not looked at again."""
        pool = self._pools.setdefault(name, _Pool())
        self._busy.add(name)
        before = pool.versions
        try:
            with counted(metrics.PUBLISHER_ROUNDS):
                written = await self._mend(name, pool)
        except ApiError as problem:
            written = None
            log.warning("%s", problem, extra=fields(pool=name))
            if isinstance(problem, TemporaryError):
                await asyncio.sleep(self.backoff.next(problem.retry_after))
                self._begin(name)
            else:
                # The same again would be refused again, but rights and rules may change.
                loop = asyncio.get_running_loop()
                self._later[name] = loop.call_later(REFUSED_SECONDS, self._begin, name)
        if written is None:
            self._end(name, before)
            await asyncio.sleep(0)  # after a restart there may be thousands of these, and others have work to do too
            return
        after = {one: version for one, version in before.items() if one not in written.deleted} | written.versions
        self._unseen[name] = _Unseen(written.version, written.deleted, after)
        self._let_go()

    async def _mend(self, name: str, pool: _Pool) -> Written | None:
        """Compare a pool once and write what differs; None if nothing does.

        Raises:
            ApiError: the server is away, or refuses the pool as a whole.
        """
        stored = [one.read() for one in pool.stored.values()]
        writes = reconcile(pool.legal(), stored, self.owner, adopted=pool.adopted).get(name)
        if writes is None:
            return None
        written = await write(self.client, writes)
        self.backoff.reset()
        metrics.OVERTAKEN.inc(written.overtaken)
        for each in written.dropped:
            metrics.DROPPED.labels(each.gate).inc()
        pool.learn(written)
        self.report(name, written)
        if written.overtaken:
            await asyncio.sleep(self.backoff.next())
        if written.overtaken or written.refusals:
            self._begin(name)
        return written

    async def _see(self) -> None:
        """Follow what the store sees."""
        while True:
            await self.store.until(lambda: any(self._has_seen(one) for one in self._unseen.values()))
            self._let_go()

    def _let_go(self) -> None:
        """End the rounds of the pools whose writes the store has seen."""
        for name, unseen in list(self._unseen.items()):
            if self._has_seen(unseen):
                del self._unseen[name]
                self._end(name, unseen.versions)

    def _end(self, name: str, versions: Mapping[str, str]) -> None:
        """A pool's round is over; another one follows if the store has other slices than those that came of it."""
        pool = self._pools[name]
        self._busy.discard(name)
        if pool.versions != versions:
            self._begin(name)
        elif not pool.wanted and not pool.stored and name not in self._open:
            del self._pools[name]
        self._check()

    def _left_out(self) -> int:
        """How many devices the server refuses now; counted when somebody asks, in any thread."""
        return len(self.refused)

    def _begin(self, pool: str) -> None:
        """Have a pool looked at."""
        timer = self._later.pop(pool, None)
        if timer is not None:
            timer.cancel()
        self._open[pool] = None
        self._check()

    def _check(self) -> None:
        """Wake the workers, and say whether all is as it should be."""
        if self._open or self._busy or self._later or not self._wanting or not self.store.synced:
            self.settled.clear()
        else:
            self.settled.set()
        if self._open:
            turn, self._turn = self._turn, asyncio.Event()
            turn.set()

    def _changed(self, change: Change[StoredSlice]) -> None:
        for found in filter(None, (change.old, change.new)):
            pool = _pool_of.decode(found.spec).pool.name
            known = self._pools.setdefault(pool, _Pool())
            if found is change.new:
                known.stored[change.key] = found
            else:
                known.stored.pop(change.key, None)
            if pool not in self._busy:
                self._begin(pool)

    def _has_seen(self, unseen: _Unseen) -> bool:
        gone = not any(name in self.store.objects for name in unseen.deleted)
        return gone and (not unseen.version or self.store.reached(unseen.version))
