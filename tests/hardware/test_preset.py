"""The preset `shared` on NICs: a PF is shared by count, and pods with a macvlan or an ipvlan of it reach each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from netdra.chain.check import check
from netdra.cli.preset import shared
from netdra.discovery.scan import scan
from netdra.exposure.expose import expose
from netdra.model.inventory import InventoryNode
from netdra.slices.pack import layout
from netdra.topology.devices import from_slices
from tests.hardware.node import PF, ip, ping
from tests.hardware.pods import Pod, assert_as_before, node_state
from tests.plans import on_devices

PODS = 30
STEP = "[{{name: net, type: {kind}, config: {{ipam: {{type: static, addresses: [{{address: {address}/24}}]}}}}}}]"


@pytest.mark.parametrize("kind", ["macvlan", "ipvlan"])
def test_two_pods_of_one_pf_reach_each_other(pfs: tuple[PF, ...], new_pod: Callable[[], Pod], kind: str) -> None:
    packed = layout(
        expose(
            scan(InventoryNode(name="sriov", allocatable={"pods": str(PODS)})),
            (shared("shared", kind, ("nic", "pf"), host_uplink=False),),
        ),
        node="sriov",
        generation=1,
    )
    assert packed.problems == ()
    offered = {device.name: device for one in packed.slices for device in one.spec.devices}
    assert {pf.name for pf in pfs} <= offered.keys()
    assert not any(name.startswith(f"{pf.name}v") for pf in pfs for name in offered)  # VFs are nobody's to share
    device = offered[pfs[0].name]
    assert device.allow_multiple_allocations
    assert {str(value.value) for name, value in device.capacity.items() if name.endswith("/count")} == {str(PODS)}

    ip("link", "set", pfs[0].name, "up")
    before = node_state()
    (planned,) = (each for (_, name), each in from_slices(packed.slices).items() if name == pfs[0].name)
    pods = [new_pod(), new_pod()]
    for number, pod in enumerate(pods):
        pod.attach(on_devices(STEP.format(kind=kind, address=f"10.9.0.{number + 1}"), net=planned))
    for pod in pods:
        assert pod.link("net1")["linkinfo"]["info_kind"] == kind
        assert check(pod.netns, pod.settings).is_clean
    ping("10.9.0.2", pods[0].netns)
    ping("10.9.0.1", pods[1].netns)
    for pod in pods:
        assert pod.detach().is_clean
    assert_as_before(before, pods[0].settings)
