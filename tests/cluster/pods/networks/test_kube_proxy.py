"""The address of a Service of a PodNetwork, by a real kube-proxy: connections end at the pod's address there.

kube-proxy is on a node of its own, which has an address on the network; a cable leads to the node of the pods.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import get_args

import pytest

from testbed import kube_proxy
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.kubelet import join
from testbed.node import Node
from testbed.objects import NODE, add_node, manifest
from testbed.pods import is_running
from testbed.waiting import until
from tests.cluster.daemons import running_controller
from tests.cluster.pods.driver import Offer, addresses
from tests.cluster.pods.networks.test_addresses import network
from tests.cluster.pods.networks.test_topologies import topology
from tests.cluster.pods.networks.test_two_nodes import WIRE, plugged
from tests.cluster.pods.running import step
from tests.cluster.test_services import SERVICE

ADDRESS = "10.94.0.1"
"""The pod's, on the network."""
OWN = "10.94.0.14"
"""The address of kube-proxy's node there."""
REFUSED, UNREACHABLE = "[Errno 111] Connection refused", "[Errno 101] Network is unreachable"
_CALLER = ("ip", "netns", "exec", "caller")
_PAGE = "/www/cgi-bin/page"
# Listens on the network alone, and answers with the address that a connection comes from.
_SERVE = f"""mkdir -p /www/cgi-bin; printf '#!/bin/sh\\necho\\necho $REMOTE_ADDR\\n' >{_PAGE}; chmod +x {_PAGE}
trap exit TERM; httpd -f -h /www -p {ADDRESS}:8080 & wait"""
_ASK = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=float(sys.argv[2])).read().decode())
except urllib.error.URLError as problem:
    print(problem.reason)
"""


@pytest.fixture(scope="module", autouse=True)
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[None]:
    """The controller, at work."""
    with running_controller(control_plane, api, "--services"):
        yield


@dataclass(frozen=True)
class Client:
    """A node with kube-proxy and an address on the network, and a pod of the node with eth0 alone.

    Attributes:
        node, end: the node, and its interface on the network.
        offer: the node of the pods.
        service: the Service.
    """

    node: Node
    end: str
    offer: Offer
    service: Object

    def ask(self, *, by: Sequence[str] = (), seconds: float = 10.0) -> str:
        """The address from which a connection to the Service comes, as the pod sees it, or why it fails."""
        url = f"http://{self.service['spec']['clusterIP']}/cgi-bin/page"
        printed = self.node.run(*by, sys.executable, "-c", _ASK, url, str(seconds)).strip()
        return printed.removeprefix("[::ffff:").removesuffix("]")

    def until_directed(self, to: str, mode: kube_proxy.Mode = "iptables") -> None:
        """Wait until the Service's address leads to one endpoint, none with ""."""
        expected = {f"{to}:8080"} if to else set[str]()
        found = partial(kube_proxy.targets, self.node, mode)
        until(lambda: found() == expected, f"the rules to lead to {to}", detail=found)


@pytest.fixture
def client(offer: Offer, control_plane: ControlPlane) -> Iterator[Client]:
    """A Service on the network with a pod that is not ready, and the node from which it is reached."""
    with ExitStack() as undo:
        node = undo.enter_context(Node("client"))
        ends = undo.enter_context(plugged(offer.driver.node, node))
        _register(offer.workspace.api, node)
        undo.callback(offer.workspace.api.delete, NODE, node.name)
        join(node, control_plane)
        _wire(node, ends[1])
        offer.shared(ends[0], shares=4)
        lan = network(offer, "storage", ranges=[{"cidr": "10.94.0.0/28"}], keepSeconds=0)
        _run_pod(offer, lan)
        yield Client(node, ends[1], offer, _service(offer, lan))
        offer.pods.delete_all()


def _register(api: Api, node: Node) -> None:
    """Make its Node object; kube-proxy waits half a minute for the address."""
    add_node(api, node.name)
    found = [{"type": "InternalIP", "address": node.address}]
    api.patch(NODE, node.name, {"status": {"addresses": found}}, subresource="status")


def _wire(node: Node, end: str) -> None:
    """Give a node its address on the network, and a pod that has the node alone as its way."""
    node.run("ip", "address", "add", f"{OWN}/28", "dev", end)
    node.run("ip", "netns", "add", "caller")
    node.run("ip", "link", "add", "caller", "type", "veth", "peer", "name", "eth0", "netns", "caller")
    node.run("ip", "address", "add", "10.244.9.1/24", "dev", "caller")
    node.run("ip", "link", "set", "caller", "up")
    for command in ("link set eth0 up", "address add 10.244.9.2/24 dev eth0", "route add default via 10.244.9.1"):
        node.run("ip", "-n", "caller", *command.split())
    node.run("sysctl", "--write", "net.ipv4.ip_forward=1")


def _run_pod(offer: Offer, lan: str) -> None:
    config = {"mode": "bridge", "ipam": {"type": "network"}}
    nic = step("nic", "macvlan", config, prefix=WIRE) | {"network": lan}
    pod = offer.pods.manifest("web-0", offer.claim("net", nic=f"{topology(offer, 'storage', nic)}-nic"))
    pod["metadata"]["labels"] = {"app": "web"}
    (container,) = pod["spec"]["containers"]
    container["command"] = ["sh", "-c", _SERVE]
    container["readinessProbe"] = {"exec": {"command": ["test", "-e", "/ready"]}, "periodSeconds": 1}
    offer.workspace.api.create(pod)
    offer.pods.wait("web-0", is_running)
    assert addresses(offer.inside("web-0")["net1"]) == {f"{ADDRESS}/28"}


def _service(offer: Offer, lan: str) -> Object:
    ports = [{"port": 80, "targetPort": 8080}]
    service = manifest(SERVICE, "storage", offer.workspace.namespace, spec={"ports": ports})
    service["metadata"]["labels"] = {"networking.dra.io/pod-network": lan}
    service["metadata"]["annotations"] = {"networking.dra.io/pod-selector": "app=web"}
    return offer.workspace.api.create(service)


@contextmanager
def running_proxy(client: Client, plane: ControlPlane, *options: str) -> Iterator[None]:
    """kube-proxy at work, with its rules for the ready pod."""
    with kube_proxy.running_proxy(client.node, plane, *options):
        client.until_directed(ADDRESS)
        yield


@pytest.mark.parametrize("mode", get_args(kube_proxy.Mode))
def test_the_address_of_a_service_leads_to_ready_pods_on_the_network(
    client: Client, control_plane: ControlPlane, mode: kube_proxy.Mode
) -> None:
    pods, namespace = client.offer.pods, client.offer.workspace.namespace
    with kube_proxy.running_proxy(client.node, control_plane, "--masquerade-all", mode=mode):
        until(lambda: client.ask(seconds=1) == REFUSED, "no ready pod", detail=client.ask)
        client.until_directed("", mode)
        pods.exec("web-0", "touch", "/ready")
        client.until_directed(ADDRESS, mode)
        assert client.ask() == client.ask(by=_CALLER) == OWN

        pods.exec("web-0", "rm", "/ready")
        client.until_directed("", mode)
        assert client.ask() == REFUSED

        # With a selector, Kubernetes' own addresses are the only ones.
        pods.exec("web-0", "touch", "/ready")
        client.until_directed(ADDRESS, mode)
        (eth0,) = addresses(client.offer.inside("web-0")["eth0"])
        client.offer.workspace.api.patch(
            SERVICE, "storage", {"spec": {"selector": {"app": "web"}}}, namespace=namespace
        )
        client.until_directed(eth0.partition("/")[0], mode)


def test_a_connection_needs_a_route_to_the_network_and_one_back(client: Client, control_plane: ControlPlane) -> None:
    client.offer.pods.exec("web-0", "touch", "/ready")
    # A pod's own address stays: the pod behind the Service answers to it by its eth0.
    with running_proxy(client, control_plane, "--detect-local-mode=ClusterCIDR", "--cluster-cidr=10.244.0.0/16"):
        assert client.ask() == OWN
        assert client.ask(by=_CALLER, seconds=1) == "timed out"
    with running_proxy(client, control_plane):
        assert client.ask(seconds=1) == client.ask(by=_CALLER, seconds=1) == "timed out"
    with running_proxy(client, control_plane, "--masquerade-all"):
        assert client.ask(by=_CALLER) == OWN
        client.node.run("ip", "address", "delete", f"{OWN}/28", "dev", client.end)
        assert client.ask(seconds=1) == client.ask(by=_CALLER, seconds=1) == "timed out"
        client.node.run("ip", "route", "delete", "default")
        assert client.ask() == UNREACHABLE
