"""BPF programs that a pod attaches to its VF do not reach the next pod, nor do they keep the VF from it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from netdra.kernel.netns import Namespace
from tests import programs
from tests.hardware.node import PF, ip
from tests.hardware.pods import Pod, allocated, assert_as_before, node_state
from tests.plans import plan, step

PLACES = ("tcx ingress", "tcx egress", "xdp generic")  # igbvf has no XDP of its own


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_a_program_that_a_pod_leaves_on_its_vf_does_not_reach_the_next_pod(
    pfs: tuple[PF, ...], new_pod: Callable[[], Pod], place: str, gone: bool
) -> None:
    vf = pfs[0].vf(1)
    before, first = node_state(), new_pod()
    first.attach(plan(step("vf", "sriov", "net1", device=allocated(vf))))
    with Namespace.open(first.path) as inside:
        inside.run(lambda: programs.attach("net1", place))
    if gone:
        ip("netns", "delete", first.netns)
    report = first.detach()
    assert report.is_clean, str(report)
    assert f'"of_a_pod" ({place})' in str(report)
    assert programs.on(vf.name) == []
    assert "xdp" not in ip("link", "show", vf.name)
    assert_as_before(before, first.settings)
    second = new_pod()
    second.attach(plan(step("vf", "sriov", "net1", device=allocated(vf))))
    assert second.detach().is_clean
    assert_as_before(before, second.settings)
