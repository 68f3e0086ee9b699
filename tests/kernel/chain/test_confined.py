"""A step takes allocated devices, and builds on interfaces in its pod; the node's uplink stays where it is."""

from __future__ import annotations

from typing import Any

import pytest

from netdra.chain.detach import detach
from netdra.chain.report import AttachError, AttachReport
from netdra.model.errors import InvalidInputError
from netdra.model.plan import PlannedStep
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.plans import attach, plan, step

UPLINK = "uplink"
DEVICE = step("dev", "host-device", "net1", device=device("eth7"))


@pytest.fixture
def node(bed: Bed) -> Bed:
    """A node with an uplink, a device to allocate, and an interface that the pod will have one of the same name as."""
    bed.veth(UPLINK, "wire", up=True)
    bed.veth("eth7", "peer7", up=True)
    bed.veth("net1", "peer1", up=True)
    return bed


def attached(bed: Bed, *steps: PlannedStep) -> AttachReport:
    return attach((plan(*steps),), bed.container, bed.pod.path, bed.settings)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(
    "config", [{"device": UPLINK}, {"hwaddr": ""}, {"kernelpath": "/sys/devices/virtual/net/uplink"}], ids=str
)
def test_a_derived_host_device_leaves_the_uplink_on_the_node(node: Bed, config: dict[str, str], binary: bool) -> None:
    if "hwaddr" in config:
        config = {"hwaddr": str(node.link(UPLINK)["address"])}
    before = node.state()
    with pytest.raises(InvalidInputError, match="refers to a device of the node"):
        attached(node, DEVICE, step("thief", "host-device", "net2", config, after=["dev"], binary=binary))
    assert differences(before, node.state()) == []


def test_a_root_host_device_with_a_config_for_another_device_is_rejected(node: Bed) -> None:
    before = node.state()
    named = step("dev", "host-device", "net2", {"device": UPLINK}, device=device("eth7"), binary=True)
    with pytest.raises(InvalidInputError, match='does not match the allocated device "eth7"'):
        attached(node, named)
    assert differences(before, node.state()) == []


def macvlan(config: dict[str, Any]) -> PlannedStep:
    return step("mac", "macvlan", "net2", {"mode": "bridge", **config}, after=["dev"])


def test_a_derived_macvlan_uses_the_interface_of_the_pod_despite_a_host_link_of_that_name(node: Bed) -> None:
    before = node.state()
    attached(node, DEVICE, macvlan({"master": "{{ dev.interfaceName }}", "linkInContainer": True}))
    made = node.link("net2", inside=True)
    assert (made.get("link"), "link_netnsid" in made) == ("net1", False)
    assert detach(node.container.sandbox, node.settings).is_clean
    assert differences(before, node.state()) == []


@pytest.mark.parametrize("config", [{}, {"linkInContainer": False}, {"LinkInContainer": True}], ids=str)
def test_a_derived_macvlan_that_would_look_on_the_node_does_not_run(node: Bed, config: dict[str, Any]) -> None:
    before = node.state()
    with pytest.raises(InvalidInputError, match="linkInContainer"):
        attached(node, DEVICE, macvlan({"master": UPLINK, **config}))
    assert differences(before, node.state()) == []


def test_a_program_that_does_not_heed_where_to_look_is_found_out_and_undone(node: Bed) -> None:
    # As macvlan of the CNI plugins before 1.2, which know no linkInContainer.
    (node.plugins / "macvlan").unlink()
    old = recorder(node, "macvlan")
    made = '{"cniVersion": "1.0.0", "interfaces": [{"name": "net2", "sandbox": "\'$CNI_NETNS\'"}]}'
    inside = 'ip link add link uplink name "$CNI_IFNAME" netns "$(basename "$CNI_NETNS")" type macvlan'
    old.does("ADD", f"{inside} && echo '{made}'")
    old.does("DEL", 'ip -n "$(basename "$CNI_NETNS")" link del "$CNI_IFNAME"')
    before = node.state()
    with pytest.raises(AttachError, match='"net2" was created on an interface of the node, not of the pod'):
        attached(node, DEVICE, macvlan({"master": "net1", "linkInContainer": True}))
    assert [call.verb for call in old.calls()] == ["STATUS", "ADD", "DEL"]
    assert differences(before, node.state()) == []


def test_a_root_macvlan_uses_the_allocated_device_as_its_master(node: Bed) -> None:
    attached(node, step("mac", "macvlan", "net2", {"master": "eth7", "mode": "bridge"}, device=device("eth7")))
    assert "link_netnsid" in node.link("net2", inside=True)


def test_a_derived_vlan_with_the_uplink_as_its_master_is_rejected(node: Bed) -> None:
    before = node.state()
    tag = step("tag", "vlan", "net2", {"id": 7, "master": UPLINK, "linkInContainer": False}, after=["dev"])
    with pytest.raises(InvalidInputError, match="linkInContainer must be true"):
        attached(node, DEVICE, tag)
    assert differences(before, node.state()) == []
