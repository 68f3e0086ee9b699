"""etcd is restored from an older backup: the address of a running pod is not assigned again without its object."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from testbed.api import Api, Object
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.driver import Driver
from testbed.objects import POD
from testbed.pods import Pods
from testbed.waiting import until
from testbed.workspace import Workspace, open_workspace
from tests.cluster.conftest import StartControlPlane, serve_kinds
from tests.cluster.daemons import running_controller
from tests.cluster.pods.conftest import Machine, running_machine
from tests.cluster.pods.driver import Offer, addresses, opened
from tests.cluster.pods.running import account
from tests.cluster.test_controller import EVENT
from tests.cluster.test_pod_networks import Net, kill

NODE_NETWORK = "networking.dra.io/v1alpha1/NodeNetwork"
_LOOKS_FOR_CLAIMS_SECONDS = 150.0
"""Longer than a kubelet waits before it unprepares the claims of pods that ended while it did not run: 60 s."""


@pytest.fixture(scope="module")
def plane(start_control_plane: StartControlPlane) -> ControlPlane:
    """A control plane that is restored meanwhile."""
    return start_control_plane(Settings())


@pytest.fixture(scope="module")
def plane_api(plane: ControlPlane) -> Iterator[Api]:
    """The administrator's client, with netdra's kinds and a controller at work."""
    with closing(plane.client()) as client:
        serve_kinds(plane, client)
        with running_controller(plane, client):
            yield client


@pytest.fixture
def own_machine(
    request: pytest.FixtureRequest, plane: ControlPlane, plane_api: Api, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """A node of it."""
    with running_machine(request.config, plane, plane_api, tmp_path_factory.mktemp("node")) as found:
        yield found


@pytest.fixture
def own_workspace(plane_api: Api) -> Iterator[Workspace]:
    """The test's share of it."""
    with open_workspace(plane_api) as made:
        yield made


@pytest.fixture
def own_offer(own_machine: Machine, own_workspace: Workspace, plane: ControlPlane) -> Iterator[Offer]:
    """The devices that the node offers."""
    driver = Driver(own_machine.node, account(own_machine.node, plane, own_workspace.api))
    driver.start()
    made = Pods(own_workspace.api, own_workspace.namespace, own_machine.containerd)
    with opened(driver, own_workspace, made) as offer:
        yield offer


def back_up(plane: ControlPlane, to: Path) -> None:
    """Copy etcd's data while it does not run."""
    plane.etcd.stop()
    shutil.copytree(plane.folder / "etcd", to)
    plane.etcd.start()
    plane.etcd.wait_ready()
    plane.apiserver.wait_ready()


def restore(plane: ControlPlane, backup: Path) -> None:
    """Restart etcd with older data, and Kubernetes' own programs with it, as etcd's documentation advises."""
    kubernetes = (plane.controller_manager, plane.scheduler, plane.apiserver)
    for process in (*kubernetes, plane.etcd):
        process.kill()
    shutil.rmtree(plane.folder / "etcd")
    shutil.copytree(backup, plane.folder / "etcd")
    for process in (plane.etcd, *reversed(kubernetes)):
        process.start()
        process.wait_ready()


def unassigned(api: Api, node: str) -> list[Object]:
    """The addresses without a PodAddress in a node's report."""
    found: list[Object] = api.get(NODE_NETWORK, node).get("status", {}).get("unassignedAddresses", [])
    return found


def test_the_unrecorded_address_of_a_running_pod_is_not_assigned_again(
    own_offer: Offer, own_machine: Machine, plane: ControlPlane, tmp_path: Path
) -> None:
    offer, api, node = own_offer, own_offer.workspace.api, own_machine.node.name
    offer.veth("res0")
    offer.shared("res0", shares=4)
    net = Net(offer.workspace, ranges=[{"cidr": "10.94.0.0/30"}], keepSeconds=0)
    until(lambda: api.list("resource.k8s.io/v1/DeviceClass"), "the topology's class")
    back_up(plane, tmp_path / "backup")

    offer.pods.run("lost", offer.claim("lost", lan=f"{net.topology}-lan"))
    assert addresses(offer.inside("lost")["net1"]) == {"10.94.0.1/30"}
    sandbox = offer.pods.sandbox("lost")
    own_machine.kubelet.process.kill()  # it would end a pod that the API server does not know
    try:
        restore(plane, tmp_path / "backup")
        # As with Kubernetes' programs: a watch of a server that counts from an earlier number again is silent for long.
        offer.driver.kill()
        offer.driver.process.start()  # it is ready once the kubelet has registered it
        kill(plane, api)
        assert net.addresses == []
        assert api.list(POD, offer.workspace.namespace) == []
        reported = {"network": net.name, "address": "10.94.0.1", "claim": f"{offer.workspace.namespace}/lost"}
        until(lambda: unassigned(api, node) == [reported], "the node to report", detail=lambda: unassigned(api, node))

        for name in ("first", "second"):
            net.claim(name)
        until(lambda: net.of("first") or net.of("second"), "a claim to have the address", detail=lambda: net.addresses)
        first, second = ("first", "second") if net.of("first") else ("second", "first")  # the new controller chooses
        net.until(first, "10.94.0.2/30")
        found = api.wait_for_all(
            EVENT,
            lambda events: any(each["reason"] == "NoFreeAddress" for each in events),
            namespace=offer.workspace.namespace,
        )
        assert {each["regarding"]["name"] for each in found if each["reason"] == "NoFreeAddress"} == {second}
        enter = ("nsenter", f"--net={own_machine.containerd.netns(sandbox)}", "ip", "-4", "-o", "address", "show")
        assert "10.94.0.1/30" in own_machine.node.run(*enter)
    finally:
        own_machine.kubelet.process.start()
        own_machine.kubelet.process.wait_ready()
        offer.driver.process.wait_ready()
    # The kubelet ends the pod, and the address is free.
    until(lambda: unassigned(api, node) == [], "the node to report nothing more", seconds=_LOOKS_FOR_CLAIMS_SECONDS)
    net.until(second, "10.94.0.1/30")
    for name in (first, second):
        net.release(name)
