"""The index of reports follows the nodes, keeps nothing of what is gone, and knows what changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from netdra.controller.state import (
    POLICY,
    POLICY_ROLLOUT,
    Key,
    RankIndex,
    ReportIndex,
    State,
    published,
)
from netdra.kube.client import Client
from netdra.kube.queue import WorkQueue
from netdra.kube.store import Change
from netdra.model import documents
from netdra.model.device import Features
from netdra.model.node_network import NodeNetworkReport, PolicyAtNode, policies_of
from netdra.model.policy import DeviceExposurePolicy
from testbed import virtual_time
from tests.builders import exclude, exclusive


def node(
    name: str = "n", problems: tuple[str, ...] = (), features: tuple[str, ...] = (), **devices: int
) -> NodeNetworkReport:
    """A node that reports of policies, by their devices; the problems are of the first."""
    first = next(iter(devices), "")
    status: dict[str, Any] = {
        "policies": [{"name": policy, "devices": number} for policy, number in devices.items()],
        "problems": [{"policy": first, "message": text} for text in problems],
        "features": list(features),
    }
    return documents.convert({"metadata": {"name": name}, "status": status}, NodeNetworkReport, "test")


def devices(index: ReportIndex[PolicyAtNode], policy: str) -> list[tuple[str, int]]:
    return [(where, each.report.devices) for where, each in index.of(policy)]


def test_it_follows_a_node_from_its_making_to_its_end() -> None:
    index = ReportIndex(policies_of)
    first, second = node(a=1, b=1), node(a=2, c=1)
    assert set(index.update(Change("n", None, first))) == {"a", "b"}
    assert devices(index, "a") == [("n", 1)]
    assert set(index.update(Change("n", first, second))) == {"a", "b", "c"}
    assert (devices(index, "a"), devices(index, "b")) == ([("n", 2)], [])
    assert set(index.update(Change("n", second, second))) == set()
    assert set(index.update(Change("n", second, None))) == {"a", "c"}
    assert index._reports == {}


def test_a_policy_whose_problems_alone_are_others_has_changed() -> None:
    index = ReportIndex(policies_of)
    before, after = node(a=1, b=1), node(a=1, b=1, problems=("x",))
    list(index.update(Change("n", None, before)))
    assert list(index.update(Change("n", before, after))) == ["a"]


def test_a_node_that_has_not_reported_yet_says_nothing() -> None:
    index = ReportIndex(policies_of)
    bare = documents.convert({"metadata": {"name": "n"}}, NodeNetworkReport, "test")
    assert list(index.update(Change("n", None, bare))) == []
    assert published([bare]) is None


def test_classes_ask_for_plugins_in_the_form_that_most_nodes_publish() -> None:
    text, listed = node(features=("DRADeviceTaints",)), node(features=("DRADeviceTaints", "DRAListTypeAttributes"))
    assert published([text, listed, listed]) == Features(list_attributes=True)
    assert published([text, listed]) == Features(list_attributes=False)
    assert published([node()]) is None, "a node that says nothing of it is no vote"


def looked_at(happens: Callable[[State], None]) -> dict[Key, float]:
    """The keys that are looked at when something happens, and after how many seconds."""
    looked: dict[Key, float] = {}

    async def main() -> dict[Key, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def look(key: Key) -> None:
            looked.setdefault(key, loop.time() - began)

        work = WorkQueue[Key]("test", look)
        happens(State(cast(Client, None), work))
        running = asyncio.create_task(work.run())
        await work.drain()
        running.cancel()
        await asyncio.wait([running])
        return looked

    return virtual_time.run(main())


def test_a_policy_has_those_of_its_rank_looked_at_and_no_other_of_thousands() -> None:
    def happens(state: State) -> None:
        for number in range(3000):
            other = exclusive(f"p{number}", f"device.driver == '{number}'")
            state.policies.put(other.name, other)
            list(state.ranks.update(Change(other.name, None, other)))
        state._on_policy_change(Change("new", None, exclusive("new", "device.driver == '7'")))

    keys = looked_at(happens)
    assert {*keys} == {Key(POLICY, "new"), Key(POLICY_ROLLOUT, "new"), Key(POLICY, "p7")}


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from(("", "x", "y", "hide"))), max_size=30))
def test_the_index_of_ranks_is_what_comparing_all_policies_says(changes: list[tuple[str, str]]) -> None:
    index, present = RankIndex(), dict[str, DeviceExposurePolicy]()

    def rivals(name: str) -> set[str]:
        mine = present[name].spec
        return {
            other
            for other, policy in present.items()
            if other != name
            and (policy.spec.selector, policy.spec.action) == (mine.selector, mine.action) == (mine.selector, "expose")
        }

    for name, what in changes:
        new = None if not what else exclude(name, "x") if what == "hide" else exclusive(name, what)
        before = {other: rivals(other) for other in present}
        told = {*index.update(Change(name, present.get(name), new))}
        if new is None:
            present.pop(name, None)
        else:
            present[name] = new
        assert {other: {*index.of(policy)} for other, policy in present.items()} == {
            other: rivals(other) for other in present
        }
        assert told == {other for other in present if other != name and rivals(other) != before.get(other)}


def test_reports_are_waited_for_longer_with_more_nodes_but_for_the_first_problem() -> None:
    def happens(number: int) -> Callable[[State], None]:
        def happen(state: State) -> None:
            for index in range(number):
                state.nodes.put(f"n{index}", node(f"n{index}"))
            state._on_node_change(Change("n0", None, node("n0", p=1)))
            state._on_node_change(Change("n1", None, node("n1", problems=("x",), q=1)))

        return happen

    for nodes, seconds in ((2, 1.0), (500, 1.0), (5000, 10.0)):
        keys = looked_at(happens(nodes))
        assert keys[Key(POLICY_ROLLOUT, "q")] < 0.1
        assert seconds <= keys[Key(POLICY_ROLLOUT, "p")] < seconds + 0.1


def test_a_problem_is_the_first_again_once_every_node_is_well() -> None:
    bad, well = node(problems=("x",), p=1), node(p=1)

    def happens(state: State) -> None:
        said = [
            state._is_bad_news("p", change)
            for change in (
                Change("n0", None, bad),
                Change("n1", None, bad),
                Change("n0", bad, well),
                Change("n0", well, bad),
                Change("n0", bad, well),
                Change("n1", bad, None),
                Change("n1", None, bad),
            )
        ]
        assert said == [True, False, False, False, False, False, True]
        state._is_bad_news("p", Change("n1", bad, None))
        assert not state._failing

    looked_at(happens)
