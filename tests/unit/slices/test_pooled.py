"""The allocator gives pooled devices as kube-scheduler was seen to give them (`tests.drawn.pooled`)."""

from __future__ import annotations

import pytest

from tests.drawn.pooled import ROWS, case, given


@pytest.mark.parametrize("row", ROWS)
def test_pooled_devices_are_given_as_the_scheduler_gives_them(row: str) -> None:
    steps = case(row, "case", "node").steps
    assert [list(given(step.outcome)) for step in steps] == [list(pod.given) for pod in ROWS[row][1]]
