"""A shared device is compared with its state before the first of the plugin calls that overlap in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from netdra.chain.shares import _Calls
from netdra.steps.allocated import Allocated

DEVICES = ((Path("/state"), "0000:03:00.0"), (Path("/state"), "0000:03:00.1"))


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(DEVICES))))
def test_overlapping_calls_have_the_record_of_the_first_and_a_later_call_has_its_own(
    sequence: list[tuple[bool, tuple[Path, str]]],
) -> None:
    calls = _Calls()
    open_calls: dict[tuple[Path, str], list[Any]] = {device: [] for device in DEVICES}
    for begins, device in sequence:
        present = open_calls[device]
        if begins:
            record = cast("Allocated", object())
            first = calls.begin(device, record)
            assert first is (present[0] if present else record)
            present.append(first)
        elif present:
            calls.end(device)
            present.pop()
    for device, present in open_calls.items():
        for _ in present:
            calls.end(device)
        record = cast("Allocated", object())
        assert calls.begin(device, record) is record
