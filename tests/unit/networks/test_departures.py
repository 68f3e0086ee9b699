"""When a released address may go to another pod: by its node's report, and by no time further than its interval."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from netdra.model.meta import ObjectMeta, time_text
from netdra.model.node_network import NodeNetworkReport, ReportedStatus, UnassignedAddress
from netdra.model.pod_address import PodAddress
from netdra.model.pod_network import KEEP_SECONDS
from netdra.networks.departures import Intervals, has_left, interval
from tests.unit.networks.builders import address, network, owner

NOW = datetime(2026, 11, 27, 10, tzinfo=UTC)


def released(version: str = "100", node: str = "node-1") -> PodAddress:
    made = address("10.7.0.5/24", owner(), claim="", version=version)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, node_name=node))


def report(version: int, *listed: str, network: str = "storage") -> NodeNetworkReport:
    unassigned = tuple(UnassignedAddress(network=network, address=text, claim="db/c") for text in listed)
    status = ReportedStatus(unassigned_addresses=unassigned, released_version=version)
    return NodeNetworkReport(metadata=ObjectMeta(name="node-1"), status=status)


@pytest.mark.parametrize(
    ("found", "left"),
    [
        (None, False),
        (NodeNetworkReport(metadata=ObjectMeta(name="node-1")), False),
        (report(0), False),
        (report(99), False),
        (report(100), True),
        (report(200), True),
        (report(200, "10.7.0.6"), True),
        (report(200, "10.7.0.5", network="backup"), True),
        (report(200, "10.7.0.5"), False),
    ],
)
def test_an_address_has_left_once_its_node_has_reported_on_its_release(
    found: NodeNetworkReport | None, *, left: bool
) -> None:
    assert has_left(released(), found) is left


def test_an_address_of_no_node_is_in_no_pod_and_one_of_a_claim_may_be() -> None:
    assert has_left(released(node=""), None)
    made = address("10.7.0.5/24", owner(), version="100")
    of_node = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, node_name="node-1"))
    assert not has_left(of_node, report(200))


@pytest.mark.parametrize("ahead", [timedelta(), timedelta(hours=5), timedelta(days=3650)])
def test_a_time_of_a_clock_that_is_ahead_counts_no_longer_than_its_interval(ahead: timedelta) -> None:
    clock = 1000.0
    intervals, since = Intervals(lambda: clock), time_text(NOW + ahead)

    assert intervals.left("a", since, 60, NOW) == 60
    clock += 20
    assert intervals.left("a", since, 60, NOW + timedelta(seconds=20)) == 40
    clock += 41
    assert intervals.left("a", since, 60, NOW + timedelta(seconds=61)) == 0


def test_an_interval_continues_in_the_next_process() -> None:
    assert Intervals().left("a", time_text(NOW), 60, NOW + timedelta(seconds=50)) == pytest.approx(11)
    assert Intervals().left("a", time_text(NOW), 60, NOW + timedelta(seconds=61)) == 0


def test_an_interval_begins_again_with_another_time() -> None:
    clock = 0.0
    intervals = Intervals(lambda: clock)
    intervals.left("a", time_text(NOW), 60, NOW)
    clock = 30.0
    later = NOW + timedelta(seconds=30)
    assert intervals.left("a", time_text(later), 60, later) == 60


def test_an_address_is_in_quarantine_at_least_and_kept_for_an_owner_that_comes_back() -> None:
    net = network("10.7.0.0/24", keepSeconds=60, quarantineSeconds=7)
    assert [interval(released(), net, keeps=keeps) for keeps in (False, True)] == [7, 60]
    assert interval(released(), network("10.7.0.0/24", keepSeconds=0), keeps=True) == 5


def test_an_address_is_kept_for_a_time_after_its_network_was_deleted_as_it_may_be_created_again() -> None:
    assert interval(released(), None, keeps=False) == 0
    assert interval(released(), None, keeps=True) == KEEP_SECONDS
