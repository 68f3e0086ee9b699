"""supportedCNIs holds of a policy's plugins those that the node has; who excludes whom does not depend on it."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from netdra.cel import compile_selector, device_variables
from netdra.exposure import Exposer
from netdra.model import names
from netdra.model.device import Features
from netdra.model.inventory import Interface
from netdra.slices.pack import encode_attribute
from netdra.topology.classes import guard
from tests.builders import OURS, inventory, policy

ATTRIBUTE = names.qualified(names.SUPPORTED_CNIS)
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
def test_a_plugin_that_is_not_there_is_not_published_and_built_in_ones_are_always_there(
    programs: tuple[str, ...] | None, shared: tuple[str, ...]
) -> None:
    assert supported(programs) == {"eth0": shared, "eth0-exclusive": ("host-device",)}


def test_devices_are_the_same_whatever_plugins_are_there_but_for_that_attribute() -> None:
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
