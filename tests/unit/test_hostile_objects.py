"""No content of an object ends a process, or keeps it from the other objects: as reflectors read it, and beyond.

Each process gets objects of all kinds that it follows, as bad as their types allow, from `tests.hostile`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, cast
from unittest import mock

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, Phase, example, given, settings

from netdra.admission.copy import Copy
from netdra.admission.keeper import CONFIGURATIONS, SECRETS
from netdra.admission.reports import LABELLED_NODES, REPORTS
from netdra.cluster.live import COUNTED_NODES
from netdra.console.live_cluster import LiveCluster
from netdra.controller.addresses.pod_addresses import PodAddresses
from netdra.controller.checks import Checks
from netdra.controller.controller import Controller
from netdra.controller.plugins.cluster_plugins import DAEMON_SETS, ClusterPlugins
from netdra.controller.plugins.cluster_plugins import PODS as INSTALLER_PODS
from netdra.controller.plugins.installers import InstallerSettings
from netdra.controller.services.endpoints import ServiceEndpoints
from netdra.kube import resources as kinds
from netdra.kube.events import Recorder
from netdra.kube.queue import WorkQueue
from netdra.kube.reflector import Reflector
from netdra.kube.resources import Resource
from netdra.kube.store import Store
from netdra.model.errors import UNREADABLE
from netdra.model.pod_address import PodAddress
from netdra.node.claims.addresses import NodeAddresses
from netdra.node.publishing.publisher import STORED_SLICES
from netdra.node.sandboxes.tracker import PODS
from tests.builders import topology as topology_of
from tests.cluster.identities import allocated
from tests.hostile import Served, contents, objects_of
from tests.unit.networks.builders import network as network_of

TURNS = 300
"""How often each task of a process has its turn; the work of these few objects is done long before."""
OF_CONTROLLER = (
    *(kinds.TOPOLOGIES, kinds.POLICIES, kinds.SCHEMAS, kinds.CUSTOM_DEVICES, kinds.DEVICE_CLASSES),
    *(kinds.WATCHED_CLAIMS, kinds.NODE_REPORTS, kinds.TOPOLOGY_USAGES, kinds.POLICY_ROLLOUTS),
    *(kinds.CUSTOM_DEVICE_ROLLOUTS, kinds.POD_NETWORKS, kinds.WATCHED_ADDRESSES, kinds.RESOURCE_SLICES),
    *(kinds.SERVICES, kinds.ENDPOINT_SLICES, kinds.SERVED_PODS, kinds.CNI_PLUGINS, DAEMON_SETS),
)
OF_ADDRESSES = (kinds.POD_NETWORKS, kinds.WATCHED_ADDRESSES, kinds.NODE_REPORTS, kinds.WATCHED_CLAIMS, kinds.TOPOLOGIES)
OF_WEBHOOK = (
    *(kinds.TOPOLOGIES, kinds.SCHEMAS, kinds.POLICIES, kinds.CUSTOM_DEVICES, kinds.DEVICE_CLASSES),
    *(kinds.POD_NETWORKS, kinds.SERVICE_CIDRS, REPORTS, LABELLED_NODES),
)
OTHERS = (
    *(kinds.NODES, kinds.NODE_NETWORKS, kinds.POD_ADDRESSES, kinds.NEUTRON_PORTS, STORED_SLICES, PODS, SECRETS),
    *(CONFIGURATIONS, COUNTED_NODES, INSTALLER_PODS, kinds.RESOURCE_CLAIMS),
)
EVERY = {f"{entry.plural} {entry.type.__name__}": entry for entry in (*OF_CONTROLLER, *OF_WEBHOOK, *OTHERS)}
bounded = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[*HealthCheck],
    phases=[Phase.explicit, Phase.generate],  # objects of twenty kinds take minutes to shrink
)


class Defects(logging.Handler):
    """The defects that a process has logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(logging.Formatter().format(record))


@contextmanager
def no_defects() -> Iterator[None]:
    """Fail if an internal error is logged meanwhile: it was contained, but is one."""
    handler = Defects()
    logging.getLogger("netdra").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("netdra").removeHandler(handler)
    assert handler.texts == []


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Run a process for some turns; work that waits for a time begins at once, but only once."""
    add, begun = WorkQueue.add, set[tuple[int, object]]()

    def add_at_once(queue: WorkQueue[Any], key: object, after: float = 0.0) -> None:
        is_first = (id(queue), key) not in begun
        begun.add((id(queue), key))
        add(queue, key, 0.0 if is_first else after)

    async def some_turns() -> None:
        task = asyncio.ensure_future(work())
        for _ in range(TURNS):
            await asyncio.sleep(0)
            if task.done():
                break
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    with mock.patch.object(WorkQueue, "add", add_at_once):
        asyncio.run(some_turns())


def recorder(client: Served) -> Recorder:
    return Recorder(client, "dra.networking/controller", "test")


def controller_of(client: Served) -> Controller:
    """A controller whose worker process, which is another test's subject, finds no errors."""
    made = Controller(client, recorder(client), nullcontext)

    async def checked(*_: object) -> tuple[str, ...]:
        return ()

    checks = mock.create_autospec(Checks, instance=True)
    checks.errors = checked
    made._checks = cast("Checks", checks)
    return made


@bounded
@given(objects=objects_of(*OF_CONTROLLER, most=2))
def test_no_object_ends_the_controller(objects: dict[str, list[Any]]) -> None:
    client = Served(objects)

    async def work() -> None:
        controller = controller_of(client)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(controller.state.run(lambda: asyncio.ensure_future(controller.work.run())))
            addresses = PodAddresses(client, recorder(client), controller.state, nullcontext)
            tasks.create_task(addresses.run())
            tasks.create_task(ServiceEndpoints(client, recorder(client), addresses, nullcontext).run())
            installing = InstallerSettings(
                image="netdra", cni_folder="/opt/cni/bin", namespace="netdra", pull_secrets=()
            )
            plugins = ClusterPlugins(client, recorder(client), controller.state, installing, nullcontext)
            tasks.create_task(plugins.run())

    with no_defects():
        run(work)


def sound() -> dict[str, list[Any]]:
    """A network, a topology that uses it, and an allocated claim."""
    step = {"name": "lan", "type": "macvlan", "selector": {"cel": "true"}, "network": "storage"}
    spec = {"steps": [step | {"config": {"ipam": {"type": "network"}}}]}
    topology = topology_of(yaml.safe_dump(spec["steps"]), name="good")
    network = network_of("10.7.0.0/28", name="storage")
    status = allocated("good", "good", ["lan"], "node-1")
    metadata = {"name": "good", "namespace": "db", "uid": "good", "resourceVersion": "5"}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": {}}
    values = {"podnetworks": network, "networktopologies": topology, "resourceclaims": {**claim, "status": status}}
    return {plural: [msgspec.to_builtins(value)] for plural, value in values.items()}


WITHHELD = {"network": "storage", "address": "not-an-address", "claim": "db/a"}
BANANA = {
    "apiVersion": "networking.dra.io/v1alpha1",
    "kind": "PodAddress",
    "metadata": {"name": "banana", "resourceVersion": "3"},
    "spec": {
        "network": "storage",
        "address": "banana",
        "families": ["IPv4"],
        "owner": {"namespace": "db", "claim": "a", "topology": "a", "step": "a"},
        "keptSince": "soon",
    },
}
REPORT = {"metadata": {"name": "node-1", "resourceVersion": "4"}, "status": {"unassignedAddresses": [WITHHELD]}}
NONE: dict[str, list[Any]] = {entry.plural: [] for entry in OF_ADDRESSES}


@settings(bounded, max_examples=150)
@given(objects=objects_of(*OF_ADDRESSES, most=4))
@example(objects={**NONE, "nodenetworks": [REPORT]})
@example(objects={**NONE, "podaddresses": [BANANA]})
@example(objects={**NONE, "podaddresses": [{**BANANA, "metadata": {"name": "storage.10.7.0.1"}}]})
def test_no_object_keeps_a_claim_from_its_address(objects: dict[str, list[Any]]) -> None:
    client = Served({plural: [*values, *sound().get(plural, ())] for plural, values in objects.items()})

    async def work() -> None:
        controller = controller_of(client)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(controller.state.run(lambda: asyncio.ensure_future(asyncio.sleep(60))))
            tasks.create_task(PodAddresses(client, recorder(client), controller.state, nullcontext).run())

    with no_defects():
        run(work)
    made = [entry for entry in client.created if isinstance(entry, PodAddress)]
    assert [entry.spec.network for entry in made if entry.spec.owner.claim == "good"] == ["storage"]


@bounded
@given(objects=objects_of(*OF_WEBHOOK, most=3))
def test_no_object_ends_the_webhook(objects: dict[str, list[Any]]) -> None:
    client = Served(objects)
    copy = Copy(client)
    with no_defects():
        run(copy.run)

        async def taken() -> None:
            for network in copy.pod_networks.objects.values():
                await copy.read_taken(network)
            assert copy.cluster is not None

        asyncio.run(taken())


@bounded
@given(objects=objects_of(COUNTED_NODES, most=4))
def test_no_object_ends_the_console(objects: dict[str, list[Any]]) -> None:
    cluster = LiveCluster(Served(objects))
    with no_defects():
        run(cluster.live.reflector.run)
        assert len(cluster.fleet()) <= 4


@bounded
@given(objects=objects_of(kinds.POD_ADDRESSES, most=4))
def test_no_object_ends_the_nodes_copy_of_addresses(objects: dict[str, list[Any]]) -> None:
    with no_defects():

        async def work() -> None:
            addresses = NodeAddresses(Served(objects), "node-1")
            addresses.follow()
            await addresses.store.wait_synced()

        run(work)


@pytest.mark.parametrize("name", EVERY)
def test_an_object_of_a_kind_is_read_or_set_aside_with_a_reason(name: str) -> None:
    resource: Resource[Any] = EVERY[name]

    @settings(bounded, max_examples=25)
    @given(value=contents(resource.type))
    def check(value: Any) -> None:
        store: Store[Any] = Store()
        run(Reflector(Served({resource.plural: [value]}), resource, store, vital=False).run)
        assert len(store.objects) + len(store.unreadable) <= 1
        if store.unreadable:
            with pytest.raises(UNREADABLE):
                msgspec.json.decode(msgspec.json.encode(value), type=resource.type)

    check()
