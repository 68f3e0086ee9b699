"""Real pods with netdra as their driver beside a real kubelet and containerd; and the effects of its death."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.api import Object
from testbed.driver import Driver
from testbed.image import NAME
from testbed.node import Node
from testbed.objects import CLAIM, POD
from testbed.pods import CONTAINER, Pods, is_running, lives
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster.pods import witness
from tests.cluster.pods.running import links, make_topology, publish, step


@pytest.fixture(autouse=True)
def _a_driver_for_the_next_test(driver: Driver) -> Iterator[None]:
    yield
    driver.recover()


def claim_of(workspace: Workspace, name: str, topology: str, request: str) -> str:
    return workspace.add_claim(name, {"name": request, "exactly": {"deviceClassName": f"{topology}-{request}"}})


def chain(workspace: Workspace, prefix: str) -> str:
    return make_topology(
        workspace,
        "three",
        step("nic", "host-device", prefix=prefix),
        step("address", "tuning", {"dev": "{{ nic.interfaceName }}", "addresses": ["192.0.2.7/24"]}, after="nic"),
        step("size", "tuning", {"dev": "{{ nic.interfaceName }}", "mtu": 1400}, after="address"),
    )


def interfaces(pods: Pods, pod: str) -> dict[str, Object]:
    return {each["ifname"]: each for each in pods.ip(pod, "address")}


def ready(pods: Pods, claim: str, status: str = "True") -> Object:
    """The Ready condition of a claim's one device, once it has that status."""

    def conditions(found: Object | None) -> list[Object]:
        devices = (found or {}).get("status", {}).get("devices", [])
        return [{**each, "device": device} for device in devices for each in device["conditions"]]

    found = pods.api.wait_for(
        CLAIM, claim, lambda found: status in [each["status"] for each in conditions(found)], namespace=pods.namespace
    )
    return conditions(found)[0]


def given_back(node: Node, name: str) -> None:
    """Wait until an interface is the node's own: a pod that is tried again and again has it for a moment each time."""
    until(lambda: name in links(node), "the device to be given back", seconds=witness.WITHIN, detail=lambda: name)


def test_a_pod_runs_with_the_chain_of_its_claim_and_gives_the_device_back(
    driver: Driver, pods: Pods, workspace: Workspace
) -> None:
    publish(driver.node, pods.api, "nica")
    claim = claim_of(workspace, "c", chain(workspace, "nica"), "nic")
    pods.run("chained", claim)
    found = interfaces(pods, "chained")
    assert set(found) == {"lo", "eth0", "net1"}
    assert found["net1"]["mtu"] == 1400
    assert "192.0.2.7" in {each["local"] for each in found["net1"]["addr_info"]}
    assert "net1" in pods.exec("chained", "ip", "link")
    condition = ready(pods, claim)
    assert (condition["status"], condition["reason"]) == ("True", "Attached")
    assert condition["device"]["networkData"]["ips"] == ["192.0.2.7/24"]
    assert "nica" not in links(driver.node)
    pods.delete("chained")
    assert "nica" in links(driver.node)


def test_shares_of_one_interface_are_in_several_pods_by_claims_of_their_own_and_by_one_that_they_share(
    driver: Driver, pods: Pods, workspace: Workspace
) -> None:
    publish(driver.node, pods.api, "maca")
    topology = make_topology(workspace, "shares", step("mac", "macvlan", {"mode": "bridge"}, prefix="maca"))
    own = claim_of(workspace, "own", topology, "mac")
    shared = claim_of(workspace, "shared", topology, "mac")
    for name, claim in (("own", own), ("one", shared), ("other", shared)):
        pods.add(name, claim)
    for name in ("own", "one", "other"):
        pods.wait(name, is_running)
        assert "net1" in interfaces(pods, name)
    pods.delete("one")
    assert "net1" in interfaces(pods, "other")


def test_a_failing_step_blocks_the_pod_and_is_reported_until_it_is_fixed(
    driver: Driver, pods: Pods, workspace: Workspace
) -> None:
    publish(driver.node, pods.api, "nicb")
    far = driver.recorder("far-side")
    far.fails("ADD", message="no carrier on the far side")
    topology = make_topology(
        workspace, "failing", step("nic", "host-device", prefix="nicb"), step("far", "far-side", after="nic")
    )
    claim = claim_of(workspace, "c", topology, "nic")
    pods.add("waiting", claim)
    pods.wait_event("waiting", "FailedCreatePodSandBox", "no carrier on the far side")
    assert 'step "far"' in pods.wait_event("waiting", "NetworkNotAttached")["message"]
    given_back(driver.node, "nicb")
    assert 'step "far"' in ready(pods, claim, "False")["message"]
    far.prints("ADD", {})
    witness.hurry(pods, "waiting", is_running)
    assert "net1" in interfaces(pods, "waiting")
    assert ready(pods, claim)["reason"] == "Attached"


@pytest.mark.parametrize("act", ["kill", "hang"])
def test_killed_or_hanging_while_attaching_the_pod_runs_only_when_the_driver_is_back(
    driver: Driver, pods: Pods, workspace: Workspace, act: str
) -> None:
    nic = f"nic{act}"
    publish(driver.node, pods.api, nic)
    claim = claim_of(workspace, "c", chain(workspace, nic), "nic")
    driver.kill()
    driver.start(f"attach-begun={act}")
    pods.add("guarded", claim, restartPolicy="Never")
    pods.wait_event("guarded", "Failed", "unresolvable CDI devices")
    driver.kill()
    assert set(interfaces(pods, "guarded")) == {"lo", "eth0"}
    driver.start()
    witness.hurry(pods, "guarded", is_running)
    assert "192.0.2.7" in {each["local"] for each in interfaces(pods, "guarded")["net1"]["addr_info"]}


def test_a_pod_that_runs_keeps_its_network_over_restarts_of_the_driver(
    driver: Driver, pods: Pods, workspace: Workspace
) -> None:
    publish(driver.node, pods.api, "nicd")
    claim = claim_of(workspace, "c", chain(workspace, "nicd"), "nic")
    before = pods.run("lasting", claim)
    index = interfaces(pods, "lasting")["net1"]["ifindex"]
    driver.kill()
    driver.start()
    assert interfaces(pods, "lasting")["net1"]["ifindex"] == index
    after = pods.wait("lasting", is_running)
    assert [each["name"] for each in before["status"]["containerStatuses"]] == [CONTAINER]
    assert lives(after) == lives(before)


def test_a_pod_that_ends_while_the_driver_is_away_leaves_nothing_once_it_is_back(
    driver: Driver, pods: Pods, workspace: Workspace
) -> None:
    publish(driver.node, pods.api, "nicf")
    pods.run("brief", claim_of(workspace, "c", chain(workspace, "nicf"), "nic"))
    driver.kill()
    pods.api.delete(POD, "brief", pods.namespace, grace=1)
    pods.wait_event("brief", "Killing")
    driver.start()
    pods.wait("brief", lambda found: found is None)
    # A veth ends with the namespace that it was moved into; what is real falls back to the node.
    driver.until_nothing_is_left()


def test_a_claim_that_no_container_uses_is_attached_too(driver: Driver, pods: Pods, workspace: Workspace) -> None:
    publish(driver.node, pods.api, "nice")
    claim = claim_of(workspace, "c", chain(workspace, "nice"), "nic")
    container = {"name": CONTAINER, "image": NAME, "imagePullPolicy": "Never"}
    pods.run("unused", claim, containers=[container])
    assert "net1" in interfaces(pods, "unused")


def test_when_all_pods_are_gone_nothing_of_them_is_left(driver: Driver, pods: Pods) -> None:
    pods.delete_all()
    driver.until_nothing_is_left()
