"""How fast claims are allocated: 1,000 onto 100 nodes of 64 devices, and beside the real kube-scheduler."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import msgspec

from bench.bed import control_plane
from bench.figures import Figure
from netdra.exposure import expose
from netdra.model import documents
from netdra.model.claim import DeviceClass, ResourceClaim
from netdra.model.inventory import Interface, Inventory, InventoryNode
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import ResourceSlice
from netdra.slices.allocator import Allocation, Allocator
from netdra.slices.pack import pack
from testbed import objects
from testbed.api import Api, Object
from testbed.commands import Settings
from testbed.objects import CLAIM, CLASS, NAMESPACE, POD

NODES = 100
VFS = 63
CLAIMS = 1000
SECONDS = 10.0
SCHEDULED = 200
HOME = "bench"
OURS = 'device.driver == "dra.networking" && device.attributes["dra.networking"]'
CLASSES = {"vf": f'{OURS}.type == "vf"', "pf": f'{OURS}.type == "pf"'}
QUICK = {"NODES": 3, "CLAIMS": 10, "SCHEDULED": 3}


def run() -> list[Figure]:
    """The allocator's figures; those beside the scheduler are of the same slices and claims in the same run."""
    slices = [each for number in range(NODES) for each in node_slices(f"node-{number:03}")]
    classes = [msgspec.convert(each, DeviceClass) for each in class_objects()]
    size = f"{NODES} nodes x {VFS + 1} devices"
    single = _seconds(slices, classes, [claim(f"c{n}", "vf") for n in range(CLAIMS)])
    pairs = _seconds(slices, classes, [claim(f"c{n}", "vf", count=2, same="numaNode") for n in range(CLAIMS)])
    refused, explained = _refusal_ms(slices, classes)
    ours = _seconds(slices, classes, [claim(f"c{n}", "vf") for n in range(SCHEDULED)])
    theirs = scheduler_seconds(slices)
    rates = f"kube-scheduler {SCHEDULED / theirs:.0f} claims/s with its API calls, here {SCHEDULED / ours:.0f}"
    return [
        Figure(f"{CLAIMS:,} claims of one VF", single, "s", SECONDS, size),
        Figure(f"{CLAIMS:,} claims of two VFs of one NUMA node", pairs, "s", SECONDS, size),
        Figure("a claim that fits on no node", refused, "ms", 0.0, f"{size}, a VF of each in use"),
        Figure("why it fits on none", explained, "ms", 0.0, size),
        Figure("time beside kube-scheduler", ours / theirs, "x", 1.0, rates),
    ]


def node_slices(node: str) -> Iterator[ResourceSlice]:
    """A node with one PF, offered for passthrough, and its VFs."""
    pf = Interface(if_name="eth0", type="pf", pci_address="0000:03:00.0", link_speed=100_000, num_vfs=VFS, numa_node=0)
    vfs = (
        Interface(
            if_name=f"eth0v{index}",
            type="vf",
            pf_name="eth0",
            pf_pci_address=pf.pci_address,
            vf_index=index,
            pci_address=f"0000:03:{1 + index // 8:02x}.{index % 8}",
            numa_node=0,
        )
        for index in range(VFS)
    )
    inventory = Inventory(node=InventoryNode(name=node), interfaces=(pf, *vfs))
    yield from pack(expose(inventory, policies()), node=node)


def policies() -> list[DeviceExposurePolicy]:
    """The PF and the VFs, exclusive."""
    text = "".join(
        f"""---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {{name: {kind}}}
spec:
  selector: {{cel: 'device.attributes["dra.networking"].type == "{kind}"'}}
"""
        for kind in CLASSES
    )
    return [each for each in documents.read(text, "bench") if isinstance(each, DeviceExposurePolicy)]


def class_objects() -> list[Object]:
    """The device classes of VFs and of PFs."""
    return [
        objects.manifest(CLASS, name, spec={"selectors": [{"cel": {"expression": expression}}]})
        for name, expression in CLASSES.items()
    ]


def claim_object(name: str, of: str, *, count: int = 1, same: str = "") -> Object:
    """A claim for devices of a class, if need be with one attribute in common."""
    constraints = [{"matchAttribute": f"dra.networking/{same}"}] if same else []
    requests = [{"name": "net", "exactly": {"deviceClassName": of, "count": count}}]
    return objects.manifest(CLAIM, name, HOME, spec={"devices": {"requests": requests, "constraints": constraints}})


def claim(name: str, of: str, *, count: int = 1, same: str = "") -> ResourceClaim:
    """The same for the allocator."""
    return msgspec.convert(claim_object(name, of, count=count, same=same), ResourceClaim)


def scheduler_seconds(slices: list[ResourceSlice]) -> float:
    """How long the real kube-scheduler takes for pods with a claim each, from its first to its last decision."""
    with control_plane(Settings(controller_manager=False)) as plane, closing(plane.client()) as api:
        _prepare(api, slices)
        plane.scheduler.pause()
        for number in range(SCHEDULED):
            api.create(claim_object(f"c{number}", "vf"))
            api.create(_pod(number))
        start = time.perf_counter()
        plane.scheduler.resume()
        api.wait_for_all(POD, _all_bound, namespace=HOME, timeout=300)
        return time.perf_counter() - start


def _prepare(api: Api, slices: list[ResourceSlice]) -> None:
    """Nodes, classes and slices, and a pod to see that the scheduler knows them all."""
    api.create(objects.manifest(NAMESPACE, HOME))
    for each in class_objects():
        api.create(each)
    for number in range(NODES):
        objects.add_node(api, f"node-{number:03}")
    for published in slices:
        api.create(documents.plain(published))
    api.create(claim_object("first", "pf"))
    api.create(objects.pod(HOME, "first", {"first": "first"}, node=f"node-{NODES - 1:03}"))
    api.wait_for_all(POD, _all_bound, namespace=HOME, timeout=120)


def _pod(number: int) -> Object:
    return objects.pod(HOME, f"p{number}", {"net": f"c{number}"})


def _all_bound(pods: list[Object]) -> bool:
    return all(pod["spec"].get("nodeName") for pod in pods)


def _seconds(slices: list[ResourceSlice], classes: list[DeviceClass], claims: list[ResourceClaim]) -> float:
    """Allocate all claims with an allocator that knows nothing yet."""
    start = time.perf_counter()
    allocator = Allocator(slices, classes)
    outcomes = [allocator.allocate(each) for each in claims]
    elapsed = time.perf_counter() - start
    assert all(isinstance(outcome, Allocation) for outcome in outcomes)
    return elapsed


def _refusal_ms(slices: list[ResourceSlice], classes: list[DeviceClass]) -> tuple[float, float]:
    """A claim for a PF where each has lost a VF: the time to refuse it, and to explain."""
    allocator = Allocator(slices, classes)
    for node in allocator.nodes:
        assert isinstance(allocator.allocate(claim(f"on-{node}", "vf"), nodes=[node]), Allocation)
    wanted = claim("pf", "pf")
    start = time.perf_counter()
    outcome = allocator.allocate(wanted)
    refused = time.perf_counter()
    explanation = allocator.explain(wanted)
    explained = time.perf_counter()
    assert not isinstance(outcome, Allocation)
    assert len(explanation.nodes) == NODES
    return (refused - start) * 1000, (explained - refused) * 1000
