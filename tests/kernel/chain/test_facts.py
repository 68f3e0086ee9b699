"""Interfaces that are named, and get their addresses, by facts of the allocated devices, the node and the pod."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from netdra.chain.detach import detach
from netdra.model import documents, names
from netdra.model.claim import ResourceClaim
from netdra.model.errors import InvalidInputError
from netdra.model.meta import ObjectMeta
from netdra.model.plan import PlannedDevice
from netdra.model.resource import Device, DeviceAttribute, ResourcePool, ResourceSlice, ResourceSliceSpec
from netdra.topology.bind import bind
from netdra.topology.surroundings import ELSEWHERE, Surroundings
from tests import builders
from tests.kernel.chain.conftest import Bed
from tests.plans import attach

POOL = "pool"
RAILS = {"nicA": 0, "nicB": 1}
DEVICES = {(POOL, name): PlannedDevice(request="", pool=POOL, device=name, if_name=name, type="nic") for name in RAILS}
ADDRESS = "10.{{ device.attributes.rail }}.{{ node.labels['example.com/rack'] }}.1{{ pod.ordinal }}/24"
TOPOLOGY = builders.topology(
    "- {name: nic, type: host-device, config: {name: 'rail{{ device.attributes.rail }}'}}\n"
    f"- {{name: t, type: tuning, dependOn: [nic], config: {{mtu: '{{{{ device.attributes.mtu }}}}',"
    f' addresses: ["{ADDRESS}"]}}}}',
    "rails",
)


def claim() -> ResourceClaim:
    results = [{"request": "nic", "driver": names.DRIVER, "pool": POOL, "device": name} for name in RAILS]
    parameters = {"networkTopologyRef": {"name": "rails"}, "step": "nic"}
    config = [{"source": "FromClass", "opaque": {"driver": names.DRIVER, "parameters": parameters}}]
    return documents.convert(
        {
            "metadata": {"name": "c", "namespace": "ns", "uid": "u"},
            "spec": {"devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": "rails-nic"}}]}},
            "status": {"allocation": {"devices": {"results": results, "config": config}}},
        },
        ResourceClaim,
        "test",
    )


def place() -> Surroundings:
    devices = tuple(
        Device(name=name, attributes={"rail": DeviceAttribute(int_=rail), "mtu": DeviceAttribute(int_=1400 + rail)})
        for name, rail in RAILS.items()
    )
    pool = ResourcePool(name=POOL, generation=1, resource_slice_count=1)
    spec = ResourceSliceSpec(driver=names.DRIVER, pool=pool, node_name="n1", devices=devices)
    slices = (ResourceSlice(metadata=ObjectMeta(name="s"), spec=spec),)
    return Surroundings(node="n1", labels={"example.com/rack": "7"}, slices=slices, pods=("web-2",))


def test_the_interfaces_of_the_pod_have_the_names_and_addresses_of_their_rails(bed: Bed) -> None:
    bed.veth("nicA", "farA")
    bed.veth("nicB", "farB")
    before = bed.state()
    plans = bind([claim()], {"rails": TOPOLOGY}, DEVICES, place=place()).plans
    attach(plans, bed.container, bed.pod.path, bed.settings)
    for rail in RAILS.values():
        (link,) = bed.ip("addr", "show", f"rail{rail}", inside=True)
        assert link["mtu"] == 1400 + rail
        assert f"10.{rail}.7.12" in {address["local"] for address in link["addr_info"]}
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert bed.state() == before


def test_nothing_is_run_while_a_fact_is_a_reference(bed: Bed) -> None:
    bed.veth("nicA", "farA")
    bed.veth("nicB", "farB")
    before = bed.state()
    plans = bind([claim()], {"rails": TOPOLOGY}, DEVICES, place=ELSEWHERE).plans
    with pytest.raises(InvalidInputError, match="has no value"):
        attach(plans, bed.container, bed.pod.path, bed.settings)
    assert bed.state() == before


def test_two_devices_of_one_rail_are_refused_before_anything_runs() -> None:
    same = replace(place(), slices=tuple(_same_rail(entry) for entry in place().slices))
    with pytest.raises(InvalidInputError, match='interface "rail0" is also that of step "nic"'):
        bind([claim()], {"rails": TOPOLOGY}, DEVICES, place=same)


def _same_rail(entry: ResourceSlice) -> ResourceSlice:
    devices = tuple(
        replace(device, attributes={**device.attributes, "rail": DeviceAttribute(int_=0)})
        for device in entry.spec.devices
    )
    return replace(entry, spec=replace(entry.spec, devices=devices))
