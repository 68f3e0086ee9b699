"""Whatever is there, writing what `reconcile` says makes pools what they should be; readers never see a mixture."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
from netdra.node.publishing.content import content, digest
from netdra.node.publishing.reconcile import Writes, owner_of, reconcile

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
NODE = owner_of("worker-1", "uid-1")
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
    """What the API server does with slices: names, uids, versions, preconditions, its own way to write."""

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
        assert not sent.metadata.name
        assert sent.metadata.generate_name
        number = next(self._numbers)
        named = msgspec.structs.replace(sent.metadata, name=f"{sent.metadata.generate_name}{number}", uid=f"u{number}")
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
    for writes in reconcile(slices, server.stored(), owner).values():
        server.apply(writes)


COUNTERS = CounterSet(name="eth0-counters", counters={"slots": Counter(value="9")})


def test_an_empty_server_gets_every_slice_in_the_first_generation() -> None:
    server = Server()
    slices = wanted(COUNTERS, [device("a"), device("b")])
    settle(server, slices)

    assert seen(server.stored()) == as_seen(slices)
    assert {one.spec.pool.generation for one in server.stored()} == {1}
    assert {one.spec.pool.resource_slice_count for one in server.stored()} == {2}
    assert {one.metadata.owner_references for one in server.stored()} == {(NODE,)}


def test_slices_are_named_in_the_order_in_which_the_scheduler_should_take_them() -> None:
    server = Server()
    slices = wanted(*([device(f"d{number}")] for number in range(20)))
    settle(server, slices)

    assert [one.spec.devices[0].name for one in server.stored()] == [f"d{number}" for number in range(20)]


def test_a_change_in_one_slice_is_one_write_in_the_same_generation() -> None:
    server = Server()
    settle(server, wanted(COUNTERS, [device("a")], [device("b")]))
    changed = wanted(COUNTERS, [device("a", 7)], [device("b")])
    (writes,) = reconcile(changed, server.stored(), NODE).values()

    assert (len(writes.deletes), len(writes.updates), len(writes.creates)) == (0, 1, 0)
    assert writes.updates[0].spec.pool.generation == 1


def test_a_change_in_two_slices_is_a_new_generation_of_all() -> None:
    server = Server()
    settle(server, wanted(COUNTERS, [device("a")], [device("b")]))
    changed = wanted(COUNTERS, [device("a", 7)], [device("b", 7)])
    (writes,) = reconcile(changed, server.stored(), NODE).values()

    assert (len(writes.deletes), len(writes.updates), len(writes.creates)) == (0, 3, 0)
    assert {one.spec.pool.generation for one in writes.updates} == {2}


def test_a_device_that_only_moves_to_another_slice_makes_a_new_generation() -> None:
    server = Server()
    settle(server, wanted([device("a"), device("b")], [device("c")]))
    (writes,) = reconcile(wanted([device("a")], [device("b"), device("c")]), server.stored(), NODE).values()

    assert {one.spec.pool.generation for one in writes.updates} == {2}


def test_pools_do_not_touch_each_other() -> None:
    server = Server()
    first, second = wanted([device("a")], pool="p"), wanted([device("a")], pool="q")
    settle(server, [*first, *second])
    writes = reconcile([*first, *wanted([device("a", 1)], pool="q")], server.stored(), NODE)

    assert list(writes) == ["q"]


def test_a_pool_that_is_not_wanted_is_deleted() -> None:
    server = Server()
    settle(server, wanted([device("a")], [device("b")]))
    settle(server, [])

    assert server.stored() == []


def test_slices_of_a_node_that_was_made_anew_go_with_the_new_one() -> None:
    server = Server()
    slices = wanted([device("a")])
    settle(server, slices)
    settle(server, slices, owner_of("worker-1", "uid-2"))

    assert {one.metadata.owner_references for one in server.stored()} == {(owner_of("worker-1", "uid-2"),)}
    assert len(server.stored()) == 1


def test_what_others_hung_on_a_slice_stays() -> None:
    server = Server()
    settle(server, wanted([device("a")]))
    (stored,) = server.stored()
    labelled = msgspec.structs.replace(stored.metadata, labels={"x": "y"}, annotations={"a": "b"})
    server.slices[stored.metadata.name] = msgspec.structs.replace(stored, metadata=labelled)
    assert not reconcile(wanted([device("a")]), server.stored(), NODE)
    settle(server, wanted([device("a", 1)]))

    (after,) = server.stored()
    assert (after.metadata.labels, after.metadata.annotations) == ({"x": "y"}, {"a": "b"})


def test_a_taint_keeps_its_time_through_updates_and_moves() -> None:
    server = Server()
    settle(server, wanted([device("a", taint="gone"), device("b")], [device("c")]))
    before = taint_times(server)
    settle(server, wanted([device("a", 5, taint="gone"), device("b", taint="down")], [device("c")]))
    settle(server, wanted([device("b", taint="down")], [device("c"), device("a", 5, taint="gone")]))

    assert taint_times(server)["a"] == before["a"]
    assert taint_times(server)["b"] != before["a"]


def taint_times(server: Server) -> dict[str, str | None]:
    return {
        found.name: taint.time_added for one in server.stored() for found in one.spec.devices for taint in found.taints
    }


def test_a_slice_that_is_being_deleted_is_replaced_by_a_higher_generation() -> None:
    server = Server()
    settle(server, wanted([device("a")]))
    (stored,) = server.stored()
    going = msgspec.structs.replace(stored.metadata, deletion_timestamp="now")
    server.slices[stored.metadata.name] = msgspec.structs.replace(stored, metadata=going)
    (writes,) = reconcile(wanted([device("a")]), server.stored(), NODE).values()

    assert (writes.deletes, writes.updates) == ((), ())
    assert writes.creates[0].spec.pool.generation == 2


def test_a_slice_made_twice_is_deleted_once_and_nothing_else_is_written() -> None:
    server = Server()
    slices = wanted([device("a")], [device("b")])
    settle(server, slices)
    (twice, *_) = server.stored()
    server.create(msgspec.structs.replace(twice, metadata=ObjectMeta(generate_name="again-")))
    (writes,) = reconcile(slices, server.stored(), NODE).values()

    assert (len(writes.deletes), len(writes.updates), len(writes.creates)) == (1, 0, 0)


def without_taints(spec: ResourceSliceSpec) -> ResourceSliceSpec:
    return msgspec.structs.replace(
        spec, devices=tuple(msgspec.structs.replace(found, taints=()) for found in spec.devices)
    )


def test_a_server_that_drops_fields_is_written_to_once() -> None:
    server = Server(keeps=without_taints)
    slices = wanted([device("a", taint="gone")], [device("b")])
    adopted: dict[bytes, bytes] = {}
    for writes in reconcile(slices, server.stored(), NODE).values():
        adopted |= server.apply(writes)

    assert reconcile(slices, server.stored(), NODE)
    assert not reconcile(slices, server.stored(), NODE, adopted=adopted)
    (changed,) = reconcile(
        wanted([device("a", 1, taint="gone")], [device("b")]), server.stored(), NODE, adopted=adopted
    ).values()
    assert len(changed.updates) == 1


def test_what_the_server_kept_otherwise_is_mended_if_somebody_changes_it() -> None:
    server = Server(keeps=without_taints)
    slices = wanted([device("a", taint="gone")])
    (writes,) = reconcile(slices, server.stored(), NODE).values()
    adopted = server.apply(writes)
    (stored,) = server.stored()
    server.slices[stored.metadata.name] = msgspec.structs.replace(
        stored, spec=msgspec.structs.replace(stored.spec, devices=(device("intruder"),))
    )

    assert reconcile(slices, server.stored(), NODE, adopted=adopted)


parts = st.lists(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 2), st.sampled_from(["", "gone"])), max_size=4),
    max_size=5,
)


@st.composite
def pools(draw: st.DrawFn) -> list[ResourceSlice]:
    """A pool of devices that are each in one slice, as all pools are; sometimes none."""
    taken: set[str] = set()
    found: list[list[Device] | CounterSet] = [COUNTERS] if draw(st.booleans()) else []
    for part in draw(parts):
        devices = [device(name, value, taint=taint) for name, value, taint in part if name not in taken]
        unique = list({one.name: one for one in devices}.values())
        taken |= {one.name for one in unique}
        if unique:
            found.append(unique)
    return wanted(*found)


@UNHURRIED
@given(st.lists(pools(), min_size=1, max_size=4))
def test_every_sequence_of_states_is_reached_and_a_second_sync_writes_nothing(
    states: list[list[ResourceSlice]],
) -> None:
    server = Server()
    for state in states:
        settle(server, state)
        assert seen(server.stored()) == as_seen(state)
        assert reconcile(state, server.stored(), NODE) == {}


@UNHURRIED
@given(pools(), pools())
def test_readers_see_the_old_pool_or_the_new_or_an_incomplete_one(
    old: list[ResourceSlice], new: list[ResourceSlice]
) -> None:
    server = Server()
    settle(server, old)
    for writes in reconcile(new, server.stored(), NODE).values():
        for verb, sent in steps(writes):
            assert seen(server.stored()) in (as_seen(old), [], None)
            verb(server, sent)
    assert seen(server.stored()) == as_seen(new)


@UNHURRIED
@given(pools(), pools(), pools(), st.integers(0, 6))
def test_a_writer_that_dies_in_the_middle_is_made_good_by_the_next(
    old: list[ResourceSlice], half: list[ResourceSlice], new: list[ResourceSlice], most: int
) -> None:
    server = Server()
    settle(server, old)
    for writes in reconcile(half, server.stored(), NODE).values():
        server.apply(writes, most)
    states = [as_seen(old), as_seen(half), [], None]
    for writes in reconcile(new, server.stored(), NODE).values():
        for verb, sent in steps(writes):
            assert seen(server.stored()) in states
            verb(server, sent)
    assert seen(server.stored()) == as_seen(new)
    assert reconcile(new, server.stored(), NODE) == {}


@UNHURRIED
@given(pools(), st.data())
def test_slices_that_others_delete_or_change_are_mended(state: list[ResourceSlice], data: st.DataObject) -> None:
    server = Server()
    settle(server, state)
    for one in server.stored():
        harm = data.draw(st.sampled_from(["none", "delete", "change", "older", "newer"]))
        if harm == "delete":
            del server.slices[one.metadata.name]
        elif harm != "none":
            generation = one.spec.pool.generation + {"older": -1, "newer": 1}.get(harm, 0)
            pool = msgspec.structs.replace(one.spec.pool, generation=generation)
            devices = (device("intruder"),) if harm == "change" and not one.spec.shared_counters else one.spec.devices
            spec = msgspec.structs.replace(one.spec, pool=pool, devices=devices)
            server.slices[one.metadata.name] = msgspec.structs.replace(one, spec=spec)
    settle(server, state)

    assert seen(server.stored()) == as_seen(state)
    assert reconcile(state, server.stored(), NODE) == {}


@UNHURRIED
@given(pools(), pools())
def test_taints_that_stay_keep_their_time(old: list[ResourceSlice], new: list[ResourceSlice]) -> None:
    server = Server()
    settle(server, old)
    before = taint_times(server)
    settle(server, new)

    after = taint_times(server)
    assert all(after[name] == before[name] for name in after if name in before)
