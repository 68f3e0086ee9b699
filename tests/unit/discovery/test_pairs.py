"""Whose the end of a pair is follows from where its other end is, and from how long that has been there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netdra.discovery.pairs import MAX_LEFT, SETTLE_SECONDS, PairPlace, Pairs, Whose, whose
from netdra.kernel.link import HERE, UNASSIGNED, Link

PODS = frozenset({3, 5})
POD, ROUTER = 3, 4
LONG = 60.0


def end(index: int, other: int, netns: int = HERE, **facts: Any) -> Link:
    values: dict[str, Any] = {field.name: 0 for field in msgspec.structs.fields(Link) if field.required}
    return Link(**{**values, "index": index, "kind": "veth", "lower": other, "lower_netns": netns, **facts})


def judged(pairs: Pairs, now: float, *links: Link, pods: frozenset[int] | None = PODS) -> dict[int, Whose]:
    for link in links:
        pairs.put(link)
    pairs.judge(pods, now)
    ends: dict[int, Whose] = {1: "node", 2: "node"}
    for index in pairs.pods:
        ends[index] = "pod"
    for index in pairs.unknown:
        ends[index] = "unknown"
    return ends


@pytest.mark.parametrize(
    ("place", "pods", "unchanged", "expected"),
    [
        (PairPlace(2, HERE), PODS, LONG, "node"),
        (PairPlace(2, HERE), PODS, SETTLE_SECONDS, "node"),
        (PairPlace(2, HERE), PODS, SETTLE_SECONDS - 0.001, "unknown"),
        (PairPlace(2, HERE), PODS, 0.0, "unknown"),
        (PairPlace(2, HERE), None, LONG, "node"),
        (PairPlace(0, HERE), PODS, LONG, "unknown"),
        (PairPlace(2, UNASSIGNED), PODS, LONG, "unknown"),
        (PairPlace(0, UNASSIGNED), PODS, LONG, "unknown"),
        (PairPlace(2, POD), PODS, 0.0, "pod"),
        (PairPlace(2, POD), PODS, LONG, "pod"),
        (PairPlace(0, POD), PODS, 0.0, "pod"),
        (PairPlace(2, ROUTER), PODS, 0.0, "unknown"),
        (PairPlace(2, ROUTER), PODS, LONG, "node"),
        (PairPlace(2, ROUTER), None, LONG, "unknown"),
        (PairPlace(2, POD), None, LONG, "unknown"),
        (PairPlace(2, 0), frozenset(), LONG, "node"),
        (PairPlace(2, 0), frozenset({0}), LONG, "pod"),
    ],
)
def test_whose_an_end_is(place: PairPlace, pods: frozenset[int] | None, unchanged: float, expected: Whose) -> None:
    assert whose(place, pods, unchanged) == expected


def test_an_end_is_the_nodes_when_its_other_end_has_stayed() -> None:
    pairs = Pairs()
    assert judged(pairs, 10.0, end(1, 2), end(2, 1)) == {1: "unknown", 2: "unknown"}
    assert (pairs.arriving, pairs.due) == ({1, 2}, 10.0 + SETTLE_SECONDS)
    assert pairs.overdue(10.9) == set()
    assert pairs.overdue(11.0) == {1, 2}
    assert judged(pairs, 11.0) == {1: "node", 2: "node"}
    assert (pairs.arriving, pairs.due) == (set(), None)


def test_a_change_of_state_or_name_does_not_begin_the_time_again_but_a_change_of_place_does() -> None:
    pairs = Pairs()
    judged(pairs, 10.0, end(1, 2))
    assert judged(pairs, 11.0, end(1, 2, name="other", flags=1))[1] == "node"
    assert judged(pairs, 20.0, end(1, 2, ROUTER))[1] == "unknown"
    assert judged(pairs, 20.5, end(1, 2, ROUTER, flags=1))[1] == "unknown"
    assert judged(pairs, 21.0)[1] == "node"
    assert judged(pairs, 21.1, end(1, 2, POD))[1] == "pod"


def test_a_pods_end_stays_one_without_a_name_of_its_namespace_until_its_place_changes() -> None:
    pairs = Pairs()
    assert judged(pairs, 10.0, end(1, 2, POD))[1] == "pod"
    assert judged(pairs, 99.0, end(1, 2, POD), pods=frozenset())[1] == "pod"
    assert judged(pairs, 99.0, pods=None)[1] == "pod"
    assert judged(pairs, 99.0, end(1, 2, ROUTER))[1] == "unknown"


def test_a_namespace_that_gets_its_name_later_is_a_pods_from_then_on() -> None:
    pairs = Pairs()
    judged(pairs, 10.0, end(1, 2, POD), pods=frozenset())
    assert judged(pairs, 11.0, pods=frozenset())[1] == "node"
    assert judged(pairs, 12.0)[1] == "pod"


def test_an_end_that_comes_back_from_a_pod_to_its_other_end_is_the_nodes_at_once() -> None:
    pairs = Pairs()
    judged(pairs, 10.0, end(1, 2), end(2, 1))
    judged(pairs, 11.0)
    pairs.drop(1)
    assert judged(pairs, 12.0, end(2, 1, POD))[2] == "pod"
    assert judged(pairs, 13.0, end(1, 2), end(2, 1)) == {1: "node", 2: "node"}


def test_an_end_that_comes_back_to_an_other_end_in_a_third_namespace_is_the_nodes_at_once() -> None:
    pairs = Pairs()
    judged(pairs, 10.0, end(1, 2, ROUTER))
    judged(pairs, 11.0)
    for moved, place, expected in (
        (True, ROUTER, "node"),
        (True, ROUTER, "node"),
        (True, POD, "pod"),
        (False, ROUTER, "unknown"),
    ):
        pairs.drop(1, moved=moved)
        assert judged(pairs, 12.0, end(1, 2, place))[1] == expected


def test_an_end_that_has_not_stayed_before_it_left_is_not_known_when_it_comes_back() -> None:
    pairs = Pairs()
    judged(pairs, 10.0, end(1, 2, ROUTER))
    pairs.drop(1, moved=True)
    assert judged(pairs, 10.5, end(1, 2, ROUTER))[1] == "unknown"


def test_ends_that_left_are_remembered_up_to_a_limit() -> None:
    pairs = Pairs()
    for index in range(1, MAX_LEFT + 3):
        judged(pairs, 10.0, end(index, 9999, ROUTER))
    judged(pairs, 20.0)
    for index in range(1, MAX_LEFT + 3):
        pairs.drop(index, moved=True)
    assert len(pairs._left) == MAX_LEFT
    assert judged(pairs, 21.0, end(1, 9999, ROUTER))[1] == "unknown"
    assert judged(pairs, 21.0, end(MAX_LEFT, 9999, ROUTER)).get(MAX_LEFT) is None


def test_an_end_of_another_pair_with_the_index_of_one_that_was_away_is_not_known() -> None:
    pairs = Pairs()
    judged(pairs, 10.0, end(1, 2), end(2, 1))
    judged(pairs, 11.0)
    pairs.drop(1)
    pairs.drop(2)
    assert judged(pairs, 12.0, end(1, 2), end(2, 1)) == {1: "unknown", 2: "unknown"}


def test_a_pair_that_is_unknown_after_its_time_is_no_longer_arriving_and_stays_unknown() -> None:
    pairs = Pairs()
    judged(pairs, 10.0, end(1, 0))
    assert judged(pairs, 11.0)[1] == "unknown"
    assert (pairs.arriving, pairs.due) == (set(), None)


def test_ends_that_are_gone_are_forgotten() -> None:
    pairs = Pairs()
    judged(pairs, 10.0, end(1, 2), end(2, 1))
    pairs.keep({2})
    assert judged(pairs, 10.1) == {1: "node", 2: "unknown"}
