"""The machine after a reboot with pods: run by `make test-hardware` in a boot of its own, after all other tests.

The disk is as the first boot left it: checkpoints, prepared claims, the kubelet's and the runtime's own state. The
kernel knows nothing of any pod, and VFs and their drivers are as at every boot.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import pytest

from testbed.api import Object
from testbed.objects import CLAIM
from testbed.pods import Pods, container_of, is_running
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster.pods.driver import WITHIN, Offer, addresses
from tests.hardware.node import PF
from tests.hardware.pods import node_state, of_pf, until_as_before
from tests.hardware.real.boots import Left, boot_id, found
from tests.hardware.real.offers import ready
from tests.hardware.real.test_reboot import ADDRESS
from tests.hardware.real.worker import FOLDER, Worker, mount_disk

PATIENCE = 600.0  # emulated, a kubelet may take minutes until it comes back to a pod whose first try failed
CHECKPOINTS = FOLDER / "node" / "lib" / "netdra" / "sandboxes"


@pytest.fixture(scope="session")
def left() -> Left:
    """The remains of the first boot, before anything runs."""
    mount_disk()
    return found()


def checkpoint(path: Path) -> tuple[str, str]:
    """Sandbox and boot of a checkpoint, as its first line states."""
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


def runs_anew(former: str, pod: Object | None) -> bool:
    """Whether a pod runs, and in another container than before."""
    return is_running(pod) and container_of(pod) != former


@pytest.mark.across_boots
def test_after_a_reboot_pods_have_their_devices_anew_and_nothing_of_the_boot_before_is_left(
    pfs: tuple[PF, ...], left: Left, before: dict[str, object], worker: Worker
) -> None:
    pods = Pods(worker.api, left.namespace, worker.machine.containerd)
    offer = Offer(Workspace(worker.api), worker.driver, pods)
    offer.workspace.namespace = left.namespace
    for name, container in left.containers.items():
        pods.wait(name, partial(runs_anew, container), timeout=PATIENCE)
    assert not {pods.sandbox(name) for name in left.sandboxes} & {*left.sandboxes.values()}

    assert {name: offer.workspace.devices(name) for name in left.devices} == left.devices
    assert addresses(offer.inside("netdev")["net1"]) == {ADDRESS}
    assert of_pf(pfs[0].vf(4))["vlan_list"] == [{"vlan": 7}]
    assert pfs[1].vf(5).driver == "vfio-pci"
    for name in left.sandboxes:
        assert ready(offer, name) == ("True", "Attached")
    until(
        lambda: checkpoints() == {(pods.sandbox(name), boot_id()) for name in left.sandboxes},
        "checkpoints of the new sandboxes alone",
        seconds=WITHIN,
    )

    pods.delete_all()
    offer.driver.until_nothing_is_left()
    until_as_before(before)
    worker.api.delete_all(CLAIM, left.namespace)
