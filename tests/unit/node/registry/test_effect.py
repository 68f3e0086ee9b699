"""The outcomes of a registration: for a name without a device, and a device that is full."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from netdra.exposure import expose
from netdra.exposure.registered import Registered
from netdra.model.plan import PlannedDevice
from netdra.model.registration import Registration
from netdra.model.resource import DeviceAttribute, DeviceCapacity, ResourceSlice
from netdra.node.registry.effect import Effect
from netdra.node.registry.shares import RefusedRegistrationError
from netdra.slices.pack import layout
from netdra.topology.devices import DeviceKey, from_slices
from tests.builders import exclusive, inventory, shared
from tests.unit.node.publishing.scene import ETH

TRUE = DeviceAttribute(bool_=True)


def says(count: int, provider: str = "bctl", device: str = "eth7", **more: Any) -> Registration:
    return Registration(provider=provider, device=device, attributes={f"a{at}": TRUE for at in range(count)}, **more)


@dataclass
class Node:
    """A node that publishes eth7, alone and shared, with the registrations for it."""

    passes: int = 0
    slices: tuple[ResourceSlice, ...] = ()
    devices: dict[DeviceKey, PlannedDevice] = field(default_factory=dict)

    def publish(self, *registered: Registration, **exposure: Any) -> None:
        policies = [exclusive("whole", "true", **exposure), shared("some", "true", deviceNameSuffix="-shared")]
        found = expose(inventory(ETH), policies, registered=Registered(registered))
        self.slices = layout(found, node="n").slices
        self.devices = from_slices(self.slices)
        self.passes += 1


@pytest.fixture
def node() -> Node:
    made = Node()
    made.publish()
    return made


@pytest.mark.parametrize("name", ["eth7", "eth7-shared"])
def test_a_fitting_registration_is_accepted_by_device_or_interface_name(node: Node, name: str) -> None:
    assert Effect(node).check(says(1, device=name)) == ""


def test_an_unknown_device_name_is_reported_with_a_similar_known_name(node: Node) -> None:
    effect = Effect(node)
    told = effect.check(says(1, device="eth-7"))
    assert told.startswith('no published device or interface is called "eth-7": it counts when one is')
    assert told.endswith('did you mean "eth7"?')
    assert "mean" not in effect.check(says(1, device="gpu0"))
    assert effect.check(says(1, device="wire1", adds=True)) == ""


def test_a_registration_above_the_free_slots_of_a_device_is_rejected_with_their_number(node: Node) -> None:
    effect = Effect(node)
    room = 32 - min(len(device.attributes) + len(device.capacity) for device in _devices(node))
    assert effect.check(says(room)) == ""
    told = f"has room for {room} attributes and capacities, not {room + 1}"
    with pytest.raises(RefusedRegistrationError, match=told):
        effect.check(says(room + 1))


def test_a_registration_is_not_checked_before_the_node_is_discovered() -> None:
    assert Effect(Node()).check(says(40)) == ""


def test_the_first_provider_keeps_its_slots_and_can_change_its_registration(node: Node) -> None:
    effect, first = Effect(node), says(4)
    node.publish(first)
    room = 32 - min(len(device.attributes) + len(device.capacity) for device in _devices(node))
    with pytest.raises(RefusedRegistrationError, match=f"has room for {room} "):
        effect.check(says(room + 1, "later"))
    assert effect.check(says(room, "later")) == ""
    assert effect.check(first) == effect.check(says(4 + room)) == ""


def test_fewer_facts_make_room(node: Node) -> None:
    effect, many = Effect(node), says(20, capacity={"bandwidth": DeviceCapacity(value="1")})
    with pytest.raises(RefusedRegistrationError):
        effect.check(many)
    node.publish(facts=[], emptyFacts=False)
    assert effect.check(many) == ""


def _devices(node: Node) -> list[Any]:
    return [device for one in node.slices for device in one.spec.devices]
