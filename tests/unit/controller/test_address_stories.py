"""After any events in any order, no two pods have one address, and in the end each claim has its own.

Two controllers assign three addresses to three claims on two nodes. Pods are deleted by force, nodes report late or
are deleted, administrators delete PodAddresses, and a controller is replaced. Between any two acts the controllers have
some turns, so that acts come in the midst of their work.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, event, example, given, settings
from hypothesis import strategies as st

from netdra.controller.addresses.pod_addresses import PodAddresses
from netdra.controller.controller import Controller
from netdra.kube.errors import ApiError, Status
from netdra.kube.events import Recorder
from netdra.kube.queue import WorkQueue
from netdra.networks.ledger import NetworkLedger
from tests import draws
from tests.builders import topology
from tests.cluster.identities import allocated
from tests.memory_api import MemoryApi
from tests.unit.networks.builders import network

CLAIMS, NODES = ("a", "b", "c"), ("node-1", "node-2")
LAN = topology(
    "- {name: lan, type: macvlan, network: storage, selector: {cel: 'true'}, config: {ipam: {type: network}}}",
    name="lan",
)
FASTER = 200
"""By how much the queues' waits are shorter than in a cluster."""
ACTS = st.lists(
    st.tuples(
        st.sampled_from([*["allocate", "force"] * 3, "detach", "end", "report", "lose", "delete", "replace"]),
        st.sampled_from(CLAIMS),
        st.sampled_from(NODES),
        st.sampled_from([0, 1, 5, 20, 60]),
    ),
    min_size=8,
    max_size=40,
)


class Story:
    """A cluster: its objects, and the pods that really run."""

    def __init__(self, api: MemoryApi | None = None) -> None:
        self.api = MemoryApi() if api is None else api
        ranges = {"cidr": "10.7.0.0/29", "last": "10.7.0.3"}
        self.api.put("podnetworks", msgspec.to_builtins(network(ranges, keepSeconds=0, quarantineSeconds=0)))
        self.api.put("networktopologies", msgspec.to_builtins(LAN))
        self.running: dict[tuple[str, str], str] = {}
        self.former: set[tuple[str, str]] = set()
        """Those of the pods whose allocation is over."""
        for node in NODES:
            conditions = [{"type": "Ready", "status": "True"}]
            self.api.put("nodes", {"metadata": {"name": node}, "status": {"conditions": conditions}})
            self.api.put("nodenetworks", {"metadata": {"name": node}, "status": {}})

    def claim(self, name: str) -> dict[str, Any] | None:
        return self.api.objects.get("resourceclaims", {}).get(("db", name))

    def addresses(self) -> list[dict[str, Any]]:
        return [*self.api.objects.get("podaddresses", {}).values()]

    def node_of(self, name: str) -> str:
        """The node of an allocated claim."""
        found = self.claim(name)
        selector = found["status"].get("allocation", {}).get("nodeSelector") if found is not None else None
        return str(selector["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]) if selector else ""

    def act(self, act: str, name: str, node: str) -> None:
        getattr(self, act)(name, node)
        held = [*self.running.values()]
        assert len(held) == len({*held}), f"{act} {name} {node}: {self.running}"

    def allocate(self, name: str, node: str) -> None:
        """The scheduler allocates a claim for a pod; a named claim that is allocated keeps its node."""
        if not self.node_of(name):
            head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": {}}
            metadata = {"name": name, "namespace": "db", "uid": f"uid-{name}"}
            status = allocated(name, "lan", ["lan"], node)
            self.api.put("resourceclaims", {**head, "metadata": metadata, "status": status})

    def start(self, name: str, _: str) -> None:
        """The kubelet starts the pod of a claim, once it has its address there; a former pod must have ended."""
        node = self.node_of(name)
        if not node or (name, node) in self.running:
            return
        for spec in (entry["spec"] for entry in self.addresses()):
            if (spec.get("claim", {}).get("uid"), spec.get("nodeName")) == (f"uid-{name}", node):
                self.running[name, node] = spec["address"]
                device = {"driver": "dra.networking", "pool": "pool", "device": "d"}
                self.status(name, [{**device, "networkData": {"ips": [spec["address"]]}}])

    def status(self, name: str, devices: list[Any]) -> None:
        """The node writes the status of a claim."""
        found = self.claim(name)
        assert found is not None
        self.api.put("resourceclaims", {**found, "status": {**found["status"], "devices": devices}})

    def detach(self, name: str, _: str) -> None:
        """A pod ends in good order: the network goes, the status, and then the allocation."""
        node = self.node_of(name)
        if self.running.pop((name, node), None) is not None:
            self.former.discard((name, node))
            self.status(name, [])
            self.force(name, node)

    def force(self, name: str, _: str) -> None:
        """A pod is deleted by force: its claim is deallocated, and it runs on."""
        if (found := self.claim(name)) is not None:
            self.leave(name)
            self.api.put("resourceclaims", {**found, "status": {}})

    def delete(self, name: str, _: str) -> None:
        """A claim is deleted; its pod may run on."""
        if self.claim(name) is not None:
            self.leave(name)
            self.api.drop("resourceclaims", name, "db")

    def leave(self, name: str) -> None:
        """The pod of a claim's allocation runs on without it: also if the next allocation is on the same node."""
        if (place := (name, self.node_of(name))) in self.running:
            self.former.add(place)

    def end(self, name: str, node: str) -> None:
        """The kubelet ends a pod that the API server does not know any more."""
        if self.node_of(name) != node or (name, node) in self.former:
            self.running.pop((name, node), None)
            self.former.discard((name, node))

    def report(self, _: str, node: str) -> None:
        """A node reports on its addresses."""
        own = [entry for entry in self.addresses() if entry["spec"].get("nodeName") == node]
        theirs = {(entry["spec"].get("claim", {}).get("uid"), entry["spec"]["address"]) for entry in own}
        unassigned = [
            {"network": "storage", "address": address.partition("/")[0], "claim": f"db/{name}"}
            for (name, where), address in self.running.items()
            if where == node and (f"uid-{name}", address) not in theirs
        ]
        released = [int(entry["metadata"]["resourceVersion"]) for entry in own if "claim" not in entry["spec"]]
        status = {"unassignedAddresses": unassigned, "releasedVersion": max(released, default=0)}
        self.api.put("nodenetworks", {"metadata": {"name": node}, "status": status})

    def lose(self, name: str, _: str) -> None:
        """An administrator deletes the PodAddress of a claim whose pod runs and reports it."""
        for entry in self.addresses():
            spec = entry["spec"]
            if spec.get("claim", {}).get("name") == name and (name, spec.get("nodeName")) in self.running:
                self.api.drop("podaddresses", entry["metadata"]["name"])
                self.report(name, spec["nodeName"])

    def replace(self, *_: str) -> None:
        """Nothing happens to the cluster: a controller is replaced."""


async def work(api: MemoryApi) -> None:
    """A controller that assigns addresses."""
    recorder = Recorder(api, "dra.networking/controller", "test")
    controller = Controller(api, recorder, nullcontext)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(controller.state.run(lambda: asyncio.ensure_future(asyncio.sleep(600))))
        tasks.create_task(PodAddresses(api, recorder, controller.state, nullcontext).run())


async def stop(task: asyncio.Future[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def told(acts: list[tuple[str, str, str, int]]) -> None:
    story = Story()
    rivals = [asyncio.ensure_future(work(story.api)) for _ in range(2)]
    await turns(60)
    for act, name, node, pause in acts:
        if act == "replace":
            await stop(rivals.pop(0))
            rivals.append(asyncio.ensure_future(work(story.api)))
        story.act(act, name, node)
        await turns(pause)
        for claim in CLAIMS:
            story.act("start", claim, "")
    await stop(rivals.pop())
    await settled(story)
    event(f"{len(story.running)} pods")
    await stop(rivals.pop())


async def settled(story: Story) -> None:
    """With one controller, all pods of former allocations end, nodes report, and each claim's pod can start."""
    for name in CLAIMS:
        for node in NODES:
            story.end(name, node)
        story.allocate(name, NODES[0])
    async with asyncio.timeout(20):
        while {name for name, _ in story.running} != {*CLAIMS}:
            for node in NODES:
                story.act("report", "", node)
            for name in CLAIMS:
                story.act("start", name, "")
            await asyncio.sleep(0.02)


@settings(
    max_examples=draws.count(60, 2000),
    deadline=None,
    suppress_health_check=[*HealthCheck],
    phases=[Phase.explicit, Phase.generate],
)
@given(acts=ACTS)
@example(
    [
        ("allocate", "b", "node-2", 60),
        ("lose", "b", "node-1", 5),
        ("force", "b", "", 20),
        ("allocate", "b", "node-2", 20),
    ]
)
def test_no_two_pods_have_one_address_and_each_claim_gets_one_in_the_end(acts: list[tuple[str, str, str, int]]) -> None:
    with without_long_waits():
        asyncio.run(told(acts))


def without_long_waits() -> AbstractContextManager[object]:
    add = WorkQueue.add

    def add_soon(queue: WorkQueue[Any], key: object, after: float = 0.0) -> None:
        add(queue, key, after / FASTER)

    return mock.patch.object(WorkQueue, "add", add_soon)


def test_an_address_that_is_deleted_by_hand_does_not_follow_its_claim_while_a_former_pod_has_it() -> None:
    async def told() -> None:
        story = Story()
        controller = asyncio.ensure_future(work(story.api))
        story.act("allocate", "b", "node-2")
        await started(story, "b", "node-2")
        story.act("lose", "b", "node-2")
        story.act("force", "b", "node-2")
        story.act("allocate", "b", "node-1")
        await started(story, "b", "node-1")
        await stop(controller)

    with without_long_waits():
        asyncio.run(told())


class FailingApi(MemoryApi):
    """Refuses the request of a number, and the claim is deleted then."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.left = number

    def note_request(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.drop("resourceclaims", "a", "db")
            raise ApiError("modelled", Status(code=500))

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        self.note_request()
        return await super().get(resource, name, namespace)

    async def create(self, resource: Any, new: Any, *, dry_run: bool = False) -> Any:
        if not dry_run:
            self.note_request()
        return await super().create(resource, new, dry_run=dry_run)


@pytest.mark.parametrize("number", range(1, 8))
def test_after_any_failed_request_the_addresses_of_a_claim_that_is_gone_are_free(number: int) -> None:
    async def told() -> None:
        story = Story(FailingApi(number))
        ranges = [{"cidr": "10.7.0.0/29"}, {"cidr": "fd00::/125"}, {"cidr": "10.8.0.0/29"}]
        story.api.put("podnetworks", msgspec.to_builtins(network(*ranges, keepSeconds=0, quarantineSeconds=0)))
        recorder = Recorder(story.api, "dra.networking/controller", "test")
        controller = Controller(story.api, recorder, nullcontext)
        addresses = PodAddresses(story.api, recorder, controller.state, nullcontext)
        tasks = [
            asyncio.ensure_future(controller.state.run(lambda: asyncio.ensure_future(asyncio.sleep(600)))),
            asyncio.ensure_future(addresses.run()),
        ]
        await turns(60)
        story.act("allocate", "a", "node-2")
        async with asyncio.timeout(20):
            while story.claim("a") is not None and len(story.addresses()) < 2:
                await turns(1)
            if story.claim("a") is not None:
                story.act("delete", "a", "")
            ledger = addresses._ledgers.known("storage")
            assert ledger is not None
            while story.addresses() or ledger.free != NetworkLedger(ledger.network).free:
                story.act("report", "", "node-2")
                await asyncio.sleep(0.01)
        for task in tasks:
            await stop(task)

    with without_long_waits():
        asyncio.run(told())


async def started(story: Story, claim: str, node: str) -> None:
    async with asyncio.timeout(20):
        while (claim, node) not in story.running:
            story.act("start", claim, "")
            await turns(1)
