"""Pods get their networks from a real kubelet, a real containerd and `netdra node`, before their first process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.control_plane import ControlPlane
from testbed.driver import Driver
from testbed.pods import Pods
from testbed.workspace import Workspace
from tests.cluster.pods.conftest import Machine
from tests.cluster.pods.driver import Offer


@pytest.fixture(scope="module")
def driver(machine: Machine, control_plane: ControlPlane, custom_kinds: None) -> Driver:
    """The node's driver."""
    return Driver(machine.node, control_plane)


@pytest.fixture
def offer(driver: Driver, workspace: Workspace, pods: Pods) -> Iterator[Offer]:
    """What a test offers on the node; afterwards nothing of its pods is left."""
    yield Offer(workspace, driver, pods)
    pods.delete_all()
    assert driver.left() == {"checkpoints": [], "claims": [], "specifications": []}


def test_a_device_is_moved_into_a_pod_and_comes_back(offer: Offer) -> None:
    offer.veth("data0")
    offer.policy("data", "data0", supportedCNIPlugins=[{"name": "host-device", "exclusive": True}])
    offer.wait_published("data0")
    offer.claim("one", nic=offer.device_class("host-device"))

    offer.pods.run("pod", "one")

    links = {link["ifname"] for link in offer.pods.ip("pod", "link")}
    assert links == {"lo", "eth0", "net1"}
    offer.pods.delete("pod")
    assert "data0" in offer.driver.node.run("ip", "-br", "link")
