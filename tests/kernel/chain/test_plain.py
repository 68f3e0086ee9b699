"""Devices that no topology describes, from an allocated claim to the pod and back, beside each other."""

from __future__ import annotations

from typing import Any

import pytest

from netdra.chain.detach import detach
from netdra.chain.report import AttachError
from netdra.model import documents, names
from netdra.model.claim import ResourceClaim
from netdra.model.plan import Plan, PlannedDevice
from netdra.topology.bind import bind
from tests.kernel.chain.conftest import Bed
from tests.plans import attach

POOL = "node/nic-eth"


def device(name: str, *plugins: str) -> PlannedDevice:
    return PlannedDevice(
        request="", pool=POOL, device=name, if_name=name, type="nic", supported_cnis=plugins or ("host-device",)
    )


def plans_of(*devices: PlannedDevice, said: Any = None, share: str = "") -> tuple[Plan, ...]:
    """The plans of a claim that was allocated these devices."""
    shared = {"shareID": share} if share else {}
    results = [
        {"request": "net", "driver": names.DRIVER, "pool": POOL, "device": each.device, **shared} for each in devices
    ]
    parameters = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "DeviceParameters", "step": said}
    config = [{"source": "FromClass", "opaque": {"driver": names.DRIVER, "parameters": parameters}}] if said else []
    claim = documents.convert(
        {
            "metadata": {"name": "c", "namespace": "ns", "uid": "u"},
            "spec": {"devices": {"requests": [{"name": "net", "exactly": {"deviceClassName": "nics"}}]}},
            "status": {"allocation": {"devices": {"results": results, "config": config}}},
        },
        ResourceClaim,
        "test",
    )
    return bind([claim], {}, {(POOL, each.device): each for each in devices}).plans


def test_two_devices_of_a_request_go_to_the_pod_and_come_back(bed: Bed) -> None:
    bed.veth("nicA", "farA")
    bed.veth("nicB", "farB")
    before = bed.state()
    report = attach(plans_of(device("nicA"), device("nicB")), bed.container, bed.pod.path, bed.settings)
    assert [(step.step, step.plugin, step.interface) for step in report.steps] == [
        ("net", "host-device", "net1"),
        ("net", "host-device", "net2"),
    ]
    assert {link["ifname"] for link in bed.ip("link", inside=True)} >= {"net1", "net2"}
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert bed.state() == before


def test_a_shared_device_gets_a_link_of_its_own_by_the_plugin_of_that_name(bed: Bed) -> None:
    bed.veth("nicA", "farA", up=True)
    before = bed.state()
    said = {"type": "macvlan", "config": {"mode": "bridge", "name": "data0", "ipam": {}}}
    (plan,) = plans_of(device("nicA", "macvlan"), said=said, share="s")
    report = attach([plan], bed.container, bed.pod.path, bed.settings)
    assert [(step.plugin, step.execution, step.interface) for step in report.steps] == [("macvlan", "Binary", "data0")]
    assert bed.link("data0", inside=True)["linkinfo"]["info_kind"] == "macvlan"
    assert bed.link("nicA")["ifname"] == "nicA"
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert bed.state() == before


def test_a_failure_without_a_topology_names_the_request(bed: Bed) -> None:
    with pytest.raises(AttachError, match=r'request "net" \(host-device\)'):
        attach(plans_of(device("gone")), bed.container, bed.pod.path, bed.settings)
