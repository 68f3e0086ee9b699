"""The metrics of the ranges of PodNetworks: their values, and the bound on their number."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from netdra.controller import metrics
from netdra.controller.addresses import range_gauges
from netdra.controller.addresses.range_gauges import RangeGauges
from netdra.model.pod_network import RangeUsage


@pytest.fixture
def gauges() -> Iterator[RangeGauges]:
    """The gauges of a process that leads."""
    made = RangeGauges()
    yield made
    made.clear()


def usage(cidr: str, used: int = 0, *, nearly_full: bool = False) -> RangeUsage:
    return RangeUsage(cidr=cidr, total=10, used=used, reserved=1, nearly_full=nearly_full)


def series() -> dict[tuple[str, ...], float]:
    """The values of both metrics by their labels."""
    return {
        tuple(sample.labels.values()): sample.value
        for gauge in (metrics.RANGE_ADDRESSES, metrics.RANGES)
        for family in gauge.collect()
        for sample in family.samples
    }


def test_each_range_has_its_numbers_until_its_network_is_gone(gauges: RangeGauges) -> None:
    gauges.note("storage", [usage("10.7.0.0/28", 9, nearly_full=True), usage("10.8.0.0/28", 2)], [0, 7])
    gauges.note("backup", [usage("10.9.0.0/28", 8, nearly_full=True)], [1])
    assert series() == {
        ("storage", "10.7.0.0/28", "used"): 9,
        ("storage", "10.7.0.0/28", "reserved"): 1,
        ("storage", "10.7.0.0/28", "free"): 0,
        ("storage", "10.8.0.0/28", "used"): 2,
        ("storage", "10.8.0.0/28", "reserved"): 1,
        ("storage", "10.8.0.0/28", "free"): 7,
        ("storage", "full"): 1,
        ("storage", "nearly-full"): 0,
        ("backup", "10.9.0.0/28", "used"): 8,
        ("backup", "10.9.0.0/28", "reserved"): 1,
        ("backup", "10.9.0.0/28", "free"): 1,
        ("backup", "full"): 0,
        ("backup", "nearly-full"): 1,
    }

    gauges.note("storage", [usage("10.8.0.0/28", 3)], [6])
    assert {labels for labels in series() if "storage" in labels} == {
        ("storage", "10.8.0.0/28", "used"),
        ("storage", "10.8.0.0/28", "reserved"),
        ("storage", "10.8.0.0/28", "free"),
        ("storage", "full"),
        ("storage", "nearly-full"),
    }
    gauges.forget("storage")
    gauges.forget("never-counted")
    assert {labels[0] for labels in series()} == {"backup"}
    gauges.clear()
    assert series() == {}


def test_two_ranges_of_one_subnet_are_one_series(gauges: RangeGauges) -> None:
    gauges.note("storage", [usage("10.7.0.0/24", 2), usage("10.7.0.0/24", 3)], [4, 5])
    assert series()["storage", "10.7.0.0/24", "used"] == 5
    assert series()["storage", "10.7.0.0/24", "free"] == 9


def test_networks_beyond_the_bound_are_counted_together(gauges: RangeGauges, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_gauges, "MOST_RANGES", 2)
    for name in ("a", "b", "c", "d"):
        gauges.note(name, [usage("10.7.0.0/28", 4, nearly_full=True)], [5])
    assert {labels[0] for labels in series()} == {"a", "b", "other"}
    assert series()["other", "other", "used"] == 8
    assert series()["other", "nearly-full"] == 2

    gauges.forget("c")
    assert series()["other", "other", "used"] == 4
    gauges.forget("a")
    gauges.note("d", [usage("10.7.0.0/28", 4)], [5])
    assert {labels[0] for labels in series()} == {"b", "d"}
