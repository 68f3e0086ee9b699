"""The ResourceSlices to delete, update and create so that a node's pools become as they should be.

Called by `netdra.node.publishing.publisher` with the desired slices and those of the API server. Pure.
The rules are those of k8s.io/dynamic-resource-allocation/resourceslice: a pool counts only when all slices of its
highest generation are there, so a change of more than one slice is a new generation of all of them, and a reader
in the middle of it sees an incomplete pool, never a mixed one. A generation that was begun and not ended, because the
API server had too much to do, is completed by the slices that it lacks. Slices are compared by their meaning: the API
server writes quantities in its own way and stamps taints with the time, and neither is a difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from netdra.model import names, quantity
from netdra.model.meta import ObjectMeta, OwnerReference
from netdra.model.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    Device,
    DeviceCapacity,
    DeviceTaint,
    QuantityText,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)

_NO_POOL = ResourcePool(name="", generation=0, resource_slice_count=0)

FORMER_REPORT = f"{names.GROUP}/policies"
"""An annotation in which slices had what is in a NodeNetwork now; it is taken off."""

MAX_LIKENESS = 48
"""How many characters of a slice's name are of its pool's, so that a person sees whose it is."""

Adopted = Mapping[bytes, bytes]
"""Digest of a sent content -> digest of the content that the server stored for it, which is then to stay."""

Slices = Sequence[ResourceSlice]
_TaintId = tuple[str, str, str, str]


def content(spec: ResourceSliceSpec) -> ResourceSliceSpec:
    """A slice's content in one way of writing it, without its pool's generation and size."""
    return msgspec.structs.replace(
        spec,
        pool=msgspec.structs.replace(_NO_POOL, name=spec.pool.name),
        devices=tuple(_device(device) for device in spec.devices),
        shared_counters=tuple(
            msgspec.structs.replace(counters, counters=_counters(counters.counters))
            for counters in spec.shared_counters
        ),
    )


def digest(spec: ResourceSliceSpec) -> bytes:
    """A short stand-in for a content: equal contents have equal ones."""
    return hashlib.sha256(msgspec.json.encode(content(spec), order="deterministic")).digest()[:16]


def _device(device: Device) -> Device:
    """The device in one way of writing it; most devices have nothing to rewrite, and are returned as they are."""
    rewritten: dict[str, object] = {}
    if device.capacity:
        rewritten["capacity"] = {name: _capacity(capacity) for name, capacity in device.capacity.items()}
    if device.consumes_counters:
        rewritten["consumes_counters"] = tuple(
            msgspec.structs.replace(consumption, counters=_counters(consumption.counters))
            for consumption in device.consumes_counters
        )
    if device.taints:
        rewritten["taints"] = tuple(msgspec.structs.replace(taint, time_added=None) for taint in device.taints)
    return msgspec.structs.replace(device, **rewritten) if rewritten else device


def _capacity(capacity: DeviceCapacity) -> DeviceCapacity:
    policy = capacity.request_policy
    return DeviceCapacity(value=_text(capacity.value), request_policy=None if policy is None else _policy(policy))


def _policy(policy: CapacityRequestPolicy) -> CapacityRequestPolicy:
    span = policy.valid_range
    return CapacityRequestPolicy(
        default=_text_or_none(policy.default),
        valid_values=tuple(_text(value) for value in policy.valid_values),
        valid_range=None
        if span is None
        else CapacityRequestPolicyRange(
            min=_text(span.min), max=_text_or_none(span.max), step=_text_or_none(span.step)
        ),
    )


def _counters(counters: Mapping[str, Counter]) -> dict[str, Counter]:
    return {name: Counter(value=_text(counter.value)) for name, counter in counters.items()}


def _text(text: QuantityText) -> str:
    return quantity.render(quantity.parse(text))


def _text_or_none(text: QuantityText | None) -> str | None:
    return None if text is None else _text(text)


class Writes(msgspec.Struct, frozen=True):
    """A pool's writes, in this order: deletes, updates, creates. The objects have what their preconditions need."""

    deletes: tuple[ResourceSlice, ...] = ()
    updates: tuple[ResourceSlice, ...] = ()
    creates: tuple[ResourceSlice, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any write."""
        return bool(self.deletes or self.updates or self.creates)


class _Pair(msgspec.Struct, frozen=True):
    """A wanted slice, the stored slice that becomes it (None: it is created), and whether both are the same already."""

    wanted: ResourceSlice
    stored: ResourceSlice | None = None
    same: bool = False

    @property
    def littered(self) -> bool:
        """Whether the stored slice has an annotation of former versions that is to be taken off."""
        return self.stored is not None and FORMER_REPORT in self.stored.metadata.annotations

    def is_of(self, generation: int, count: int) -> bool:
        """Whether the stored slice is one of so many of a generation."""
        pool = self.stored.spec.pool if self.stored is not None else _NO_POOL
        return (pool.generation, pool.resource_slice_count) == (generation, count)


class _New(msgspec.Struct, frozen=True):
    """The common parts of a generation's slices: its number and size, owner, times of taints, and the word in names."""

    generation: int
    count: int
    owner: OwnerReference
    stamps: Mapping[_TaintId, str]
    tag: str


def reconcile(
    wanted: Slices, stored: Slices, owner: OwnerReference, *, tag: str, adopted: Adopted | None = None
) -> dict[str, Writes]:
    """The writes of each pool that is not as it should be; none when all are.

    Args:
        wanted: the slices of all pools, a pool's in their order; names, generations and sizes do not matter.
        stored: the node's slices of this driver as the API server has them; pools that are not wanted are deleted.
        owner: the node, with which the slices are deleted.
        tag: a word of which new slices' names are made, besides their contents. With the same word, a slice whose
            creation got no answer has the same name when it is created again, so that the server has it once.
        adopted: the contents of which the server stores another content.
    """
    wanted_by_pool, stored_by_pool = _by_pool(wanted), _by_pool(stored)
    writes = {
        pool: _reconcile_pool(wanted_by_pool.get(pool, ()), stored_by_pool.get(pool, ()), owner, adopted or {}, tag)
        for pool in dict.fromkeys((*wanted_by_pool, *stored_by_pool))
    }
    return {pool: write for pool, write in writes.items() if write}


def owner_of(node: str, uid: str) -> OwnerReference:
    """The reference by which slices are deleted with their node."""
    return OwnerReference(api_version="v1", kind="Node", name=node, uid=uid, controller=True)


def _by_pool(slices: Slices) -> dict[str, list[ResourceSlice]]:
    pools: dict[str, list[ResourceSlice]] = {}
    for resource_slice in slices:
        pools.setdefault(resource_slice.spec.pool.name, []).append(resource_slice)
    return pools


def _reconcile_pool(wanted: Slices, stored: Slices, owner: OwnerReference, adopted: Adopted, tag: str) -> Writes:
    # A slice that is being deleted already can neither be used nor deleted again; its generation still counts.
    usable = [present for present in stored if present.metadata.deletion_timestamp is None]
    generation = max((_generation(present) for present in stored), default=0)
    pairs = _paired(wanted, usable, owner, adopted)
    changed = [index for index, pair in enumerate(pairs) if not pair.same]
    lacking = [index for index, pair in enumerate(pairs) if not pair.is_of(generation, len(wanted))]
    if _is_begun(pairs, stored, generation):
        changed = lacking
    elif len(changed) > 1 or lacking:
        generation += 1
        changed = [*range(len(pairs))]
    else:
        # One write takes readers from the old content to the new one, with nothing in between to be kept apart.
        changed += [index for index, pair in enumerate(pairs) if pair.same and pair.littered]
    used = {pair.stored.metadata.uid for pair in pairs if pair.stored is not None}
    stamps = _taint_times(usable)
    new = _New(generation, len(wanted), owner, stamps, tag)
    written = [_written(pairs[index], index, new) for index in changed]
    # The oldest first: an old generation must not become the highest one in between.
    stale = sorted((present for present in usable if present.metadata.uid not in used), key=_generation)
    return Writes(
        deletes=tuple(stale),
        updates=tuple(sent for sent in written if sent.metadata.uid),
        creates=tuple(sent for sent in written if not sent.metadata.uid),
    )


def _is_begun(pairs: Sequence[_Pair], stored: Slices, generation: int) -> bool:
    """Whether the highest generation is part of the desired one: no reader uses it; the rest can follow."""
    current = {
        pair.stored.metadata.uid for pair in pairs if pair.stored is not None and pair.is_of(generation, len(pairs))
    }
    highest = [present for present in stored if _generation(present) == generation]
    whole = all(pair.same for pair in pairs if pair.stored is not None and pair.stored.metadata.uid in current)
    return whole and 0 < len(current) < len(pairs) and len(current) == len(highest)


def _paired(wanted: Slices, usable: Slices, owner: OwnerReference, adopted: Adopted) -> list[_Pair]:
    """Each wanted slice with the stored one of the same content, else with one that has some of its members."""
    free = {stored.metadata.uid: stored for stored in sorted(usable, key=_generation, reverse=True)}
    contents = {uid: digest(stored.spec) for uid, stored in free.items()}
    pairs: dict[int, _Pair] = {}
    for index, resource_slice in enumerate(wanted):
        sent = digest(resource_slice.spec)
        expected = {sent, adopted.get(sent, sent)}
        twin = next((free[uid] for uid in free if contents[uid] in expected), None)
        if twin is not None:
            del free[twin.metadata.uid]
            pairs[index] = _Pair(resource_slice, twin, same=twin.metadata.owner_references == (owner,))
    for index, resource_slice in enumerate(wanted):
        if index not in pairs:
            members = _members(resource_slice)
            shared = {uid: len(members & _members(stored)) for uid, stored in free.items()}
            best = max(shared, key=lambda uid: shared[uid], default=None)
            pairs[index] = _Pair(resource_slice, free.pop(best) if best is not None and shared[best] else None)
    return [pairs[index] for index in range(len(wanted))]


def _generation(resource_slice: ResourceSlice) -> int:
    return resource_slice.spec.pool.generation


def _members(resource_slice: ResourceSlice) -> set[tuple[str, str]]:
    """The names of a slice's devices and counter sets."""
    devices = {("device", device.name) for device in resource_slice.spec.devices}
    return devices | {("counters", counters.name) for counters in resource_slice.spec.shared_counters}


def _written(pair: _Pair, index: int, new: _New) -> ResourceSlice:
    """The object to send: the wanted content in the stored object's place, or as a new object."""
    pool = ResourcePool(name=pair.wanted.spec.pool.name, generation=new.generation, resource_slice_count=new.count)
    devices = tuple(_stamped(device, new.stamps) for device in pair.wanted.spec.devices)
    if pair.stored is not None:
        others = {name: text for name, text in pair.stored.metadata.annotations.items() if name != FORMER_REPORT}
        metadata = msgspec.structs.replace(pair.stored.metadata, owner_references=(new.owner,), annotations=others)
    else:
        metadata = ObjectMeta(name=_name(pair.wanted.spec, index, new), owner_references=(new.owner,))
    spec = msgspec.structs.replace(pair.wanted.spec, pool=pool, devices=devices)
    return ResourceSlice(metadata=metadata, spec=spec)


def _name(spec: ResourceSliceSpec, index: int, new: _New) -> str:
    """A new slice's name. The scheduler inspects slices in the order of their names, so the place comes first."""
    likeness = names.subdomain(spec.pool.name.replace("/", "-"), limit=MAX_LIKENESS)
    end = hashlib.sha256(f"{new.tag} {new.generation} {new.count} ".encode() + digest(spec)).hexdigest()[:8]
    return f"{index:05x}-{likeness}-{end}"


def _taint_times(stored: Iterable[ResourceSlice]) -> dict[_TaintId, str]:
    """When the server saw each taint first: an update without that time would begin it again."""
    return {
        _taint_id(device.name, taint): taint.time_added
        for resource_slice in stored
        for device in resource_slice.spec.devices
        for taint in device.taints
        if taint.time_added is not None
    }


def _stamped(device: Device, stamps: Mapping[_TaintId, str]) -> Device:
    if not device.taints:
        return device
    taints = tuple(
        msgspec.structs.replace(taint, time_added=taint.time_added or stamps.get(_taint_id(device.name, taint)))
        for taint in device.taints
    )
    return msgspec.structs.replace(device, taints=taints)


def _taint_id(device: str, taint: DeviceTaint) -> _TaintId:
    return device, taint.key, taint.value, taint.effect
