"""The SR-IOV machine as a worker node: a real kubelet, runtime and `netdra node` in it, the control plane outside.

Used by the tests of real pods on hardware. All that a node keeps over a reboot is on the machine's disk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from netdra.model import crd, kinds
from testbed.access import Access
from testbed.api import Api
from testbed.driver import Driver
from testbed.forks import Forks
from testbed.kubelet import Kubelet
from testbed.node import Node
from testbed.objects import NODE
from testbed.runtimes import started
from testbed.vm import disk
from testbed.vm.beside import PATIENCE, joined_control_plane
from testbed.vm.hardware import DISK, DISK_FOLDER, GUEST
from tests.cluster import identities
from tests.cluster.conftest import is_established
from tests.cluster.pods.conftest import Machine, logs_shown
from tests.cluster.pods.running import account
from tests.hardware.node import run

NAME = "sriov"
FOLDER = Path(DISK_FOLDER)
# The runtime waits so long for a hook; under emulation the usual 2 s are too few.
HOOK_SECONDS = 40.0
DEFINITION = "apiextensions.k8s.io/v1/CustomResourceDefinition"
_CACHE = "NETDRA_TESTBED_CACHE"


@dataclass
class Worker:
    """The node, its driver, and the administrator's client.

    Attributes:
        leaves: whether it is left as it is for the next boot, so that the control plane must not forget it.
    """

    machine: Machine
    driver: Driver
    plane: Access
    api: Api
    leaves: bool = False


@contextmanager
def running_worker(config: pytest.Config) -> Iterator[Worker]:
    """The machine as a Ready node with its driver; begun again if the disk has a node from an earlier boot.

    Such a node starts the driver once, by its command line. In the first boot it is started again and again: there it
    is forked.
    """
    plane = joined_control_plane()
    mount_disk()
    begun_again = (FOLDER / "node").exists()
    with _programs_on_disk(), closing(plane.client()) as api:
        _serve_kinds(api)
        node = Node(NAME, folder=FOLDER / "node", address=GUEST, alone=True, patience=PATIENCE)
        with node, logs_shown(config, node), _forked(node, again=begun_again):
            containerd = started(node, hook_seconds=HOOK_SECONDS)
            machine = Machine(node, containerd, Kubelet(containerd, plane))
            (pods,) = (each for each in identities.template("node.yaml") if each["kind"] == "DaemonSet")
            (container,) = pods["spec"]["template"]["spec"]["containers"]
            # What hardware needs of the kernel the chart's pods must be able to do.
            capabilities = container["securityContext"]["capabilities"]["add"]
            driver = Driver(node, account(node, plane, api), capabilities=capabilities, programs=disk.DRIVERS)
            worker = Worker(machine, driver, plane, api)
            worker.driver.start()
            yield worker
            if not worker.leaves:
                api.delete(NODE, NAME)


@contextmanager
def _forked(node: Node, *, again: bool) -> Iterator[None]:
    """Have the node fork netdra's programs in its first boot."""
    if again:
        yield
        return
    with closing(Forks(node.folder / "forks.log")) as node.forks:
        yield


def mount_disk() -> None:
    """Mount the machine's disk, once a boot; what an earlier boot had in /run is not there any more."""
    if FOLDER.is_mount():
        return
    FOLDER.mkdir(exist_ok=True)
    run("mount", "-o", "noinit_itable", DISK, str(FOLDER))
    shutil.rmtree(FOLDER / "node" / "run", ignore_errors=True)


@contextmanager
def _programs_on_disk() -> Iterator[None]:
    """Have the test bed's programs run from the disk."""
    outside = os.environ.get(_CACHE)
    os.environ[_CACHE] = str(FOLDER / disk.FOLDER)
    try:
        yield
    finally:
        os.environ.pop(_CACHE)
        if outside is not None:
            os.environ[_CACHE] = outside


def _serve_kinds(api: Api) -> None:
    """Have the control plane serve netdra's own kinds."""
    for kind in kinds.KINDS:
        api.apply(crd.manifest(kind))
    for kind in kinds.KINDS:
        api.wait_for(DEFINITION, kind.name, is_established)
