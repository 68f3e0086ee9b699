"""Devices that no topology describes: moved, shared, plugged into a bridge, as their policies state."""

from __future__ import annotations

from netdra.model import names
from testbed.api import Object
from testbed.objects import POD
from testbed.pods import is_running
from testbed.waiting import until
from tests.cluster.pods.driver import Offer, addresses


def test_a_device_is_moved_into_a_pod_and_comes_back(offer: Offer) -> None:
    offer.whole("data0")
    claim = offer.claim("one", nic=offer.device_class("host-device", "data0"))
    mac = offer.published()["data0"]["attributes"]["mac"]["string"]

    offer.pods.run("pod", claim)

    found = offer.inside("pod")
    assert set(found) == {"lo", "eth0", "net1"}
    assert found["net1"]["address"] == mac
    assert "data0" not in offer.links()
    (device,) = offer.status(claim)
    assert device["device"] == "data0"
    assert device["networkData"] == {"interfaceName": "net1", "hardwareAddress": mac}
    assert [(each["type"], each["status"], each["reason"]) for each in device["conditions"]] == [
        ("Ready", "True", "Attached")
    ]
    offer.pods.delete("pod")
    assert "data0" in offer.links()


def test_a_pods_status_reports_that_its_nic_has_no_carrier_until_it_is_back(offer: Offer) -> None:
    """The status is the kubelet's, which follows the driver's health service (KEP-4680)."""

    def health(pod: Object | None) -> list[tuple[str, str]]:
        containers = (pod or {}).get("status", {}).get("containerStatuses", [])
        allocated = [entry for container in containers for entry in container.get("allocatedResourcesStatus", [])]
        return [(each["health"], each.get("message", "")) for entry in allocated for each in entry["resources"]]

    offer.whole("data3")
    offer.pods.run("wired", offer.claim("wire", nic=offer.device_class("host-device", "data3")))
    offer.pods.wait("wired", lambda pod: [state for state, _ in health(pod)] == ["Healthy"])
    offer.driver.node.run("ip", "link", "set", "data3-far", "down")
    found = offer.pods.wait("wired", lambda pod: [state for state, _ in health(pod)] == ["Unhealthy"])
    ((_, message),) = health(found)
    assert "no carrier" in message
    assert is_running(found)
    assert 'interface "net1" (device "data3")' in offer.pods.wait_event("wired", "LinkDown")["message"]
    offer.driver.node.run("ip", "link", "set", "data3-far", "up")
    offer.pods.wait("wired", lambda pod: [state for state, _ in health(pod)] == ["Healthy"])


def test_a_pods_own_network_is_the_same_with_a_claim_as_without(offer: Offer) -> None:
    offer.whole("data1")
    offer.pods.run("without")
    offer.pods.run("with", offer.claim("one", nic=offer.device_class("host-device", "data1")))
    seen = []
    for name in ("without", "with"):
        until(lambda name=name: offer.inside(name)["eth0"]["operstate"] == "UP", "eth0 to be up")  # type: ignore[misc]
        eth0 = offer.inside(name)["eth0"]
        address = offer.workspace.api.get(POD, name, offer.workspace.namespace)["status"]["podIP"]
        assert addresses(eth0) == {f"{address}/16"}
        routes = offer.pods.ip(name, "route")
        own = [{**each, "prefsrc": ""} for each in routes]
        seen.append((eth0["mtu"], eth0["operstate"], own))
    assert seen[0] == seen[1]


def test_shares_of_an_interface_are_given_until_none_is_left_and_again_when_one_comes_back(offer: Offer) -> None:
    offer.veth("mac0")
    offer.shared("mac0", shares=2)
    macvlan = offer.device_class("macvlan", "mac0")
    for name in ("one", "two"):
        offer.pods.run(name, offer.claim(name, nic=macvlan))
    offer.pods.add("three", offer.claim("three", nic=macvlan))
    said = offer.unschedulable("three", "cannot allocate all claims")
    assert "0/1 nodes are available" in said
    macs = {offer.inside(name)["net1"]["address"] for name in ("one", "two")}
    assert len(macs) == 2
    assert all(offer.inside(name)["net1"]["linkinfo"]["info_kind"] == "macvlan" for name in ("one", "two"))
    shares = {device["shareID"] for name in ("one", "two") for device in offer.status(name)}
    assert len(shares) == 2

    offer.pods.delete("one")
    offer.workspace.release("one", "one")

    offer.pods.wait("three", is_running)
    assert "net1" in offer.inside("three")
    offer.pods.delete("two", "three")
    assert "mac0" in offer.links()


def test_pods_are_plugged_into_a_bridge_and_reach_each_other_over_it(offer: Offer) -> None:
    offer.bridge("br0")
    offer.shared("br0", shares=8, plugin="bridge")
    for number in (1, 2):
        ipam = {"type": "static", "addresses": [{"address": f"198.51.100.{number}/24"}]}
        port = offer.step_class(f"port{number}", "br0", "bridge", ipam=ipam)
        offer.pods.run(f"pod{number}", offer.claim(f"claim{number}", port=port))
    assert addresses(offer.inside("pod1")["net1"]) == {"198.51.100.1/24"}
    # Not in the container: CRI-O lets none send its own packets.
    ping = ("busybox", "ping", "-c", "1", "-W", "5", "198.51.100.2")
    assert "1 packets received" in offer.pods.run_inside("pod1", *ping)
    (device,) = offer.status("claim2")
    assert device["networkData"]["ips"] == ["198.51.100.2/24"]
    ports = offer.driver.node.run("ip", "-o", "link", "show", "master", "br0").splitlines()
    assert len(ports) == 2
    offer.pods.delete("pod1", "pod2")
    assert offer.driver.node.run("ip", "-o", "link", "show", "master", "br0") == ""


def test_pods_that_share_a_claim_each_have_their_own_interface_of_it(offer: Offer) -> None:
    offer.veth("mac1")
    offer.shared("mac1", shares=1)
    claim = offer.claim("shared", nic=offer.device_class("macvlan", "mac1"))
    for name in ("one", "two"):
        offer.pods.run(name, claim)
    macs = {offer.inside(name)["net1"]["address"] for name in ("one", "two")}
    assert len(macs) == 2
    offer.pods.delete("one")
    assert "net1" in offer.inside("two")
    assert [each["conditions"][0]["status"] for each in offer.status(claim)] == ["True"]


def test_a_second_pod_of_a_claim_whose_device_is_moved_is_refused_and_the_first_keeps_it(offer: Offer) -> None:
    offer.whole("data2")
    claim = offer.claim("alone", nic=offer.device_class("host-device", "data2"))
    offer.pods.run("first", claim)
    offer.pods.add("second", claim)
    event = offer.pods.wait_event("second", "FailedCreatePodSandBox", "is shared by pods")
    assert "give each pod a claim of its own: a ResourceClaimTemplate" in event["message"]
    assert "net1" in offer.inside("first")


def test_pods_of_a_missing_device_are_evicted_only_if_its_policy_requests_it(offer: Offer) -> None:
    """The eviction is the kube-controller-manager's, which follows the taints in ResourceSlices (DRADeviceTaints)."""
    for name, taints in (("mac2", {"gone": "NoExecute"}), ("mac3", {})):
        offer.veth(name)
        offer.shared(name, shares=1, taints=taints)
        offer.pods.run(f"on-{name}", offer.claim(f"of-{name}", nic=offer.device_class("macvlan", name)))
    for name in ("mac3", "mac2"):
        offer.driver.node.run("ip", "link", "delete", name)

    said = offer.pods.wait_event("on-mac2", "DeviceTaintManagerEviction")
    assert "Marking for deletion" in said["message"]
    offer.pods.wait("on-mac2", lambda found: found is None)

    (taint,) = offer.published()["mac3"]["taints"]
    assert (taint["key"], taint["effect"]) == (names.GONE, "NoSchedule")
    left = offer.workspace.api.get(POD, "on-mac3", offer.workspace.namespace)
    assert is_running(left)
    assert "deletionTimestamp" not in left["metadata"]


def test_a_nic_with_an_address_is_offered_and_keeps_it_in_the_pod(offer: Offer) -> None:
    """As a GPU node's rail; the node's own route to its table, and its rule, come along."""
    run = offer.driver.node.run
    offer.veth("railx0")
    run("ip", "address", "add", "192.0.2.65/26", "dev", "railx0")
    run("ip", "route", "add", "198.51.100.0/24", "via", "192.0.2.126", "dev", "railx0", "table", "165")
    run("ip", "rule", "add", "from", "192.0.2.65", "lookup", "165", "priority", "1065")
    before = run("ip", "route", "show", "table", "all", "dev", "railx0")
    plugins = [{"name": "host-device", "exclusive": True}]
    keep = ["addresses", "routes", "rules"]
    offer.policy("rails", "railx0", allowHostAddresses=True, keep=keep, supportedCNIPlugins=plugins)
    offer.wait_published("railx0")
    offer.pods.run("worker", offer.claim("rail", rail=offer.device_class("host-device", "railx0")))
    assert addresses(offer.inside("worker")["net1"]) == {"192.0.2.65/26"}
    assert "198.51.100.0/24 via 192.0.2.126 dev net1" in offer.pods.run_inside(
        "worker", "ip", "route", "show", "table", "165"
    )
    assert "from 192.0.2.65 lookup 165" in offer.pods.run_inside("worker", "ip", "rule")
    (device,) = offer.status("rail")
    assert device["networkData"]["ips"] == ["192.0.2.65/26"]
    offer.pods.delete("worker")
    assert run("ip", "route", "show", "table", "all", "dev", "railx0") == before
    run("ip", "rule", "del", "priority", "1065")
