"""Another client undoes each write of netdra at once: netdra writes seldom, reports it, and recovers by itself.

Times are scaled: a minute of netdra's pace is three seconds here.
"""

from __future__ import annotations

import ast
import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from netdra.controller.addresses.pod_addresses import PodAddresses
from netdra.controller.controller import Controller
from netdra.controller.device_health import DeviceTaints
from netdra.controller.plugins.cluster_plugins import ClusterPlugins
from netdra.controller.plugins.installers import InstallerSettings
from netdra.controller.services.endpoints import ServiceEndpoints
from netdra.health.rules import HealthCap, rule_name
from netdra.kube.client import Client, WriteRequest
from netdra.kube.connection import connect, find_config
from netdra.kube.events import Recorder
from netdra.kube.resources import Resource
from netdra.kube.undone import Pace
from netdra.kube.undone_reports import REASON, UndoneReports
from netdra.model import names
from netdra.model.resource import ResourceSlice
from testbed.api import Api, ApiError, Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLASS, manifest
from testbed.objects import SLICE as RESOURCE_SLICE
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster.daemons import CONFIGURATION, SECRET, bundle_of, steps
from tests.cluster.test_certificate_keeper import Replica, configuration
from tests.cluster.test_certificate_keeper import running as keeping
from tests.cluster.test_controller import (
    CUSTOM_DEVICE,
    DEVICE_ROLLOUT,
    EVENT,
    NOWHERE,
    POLICY,
    ROLLOUT,
    SCHEMA,
    TOPOLOGY,
    USAGE,
    condition,
    is_ready,
)
from tests.cluster.test_device_health import RULE, report, reporting_node
from tests.cluster.test_pod_networks import ADDRESS, NETWORK
from tests.cluster.test_services import SLICE as ENDPOINT_SLICE
from tests.cluster.test_services import Storage

pytestmark = pytest.mark.usefixtures("custom_kinds")

SCALE = 20.0
MINUTE, MOST_A_MINUTE = 60.0 / SCALE, 10
PACE = Pace(first=10.0 / SCALE, most=240.0 / SCALE, forget=10.0)
"""Writes are remembered for longer, because the other client is slow on a busy machine."""
PLUGIN, DAEMON_SET = "networking.dra.io/v1alpha1/CNIPlugin", "apps/v1/DaemonSet"
FINALIZER = "networking.dra.io/in-use"
STRANGER = "netdra-testbed"
LOOK_SECONDS = 0.02

ELSEWHERE = {
    "LEASES": "written again and again by design (renewed=True)",
    "EVENTS": "limited by the recorder",
    "TOKEN_REVIEWS": "answered, not stored",
    "STORED_CLAIMS": "written for an outcome of a pod only, not when another client changes it",
    "NEUTRON_PORTS": "tests/unit/kube/test_undone.py; they need a cloud",
}
"""The kinds that netdra writes and that are not attacked here, with the reason."""

Undo = Callable[[Api, str, Object], None]
Stands = Callable[[Object], bool]


@dataclass(frozen=True)
class Attack:
    """An object that another client attacks.

    Attributes:
        resource: netdra's name of the kind.
        kind, name, namespace: the object; any name with this part.
        undo: undoes netdra's write.
        stands: whether netdra's write is there.
        reported: the name in the report, if it is another one.
    """

    resource: str
    kind: str
    name: str
    undo: Undo
    namespace: str = ""
    stands: Stands = lambda _: True
    reported: str = ""

    @property
    def other_client(self) -> str:
        """The other client, as far as it can be known: one that only removes fields is not recorded."""
        if self.undo is delete:
            return "deletes it"
        return f'client "{STRANGER}"' if self.undo in {change_selector, drop_attributes} else "client"

    def objects(self, api: Api) -> list[Object]:
        """The objects in which netdra's write is there."""
        found = api.list(self.kind, self.namespace)
        return [each for each in found if self.name in each["metadata"]["name"] and self.stands(each)]


def update(api: Api, kind: str, found: Object, subresource: str = "", **changed: Any) -> None:
    group, _, name = kind.rpartition("/")
    api.update({**found, "apiVersion": group, "kind": name, **changed}, subresource=subresource)


def delete(api: Api, kind: str, found: Object) -> None:
    api.delete(kind, found["metadata"]["name"], found["metadata"].get("namespace", ""))


def clear_status(api: Api, kind: str, found: Object) -> None:
    update(api, kind, found, "status", status={})


def drop_finalizer(api: Api, kind: str, found: Object) -> None:
    update(api, kind, found, metadata={**found["metadata"], "finalizers": []})


def drop_attributes(api: Api, kind: str, found: Object) -> None:
    devices = [{**device, "attributes": {}} for device in found["spec"]["devices"]]
    update(api, kind, found, spec={**found["spec"], "devices": devices})


def has_attributes(found: Object) -> bool:
    return any(device.get("attributes") for device in found["spec"].get("devices", ()))


def has_summary(found: Object) -> bool:
    return "summary" in found.get("status", {})


def drop_bundle(api: Api, kind: str, found: Object) -> None:
    (webhook,) = found["webhooks"]
    config = {"url": webhook["clientConfig"]["url"]}
    update(api, kind, found, webhooks=[{**webhook, "clientConfig": config}])


def has_bundle(found: Object) -> bool:
    return bool(bundle_of(found))


def has_problem(found: Object | None) -> bool:
    """Whether a NodeNetwork reports slices that another client undoes."""
    problems = (found or {}).get("status", {}).get("problems", ())
    return any("netdra writes it again" in each["message"] for each in problems)


def is_undone(found: Object | None) -> bool:
    return condition(found, "Ready") == ("False", REASON)


def has_conditions(found: Object) -> bool:
    return bool(found.get("status", {}).get("conditions"))


def has_finalizer(found: Object) -> bool:
    return bool(found["metadata"].get("finalizers"))


def has_selector(found: Object) -> bool:
    return "false" not in [each["cel"]["expression"] for each in found["spec"]["selectors"]]


def change_selector(api: Api, kind: str, found: Object) -> None:
    update(api, kind, found, spec={**found["spec"], "selectors": [{"cel": {"expression": "false"}}]})


class Adversary:
    """Undoes writes at once, for as long as it runs."""

    def __init__(self, plane: ControlPlane, attacks: list[Attack]) -> None:
        self.attacks = attacks
        self.undone: Counter[Attack] = Counter()
        self._plane = plane
        self._ended = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._undo, args=(attack,)) for attack in self.attacks]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in threads:
                thread.join()

    def _undo(self, attack: Attack) -> None:
        with closing(self._plane.client()) as api:
            while not self._ended.wait(LOOK_SECONDS):
                for found in attack.objects(api):
                    with suppress(ApiError):  # netdra was first, or the object is gone
                        attack.undo(api, attack.kind, found)
                        self.undone[attack] += 1


class WatchedClient(Client):
    """A client that notes the writes that the API server has done."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(connect(find_config(plane.kubeconfig())), PACE)
        self.writes: list[tuple[float, str]] = []

    async def _write(self, resource: Resource[Any], request: WriteRequest, body: Any) -> bytes:
        received = await super()._write(resource, request, body)
        if resource.plural != "events":
            # The slices of a pool get other names each time.
            name = body.spec.pool.name if isinstance(body, ResourceSlice) else request.name
            self.writes.append((time.monotonic(), f"{resource.plural}/{request.namespace}/{name}"))
        return received

    def most_a_minute(self, since: float) -> Mapping[str, int]:
        """The most writes of each object in any minute since a moment."""
        times: dict[str, list[float]] = {}
        for at, name in self.writes:
            if at >= since:
                times.setdefault(name, []).append(at)
        return {
            name: max(sum(begin <= at < begin + MINUTE for at in all_) for begin in all_)
            for name, all_ in times.items()
        }


@asynccontextmanager
async def controlling(plane: ControlPlane, namespace: str) -> AsyncIterator[WatchedClient]:
    """A controller at work."""
    async with WatchedClient(plane) as client:
        recorder = Recorder(client, "dra.networking/controller", "attacked")
        controller = Controller(client, recorder, nullcontext)
        installing = InstallerSettings(image="none:1", cni_folder="/opt/cni/bin", namespace=namespace)
        addresses = PodAddresses(client, recorder, controller.state, nullcontext)
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(part.run())
                for part in (
                    recorder,
                    UndoneReports(client, recorder),
                    controller,
                    ClusterPlugins(client, recorder, controller.state, installing, nullcontext),
                    addresses,
                    ServiceEndpoints(client, recorder, addresses, nullcontext),
                )
            ]
            yield client
            for task in running:
                task.cancel()


ATTACKED = frozenset(
    {
        *("DEVICE_CLASSES", "TOPOLOGIES", "TOPOLOGY_USAGES", "POLICIES", "POLICY_ROLLOUTS", "CUSTOM_DEVICE_ROLLOUTS"),
        *("SCHEMAS", "CNI_PLUGINS", "DAEMON_SETS", "ENDPOINT_SLICES", "POD_ADDRESSES", "POD_NETWORKS"),
        "RESOURCE_SLICES",
    }
)
"""The kinds of which the controller's writes are attacked."""


@dataclass
class Stage:
    """The objects of users, from which netdra makes others."""

    workspace: Workspace
    attacks: list[Attack] = field(default_factory=list)

    def attack(self, resource: str, kind: str, name: str, undo: Undo, stands: Stands = lambda _: True) -> None:
        namespace = self.workspace.namespace if kind in {DAEMON_SET, ENDPOINT_SLICE} else ""
        self.attacks.append(Attack(resource, kind, name, undo, namespace, stands))

    def topology(self, base: str) -> str:
        name = self.workspace.name(base)
        self.workspace.create(manifest(TOPOLOGY, name, spec=steps("vf0")))
        return name


def build(workspace: Workspace) -> Stage:
    """Objects of each kind that the controller follows, and the attacks on the objects that it writes for them."""
    stage, create = Stage(workspace), workspace.create
    stage.attack("DEVICE_CLASSES", CLASS, f"{stage.topology('gone')}-vf0", delete)
    stage.attack("DEVICE_CLASSES", CLASS, f"{stage.topology('edited')}-vf0", change_selector, has_selector)
    stage.attack("TOPOLOGIES", TOPOLOGY, stage.topology("status"), clear_status, has_conditions)
    stage.attack("TOPOLOGIES", TOPOLOGY, stage.topology("unheld"), drop_finalizer, has_finalizer)
    stage.attack("TOPOLOGY_USAGES", USAGE, stage.topology("usage"), delete)
    name = workspace.name("policy")
    create(manifest(POLICY, name, spec={**NOWHERE, "selector": {"cel": "true"}}))
    stage.attack("POLICIES", POLICY, name, clear_status, has_conditions)
    stage.attack("POLICY_ROLLOUTS", ROLLOUT, name, delete)
    name = workspace.name("rack")
    facts = {"provider": "example.com", "device": "eth0", "attributes": {"rack": {"int": 7}}}
    create(manifest(CUSTOM_DEVICE, name, spec={**facts, "selector": NOWHERE}))
    stage.attack("CUSTOM_DEVICE_ROLLOUTS", DEVICE_ROLLOUT, name, delete)
    name = workspace.name("schema")
    create(manifest(SCHEMA, name, spec={"plugin": name, "cniType": name, "version": "1.0.0"}))
    stage.attack("SCHEMAS", SCHEMA, name, clear_status, has_conditions)
    for base, resource, kind, undo, stands in (
        ("ds", "DAEMON_SETS", DAEMON_SET, delete, lambda _: True),
        ("st", "CNI_PLUGINS", PLUGIN, clear_status, has_conditions),
        ("fi", "CNI_PLUGINS", PLUGIN, drop_finalizer, has_finalizer),
    ):
        name = workspace.name(base)
        create(manifest(PLUGIN, name, spec={"image": "none:1", "binaryPath": "/x"}))
        stage.attack(resource, kind, f"netdra-cni-{name}" if kind == DAEMON_SET else name, undo, stands)
    return stage


def test_objects_of_the_controller_that_are_undone_are_written_seldom_and_reported(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    stage, api = build(workspace), workspace.api
    storage = Storage(workspace, ranges=[{"cidr": "10.77.0.0/24"}])

    async def story() -> None:
        async with controlling(control_plane, workspace.namespace) as client:
            await asyncio.to_thread(storage.pod, "web")
            await asyncio.to_thread(storage.service, "web")
            stage.attack("ENDPOINT_SLICES", ENDPOINT_SLICE, "web", delete)
            # Not that of the Service: its endpoints would change with it, and those are attacked themselves.
            await asyncio.to_thread(storage.pod, "other", app="other")
            (address,) = storage.net.of("other")
            stage.attack("POD_ADDRESSES", ADDRESS, f"{storage.net.name}.{address.partition('/')[0]}", delete)
            stage.attack("POD_NETWORKS", NETWORK, storage.net.name, clear_status, has_conditions)
            stage.attack("RESOURCE_SLICES", RESOURCE_SLICE, f"podnetworks.dra.networking-{storage.net.name}", delete)
            stage.attack("DEVICE_CLASSES", CLASS, names.network_class(storage.net.name), delete)
            assert {each.resource for each in stage.attacks} == ATTACKED
            await asyncio.to_thread(until_standing, api, stage.attacks)
            topology = stage.attacks[0].name.removesuffix("-vf0")
            await attacked(control_plane, api, client, stage.attacks, (TOPOLOGY, topology, is_undone))
            await asyncio.to_thread(api.wait_for, TOPOLOGY, topology, is_ready)

    asyncio.run(story())


def test_a_taint_that_is_undone_is_written_seldom_and_reported(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    node, api = reporting_node(workspace), workspace.api
    report(workspace, node, "NoSchedule", "nic0")
    attack = Attack("DEVICE_TAINT_RULES", RULE, rule_name(node, "nic0"), delete)

    async def story() -> None:
        async with WatchedClient(control_plane) as client, asyncio.TaskGroup() as tasks:
            recorder = Recorder(client, "dra.networking/controller", "attacked")
            controller = Controller(client, recorder, nullcontext)
            taints = DeviceTaints(client, recorder, controller.state, HealthCap(node=100, cluster=100), nullcontext)
            parts = (recorder, UndoneReports(client, recorder), controller, taints)
            running = [tasks.create_task(part.run()) for part in parts]
            await asyncio.to_thread(until_standing, api, [attack])
            adversary, since = Adversary(control_plane, [attack]), time.monotonic()
            with adversary.running():
                await asyncio.to_thread(until_reported, api, [attack])
            assert adversary.undone[attack] >= PACE.free
            assert max(client.most_a_minute(since).values()) <= MOST_A_MINUTE
            await asyncio.to_thread(until_standing, api, [attack])
            for task in running:
                task.cancel()

    asyncio.run(story())


@pytest.mark.parametrize("resource", ["SECRETS", "CONFIGURATIONS"])
def test_the_webhooks_certificate_that_is_undone_is_written_seldom(
    control_plane: ControlPlane, workspace: Workspace, resource: str
) -> None:
    name = workspace.name("keeper")
    workspace.create(configuration(name))
    attack = {
        "SECRETS": Attack("SECRETS", SECRET, "certificate", delete, workspace.namespace),
        "CONFIGURATIONS": Attack("CONFIGURATIONS", CONFIGURATION, name, drop_bundle, stands=has_bundle),
    }[resource]

    async def story() -> None:
        async with WatchedClient(control_plane) as client, keeping(Replica(client, workspace, name, None)):
            await asyncio.to_thread(until_standing, workspace.api, [attack])
            await attacked(control_plane, workspace.api, client, [attack], has_events=False)

    asyncio.run(story())


def test_each_kind_that_netdra_writes_is_attacked_or_has_a_reason_not_to_be() -> None:
    assert written_resources() == {
        *(*ATTACKED, *ELSEWHERE),
        *("NODE_NETWORKS", "SECRETS", "CONFIGURATIONS", "DEVICE_TAINT_RULES"),
    }


def until_standing(api: Api, attacks: list[Attack]) -> None:
    """Wait until all writes are there."""

    def missing() -> list[str]:
        return [f"{each.kind} {each.name}" for each in attacks if not each.objects(api)]

    until(lambda: not missing(), "netdra's writes", seconds=30.0, detail=lambda: str(missing()))


async def attacked(
    plane: ControlPlane,
    api: Api,
    client: WatchedClient,
    attacks: list[Attack],
    *conditions: tuple[str, str, Callable[[Object | None], bool]],
    has_events: bool = True,
) -> None:
    """Attack objects for a minute, and check the writes, the reports, and the recovery.

    Args:
        conditions: the kind and name of objects, and whether one reports an attack.
        has_events: whether the process writes events.
    """
    adversary, since = Adversary(plane, attacks), time.monotonic()
    with adversary.running():
        await asyncio.sleep(MINUTE)
        if has_events:
            await asyncio.to_thread(until_reported, api, attacks)
        for kind, name, is_reported in conditions:
            await asyncio.to_thread(api.wait_for, kind, name, is_reported)
    assert not [each for each in attacks if adversary.undone[each] < PACE.free], "the other client was too slow"
    counts = client.most_a_minute(since)
    assert {name: count for name, count in counts.items() if count > MOST_A_MINUTE} == {}
    await asyncio.to_thread(until_standing, api, attacks)


def until_reported(api: Api, attacks: list[Attack]) -> None:
    """Wait until each attacked object has its event, with the other client where it is known."""

    def silent() -> list[str]:
        notes = [event["note"] for event in api.list(EVENT) if event["reason"] == REASON]
        return [
            f"{each.kind} {each.name}"
            for each in attacks
            if not any((each.reported or each.name) in note and each.other_client in note for note in notes)
        ]

    until(lambda: not silent(), "events", seconds=60.0, detail=lambda: str(silent()))


def written_resources() -> set[str]:
    """The kinds that the daemons write, by the names of their resources in the code."""
    root = Path(__file__).parents[2] / "netdra"
    writers = {
        "create",
        "replace",
        "apply",
        "merge",
        "write_status",
        "_write_status",
        "write_summary",
        "_write_summary",
    }
    found: set[str] = set()
    for package in ("controller", "node", "admission", "kube"):
        for path in (root / package).rglob("*.py"):
            for call in ast.walk(ast.parse(path.read_text())):
                if not isinstance(call, ast.Call) or _is_dry_run(call):
                    continue
                name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
                if name in writers:
                    found |= {
                        each.id
                        for each in call.args
                        if isinstance(each, ast.Name) and each.id[0].isupper() and each.id.isupper()
                    }
    return found


def _is_dry_run(call: ast.Call) -> bool:
    return any(keyword.arg == "dry_run" for keyword in call.keywords)
