"""Providers' facts in a node's slices and reports: they wait for claims, and each object is counted."""

from __future__ import annotations

from typing import Any

import msgspec

from netdra.kube.store import Change
from netdra.model import documents
from netdra.model.custom_device import CustomDevice
from netdra.model.node_network import MAX_STATUS, CustomDeviceReport, ProviderReport
from netdra.model.plan import PlannedDevice
from netdra.model.registration import Registration
from netdra.model.resource import DeviceAttribute, DeviceCapacity
from netdra.node.publishing.followed import NodeRegistrations
from netdra.node.view import HeldDevice
from tests.builders import exclusive, shared
from tests.unit.node.publishing.scene import ETH, ETH_KEY, Scene

POOL, NAME = ETH_KEY
TRUE = DeviceAttribute(bool_=True)


def bandwidth(value: str, **more: Any) -> Registration:
    return Registration(provider="bctl", device="eth7", capacity={"bandwidth": DeviceCapacity(value=value)}, **more)


def consuming(amount: str, claim: str) -> HeldDevice:
    """The device, held by a claim that consumes so much of its bandwidth."""
    consumed = {"bctl/bandwidth": amount} if amount else {}
    facts = PlannedDevice(request="r", pool=POOL, device=NAME, share_id=claim, consumed_capacity=consumed)
    return HeldDevice(key=ETH_KEY, claim=claim, facts=facts)


def published(scene: Scene, name: str = NAME) -> str:
    capacity = scene.devices(POOL)[name].capacity.get("bctl/bandwidth")
    return str(capacity.value) if capacity is not None else ""


def custom(name: str, **spec: Any) -> CustomDevice:
    value = {
        "apiVersion": "networking.dra.io/v1alpha1",
        "kind": "CustomDevice",
        "metadata": {"name": name},
        "spec": {"provider": "bctl", "device": "eth7", "attributes": {"a": {"bool": True}}, **spec},
    }
    return documents.convert(value, CustomDevice, "test")


class TestHeld:
    def test_the_capacity_of_a_device_that_a_claim_has_alone_waits(self) -> None:
        scene = Scene(exclusive("veths", "true"))
        scene.registered = (bandwidth("4096"),)
        scene.see(ETH)
        scene.hold(ETH_KEY)
        scene.registered = (bandwidth("10"),)
        scene.see(ETH)
        assert published(scene) == "4096"
        (report,) = scene.offering.report().providers
        assert (report.desired, report.applied) == (1, 0)
        scene.registered = ()
        scene.see(ETH)
        assert published(scene) == "4096"
        scene.hold()
        scene.see(ETH)
        assert published(scene) == ""

    def test_shared_capacity_follows_its_registration_but_not_below_claim_consumption(self) -> None:
        scene = Scene(shared("veths", "true"))
        scene.see(ETH)
        scene.holding = [consuming("60", "a"), consuming("20", "b"), consuming("", "c")]
        for said, shown in (("100", "100"), ("200", "200"), ("90", "90"), ("50", "80"), ("0", "80"), ("90", "90")):
            scene.registered = (bandwidth(said),)
            scene.see(ETH)
            assert published(scene) == shown
        scene.registered = ()
        scene.see(ETH)
        assert published(scene) == "80"
        policy = scene.devices(POOL)[NAME].capacity["bctl/bandwidth"].request_policy
        assert policy is not None
        assert policy.default == "0", "who asks for none of it still gets the device"
        scene.holding = [consuming("20", "b"), consuming("", "c")]
        scene.see(ETH)
        assert published(scene) == "20"
        scene.holding = [consuming("", "c")]
        scene.see(ETH)
        assert published(scene) == ""

    def test_capacity_consumed_by_claims_keeps_its_slot_in_a_full_device(self) -> None:
        scene = Scene(shared("veths", "true"))
        scene.registered = (bandwidth("100"),)
        scene.see(ETH)
        scene.holding = [consuming("100", "a")]
        scene.registered = (
            Registration(
                provider="other",
                device="eth7",
                attributes={f"a{at:02}": TRUE for at in range(16)},
                capacity={f"c{at:02}": DeviceCapacity(value="1") for at in range(16)},
            ),
        )
        scene.see(ETH)
        device = scene.devices(POOL)[NAME]
        assert published(scene) == "100"
        assert len(device.attributes) + len(device.capacity) <= 32


class TestReports:
    def test_each_custom_device_and_provider_is_counted_and_conflicts_are_reported(self) -> None:
        scene = Scene(exclusive("veths", "true"))
        scene.registered = (
            bandwidth("1", custom_device="a"),
            bandwidth("2", custom_device="b"),
            Registration(provider="x", device="eth9", custom_device="elsewhere"),
            Registration(provider="socket", device="eth7", attributes={"a": TRUE}),
        )
        scene.see(ETH)
        status = scene.offering.report()
        first, second = status.custom_devices
        assert first == CustomDeviceReport(name="a", desired=1, applied=1)
        assert (second.name, second.desired, second.applied) == ("b", 1, 0)
        assert 'eth7: bctl/bandwidth is omitted: CustomDevice "a" sets it' in second.problems[0]
        assert status.providers == (ProviderReport(name="socket", desired=1, applied=1),)
        assert any('CustomDevice "b"' in problem.message for problem in status.problems)

    def test_thousands_of_them_stay_within_the_reports_size(self) -> None:
        scene = Scene(exclusive("veths", "true"))
        scene.registered = tuple(bandwidth("1", custom_device=f"{'n' * 200}-{at:04}") for at in range(3000))
        scene.see(ETH)
        assert len(documents.to_yaml(scene.offering.report())) < 3 * MAX_STATUS


class TestNodeRegistrations:
    def test_only_registrations_that_affect_this_node_wake_it(self) -> None:
        leased: tuple[Registration, ...] = (bandwidth("1"),)
        facts = NodeRegistrations("n", lambda: leased)
        labels = {"rack": "a7"}
        first = facts.registered(labels)
        assert facts.registered(labels) is first
        elsewhere = custom("e", selector={"nodeSelector": {"matchLabels": {"rack": "b1"}}})
        assert not facts.apply(Change("e", None, elsewhere), labels)
        assert facts.registered(labels) is first
        assert facts.apply(Change("c", None, custom("c")), labels)
        assert not facts.apply(Change("c", custom("c"), custom("c")), labels), "its status alone was written"
        assert [each.custom_device for each in facts.registered(labels).of("eth7")] == ["c", ""]
        assert [each.custom_device for each in facts.registered({"rack": "b1"}).of("eth7")] == ["c", "e", ""]
        assert facts.apply(Change("c", custom("c"), None), {"rack": "b1"})
        assert [each.custom_device for each in facts.registered({"rack": "b1"}).of("eth7")] == ["e", ""]

    def test_an_object_that_no_webhook_saw_cannot_spoil_a_slice(self) -> None:
        facts = NodeRegistrations("n", tuple)
        wrong = custom("c", attributes={"a": {"string": "x" * 65}})
        assert not facts.apply(Change("c", None, wrong), {})
        assert not facts.registered({}).of("eth7")


def settle(nodes: int, objects: int, *, at_once: int = 50) -> tuple[list[int], int]:
    """Have nodes follow objects as their watches bring them, each for one device of one node.

    Returns:
        How often each pool was written, and how many devices carry the final facts.
    """
    devices = objects // nodes
    interfaces = [
        msgspec.structs.replace(ETH, if_name=f"eth{at}", mac=f"02:00:00:00:00:{at:02x}") for at in range(devices)
    ]
    written = [
        custom(f"c{at}", device=f"eth{at // nodes}", selector={"nodeSelector": {"matchLabels": {"n": str(at % nodes)}}})
        for at in range(objects)
    ]
    writes: dict[tuple[int, str], int] = {}
    applied = 0
    for number in range(nodes):
        scene, facts, labels = Scene(exclusive("veths", "true")), NodeRegistrations("n", tuple), {"n": str(number)}
        scene.labels = labels
        facts.registered(labels)
        scene.see(*interfaces)
        for begin in range(0, objects, at_once):
            batch = written[begin : begin + at_once]
            changed = [facts.apply(Change(each.name, None, each), labels) for each in batch]
            if any(changed):
                scene.registered = tuple(
                    said for at in range(devices) for said in facts.registered(labels).of(f"eth{at}")
                )
                for pool in scene.see(*interfaces):
                    writes[number, pool] = writes.get((number, pool), 0) + 1
        applied += sum(report.applied for report in scene.offering.report().custom_devices)
    return list(writes.values()), applied


def test_many_objects_settle_with_one_write_a_pool() -> None:
    writes, applied = settle(10, 200)
    assert writes == [1] * 200
    assert applied == 200
