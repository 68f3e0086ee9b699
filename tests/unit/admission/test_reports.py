"""Nodes and their reports are kept in little memory, and are read as they were written."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from netdra.admission.nodes import Nodes
from netdra.admission.reports import DECODED, LabelledNode, NodeReport
from netdra.model.node_network import InterfaceGroup, PublishedDevice
from tests.unit.admission import kept

VF_FACTS: dict[str, Any] = {f"vendor.example/attribute-number-{number}": f"value {number}" for number in range(20)}
VFS = InterfaceGroup(
    type="vf", count=64, vfs="0-63", devices=(PublishedDevice(policy="vfs"),), attributes={**VF_FACTS, "rdma": True}
)


def pf(number: int) -> InterfaceGroup:
    """The PF of a node, with an address of its own."""
    return InterfaceGroup(type="pf", count=1, listed=("p0",), attributes={"mac": f"02:00:00:00:{number:02x}:01"})


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def test_interfaces_are_read_as_they_were_written() -> None:
    assert kept.report("n0", [VFS, pf(0)]).interfaces == (VFS, pf(0))
    assert kept.report("n0").interfaces == kept.report("n0", []).interfaces == ()


@pytest.mark.usefixtures("traced")
def test_equal_entries_of_many_nodes_take_the_memory_of_one() -> None:
    def reports(numbers: range) -> list[NodeReport]:
        return [kept.report(f"n{number}", [VFS, pf(number)]) for number in numbers]

    first = reports(range(DECODED))
    before, _ = tracemalloc.get_traced_memory()
    more = reports(range(DECODED, 2 * DECODED))
    after, _ = tracemalloc.get_traced_memory()
    assert len(first) == len(more) == DECODED
    assert (after - before) / DECODED < len(msgspec.json.encode(VFS))


@pytest.mark.usefixtures("traced")
def test_large_reports_that_a_node_writes_again_and_again_are_not_remembered() -> None:
    nodes, size = Nodes(), 100_000
    text = "x" * size
    with nodes.following():
        before = 0
        for number in range(40):
            large = InterfaceGroup(
                type="nic",
                count=1,
                listed=(f"n{number}-{text[:200]}",),
                devices=(PublishedDevice(policy="p", name=f"d{number}"),),
                attributes={"x.example/a": f"{number}{text}"},
            )
            nodes.reports.put("n0", kept.report("n0", [large]))
            asyncio.run(nodes.most_devices())
            asyncio.run(nodes.read_reports(frozenset({"x.example/a"}), None))
            before = before or tracemalloc.get_traced_memory()[0]
    assert tracemalloc.get_traced_memory()[0] - before < 10 * size


def test_numbers_and_truths_stay_apart() -> None:
    one, true = (InterfaceGroup(type="nic", count=1, attributes={"x.example/a": value}) for value in (1, True))
    for group, value in ((one, 1), (true, True), (one, 1)):
        (read,) = kept.report("n0", [group]).interfaces
        assert read.attributes["x.example/a"] is value


def test_an_entry_of_another_form_makes_the_report_unreadable() -> None:
    with pytest.raises(msgspec.ValidationError, match="Expected `int`, got `str`"):
        msgspec.json.decode(
            '{"metadata": {"name": "n0"}, "status": {"interfaces": [{"type": "pf", "count": "one"}]}}', type=NodeReport
        )


def test_a_node_is_kept_with_its_labels_and_the_addresses_of_its_pods() -> None:
    written = {
        "metadata": {"name": "n0", "uid": "u", "resourceVersion": "7", "labels": {"rack": "a7"}},
        "spec": {"podCIDRs": ["10.0.0.0/24"]},
        "status": {"allocatable": {"cpu": "64"}},
    }
    first, second = (msgspec.json.decode(msgspec.json.encode(written), type=LabelledNode) for _ in range(2))
    assert (first.metadata.name, first.metadata.resource_version, first.metadata.uid) == ("n0", "7", "")
    assert first.metadata.labels == {"rack": "a7"}
    assert first.spec.pod_cidrs == ("10.0.0.0/24",)
    assert first.metadata.labels["rack"] is second.metadata.labels["rack"]


@pytest.mark.usefixtures("traced")
def test_counting_equal_nodes_takes_little_memory() -> None:
    nodes, count = Nodes(), 2 * DECODED
    for number in range(count):
        nodes.reports.put(f"n{number}", kept.report(f"n{number}", [VFS, pf(number)]))
    before, _ = tracemalloc.get_traced_memory()
    assert asyncio.run(nodes.most_devices()) == 64
    while asyncio.run(nodes.read_reports(frozenset({"dra.networking/rdma"}), None)).left:
        pass
    after, _ = tracemalloc.get_traced_memory()
    assert (after - before) / count < 600
