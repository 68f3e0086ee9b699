"""Hardware in real pods: published, scheduled, prepared, attached, reported, and returned as it was."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence

import msgspec
import pytest

from netdra.cni.plugins import PluginPath
from netdra.model import documents, names
from netdra.model.topology import NetworkTopology
from netdra.topology.classes import device_classes
from testbed import yaml
from testbed.api import Object
from testbed.image import NAME
from testbed.pods import CONTAINER, is_running
from testbed.vm.hardware import VIRTIO_MAC
from testbed.waiting import until
from tests.cluster.pods.driver import WITHIN, Offer, addresses
from tests.documents import DEVICES, REFERENCE_NODE, TOPOLOGIES
from tests.hardware.node import PF, VF, Function, links
from tests.hardware.pods import node_state, of_pf, until_as_before
from tests.hardware.real.offers import device_of, offer_vf, published, ready

TOPOLOGY = TOPOLOGIES / "ai-bonded-rdma.yaml"
OF_VFS = ("pf0-vfs", "pf1-vfs")
STEPS = ("sriov", "bond", "vlan", "tuning")
# As a program such as DPDK's does: it opens its group's file and keeps it.
OPEN = 'for file in /dev/vfio/[0-9]*; do exec 3<>"$file"; done; trap exit TERM; sleep 1000000 & wait'
Record = Callable[[str, object], None]


def write_documents_objects(offer: Offer) -> str:
    """Policies, topology and template of the documents, with the topology's classes; return the template's name."""
    for policy in yaml.safe_load_all(REFERENCE_NODE.read_text()):
        if policy["metadata"]["name"] in OF_VFS:
            offer.workspace.create(policy)
    offer.workspace.create(yaml.safe_load(TOPOLOGY.read_text()))
    (topology,) = documents.read(TOPOLOGY.read_text(), str(TOPOLOGY))
    assert isinstance(topology, NetworkTopology)
    for each in device_classes(topology):
        offer.workspace.create(msgspec.to_builtins(each))
    template: Object = yaml.safe_load((DEVICES / "6.5.yaml").read_text())
    template["metadata"]["namespace"] = offer.workspace.namespace
    offer.workspace.api.create(template)
    return str(template["metadata"]["name"])


def rdma_devices(offer: Offer) -> set[str]:
    """The published devices with RDMA."""
    attribute = "rdma"
    return {name for name, each in offer.published().items() if each["attributes"].get(attribute) == {"bool": True}}


def sums(offer: Offer) -> dict[str, float]:
    """The seconds that attaching took so far, by action."""
    steps = {kind: offer.metric("netdra_chain_step_duration_seconds_sum", type=kind, action="add") for kind in STEPS}
    return steps | {"all of attaching": offer.metric("netdra_attach_duration_seconds_sum")}


def test_ai_bonded_rdma_is_in_a_real_pod_and_its_vfs_come_back_as_they_were(
    pfs: tuple[PF, ...],
    rdma_vfs: tuple[tuple[VF, VF], ...],
    offer: Offer,
    record_testsuite_property: Record,
) -> None:
    before, spent = node_state(), sums(offer)
    template = write_documents_objects(offer)
    rdma = {device_of(vf) for pair in rdma_vfs for vf in pair}
    until(lambda: rdma_devices(offer) == rdma, "the RDMA devices to be published", seconds=WITHIN)
    pod = offer.pods.manifest("training", "net")
    pod["spec"]["resourceClaims"] = [{"name": "net", "resourceClaimTemplateName": template}]
    began = time.monotonic()
    offer.workspace.api.create(pod)
    running = offer.pods.wait("training", is_running)
    (made,) = running["status"]["resourceClaimStatuses"]
    record_testsuite_property("pod created to running, s", round(time.monotonic() - began, 2))
    for kind, seconds in sums(offer).items():
        record_testsuite_property(f"{kind}, ms in a real pod", round((seconds - spent[kind]) * 1000, 1))

    found = offer.inside("training")
    assert set(found) == {"lo", "eth0", "net1", "net2", "bond0", "data0", "mgmt0"}
    given = [next(vf for vf in pf.vfs() if vf.pci == found[name]["parentdev"])
             for pf, name in zip(pfs, ("net1", "net2"), strict=True)]  # fmt: skip
    assert [(of_pf(vf)["spoofchk"], of_pf(vf)["trust"]) for vf in given] == [(False, True)] * 2
    assert [found[name]["master"] for name in ("net1", "net2")] == ["bond0", "bond0"]
    assert found["bond0"]["linkinfo"]["info_data"]["mode"] == "802.3ad"
    vlans = {name: (found[name]["linkinfo"]["info_data"]["id"], found[name]["mtu"]) for name in ("data0", "mgmt0")}
    assert vlans == {"data0": (100, 9000), "mgmt0": (200, 1500)}
    assert (addresses(found["data0"]), addresses(found["mgmt0"])) == ({"10.100.0.5/24"}, {"10.200.0.5/24"})
    assert_told_of(offer.status(made["resourceClaimName"], devices=2), {device_of(vf) for vf in given})

    offer.pods.delete("training")
    offer.driver.until_nothing_is_left()
    until_as_before(before)
    until(lambda: published(offer, [device_of(vf) for vf in given]), "the devices to be published", seconds=WITHIN)


def assert_told_of(devices: Sequence[Object], expected: set[str]) -> None:
    """A claim's status reports its devices, and step by step their progress."""
    assert {each["device"] for each in devices} == expected
    for device in devices:
        (condition,) = device["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "True", "Attached")
        (pod,) = device["data"]["pods"]
        assert {"bond0", "data-vlan", "mgmt-vlan", "tune-data", "tune-mgmt"} < {each["step"] for each in pod["steps"]}
    assert {device["networkData"]["interfaceName"] for device in devices} == {"net1", "net2"}


def container(claim: str) -> Object:
    """A container that has its claim's device file open."""
    resources = {"claims": [{"name": claim}]}
    command = ["sh", "-c", OPEN]
    return {"name": CONTAINER, "image": NAME, "imagePullPolicy": "Never", "command": command, "resources": resources}


def test_a_vf_for_userspace_is_opened_by_the_pods_process_and_is_a_netdev_again_afterwards(
    pfs: tuple[PF, ...], offer: Offer
) -> None:
    vf = pfs[0].vf(3)
    before = node_state()
    claim = offer.claim("dpdk", nic=offer_vf(offer, vf, "vfio-pci"))
    offer.pods.run("dpdk", claim, containers=[container(claim)])

    group = Function(vf.pci).iommu_group
    assert vf.driver == "vfio-pci"
    node, process = offer.driver.node, f"/proc/{offer.pods.pid('dpdk')}"
    assert node.run("readlink", f"{process}/fd/3").strip() == f"/dev/vfio/{group}"
    assert set(node.run("ls", f"{process}/root/dev/vfio").split()) == {group, "vfio"}
    assert ready(offer, claim) == ("True", "Attached")
    (told,) = offer.status(claim)
    (step,) = told["data"]["pods"][0]["steps"]
    assert step["result"]["devices"][0]["deviceNodes"] == [f"/dev/vfio/{group}", "/dev/vfio/vfio"]

    offer.pods.delete("dpdk")
    offer.driver.until_nothing_is_left()
    until_as_before(before)


@pytest.mark.parametrize("execution", ["Auto", pytest.param("Binary", marks=pytest.mark.repeats)])
def test_a_pod_uses_a_virtio_nic_and_it_is_on_the_node_again_as_it_was(
    plugins: PluginPath, offer: Offer, execution: str
) -> None:
    """Claim and kubelet name its PCI function, netlink a virtio device."""
    before, at = node_state(), links()["vnic"]["parentdev"]
    if execution == "Binary" and not (offer.driver.plugins / "host-device").exists():
        shutil.copy(f"{plugins.directories[0]}/host-device", offer.driver.plugins)
    offer.policy("virtio", "vnic", supportedCNIPlugins=[{"name": "host-device", "exclusive": True}])
    offer.wait_published("vnic")
    step = {"type": "host-device", "execution": execution, "config": {}}
    parameters = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "DeviceParameters", "step": step}
    opaque = {"driver": names.DRIVER, "parameters": parameters}
    claim = offer.claim("nic", nic=offer.device_class("host-device", "vnic", config=[{"opaque": opaque}]))
    offer.pods.run("virtio", claim)
    found = offer.inside("virtio")["net1"]
    assert (found["address"], found["parentdev"]) == (VIRTIO_MAC, at)
    assert "vnic" not in links()
    assert ready(offer, claim) == ("True", "Attached")
    offer.pods.delete("virtio")
    offer.driver.until_nothing_is_left()
    until_as_before(before)
