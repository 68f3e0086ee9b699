"""The machine after a reboot with pods: run by `make test-hardware` in a boot of its own, after all other tests.

The disk is as the first boot left it: checkpoints, prepared claims, the kubelet's and the runtime's own state. The
kernel knows nothing of any pod, and VFs and their drivers are as at every boot.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from testbed.objects import CLAIM
from testbed.pods import Pods, is_running
from testbed.workspace import Workspace
from tests.cluster.pods.driver import Offer, addresses
from tests.hardware.node import PF, until
from tests.hardware.pods import differences, node_state, of_pf
from tests.hardware.real.boots import Left, boot_id, found
from tests.hardware.real.offers import ready
from tests.hardware.real.test_reboot import ADDRESS
from tests.hardware.real.worker import FOLDER, Worker, mount_disk

CHECKPOINTS = FOLDER / "node" / "lib" / "netdra" / "sandboxes"


@pytest.fixture(scope="session")
def left() -> Left:
    """What the first boot left, before anything runs."""
    mount_disk()
    return found()


def checkpoint(path: Path) -> tuple[str, str]:
    """Sandbox and boot of a checkpoint, as its first line says."""
    header = msgspec.json.decode(path.read_bytes().splitlines()[0])
    return path.stem, header["bootId"]


def checkpoints() -> set[tuple[str, str]]:
    return {checkpoint(path) for path in CHECKPOINTS.glob("*.jsonl")}


@pytest.fixture(scope="session")
def before(left: Left) -> dict[str, object]:
    """The node before its programs are started; checkpoints of the other boot are there."""
    assert left.boot_id != boot_id()
    assert {(sandbox, left.boot_id) for sandbox in left.sandboxes.values()} <= checkpoints()
    return node_state()


@pytest.mark.across_boots
def test_after_a_reboot_pods_have_their_devices_anew_and_nothing_of_the_boot_before_is_left(
    pfs: tuple[PF, ...], left: Left, before: dict[str, object], worker: Worker
) -> None:
    pods = Pods(worker.api, left.namespace, worker.machine.containerd)
    offer = Offer(Workspace(worker.api), worker.driver, pods)
    offer.workspace.namespace = left.namespace
    offer.until(lambda: all(pods.sandbox(name) not in ("", former) for name, former in left.sandboxes.items()))
    for name in left.sandboxes:
        pods.wait(name, is_running)

    assert {name: offer.workspace.devices(name) for name in left.devices} == left.devices
    assert addresses(offer.inside("netdev")["net1"]) == {ADDRESS}
    assert of_pf(pfs[0].vf(4))["vlan_list"] == [{"vlan": 7}]
    assert pfs[1].vf(5).driver == "vfio-pci"
    for name in left.sandboxes:
        assert ready(offer, name) == ("True", "Attached")
    offer.until(lambda: checkpoints() == {(pods.sandbox(name), boot_id()) for name in left.sandboxes})

    pods.delete_all()
    offer.driver.until_nothing_is_left()
    until(lambda: not differences(before, node_state()), "the node is as after its boot", limit=60)
    worker.api.delete_all(CLAIM, left.namespace)
