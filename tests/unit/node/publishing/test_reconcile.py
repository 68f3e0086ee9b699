"""From any state, the writes from `reconcile` make pools as they should be; readers never see a mixture."""

from __future__ import annotations

import msgspec

from netdra.model.meta import ObjectMeta
from netdra.model.resource import Device
from netdra.node.publishing.reconcile import owner_of, reconcile
from tests.unit.node.publishing.server import (
    COUNTERS,
    NODE,
    TAG,
    Server,
    as_seen,
    device,
    seen,
    settle,
    taint_times,
    wanted,
    without_taints,
)


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
    (writes,) = reconcile(changed, server.stored(), NODE, tag=TAG).values()

    assert (len(writes.deletes), len(writes.updates), len(writes.creates)) == (0, 1, 0)
    assert writes.updates[0].spec.pool.generation == 1


def test_a_change_in_two_slices_is_a_new_generation_of_all() -> None:
    server = Server()
    settle(server, wanted(COUNTERS, [device("a")], [device("b")]))
    changed = wanted(COUNTERS, [device("a", 7)], [device("b", 7)])
    (writes,) = reconcile(changed, server.stored(), NODE, tag=TAG).values()

    assert (len(writes.deletes), len(writes.updates), len(writes.creates)) == (0, 3, 0)
    assert {one.spec.pool.generation for one in writes.updates} == {2}


def test_a_generation_that_was_begun_is_completed() -> None:
    """The part on the server is neither written again nor a reason to begin another one."""
    server = Server()
    slices = wanted(COUNTERS, [device("a")], [device("b")], [device("c")])
    for state in (slices, wanted(COUNTERS, [device("a", 7)], [device("b", 7)], [device("c", 7)])):
        before = server.writes
        for most in (1, 2, 10**6):
            for writes in reconcile(state, server.stored(), NODE, tag=TAG).values():
                server.apply(writes, most)
        assert seen(server.stored()) == as_seen(state)
        assert server.writes - before == len(state)


def test_another_change_in_the_middle_begins_another_generation() -> None:
    server = Server()
    settle(server, wanted(COUNTERS, [device("a")], [device("b")]))
    for writes in reconcile(
        wanted(COUNTERS, [device("a", 7)], [device("b", 7)]), server.stored(), NODE, tag=TAG
    ).values():
        server.apply(writes, 2)
    (writes,) = reconcile(wanted(COUNTERS, [device("a", 8)], [device("b", 8)]), server.stored(), NODE, tag=TAG).values()

    assert {one.spec.pool.generation for one in writes.updates} == {3}


def test_a_new_slice_has_the_same_name_in_each_try() -> None:
    def names_of(tag: str, *devices: Device) -> list[str]:
        (writes,) = reconcile(wanted(devices), [], NODE, tag=tag).values()
        return [one.metadata.name for one in writes.creates]

    assert names_of("x", device("a")) == names_of("x", device("a"))
    assert names_of("x", device("a")) != names_of("x", device("a", 7))
    assert names_of("x", device("a")) != names_of("y", device("a"))


def test_a_device_that_only_moves_to_another_slice_makes_a_new_generation() -> None:
    server = Server()
    settle(server, wanted([device("a"), device("b")], [device("c")]))
    (writes,) = reconcile(wanted([device("a")], [device("b"), device("c")]), server.stored(), NODE, tag=TAG).values()

    assert {one.spec.pool.generation for one in writes.updates} == {2}


def test_pools_do_not_touch_each_other() -> None:
    server = Server()
    first, second = wanted([device("a")], pool="p"), wanted([device("a")], pool="q")
    settle(server, [*first, *second])
    writes = reconcile([*first, *wanted([device("a", 1)], pool="q")], server.stored(), NODE, tag=TAG)

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


def test_foreign_labels_and_annotations_on_a_slice_are_kept() -> None:
    server = Server()
    settle(server, wanted([device("a")]))
    (stored,) = server.stored()
    labelled = msgspec.structs.replace(stored.metadata, labels={"x": "y"}, annotations={"a": "b"})
    server.slices[stored.metadata.name] = msgspec.structs.replace(stored, metadata=labelled)
    assert not reconcile(wanted([device("a")]), server.stored(), NODE, tag=TAG)
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


def test_a_slice_that_is_being_deleted_is_replaced_by_a_higher_generation() -> None:
    server = Server()
    settle(server, wanted([device("a")]))
    (stored,) = server.stored()
    going = msgspec.structs.replace(stored.metadata, deletion_timestamp="now")
    server.slices[stored.metadata.name] = msgspec.structs.replace(stored, metadata=going)
    (writes,) = reconcile(wanted([device("a")]), server.stored(), NODE, tag=TAG).values()

    assert (writes.deletes, writes.updates) == ((), ())
    assert writes.creates[0].spec.pool.generation == 2


def test_a_slice_made_twice_is_deleted_once_and_nothing_else_is_written() -> None:
    server = Server()
    slices = wanted([device("a")], [device("b")])
    settle(server, slices)
    (twice, *_) = server.stored()
    server.create(msgspec.structs.replace(twice, metadata=ObjectMeta(name="again")))
    (writes,) = reconcile(slices, server.stored(), NODE, tag=TAG).values()

    assert (len(writes.deletes), len(writes.updates), len(writes.creates)) == (1, 0, 0)


def test_a_server_that_drops_fields_is_written_to_once() -> None:
    server = Server(keeps=without_taints)
    slices = wanted([device("a", taint="gone")], [device("b")])
    adopted: dict[bytes, bytes] = {}
    for writes in reconcile(slices, server.stored(), NODE, tag=TAG).values():
        adopted |= server.apply(writes)

    assert reconcile(slices, server.stored(), NODE, tag=TAG)
    assert not reconcile(slices, server.stored(), NODE, adopted=adopted, tag=TAG)
    (changed,) = reconcile(
        wanted([device("a", 1, taint="gone")], [device("b")]), server.stored(), NODE, adopted=adopted, tag=TAG
    ).values()
    assert len(changed.updates) == 1


def test_a_slice_the_server_stored_differently_is_rewritten_after_a_foreign_change() -> None:
    server = Server(keeps=without_taints)
    slices = wanted([device("a", taint="gone")])
    (writes,) = reconcile(slices, server.stored(), NODE, tag=TAG).values()
    adopted = server.apply(writes)
    (stored,) = server.stored()
    server.slices[stored.metadata.name] = msgspec.structs.replace(
        stored, spec=msgspec.structs.replace(stored.spec, devices=(device("intruder"),))
    )

    assert reconcile(slices, server.stored(), NODE, adopted=adopted, tag=TAG)
