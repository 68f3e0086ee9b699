"""The names of devices, and their attributes and capacities."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from netdra.exposure import expose
from netdra.exposure.additional import PCIE_ROOTS, ROOM
from netdra.exposure.facts import publishable
from netdra.model import names
from netdra.model.device import Features
from netdra.model.inventory import (
    ALWAYS_KNOWN,
    ATTRIBUTES,
    PUBLISHED_ATTRIBUTES,
    PUBLISHED_IF_ANY,
    Interface,
    attributes,
)
from tests.builders import OURS, exclusive, inventory, named, pf, policy, shared, sriov, vf

DEVICE_FILE = "dra.networking/deviceFile"
NIC = Interface(if_name="eth1", type="nic", mac="02:00:00:00:00:01", mtu=1500)
PORTS = {"ports": {"value": "64", "requestPolicy": {"default": "1"}}}
BOTH = [{"name": "macvlan"}, {"name": "host-device", "exclusive": True}]


def only(interface: Interface, features: Features = Features(), **exposure: Any) -> dict[str, Any]:  # noqa: B008
    (device,) = expose(inventory(interface), [policy("p", "true", **exposure)], features=features).devices
    return dict(device.attributes)


def test_every_device_carries_the_same_facts_in_the_same_order() -> None:
    result = expose(inventory(NIC, *sriov("ens1", 1)), [exclusive("p", "true")])
    carried = {device.name: tuple(device.attributes)[:-1] for device in result.devices}
    without = tuple(name for name in PUBLISHED_ATTRIBUTES if name not in PUBLISHED_IF_ANY)
    of_hardware = tuple(name for name in PUBLISHED_ATTRIBUTES if name != DEVICE_FILE)
    assert carried == {"eth1": without, "ens1": of_hardware, "ens1v0": of_hardware}


def test_a_fact_is_on_every_device_or_on_none_however_much_its_policy_adds() -> None:
    plain, full = (
        only(NIC, additionalAttributes={f"a{number}": number for number in range(count)}) for count in (0, ROOM - 1)
    )
    facts = {each.name for each in ATTRIBUTES}
    assert facts & full.keys() == facts & plain.keys() == set(PUBLISHED_ATTRIBUTES) - PUBLISHED_IF_ANY


def test_published_facts_and_attributes_added_by_policies_fit_into_a_device() -> None:
    assert len(set(PUBLISHED_ATTRIBUTES) - {DEVICE_FILE}) + len(["supportedCNIs"]) + ROOM <= 32
    root = {"additionalAttributes": {"device.k8s.io/pcieRoot": "pci0000:00", "a": 1, "b": 2, "c": 3}}
    file = Interface(type="device-file", device_file="/dev/fpga0", called="fpga0", registered_by="bctl")
    (device,) = expose(
        inventory(file), [exclusive("p", 'device.attributes["dra.networking"].registeredBy == "bctl"', **root)]
    ).devices
    assert device.attributes["resource.kubernetes.io/pcieRoot"] == "pci0000:00"
    assert len(device.attributes) + len(["bandwidth"]) <= 32


@given(unread=st.lists(st.sampled_from([each.field for each in ATTRIBUTES])).map(tuple))
def test_always_known_attributes_are_published_even_if_their_fields_are_unreadable(
    unread: tuple[str, ...],
) -> None:
    found = attributes(replace(NIC, unreadable=unread))
    assert publishable(found).keys() >= ALWAYS_KNOWN


def test_a_device_publishes_the_plugins_and_attributes_that_its_policy_defines() -> None:
    found = only(
        NIC, supportedCNIPlugins=[{"name": "b"}, {"name": "a"}], additionalAttributes={"rack": 7, "x.org/y": "z"}
    )
    assert found["dra.networking/supportedCNIs"] == ("b", "a")
    assert (found["dra.networking/rack"], found["x.org/y"]) == (7, "z")


@pytest.mark.parametrize(
    ("value", "published"),
    [
        ("a" * 65, "a" * 64),
        ("é" * 40, "é" * 32),
        ("a" * 63 + "é", "a" * 63),
        ("bad \udc80", "bad ?"),
    ],
)
def test_strings_are_truncated_to_64_bytes_and_invalid_characters_are_replaced(value: str, published: str) -> None:
    assert only(Interface(if_name="eth1", driver=value))["dra.networking/driver"] == published


ADDED: dict[str, Any] = {"network": "localnet1", "rack": 7, "gold": True, "x.org/nets": ["a", "b"]}


@pytest.mark.parametrize("name", ADDED)
def test_an_attribute_added_by_one_policy_is_published_empty_on_the_other_devices_of_the_node(name: str) -> None:
    adding = exclusive("adds", named("eth1"), additionalAttributes={name: ADDED[name]})
    result = expose(inventory(NIC, *sriov("ens1", 1)), [adding, exclusive("plain", f'{OURS}.type != "nic"')])
    found = {device.name: device.attributes[names.qualified(name)] for device in result.devices}
    value = tuple(ADDED[name]) if isinstance(ADDED[name], list) else ADDED[name]
    assert found == {"eth1": value, "ens1": type(value)(), "ens1v0": type(value)()}
    assert result.problems == ()


def test_attributes_added_by_policies_of_other_nodes_are_not_published() -> None:
    elsewhere = {"nodeSelector": {"matchLabels": {"rack": "b"}}}
    policies = [exclusive("p", "true"), policy("q", "true", spec=elsewhere, additionalAttributes={"network": "x"})]
    (device,) = expose(inventory(NIC), policies).devices
    assert "dra.networking/network" not in device.attributes


def test_an_added_attribute_without_space_on_a_device_is_reported_for_the_adding_policy() -> None:
    slots = {name: {"value": 8, "requestPolicy": {"default": 1}} for name in ("a", "b", "c")}
    full = policy("full", named("ens1"), allowMultipleAllocations=True, capacity=slots)
    result = expose(inventory(NIC, pf("ens1")), [exclusive("adds", named("eth1"), additionalAttributes={"n": 1}), full])
    (problem,) = result.problems
    assert problem.policy == "adds"
    assert (
        'additionalAttributes["dra.networking/n"] is not published on the devices of "full", for lack of'
        in problem.message
    )
    assert problem.left_out is None
    assert max(len(device.attributes) + len(device.capacity) for device in result.devices) <= 32


def test_an_attribute_with_different_types_in_two_policies_is_reported() -> None:
    policies = [
        exclusive(name, named(name), additionalAttributes={"n": value}) for name, value in (("a", 1), ("b", "1"))
    ]
    (problem,) = expose(inventory(NIC), policies).problems
    assert problem.policy == "b"
    assert 'additionalAttributes["dra.networking/n"] is a text, but an integer in policy "a":' in problem.message


@pytest.mark.parametrize("name", PCIE_ROOTS)
def test_a_policy_can_name_the_pcie_root_that_counts_for_placement(name: str) -> None:
    """As with Data Direct: the GPU is not beside the NIC's own function."""
    named_root = exclusive("p", "true", additionalAttributes={name: "pci0001:20"})
    devices = expose(inventory(NIC, pf("ens1")), [named_root]).devices
    assert [device.attributes[root] for device in devices for root in PCIE_ROOTS] == ["pci0001:20"] * 4


def test_a_device_without_a_pcie_root_omits_the_attribute_but_selectors_read_it_as_empty() -> None:
    devices = expose(inventory(NIC, pf("ens1"), pf("ens2", bus=4, pcie_root="")), [exclusive("p", "true")]).devices
    assert [device.name for device in devices if set(PCIE_ROOTS) & device.attributes.keys()] == ["ens1"]
    selecting = exclusive("p", 'device.attributes["device.k8s.io"].pcieRoot == ""')
    assert [device.name for device in expose(inventory(NIC), [selecting]).devices] == ["eth1"], (
        "policies can select by it"
    )


def test_a_list_too_long_for_a_string_is_truncated_between_entries_and_reported() -> None:
    plugins = [{"name": f"plugin-number-{index}"} for index in range(6)]
    given = [policy("p", "true", supportedCNIPlugins=plugins)]
    strings = expose(inventory(NIC), given)
    assert strings.devices[0].attributes["dra.networking/supportedCNIs"] == tuple(
        f"plugin-number-{i}" for i in range(3)
    )
    assert "the API server does not support lists" in strings.problems[0].message
    lists = expose(inventory(NIC), given, features=Features(list_attributes=True))
    assert len(lists.devices[0].attributes["dra.networking/supportedCNIs"]) == 6  # type: ignore[arg-type]
    assert lists.problems == ()


def test_exclusive_and_shared_plugins_make_two_devices() -> None:
    result = expose(inventory(NIC), [policy("p", "true", capacity=PORTS, supportedCNIPlugins=BOTH)])
    found = [
        (device.name, device.shared, device.attributes["dra.networking/supportedCNIs"]) for device in result.devices
    ]
    assert found == [("eth1", True, ("macvlan",)), ("eth1-exclusive", False, ("host-device",))]
    assert [list(device.capacity) for device in result.devices] == [["dra.networking/ports"], []]


@pytest.mark.parametrize(
    ("request_policy", "consumed", "default"),
    [({"default": "2"}, None, "2"), ({"default": "2"}, 3, "3"), (None, 3, "3")],
)
def test_the_amount_consumed_by_a_plugin_becomes_the_default_of_the_request_policy(
    request_policy: Any, consumed: Any, default: str
) -> None:
    plugin = {"name": "bridge", "consumePerAllocation": {"ports": consumed} if consumed else {}}
    capacity = {"ports": {"value": 64, "requestPolicy": request_policy} if request_policy else {"value": 64}}
    given = policy("p", "true", allowMultipleAllocations=True, capacity=capacity, supportedCNIPlugins=[plugin])
    (device,) = expose(inventory(NIC), [given]).devices
    published = device.capacity["dra.networking/ports"]
    assert published.value == "64"
    assert published.request_policy is not None
    assert published.request_policy.default == default


def test_an_exclusive_device_has_capacities_to_ask_for_but_not_to_consume() -> None:
    (device,) = expose(inventory(NIC), [policy("p", "true", capacity=PORTS)]).devices
    assert device.capacity["dra.networking/ports"].request_policy is None


def test_interface_names_that_are_not_dns_labels_become_distinct_valid_device_names() -> None:
    interfaces = [Interface(if_name=name, type="vlan") for name in ("eth0.1", "eth0_1", "eth0-1", "ETH0-1")]
    result = expose(inventory(*interfaces), [exclusive("p", "true", deviceNameSuffix="-x"), shared("q", "true")])
    assert all(names.is_label(device.name) for device in result.devices)
    assert all(names.is_subdomain(part) for device in result.devices for part in device.pool.split("/"))
    assert len({device.name for device in result.devices}) == 8
    assert len({device.pool for device in result.devices}) == 4
    assert len({each.name for each in result.counter_sets}) == 4


def test_pools_are_named_after_the_node_the_kind_and_the_interface() -> None:
    result = expose(inventory(NIC, pf("ens1"), *sriov("ens2", 1)), [exclusive("p", "true")])
    assert [(device.pool, device.name) for device in result.devices] == [
        ("worker-1/nic-eth1", "eth1"),
        ("worker-1/sriov-ens1", "ens1"),
        ("worker-1/sriov-ens2", "ens2"),
        ("worker-1/sriov-ens2", "ens2v0"),
    ]


def test_no_pool_of_a_node_begins_like_one_of_another() -> None:
    long = "n" * 63
    for node in ("a", "a-b", "a.b", long):
        interfaces = [Interface(if_name="sriov-c", type="b"), Interface(if_name="x" * 15, type="t" * 300)]
        result = expose(inventory(*interfaces, node=node), [exclusive("p", "true")])
        for device in result.devices:
            assert device.pool.split("/")[0] == node
            assert len(device.pool) <= names.MAX_SUBDOMAIN


def test_two_interfaces_never_share_a_pool_by_accident() -> None:
    twins = [Interface(if_name="c", type="a-b"), Interface(if_name="b-c", type="a")]
    result = expose(inventory(*twins), [exclusive("p", "true")])
    assert len({device.pool for device in result.devices}) == 2


def test_vfs_are_sorted_by_vf_number_and_not_by_interface_name() -> None:
    parent = pf("ens1", vfs=11)
    vfs = [vf(parent, index, if_name="" if index % 2 else f"dev{20 - index}") for index in (10, 2, 9)]
    result = expose(inventory(*vfs, parent), [exclusive("p", "true")])
    assert [device.name for device in result.devices] == ["ens1", "ens1v2", "ens1v9", "ens1v10"]


@pytest.mark.parametrize(
    "policies",
    [
        [
            policy("a", named("ens1"), capacity=PORTS, supportedCNIPlugins=BOTH),
            exclusive("b", named("ens1"), deviceNameSuffix="-exclusive"),
        ],
        [exclusive("a", named("ens1"), deviceNameSuffix="v0"), exclusive("b", named("ens1v0"))],
    ],
)
def test_a_name_that_is_taken_is_refused_with_a_problem(policies: list[Any]) -> None:
    result = expose(inventory(*sriov("ens1", 1)), policies)
    found = [device.name for device in result.devices]
    assert len(found) == len(set(found))
    (problem,) = result.problems
    assert problem.policy == "b"
    assert "is taken; change the suffix" in problem.message


def test_decisions_name_the_devices_and_why() -> None:
    result = expose(
        inventory(*sriov("ens1", 1)), [shared("b", named("ens1"), deviceNameSuffix="-b"), exclusive("a", named("ens1"))]
    )
    assert [(each.device_name, each.exposed, each.reason) for each in result.decisions] == [
        ("ens1", ("ens1", "ens1-b"), 'exposed as ens1, ens1-b by "a", "b"'),
        ("ens1v0", (), "hidden: not matched by any policy"),
    ]
