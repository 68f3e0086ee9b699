"""Links that a pod put on its VF and left in another namespace: kinds that the machine of the other tests lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from netdra.chain import returned
from tests.hardware.node import PF, ip, links
from tests.hardware.pods import Pod, allocated
from tests.plans import plan, step

KINDS = {
    "macvlan": ("type", "macvlan", "mode", "passthru"),
    "macvtap": ("type", "macvtap", "mode", "bridge"),
    "ipvlan": ("type", "ipvlan", "mode", "l2"),
    "ipvtap": ("type", "ipvtap", "mode", "l2"),
    "vlan": ("type", "vlan", "id", "5"),
    "macsec": ("type", "macsec"),
}
SECONDS = 120.0


@pytest.fixture
def elsewhere() -> Iterator[str]:
    ip("netns", "add", "elsewhere")
    yield "elsewhere"
    ip("netns", "delete", "elsewhere")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("directly", [False, True])
def test_a_link_of_a_vf_in_another_namespace_goes_before_the_next_pod_comes(
    pfs: tuple[PF, ...], new_pod: Callable[[], Pod], elsewhere: str, kind: str, directly: bool
) -> None:
    vf, first = pfs[0].vf(1), new_pod()
    first.attach(plan(step("vf", "sriov", "net1", device=allocated(vf))))
    there = ("netns", elsewhere) if directly else ()
    ip("link", "add", "spy0", "link", "net1", *there, *KINDS[kind], netns=first.netns)
    if not directly:
        ip("link", "set", "spy0", "netns", elsewhere, netns=first.netns)
    assert first.detach().is_clean
    second = new_pod()
    second.attach(plan(step("vf", "sriov", "net1", device=allocated(vf))))
    assert "spy0" not in links(elsewhere)
    assert second.detach().is_clean


def test_a_tunnel_that_routes_by_a_device_of_the_node_stays(pfs: tuple[PF, ...], pod: Pod, elsewhere: str) -> None:
    vf = pfs[0].vf(2)
    pod.attach(plan(step("vf", "sriov", "net1", device=allocated(vf))))
    assert pod.detach().is_clean
    ip("link", "add", "t0", "type", "xfrm", "dev", vf.name, "if_id", "7")
    ip("link", "set", "t0", "netns", elsewhere)
    assert not returned.examine(pod.settings.state, SECONDS).findings
    assert "t0" in links(elsewhere)
