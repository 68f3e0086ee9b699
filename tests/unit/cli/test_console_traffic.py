"""The console's traffic: drivers are read once for all pages that ask, and a problem comes with its next step."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping

import msgspec
import pytest

from netdra.console import live_cluster, traffic
from netdra.console.live_cluster import LiveCluster, UserCluster, UserRights
from netdra.console.traffic import MAX_DRIVERS, DriverPlace, TrafficFollower
from netdra.console.traffic_page import PodTraffic
from netdra.kube.client import Client
from netdra.kube.errors import Status, api_error, no_answer
from netdra.node import metrics
from netdra.ops.metrics import series_name
from tests.memory_api import MemoryApi

PLACE = DriverPlace("netdra-system", 9999)
DRIVERS = "/api/v1/namespaces/netdra-system/pods"
MEASURED = "netdra_traffic_read_duration_seconds_count 1.0\n"
FORBIDDEN = Status(
    code=403,
    reason="Forbidden",
    message='pods "d1" is forbidden: User "c" cannot get resource "pods/proxy" in API group "" in the namespace "x"',
)


def page(pods: Mapping[str, int]) -> str:
    """A driver's page with the received bytes of pods, by namespace and name."""
    lines = (
        f"{series_name(metrics.RECEIVE_BYTES, (*pod.split('/'), 'c', 'nic', 'vf', 'net1', 'eth1v0', 'blue'))}{value}\n"
        for pod, value in pods.items()
    )
    return "".join((MEASURED, "# TYPE netdra_pod_network_receive_bytes_total counter\n", *lines))


class Drivers(MemoryApi):
    """An API server with drivers on nodes, whose pages are a function's."""

    def __init__(self, nodes: int, written: Callable[[str], str]) -> None:
        super().__init__()
        self.nodes, self.written = [f"n{number}" for number in range(nodes)], written
        self.paths: list[str] = []

    async def read(self, path: str, what: str, parameters: Mapping[str, str] | None = None) -> bytes:
        self.paths.append(path)
        if path == DRIVERS:
            asked = dict(parameters or {})
            only = asked.get("fieldSelector", "").partition("=")[2]
            nodes = [node for node in self.nodes if only in ("", node)][: int(asked["limit"])]
            return msgspec.json.encode(
                {"items": [{"metadata": {"name": f"d{node}"}, "spec": {"nodeName": node}} for node in nodes]}
            )
        name = path.removeprefix(f"{DRIVERS}/d").removesuffix(":9999/proxy/metrics")
        assert name in self.nodes, path
        return self.written(name).encode()


def follow(api: Drivers, *nodes: str, monkeypatch: pytest.MonkeyPatch) -> list[PodTraffic]:
    """The content of pages that are opened one after the other, each with a reading of its own."""
    monkeypatch.setattr(traffic, "EVERY_SECONDS", 0.0)

    async def run() -> list[PodTraffic]:
        follower = TrafficFollower(api, PLACE)
        return [await follower.now(node) for node in nodes]

    return asyncio.run(run())


def test_rates_are_shown_from_the_second_reading_on_and_a_node_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = itertools.count(step=1000)
    api = Drivers(2, lambda node: page({f"default/on-{node}": next(counts)}))
    first, second, third, alone, again = follow(api, "", "", "", "n1", "n1", monkeypatch=monkeypatch)
    assert [*first.rows, *alone.rows] == []
    assert "second reading" in first.next_step
    assert {row.pod for row in second.rows} == {"on-n0", "on-n1"}
    assert [len(row.history) for row in third.rows] == [2, 2]
    assert [row.pod for row in again.rows] == ["on-n1"]
    assert all(row.receive_bytes > 0 for row in again.rows)


def test_pages_that_ask_together_cost_one_reading() -> None:
    api = Drivers(1, lambda _: page({"default/a": 1}))

    async def run() -> None:
        follower = TrafficFollower(api, PLACE)
        await asyncio.gather(*(follower.now("") for _ in range(8)))

    asyncio.run(run())
    assert len(api.paths) == 2


def _away(_: str) -> str:
    raise no_answer("get metrics", "connection refused")


def _refused(_: str) -> str:
    raise api_error("get metrics", FORBIDDEN)


@pytest.mark.parametrize(
    ("nodes", "text", "problem", "step"),
    [
        (0, _away, 'namespace "netdra-system" has no pod', "Check --node"),
        (1, _away, "connection refused", "Set metrics.podMonitor"),
        (1, _refused, 'cannot get resource "pods/proxy"', "Set console.traffic"),
        (1, lambda _: "x 1\n", "version that does not export", "Check that netdra node runs"),
        (1, lambda _: page({}).replace(MEASURED, ""), "do not export the counters", "Set node.traffic.enabled"),
        (1, lambda _: page({}), "", "No pod has an interface"),
        (MAX_DRIVERS + 1, _away, "", f"More than {MAX_DRIVERS} nodes"),
    ],
)
def test_counters_that_cannot_be_read_have_a_reason_and_a_next_step(
    nodes: int, text: Callable[[str], str], problem: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = follow(Drivers(nodes, text), "", "", monkeypatch=monkeypatch)[-1]
    assert problem in last.problem
    assert bool(problem) == bool(last.problem)
    assert last.next_step.startswith(step)


def test_a_node_whose_driver_does_not_answer_is_named_beside_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = itertools.count(step=1000)
    api = Drivers(2, lambda node: page({"default/a": next(counts)}) if node == "n0" else _away(node))
    last = follow(api, "", "", monkeypatch=monkeypatch)[-1]
    assert [row.node for row in last.rows] == ["n0"]
    assert last.unread == ('Node "n1": API server: get metrics: connection refused',)


def test_users_and_consoles_of_some_namespaces_see_the_pods_of_these_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "EVERY_SECONDS", 0.0)
    counts = itertools.count(step=1000)
    api = Drivers(1, lambda _: page({f"{place}/p": next(counts) for place in ("shop", "web", "ops")}))

    async def namespaces(cluster: LiveCluster) -> set[str]:
        await cluster.traffic("")
        return {row.namespace for row in (await cluster.traffic("")).rows}

    async def run() -> list[set[str]]:
        whole = LiveCluster(api, (), PLACE)
        everyone = UserCluster(whole, api, UserRights(frozenset({"pods"}), frozenset()))
        someone = UserCluster(whole, api, UserRights(frozenset(), frozenset()))
        some = LiveCluster(api, ("shop", "web"), PLACE)
        return [await namespaces(cluster) for cluster in (whole, some, everyone, someone)]

    async def may_list(client: Client, group: str, plural: str, namespace: str = "") -> bool:
        return (group, plural, namespace) == ("", "pods", "web")

    monkeypatch.setattr(live_cluster, "_may_list", may_list)
    every = {"shop", "web", "ops"}
    assert asyncio.run(run()) == [every, {"shop", "web"}, every, {"web"}]
