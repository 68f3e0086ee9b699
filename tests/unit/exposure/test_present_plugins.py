"""supportedCNIs holds of a policy's plugins those that the node has; who excludes whom does not depend on it."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from netdra.cel import compile_selector, device_variables
from netdra.exposure import Exposer, facts
from netdra.model import names
from netdra.model.device import Features
from netdra.model.inventory import Interface
from netdra.slices.pack import encode_attribute
from netdra.topology import needed
from netdra.topology.classes import device_classes, guard
from tests.builders import OURS, inventory, policy, topology

ATTRIBUTE, LACKED = names.qualified(names.SUPPORTED_CNIS), names.qualified(names.LACKED_CNIS)
ETH = Interface(if_name="eth0", type="veth", mac="02:00:00:00:00:01", oper_state="up")
LISTED = ("macvlan", "ipvlan", "tuning", "host-device")
MIXED = policy(
    "mixed",
    f'{OURS}.type == "veth"',
    allowMultipleAllocations=True,
    capacity={"ports": {"value": "8", "requestPolicy": {"default": "1"}}},
    supportedCNIPlugins=[
        {"name": "macvlan"},
        {"name": "ipvlan"},
        {"name": "tuning"},
        {"name": "host-device", "exclusive": True},
    ],
)


def supported(programs: tuple[str, ...] | None) -> dict[str, object]:
    result = Exposer([MIXED], programs=programs).expose(inventory(ETH))
    return {device.name: device.attributes[ATTRIBUTE] for device in result.devices}


@pytest.mark.parametrize(
    ("programs", "shared"),
    [
        (None, ("macvlan", "ipvlan", "tuning")),
        ((), ("tuning",)),
        (("ipvlan", "bridge"), ("ipvlan", "tuning")),
        (("macvlan", "ipvlan"), ("macvlan", "ipvlan", "tuning")),
    ],
)
def test_a_missing_plugin_is_not_published_and_built_in_plugins_always_are(
    programs: tuple[str, ...] | None, shared: tuple[str, ...]
) -> None:
    assert supported(programs) == {"eth0": shared, "eth0-exclusive": ("host-device",)}


def test_present_plugins_change_only_the_supported_cnis_attribute_of_devices() -> None:
    everything = Exposer([MIXED]).expose(inventory(ETH))
    for count in range(3):
        for programs in itertools.combinations(("macvlan", "ipvlan"), count):
            found = Exposer([MIXED], programs=programs).expose(inventory(ETH))
            assert found.counter_sets == everything.counter_sets
            for device, whole in zip(found.devices, everything.devices, strict=True):
                attributes = {**device.attributes, ATTRIBUTE: whole.attributes[ATTRIBUTE]}
                assert msgspec.structs.replace(device, attributes=attributes) == whole


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("programs", [(), ("macvlan",), ("mac", "ipvlan", "vlan")])
def test_a_generated_class_matches_exactly_the_plugins_that_are_there(programs: tuple[str, ...], lists: bool) -> None:
    bare = policy("bare", f'{OURS}.type == "veth"', supportedCNIPlugins=[{"name": "macvlan"}, {"name": "ipvlan"}])
    (device,) = Exposer([bare], programs=programs).expose(inventory(ETH)).devices
    encoded = encode_attribute(device.attributes[ATTRIBUTE], lists=lists).value
    assert isinstance(encoded, str | tuple)
    variables = device_variables(names.DRIVER, {**device.attributes, ATTRIBUTE: encoded})  # type: ignore[dict-item]
    for kind in (*LISTED, "mac", "vlan"):
        matches = compile_selector(guard(kind, Features(list_attributes=lists))).matches(variables)
        assert matches == (kind in programs and kind in {"macvlan", "ipvlan"}), kind


LEASED = topology("""
- {name: nic, type: macvlan, selector: {cel: "true"}, config: {ipam: {type: whereabouts}}}
- {name: wall, type: firewall, dependOn: [nic]}
- {name: tune, type: tuning, dependOn: [nic]}
- {name: vlan, type: vlan, dependOn: [nic], config: {id: 7, ipam: {type: host-local}}}
""")


def test_a_topology_needs_the_programs_of_its_later_steps_and_of_ipam() -> None:
    assert needed.programs(LEASED.spec.steps) == {"whereabouts", "firewall", "host-local"}
    advertised = topology("[{name: nic, type: sriov, selector: {cel: 'true'}, config: {ipam: {type: slaac}}}]")
    assert needed.programs(advertised.spec.steps) == frozenset()
    built_in = topology("[{name: vf, type: sriov, execution: Binary}, {name: tune, type: tuning, dependOn: [vf]}]")
    assert needed.programs(built_in.spec.steps) == {"sriov"}


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize(
    ("lacked", "matches"),
    [
        ((), True),
        (("dhcp", "host-loc", "wall"), True),
        (("whereabouts",), False),
        (("dhcp", "firewall"), False),
        (("host-local",), False),
    ],
)
def test_a_generated_class_passes_over_nodes_that_lack_a_needed_program(
    lacked: tuple[str, ...], matches: bool, lists: bool
) -> None:
    features = Features(list_attributes=lists)
    bare = policy("bare", f'{OURS}.type == "veth"', supportedCNIPlugins=[{"name": "macvlan"}])
    exposer = Exposer([bare], features=features, programs=("macvlan",), lacked=lacked)
    (device,) = exposer.expose(inventory(ETH)).devices
    assert (LACKED in device.attributes) is bool(lacked)
    encoded = {name: encode_attribute(value, lists=lists).value for name, value in device.attributes.items()}
    variables = device_variables(names.DRIVER, encoded)  # type: ignore[arg-type]
    (made,) = device_classes(LEASED, features)
    assert all(compile_selector(each.cel.expression).matches(variables) for each in made.spec.selectors) is matches  # type: ignore[union-attr]


def test_missing_plugins_without_space_are_reported_and_the_device_is_still_offered() -> None:
    bare = policy("bare", f'{OURS}.type == "veth"', supportedCNIPlugins=[{"name": "macvlan"}])
    lacked = tuple(sorted(f"a-plugin-with-a-long-name-{number}" for number in range(4)))
    result = Exposer([bare], programs=("macvlan",), lacked=lacked).expose(inventory(ETH))
    (device,) = result.devices
    assert device.attributes[LACKED] == lacked[:2]
    assert "is truncated by a-plugin-with-a-long-name-2, a-plugin-with-a-long-name-3:" in result.problems[0].message
    unchanged, (told,) = facts.with_lacked({"example.com/a": 1}, ("dhcp",), lists=False, room=0)
    assert unchanged == {"example.com/a": 1}
    assert (
        told == "dra.networking/lackedCNIs (dhcp) is omitted: the maximum number of attributes of the device is reached"
    )


def test_programs_are_needed_as_long_as_a_topology_names_them() -> None:
    kept = needed.NeededPrograms()
    assert kept.put("a", LEASED)
    assert not kept.put("b", LEASED)
    assert not kept.put("a", LEASED)
    assert kept.names == {"whereabouts", "firewall", "host-local"}
    assert not kept.put("a", None)
    assert kept.put("b", None)
    assert kept.names == frozenset()
