"""The topology ai-bonded-rdma as it is written, on this machine's names: from the policies to the pod and back.

Discovered, exposed, packed into slices, allocated by the built-in allocator, bound, attached, inspected and detached.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from netdra.chain.check import check
from netdra.discovery.scan import scan
from netdra.exposure.expose import expose
from netdra.model import documents
from netdra.model.claim import ResourceClaim
from netdra.model.inventory import InventoryNode
from netdra.model.plan import Plan
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.topology import NetworkTopology
from netdra.slices.allocator import Allocation, Allocator
from netdra.slices.pack import pack
from netdra.topology.bind import bind
from netdra.topology.classes import device_classes
from netdra.topology.devices import from_slices
from testbed.waiting import until
from tests.documents import TOPOLOGIES
from tests.hardware import killed
from tests.hardware.node import PATIENCE, PF, VF, ip, ping, run
from tests.hardware.pods import Pod, assert_as_before, node_state, of_pf

TOPOLOGY = TOPOLOGIES / "ai-bonded-rdma.yaml"
POLICY = """
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata:
  name: vfs
spec:
  selector:
    cel: device.attributes["dra.networking"].type == "vf"
  exposure:
    supportedCNIPlugins:
      - name: sriov
        exclusive: true
"""
CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: {name}
  namespace: default
spec:
  devices:
    requests:
      - name: vf0
        exactly:
          deviceClassName: ai-bonded-rdma-vf0
      - name: vf1
        exactly:
          deviceClassName: ai-bonded-rdma-vf1
"""


def plans(count: int = 1) -> list[tuple[Plan, ...]]:
    """The plans of so many claims, allocated one after the other from the devices of this machine."""
    (topology,) = documents.read(TOPOLOGY.read_text(), str(TOPOLOGY))
    assert isinstance(topology, NetworkTopology)
    (policy,) = documents.read(POLICY, "policy")
    assert isinstance(policy, DeviceExposurePolicy)
    slices = pack(expose(scan(InventoryNode(name="worker-1")), [policy]), node="worker-1")
    allocator = Allocator(slices, device_classes(topology))
    found = []
    for number in range(count):
        (claim,) = documents.read(CLAIM.format(name=f"claim-{number}"), "claim")
        assert isinstance(claim, ResourceClaim)
        done = allocator.allocate(claim)
        assert isinstance(done, Allocation), done
        found.append(bind(done.claims, {topology.name: topology}, from_slices(slices)).plans)
    return found


def test_ai_bonded_rdma_as_it_is_written(
    pfs: tuple[PF, ...],
    rdma_vfs: tuple[tuple[VF, VF], ...],
    pod: Pod,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    before = node_state()
    (planned,) = plans()
    report = pod.attach(*planned)
    for each in report.steps:
        record_testsuite_property(f"{each.step} ({each.plugin}), ms", round(each.seconds * 1000, 1))
    record_testsuite_property("attach, ms", round(report.seconds * 1000, 1))

    assert [pod.link(name)["parentdev"][:7] for name in ("net1", "net2")] == [pf.pci[:7] for pf in pfs]
    given = [next(vf for vf in pf.vfs() if vf.pci == pod.link(name)["parentdev"])
             for pf, name in zip(pfs, ("net1", "net2"), strict=True)]  # fmt: skip
    assert [(of_pf(vf)["spoofchk"], of_pf(vf)["trust"], of_pf(vf)["vlan_list"]) for vf in given] == [
        (False, True, [{}])
    ] * 2
    bond = pod.link("bond0")
    data = bond["linkinfo"]["info_data"]
    assert (data["mode"], data["xmit_hash_policy"], data["miimon"], data["ad_lacp_rate"]) == (
        "802.3ad",
        "layer3+4",
        100,
        "fast",
    )
    assert bond["mtu"] == 9000
    assert (pod.link("data0")["link"], pod.link("data0")["mtu"], pod.addresses("data0")) == (
        "bond0",
        9000,
        {"10.100.0.5/24"},
    )
    assert (pod.link("mgmt0")["link"], pod.link("mgmt0")["mtu"], pod.addresses("mgmt0")) == (
        "bond0",
        1500,
        {"10.200.0.5/24"},
    )
    assert [pod.link(name)["linkinfo"]["info_data"]["id"] for name in ("data0", "mgmt0")] == [100, 200]
    assert pod.feature("data0", "tcp-segmentation-offload")
    routes = {
        each["dst"]: each["gateway"] for each in json.loads(ip("-j", "route", netns=pod.netns)) if "gateway" in each
    }
    assert routes == {"10.100.0.0/16": "10.100.0.1", "default": "10.200.0.1"}
    assert check(pod.netns, pod.settings).is_clean

    gone = pod.detach()
    record_testsuite_property("detach, ms", round(gone.seconds * 1000, 1))
    assert gone.is_clean
    assert_as_before(before, pod.settings)


def test_two_pods_of_ai_bonded_rdma_ping_over_their_bonded_vlans(
    pfs: tuple[PF, ...], rdma_vfs: tuple[tuple[VF, VF], ...], new_pod: Callable[[], Pod]
) -> None:
    """Over the emulated NICs' own wires, which meet in a hub; packets of 9000 bytes get through as well."""
    first, second = new_pod(), new_pod()
    for number, (pod, planned) in enumerate(zip((first, second), plans(2), strict=True)):
        (only,) = planned
        pod.attach(in_active_backup(only, f"10.100.0.{5 + number}/24", f"10.200.0.{5 + number}/24"))
    until(
        lambda: first.link("bond0")["operstate"] == second.link("bond0")["operstate"] == "UP",
        "the bonds to be up",
        seconds=PATIENCE,
    )

    ping("10.100.0.6", first.netns)
    ping("10.200.0.6", first.netns)
    jumbo = ("ip", "netns", "exec", first.netns, "busybox", "ping", "-c", "2", "-W", "5", "-s", "8900", "10.100.0.6")
    assert " 0% packet loss" in run(*jumbo)


def in_active_backup(planned: Plan, data: str, management: str) -> Plan:
    """The same plan with its own addresses, and a bond without an LACP partner: pods on a hub cannot be partners."""
    changes: dict[str, dict[str, Any]] = {
        "bond0": {"mode": "active-backup"},
        "tune-data": {"addresses": [data]},
        "tune-mgmt": {"addresses": [management]},
    }
    without = {"xmitHashPolicy", "lacpRate"}
    steps = [
        msgspec.structs.replace(
            step,
            config={key: value for key, value in step.config.items() if step.name != "bond0" or key not in without}
            | changes.get(step.name, {}),
        )
        for step in planned.steps
    ]
    return msgspec.structs.replace(planned, steps=tuple(steps))


@pytest.mark.parametrize("after", ["vf0", "bond0", "data-vlan", "tune-data"])
def test_a_process_killed_while_attaching_leaves_a_checkpoint_that_is_enough(
    pfs: tuple[PF, ...], rdma_vfs: tuple[tuple[VF, VF], ...], pod: Pod, after: str
) -> None:
    before = node_state()
    ((planned,),) = plans()
    job = killed.Job(planned, pod.netns, pod.settings, after)
    assert killed.exit_code(job) == -signal.SIGKILL
    assert differs(before)

    report = pod.detach()

    assert report.is_clean, str(report)
    assert after in {each.step for each in report.undone}
    assert_as_before(before, pod.settings)


def differs(before: object) -> bool:
    return node_state() != before
