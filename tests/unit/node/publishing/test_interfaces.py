"""A link that flaps is published only so often, and nothing else is held up by it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.kernel.device_files import DeviceFiles
from netdra.model.inventory import Interface
from netdra.node.publishing import interfaces
from netdra.node.publishing.interfaces import BURST, SECONDS_PER_CHANGE, Damper, Interfaces

UP = Interface(if_name="eth0", oper_state="up", link_speed=1000)
DOWN = Interface(if_name="eth0", oper_state="down", no_carrier=True)


def flaps(damper: Damper, count: int, *, at: float = 0.0) -> list[Interface]:
    """The damper's results for so many changes at one time."""
    return [damper.damp((DOWN if number % 2 == 0 else UP,), at)[0] for number in range(count)]


def changes(seen: list[Interface]) -> int:
    return sum(before != after for before, after in pairwise(seen))


def test_the_first_changes_pass_at_once_and_then_one_in_so_many_seconds() -> None:
    damper = Damper()
    first = [*damper.damp((UP,), 0.0), *flaps(damper, 100)]
    assert changes(first) == BURST

    seconds = range(1, 1 + int(10 * SECONDS_PER_CHANGE))
    later = [found for second in seconds for found in flaps(damper, 10, at=float(second))]
    assert changes([first[-1], *later]) == 10


def test_a_withheld_change_is_published_when_it_is_due() -> None:
    damper = Damper()
    damper.damp((UP,), 0.0)
    flaps(damper, BURST)
    known = damper.damp((UP,), 0.0)[0]
    withheld = UP if known == DOWN else DOWN
    assert damper.damp((withheld,), 0.0) == (known,)
    assert damper.due == SECONDS_PER_CHANGE

    assert damper.damp((withheld,), SECONDS_PER_CHANGE) == (withheld,)
    assert damper.due is None


def test_a_withheld_change_is_dropped_if_the_link_reverts_to_the_published_state() -> None:
    damper = Damper()
    damper.damp((UP,), 0.0)
    flaps(damper, BURST)
    known = damper.damp((UP,), 0.0)[0]
    damper.damp((UP if known == DOWN else DOWN,), 0.0)
    damper.damp((known,), 0.0)
    assert damper.due is None


def test_other_facts_and_other_interfaces_are_never_withheld() -> None:
    damper = Damper()
    damper.damp((UP,), 0.0)
    flaps(damper, 100)
    other = msgspec.structs.replace(UP, if_name="eth1")
    enslaved = msgspec.structs.replace(DOWN, master="br0", mtu=9000)
    for _ in range(100):
        assert damper.damp((enslaved, other), 0.0) == (enslaved, other)
        assert damper.damp((UP,), 0.0) == (UP,)
        assert damper.damp((), 0.0) == ()


def test_an_interface_that_repeatedly_disappears_and_returns_is_reported_each_time() -> None:
    damper = Damper()
    for number in range(100):
        found = msgspec.structs.replace(UP, link_speed=number)
        assert damper.damp((found,), 0.0) == (found,)
        assert damper.damp((), 0.0) == ()


@given(st.floats(0, 1e7), st.lists(st.floats(0, 1.5), min_size=BURST + 1, max_size=BURST + 1))
def test_a_withheld_change_is_published_when_due_regardless_of_clock_rounding(now: float, waits: list[float]) -> None:
    damper = Damper()
    damper.damp((UP,), now)
    for number, wait in enumerate(waits):
        now += wait
        found = (UP, DOWN)[number % 2 == 0]
        damper.damp((found,), now)
    assert damper.due is not None
    assert damper.damp((found,), damper.due) == (found,)


@given(st.lists(st.tuples(st.floats(0, 30), st.sampled_from((UP, DOWN))), max_size=60))
def test_the_last_state_is_published_eventually_and_never_above_the_change_rate(
    steps: list[tuple[float, Interface]],
) -> None:
    damper, now = Damper(), 0.0
    shown = damper.damp((UP,), now)[0]
    changes: list[float] = []
    last = UP
    for wait, last in steps:
        now += wait
        found = damper.damp((last,), now)[0]
        if found != shown:
            changes.append(now)
        shown = found
    if damper.due is not None:
        shown = damper.damp((last,), damper.due)[0]
    assert damper.due is None
    assert shown == last
    for first in range(len(changes) - BURST):
        assert changes[first + BURST] - changes[first] >= 0.99 * SECONDS_PER_CHANGE


class Arriving:
    """Ends of pairs that are known after a number of readings each."""

    def __init__(self, **readings: int) -> None:
        self.left = {int(index[1:]): count for index, count in readings.items()}
        self.settling = self.timeout = 0.0
        self.rescans = self.events = self.overflows = self.handled = 0
        self.stale = False

    @property
    def arriving(self) -> frozenset[int]:
        return frozenset(index for index, count in self.left.items() if count > 0)

    def handle(self) -> bool:
        self.handled += 1
        self.left = {index: count - 1 for index, count in self.left.items()} | {100 + self.handled: 1000}
        return False


def settled(watcher: Any) -> int:
    """The number of readings until the ends of pairs are known."""

    async def work() -> int:
        with ThreadPoolExecutor(1) as thread:
            await Interfaces(watcher, thread, DeviceFiles()).settle()
        return int(watcher.handled)

    return asyncio.run(work())


def test_every_end_of_a_pair_that_the_first_reading_found_is_waited_for_and_no_later_one() -> None:
    assert settled(Arriving()) == 0
    assert settled(Arriving(n1=1, n2=4)) == 4


def test_ends_of_pairs_that_never_settle_are_waited_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interfaces, "SETTLE_SECONDS", 0.1)
    assert settled(Arriving(n1=10**9)) > 1
