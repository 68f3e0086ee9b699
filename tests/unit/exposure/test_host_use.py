"""A device that the host uses is not offered whole: its shares may be, and a policy may report that all of it is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netdra.exposure import expose
from netdra.model.device import Decision, ExposureResult
from netdra.model.inventory import Interface, attributes
from netdra.model.policy import DeviceExposurePolicy
from tests.builders import OURS, exclude, exclusive, inventory, pf, policy, shared, vf

NIC = Interface(if_name="eth1", type="nic", mac="02:00:00:00:00:01", mtu=1500)
USED = msgspec.structs.replace(NIC, host_use=("bridge-port br0", "address"), master="br0")
UNKNOWN = msgspec.structs.replace(NIC, unreadable=("host_use",))


def names(result: ExposureResult) -> list[str]:
    return [device.name for device in result.devices]


def decision(interface: Interface, *policies: DeviceExposurePolicy) -> Decision:
    return expose(inventory(interface), policies).decisions[0]


@pytest.mark.parametrize(
    ("interface", "hidden", "reason"),
    [
        (USED, "host-use", "hidden: the host uses it (bridge-port br0, address), and no matching policy"),
        (UNKNOWN, "host-use-unknown", "hidden: it is unknown whether the host uses it, and no matching policy"),
        (msgspec.structs.replace(NIC, master="bond0"), "host-use", "hidden: the host uses it (port bond0)"),
        (msgspec.structs.replace(NIC, upper_devices=("a.7",)), "host-use", "hidden: the host uses it (parent a.7)"),
    ],
)
def test_an_interface_that_the_host_uses_or_may_use_is_not_offered_whole(
    interface: Interface, hidden: str, reason: str
) -> None:
    found = decision(interface, exclusive("p", "true"))
    assert (found.exposed, found.hidden) == ((), hidden)
    assert found.reason.startswith(reason)
    assert [verdict.outcome for verdict in found.verdicts] == ["overruled"]


def test_the_end_of_a_pair_whose_other_end_may_be_in_a_pod_is_offered_by_no_policy() -> None:
    interface = msgspec.structs.replace(NIC, type="veth", peer_unknown=True)
    found = decision(
        interface,
        exclusive("allowed", "true", allowHostUse=True, allowHostUplink=True),
        shared("s", "true", supportedCNIPlugins=[{"name": "macvlan"}], deviceNameSuffix="-s"),
    )
    assert (found.exposed, found.hidden) == ((), "peer-unknown")
    assert found.reason == "hidden: it is unknown whether the other end of its pair is in a pod"


@pytest.mark.parametrize("interface", [USED, UNKNOWN])
def test_its_shares_are_offered(interface: Interface) -> None:
    assert names(expose(inventory(interface), [shared("p", "true", supportedCNIPlugins=[{"name": "macvlan"}])])) == [
        "eth1"
    ]


@pytest.mark.parametrize("interface", [USED, UNKNOWN])
def test_allow_host_use_offers_a_used_interface_whole_unless_an_exclude_policy_matches(interface: Interface) -> None:
    plain = exclusive("plain", "true", spec={"priority": 900})
    allowed = exclusive("allowed", "true", allowHostUse=True)
    result = expose(inventory(interface), [plain, allowed])
    assert [(device.name, device.policy, device.allow_host_use) for device in result.devices] == [
        ("eth1", "allowed", True)
    ]
    assert {each.policy: each.outcome for each in result.decisions[0].verdicts} == {
        "plain": "overruled",
        "allowed": "wins",
    }
    assert names(expose(inventory(interface), [allowed, exclude("x", "true")])) == []


@pytest.mark.parametrize(
    ("exposure", "offered"),
    [
        ({}, False),
        ({"supportedCNIPlugins": [{"name": "bridge", "exclusive": True}]}, False),
        ({"supportedCNIPlugins": [{"name": "host-device"}]}, False),
        ({"supportedCNIPlugins": [{"name": "vfio-pci"}, {"name": "macvlan"}]}, False),
        ({"supportedCNIPlugins": [{"name": "macvlan"}]}, True),
        ({"supportedCNIPlugins": [{"name": "bridge"}, {"name": "ovs"}]}, True),
    ],
)
def test_a_used_interface_is_offered_to_one_claim_only_if_its_plugins_leave_it_on_the_host(
    exposure: dict[str, Any], offered: bool
) -> None:
    """One claim at a time through plugins that leave the interface where it is takes nothing from the host."""
    assert bool(names(expose(inventory(USED), [policy("p", "true", **exposure)]))) == offered


def test_a_shared_device_loses_the_plugins_that_would_take_it_away() -> None:
    both = shared("p", "true", supportedCNIPlugins=[{"name": "macvlan"}, {"name": "host-device"}])
    result = expose(inventory(USED), [both])
    assert result.devices[0].attributes["dra.networking/supportedCNIs"] == ("macvlan",)
    (verdict,) = result.decisions[0].verdicts
    assert verdict.outcome == "wins"
    assert verdict.detail.startswith("without removing it from the host: the host uses it (bridge-port br0")
    assert names(expose(inventory(USED), [shared("p", "true", supportedCNIPlugins=[{"name": "sriov"}])])) == []
    assert expose(inventory(NIC), [both]).devices[0].attributes["dra.networking/supportedCNIs"] == (
        "macvlan",
        "host-device",
    )


def test_of_a_policy_that_makes_two_devices_the_shared_one_is_offered() -> None:
    plugins = [{"name": "macvlan"}, {"name": "host-device", "exclusive": True}]
    capacity = {"ports": {"value": 8, "requestPolicy": {"default": 1}}}
    mixed = policy("p", "true", supportedCNIPlugins=plugins, capacity=capacity)
    assert names(expose(inventory(NIC), [mixed])) == ["eth1", "eth1-exclusive"]
    assert names(expose(inventory(USED), [mixed])) == ["eth1"]


def test_a_whole_device_that_cannot_be_offered_gives_way_to_shares_of_the_same_suffix() -> None:
    policies = [exclusive("whole", "true", spec={"priority": 900}), shared("shares", "true")]
    assert [device.policy for device in expose(inventory(NIC), policies).devices] == ["whole"]
    assert [device.policy for device in expose(inventory(USED), policies).devices] == ["shares"]


def test_host_use_does_not_lift_the_protection_of_the_uplink() -> None:
    uplink = msgspec.structs.replace(NIC, host_uplink=True, host_use=("address", "route"))
    assert decision(uplink, exclusive("p", "true", allowHostUse=True)).hidden == "uplink"
    assert decision(uplink, exclusive("p", "true", allowHostUplink=True)).hidden == "host-use"
    assert decision(uplink, shared("p", "true", allowHostUplink=True)).exposed == ("eth1",)
    assert decision(uplink, exclusive("p", "true", allowHostUplink=True, allowHostUse=True)).exposed == ("eth1",)


def test_a_pf_with_a_vf_in_host_use_is_offered_but_cannot_be_allocated_whole() -> None:
    parent = pf("ens1", vfs=2)
    used = vf(parent, 1, host_use=("address",))
    result = expose(inventory(parent, vf(parent, 0), used), [exclusive("p", "true")])
    assert names(result) == ["ens1", "ens1v0"]
    slots = [device.consumes["ens1-counters"]["exclusion-slots"] for device in result.devices]
    assert slots == [3, 1]
    assert result.counter_sets[0].counters["exclusion-slots"] == 2


@pytest.mark.parametrize("exposure", [{}, {"allowHostUplink": True, "allowHostUse": True}])
def test_the_loopback_interface_is_never_offered(exposure: dict[str, Any]) -> None:
    lo = Interface(if_name="lo", type="loopback")
    found = decision(lo, exclusive("p", "true", **exposure))
    assert (found.exposed, found.hidden) == ((), "loopback")


def test_policies_can_select_devices_by_their_host_use() -> None:
    matching = shared("p", f'{OURS}.hostUse.contains("bridge-port br0")')
    assert names(expose(inventory(USED, msgspec.structs.replace(NIC, if_name="eth2")), [matching])) == ["eth1"]
    assert attributes(USED)["dra.networking/hostUse"] == "bridge-port br0,address"
    assert "dra.networking/hostUse" not in attributes(UNKNOWN)


CONFIGURED = msgspec.structs.replace(NIC, host_use=("address", "route"))


@pytest.mark.parametrize(
    ("interface", "offered"),
    [
        (CONFIGURED, True),
        (msgspec.structs.replace(NIC, host_use=("address",)), True),
        (NIC, True),
        (USED, False),
        (msgspec.structs.replace(NIC, host_use=("address", "xdp")), False),
        (msgspec.structs.replace(NIC, host_use=("pod-peer",)), False),
        (UNKNOWN, False),
    ],
)
def test_addresses_and_routes_alone_can_be_allowed(interface: Interface, offered: bool) -> None:
    """The words of `kernel.host_use` that only show that the device has a configuration."""
    allowed = exclusive("rails", "true", "host-device", allowHostAddresses=True, keep=["addresses", "routes"])
    devices = expose(inventory(interface), [allowed]).devices
    assert [(device.name, device.allow_host_addresses, device.keep) for device in devices] == (
        [("eth1", True, ("addresses", "routes"))] if offered else []
    )


def test_the_management_nic_is_not_offered_with_the_rails() -> None:
    uplink = msgspec.structs.replace(CONFIGURED, host_uplink=True)
    assert decision(uplink, exclusive("rails", "true", "host-device", allowHostAddresses=True)).hidden == "uplink"


@pytest.mark.parametrize(
    ("interface", "words"),
    [(CONFIGURED, "sets allowHostAddresses or allowHostUse"), (USED, "sets allowHostUse")],
)
def test_the_reason_names_the_word_that_would_do(interface: Interface, words: str) -> None:
    assert decision(interface, exclusive("p", "true")).reason.endswith(words)


def test_a_default_route_that_only_rules_lead_to_is_allowed_with_addresses() -> None:
    """A rail has a table of its own with a default route; the uplink's is in the main table."""
    rail = msgspec.structs.replace(CONFIGURED, host_uplink=True, uplink_by_rules=True)
    assert decision(rail, exclusive("rails", "true", "host-device", allowHostAddresses=True)).exposed == ("eth1",)
    hidden = decision(rail, exclusive("p", "true", allowHostUse=True))
    assert hidden.hidden == "uplink"
    assert hidden.reason.endswith("sets allowHostAddresses or allowHostUplink")
