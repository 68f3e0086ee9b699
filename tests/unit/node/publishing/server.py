"""An API server that takes writes of slices one by one, as the real one does, and a reader's view of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import msgspec

from netdra.model import names
from netdra.model.meta import ObjectMeta, OwnerReference
from netdra.model.resource import (
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from netdra.node.publishing.reconcile import Writes, content, digest, owner_of, reconcile

NODE = owner_of("worker-1", "uid-1")
TAG = "tag"
Keeps = Callable[[ResourceSliceSpec], ResourceSliceSpec]


def device(name: str, value: int = 0, *, taint: str = "") -> Device:
    return Device(
        name=name,
        attributes={"value": DeviceAttribute(int_=value)},
        capacity={"slots": DeviceCapacity(value=value + 1)},
        taints=(DeviceTaint(key=taint, effect="NoSchedule"),) if taint else (),
    )


def wanted(*parts: Iterable[Device] | CounterSet, pool: str = "p") -> list[ResourceSlice]:
    """A pool's slices as `netdra.slices` makes them."""
    specs = [
        ResourceSliceSpec(
            driver="d",
            pool=ResourcePool(name=pool, generation=1, resource_slice_count=len(parts)),
            node_name="worker-1",
            devices=() if isinstance(part, CounterSet) else tuple(part),
            shared_counters=(part,) if isinstance(part, CounterSet) else (),
        )
        for part in parts
    ]
    return [ResourceSlice(metadata=ObjectMeta(name=f"{pool}-{index}"), spec=spec) for index, spec in enumerate(specs)]


class Server:
    """The API server's handling of slices: names, uids, versions, preconditions, its own way to write."""

    def __init__(self, keeps: Keeps = lambda spec: spec) -> None:
        self.slices: dict[str, ResourceSlice] = {}
        self.writes = 0
        self._keeps = keeps
        self._numbers = itertools.count(1)

    def stored(self) -> list[ResourceSlice]:
        return [self.slices[name] for name in sorted(self.slices)]

    def apply(self, writes: Writes, most: int = 10**6) -> dict[bytes, bytes]:
        """Do it, or its first so many writes, and return what of it was kept otherwise."""
        adopted: dict[bytes, bytes] = {}
        for verb, sent in itertools.islice(steps(writes), most):
            self.writes += 1
            stored = verb(self, sent)
            if stored is not None and digest(stored.spec) != digest(sent.spec):
                adopted[digest(sent.spec)] = digest(stored.spec)
        return adopted

    def delete(self, sent: ResourceSlice) -> None:
        assert self._known(sent) == sent
        del self.slices[sent.metadata.name]

    def update(self, sent: ResourceSlice) -> ResourceSlice:
        old = self._known(sent)
        assert old.metadata.resource_version == sent.metadata.resource_version
        assert (old.spec.driver, old.spec.node_name) == (sent.spec.driver, sent.spec.node_name)
        assert old.spec.pool.name == sent.spec.pool.name
        return self._store(sent, sent.metadata.name)

    def create(self, sent: ResourceSlice) -> ResourceSlice:
        assert names.is_subdomain(sent.metadata.name)
        assert sent.metadata.name not in self.slices
        named = msgspec.structs.replace(sent.metadata, uid=f"u{next(self._numbers)}")
        return self._store(msgspec.structs.replace(sent, metadata=named), named.name)

    def _known(self, sent: ResourceSlice) -> ResourceSlice:
        old = self.slices[sent.metadata.name]
        assert old.metadata.uid == sent.metadata.uid
        return old

    def _store(self, sent: ResourceSlice, name: str) -> ResourceSlice:
        version = str(next(self._numbers))
        metadata = msgspec.structs.replace(sent.metadata, resource_version=version)
        spec = self._keeps(sent.spec)
        stamped = tuple(
            msgspec.structs.replace(
                found,
                capacity={key: DeviceCapacity(value=str(capacity.value)) for key, capacity in found.capacity.items()},
                taints=tuple(
                    msgspec.structs.replace(taint, time_added=taint.time_added or f"t{version}")
                    for taint in found.taints
                ),
            )
            for found in spec.devices
        )
        self.slices[name] = ResourceSlice(metadata=metadata, spec=msgspec.structs.replace(spec, devices=stamped))
        return self.slices[name]


Verb = Callable[[Server, ResourceSlice], ResourceSlice | None]


def steps(writes: Writes) -> list[tuple[Verb, ResourceSlice]]:
    return [
        *((Server.delete, one) for one in writes.deletes),
        *((Server.update, one) for one in writes.updates),
        *((Server.create, one) for one in writes.creates),
    ]


def seen(slices: Iterable[ResourceSlice], pool: str = "p") -> list[ResourceSliceSpec] | None:
    """The pool as the scheduler takes it: the slices of the highest generation, None while they are not all there."""
    ours = [one for one in slices if one.spec.pool.name == pool]
    highest = max((one.spec.pool.generation for one in ours), default=0)
    current = [one for one in ours if one.spec.pool.generation == highest]
    if any(one.spec.pool.resource_slice_count != len(current) for one in current):
        return None
    return sorted((content(one.spec) for one in current), key=lambda spec: msgspec.json.encode(spec))


def as_seen(slices: list[ResourceSlice]) -> list[ResourceSliceSpec]:
    return sorted((content(one.spec) for one in slices), key=lambda spec: msgspec.json.encode(spec))


def settle(server: Server, slices: list[ResourceSlice], owner: OwnerReference = NODE) -> None:
    for writes in reconcile(slices, server.stored(), owner, tag=TAG).values():
        server.apply(writes)


COUNTERS = CounterSet(name="eth0-counters", counters={"slots": Counter(value="9")})


def taint_times(server: Server) -> dict[str, str | None]:
    return {
        found.name: taint.time_added for one in server.stored() for found in one.spec.devices for taint in found.taints
    }


def without_taints(spec: ResourceSliceSpec) -> ResourceSliceSpec:
    return msgspec.structs.replace(
        spec, devices=tuple(msgspec.structs.replace(found, taints=()) for found in spec.devices)
    )
