"""ResourceSlices to the pools that a node can draw from, judged and ordered as the scheduler does.

Called by `allocator`; hands devices in their first-fit order to `search`. Follows k8s.io/dynamic-resource-allocation
v0.37, structured/internal/incubating/pools_incubating.go: only the highest generation counts, a pool that lacks slices
or contradicts itself lends nothing, pools go by driver and name (those with binding conditions last), slices by name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Literal

import msgspec

from netdra.model import quantity
from netdra.model.errors import InvalidInputError
from netdra.model.resource import CounterSet, Device, DeviceTaint, ResourceSlice, ResourceSliceSpec
from netdra.model.scheduler_version import SchedulerVersion
from netdra.slices import capacity
from netdra.slices.nodes import SchedulerNode, serves

PoolKey = tuple[str, str]
DeviceKey = tuple[str, str, str]
CounterKey = tuple[str, str]


class Candidate(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A published device with the values that the search needs often, computed once.

    Attributes:
        key: driver, pool and device name.
        consumes: what it draws from the pool's counters while it is in use at all.
        capacity: its capacities by the names by which the version of the scheduler knows them.
        taints: those of its taints that keep claims off.
    """

    key: DeviceKey
    device: Device
    slice: ResourceSliceSpec
    consumes: Mapping[CounterKey, Decimal]
    capacity: Mapping[str, capacity.Capacity]
    taints: tuple[DeviceTaint, ...]

    @property
    def pool(self) -> PoolKey:
        """The key of its pool."""
        return self.key[:2]

    @property
    def shared(self) -> bool:
        """Whether several claims may have it at once."""
        return self.device.allow_multiple_allocations


class Pool(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One pool as a node sees it.

    Attributes:
        key: driver and pool name.
        state: nothing is allocated from a pool that is `incomplete` or `invalid`.
        problem: why it is not usable.
        passed_over: the devices that cannot be allocated, and why, or "".
        candidates: the devices that this node may have, in the order in which they are tried.
        counters: counter set and counter name -> amount.
        consumers: every device of the pool that draws counters, those of other nodes included; a name that is there
            for two nodes draws twice, as the scheduler counts.
        conditional: whether a device of it has binding conditions.
    """

    key: PoolKey
    state: Literal["usable", "incomplete", "invalid"] = "usable"
    problem: str = ""
    passed_over: str = ""
    candidates: tuple[Candidate, ...] = ()
    counters: Mapping[CounterKey, Decimal] = {}
    consumers: tuple[Candidate, ...] = ()
    conditional: bool = False


class SliceIndex:
    """All slices of the cluster, found by node and by pool; devices are read once, however many nodes share them."""

    def __init__(self, slices: Iterable[ResourceSlice], version: SchedulerVersion) -> None:
        self._version = version
        self._of_node: dict[str, list[ResourceSlice]] = defaultdict(list)
        self._of_none: list[ResourceSlice] = []
        self._of_pool: dict[PoolKey, list[ResourceSlice]] = defaultdict(list)
        self._candidates: dict[int, tuple[Candidate, ...]] = {}
        for published in slices:
            self._of_pool[_pool_key(published)].append(published)
            if published.spec.node_name:
                self._of_node[published.spec.node_name].append(published)
            else:
                self._of_none.append(published)

    @property
    def node_names(self) -> list[str]:
        """The nodes that slices name, in the order of their names."""
        return sorted(self._of_node)

    def kind(self, node: str) -> tuple[str, ...]:
        """The names of a node's devices. Nodes with the same names have, as a rule, the same devices."""
        return tuple(
            device.name
            for published in (*self._of_node.get(node, ()), *self._of_none)
            for device in published.spec.devices
        )

    def own_pools(self, node: SchedulerNode) -> dict[PoolKey, list[ResourceSlice]] | None:
        """The pools of the node's own slices, in order, with their slices, in order; None if not all are plain.

        They are plain if each is complete, of one generation, and has nothing for any other node.
        """
        pools: dict[PoolKey, list[ResourceSlice]] = {}
        for published in self._of_node.get(node.name, ()):
            pools.setdefault(_pool_key(published), []).append(published)
        for key, slices in pools.items():
            head = slices[0].spec.pool
            if len(slices) != len(self._of_pool[key]) or len(slices) != head.resource_slice_count:
                return None
            if any(published.spec.pool != head or published.spec.per_device_node_selection for published in slices):
                return None
        return {key: sorted(pools[key], key=_slice_name) for key in sorted(pools)}

    def common_slices(self, node: SchedulerNode) -> list[ResourceSlice] | None:
        """The slices for several nodes that are for this one; None if some are for single nodes in part."""
        common = [published for published in self._of_none if _is_for(published, node)]
        return None if any(published.spec.per_device_node_selection for published in common) else common

    def pools(self, node: SchedulerNode) -> tuple[Pool, ...]:
        """The pools with something for the node, in the order in which they are tried.

        Raises:
            InvalidInputError: a node selector or a quantity cannot be read.
        """
        relevant: dict[PoolKey, list[ResourceSlice]] = {}
        for published in (*self._of_node.get(node.name, ()), *self._of_none):
            if _is_for(published, node):
                _keep_newest(relevant.setdefault(_pool_key(published), []), published)
        pools_in_order = (self._pool(key, slices) for key, slices in relevant.items())
        return tuple(
            sorted((pool for pool in pools_in_order if pool is not None), key=lambda pool: (pool.conditional, pool.key))
        )

    def _pool(self, key: PoolKey, relevant: Sequence[ResourceSlice]) -> Pool | None:
        head = relevant[0].spec.pool
        elsewhere: list[ResourceSlice] = []
        if len(relevant) != head.resource_slice_count:
            everywhere = self._of_pool[key]
            if any(other.spec.pool.generation > head.generation for other in everywhere):
                return None
            current = [other for other in everywhere if other.spec.pool.generation == head.generation]
            if len(current) != head.resource_slice_count:
                problem = f"only {len(current)} of its {head.resource_slice_count} slices exist"
                return Pool(key=key, state="incomplete", problem=f"{problem}: it is being updated")
            chosen = {id(published) for published in relevant}
            elsewhere = [other for other in current if id(other) not in chosen]
        return self._judged(key, sorted(relevant, key=_slice_name), elsewhere)

    def _judged(self, key: PoolKey, here: Sequence[ResourceSlice], elsewhere: Sequence[ResourceSlice]) -> Pool:
        candidates = self._devices(here)
        others = self._devices(elsewhere)
        counters: dict[CounterKey, Decimal] = {}
        problem = _duplicate_device(candidates) or _add_counters(counters, (*here, *elsewhere))
        problem = problem or _unknown_counter(counters, (*candidates, *others))
        if problem:
            return Pool(key=key, state="invalid", problem=problem)
        return Pool(
            key=key,
            passed_over="; ".join(map(_passed_over, (one for one in here if _has_both(one)))),
            candidates=candidates,
            counters=counters,
            consumers=tuple(candidate for candidate in (*candidates, *others) if candidate.consumes),
            conditional=any(candidate.device.binding_conditions for candidate in candidates),
        )

    def _devices(self, slices: Iterable[ResourceSlice]) -> tuple[Candidate, ...]:
        return tuple(
            candidate
            for published in slices
            if not published.spec.shared_counters
            for candidate in self._read(published.spec)
        )

    def _read(self, spec: ResourceSliceSpec) -> tuple[Candidate, ...]:
        read = self._candidates.get(id(spec))
        if read is None:
            read = self._candidates[id(spec)] = tuple(
                _candidate(spec, device, self._version) for device in spec.devices
            )
        return read


def _candidate(spec: ResourceSliceSpec, device: Device, version: SchedulerVersion) -> Candidate:
    try:
        return _worked_out(spec, device, version)
    except InvalidInputError as problem:
        raise InvalidInputError(
            f'pool "{spec.pool.name}", device "{device.name}": {problem.what}', hint=problem.hint, code=problem.code
        ) from None


def _worked_out(spec: ResourceSliceSpec, device: Device, version: SchedulerVersion) -> Candidate:
    return Candidate(
        key=(spec.driver, spec.pool.name, device.name),
        device=device,
        slice=spec,
        consumes={
            (consumption.counter_set, name): quantity.parse(counter.value)
            for consumption in device.consumes_counters
            for name, counter in consumption.counters.items()
        },
        capacity=capacity.parse_all(device.capacity, spec.driver, version),
        taints=device.blocking_taints,
    )


def _pool_key(published: ResourceSlice) -> PoolKey:
    return published.spec.driver, published.spec.pool.name


def _has_both(published: ResourceSlice) -> bool:
    return bool(published.spec.shared_counters and published.spec.devices)


def _passed_over(published: ResourceSlice) -> str:
    count = len(published.spec.devices)
    devices = f"{count} device{'s are' if count != 1 else ' is'}"
    return f'{devices} skipped: slice "{_slice_name(published)}" has sharedCounters, which must be its only content'


def _slice_name(published: ResourceSlice) -> str:
    return published.metadata.name or published.metadata.generate_name


def _is_for(published: ResourceSlice, node: SchedulerNode) -> bool:
    spec, origin = published.spec, f'ResourceSlice "{_slice_name(published)}"'
    if spec.per_device_node_selection:
        return any(
            serves(node, device.node_name, device.all_nodes, device.node_selector, origin) for device in spec.devices
        )
    return serves(node, spec.node_name, spec.all_nodes, spec.node_selector, origin)


def _keep_newest(slices: list[ResourceSlice], published: ResourceSlice) -> None:
    generation = published.spec.pool.generation
    newest = slices[0].spec.pool.generation if slices else generation
    if generation > newest:
        slices.clear()
    if generation >= newest:
        slices.append(published)


def _duplicate_device(candidates: Iterable[Candidate]) -> str:
    names: set[str] = set()
    for candidate in candidates:
        name = candidate.device.name
        if name in names:
            return f'device "{name}" is published twice'
        names.add(name)
    return ""


def _add_counters(counters: dict[CounterKey, Decimal], slices: Iterable[ResourceSlice]) -> str:
    names: set[str] = set()
    for published in slices:
        for counter_set in published.spec.shared_counters:
            if counter_set.name in names:
                return f'counter set "{counter_set.name}" is published twice'
            names.add(counter_set.name)
            counters |= _amounts(counter_set)
    return ""


def _amounts(counter_set: CounterSet) -> dict[CounterKey, Decimal]:
    try:
        return {
            (counter_set.name, name): quantity.parse(counter.value) for name, counter in counter_set.counters.items()
        }
    except InvalidInputError as problem:
        raise InvalidInputError(
            f'counter set "{counter_set.name}": {problem.what}', hint=problem.hint, code=problem.code
        ) from None


def _unknown_counter(counters: Mapping[CounterKey, Decimal], candidates: Iterable[Candidate]) -> str:
    for candidate in candidates:
        for counter_set, name in candidate.consumes:
            if (counter_set, name) not in counters:
                return (
                    f'device "{candidate.device.name}" consumes counter {counter_set}/{name}, which does '
                    "not exist in the pool"
                )
    return ""
