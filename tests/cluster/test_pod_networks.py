"""Addresses of PodNetworks on the real API server: assigned once, even with deaths and other workers, and released."""

from __future__ import annotations

import asyncio
import functools
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field

import pytest

from netdra.controller.addresses.pod_addresses import PodAddresses
from netdra.controller.controller import Controller
from netdra.kube.client import Client
from netdra.kube.connection import connect
from netdra.kube.events import Recorder
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, manifest
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import Workspace
from tests import draws
from tests.cluster import identities
from tests.cluster.daemons import running_controller, start_controller
from tests.cluster.fault_proxy import FaultProxy
from tests.cluster.test_controller import EVENT, TOPOLOGY, condition

pytestmark = pytest.mark.usefixtures("controller")

NETWORK = "networking.dra.io/v1alpha1/PodNetwork"
ADDRESS = "networking.dra.io/v1alpha1/PodAddress"
SECONDS = 60.0
LONG_SECONDS = 3600.0
RELEASED, KILLED = 0.4, 0.001
"""How often a claim is released instead of another one made, and the controller killed."""
MANY = 80
"""With more claims than this, which the range has no addresses for, more are released than made."""
AT_END = {
    "network": "none",
    "address": "192.0.2.1/32",
    "families": ["IPv4"],
    "owner": {"namespace": "none", "claim": "none", "topology": "none", "step": "none"},
    "keptSince": "2026-01-01T00:00:00Z",
}


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Process]:
    """The controller, installed and at work, with the rights of its account and no others."""
    with running_controller(control_plane, api) as process:
        yield process


class Net:
    """A PodNetwork, a topology that uses it, and claims that are allocated for it."""

    def __init__(self, workspace: Workspace, **spec: object) -> None:
        self.workspace, self.api = workspace, workspace.api
        self.name = workspace.name("net")
        self.topology = workspace.name("lan")
        workspace.create(manifest(NETWORK, self.name, spec=spec))
        step = {
            "name": "lan",
            "type": "macvlan",
            "selector": {"cel": "true"},
            "network": self.name,
            "config": {"ipam": {"type": "network", "addresses": "{{ params.addresses }}"}},
        }
        parameter = {"name": "addresses", "type": "[]string", "format": "ip", "default": []}
        workspace.create(manifest(TOPOLOGY, self.topology, spec={"steps": [step], "parameters": [parameter]}))

    def claim(self, name: str, node: str = "", requested: str = "") -> None:
        """A claim as the scheduler leaves it."""
        self.allocate(self.make(name), node, requested)

    def make(self, name: str) -> Object:
        """A claim that is not allocated."""
        requests = [{"name": "lan", "exactly": {"deviceClassName": f"{self.topology}-lan"}}]
        spec = {"devices": {"requests": requests}}
        return self.api.create(manifest(CLAIM, name, self.workspace.namespace, spec=spec))

    def allocate(self, made: Object, node: str = "", requested: str = "") -> None:
        """Allocate a claim, as the scheduler does."""
        status = identities.allocated(made["metadata"]["name"], self.topology, ["lan"], node)
        if requested:
            values = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "ParameterValues"}
            opaque = {"driver": "dra.networking", "parameters": values | {"values": {"addresses": [requested]}}}
            status["allocation"]["devices"]["config"].append({"source": "FromClaim", "opaque": opaque})
        self.api.update({**made, "status": status}, subresource="status")

    def release(self, name: str) -> None:
        """A claim goes, as the controller of claims has it go: deallocated, then deleted."""
        found = self.api.get(CLAIM, name, self.workspace.namespace)
        self.api.update({**found, "status": {}}, subresource="status")
        self.api.delete(CLAIM, name, self.workspace.namespace)

    def attach(self, name: str) -> str:
        """Report a claim's address as its pod's, as the node does, and return it."""
        (address,) = self.of(name)
        found = self.api.get(CLAIM, name, self.workspace.namespace)
        (result,) = found["status"]["allocation"]["devices"]["results"]
        device = {key: result[key] for key in ("driver", "pool", "device")}
        found["status"]["devices"] = [{**device, "networkData": {"interfaceName": "net1", "ips": [address]}}]
        self.api.update(found, subresource="status")
        return address

    @property
    def addresses(self) -> list[Object]:
        """The PodAddresses of the network."""
        return [found for found in self.api.list(ADDRESS) if found["spec"]["network"] == self.name]

    def of(self, claim: str) -> list[str]:
        """The addresses that a claim has."""
        mine = (found for found in self.addresses if found["spec"].get("claim", {}).get("name") == claim)
        return sorted(found["spec"]["address"] for found in mine)

    def has_only(self, claim: str, prefix: str) -> bool:
        """Whether all addresses of a claim begin so."""
        return all(found.startswith(prefix) for found in self.of(claim))

    def until(self, claim: str, *wanted: str) -> None:
        """Wait until a claim has these addresses."""
        until(lambda: self.of(claim) == sorted(wanted), f"{claim} to have {wanted}", detail=lambda: str(self.addresses))

    def until_status(self, **wanted: int) -> Object:
        """Wait until the status has these figures."""

        def counted(found: Object | None) -> bool:
            status = (found or {}).get("status", {})
            return {key: status.get(key) for key in wanted} == wanted

        found = self.api.wait_for(NETWORK, self.name, counted)
        assert found is not None
        return found


def test_a_claim_has_addresses_from_its_allocation_to_its_end(
    workspace: Workspace, control_plane: ControlPlane
) -> None:
    net = Net(
        workspace, ranges=[{"cidr": "10.1.0.0/29", "gateway": "10.1.0.1"}, {"cidr": "2001:db8:1::/64"}], keepSeconds=0
    )
    net.claim("one", node="node-1")
    net.until("one", "10.1.0.2/29", "2001:db8:1::1/64")
    assert sorted(found["metadata"]["name"] for found in net.addresses) == [
        f"{net.name}.10.1.0.2",
        f"{net.name}.2001-db8-1-0-0-0-0-1",
    ]
    assert {found["spec"]["nodeName"] for found in net.addresses} == {"node-1"}
    found = net.until_status(used=2, users=1, reserved=0)
    assert [entry["total"] for entry in found["status"]["ranges"]] == [5, 2**63 - 1]
    assert condition(found, "Ready") == ("True", "Accepted")
    shown = control_plane.kubectl("get", "pnet", net.name, "--no-headers").split()
    assert "10.1.0.0/29" in shown[1]

    net.release("one")
    until(lambda: net.addresses == [], "the addresses to be released")
    net.until_status(used=0, users=0)


def test_an_address_in_a_pod_stays_though_the_topology_no_longer_has_it(workspace: Workspace) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.6.0.0/29"}], keepSeconds=0)
    net.claim("attached")
    until(lambda: net.of("attached"), "the first claim to have an address")
    net.claim("waiting")
    until(lambda: net.of("waiting"), "the second claim to have an address")
    address = net.attach("attached")
    # A claim is looked at the second time when the first look has ended.
    for network in ("another", "third"):
        (step,) = net.api.get(TOPOLOGY, net.topology)["spec"]["steps"]
        net.api.patch(TOPOLOGY, net.topology, {"spec": {"steps": [{**step, "network": network}]}})

        def told(events: list[Object], network: str = network) -> bool:
            notes = [each for each in events if f'"{network}" does not exist' in each["note"]]
            return {each["regarding"]["name"] for each in notes} >= {"attached", "waiting"}

        net.api.wait_for_all(EVENT, told, namespace=workspace.namespace)
    assert net.of("waiting") == []
    assert net.of("attached") == [address]


def test_an_address_in_a_pod_stays_though_its_range_is_removed_and_one_in_no_pod_is_replaced(
    workspace: Workspace,
) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.7.0.0/29"}], keepSeconds=0)
    for name in ("attached", "waiting"):
        net.claim(name)
        until(functools.partial(net.of, name), f"claim {name} to have an address")
    address = net.attach("attached")
    for third in (8, 9):  # the second time it is looked at after the first look has ended
        net.api.patch(NETWORK, net.name, {"spec": {"ranges": [{"cidr": f"10.7.{third}.0/29"}]}})
        until(functools.partial(net.has_only, "waiting", f"10.7.{third}."), "an address of the new range")
    net.claim("next")
    until(lambda: net.of("next"), "the next claim to have an address")
    assert net.of("attached") == [address]


def test_a_claim_without_an_address_waits_with_the_reason_and_goes_on_when_one_is_released(
    workspace: Workspace,
) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.2.0.0/30", "gateway": "10.2.0.1"}], keepSeconds=0)
    net.claim("first")
    net.until("first", "10.2.0.2/30")
    net.claim("second")

    def told(found: list[Object]) -> bool:
        return any(each["reason"] == "NoFreeAddress" and "10.2.0.0/30" in each["note"] for each in found)

    workspace.api.wait_for_all(EVENT, told, namespace=workspace.namespace)
    found = workspace.api.wait_for(NETWORK, net.name, lambda each: condition(each, "AddressesAvailable")[0] == "False")
    assert condition(found, "AddressesAvailable") == ("False", "RangeFull")
    assert net.of("second") == []

    began = time.monotonic()
    net.release("first")
    net.until("second", "10.2.0.2/30")
    assert time.monotonic() - began < 10


def test_a_named_claim_gets_its_address_back_and_reserved_and_requested_ones_are_checked(workspace: Workspace) -> None:
    reserved = {"address": "10.3.0.9", "namespace": workspace.namespace, "name": "mine"}
    net = Net(workspace, ranges=[{"cidr": "10.3.0.0/28"}], keepSeconds=600, reservations=[reserved])
    net.claim("other", requested="10.3.0.5")
    net.until("other", "10.3.0.5/28")
    net.claim("mine")
    net.until("mine", "10.3.0.9/28")
    net.claim("thief", requested="10.3.0.9")
    workspace.api.wait_for_all(
        EVENT, lambda found: any(each["reason"] == "WrongAddress" for each in found), namespace=workspace.namespace
    )
    net.claim("db")
    net.until("db", "10.3.0.1/28")
    net.release("db")
    found = net.until_status(reserved=1, used=2)
    assert found["status"]["users"] == 2
    net.claim("web")
    net.until("web", "10.3.0.2/28")
    net.claim("db", node="node-2")
    net.until("db", "10.3.0.1/28")
    assert net.of("thief") == []


def test_a_network_with_an_invalid_spec_assigns_nothing_and_reports_the_reason(workspace: Workspace) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.4.0.0/29", "first": "10.9.0.1"}])
    net.claim("one")
    found = workspace.api.wait_for(NETWORK, net.name, lambda each: condition(each, "Ready")[0] == "False")
    assert "first 10.9.0.1 is outside 10.4.0.0/29" in str(found)
    workspace.api.wait_for_all(
        EVENT, lambda events: any(each["reason"] == "NoPodNetwork" for each in events), namespace=workspace.namespace
    )
    assert net.addresses == []


@pytest.mark.timeout(LONG_SECONDS)
def test_despite_killed_and_rival_controllers_no_address_is_assigned_twice_or_left_over(
    workspace: Workspace, control_plane: ControlPlane
) -> None:
    """Claims come and go at random in a range that is too small, with two controllers that are killed now and then."""
    net = Net(workspace, ranges=[{"cidr": "10.5.0.0/26", "gateway": "10.5.0.1"}], keepSeconds=0)
    drawn = random.Random(draws.seed())
    present: dict[str, None] = {}
    count, made, kills, began = claims_to_make(), 0, 0, time.monotonic()

    def change() -> int:
        if present and drawn.random() < (RELEASED if len(present) < MANY else 1 - RELEASED):
            name = drawn.choice([*present])
            del present[name]
            net.release(name)
            return 0
        present[f"claim-{made}"] = None
        net.claim(f"claim-{made}")
        return 1

    def settled() -> bool:
        held = [found["spec"].get("claim", {}).get("name") for found in net.addresses]
        return len(held) == len({*held}) == min(len(present), 61) and {*held} <= {*present}

    with rival(control_plane), watched(net, present) as taken:
        while made < count or taken.assigned < min(count, 61):  # many claims go before a controller is back
            made += change()
            if drawn.random() < KILLED or (not kills and made == count // 2):
                kill(control_plane, net.api)
                kills += 1
        until(settled, "each claim to have an address", seconds=SECONDS, detail=lambda: f"{present}: {net.addresses}")
        for name in [*present]:
            del present[name]
            net.release(name)
        until(settled, "no address to be left", seconds=SECONDS, detail=lambda: str(net.addresses))
    assert net.addresses == []
    assert taken.wrong == []
    assert taken.assigned >= min(count, 61)
    seconds = time.monotonic() - began
    print(f"{made} claims, {taken.assigned} addresses assigned, {kills} controllers killed, {seconds:.0f} s")


def claims_to_make() -> int:
    """How many claims come and go; `make soak` has more."""
    return int(os.environ.get("NETDRA_ADDRESS_CLAIMS", "0")) or draws.count(90, 2000)


@dataclass
class Taken:
    """How often addresses were assigned, and which of them while the claim that uses them was there still."""

    assigned: int = 0
    wrong: list[str] = field(default_factory=list)


@contextmanager
def watched(net: Net, present: Mapping[str, None]) -> Iterator[Taken]:
    """Follow which address a claim uses, its first one: it keeps it, and no other claim gets it meanwhile."""
    taken, used, ended = Taken(), dict[str, str](), threading.Event()

    def follow() -> None:
        with closing(net.api.watch(ADDRESS, timeout=LONG_SECONDS)) as events:
            for kind, found in events:
                name, claim = found["metadata"]["name"], found["spec"].get("claim", {}).get("name", "")
                if kind == "ADDED" and found["spec"]["network"] == net.name:
                    taken.assigned += 1
                    user = next((user for user, address in used.items() if address == name), "")
                    if user in present:
                        taken.wrong.append(f"{name} is used by {user}, and assigned to {claim}")
                    used.setdefault(claim, name)
                elif kind == "DELETED" and used.get(claim) == name and claim in present:
                    taken.wrong.append(f"{name} is used by {claim}, and deleted")
                if ended.is_set():
                    return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield taken
    finally:
        ended.set()
        made = net.api.create(manifest(ADDRESS, "none.192.0.2.1", spec=AT_END))  # the last event ends the thread
        thread.join(SECONDS)
        net.api.delete(ADDRESS, made["metadata"]["name"])
    assert not thread.is_alive()


@contextmanager
def rival(plane: ControlPlane) -> Iterator[None]:
    """A second controller that takes no part in the election, as one that was paused and continues; it dies often."""
    ended = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(run_rival(plane, ended)))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


async def run_rival(plane: ControlPlane, ended: threading.Event) -> None:
    """Assign addresses, and die every second, wherever the work is at that moment."""
    async with FaultProxy(plane).serving() as proxy, Client(connect(proxy.config)) as client:
        while not ended.is_set():
            recorder = Recorder(client, "dra.networking/controller", "rival")
            controller = Controller(client, recorder, nullcontext)
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0), asyncio.TaskGroup() as tasks:
                    tasks.create_task(controller.state.run(lambda: asyncio.ensure_future(asyncio.sleep(60.0))))
                    tasks.create_task(PodAddresses(client, recorder, controller.state, nullcontext).run())


def kill(plane: ControlPlane, api: Api) -> None:
    """The controller dies without a word, and another one comes, which waits for the lease of the first."""
    plane.processes["netdra-controller"].kill()
    start_controller(plane, api)
