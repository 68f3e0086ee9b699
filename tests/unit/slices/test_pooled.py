"""The allocator gives pooled VFs as kube-scheduler was seen to give them (`tests.drawn.pooled`)."""

from __future__ import annotations

import pytest

from netdra.exposure import expose
from netdra.slices.pack import pack
from netdra.topology.classes import device_classes
from tests.builders import inventory
from tests.drawn.pooled import ROWS, TOPOLOGY, allocate, given, interfaces, policies

NODE = "worker-1"


@pytest.mark.parametrize("row", ROWS)
def test_pooled_vfs_are_given_as_the_scheduler_gives_them(row: str) -> None:
    lanes, pods = ROWS[row]
    slices = pack(expose(inventory(*interfaces(), node=NODE), policies(lanes)), node=NODE)
    outcomes = allocate(row, slices, device_classes(TOPOLOGY), NODE)
    assert [list(given(outcome)) for outcome in outcomes] == [list(pod.given) for pod in pods]
