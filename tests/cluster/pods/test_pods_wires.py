"""A provider of the registry cannot have another pod's wire offered: no claim gets the host's end of a pod's veth."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.driver import ANY_PLUGIN, Driver
from testbed.node import Node
from testbed.objects import manifest
from testbed.pods import Pods
from testbed.runtimes import started
from testbed.workspace import Workspace
from tests.cluster.pods.conftest import Machine
from tests.cluster.pods.driver import ATTRIBUTES, POLICY, Offer, opened
from tests.cluster.pods.running import account
from tests.cluster.pods.test_device_files import PACKAGES, SOCKET, netdra

PROVIDER = "wires"


@pytest.fixture(scope="module")
def driver(machine: Machine, control_plane: ControlPlane, api: Api, custom_kinds: None) -> Driver:
    """The node's driver, with the registry."""
    options = (*ANY_PLUGIN, f"--registry-socket={SOCKET}")
    made = Driver(machine.node, account(machine.node, control_plane, api), options=options)
    made.start()
    return made


@pytest.fixture
def offer(driver: Driver, workspace: Workspace, pods: Pods) -> Iterator[Offer]:
    """The devices that a test offers on the node; afterwards nothing is registered."""
    with opened(driver, workspace, pods) as offer:
        yield offer
    netdra(driver, "register", f"--provider={PROVIDER}", "--remove", f"--socket={SOCKET}")


def wire_of(offer: Offer, pod: str) -> str:
    """The host's end of a pod's eth0."""
    (eth0,) = [each for each in offer.pods.ip(pod, "link") if each["ifname"] == "eth0"]
    links = json.loads(offer.driver.node.run("ip", "-j", "-d", "link"))
    (wire,) = [each["ifname"] for each in links if each["ifindex"] == eth0["link_index"]]
    return str(wire)


def uses(node: Node) -> dict[str, list[str]]:
    """The uses of a node's own interfaces, by name."""
    command = ("env", f"PYTHONPATH={PACKAGES}", sys.executable, "-m", "netdra", "discover", "--output=json")
    return {each["ifName"]: each["hostUse"] for each in json.loads(node.run(*command))}


def policy(offer: Offer, name: str, *others: str, **exposure: object) -> None:
    """Offer what the provider registers."""
    selector = {"cel": " && ".join((f'{ATTRIBUTES}.registeredBy == "{PROVIDER}"', *others))}
    exposure["supportedCNIPlugins"] = [{"name": "host-device", "exclusive": True}]
    spec = {"selector": selector, "exposure": exposure}
    offer.workspace.create(manifest(POLICY, offer.workspace.name(name), spec=spec))


def test_the_hosts_end_of_a_pods_wire_is_known_by_the_namespace_that_its_runtime_has_named() -> None:
    with Node("wires") as node:
        runtime = started(node)
        before = uses(node)
        sandbox = runtime.run_pod_sandbox("victim")
        (wire,) = uses(node).keys() - before.keys()
        assert "pod-peer" in uses(node)[wire]
        runtime.stop_pod_sandbox(sandbox)
        assert uses(node) == before


def test_the_veth_of_another_pod_is_not_offered_even_if_a_provider_registers_it(offer: Offer) -> None:
    offer.pods.run("victim")
    wire = wire_of(offer, "victim")
    # As with CNI plugins that need neither an address nor a route on the host: only the other end says what it is.
    for what in ("address", "route"):
        offer.driver.node.run("ip", what, "flush", "dev", wire)
    offer.veth("spare0")
    policy(offer, "registered")
    for name in (wire, "spare0"):
        named = (f"--provider={PROVIDER}", "--add", "--attribute=cable=cat7", f"--socket={SOCKET}")
        netdra(offer.driver, "register", name, *named)
    offer.wait_published("spare0")
    assert wire not in offer.published()
    assert uses(offer.driver.node)[wire] == ["pod-peer"]

    offer.pods.run("new")
    assert wire_of(offer, "new") not in offer.published()
    # Nothing else hides it: who knows what a policy does can still offer it.
    policy(offer, "all", f'{ATTRIBUTES}.ifName == "{wire}"', allowHostUse=True)
    offer.wait_published(wire)
