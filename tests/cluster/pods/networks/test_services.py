"""Networks by name: in the cluster's DNS by Services, and in claims by the attributes of SIG Network's draft."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed import pods
from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.dns import DNS, running_dns
from testbed.objects import POD, manifest
from testbed.pods import is_running
from testbed.waiting import until
from tests.cluster.daemons import running_controller
from tests.cluster.pods.driver import Offer, addresses
from tests.cluster.pods.networks.test_addresses import network
from tests.cluster.pods.networks.test_topologies import topology
from tests.cluster.pods.running import step
from tests.cluster.test_services import SERVICE


@pytest.fixture(scope="module", autouse=True)
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[None]:
    """The controller, at work."""
    with running_controller(control_plane, api, "--services"):
        yield


@pytest.fixture
def dns(control_plane: ControlPlane) -> Iterator[DNS]:
    """The cluster's DNS server."""
    with running_dns(control_plane) as found:
        yield found


def test_the_names_of_replicas_are_their_addresses_on_the_network(offer: Offer, dns: DNS) -> None:
    offer.veth("svc0")
    offer.shared("svc0", shares=4)
    lan = network(offer, "storage", ranges=[{"cidr": "10.92.0.0/29"}], keepSeconds=0)
    nic = step("nic", "macvlan", {"mode": "bridge", "ipam": {"type": "network"}}, prefix="svc0") | {"network": lan}
    template = offer.template("net", nic=f"{topology(offer, 'storage', nic)}-nic")
    namespace, api = offer.workspace.namespace, offer.workspace.api
    service = manifest(SERVICE, "storage", namespace, spec={"clusterIP": "None", "ports": [{"port": 2049}]})
    service["metadata"]["labels"] = {"networking.dra.io/pod-network": lan}
    service["metadata"]["annotations"] = {"networking.dra.io/pod-selector": "app=web"}
    api.create(service)
    labels = {"app": "web"}
    spec = pods.manifest(namespace, "pod", offer.driver.node.name, {"net": ""})["spec"]
    spec["resourceClaims"] = [{"name": "net", "resourceClaimTemplateName": template}]
    wanted = {
        "replicas": 2,
        "serviceName": "storage",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }
    api.create(manifest("apps/v1/StatefulSet", "web", namespace, spec=wanted))

    def resolve(name: str) -> set[str]:
        return dns.resolve(f"{name}.{namespace}.svc")

    both = set()
    for name in ("web-0", "web-1"):
        offer.pods.wait(name, is_running)
        (address,) = addresses(offer.inside(name)["net1"])
        plain = {address.partition("/")[0]}
        until(lambda name=name, plain=plain: resolve(f"{name}.storage") == plain, f"the name of {name}")  # type: ignore[misc]
        both |= plain
    assert resolve("storage") == both == {"10.92.0.1", "10.92.0.2"}

    api.patch("apps/v1/StatefulSet", "web", {"spec": {"replicas": 0}}, namespace=namespace)
    api.wait_for_all(POD, lambda found: not found, namespace=namespace, timeout=120.0)
    until(lambda: resolve("storage") == set(), "no name to be left")


def test_a_claim_selects_and_reports_its_network_as_sig_networks_draft_has_it(offer: Offer) -> None:
    offer.veth("mnet0")
    offer.veth("mnet1")
    domain = "multinetwork.networking.k8s.io"
    offer.shared("mnet1", shares=4)
    offer.shared(
        "mnet0", shares=4, additionalAttributes={f"{domain}/podNetwork": "blue", f"{domain}/podNetworkKind": "netdra"}
    )
    lan = network(offer, "blue", ranges=[{"cidr": "10.93.0.0/29"}], keepSeconds=0)
    nic = step("nic", "macvlan", {"mode": "bridge", "ipam": {"type": "network"}}, prefix="mnet") | {"network": lan}
    selector = f'device.attributes["{domain}"].podNetwork == "blue"'
    exactly = {
        "deviceClassName": f"{topology(offer, 'blue', nic)}-nic",
        "selectors": [{"cel": {"expression": selector}}],
    }
    offer.pods.run("pod", offer.workspace.add_claim("claim", {"name": "nic", "exactly": exactly}))

    (device,) = offer.status("claim")
    assert device["device"] == "mnet0"
    assert device["data"]["podNetwork"] == {"kind": "netdra", "name": lan}
    assert device["networkData"]["ips"] == ["10.93.0.1/29"]
    assert device["networkData"]["interfaceName"] == "net1"
