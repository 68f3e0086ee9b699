"""A share of a device is not ownership: no input of a plugin states that the device belongs to the pod (D55)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.chain.flow import tasks
from netdra.chain.orders import network_of
from netdra.cni.config import request
from netdra.model.errors import InvalidInputError
from netdra.model.plan import PlannedDevice, PlannedStep
from netdra.model.result import CNIInterface, StepResult
from netdra.rules import confine
from netdra.rules.shipped import own_of
from netdra.topology.attachment import completed
from netdra.topology.bind import unbound
from netdra.topology.graph import compile_topology
from tests import builders
from tests.plans import plan, step

ADDRESS = "0000:06:00.0"
UPLINK = PlannedDevice(
    request="r", pool="n/uplink", device="up0-localnet", if_name="up0", pci_address=ADDRESS, share_id="s1"
)
RESULT = StepResult(interfaces=(CNIInterface(name="net1", mac="02:00:00:00:00:01", sandbox="/run/netns/p"),))
KINDS = ["ovn-k8s-cni-overlay", "macvlan", "ipvlan", "vlan", "bridge", "ovs", "sriov", "host-device", "ib-sriov", "own"]
KEYS = ["deviceID", "pciBusID", "device", "master", "bridge", "vf", "runtimeConfig", "args", "links"]


def told(*steps: PlannedStep) -> list[str]:
    plans = [plan(*steps)]
    return [finding.text for finding in confine.check(plans, confine.contracts_of(plans, own_of(())))]


def root(kind: str, config: Mapping[str, Any] | None = None, device: PlannedDevice = UPLINK) -> PlannedStep:
    return step("up", kind, "net1", config, device=device, binary=True)


def test_a_shared_device_gets_no_device_id_and_an_exclusive_one_does() -> None:
    def asked(device: PlannedDevice) -> dict[str, Any]:
        (task,) = tasks([plan(root("ovn-k8s-cni-overlay", {"topology": "localnet"}, device))]).values()
        return request(network_of(task, task.step.config), "1.0.0", None)

    alone = asked(msgspec.structs.replace(UPLINK, share_id=""))
    assert (alone["deviceID"], alone["runtimeConfig"]) == (ADDRESS, {"deviceID": ADDRESS})
    assert not {"deviceID", "runtimeConfig"} & asked(UPLINK).keys()


values = st.recursive(
    st.sampled_from([ADDRESS, "0000:06:00.0 ", "{{ up.pciAddress }}", "{{ up.interfaceName }}", "up0", "x", 5, True]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["deviceID", "a"]), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(KEYS), values, max_size=3),
    st.sampled_from(["tuning", "rdma", "own"]),
    st.dictionaries(st.sampled_from(KEYS), values, max_size=3),
)
def test_no_plugin_receives_the_address_of_a_shared_device_in_any_accepted_topology(
    kind: str, config: dict[str, Any], then: str, further: dict[str, Any]
) -> None:
    """Either the plan is refused, or neither request of the two programs has the address or `deviceID` from netdra."""
    steps = (root(kind, config), step("top", then, "net1", further, after=["up"], binary=True))
    if told(*steps):
        return
    graph = tasks([plan(*steps)])
    for key, task in graph.items():
        try:
            resolved = task.resolved(task.step.config, graph, {"0/up": RESULT})
        except InvalidInputError:
            continue  # a reference leads nowhere: the step is not run
        asked = request(network_of(task, resolved), "1.0.0", RESULT if key != "0/up" else None)
        assert ADDRESS not in msgspec.json.encode(asked).decode()


@pytest.mark.parametrize("kind", ["sriov", "host-device", "ib-sriov", "rdma"])
@pytest.mark.parametrize("binary", [True, False])
def test_a_step_that_moves_its_device_has_no_shared_one(kind: str, binary: bool) -> None:
    (found,) = told(step("up", kind, "net1", device=UPLINK, binary=binary))
    assert f'device "up0-localnet" is shared with other claims, and type {kind} moves it into the pod' in found


@pytest.mark.parametrize("text", [ADDRESS, ADDRESS.upper(), "{{ up.pciAddress }}"])
def test_the_address_is_refused_where_a_plugin_s_own_key_has_it(text: str) -> None:
    (found,) = told(root("own"), step("top", "own", "net2", {"nested": [{"vf": text}]}, after=["up"]))
    assert "is the PCI address of a shared device" in found
    assert told(root("own"), step("top", "own", "net2", {"nested": [{"vf": "0000:07:00.0"}]}, after=["up"])) == []


OVN = "- {name: port, type: ovn-k8s-cni-overlay, config: {topology: localnet, netAttachDefName: %s}}"


@pytest.mark.parametrize(
    ("config", "network"),
    [
        ("team/blue", "blue"),
        ("team/blue, networkName: cluster_udn_blue", "cluster_udn_blue"),
    ],
)
def test_ovn_kubernetes_is_given_the_network_of_its_definition(config: str, network: str) -> None:
    written = builders.topology(OVN % config)
    graph = compile_topology(written)
    (planned,) = unbound(written).steps
    assert (planned.network, "networkName" in planned.config) == (network, False)
    assert completed(graph, graph.steps[0], UPLINK) == planned.config
