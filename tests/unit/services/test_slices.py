"""The fewest writes that lead to the wanted EndpointSlices."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from netdra.model.service import Endpoint, EndpointSlice
from netdra.services.endpoints import EndpointGroup
from netdra.services.slices import MAX_ENDPOINTS, SliceWrites, writes
from tests.unit.services.builders import endpoint, ports, service, stored

FOUR, SIX = EndpointGroup("IPv4", ports(80)), EndpointGroup("IPv6", ports(80))
SERVICE = service()


def content(present: tuple[EndpointSlice, ...]) -> list[int]:
    return sorted(len(entry.endpoints or ()) for entry in present)


def names(entries: tuple[EndpointSlice, ...]) -> list[str]:
    return [entry.metadata.name for entry in entries]


def after(*steps: list[Endpoint]) -> tuple[EndpointSlice, ...]:
    present: tuple[EndpointSlice, ...] = ()
    for wanted in steps:
        present = stored(present, writes(SERVICE, {FOUR: wanted}, present))
    return present


def test_a_slice_has_a_hundred_endpoints_at_most_and_a_second_pass_writes_nothing() -> None:
    wanted = {FOUR: [*map(endpoint, range(250))], SIX: []}
    done = writes(SERVICE, wanted, ())
    assert names(done.create) == ["storage-netdra-0", "storage-netdra-1", "storage-netdra-2", "storage-netdra-3"]
    present = stored((), done)
    assert content(present) == [0, 50, MAX_ENDPOINTS, MAX_ENDPOINTS]
    assert writes(SERVICE, wanted, present) == SliceWrites()
    assert writes(SERVICE, {FOUR: wanted[FOUR][::-1], SIX: []}, present[::-1]) == SliceWrites()


def test_a_change_of_one_pod_writes_one_slice() -> None:
    before = [*map(endpoint, range(250))]
    present = after(before)
    changed = [endpoint(7, name="node-2"), *before[:7], *before[8:]]
    without = [*before[:120], *before[121:]]
    more = [*before, endpoint(999)]
    for wanted, slice_name in ((changed, "0"), (without, "1"), (more, "2")):
        done = writes(SERVICE, {FOUR: wanted}, present)
        assert (names(done.replace), done.create, done.delete) == ([f"storage-netdra-{slice_name}"], (), ())


def test_slices_that_many_changes_left_half_empty_are_packed_anew() -> None:
    sparse = [*map(endpoint, range(0, 500, 50))]
    present = after([*map(endpoint, range(500))], sparse)
    assert content(present) == [10]
    assert writes(SERVICE, {FOUR: sparse}, present) == SliceWrites()


def test_a_group_without_endpoints_has_an_empty_slice() -> None:
    present = after([endpoint(1)], [])
    assert content(present) == [0]
    assert writes(SERVICE, {FOUR: []}, present) == SliceWrites()


def test_a_slice_of_unwanted_ports_gets_the_wanted_ones_and_those_of_other_families_are_deleted() -> None:
    present = stored((), writes(SERVICE, {FOUR: [endpoint(1)], SIX: []}, ()))
    done = writes(SERVICE, {EndpointGroup("IPv4", ports(81)): [endpoint(1)]}, present)
    assert (names(done.create), names(done.delete)) == ([], ["storage-netdra-1"])
    assert [(entry.metadata.name, entry.ports) for entry in done.replace] == [("storage-netdra-0", ports(81))]


def test_endpoints_that_are_gone_leave_slices_before_new_slices_are_created() -> None:
    other = EndpointGroup("IPv4", ports(81))
    present = stored((), writes(SERVICE, {FOUR: [endpoint(1), endpoint(2)], SIX: [endpoint(3)]}, ()))
    done = writes(SERVICE, {FOUR: [endpoint(2)], other: [endpoint(4)]}, present)
    order = [(step.before is not None, step.after is not None, step.loses) for step in done.steps]
    assert order == [(True, False, True), (True, True, True), (False, True, False)]


def test_endpoints_move_once_their_new_slice_exists_and_those_that_are_gone_do_not_wait_for_it() -> None:
    first, second = EndpointGroup("IPv4", ports(81)), EndpointGroup("IPv4", ports(82))
    present = stored((), writes(SERVICE, {FOUR: [*map(endpoint, range(3))]}, ()))
    created, moved = writes(SERVICE, {first: [endpoint(0)], second: [endpoint(1)]}, present).steps
    assert created.before is None
    assert created.gained == {endpoint(1).key}
    assert moved.loses
    assert moved.moved == {endpoint(1).key}
    assert moved.remaining is not None
    assert moved.remaining.endpoints == (endpoint(0), endpoint(1))


def test_an_endpoint_that_two_controllers_published_is_removed_once() -> None:
    one = after([endpoint(1)])
    two = stored((), writes(SERVICE, {FOUR: [endpoint(1)]}, (), frozenset({"storage-netdra-0"})))
    done = writes(SERVICE, {FOUR: [endpoint(1)]}, (*one, *two))
    assert (done.create, done.replace, names(done.delete)) == ((), (), ["storage-netdra-1"])


def test_the_services_labels_and_identity_are_followed() -> None:
    present = after([endpoint(1)])
    (replaced,) = writes(service(clusterIP="10.0.0.9"), {FOUR: [endpoint(1)]}, present).replace
    assert "service.kubernetes.io/headless" not in replaced.metadata.labels
    again = replace(SERVICE, metadata=replace(SERVICE.metadata, uid="new", labels={"team": "storage"}))
    (replaced,) = writes(again, {FOUR: [endpoint(1)]}, present).replace
    assert [entry.uid for entry in replaced.metadata.owner_references] == ["new"]
    assert replaced.metadata.labels["team"] == "storage"


@given(st.integers(0, 10_000))
def test_slices_contain_each_wanted_endpoint_once_after_random_changes(seed: int) -> None:
    drawn = random.Random(seed)
    present: tuple[EndpointSlice, ...] = ()
    for _ in range(6):
        numbers = drawn.sample(range(600), drawn.choice([0, 1, 99, 100, 101, 300, 600]))
        wanted = [endpoint(number, name=drawn.choice("ab")) for number in numbers]
        present = stored(present, writes(SERVICE, {FOUR: wanted}, present))
        found = [entry for each in present for entry in each.endpoints or ()]
        assert sorted(entry.key for entry in found) == sorted(entry.key for entry in wanted)
        assert {*found} == {*wanted}
        assert all(len(each.endpoints or ()) <= MAX_ENDPOINTS for each in present)
        assert len(present) <= 2 * max(1, -(-len(wanted) // MAX_ENDPOINTS))
        assert writes(SERVICE, {FOUR: wanted}, present) == SliceWrites()


@pytest.mark.parametrize("count", [1, 100, 101])
def test_names_of_foreign_slices_are_left_out(count: int) -> None:
    done = writes(SERVICE, {FOUR: [*map(endpoint, range(count))]}, (), frozenset({"storage-netdra-0"}))
    assert "storage-netdra-0" not in names(done.create)
