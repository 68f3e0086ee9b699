"""Simultaneous actions of all nodes are spread evenly over a bounded window; a small cluster has none."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.node.publishing.spread import AT_ONCE, MOST_SECONDS, place, window


@given(st.integers(0, 20_000), st.integers(0, 20_000))
def test_the_window_grows_with_the_nodes_and_is_bounded(few: int, further: int) -> None:
    assert 0.0 <= window(few) <= window(few + further) <= MOST_SECONDS
    assert window(min(few, AT_ONCE)) == 0.0


@pytest.mark.parametrize("pattern", ["worker-{}", "ip-10-0-{}.eu-west-1.compute.internal", "rack{}-node"])
def test_nodes_of_similar_names_are_spread_evenly(pattern: str) -> None:
    tenths = Counter(int(place(pattern.format(number)) * 10) for number in range(5000))
    assert set(tenths) == set(range(10))
    assert max(tenths.values()) < 1.2 * 500
