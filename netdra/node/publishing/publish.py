"""Carry out what `netdra.node.publishing.reconcile` decided for a pool, and learn what the server made of it.

Called by the node daemon's publisher. A write that somebody else's change overtook ends the pool's round: the next one
begins from what is there then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from netdra.kube.client import Client
from netdra.kube.errors import ConflictError, NotFoundError, RefusedError, Status
from netdra.kube.features import Dropped, dropped
from netdra.kube.resources import RESOURCE_SLICES
from netdra.kube.store import order
from netdra.model.resource import ResourceSlice
from netdra.node.metrics import SLICE_WRITES
from netdra.node.publishing.reconcile import Writes, content, digest

_DEVICE = re.compile(r"spec\.devices\[(\d+)\]")


class Refusal(msgspec.Struct, frozen=True):
    """A device that the server does not take, with its reason."""

    device: str
    reason: str


class Written(msgspec.Struct, frozen=True):
    """What became of a pool's writes.

    Attributes:
        versions: the resourceVersions of what was written, by the slices' names.
        deleted: the names of the slices that are gone.
        adopted: digest of what was sent -> digest of what the server kept of it, where they differ.
        dropped: the fields that it did not keep.
        refusals: the devices that it refused; the pool is not whole until they are left out.
        overtaken: whether somebody else's change came first, so that the pool has to be looked at anew.
    """

    versions: dict[str, str] = {}
    deleted: tuple[str, ...] = ()
    adopted: dict[bytes, bytes] = {}
    dropped: tuple[Dropped, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    overtaken: bool = False

    @property
    def version(self) -> str:
        """The highest resourceVersion written, "" if none: a store that reached it has seen all of them."""
        return max(self.versions.values(), key=order, default="")


async def write(client: Client, writes: Writes) -> Written:
    """Write a pool: deletes, then updates, then creates.

    Raises:
        ApiError: the server is away, or refuses for a reason that is no single device's.
    """
    kept: list[tuple[ResourceSlice, ResourceSlice]] = []
    deleted: list[str] = []
    for stale in writes.deletes:
        try:
            await client.delete(RESOURCE_SLICES, stale)
        except NotFoundError:
            pass
        except ConflictError:
            return _learned(kept, deleted, overtaken=True)
        deleted.append(stale.metadata.name)
        SLICE_WRITES.labels("delete").inc()
    for sent in (*writes.updates, *writes.creates):
        send = client.replace if sent.metadata.uid else client.create
        try:
            kept.append((sent, await send(RESOURCE_SLICES, sent)))
            SLICE_WRITES.labels("update" if sent.metadata.uid else "create").inc()
        except ConflictError:
            return _learned(kept, deleted, overtaken=True)
        except NotFoundError:
            if not sent.metadata.uid:
                raise
            return _learned(kept, deleted, overtaken=True)
        except RefusedError as problem:
            refusals = refused_devices(problem.status, sent)
            if not refusals:
                raise
            return _learned(kept, deleted, refusals=refusals)
    return _learned(kept, deleted)


def refused_devices(status: Status, sent: ResourceSlice) -> tuple[Refusal, ...]:
    """The devices that a refusal speaks of; none if it is about the slice as a whole."""
    causes = status.details.causes if status.details else None
    reasons: dict[int, str] = {}
    for cause in causes or ():
        found = _DEVICE.match(cause.field)
        if found is None:
            return ()
        reasons.setdefault(int(found[1]), f"{cause.field}: {cause.message}")
    return tuple(
        Refusal(sent.spec.devices[index].name, reason)
        for index, reason in sorted(reasons.items())
        if index < len(sent.spec.devices)
    )


def _learned(
    kept: Sequence[tuple[ResourceSlice, ResourceSlice]],
    deleted: Sequence[str],
    *,
    refusals: tuple[Refusal, ...] = (),
    overtaken: bool = False,
) -> Written:
    adopted: dict[bytes, bytes] = {}
    missing: list[Dropped] = []
    for sent, stored in kept:
        if sent.spec == stored.spec:
            continue
        digests = digest(sent.spec), digest(stored.spec)
        if digests[0] != digests[1]:
            adopted[digests[0]] = digests[1]
            missing += dropped(content(sent.spec), content(stored.spec))
    return Written(
        versions={stored.metadata.name: stored.metadata.resource_version for _, stored in kept},
        deleted=tuple(deleted),
        adopted=adopted,
        dropped=tuple(dict.fromkeys(missing)),
        refusals=refusals,
        overtaken=overtaken,
    )
