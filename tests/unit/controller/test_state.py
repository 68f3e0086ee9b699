"""The index of reports follows the nodes, keeps nothing of what is gone, and knows what changed."""

from __future__ import annotations

from typing import Any

from netdra.controller.state import ReportIndex, published
from netdra.kube.store import Change
from netdra.model import documents
from netdra.model.device import Features
from netdra.model.node_network import NodeNetworkReport, PolicyAtNode, policies_of


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
