"""A pod for which a PodNetwork has no address is Pending, with the reason, and continues when one is released."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from netdra.model.topology import NetworkTopology
from netdra.rules import network_requests
from testbed import pods
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import manifest
from testbed.pods import is_running
from testbed.process import Process
from testbed.waiting import until
from tests.cluster.daemons import running_controller
from tests.cluster.pods.driver import TOPOLOGY, Offer, addresses
from tests.cluster.pods.networks.test_addresses import assigned, network
from tests.cluster.pods.networks.test_topologies import topology
from tests.cluster.pods.running import step
from tests.cluster.pods.test_why import first_lines, why
from tests.cluster.test_network_shares import capacities

FULL = "cannot allocate all claims"


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Process]:
    """The controller, at work."""
    with running_controller(control_plane, api) as process:
        yield process


def on(offer: Offer, lan: str, base: str, *interfaces: str) -> str:
    """A topology with a macvlan on a network for each interface, and the template that `netdra render` prints."""
    config = {"mode": "bridge", "ipam": {"type": "network"}}
    steps = [step(name, "macvlan", config, prefix=name) | {"network": lan} for name in interfaces]
    name = topology(offer, base, *steps)
    written = offer.workspace.api.get(TOPOLOGY, name)
    made = msgspec.to_builtins(network_requests.template(msgspec.convert(written, NetworkTopology)))
    made["metadata"] = {"name": name, "namespace": offer.workspace.namespace}
    offer.workspace.api.create(made)
    return name


def add(offer: Offer, name: str, template: str) -> None:
    """A pod with a claim of a template."""
    pod = offer.pods.manifest(name)
    pod["spec"]["resourceClaims"] = [{"name": "net", "resourceClaimTemplateName": template}]
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "net"}]}
    offer.workspace.api.create(pod)


def run(offer: Offer, name: str, template: str) -> set[str]:
    """A pod that runs; returns its addresses."""
    add(offer, name, template)
    offer.pods.wait(name, is_running)
    return addresses(offer.inside(name)["net1"])


def test_a_pod_waits_for_an_address_before_it_is_bound(
    offer: Offer, control_plane: ControlPlane, api: Api, controller: Process
) -> None:
    offer.veth("ful0")
    offer.shared("ful0", shares=8)
    lan = network(offer, "full", ranges=[{"cidr": "10.92.0.0/30", "gateway": "10.92.0.1"}], keepSeconds=0)
    template = on(offer, lan, "full", "ful0")
    assert run(offer, "first", template) == {"10.92.0.2/30"}
    add(offer, "second", template)
    offer.unschedulable("second", FULL)
    event = offer.pods.wait_event("second", "NoFreeAddress", f'PodNetwork "{lan}" has no free address')
    assert "the pod stays Pending until addresses are released" in event["message"]
    told = why(control_plane, offer.workspace, "pod", "second")
    assert f'PodNetwork "{lan}" has no free address for request "{lan}-addresses"' in first_lines(told)

    control_plane.scheduler.restart()
    controller.kill()
    controller.restart()
    offer.unschedulable("second", FULL)
    assert capacities(api, lan) == {"": "1"}
    offer.pods.delete("first")
    offer.pods.wait("second", is_running)
    assert addresses(offer.inside("second")["net1"]) == {"10.92.0.2/30"}
    assert assigned(offer, lan) == ["10.92.0.2/30"]


def test_two_steps_on_one_network_take_two_addresses(offer: Offer, controller: Process) -> None:
    for interface in ("fula", "fulb"):
        offer.veth(interface)
        offer.shared(interface, shares=8)
    lan = network(offer, "two", ranges=[{"cidr": "10.93.0.0/29", "last": "10.93.0.3"}], keepSeconds=0)
    both, single = on(offer, lan, "both", "fula", "fulb"), on(offer, lan, "single", "fula")
    run(offer, "first", both)
    add(offer, "second", both)
    offer.unschedulable("second", FULL)
    event = offer.pods.wait_event("second", "NoFreeAddress")
    assert f'PodNetwork "{lan}" has free addresses for 1 more steps, and the claim requests 2' in event["message"]
    run(offer, "third", single)
    offer.pods.delete("first")
    offer.pods.wait("second", is_running)
    assert len(assigned(offer, lan)) == 3


def test_claims_without_a_share_are_counted(offer: Offer, controller: Process) -> None:
    offer.veth("fulc")
    offer.shared("fulc", shares=8)
    lan = network(offer, "mixed", ranges=[{"cidr": "10.94.0.0/30", "gateway": "10.94.0.1"}], keepSeconds=0)
    template = on(offer, lan, "mixed", "fulc")
    plain = offer.template("plain", fulc=f"{template}-fulc")
    run(offer, "first", plain)
    until(lambda: capacities(offer.workspace.api, lan) == {"": "0"}, "the capacity to follow")
    add(offer, "second", template)
    offer.unschedulable("second", FULL)
    offer.pods.delete("first")
    offer.pods.wait("second", is_running)


def test_a_kept_address_is_for_its_replica(offer: Offer, controller: Process) -> None:
    offer.veth("fuld")
    offer.shared("fuld", shares=8)
    lan = network(offer, "kept", ranges=[{"cidr": "10.95.0.0/30", "gateway": "10.95.0.1"}], keepSeconds=600)
    template = on(offer, lan, "kept", "fuld")
    namespace, api = offer.workspace.namespace, offer.workspace.api
    pod = pods.manifest(namespace, "pod", offer.driver.node.name, {"net": ""})
    labels = {"app": "db"}
    spec = pod["spec"] | {"resourceClaims": [{"name": "net", "resourceClaimTemplateName": template}]}
    wanted: Object = {
        "replicas": 1,
        "serviceName": "db",
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }
    api.create(manifest("apps/v1/StatefulSet", "db", namespace, spec=wanted))
    offer.pods.wait("db-0", is_running)

    def scale(replicas: int) -> None:
        api.patch("apps/v1/StatefulSet", "db", {"spec": {"replicas": replicas}}, namespace=namespace)

    scale(0)
    offer.pods.wait("db-0", lambda found: found is None)
    until(lambda: capacities(api, lan) == {"": "0"}, "the kept address to be counted")
    add(offer, "other", template)
    offer.unschedulable("other", FULL)
    scale(1)
    offer.pods.wait("db-0", is_running)
    assert addresses(offer.inside("db-0")["net1"]) == {"10.95.0.2/30"}
    scale(0)
    api.delete("apps/v1/StatefulSet", "db", namespace)
