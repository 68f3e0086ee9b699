"""Topologies in real pods, from the DeviceClasses that the real controller makes of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from netdra.lab.plugin import VERSION_IN_SHELL
from testbed import pods
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.image import NAME
from testbed.objects import CLAIM, POD, manifest
from testbed.pods import CONTAINER, is_running
from tests.cluster.daemons import running_controller
from tests.cluster.pods.driver import TOPOLOGY, Offer, addresses
from tests.cluster.pods.running import step

pytestmark = pytest.mark.usefixtures("controller")


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[None]:
    """The controller, at work."""
    with running_controller(control_plane, api):
        yield


def topology(offer: Offer, base: str, *steps: Object, parameters: Sequence[Object] = ()) -> str:
    """Make a topology, and wait until the controller has made its classes; return its name."""
    name = offer.workspace.name(base)
    offer.workspace.create(manifest(TOPOLOGY, name, spec={"steps": list(steps), "parameters": list(parameters)}))

    def is_ready(found: Object | None) -> bool:
        conditions = (found or {}).get("status", {}).get("conditions", [])
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    offer.workspace.api.wait_for(TOPOLOGY, name, is_ready)
    return name


def container(command: list[str] | None = None, **resources: Any) -> Object:
    """The container of a pod, with its resources."""
    found: Object = {"name": CONTAINER, "image": NAME, "imagePullPolicy": "Never", "resources": resources}
    return found | ({"command": command} if command else {})


@pytest.fixture
def slow_tuning(offer: Offer) -> Iterator[None]:
    """The program `tuning` takes longer than the start of a container."""
    path = offer.driver.plugins / "tuning"
    real = path.readlink()
    path.unlink()
    # Asked for its versions it has no rights, so it cannot run the program.
    path.write_text(f'#!/bin/sh\n{VERSION_IN_SHELL}\n[ "$CNI_COMMAND" != ADD ] || sleep 0.5\nexec {real}\n')
    path.chmod(0o755)
    yield
    path.unlink()
    path.symlink_to(real)


@pytest.mark.usefixtures("slow_tuning")
def test_a_chain_of_three_steps_is_in_the_pod_before_its_first_process(offer: Offer) -> None:
    offer.veth("top0", mtu="1600")
    offer.shared("top0", shares=4)
    routes = [{"destination": "198.51.100.0/24", "gateway": "192.0.2.1"}]
    made = topology(
        offer,
        "three",
        step("nic", "macvlan", {"mode": "bridge"}, prefix="top0"),
        step("place", "tuning", {"addresses": ["192.0.2.9/24", "2001:db8::9/64"], "routes": routes}, after="nic"),
        step("tune", "tuning", {"mtu": 1400, "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}}, after="place")
        | {"execution": "Binary"},
    )
    attached = offer.metric("netdra_chain_step_duration_seconds_count", type="tuning", action="add")
    claim = offer.claim("chain", nic=f"{made}-nic")
    # What the first process sees, not what is there some time later.
    seen = "ip -4 -o address show net1 > /seen; ip route >> /seen; cat /proc/sys/net/ipv4/conf/net1/arp_filter >> /seen"
    command = ["sh", "-c", f"{seen}; trap exit TERM; sleep 1000000 & wait"]
    offer.pods.run("pod", claim, containers=[container(command=command, claims=[{"name": claim}])])

    first = offer.pods.exec("pod", "cat", "/seen")
    assert "192.0.2.9/24" in first
    assert "198.51.100.0/24 via 192.0.2.1 dev net1" in first
    assert first.split()[-1] == "1"
    net1 = offer.inside("pod")["net1"]
    assert addresses(net1) == {"192.0.2.9/24", "2001:db8::9/64"}
    assert net1["mtu"] == 1400
    (device,) = offer.status(claim)
    assert device["networkData"]["ips"] == ["192.0.2.9/24", "2001:db8::9/64"]
    assert [each["step"] for each in device["data"]["pods"][0]["steps"]] == ["nic", "place", "tune"]
    assert offer.metric("netdra_chain_step_duration_seconds_count", type="tuning", action="add") == attached + 2


def test_each_pod_of_a_statefulset_has_its_own_address_from_one_template(offer: Offer) -> None:
    offer.veth("top9")
    offer.shared("top9", shares=4)
    made = topology(
        offer,
        "vnf",
        step("nic", "macvlan", {"mode": "bridge"}, prefix="top9"),
        step("place", "tuning", {"addresses": "{{ params.addresses }}"}, after="nic"),
        parameters=[{"name": "addresses", "type": "[]string", "format": "cidr", "within": ["10.77.0.0/24"]}],
    )
    wanted = [["10.77.0.10/24"], ["10.77.0.11/24", "10.77.0.111/24"]]
    values = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "ParameterValues", "perPod": {"addresses": wanted}}
    devices = {
        "requests": [{"name": "nic", "exactly": {"deviceClassName": f"{made}-nic"}}],
        "config": [{"opaque": {"driver": "dra.networking", "parameters": values}}],
    }
    namespace = offer.workspace.namespace
    template = manifest(
        "resource.k8s.io/v1/ResourceClaimTemplate", "vnf", namespace, spec={"spec": {"devices": devices}}
    )
    offer.workspace.api.create(template)
    pod = pods.manifest(namespace, "pod", offer.driver.node.name, {"net": ""})
    labels = {"app": "vnf"}
    spec = pod["spec"] | {"resourceClaims": [{"name": "net", "resourceClaimTemplateName": "vnf"}]}
    offer.workspace.api.create(
        manifest(
            "apps/v1/StatefulSet",
            "vnf",
            namespace,
            spec={
                "replicas": 2,
                "serviceName": "vnf",
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        )
    )
    try:
        for ordinal, given in enumerate(wanted):
            offer.pods.wait(f"vnf-{ordinal}", is_running)
            assert addresses(offer.inside(f"vnf-{ordinal}")["net1"]) == set(given)
        # A replica that the list has no value for does not start, and says why.
        offer.workspace.api.patch("apps/v1/StatefulSet", "vnf", {"spec": {"replicas": 3}}, namespace=namespace)
        event = offer.pods.wait_event("vnf-2", "FailedPrepareDynamicResources", "the pod's ordinal is 2", timeout=200.0)
        assert "perPod has 2 values" in event["message"]
    finally:
        offer.workspace.api.patch("apps/v1/StatefulSet", "vnf", {"spec": {"replicas": 0}}, namespace=namespace)
        offer.workspace.api.wait_for_all(POD, lambda found: not found, namespace=namespace, timeout=120.0)


def test_interfaces_are_numbered_over_the_claims_of_a_pod_in_its_order(offer: Offer) -> None:
    offer.whole("top1", "top2")
    tune = {"addresses": ["192.0.2.1/24"], "mtu": 1300}
    first = topology(
        offer, "first", step("a", "host-device", prefix="top1"), step("size", "tuning", tune, after="a")
    )  # fmt: skip
    second = topology(offer, "second", step("b", "host-device", prefix="top2"))
    offer.claim("one", a=f"{first}-a")
    offer.claim("two", b=f"{second}-b")
    for pod, claims, size in (("forth", ("one", "two"), "net1"), ("back", ("two", "one"), "net2")):
        offer.pods.run(pod, *claims)
        found = offer.inside(pod)
        assert set(found) == {"lo", "eth0", "net1", "net2"}
        assert found[size]["mtu"] == 1300
        assert addresses(found[size]) == {"192.0.2.1/24"}
        offer.pods.delete(pod)


def test_a_topology_is_run_once_for_each_device_of_a_request(offer: Offer) -> None:
    offer.whole("top3", "top4")
    made = topology(
        offer,
        "each",
        step("nic", "host-device", prefix="top"),
        step("size", "tuning", {"dev": "{{ nic.interfaceName }}", "mtu": 1350}, after="nic"),
    )
    request = {"name": "nic", "exactly": {"deviceClassName": f"{made}-nic", "count": 2}}
    offer.pods.run("pod", offer.workspace.add_claim("both", request))
    found = offer.inside("pod")
    assert {name: link["mtu"] for name, link in found.items() if name.startswith("net")} == {"net1": 1350, "net2": 1350}
    assert len(offer.status("both", devices=2)) == 2


def test_a_container_asks_for_a_device_as_for_any_resource(offer: Offer) -> None:
    offer.whole("top5")
    resource = f"testbed.example/{offer.workspace.name('nic')}"
    topology(offer, "extended", {**step("nic", "host-device", prefix="top5"), "extendedResourceName": resource})
    offer.pods.run("pod", containers=[container(limits={resource: "1"})])
    assert "net1" in offer.inside("pod")
    pod = offer.workspace.api.get(POD, "pod", offer.workspace.namespace)
    claim = pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    (device,) = offer.status(claim)
    assert device["networkData"]["interfaceName"] == "net1"
    assert "NETDRA_" in offer.pods.exec("pod", "env")
    offer.pods.delete("pod")
    offer.workspace.api.wait_for(CLAIM, claim, lambda found: found is None, namespace=offer.workspace.namespace)


def test_the_first_available_alternative_of_a_request_is_attached(offer: Offer) -> None:
    offer.whole("top6")
    offer.veth("top7")
    offer.shared("top7", shares=4)
    fast = topology(offer, "fast", step("nic", "host-device", prefix="top6"))
    slow = topology(offer, "slow", step("nic", "macvlan", {"mode": "bridge"}, prefix="top7"))
    alternatives = [
        {"name": "fast", "deviceClassName": f"{fast}-nic"},
        {"name": "slow", "deviceClassName": f"{slow}-nic"},
    ]
    for name in ("early", "late"):
        offer.pods.run(name, offer.workspace.add_claim(name, {"name": "nic", "firstAvailable": alternatives}))
    kinds = {name: offer.inside(name)["net1"]["linkinfo"]["info_kind"] for name in ("early", "late")}
    assert kinds == {"early": "veth", "late": "macvlan"}
    (device,) = offer.status("late")
    assert device["device"] == "top7"
    assert "NETDRA_LATE_NIC_INTERFACES=net1" in offer.pods.exec("late", "env")


def test_a_missing_topology_is_named_with_advice_to_fix_it(offer: Offer) -> None:
    offer.whole("top8")
    made = topology(offer, "gone", step("nic", "host-device", prefix="top8"))
    parameters = {"networkTopologyRef": {"name": f"{made}-not"}, "step": "nic"}
    config = [{"opaque": {"driver": "dra.networking", "parameters": parameters}}]
    wrong = offer.device_class("host-device", "top8", base="wrong", config=config)
    offer.pods.add("pod", offer.claim("claim", nic=wrong))
    named = f'NetworkTopology "{made}-not", which does not exist'
    event = offer.pods.wait_event("pod", "FailedPrepareDynamicResources", named)
    assert "create it, or delete its remaining DeviceClasses" in event["message"]


def test_pods_of_a_topology_that_is_deleted_go_on_and_are_taken_down(offer: Offer) -> None:
    offer.whole("top9")
    made = topology(offer, "brief", step("nic", "host-device", prefix="top9"))
    offer.pods.run("pod", offer.claim("claim", nic=f"{made}-nic"))
    offer.workspace.api.delete(TOPOLOGY, made)
    assert is_running(offer.workspace.api.get(POD, "pod", offer.workspace.namespace))
    assert "net1" in offer.inside("pod")
    offer.pods.delete("pod")
    assert "top9" in offer.links()


RAILS = {"rail0": "10.9.0.10", "rail1": "10.9.0.11", "rail2": "10.9.1.12", "rail3": "10.9.1.13"}
"""Rails of two networks on one switch, and their addresses."""


SNIFF = """
import socket, subprocess, sys
every, ipv4, outgoing, icmp = 3, 0x0800, 4, 1
wire = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(every))
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
wire.setblocking(False)
names = set()
try:
    while True:
        packet, (name, protocol, kind, *_) = wire.recvfrom(64)
        if protocol == ipv4 and kind != outgoing and packet[9] == icmp:
            names.add(name)
except BlockingIOError:
    print(*names)
"""
"""Runs a command, and prints the interfaces of the node on which ICMP packets arrive meanwhile."""


def sending(offer: Offer, *command: str) -> set[str]:
    """The rails that send ICMP packets while a command runs on the node."""
    names = offer.driver.node.run(sys.executable, "-c", SNIFF, *command).split()
    return {name.removesuffix("-far") for name in names} & RAILS.keys()


def assert_own_ways(offer: Offer) -> None:
    """Each rail alone carries what is sent to its address and from it."""
    ping = ("busybox", "ping", "-c", "2", "-W", "5")
    inside = ("nsenter", f"--net={offer.pods.containerd.netns(offer.pods.sandbox('pod'))}")
    for name, address in RAILS.items():
        offer.driver.node.run("ip", "neigh", "flush", "all")
        offer.driver.node.run(*inside, "ip", "neigh", "flush", "all")
        assert sending(offer, *ping, address) == {name}
        assert sending(offer, *inside, *ping, "-I", address, f"{address.rpartition('.')[0]}.1") == {name}


def test_each_rail_carries_its_own_traffic_also_after_the_driver_was_killed(offer: Offer) -> None:
    node = offer.driver.node
    offer.bridge("switch")
    node.run("ip", "address", "add", "10.9.0.1/24", "dev", "switch")
    node.run("ip", "address", "add", "10.9.1.1/24", "dev", "switch")
    offer.whole(*RAILS)
    for name in RAILS:
        node.run("ip", "link", "set", f"{name}-far", "master", "switch")
    static = {name: {"type": "static", "addresses": [{"address": f"{at}/24"}]} for name, at in RAILS.items()}
    steps = [step(name, "host-device", {"ipam": static[name]}, prefix=name) | {"sourceRouting": True} for name in RAILS]
    made = topology(offer, "rails", *steps)
    claim = offer.claim("rails", **{name: f"{made}-{name}" for name in RAILS})
    offer.pods.run("pod", claim)
    assert_own_ways(offer)

    offer.driver.restart()

    assert_own_ways(offer)
    offer.pods.delete("pod")
    offer.driver.until_nothing_is_left()
    assert set(RAILS) <= offer.links()
