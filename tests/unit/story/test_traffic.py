"""Rates of pods' interfaces come from readings of any order, length and reset, and never below zero."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from netdra.node import metrics
from netdra.ops.metrics import series_name
from netdra.story.traffic import HISTORY, InterfaceTraffic, TrafficReading, continued, rates, read

LABELS = ("default", 'p"1', "c", "nic", "vf", 'ne\\t"1', "eth1v0", "blue")
COUNTERS = st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=20)


def page(received: int, sent: int = 0, bandwidth: int = 0, labels: tuple[str, ...] = LABELS) -> str:
    """A page with one interface."""
    families = {metrics.RECEIVE_BYTES: received, metrics.TRANSMIT_BYTES: sent, metrics.BANDWIDTH: bandwidth}
    return "".join(f"{series_name(family, labels)}{value}\n" for family, value in families.items())


def readings(*counts: int, seconds: float = 2.0) -> list[TrafficReading]:
    """Readings of one interface's received bytes."""
    return [read(seconds * place, {"n1": page(count)}) for place, count in enumerate(counts)]


@given(COUNTERS)
def test_the_last_two_readings_continue_the_history_of_all(counts: list[int]) -> None:
    found = readings(*counts)
    rows: list[InterfaceTraffic] = []
    for before, after in itertools.pairwise(found):
        rows = continued(rates([before, after]), rows)
    assert rows == rates(found)


@given(COUNTERS)
def test_a_rate_is_the_increase_per_second_and_a_smaller_counter_began_again_at_zero(counts: list[int]) -> None:
    (row,) = rates(readings(*counts))
    increases = [after - before if after >= before else after for before, after in itertools.pairwise(counts)]
    assert row.receive_bytes == increases[-1] / 2.0
    assert row.history == tuple(increase / 2.0 for increase in increases[-HISTORY:])
    assert len(row.sparkline) == len(row.history)


def test_labels_are_read_as_they_were_written() -> None:
    (row,) = rates([read(0, {"n1": page(0, 0, 100)}), read(1, {"n1": page(30, 50, 100)})])
    expected = dict(zip(metrics.POD_INTERFACE, LABELS, strict=True))
    assert {name: getattr(row, name) for name in metrics.POD_INTERFACE} == expected
    assert (row.node, row.receive_bytes, row.transmit_bytes, row.share) == ("n1", 30.0, 50.0, 0.5)


def test_a_page_speaks_for_its_own_node_in_known_labels_and_numbers_of_64_bits() -> None:
    line = 'netdra_pod_network_receive_bytes_total{pod="p",node="n2",history="1",receive_bytes="9"} '
    other = line.replace('pod="p"', 'pod="q"')
    pages = [{"n1": f"{line}{value}\n{other}{'9' * 5000}\n"} for value in (0, 7)]
    (row,) = rates([read(at, found) for at, found in enumerate(pages)])
    assert (row.node, row.pod, row.receive_bytes) == ("n1", "p", 7.0)


def test_the_busiest_interface_is_first_and_interfaces_of_one_reading_are_left_out() -> None:
    others = [("default", f"p{number}", *LABELS[2:]) for number in range(3)]
    first = read(0, {"n1": "".join(page(0, labels=labels) for labels in others[:2])})
    last = read(1, {"n1": "".join(page(10 * place, labels=labels) for place, labels in enumerate(others))})
    assert [row.pod for row in rates([first, last])] == ["p1", "p0"]
    assert rates([last]) == []


def test_a_sparkline_is_full_where_the_rate_was_highest() -> None:
    assert InterfaceTraffic(history=(0.0, 50.0, 100.0)).sparkline == "▁▅█"
    assert InterfaceTraffic(history=(0.0, 0.0)).sparkline == "▁▁"
