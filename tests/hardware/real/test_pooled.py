"""Pooled VFs in real pods: the scheduler counts VFs and bandwidth, the node chooses the VF, and its PF limits it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from netdra.model import documents, names
from netdra.model.quantity import parse
from netdra.model.topology import NetworkTopology
from netdra.topology.classes import device_classes
from testbed.api import Object
from testbed.dra import read_sequence
from testbed.objects import CLASS, POD, manifest
from testbed.pods import is_running
from testbed.waiting import until
from tests.cluster.pods.driver import ATTRIBUTES, POLICY, TOPOLOGY, WITHIN, Offer, addresses
from tests.cluster.pods.networks.test_containers import ATTRIBUTES as FILES
from tests.hardware.node import PATIENCE, PF, PFS, TOTAL_VFS, VF, links
from tests.hardware.pods import node_state, of_pf, until_as_before
from tests.hardware.real.offers import device_of, pf_of, ready, taints

LINK = 1000
"""Of the emulated NICs, in Mbit/s."""
BANDWIDTH, COUNT = f"{names.DRIVER}/bandwidth", f"{names.DRIVER}/vfs"
Capacities = dict[str, tuple[int, int]]


def pooled(offer: Offer, plugins: str, cel: str, lanes: int = 1) -> str:
    """Offer VFs of this machine together, by a policy with this name."""
    exposure = {"pooledVFs": {"lanes": lanes}, "supportedCNIPlugins": [{"name": each} for each in plugins.split()]}
    spec = {"selector": {"cel": f'{ATTRIBUTES}.type == "vf" && {cel}'}, "exposure": exposure}
    name = offer.workspace.name("pooled")
    offer.workspace.create(manifest(POLICY, name, spec=spec))
    return name


def class_of(offer: Offer, pf: PF, plugin: str) -> str:
    """A DeviceClass of a PF's pooled VFs, which states by which step they are attached."""
    parameters = {
        "apiVersion": "networking.dra.io/v1alpha1",
        "kind": "DeviceParameters",
        "step": {"type": plugin, "config": {}},
    }
    expression = f'device.driver == "{names.DRIVER}" && {ATTRIBUTES}.pfName == {pf.name!r}'
    spec = {
        "selectors": [{"cel": {"expression": expression}}],
        "config": [{"opaque": {"driver": names.DRIVER, "parameters": parameters}}],
    }
    name = offer.workspace.name(f"{plugin}-{pf.name}")
    offer.workspace.create(manifest(CLASS, name, spec=spec))
    return name


def request(name: str, device_class: str, bandwidth: int, count: int = 1) -> Object:
    """A request for VFs, each with so much bandwidth."""
    capacity = {"requests": {BANDWIDTH: str(bandwidth)}}
    return {"name": name, "exactly": {"deviceClassName": device_class, "count": count, "capacity": capacity}}


def capacities(offer: Offer) -> Capacities:
    """The VFs and the bandwidth of each published device that has VFs."""
    found = {name: device.get("capacity", {}) for name, device in offer.published().items()}
    return {
        name: (int(parse(capacity[COUNT]["value"])), int(parse(capacity.get(BANDWIDTH, {"value": "0"})["value"])))
        for name, capacity in found.items()
        if COUNT in capacity
    }


def wait_capacities(offer: Offer, expected: Capacities) -> None:
    until(
        lambda: capacities(offer) == expected,
        "the pooled VFs to be published",
        seconds=WITHIN,
        detail=lambda: str(capacities(offer)),
    )


def limits() -> dict[str, int]:
    """The VFs that are limited, by PCI address, as `ip link show` of their PFs has it."""
    found = links()
    held = {vf.pci: int(of_pf(vf, found)["rate"]["max_tx"]) for pf in PFS for vf in pf.vfs()}
    return {pci: rate for pci, rate in held.items() if rate}


def vfs_of(offer: Offer, pod: str, *interfaces: str) -> list[VF]:
    """The VFs that are a pod's interfaces."""
    inside: Mapping[str, Object] = offer.inside(pod)
    every = {vf.pci: vf for pf in PFS for vf in pf.vfs()}
    return [every[inside[name]["parentdev"]] for name in interfaces]


def bonded(offer: Offer) -> NetworkTopology:
    """A bond of two VFs with RDMA, on it a VLAN with an address; the PFs are the claim's to choose."""
    selector = {"cel": f'{ATTRIBUTES}.type == "vf" && {ATTRIBUTES}.rdma == true'}
    links = [{"name": "{{ vf0.interfaceName }}"}, {"name": "{{ vf1.interfaceName }}"}]
    master = {"master": "{{ bond0.interfaceName }}", "id": 100, "name": "data0"}
    tuned = {"dev": "{{ data.interfaceName }}", "addresses": ["10.100.0.5/24"]}
    steps: list[dict[str, Any]] = [
        *({"name": name, "type": "sriov", "selector": selector, "config": {"trust": "on"}} for name in ("vf0", "vf1")),
        {"name": "bond0", "type": "bond", "dependOn": ["vf0", "vf1"],
         "config": {"name": "bond0", "mode": "active-backup", "miimon": 100, "links": links}},
        {"name": "data", "type": "vlan", "dependOn": ["bond0"], "config": master},
        {"name": "tune", "type": "tuning", "dependOn": ["data"], "config": tuned},
    ]  # fmt: skip
    written = manifest(TOPOLOGY, offer.workspace.name("bonded"), spec={"steps": steps})
    topology = documents.convert(written, NetworkTopology, "bonded")
    offer.workspace.create(written)
    for each in device_classes(topology):
        offer.workspace.create(msgspec.to_builtins(each))
    return topology


def test_a_bond_of_pooled_rdma_vfs_of_two_pfs_has_its_bandwidth_until_its_pod_is_gone(
    pfs: tuple[PF, ...], rdma_vfs: tuple[tuple[VF, VF], ...], offer: Offer
) -> None:
    before = node_state()
    pooled(offer, "sriov", f"{ATTRIBUTES}.rdma == true")
    wait_capacities(offer, {f"{pf.name}-vfs": (len(rdma_vfs), LINK) for pf in pfs})
    name = bonded(offer).name
    apart: list[Object] = [{"requests": ["vf0", "vf1"], "distinctAttribute": f"{names.DRIVER}/pfName"}]
    offer.workspace.add_claim(
        "network", *(request(step, f"{name}-{step}", 200) for step in ("vf0", "vf1")), constraints=apart
    )
    offer.pods.run("training", "network")

    found = offer.inside("training")
    assert [found[name]["master"] for name in ("net1", "net2")] == ["bond0", "bond0"]
    assert addresses(found["data0"]) == {"10.100.0.5/24"}
    given = vfs_of(offer, "training", "net1", "net2")
    assert {pf_of(vf) for vf in given} == set(pfs)
    assert set(given) <= {vf for pair in rdma_vfs for vf in pair}
    assert limits() == {vf.pci: 200 for vf in given}
    told = offer.status("network", devices=2)
    assert {each["device"] for each in told} == {f"{pf.name}-vfs" for pf in pfs}
    assert all(each["shareID"] for each in told)

    offer.pods.delete("training")
    offer.driver.until_nothing_is_left()
    until_as_before(before)
    assert limits() == {}


def test_a_vf_for_userspace_stays_the_chosen_one_though_the_driver_dies_before_it_is_attached(
    pfs: tuple[PF, ...], offer: Offer
) -> None:
    before = node_state()
    pooled(offer, "vfio-pci", "true")
    wait_capacities(offer, {f"{pf.name}-vfs": (TOTAL_VFS, LINK) for pf in pfs})
    offer.workspace.add_claim("dpdk", request("nic", class_of(offer, pfs[0], "vfio-pci"), 300))
    offer.driver.restart("attach-begun=kill")
    offer.pods.add("dpdk", "dpdk")
    offer.driver.wait_end()
    chosen = recorded(offer, pfs[0].vfs())
    assert len(chosen) == 1
    assert limits() == {}

    offer.driver.start()
    offer.pods.wait("dpdk", is_running)
    until(lambda: ready(offer, "dpdk") == ("True", "Attached"), "the VF to be attached", seconds=WITHIN)
    assert {vf.pci for vf in pfs[0].vfs() if vf.driver == "vfio-pci"} == chosen
    assert limits() == dict.fromkeys(chosen, 300)

    offer.pods.delete("dpdk")
    offer.driver.until_nothing_is_left()
    until_as_before(before)


def recorded(offer: Offer, vfs: Sequence[VF]) -> set[str]:
    """The VFs that the node has written down for claims."""
    files = (offer.driver.node.folder / path for path in offer.driver.left())
    texts = "\n".join(file.read_text() for file in files if file.is_file())
    return set(re.findall(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", texts)) & {vf.pci for vf in vfs}


@pytest.mark.repeats
def test_a_request_gets_two_vfs_of_a_pf_and_an_excessive_request_waits_for_their_release(
    pfs: tuple[PF, ...], offer: Offer
) -> None:
    """The daemon is dead when the first pod is deleted; the next one undoes it."""
    before = node_state()
    pooled(offer, "host-device", f"{ATTRIBUTES}.pfName == {pfs[0].name!r}", lanes=2)
    wait_capacities(offer, {f"{pfs[0].name}-vfs0": (4, LINK // 2), f"{pfs[0].name}-vfs1": (3, LINK // 2)})
    device_class = class_of(offer, pfs[0], "host-device")
    offer.workspace.add_claim("two", request("vfs", device_class, 200, count=2))
    offer.workspace.add_claim("much", request("vf", device_class, 400))
    offer.pods.run("first", "two")
    given = vfs_of(offer, "first", "net1", "net2")
    assert len(set(given)) == 2
    assert limits() == {vf.pci: 200 for vf in given}
    offer.pods.add("second", "much")
    offer.unschedulable("second", "cannot allocate all claims")

    offer.driver.kill()
    offer.workspace.api.delete(POD, "first", offer.workspace.namespace, grace=1)
    offer.driver.start()
    offer.pods.wait("first", lambda found: found is None)
    offer.pods.wait("second", is_running)
    (vf,) = vfs_of(offer, "second", "net1")
    assert vf not in given, "the VF that was given back longest ago comes first"
    assert limits() == {vf.pci: 400}

    offer.pods.delete("second")
    offer.driver.until_nothing_is_left()
    until_as_before(before)


@pytest.mark.repeats
def test_recreated_vfs_are_available_to_others_except_the_vf_of_the_running_pod(
    pfs: tuple[PF, ...], set_num_vfs: Callable[[PF, int], None], offer: Offer
) -> None:
    pf = pfs[1]
    device = f"{pf.name}-vfs"
    pooled(offer, "sriov", f"{ATTRIBUTES}.pfName == {pf.name!r}")
    wait_capacities(offer, {device: (TOTAL_VFS, LINK)})
    device_class = class_of(offer, pf, "sriov")
    for name in ("first", "second"):
        offer.workspace.add_claim(name, request("vf", device_class, 300))
    offer.pods.run("first", "first")
    (vf,) = vfs_of(offer, "first", "net1")

    set_num_vfs(pf, 0)
    until(lambda: "net1" not in offer.inside("first"), "the VF to be gone from the pod", seconds=PATIENCE)
    until(
        lambda: list(taints(offer, device) or ()) == [names.WITHDRAWN], "the VFs to be kept from claims", seconds=WITHIN
    )
    set_num_vfs(pf, TOTAL_VFS)
    until(lambda: taints(offer, device) == {}, "the VFs to be offered again", seconds=WITHIN)
    wait_capacities(offer, {device: (TOTAL_VFS, LINK)})

    offer.pods.run("second", "second")
    (other,) = vfs_of(offer, "second", "net1")
    assert other != vf
    assert limits() == {other.pci: 300}
    offer.pods.delete("first", "second")
    offer.driver.until_nothing_is_left()
    assert limits() == {}
    wait_capacities(offer, {device: (TOTAL_VFS, LINK)})


def by_request(offer: Offer, claim: str, requests: Sequence[str]) -> dict[str, Object]:
    """The entries of a claim's status for its shares, by the request of each."""
    entries = {each["shareID"]: each for each in offer.status(claim, devices=len(requests))}
    results = offer.allocated(claim)["status"]["allocation"]["devices"]["results"]
    assert [result["request"] for result in results] == [*requests]
    return {result["request"]: entries[result["shareID"]] for result in results}


@pytest.mark.repeats
def test_pods_keep_their_distinct_shares_of_a_pool_when_the_policy_changes_to_single_vfs(
    pfs: tuple[PF, ...], offer: Offer
) -> None:
    """Two of a pod's interfaces and another pod's VF for userspace are of one device."""
    before = node_state()
    pf, api, run = pfs[0], offer.workspace.api, offer.driver.node.run
    device, cel = f"{pf.name}-vfs", f"{ATTRIBUTES}.pfName == {pf.name!r}"
    policy = pooled(offer, "host-device vfio-pci", cel)
    wait_capacities(offer, {device: (TOTAL_VFS, LINK)})
    netdevs, userspace = (class_of(offer, pf, plugin) for plugin in ("host-device", "vfio-pci"))
    offer.workspace.add_claim("two", request("a", netdevs, 100), request("b", netdevs, 200))
    offer.workspace.add_claim("dpdk", request("c", userspace, 300))
    for name in ("two", "dpdk"):
        offer.pods.run(name, name)

    def assert_attached() -> dict[str, VF]:
        links = offer.inside("two")
        vfs = dict(zip("ab", vfs_of(offer, "two", "net1", "net2"), strict=True))
        (vfs["c"],) = (vf for vf in pf.vfs() if vf.driver == "vfio-pci")
        assert limits() == {vfs["a"].pci: 100, vfs["b"].pci: 200, vfs["c"].pci: 300}
        told = by_request(offer, "two", "ab") | by_request(offer, "dpdk", "c")
        assert {each["device"] for each in told.values()} == {device}
        for name, interface in (("a", "net1"), ("b", "net2")):
            mac = links[interface]["address"]
            assert told[name]["networkData"] == {"interfaceName": interface, "hardwareAddress": mac}
        return vfs

    vfs = assert_attached()
    assert len(set(vfs.values())) == 3
    for claim, name in (("two", "a"), ("two", "b"), ("dpdk", "c")):
        process, address = f"/proc/{offer.pods.pid(claim)}", vfs[name].pci
        variable = f"NETDRA_{claim.upper()}_{name.upper()}_PCI_ADDRESSES={address}"
        assert variable in run("cat", f"{process}/environ").split("\0")
        path = f"{FILES}/resourceclaims/{claim}/{name}/dra.networking-metadata.json"
        metadata, _ = read_sequence(run("cat", f"{process}/root{path}"))
        (described,) = metadata["requests"]
        (told,) = described["devices"]
        assert (told["name"], told["attributes"]["dra.networking/pciAddress"]) == (device, {"string": address})
    files = run("ls", f"/proc/{offer.pods.pid('dpdk')}/root/dev/vfio").split()
    assert set(files) == {vfs["c"].iommu_group, "vfio"}

    alone = {"pooledVFs": None, "supportedCNIPlugins": [{"name": "host-device", "exclusive": True}]}
    together = {"pooledVFs": {"lanes": 1}, "supportedCNIPlugins": [{"name": "host-device"}, {"name": "vfio-pci"}]}
    api.patch(POLICY, policy, {"spec": {"exposure": alone}})
    others = {device_of(vf) for vf in pf.vfs() if vf not in vfs.values()}
    until(lambda: set(offer.published()) == {device, *others}, "the other VFs to be published", seconds=WITHIN)
    offer.workspace.add_claim("one", {"name": "vf", "exactly": {"deviceClassName": netdevs}})
    offer.pods.run("one", "one")
    (vf,) = vfs_of(offer, "one", "net1")
    assert device_of(vf) in others
    offer.pods.delete("one")
    assert assert_attached() == vfs

    api.patch(POLICY, policy, {"spec": {"exposure": together}})
    wait_capacities(offer, {device: (TOTAL_VFS, LINK)})
    assert assert_attached() == vfs
    offer.pods.delete("two", "dpdk")
    offer.driver.until_nothing_is_left()
    until_as_before(before)
    assert limits() == {}
