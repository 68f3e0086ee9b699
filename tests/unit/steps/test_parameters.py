"""The words of configs of the built-in steps: netdra's and those of the well-known plugins, and no unknown ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netdra.cni.plugins import PluginPath
from netdra.kernel.route import Route
from netdra.model.errors import InvalidInputError
from netdra.model.neutron_port import PortRoute, PortSettings
from netdra.model.plan import PlannedDevice, PlannedPort
from netdra.model.topology import BUILTIN_TYPES
from netdra.steps import builtin, ported
from netdra.steps.contract import Order

NOWHERE = PluginPath(directories=())
VF = PlannedDevice(request="r", pool="p", device="d", if_name="eth7", pci_address="0000:03:00.2")


def prepared(kind: str, config: dict[str, Any], *, device: PlannedDevice | None = VF) -> None:
    order = Order(topology="t", step="s", type=kind, if_name="net1", network="t-s", config=config, device=device)
    builtin.prepare(order, NOWHERE, 1.0)


def test_the_types_that_are_built_in_are_those_of_the_model() -> None:
    assert set(builtin.TYPES) == BUILTIN_TYPES


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("sriov", {}),
        ("sriov", {"vlan": 0, "spoofchk": "off", "trust": "on"}),
        ("sriov", {"vlan": 100, "vlanQoS": 3, "vlanProto": "802.1ad", "link_state": "auto", "max_tx_rate": 100}),
        ("sriov", {"vlan": 100, "qos": 7, "proto": "802.1q", "linkState": "enable", "minTxRate": 1, "maxTxRate": 2}),
        ("sriov", {"spoofchk": False, "trust": True, "mac": "02:00:00:00:00:01", "deviceID": "0000:03:00.2"}),
        (
            "sriov",
            {"name": "eth9", "runtimeConfig": {"mac": "02:00:00:00:00:01"}, "logLevel": "debug", "logFile": "/x"},
        ),
        ("host-device", {}),
        ("host-device", {"device": "eth7", "pciBusID": "0000:03:00.2", "mtu": 9000}),
        ("tuning", {}),
        ("tuning", {"dev": "net1", "sysctl": {"net.core.somaxconn": "512"}, "promisc": True, "txQLen": 5}),
        ("vlan", {"id": 1}),
        ("vlan", {"vlanId": 4094, "master": "net1", "linkInContainer": True, "protocol": "802.1Q", "mtu": 1500}),
        ("vlan", {"id": 7, "vlanId": 7}),
        ("bond", {"mode": "802.3ad", "links": [{"name": "a"}, {"name": "b"}], "linksInContainer": True}),
        ("bond", {"mode": 1, "links": ["a", "b"], "miimon": "100", "failOverMac": 1, "primary": "b"}),
        ("bond", {"mode": "6", "links": ["a", "b"], "arpIpTarget": ["10.0.0.1"], "allSlavesActive": 1, "mtu": 9000}),
        ("vfio-pci", {}),
        ("vfio-pci", {"driver": "uio_pci_generic"}),
        ("rdma", {"rdmaDevice": "mlx5_0"}),
    ],
)
def test_built_in_steps_accept_valid_parameters_of_netdra_and_known_plugins(kind: str, config: dict[str, Any]) -> None:
    prepared(kind, config, device=None if kind in {"tuning", "vlan", "bond"} else VF)


@pytest.mark.parametrize(
    ("kind", "config", "complaint"),
    [
        ("sriov", {"vlan": 4095}, r"\$\.vlan"),
        ("sriov", {"vlan": "100"}, r"\$\.vlan"),
        ("sriov", {"vlan": True}, r"\$\.vlan"),
        ("sriov", {"spoofchk": "yes"}, r"\$\.spoofchk"),
        ("sriov", {"qos": 3}, "require vlan"),
        ("sriov", {"proto": "802.1ad", "vlan": 0}, "require vlan"),
        ("sriov", {"minTxRate": 10, "max_tx_rate": 9}, "minTxRate 10 exceeds maxTxRate 9"),
        ("sriov", {"deviceID": "0000:03:00.3"}, "is not that of the allocated device"),
        ("sriov", {"runtimeConfig": {"deviceID": "0000:03:00.3"}}, "is not that of the allocated device"),
        ("sriov", {"mac": "03:00:00:00:00:01"}, "not one of a single interface"),
        ("sriov", {"vlanid": 5}, "vlanid"),
        ("host-device", {"device": "eth8"}, "is not that of the allocated device"),
        ("host-device", {"mtu": 9.5}, r"\$\.mtu"),
        ("vfio-pci", {"driver": "igbvf"}, r"\$\.driver"),
        ("vfio-pci", {"pciBusID": "0000:03:00.3"}, "is not that of the allocated device"),
        ("rdma", {"device": "mlx5_0"}, "device"),
        ("device-file", {}, 'device "d" is not a device file'),
        ("device-file", {"path": "/dev/mem"}, "path"),
        ("sriov", {"ipam": {"type": ""}}, "ipam names no plugin"),
        ("sriov", {"ipam": {"type": 7}}, "ipam names no plugin"),
        ("sriov", {"ipam": {"type": "../x"}}, "is not a valid CNI plugin name"),
        ("sriov", {"ipam": "host-local"}, r"\$\.ipam"),
    ],
)
def test_a_root_step_rejects_invalid_parameters(kind: str, config: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidInputError, match=complaint) as caught:
        prepared(kind, config)
    assert 'step "s"' in str(caught.value) or "plugin name" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "config", "complaint"),
    [
        ("sriov", {}, "no device was allocated"),
        ("vfio-pci", {}, "no device was allocated"),
        ("host-device", {}, "no device was allocated"),
        ("device-file", {}, "no device was allocated"),
        ("vlan", {}, "no VLAN id"),
        ("vlan", {"id": 0}, r"\$\.id"),
        ("vlan", {"id": 4095}, r"\$\.id"),
        ("vlan", {"id": 1, "vlanId": 2}, "id is 1 and vlanId is 2"),
        ("vlan", {"id": 1, "protocol": "802.1x"}, r"\$\.protocol"),
        ("bond", {"links": ["a", "b"]}, "mode"),
        ("bond", {"mode": 1}, "links"),
        ("bond", {"mode": 1, "links": ["a"]}, "a bond of 1 members is not possible"),
        ("bond", {"mode": 1, "links": ["a", "a"]}, "names an interface twice"),
        ("bond", {"mode": 1, "links": ["a", "net1"]}, "or the bond itself"),
        ("bond", {"mode": 1, "links": ["a", "b"], "linksInContainer": False}, "on the host"),
        ("bond", {"mode": 1, "links": ["a", "b"], "primary": "c"}, 'primary "c"'),
        ("bond", {"mode": 7, "links": ["a", "b"]}, 'bond mode "7" is unknown'),
        ("bond", {"mode": 1, "links": ["a", "b"], "lacpRate": "fastest"}, "fastest"),
        ("bond", {"mode": 1, "links": ["a", "b"], "arpIpTarget": "here"}, "not a list of IPv4 addresses"),
        ("bond", {"mode": 1, "links": [{"name": "a", "up": 1}, "b"]}, "up"),
        ("tuning", {"sysctl": {"vm.swappiness": "1"}}, "cannot be set for a pod"),
        ("tuning", {"args": {"cni": {"mtu": "x"}}}, "runtimeConfig or args"),
        ("tuning", {"addresses": ["10.0.0.1"]}, r"addresses\[0\]"),
        ("tuning", {"routes": [{"destination": "x"}]}, r"routes\[0\]"),
    ],
)
def test_a_step_without_a_device_rejects_invalid_parameters(kind: str, config: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        prepared(kind, config, device=None)


def test_a_type_that_is_not_built_in_is_named() -> None:
    with pytest.raises(InvalidInputError, match='type "magic" is not built in'):
        prepared("magic", {})


@pytest.mark.parametrize("kind", sorted(BUILTIN_TYPES))
@pytest.mark.parametrize(
    "value", [None, [], {}, 0, -1, 2**70, 1.5, "", "x" * 100_000, "\0", "ü", True, [[[[]]]], {"a": {"a": {}}}]
)
def test_any_value_anywhere_is_taken_or_refused_and_nothing_else(kind: str, value: Any) -> None:
    for field in msgspec.structs.fields(builtin.TYPES[kind].params):
        try:
            prepared(kind, {field.encode_name: value})
        except InvalidInputError:
            continue


@pytest.mark.parametrize(("destination", "next_hop"), [("10.9.0.0/16", "0.0.0.0"), ("fd01::/64", "::")])
def test_a_route_of_neutron_by_no_router_is_on_the_link(destination: str, next_hop: str) -> None:
    routes = (PortRoute(destination=destination, gateway=next_hop),)
    port = PlannedPort(port_id="p", settings=PortSettings(mac="02:00:00:00:00:01", routes=routes))
    order = Order(topology="t", step="s", type="sriov", if_name="net1", network="t-s", config={}, device=VF)
    assert ported.added(order, port).routes == (Route(destination=destination),)
