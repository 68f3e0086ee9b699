"""Facts of providers for pooled VFs: none for a single VF, and for their device the same as for any shared device."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.exposure import expose
from netdra.exposure.registered import Registered, errors
from netdra.model.device import ExposureResult
from netdra.model.registration import Registration
from netdra.model.resource import CapacityRequestPolicy, DeviceAttribute, DeviceCapacity
from netdra.slices.pack import layout
from netdra.topology.devices import from_slices
from tests.builders import OURS, exclusive, inventory
from tests.unit.exposure.test_pooling import BANDWIDTH, VFS, card, pooled

TOGETHER = pooled("vfs")
RAIL = {"rail": DeviceAttribute(int_=3)}
SINGLE = exclusive("single", f'{OURS}.type == "vf" && {OURS}.vfIndex == 1', "sriov", deviceNameSuffix="-one")


def says(device: str, provider: str = "bctl", **said: Any) -> Registration:
    return Registration(provider=provider, device=device, **said)


def result(*said: Registration, policies: Any = (TOGETHER,)) -> ExposureResult:
    return expose(inventory(*card(4)), policies, registered=Registered(said))


@pytest.mark.parametrize("name", ["eth0v1", "NETDEV"])
@pytest.mark.parametrize("adds", [False, True])
def test_registering_a_single_pooled_vf_fails_and_the_outcome_names_the_device_to_register(
    name: str, adds: bool
) -> None:
    vf = next(vf for vf in card(4) if vf.device_name == "eth0v1")
    name = vf.if_name if name == "NETDEV" else name
    found = result(says(name, attributes=RAIL, adds=adds))
    (outcome,) = found.outcomes
    assert (outcome.meant, outcome.attributes, outcome.capacity) == (name, (), ())
    assert outcome.problem == (
        f'VF "{name}" is one of the pooled VFs of device "eth0-vfs" and not a device itself; register the device '
        "of pooled VFs by its name, or offer the VF with a policy without pooledVFs"
    )
    (device,) = found.devices
    assert not device.registered


def test_the_outcome_for_a_vf_of_many_lanes_names_one_lane_and_counts_the_others() -> None:
    (outcome,) = result(says("eth0v1", attributes=RAIL), policies=(pooled("vfs", lanes=4),)).outcomes
    assert 'of device "eth0-vfs0" and 3 more and not' in outcome.problem


def test_a_pooled_vf_that_another_policy_offers_by_itself_as_well_is_that_device() -> None:
    found = result(says("eth0v1", attributes=RAIL), policies=(TOGETHER, SINGLE))
    assert {device.name: [*device.registered] for device in found.devices} == {
        "eth0-vfs": [],
        "eth0v1-one": ["bctl/rail"],
    }
    assert [outcome.problem for outcome in found.outcomes] == [""]


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_pooled_device_publishes_the_registration_made_under_its_name(lanes: int) -> None:
    name = "eth0-vfs" if lanes == 1 else "eth0-vfs1"
    said = says(name, attributes=RAIL, capacity={"flows": DeviceCapacity(value=64)})
    found = result(said, policies=(pooled("vfs", lanes=lanes),))
    assert [outcome.problem for outcome in found.outcomes] == [""]
    by_name = {device.name: device for device in found.devices}
    assert by_name.pop(name).registered == {"bctl/rail": RAIL["rail"]}
    assert all(not device.registered and "bctl/flows" not in device.capacity for device in by_name.values())
    device = next(device for device in found.devices if device.name == name)
    assert device.capacity["bctl/flows"] == DeviceCapacity(value=64, request_policy=CapacityRequestPolicy(default="0"))


def test_a_suffix_is_part_of_the_devices_name_and_not_of_that_of_the_vfs_together() -> None:
    for name in ("eth0-vfs-a", "eth0-vfs"):
        (device,) = result(says(name, attributes=RAIL), policies=(pooled("vfs", deviceNameSuffix="-a"),)).devices
        assert [*device.registered] == ["bctl/rail"]


def test_capacity_of_a_provider_does_not_replace_the_vfs_and_bandwidth_of_netdra() -> None:
    own = {"vfs": DeviceCapacity(value=9), "bandwidth": DeviceCapacity(value=1)}
    assert any("is reserved" in finding.what for finding in errors("dra.networking", {}, own))
    before, after = result(), result(says("eth0-vfs", capacity=own))
    (was,), (device,) = before.devices, after.devices
    assert {name: device.capacity[name] for name in (VFS, BANDWIDTH)} == dict(was.capacity)
    assert {"bctl/vfs", "bctl/bandwidth"} <= device.capacity.keys()
    assert after.outcomes[0].problem == ""


@settings(deadline=None, max_examples=80)
@given(
    said=st.lists(
        st.builds(
            says,
            st.sampled_from(["eth0-vfs0", "eth0-vfs1", "eth0v0", "eth0v2", "eth0"]),
            st.sampled_from(["a", "b.c"]),
            attributes=st.dictionaries(
                st.sampled_from(["type", "pfName", *(f"x{at}" for at in range(12))]), st.just(RAIL["rail"])
            ),
            capacity=st.dictionaries(st.sampled_from(["vfs", "bandwidth", "y"]), st.just(DeviceCapacity(value=7))),
            adds=st.booleans(),
        ),
        max_size=5,
        unique_by=lambda entry: (entry.provider, entry.device),
    ),
    lanes=st.integers(1, 3),
)
def test_registrations_never_change_attributes_of_pooled_devices_and_stay_publishable(
    said: list[Registration], lanes: int
) -> None:
    policies = (pooled("vfs", lanes=lanes),)
    before, after = result(policies=policies), result(*said, policies=policies)
    for was, device in zip(before.devices, after.devices, strict=True):
        assert (device.name, device.attributes, device.lane, device.consumes) == (
            was.name,
            was.attributes,
            was.lane,
            was.consumes,
        )
        assert was.capacity.items() <= device.capacity.items()
    packed = layout(after, node="n")
    assert packed.problems == ()
    assert all(facts.pooled for facts in from_slices(packed.slices).values())
    for outcome in after.outcomes:
        assert ("pooled VFs" in outcome.problem) == outcome.meant.startswith("eth0v")
