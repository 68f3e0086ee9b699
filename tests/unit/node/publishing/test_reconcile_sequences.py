"""Any sequence of a pool's states, with deaths and foreign writes: each is reached, and readers see no mixture."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from netdra.model.resource import (
    CounterSet,
    Device,
    ResourceSlice,
)
from netdra.node.publishing.reconcile import reconcile
from tests.unit.node.publishing.server import (
    COUNTERS,
    NODE,
    TAG,
    Server,
    as_seen,
    device,
    seen,
    settle,
    steps,
    taint_times,
    wanted,
)

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


@given(st.lists(pools(), min_size=1, max_size=4))
def test_every_sequence_of_states_is_reached_and_a_second_sync_writes_nothing(
    states: list[list[ResourceSlice]],
) -> None:
    server = Server()
    for state in states:
        settle(server, state)
        assert seen(server.stored()) == as_seen(state)
        assert reconcile(state, server.stored(), NODE, tag=TAG) == {}


@given(pools(), pools())
def test_readers_see_the_old_pool_or_the_new_or_an_incomplete_one(
    old: list[ResourceSlice], new: list[ResourceSlice]
) -> None:
    server = Server()
    settle(server, old)
    for writes in reconcile(new, server.stored(), NODE, tag=TAG).values():
        for verb, sent in steps(writes):
            assert seen(server.stored()) in (as_seen(old), [], None)
            verb(server, sent)
    assert seen(server.stored()) == as_seen(new)


@given(pools(), pools(), pools(), st.integers(0, 6))
def test_a_writer_that_dies_in_the_middle_is_made_good_by_the_next(
    old: list[ResourceSlice], half: list[ResourceSlice], new: list[ResourceSlice], most: int
) -> None:
    server = Server()
    settle(server, old)
    for writes in reconcile(half, server.stored(), NODE, tag=TAG).values():
        server.apply(writes, most)
    states = [as_seen(old), as_seen(half), [], None]
    for writes in reconcile(new, server.stored(), NODE, tag=TAG).values():
        for verb, sent in steps(writes):
            assert seen(server.stored()) in states
            verb(server, sent)
    assert seen(server.stored()) == as_seen(new)
    assert reconcile(new, server.stored(), NODE, tag=TAG) == {}


@given(pools(), st.data())
def test_slices_deleted_or_changed_by_others_are_restored(state: list[ResourceSlice], data: st.DataObject) -> None:
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
    assert reconcile(state, server.stored(), NODE, tag=TAG) == {}


@given(pools(), pools())
def test_taints_that_stay_keep_their_time(old: list[ResourceSlice], new: list[ResourceSlice]) -> None:
    server = Server()
    settle(server, old)
    before = taint_times(server)
    settle(server, new)

    after = taint_times(server)
    assert all(after[name] == before[name] for name in after if name in before)
