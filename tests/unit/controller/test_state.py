"""The index of reports follows the nodes, keeps nothing of deleted ones, and detects changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from netdra.controller import classes, status
from netdra.controller.state import (
    POLICY,
    POLICY_ROLLOUT,
    TOPOLOGY_USAGE,
    FirstSchemas,
    Key,
    ReportIndex,
    State,
    published,
)
from netdra.kube.client import Client
from netdra.kube.queue import WorkQueue
from netdra.kube.store import Change
from netdra.model import documents
from netdra.model.claim import DeviceClass, DeviceClassSpec
from netdra.model.device import Features
from netdra.model.meta import ObjectMeta
from netdra.model.names import GROUP_VERSION
from netdra.model.node_network import NodeNetworkReport, PolicyAtNode, policies_of
from netdra.model.rollout import NetworkTopologyUsage
from netdra.model.schema import CNIPluginSchema
from netdra.rules import contract
from netdra.topology.classes import class_name
from testbed import virtual_time
from tests import builders
from tests.builders import exclusive
from tests.effort import calls
from tests.unit.controller.test_failures import claim, device

LISTS = Features(list_attributes=True)
TWO = builders.topology("- {name: a, type: sriov}\n- {name: b, type: sriov}")
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def node(
    name: str = "n",
    problems: tuple[str, ...] = (),
    features: tuple[str, ...] = (),
    generation: int = 1,
    **devices: int,
) -> NodeNetworkReport:
    """A node that reports of policies, by their devices; the problems are of the first."""
    first = next(iter(devices), "")
    status: dict[str, Any] = {
        "policies": [
            {"name": policy, "devices": number, "generation": generation} for policy, number in devices.items()
        ],
        "problems": [{"policy": first, "message": text} for text in problems],
        "features": list(features),
    }
    return documents.convert({"metadata": {"name": name}, "status": status}, NodeNetworkReport, "test")


def devices(index: ReportIndex[NodeNetworkReport, PolicyAtNode], policy: str) -> list[tuple[str, int]]:
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


def test_a_node_without_a_report_yet_yields_no_changes() -> None:
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
    """The keys that are inspected when something happens, and after how many seconds."""
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


def test_a_policy_change_enqueues_only_policies_of_its_rank() -> None:
    def happens(state: State) -> None:
        for number in range(3000):
            other = exclusive(f"p{number}", f"device.driver == '{number}'")
            state.policies.put(other.name, other)
            state.ranks.update(other.name, None, other)
            state.named_plugins.update(None, other)
        state._on_policy_change(Change("new", None, exclusive("new", "device.driver == '7'")))

    keys = looked_at(happens)
    assert {*keys} == {Key(POLICY, "new"), Key(POLICY_ROLLOUT, "new"), Key(POLICY, "p7")}


def schema(name: str, plugin: str, *, sound: bool) -> CNIPluginSchema:
    interfaces = {"minItems": 1} if sound else {"minItems": 2, "maxItems": 1}
    value = {
        "apiVersion": "cni.networking.k8s.io/v1alpha1",
        "kind": "CNIPluginSchema",
        "metadata": {"name": name},
        "spec": {"cniType": plugin, "input": {"prevResult": {"interfaces": interfaces}}},
    }
    return documents.convert(value, CNIPluginSchema, "test")


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(("", "x", "y", "x wrong"))), max_size=30))
def test_the_index_of_first_schemas_matches_a_comparison_of_all_schemas(changes: list[tuple[str, str]]) -> None:
    index, present = FirstSchemas(), dict[str, CNIPluginSchema]()
    for name, what in changes:
        new = schema(name, what[0], sound=len(what) == 1) if what else None
        before = {other: index.of(each) for other, each in present.items()}
        concerned = index.update(Change(name, present.pop(name, None), new))
        if new is not None:
            present[name] = new
        sound = [other for other, each in present.items() if not contract.examine(each)[1]]
        after = {
            other: min((one for one in sound if present[one].spec.plugin == each.spec.plugin), default="")
            for other, each in present.items()
        }
        assert {other: index.of(each) for other, each in present.items()} == after
        differing = {o for o in sound if o != name and before.get(o) != after[o]}
        assert differing <= {*concerned}


@given(
    st.lists(
        st.tuples(st.sampled_from(("net", "net-a", "x")), st.sampled_from(("net", "net-a", "")), st.booleans()),
        max_size=20,
    )
)
def test_a_topology_s_classes_are_those_that_looking_through_all_finds(edits: list[tuple[str, str, bool]]) -> None:
    async def main() -> None:
        state = State(cast(Client, None), WorkQueue[Key]("test", cast(Any, None)))
        with state.classes.following(state._on_class_change):
            for topology, owner, is_there in edits:
                name = class_name(topology, "a")
                owners = [reference(owner)] if owner else []
                one = {"metadata": {"name": name, "ownerReferences": owners}, "spec": {}}
                if is_there:
                    state.classes.put(name, documents.convert(one, DeviceClass, "test"))
                else:
                    state.classes.remove(name)
                for each in ("net", "net-a", "x"):
                    one_of = replace(TWO, metadata=ObjectMeta(name=each, uid=each))
                    narrow, every = state.classes_of(one_of), state.classes.objects
                    found, expected = (classes.changes(one_of, there, LISTS) for there in (narrow, every))
                    assert sorted(found.delete, key=str) == sorted(expected.delete, key=str)
                    assert replace(found, delete=()) == replace(expected, delete=())

    asyncio.run(main())


def reference(topology: str) -> dict[str, Any]:
    version = "networking.dra.io/v1alpha1"
    return {"apiVersion": version, "kind": "NetworkTopology", "name": topology, "uid": topology, "controller": True}


def test_the_cost_of_a_change_does_not_grow_with_the_number_of_policies_classes_and_topologies() -> None:
    async def effort(number: int) -> int:
        state = State(cast(Client, None), WorkQueue[Key]("test", cast(Any, None)))
        names = [f"p{at:05}" for at in range(number)]
        topology = builders.topology("- {name: a, type: sriov}")
        for name in names:
            state.topologies.put(name, replace(topology, metadata=ObjectMeta(name=name)))
        with state.policies.following(state._on_policy_change), state.classes.following(state._on_class_change):
            for name in names:
                state.policies.put(name, exclusive(name, "true"))
                state.classes.put(
                    f"{name}-a", DeviceClass(metadata=ObjectMeta(name=f"{name}-a"), spec=DeviceClassSpec())
                )
            name = names[number // 2]
            other, policy = exclusive(name, "false"), exclusive(name, "true")

            def change() -> None:
                for each in (other, policy):
                    state.policies.put(name, each)
                    status.of_policy(each, state.ranks.of(each), (), NOW)
                state.classes.put(
                    f"{name}-a", DeviceClass(metadata=ObjectMeta(name=f"{name}-a"), spec=DeviceClassSpec())
                )
                classes.changes(state.topologies.objects[name], state.classes_of(state.topologies.objects[name]), LISTS)

            change()
            return calls(change)

    assert asyncio.run(effort(2000)) <= 1.2 * asyncio.run(effort(500))


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


@pytest.mark.parametrize(("generations", "is_last"), [((2, 2), True), ((2, 1), False), ((2, None), True)])
def test_the_report_that_completes_a_rollout_does_not_wait_for_others(
    generations: tuple[int, int | None], is_last: bool
) -> None:
    def happen(state: State) -> None:
        for name in ("n0", "n1"):
            [*state.policy_reports.update(Change(name, None, node(name, p=1)))]
        policy = exclusive("p", "true")
        state.policies.put("p", replace(policy, metadata=replace(policy.metadata, generation=2)))
        state._note_generation("p", state.policies.objects["p"])
        for name, generation in zip(("n0", "n1"), generations, strict=True):
            report = node(name, generation=generation, p=1) if generation is not None else node(name)
            state._on_node_change(Change(name, node(name, p=1), report))

    (seconds,) = (after for key, after in looked_at(happen).items() if key == Key(POLICY_ROLLOUT, "p"))
    assert (seconds < 0.1) == is_last


def test_claims_that_fail_together_are_written_at_most_every_ten_seconds_but_the_first_and_the_last_soon() -> None:
    written: dict[Key, list[float]] = {}

    async def work(key: Key) -> None:
        written.setdefault(key, []).append(asyncio.get_running_loop().time())
        state._on_summary_change(key.kind, Change(key.name, None, usage))

    async def main() -> None:
        running = asyncio.create_task(queue.run())
        with state.claims.following(state._on_claim_change):
            for number in range(400):
                state.claims.put(f"a/c{number}", claim())
            await asyncio.sleep(5)
            began = asyncio.get_running_loop().time()
            for status in ("False", "True"):
                for number in range(400):
                    state.claims.put(f"a/c{number}", claim(device(status)))
                    await asyncio.sleep(0.05)
                await asyncio.sleep(20)
        running.cancel()
        assert not [*state.topology_failures.of("net"), *state.policy_failures.of("rails")]
        for key in (Key(TOPOLOGY_USAGE, "net"), Key(POLICY_ROLLOUT, "rails")):
            seconds = [time - began for time in written[key] if time >= began]
            assert len(seconds) <= 9, seconds
            assert seconds[0] < 1.1, "the first failure"
            assert any(59.9 < time < 61.1 for time in seconds), "the last recovery"

    usage = documents.convert(
        {"metadata": {"name": "net"}, "apiVersion": GROUP_VERSION, "kind": TOPOLOGY_USAGE}, NetworkTopologyUsage, "test"
    )
    queue = WorkQueue[Key]("test", work)
    state = State(cast(Client, None), queue)
    virtual_time.run(main())


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
