"""Pods get addresses of a PodNetwork, by programs and built-in steps alike, and keep and release them with claims."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from testbed import pods
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, POD, manifest
from testbed.pods import is_running
from testbed.waiting import until
from tests.cluster.daemons import running_controller
from tests.cluster.pods.driver import Offer, addresses
from tests.cluster.pods.networks.test_topologies import topology
from tests.cluster.pods.running import step
from tests.cluster.test_pod_networks import ADDRESS, NETWORK

pytestmark = pytest.mark.usefixtures("controller")


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[None]:
    """The controller, at work."""
    with running_controller(control_plane, api):
        yield


def network(offer: Offer, base: str, **spec: Any) -> str:
    """Make a PodNetwork; return its name."""
    name = offer.workspace.name(base)
    offer.workspace.create(manifest(NETWORK, name, spec=spec))
    return name


def assigned(offer: Offer, *names: str) -> list[str]:
    """The addresses of PodNetworks that claims have now."""
    found = (each["spec"] for each in offer.workspace.api.list(ADDRESS))
    return sorted(spec["address"] for spec in found if spec["network"] in names and "claim" in spec)


def test_pods_get_addresses_of_their_networks_and_release_them(offer: Offer) -> None:
    offer.veth("adr0")
    offer.shared("adr0", shares=4)
    offer.whole("adr9")
    lan = network(
        offer,
        "lan",
        ranges=[{"cidr": "10.88.0.0/29", "gateway": "10.88.0.1"}, {"cidr": "2001:db8:88::/64"}],
        routes=[{"destination": "198.51.100.0/24"}],
        keepSeconds=0,
        mtu=1400,
    )
    ipam = {"ipam": {"type": "network"}}
    by_program = topology(
        offer, "shared", step("nic", "macvlan", {"mode": "bridge", **ipam}, prefix="adr0") | {"network": lan}
    )
    built_in = topology(offer, "whole", step("nic", "host-device", ipam, prefix="adr9") | {"network": lan})
    classes = {"one": by_program, "two": by_program, "three": built_in}
    for name, made in classes.items():
        offer.pods.run(name, offer.claim(name, nic=f"{made}-nic"))

    expected = {
        "one": {"10.88.0.2/29", "2001:db8:88::1/64"},
        "two": {"10.88.0.3/29", "2001:db8:88::2/64"},
        "three": {"10.88.0.4/29", "2001:db8:88::3/64"},
    }
    for name, wanted in expected.items():
        net1 = offer.inside(name)["net1"]
        assert addresses(net1) == wanted
        assert net1["mtu"] == 1400
        assert "198.51.100.0/24 via 10.88.0.1 dev net1" in offer.pods.exec(name, "ip", "route")
        (device,) = offer.status(name)
        assert {*device["networkData"]["ips"]} == wanted
    assert assigned(offer, lan) == sorted(set().union(*expected.values()))

    offer.pods.delete(*classes)
    # A named claim keeps its addresses as long as it exists.
    assert len(assigned(offer, lan)) == 6
    for name in classes:
        offer.workspace.api.delete(CLAIM, name, offer.workspace.namespace)
    until(lambda: assigned(offer, lan) == [], "the addresses to be released")


def test_a_replica_of_a_statefulset_keeps_its_address(offer: Offer) -> None:
    offer.veth("adr1")
    offer.shared("adr1", shares=4)
    lan = network(offer, "stable", ranges=[{"cidr": "10.90.0.0/29"}], keepSeconds=600)
    made = topology(
        offer,
        "stable",
        step("nic", "macvlan", {"mode": "bridge", "ipam": {"type": "network"}}, prefix="adr1") | {"network": lan},
    )
    template = offer.template("net", nic=f"{made}-nic")
    namespace, api = offer.workspace.namespace, offer.workspace.api
    pod = pods.manifest(namespace, "pod", offer.driver.node.name, {"net": ""})
    labels = {"app": "db"}
    spec = pod["spec"] | {"resourceClaims": [{"name": "net", "resourceClaimTemplateName": template}]}
    wanted = {
        "replicas": 2,
        "serviceName": "db",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }
    api.create(manifest("apps/v1/StatefulSet", "db", namespace, spec=wanted))

    def addressed() -> dict[str, set[str]]:
        return {name: addresses(offer.inside(name)["net1"]) for name in ("db-0", "db-1")}

    uids = {name: offer.pods.wait(name, is_running)["metadata"]["uid"] for name in ("db-0", "db-1")}
    before = addressed()
    assert set().union(*before.values()) == {"10.90.0.1/29", "10.90.0.2/29"}

    for name in uids:
        api.delete(POD, name, namespace)

    def is_new(found: Object | None) -> bool:
        return is_running(found) and (found or {})["metadata"]["uid"] not in uids.values()

    for name in reversed(uids):
        offer.pods.wait(name, is_new)
    assert addressed() == before

    api.patch("apps/v1/StatefulSet", "db", {"spec": {"replicas": 0}}, namespace=namespace)
    api.wait_for_all(POD, lambda found: not found, namespace=namespace, timeout=120.0)
    until(lambda: assigned(offer, lan) == [], "the addresses to be kept without claims")
    kept = [each["spec"]["owner"]["pod"] for each in api.list(ADDRESS) if each["spec"]["network"] == lan]
    assert sorted(kept) == ["db-0", "db-1"]


def test_a_pod_without_a_free_address_does_not_start_and_reports_the_reason(offer: Offer) -> None:
    offer.veth("adr2")
    offer.shared("adr2", shares=4)
    lan = network(offer, "full", ranges=[{"cidr": "10.91.0.0/30", "gateway": "10.91.0.1"}], keepSeconds=0)
    made = topology(
        offer,
        "full",
        step("nic", "macvlan", {"mode": "bridge", "ipam": {"type": "network"}}, prefix="adr2") | {"network": lan},
    )
    claims = [offer.claim(name, nic=f"{made}-nic") for name in ("first", "second")]
    offer.pods.run("first", claims[0])
    offer.pods.add("second", claims[1])
    event = offer.pods.wait_event("second", "FailedPrepareDynamicResources", f'PodNetwork "{lan}"')
    assert "range 10.91.0.0/30 has no free address" in event["message"]
    offer.pods.delete("first")
    offer.workspace.api.delete(CLAIM, "first", offer.workspace.namespace)
    offer.pods.wait("second", is_running)
    assert addresses(offer.inside("second")["net1"]) == {"10.91.0.2/30"}


def far_end(offer: Offer, name: str, address: str) -> str:
    """A machine at the other end of a cable has an address; returns its MAC."""
    run = offer.driver.node.run
    run("ip", "address", "add", f"{address}/24", "dev", f"{name}-far")
    (found,) = json.loads(run("ip", "-j", "link", "show", "dev", f"{name}-far"))
    return str(found["address"])


def test_a_pod_starts_with_an_address_that_another_machine_has_and_reports_it(offer: Offer) -> None:
    offer.veth("adr3")
    offer.shared("adr3", shares=4)
    mac = far_end(offer, "adr3", "10.92.0.1")
    lan = network(offer, "taken", ranges=[{"cidr": "10.92.0.0/24"}], keepSeconds=0)
    config = {"mode": "bridge", "ipam": {"type": "network"}}
    made = topology(offer, "taken", step("nic", "macvlan", config, prefix="adr3") | {"network": lan})
    before = offer.metric("netdra_duplicate_addresses_total", action="report")
    offer.pods.run("one", offer.claim("one", nic=f"{made}-nic"))
    assert mac in offer.pods.wait_event("one", "DuplicateAddress", "10.92.0.1")["message"]
    assert addresses(offer.inside("one")["net1"]) == {"10.92.0.1/24"}
    assert offer.metric("netdra_duplicate_addresses_total", action="report") == before + 1
    (device,) = offer.status("one")
    assert "duplicates" not in device["data"]  # the controller assigns no other address


def test_a_pod_gets_another_address_if_another_machine_has_its_own(offer: Offer) -> None:
    offer.veth("adr4")
    offer.shared("adr4", shares=4)
    mac = far_end(offer, "adr4", "10.93.0.1")
    lan = network(offer, "moved", ranges=[{"cidr": "10.93.0.0/24"}], keepSeconds=0, onDuplicate="Reassign")
    config = {"mode": "bridge", "ipam": {"type": "network"}}
    made = topology(offer, "moved", step("nic", "macvlan", config, prefix="adr4") | {"network": lan})
    offer.pods.run("one", offer.claim("one", nic=f"{made}-nic"))
    assert addresses(offer.inside("one")["net1"]) == {"10.93.0.2/24"}
    assert mac in offer.pods.wait_event("one", "NetworkNotAttached", "10.93.0.1")["message"]
    present = {each["spec"]["address"]: each["spec"] for each in offer.workspace.api.list(ADDRESS)}
    assert present["10.93.0.2/24"]["claim"]["name"] == "one"
    assert "claim" not in present["10.93.0.1/24"]
    assert present["10.93.0.1/24"]["conflictSince"]
    (device,) = offer.status("one")
    assert device["networkData"]["ips"] == ["10.93.0.2/24"]
    assert "duplicates" not in device["data"]

    offer.pods.run("two", offer.claim("two", nic=f"{made}-nic"))
    assert addresses(offer.inside("two")["net1"]) == {"10.93.0.3/24"}
