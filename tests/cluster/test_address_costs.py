"""How many requests the addresses of PodNetworks cost on the real API server: none for claims that nothing changes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from queue import Queue

import pytest

from netdra.controller import controller
from netdra.controller.addresses import pod_addresses, shares
from netdra.controller.addresses.pod_addresses import PodAddresses
from netdra.controller.checks import Checks
from netdra.controller.controller import Controller
from netdra.kube import events
from netdra.kube.client import Client
from netdra.kube.connection import connect
from netdra.kube.events import Recorder
from testbed.api import Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, NODE, manifest
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster.fault_proxy import FaultProxy, Request
from tests.cluster.test_controller import EVENT, TOPOLOGY
from tests.cluster.test_pod_networks import NETWORK, Net

pytestmark = pytest.mark.usefixtures("custom_kinds")

CLAIMS = 12
QUIET_SECONDS = 2.0
"""Longer than a status or the free addresses are collected for."""
NEVER_READY = ("sleep", "600")
"""A worker's command."""
SOON = 0.2
"""Seconds between two checks of a claim that waits, in place of half a minute."""


async def _idle() -> None:
    await asyncio.Event().wait()


@contextmanager
def leading(plane: ControlPlane, *, checks: bool = False) -> Iterator[FaultProxy]:
    """A controller that assigns addresses, and the requests that it sends.

    Args:
        checks: whether it also does its other work, which a worker process checks objects for.
    """
    begun, ended = Queue[FaultProxy](), threading.Event()

    async def lead() -> None:
        async with FaultProxy(plane).serving() as proxy, Client(connect(proxy.config)) as client:
            recorder = Recorder(client, "dra.networking/controller", "costs")
            work = Controller(client, recorder, nullcontext)
            state = work.state
            async with asyncio.TaskGroup() as tasks:
                parts = (
                    recorder.run(),
                    work.run() if checks else state.run(lambda: asyncio.ensure_future(_idle())),
                    PodAddresses(client, recorder, state, nullcontext).run(),
                )
                working = [tasks.create_task(part) for part in parts]
                begun.put(proxy)
                await asyncio.to_thread(ended.wait)
                for task in working:
                    task.cancel()

    thread = threading.Thread(target=lambda: asyncio.run(lead()))
    thread.start()
    try:
        yield begun.get(timeout=30)
    finally:
        ended.set()
        thread.join()


def sent(proxy: FaultProxy, since: float = 0.0) -> list[Request]:
    """The requests since a moment, without watches."""
    return [request for request in [*proxy.requests] if request.at >= since and not request.is_watch]


def wait_quiet(proxy: FaultProxy) -> None:
    """Wait until nothing was sent for some time."""

    def is_quiet() -> bool:
        return not sent(proxy, time.monotonic() - QUIET_SECONDS)

    until(is_quiet, "no requests", detail=lambda: str(sent(proxy, time.monotonic() - QUIET_SECONDS)))


def claims_read(proxy: FaultProxy, since: float = 0.0) -> list[str]:
    """The claims that were read one by one."""
    paths = (request.path.partition("/resourceclaims/") for request in sent(proxy, since) if request.method == "GET")
    return sorted(name for _, _, name in paths if name)


@pytest.fixture
def net(workspace: Workspace, control_plane: ControlPlane) -> Net:
    """A network of which claims have addresses that a former leader assigned."""
    net = Net(workspace, ranges=[{"cidr": "10.60.0.0/24"}], keepSeconds=0)
    with leading(control_plane) as proxy:
        for number in range(CLAIMS):
            net.claim(f"claim-{number:02}", node="node-1")
        until(lambda: len(net.addresses) == CLAIMS, "all claims to have addresses")
        wait_quiet(proxy)
    return net


def test_a_new_leader_reads_no_claim_that_has_its_addresses(net: Net, control_plane: ControlPlane) -> None:
    net.claim("new", node="node-1")
    with leading(control_plane) as proxy:
        until(lambda: net.of("new"), "the new claim to have an address")
        wait_quiet(proxy)
        assert claims_read(proxy) == ["new"]


def test_a_claim_gets_its_address_while_the_worker_of_a_new_leader_starts(
    net: Net, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "Checks", lambda: Checks(command=NEVER_READY))
    net.claim("new", node="node-1")
    with leading(control_plane, checks=True):
        until(lambda: net.of("new"), "the new claim to have an address")


def touch(net: Net) -> None:
    net.api.patch(TOPOLOGY, net.topology, {"metadata": {"annotations": {"touched": "yes"}}})


def document(net: Net) -> None:
    """Change a part of the topology from which no address follows."""
    (step,) = net.api.get(TOPOLOGY, net.topology)["spec"]["steps"]
    net.api.patch(TOPOLOGY, net.topology, {"spec": {"steps": [{**step, "interface": "lan0"}]}})


@pytest.mark.parametrize("change", [touch, document])
def test_a_changed_topology_has_no_claim_read_whose_addresses_stay(
    net: Net, control_plane: ControlPlane, change: Callable[[Net], None]
) -> None:
    with leading(control_plane) as proxy:
        wait_quiet(proxy)
        since = time.monotonic()
        change(net)
        net.claim("new", node="node-1")
        until(lambda: net.of("new"), "the new claim to have an address")
        wait_quiet(proxy)
        assert claims_read(proxy, since) == ["new"]
    assert len(net.addresses) == CLAIMS + 1


def test_a_new_leader_assigns_the_addresses_that_a_former_one_left_out(net: Net, control_plane: ControlPlane) -> None:
    """A claim without its address, one with settings that the network no longer has, and one on another node."""
    (lost, *_) = net.of("claim-03")
    net.api.delete("networking.dra.io/v1alpha1/PodAddress", f"{net.name}.{lost.partition('/')[0]}")
    found = net.api.get(CLAIM, "claim-04", net.workspace.namespace)
    net.api.update({**found, "status": {}}, subresource="status")
    net.allocate(net.api.get(CLAIM, "claim-04", net.workspace.namespace), "node-2")
    with leading(control_plane) as proxy:
        until(lambda: net.of("claim-03") and _nodes(net)["claim-04"] == "node-2", "the addresses to be corrected")
        wait_quiet(proxy)
        assert {*claims_read(proxy)} == {"claim-03", "claim-04"}
        net.api.patch(NETWORK, net.name, {"spec": {"mtu": 1400}})
        until(lambda: all(entry["spec"].get("mtu") == 1400 for entry in net.addresses), "the correction")


def _nodes(net: Net) -> dict[str, str]:
    return {entry["spec"]["claim"]["name"]: entry["spec"]["nodeName"] for entry in net.addresses}


def test_claims_that_wait_cost_no_request_while_nothing_changes(
    workspace: Workspace, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_addresses, "WAIT_SECONDS", SOON)
    monkeypatch.setattr(events, "WRITE_AGAIN_SECONDS", SOON)
    entry = {"cidr": "10.61.0.0/30", "gateway": "10.61.0.1"}
    net = Net(workspace, ranges=[entry], keepSeconds=0, quarantineSeconds=0)
    waiting = [f"waiting-{number}" for number in range(12)]
    with leading(control_plane) as proxy:
        net.claim("first")
        net.until("first", "10.61.0.2/30")
        net.claim(waiting[0])  # claims that begin to wait at the same time have no order
        workspace.api.wait_for_all(EVENT, lambda found: waiting[0] in told(found), namespace=workspace.namespace)
        for name in waiting[1:]:
            net.claim(name)
        workspace.api.wait_for_all(EVENT, lambda found: told(found) >= {*waiting}, namespace=workspace.namespace)
        assert_free(proxy)
        net.release("first")
        net.until(waiting[0], "10.61.0.2/30")  # the first in line


def test_claims_that_wait_for_a_node_cost_no_request_for_each_of_them(
    workspace: Workspace, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_addresses, "WAIT_SECONDS", SOON)
    monkeypatch.setattr(events, "WRITE_AGAIN_SECONDS", SOON)
    node = workspace.create(manifest(NODE, workspace.name("node")))["metadata"]["name"]
    net = Net(
        workspace,
        ranges=[{"cidr": "10.62.0.0/30", "gateway": "10.62.0.1", "nodeSelector": {"matchLabels": {"rack": "none"}}}],
    )
    with leading(control_plane) as proxy:
        for number in range(5):
            net.claim(f"waiting-{number}", node)
        workspace.api.wait_for_all(EVENT, lambda found: len(told(found)) == 5, namespace=workspace.namespace)
        assert_free(proxy)


def test_claims_that_are_not_scheduled_cost_no_request_while_nothing_changes(
    workspace: Workspace, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "REPORT_SECONDS", SOON)
    monkeypatch.setattr(events, "WRITE_AGAIN_SECONDS", SOON)
    net = Net(workspace, ranges=[{"cidr": "10.63.0.0/30", "gateway": "10.63.0.1"}], keepSeconds=0)
    with leading(control_plane) as proxy:
        net.claim("first")
        net.until("first", "10.63.0.2/30")
        requests = [{"name": "net", "exactly": {"deviceClassName": f"podnetwork.{net.name}"}}]
        for number in range(5):
            spec = {"devices": {"requests": requests}}
            workspace.create(manifest(CLAIM, f"pending-{number}", workspace.namespace, spec=spec))
        workspace.api.wait_for_all(EVENT, lambda found: len(told(found)) == 5, namespace=workspace.namespace)
        assert_free(proxy)


def told(found: list[Object]) -> set[str]:
    """The claims with an event that no address is free, or no range for their node."""
    reasons = ("NoFreeAddress", "NoRangeForNode")
    return {event["regarding"]["name"] for event in found if event["reason"] in reasons}


def assert_free(proxy: FaultProxy) -> None:
    """Assert that nothing is sent while nothing changes."""
    wait_quiet(proxy)
    since = time.monotonic()
    time.sleep(20 * SOON)
    assert sent(proxy, since) == []
