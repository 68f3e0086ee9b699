"""Keeps a node's ResourceSlices as they should be: when what is wanted changes, and when somebody else changes them.

Run by the node daemon. One round compares, writes what differs, and waits until the reflector has seen those writes, so
that the next round begins from the truth and makes nothing twice. The kubelet wipes a driver's slices when it
restarts; that is a change like any other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
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
from netdra.node.publishing.publish import Refusal, Written, write
from netdra.node.publishing.reconcile import reconcile
from netdra.ops.metrics import counted

log = logging.getLogger(__name__)

REFUSED_SECONDS = 30.0


class StoredSlice(msgspec.Struct, frozen=True):
    """A slice as the store keeps it: its content stays text, which takes a seventh of the memory."""

    metadata: ObjectMeta
    spec: msgspec.Raw


STORED_SLICES = Resource(API_VERSION, "resourceslices", StoredSlice)

_spec = msgspec.json.Decoder(ResourceSliceSpec)


def of_node(node: str) -> Selection:
    """Which slices are this driver's on a node."""
    return Selection(field_selector=f"spec.driver={names.DRIVER},spec.nodeName={node}")


def _no_report(_pool: str, _written: Written) -> None:
    """Nobody wants to know."""


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
    _wanted: Sequence[ResourceSlice] | None = None
    _adopted: dict[bytes, bytes] = field(default_factory=dict)
    _refused: dict[tuple[str, str], Device] = field(default_factory=dict)
    _work: asyncio.Event = field(default_factory=asyncio.Event)

    def want(self, slices: Sequence[ResourceSlice]) -> None:
        """From now on these are to be there, and no others; names, generations and sizes do not matter."""
        self._wanted = slices
        self._begin()

    async def run(self) -> None:
        """Keep the slices as they should be, until cancelled. Nothing is written before something was wanted."""
        await self.store.wait_synced()
        with self.store.following(self._changed):
            while True:
                await self._work.wait()
                self._work.clear()
                if self._wanted is not None:
                    await self._try(self._wanted)

    async def _try(self, wanted: Sequence[ResourceSlice]) -> None:
        try:
            with counted(metrics.PUBLISHER_ROUNDS):
                await self._round(wanted)
        except ApiError as problem:
            log.warning("%s", problem)
            if isinstance(problem, TemporaryError):
                await asyncio.sleep(self.backoff.next(problem.retry_after))
            else:
                # The same again would be refused again, but rights and rules may change.
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._work.wait(), REFUSED_SECONDS)
            self._begin()

    async def _round(self, wanted: Sequence[ResourceSlice]) -> None:
        """Compare once and write what differs.

        Raises:
            ApiError: the server is away, or refuses a pool as a whole; other pools come before it or after.
        """
        writes = reconcile(list(self._legal(wanted)), self._stored(), self.owner, adopted=self._adopted)
        trouble: ApiError | None = None
        for pool, found in writes.items():
            try:
                written = await write(self.client, found)
            except ApiError as problem:
                trouble = trouble or problem
                continue
            self._adopted |= written.adopted
            metrics.OVERTAKEN.inc(written.overtaken)
            for each in written.dropped:
                metrics.DROPPED.labels(each.gate).inc()
            self._refuse(wanted, pool, written.refusals)
            self.report(pool, written)
            if written.overtaken:
                await asyncio.sleep(self.backoff.next())
            if written.overtaken or written.refusals:
                self._begin()
            await self.store.until(lambda seen=written: self._has_seen(seen))  # type: ignore[misc]
        if trouble is not None:
            raise trouble
        self.backoff.reset()
        if not writes and not self._work.is_set():
            self.settled.set()

    def _begin(self) -> None:
        self.settled.clear()
        self._work.set()

    def _changed(self, _change: Change[StoredSlice]) -> None:
        self._begin()

    def _stored(self) -> list[ResourceSlice]:
        return [
            ResourceSlice(metadata=stored.metadata, spec=_spec.decode(stored.spec))
            for stored in self.store.objects.values()
        ]

    def _has_seen(self, written: Written) -> bool:
        gone = not any(name in self.store.objects for name in written.deleted)
        return gone and (not written.version or self.store.reached(written.version))

    def _legal(self, wanted: Iterable[ResourceSlice]) -> Iterable[ResourceSlice]:
        """What is wanted without the devices that the server refused, as long as they are as they were."""
        if not self._refused:
            yield from wanted
            return
        for one in wanted:
            pool = one.spec.pool.name
            devices = tuple(device for device in one.spec.devices if self._refused.get((pool, device.name)) != device)
            if devices or one.spec.shared_counters:
                yield msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, devices=devices))

    def _refuse(self, wanted: Iterable[ResourceSlice], pool: str, refusals: Sequence[Refusal]) -> None:
        refused = {refusal.device for refusal in refusals}
        for one in wanted:
            if one.spec.pool.name == pool:
                self._refused |= {(pool, device.name): device for device in one.spec.devices if device.name in refused}
