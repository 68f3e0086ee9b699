"""A claim gets a port of its VF only from a NeutronPort of exactly this VF that is bound with possible settings."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.kube.answers import Page
from netdra.kube.client import Selection
from netdra.kube.resources import Resource
from netdra.model.errors import NetdraError
from netdra.model.neutron_port import NeutronPort, PortSettings, name_of
from netdra.model.plan import PlannedDevice, PlannedPort
from netdra.model.topology import NeutronRequest
from netdra.node.claims import ports
from testbed import virtual_time
from tests.memory_api import MemoryApi, T
from tests.plans import plan, step

NODE = "node-1"
VF = PlannedDevice(request="vf", pool="pool", device="eth1v0", pci_address="0000:03:00.2", type="vf")
PLAN = plan(msgspec.structs.replace(step("vf", "sriov", "net1", device=VF), neutron=NeutronRequest()), topology="net")
NAME = name_of(PLAN.claim.uid, VF.pool, VF.device)
SPEC = {
    "claim": {"name": PLAN.claim.name, "uid": PLAN.claim.uid},
    "request": "vf",
    "pool": "pool",
    "device": "eth1v0",
    "nodeName": NODE,
    "topology": "net",
    "step": "vf",
    "physnet": "physnet2",
    "pciAddress": VF.pci_address,
    "host": NODE,
}
SETTINGS: dict[str, Any] = {
    "mac": "fa:16:3e:00:00:01",
    "vlan": 1017,
    "mtu": 1500,
    "addresses": ["10.77.0.5/24"],
    "gateways": ["10.77.0.1"],
    "dns": ["10.77.0.2"],
}
STATUS: dict[str, Any] = {
    "portID": "port-1",
    "networkID": "network-1",
    "networkName": "blue",
    "settings": SETTINGS,
    "conditions": [{"type": "Bound", "status": "True", "reason": "Bound", "message": ""}],
}
UNBOUND = {"type": "Bound", "status": "False", "reason": "NoAgent", "message": "no agent on host"}


def taken(spec: dict[str, Any], status: dict[str, Any] | None, later: float = 0.0, **metadata: Any) -> PlannedPort:
    """The port that the VF gets from the one NeutronPort, which is stored some seconds later."""
    value = {
        "apiVersion": "networking.dra.io/v1alpha1",
        "kind": "NeutronPort",
        "metadata": {"name": NAME, "namespace": PLAN.claim.namespace, **metadata},
        "spec": spec,
    } | ({"status": status} if status is not None else {})
    msgspec.convert(value, NeutronPort)  # as the API server accepts it

    async def bind(api: MemoryApi) -> None:
        await asyncio.sleep(later)
        api.put("neutronports", value)

    async def story() -> PlannedPort:
        api = MemoryApi()
        binding = asyncio.create_task(bind(api))
        await asyncio.sleep(0 if later else 0.1)
        (port,) = (await ports.wait_bound(api, NODE, [PLAN], 5.0)).values()
        await binding
        return port

    return virtual_time.run(story())


@pytest.mark.parametrize("later", [0.0, 3.0])
def test_a_bound_port_is_that_of_the_vf(later: float) -> None:
    port = taken(SPEC, STATUS, later)
    assert (port.port_id, port.network_id, port.network_name) == ("port-1", "network-1", "blue")
    assert port.settings == msgspec.convert(SETTINGS, PortSettings)


@pytest.mark.parametrize(
    ("spec", "status", "metadata", "reason"),
    [
        ({}, STATUS, {"deletionTimestamp": "2026-11-27T10:00:00Z"}, "is not there"),
        ({"request": "other"}, STATUS, {}, 'an earlier allocation of the VF: spec.request is "other", not "vf"'),
        ({"topology": "other"}, STATUS, {}, 'an earlier allocation of the VF: spec.topology is "other", not "net"'),
        ({"step": "other"}, STATUS, {}, 'an earlier allocation of the VF: spec.step is "other", not "vf"'),
        ({}, None, {}, "is not bound yet"),
        ({}, STATUS | {"conditions": []}, {}, "is not bound yet"),
        ({}, STATUS | {"conditions": [UNBOUND]}, {}, "is not bound: NoAgent: no agent on host"),
        ({}, STATUS | {"portID": ""}, {}, "is bound and has no settings"),
        ({}, {key: value for key, value in STATUS.items() if key != "settings"}, {}, "is bound and has no settings"),
        ({"claim": {"name": PLAN.claim.name, "uid": "other"}}, STATUS, {}, "is not of the VF that was allocated"),
        ({"pool": "other"}, STATUS, {}, 'spec.pool is "other", not "pool"'),
        ({"device": "other"}, STATUS, {}, 'spec.device is "other", not "eth1v0"'),
        ({"shareID": "other"}, STATUS, {}, 'spec.shareID is "other", not ""'),
        ({"nodeName": "other"}, STATUS, {}, 'spec.nodeName is "other", not "node-1"'),
        ({"pciAddress": "other"}, STATUS, {}, 'spec.pciAddress is "other", not "0000:03:00.2"'),
        ({}, STATUS | {"settings": SETTINGS | {"mac": "01:00:5e:00:00:01"}}, {}, "is not that of a single interface"),
        (
            {},
            STATUS | {"settings": SETTINGS | {"addresses": ["10.77.0.5"]}},
            {},
            '"10.77.0.5" is invalid or has no prefix',
        ),
        ({}, STATUS | {"settings": SETTINGS | {"gateways": ["10.77.0.1/24"]}}, {}, '"10.77.0.1/24" is not an address'),
        ({}, STATUS | {"settings": SETTINGS | {"dns": ["10.77.0.1", "dns"]}}, {}, '"dns" is not an address'),
        ({}, STATUS | {"settings": SETTINGS | {"vlan": 4095}}, {}, "vlan 4095 is not from 0 to 4094"),
    ],
)
def test_a_port_that_is_not_bound_to_the_vf_is_an_error_with_the_reason(
    spec: dict[str, Any], status: dict[str, Any] | None, metadata: dict[str, Any], reason: str
) -> None:
    with pytest.raises(NetdraError) as refused:
        taken(SPEC | spec, status, **metadata)
    assert reason in refused.value.what


def test_an_unexpected_error_is_not_hidden_by_ports_that_are_still_awaited() -> None:
    other = msgspec.structs.replace(VF, device="eth1v1", pci_address="0000:03:00.3")
    plans = [
        PLAN,
        msgspec.structs.replace(PLAN, steps=tuple(msgspec.structs.replace(step, device=other) for step in PLAN.steps)),
    ]

    class BrokenApi(MemoryApi):
        async def page(
            self, resource: Resource[T], selection: Selection, *, limit: int = 0, continue_: str = ""
        ) -> Page:
            if NAME in selection.field_selector:
                raise ZeroDivisionError
            return await super().page(resource, selection, limit=limit, continue_=continue_)

    with pytest.raises(ZeroDivisionError):
        virtual_time.run(ports.wait_bound(BrokenApi(), NODE, plans, 5.0))


def near(*limits: int) -> st.SearchStrategy[int]:
    return st.sampled_from(sorted({limit + change for limit in limits for change in (-1, 0, 1)}))


@given(vlan=near(0, 4094), mtu=near(0, 68, 65535), low=near(0, 10, 2**32 - 1), high=near(0, 10, 2**32 - 1))
def test_numbers_of_a_port_are_valid_exactly_within_their_limits(vlan: int, mtu: int, low: int, high: int) -> None:
    settings = PortSettings(mac=SETTINGS["mac"], vlan=vlan, mtu=mtu, min_tx_rate=low, max_tx_rate=high)
    found = list(ports.problems(settings))
    assert any(text.startswith("vlan ") for text in found) is (vlan not in range(4095))
    assert any(text.startswith("mtu ") for text in found) is (mtu != 0 and mtu not in range(68, 65536))
    are_rates = low in range(2**32) and high in range(2**32) and (high == 0 or low <= high)
    assert any(text.startswith("minTxRate ") for text in found) is not are_rates
    assert all(text.startswith(("vlan ", "mtu ", "minTxRate ")) for text in found)
