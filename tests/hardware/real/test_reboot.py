"""Pods with hardware that run when the machine is started again; `second_boot` has the checks after it."""

from __future__ import annotations

import pytest

from testbed import objects
from testbed.pods import Pods
from testbed.workspace import Workspace
from tests.cluster.pods.driver import Offer
from tests.hardware.node import PF
from tests.hardware.real.boots import Left, boot_id, leave
from tests.hardware.real.offers import offer_vf
from tests.hardware.real.worker import Worker

ADDRESS = "10.7.0.1/24"
IPAM = {"type": "static", "addresses": [{"address": ADDRESS}]}


@pytest.mark.across_boots
def test_pods_with_a_vf_and_with_a_device_file_run_and_are_left_for_the_next_boot(
    pfs: tuple[PF, ...], worker: Worker
) -> None:
    workspace = Workspace(worker.api)
    objects.add_namespace(worker.api, workspace.namespace)
    pods = Pods(worker.api, workspace.namespace, worker.machine.containerd)
    offer = Offer(workspace, worker.driver, pods)
    wanted = {
        "netdev": offer_vf(offer, pfs[0].vf(4), "sriov", vlan=7, ipam=IPAM),
        "dpdk": offer_vf(offer, pfs[1].vf(5), "vfio-pci"),
    }
    for name, offered in wanted.items():
        pods.run(name, offer.claim(name, nic=offered))
    assert len([path for path in worker.driver.left() if path.endswith(".jsonl")]) == len(wanted)

    leave(
        Left(
            boot_id=boot_id(),
            namespace=workspace.namespace,
            sandboxes={name: pods.sandbox(name) for name in wanted},
            containers={name: pods.container(name) for name in wanted},
            devices={name: workspace.devices(name) for name in wanted},
        )
    )
    worker.leaves = True
