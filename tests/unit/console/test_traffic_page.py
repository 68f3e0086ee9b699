"""The page of the traffic shows rates, the busiest first, and curves of bounded size, or why they are missing."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.console.frame import STILL
from netdra.console.listing import ROWS, Shown
from netdra.console.traffic_page import MAX_LINES, PodTraffic, curve, rate, traffic_page
from netdra.story.traffic import HISTORY, InterfaceTraffic
from tests.unit.console import gallery
from tests.unit.console.reading import Page
from tests.unit.console.scene import HOSTILE
from tests.unit.console.test_pages import _assert_harmless, _rows


def page(found: PodTraffic, shown: Shown = Shown()) -> Page:  # noqa: B008
    """The page of a reading."""
    return Page(traffic_page(found, shown, STILL))


def test_interfaces_with_errors_are_first_then_the_busiest_and_any_column_sorts() -> None:
    names = [f"shop/db-{number}" for number in (5, 0, 1, 2, 3, 4, *range(6, 12))]
    found = page(gallery.traffic())
    assert _rows(found) == [*names, "web/web-0"]
    assert "Active 10 Drops 1 Errors 1 Idle 1" in found.words
    assert 'Node "worker-12": no answer' in found.words
    assert _rows(page(gallery.traffic(), Shown(sort="sent")))[0] == "web/web-0"
    assert _rows(page(gallery.traffic(), Shown(state="Drops"))) == ["shop/db-3"]
    assert _rows(page(gallery.traffic(), Shown(namespace="web"))) == ["web/web-0"]
    assert {"/pods/shop/db-0", "/devices/worker-01/ens1f0v0", "/nodes/worker-01"} <= {*found.links}


def test_rates_are_short_and_the_share_of_a_bandwidth_is_a_bar() -> None:
    row = InterfaceTraffic(
        node="n", namespace="a", pod="b", receive_bytes=118_750_000.0, transmit_bytes=512.0, bandwidth=125_000_000
    )
    found = page(PodTraffic([row]))
    assert "119 MB/s 512 B/s 95% of 125 MB/s" in found.words
    assert [(box.attributes["class"], box.attributes["width"]) for box in found.all("rect", "warn")] == [
        ("warn", "95.00")
    ]
    assert next(each for each in found.all("span") if each.words == "119 MB/s").attributes["title"] == "118,750,000 B/s"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0 B/s"),
        (999.4, "999 B/s"),
        (999.6, "1.00 kB/s"),
        (12_345, "12.3 kB/s"),
        (5e10, "50.0 GB/s"),
        (9e16, "90000 TB/s"),
    ],
)
def test_a_rate_has_three_digits_and_a_unit(value: float, words: str) -> None:
    assert rate(value) == words


@given(st.lists(st.floats(0, 1e13), max_size=HISTORY))
def test_a_curve_stays_in_its_box_and_ends_at_its_right(history: list[float]) -> None:
    drawn = curve(history)
    if len(history) < 2:
        assert drawn is None
        return
    assert drawn is not None
    (path,) = Page(drawn.text.encode()).all("path")
    points = [tuple(map(float, point.split())) for point in path.attributes["d"].removeprefix("M").split("L")]
    assert len(points) == len(history)
    assert points[-1][0] == 100.0
    assert all(0 <= across <= 100 and 2 <= down <= 22 for across, down in points)
    assert [down for _, down in points].index(min(down for _, down in points)) <= history.index(max(history))


def test_a_page_without_counters_has_the_reason_and_the_next_step() -> None:
    found = page(PodTraffic(problem="the drivers are away", next_step="Start them."))
    assert [entry.words for entry in found.all("p", "bad")] == ["the drivers are away"]
    assert "Start them." in found.words


def test_names_of_interfaces_are_text_and_long_lists_have_pages() -> None:
    texts = ("node", "namespace", "pod", "claim", "request", "step", "interface", "device", "network")
    row = msgspec.convert({**dict.fromkeys(texts, HOSTILE), "history": (1.0, 2.0)}, InterfaceTraffic)
    found = page(PodTraffic([row] * (ROWS + 1), unread=(HOSTILE,)))
    _assert_harmless(found)
    assert "<script>alert(1)</script>" in found.words
    assert len(_rows(found)) == ROWS
    _assert_harmless(page(PodTraffic(problem=HOSTILE, next_step=HOSTILE)))


def test_a_large_cluster_shows_the_busiest_interfaces_those_with_errors_among_them() -> None:
    rows = [
        InterfaceTraffic(node="n", namespace="a", pod=f"p{at}", receive_bytes=9e6 - at, errors=float(at == MAX_LINES))
        for at in range(MAX_LINES + 2)
    ]
    found = page(PodTraffic(rows))
    assert _rows(found)[:2] == [f"a/p{MAX_LINES}", "a/p0"]
    assert (
        f"2 more interfaces match; the busiest are listed. Filter by a name or a node. All {MAX_LINES}" in found.words
    )
    assert _rows(page(PodTraffic(rows), Shown(text=f"a/p{MAX_LINES + 1}"))) == [f"a/p{MAX_LINES + 1}"]
    assert "No interface matches the filter." in page(PodTraffic(rows), Shown(text="none")).words
