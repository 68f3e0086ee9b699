"""Free addresses as spans behave as a set of numbers does, in time that does not grow with the range."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from netdra.networks.free import FreeAddresses
from netdra.networks.ranges import Span

SPANS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), min_size=1, max_size=5)


def spans_of(drawn: list[tuple[int, int]]) -> list[Span]:
    """Spans apart from each other, from gaps and lengths."""
    spans, at = [], 0
    for gap, length in drawn:
        spans.append(Span(at + gap + 1, at + gap + 1 + length))
        at = spans[-1].last + 1
    return spans


@given(drawn=SPANS, acts=st.lists(st.tuples(st.booleans(), st.integers(0, 70)), max_size=80))
def test_taking_and_returning_are_those_of_a_set(drawn: list[tuple[int, int]], acts: list[tuple[bool, int]]) -> None:
    spans = spans_of(drawn)
    every = {number for span in spans for number in range(span.first, span.last + 1)}
    model, free = set(every), FreeAddresses(spans)

    for takes, number in acts:
        if takes:
            assert free.take(number) == (number in model)
            model.discard(number)
        else:
            assert free.put_back(number) == (number in every - model)
            model |= {number} & every
        assert free.count == len(model)
        assert all((other in free) == (other in model) for other in range(72))
        behind = [other for other in sorted(model) if other > number]
        assert free.after(number) == next(iter(behind or sorted(model)), None)


def test_a_subnet_of_ipv6_is_not_enumerated() -> None:
    free = FreeAddresses([Span(1, 2**64 - 1)])

    assert free.take(5)
    assert free.total == 2**64 - 1
    assert free.count == 2**64 - 2
    assert free.after(4) == 6


def test_a_16_fills_in_linear_time_and_stays_quick_when_it_is_fragmented() -> None:
    free, last = FreeAddresses([Span(1, 65534)]), 0
    began = time.process_time()

    for _ in range(65534):
        last = free.after(last) or 0
        assert free.take(last)
    assert free.after(last) is None
    for number in range(1, 65535, 2):
        assert free.put_back(number)
    for _ in range(32767):
        last = free.after(last) or 0
        assert free.take(last)

    assert free.count == 0
    assert time.process_time() - began < 10  # 0.5 s here; a scan of the range for each address takes minutes
