"""The cluster as the controller knows it, and the objects that a change concerns.

Reflectors keep the stores current; from them come indexes: the users of each topology, the policies of each rank, and
the nodes' reports of each policy and custom device. `netdra.controller.controller` reads all of it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from netdra.controller import failures
from netdra.controller.failures import DeviceFailure
from netdra.exposure.ranks import RankIndex
from netdra.kube.client import Client
from netdra.kube.features import LIST_ATTRIBUTES
from netdra.kube.queue import WorkQueue
from netdra.kube.reflector import Reflector
from netdra.kube.resources import (
    CUSTOM_DEVICE_ROLLOUTS,
    CUSTOM_DEVICES,
    DEVICE_CLASSES,
    NODE_REPORTS,
    POLICIES,
    POLICY_ROLLOUTS,
    SCHEMAS,
    TOPOLOGIES,
    TOPOLOGY_USAGES,
    WATCHED_CLAIMS,
    KubernetesObject,
    Resource,
)
from netdra.kube.store import Change, Store
from netdra.model.claim import DeviceClass
from netdra.model.custom_device import CustomDevice
from netdra.model.device import Features
from netdra.model.node_network import (
    CustomDeviceReport,
    NodeNetworkReport,
    PolicyAtNode,
    custom_devices_of,
    policies_of,
)
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.rollout import CustomDeviceRollout, DeviceExposurePolicyRollout, NetworkTopologyUsage
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.model.watched_claim import WatchedClaim
from netdra.rules import contract
from netdra.rules.runnable import NamedPlugins
from netdra.topology.classes import class_name, owner
from netdra.topology.users import topologies_of

R = TypeVar("R")
K = TypeVar("K", bound=KubernetesObject)

T = TypeVar("T", bound=KubernetesObject)

TOPOLOGY, POLICY, SCHEMA = "NetworkTopology", "DeviceExposurePolicy", "CNIPluginSchema"
TOPOLOGY_USAGE, POLICY_ROLLOUT = "NetworkTopologyUsage", "DeviceExposurePolicyRollout"
CUSTOM_DEVICE_ROLLOUT = "CustomDeviceRollout"
FEATURES, ALL_TOPOLOGIES = "features", "topologies"
"""Work on no object of its own: learn what nodes publish, and look at every topology."""
DEBOUNCE_SECONDS = 1.0
"""How long further changes of users and reports are waited for before a status is written."""
FAILURES_SECONDS = 10.0
"""How long further failures of claims are waited for, once an object has one: a rack's claims fail within seconds."""
NODES_PER_SECOND = 500
"""With more nodes than this, reports are waited for a second longer for each so many nodes."""
FEATURES_SECONDS = 5.0
REPORTS_SECONDS = 5.0
"""How long the first list of NodeNetworks is waited for."""


InHand = Callable[[], AbstractContextManager[None]]
"""Entered around each look at an object: the end of the process waits until it is left."""


def now() -> datetime:
    """The time, with its zone."""
    return datetime.now(UTC)


class Key(NamedTuple):
    """An object that is to be inspected: its kind, and its name."""

    kind: str
    name: str


def published(nodes: Iterable[NodeNetworkReport]) -> Features | None:
    """The form in which most nodes publish attributes; None if no node reports it.

    All nodes ask one API server; while its replicas or the nodes' drivers are being replaced they may differ.
    """
    reported = [node.status.features for node in nodes if node.status is not None and node.status.features]
    forms = Counter(LIST_ATTRIBUTES in features for features in reported)
    if not forms:
        return None
    return Features(list_attributes=forms[True] > forms[False])


class ReportIndex(Generic[K, R]):
    """The reports of nodes or claims, by the object that each is about."""

    def __init__(self, read: Callable[[K], Mapping[str, R]]) -> None:
        """Begin empty.

        Args:
            read: the reports of a node or claim, by the object that each is about.
        """
        self._read = read
        self._reports: dict[str, dict[str, R]] = {}

    def of(self, name: str) -> Iterator[tuple[str, R]]:
        """The reports of an object, each with its node or claim."""
        return iter(self._reports.get(name, {}).items())

    def count(self, name: str) -> int:
        """The number of reports of an object."""
        return len(self._reports.get(name, ()))

    def update(self, change: Change[K]) -> Iterable[str]:
        """Take the change of a node or claim; returns the names of the objects whose reports have changed."""
        before = self._read(change.old) if change.old is not None else {}
        after = self._read(change.new) if change.new is not None else {}
        if not before and not after:
            return ()
        for name in before.keys() - after.keys():
            reports = self._reports[name]
            del reports[change.key]
            if not reports:
                del self._reports[name]
        for name, report in after.items():
            self._reports.setdefault(name, {})[change.key] = report
        return (name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


class FirstSchemas:
    """The schema of each plugin that counts: the first by name of those that do not contradict themselves."""

    def __init__(self) -> None:
        self._names: dict[str, list[str]] = {}

    def of(self, schema: CNIPluginSchema) -> str:
        """The name of the schema of the same plugin that counts; "" if none exists."""
        return next(iter(self._names.get(schema.spec.plugin, ())), "")

    def update(self, change: Change[CNIPluginSchema]) -> tuple[str, ...]:
        """Take a schema's change; returns the names of the others of a plugin of which another schema counts now."""
        old, new = change.old, change.new
        if old is not None and new is not None and (old.spec, old.is_shipped) == (new.spec, new.is_shipped):
            return ()
        before, after = _sound_plugin(old), _sound_plugin(new)
        if before == after:
            return ()
        concerned: list[str] = []
        if before is not None:
            names = self._names[before]
            at = bisect_left(names, change.key)
            del names[at]
            concerned += names if at == 0 else ()
            if not names:
                del self._names[before]
        if after is not None:
            names = self._names.setdefault(after, [])
            concerned += names if names and change.key < names[0] else ()
            insort(names, change.key)
        return tuple(concerned)


def _sound_plugin(schema: CNIPluginSchema | None) -> str | None:
    """The plugin that a schema describes; None if the schema does not count."""
    return None if schema is None or schema.is_shipped or contract.examine(schema)[1] else schema.spec.plugin


class State:
    """The stores and indexes; the keys of changed objects are added to `work`."""

    def __init__(self, client: Client, work: WorkQueue[Key]) -> None:
        self._client = client
        self._work = work
        self.topologies: Store[NetworkTopology] = Store()
        self.policies: Store[DeviceExposurePolicy] = Store()
        self.schemas: Store[CNIPluginSchema] = Store()
        self.custom_devices: Store[CustomDevice] = Store()
        self.usages: Store[NetworkTopologyUsage] = Store()
        self.policy_rollouts: Store[DeviceExposurePolicyRollout] = Store()
        self.custom_device_rollouts: Store[CustomDeviceRollout] = Store()
        self.classes: Store[DeviceClass] = Store()
        self.claims: Store[WatchedClaim] = Store()
        self.nodes: Store[NodeNetworkReport] = Store()
        self._users: dict[str, list[str]] = {}
        self.policy_reports: ReportIndex[NodeNetworkReport, PolicyAtNode] = ReportIndex(policies_of)
        self.custom_device_reports: ReportIndex[NodeNetworkReport, CustomDeviceReport] = ReportIndex(custom_devices_of)
        self.topology_failures: ReportIndex[WatchedClaim, DeviceFailure] = ReportIndex(failures.by_topology)
        self.policy_failures: ReportIndex[WatchedClaim, DeviceFailure] = ReportIndex(failures.by_policy)
        self.ranks = RankIndex()
        self.first_schemas = FirstSchemas()
        self.named_plugins = NamedPlugins()
        self._owned_classes: defaultdict[str, set[str]] = defaultdict(set)
        self._failing: defaultdict[str, set[str]] = defaultdict(set)
        self._outdated: dict[str, set[str]] = {}

    async def run(self, work: Callable[[], asyncio.Future[None]]) -> None:
        """Keep the stores current, and run the work once all of them have been synced; until cancelled."""
        with ExitStack() as following:
            async with asyncio.TaskGroup() as tasks:

                def reflect(
                    resource: Resource[T], store: Store[T], follow: Callable[[Change[T]], None], *, vital: bool = True
                ) -> None:
                    following.enter_context(store.following(follow))
                    tasks.create_task(Reflector(self._client, resource, store, vital=vital).run())

                reflect(TOPOLOGIES, self.topologies, self._on_topology_change)
                reflect(POLICIES, self.policies, self._on_policy_change)
                reflect(SCHEMAS, self.schemas, self._on_schema_change)
                reflect(CUSTOM_DEVICES, self.custom_devices, self._on_custom_device_change)
                reflect(DEVICE_CLASSES, self.classes, self._on_class_change)
                reflect(WATCHED_CLAIMS, self.claims, self._on_claim_change)
                reflect(NODE_REPORTS, self.nodes, self._on_node_change, vital=False)
                for resource, kind, store, _ in self._summaries():
                    reflect(resource, store, partial(self._on_summary_change, kind), vital=False)
                for followed in self._stores():
                    await followed.wait_synced()
                tasks.create_task(self._queue_summaries())
                # A cluster with an older chart may lack these kinds: topologies get their classes anyway.
                with suppress(TimeoutError):
                    async with asyncio.timeout(REPORTS_SECONDS):
                        await self._wait_summaries()
                await work()

    def _stores(self) -> tuple[Store[Any], ...]:
        own = (self.topologies, self.policies, self.schemas, self.custom_devices)
        return (*own, self.classes, self.claims)

    def _summaries(self) -> Iterator[tuple[Resource[Any], str, Store[Any], Store[Any]]]:
        """The kinds that summarize objects of another kind, each with its key's, its store, and that of the other."""
        yield TOPOLOGY_USAGES, TOPOLOGY_USAGE, self.usages, self.topologies
        yield POLICY_ROLLOUTS, POLICY_ROLLOUT, self.policy_rollouts, self.policies
        yield CUSTOM_DEVICE_ROLLOUTS, CUSTOM_DEVICE_ROLLOUT, self.custom_device_rollouts, self.custom_devices

    async def _wait_summaries(self) -> None:
        for _, _, store, _ in self._summaries():
            await store.wait_synced()
        await self.nodes.wait_synced()

    async def _queue_summaries(self) -> None:
        """Have usages and rollouts written as soon as they are read, and again once there are reports."""
        for _, kind, store, summarized in self._summaries():
            await store.wait_synced()
            for name in summarized.objects:
                self._work.add(Key(kind, name))
        await self.nodes.wait_synced()
        for _, kind, _, summarized in self._summaries():
            for name in summarized.objects:
                self._work.add(Key(kind, name))

    def users(self, topology: str) -> Sequence[str]:
        """The claims that use a topology, in order."""
        return self._users.get(topology, ())

    def classes_of(self, topology: NetworkTopology) -> dict[str, DeviceClass]:
        """The DeviceClasses that a topology owns, and those of the names of its steps' classes, by name."""
        owned = self._owned_classes.get(topology.name, ())
        named = (class_name(topology.name, step.name) for step in topology.spec.steps)
        present = self.classes.objects
        return {name: present[name] for name in dict.fromkeys((*sorted(owned), *named)) if name in present}

    @property
    def _reports_seconds(self) -> float:
        """How long further reports are waited for: longer with many nodes, which take longer to report."""
        return max(DEBOUNCE_SECONDS, len(self.nodes.objects) / NODES_PER_SECOND)

    def _on_topology_change(self, change: Change[NetworkTopology]) -> None:
        if _is_status_alone(change):
            self._work.add(Key(TOPOLOGY, change.key), DEBOUNCE_SECONDS)
            return
        self._work.add(Key(TOPOLOGY, change.key))
        self._work.add(Key(TOPOLOGY_USAGE, change.key))

    def _on_policy_change(self, change: Change[DeviceExposurePolicy]) -> None:
        if _is_status_alone(change):
            self._work.add(Key(POLICY, change.key), DEBOUNCE_SECONDS)
            return
        if self.named_plugins.update(change.old, change.new):
            self._work.add(Key(ALL_TOPOLOGIES, ""), DEBOUNCE_SECONDS)
        self._work.add(Key(POLICY, change.key))
        self._work.add(Key(POLICY_ROLLOUT, change.key))
        self._note_generation(change.key, change.new)
        for name in self.ranks.update(change.key, change.old, change.new):
            self._work.add(Key(POLICY, name), DEBOUNCE_SECONDS)

    def _on_schema_change(self, change: Change[CNIPluginSchema]) -> None:
        for name in self.first_schemas.update(change):
            self._work.add(Key(SCHEMA, name))
        if _is_status_alone(change):
            self._work.add(Key(SCHEMA, change.key), DEBOUNCE_SECONDS)
            return
        self._work.add(Key(SCHEMA, change.key))
        self._work.add(Key(ALL_TOPOLOGIES, ""), DEBOUNCE_SECONDS)

    def _on_custom_device_change(self, change: Change[CustomDevice]) -> None:
        self._work.add(Key(CUSTOM_DEVICE_ROLLOUT, change.key))

    def _on_summary_change(self, kind: str, change: Change[Any]) -> None:
        """A usage or rollout has changed, as a rule by this controller; one that is gone is made again.

        The controller's own write must not bring the next one earlier than other failures are waited for.
        """
        self._work.add(Key(kind, change.key), FAILURES_SECONDS if change.new is not None else 0.0)

    def _on_class_change(self, change: Change[DeviceClass]) -> None:
        before = owner(change.old) if change.old is not None else ""
        after = owner(change.new) if change.new is not None else ""
        if before != after:
            if before:
                self._owned_classes[before].discard(change.key)
                if not self._owned_classes[before]:
                    del self._owned_classes[before]
            if after:
                self._owned_classes[after].add(change.key)
        for at, letter in enumerate(change.key):
            if letter == "-" and (name := change.key[:at]) in self.topologies.objects:
                self._work.add(Key(TOPOLOGY, name))

    def _on_claim_change(self, change: Change[WatchedClaim]) -> None:
        before = topologies_of(change.old) if change.old is not None else frozenset()
        after = topologies_of(change.new) if change.new is not None else frozenset()
        for name in before - after:
            users = self._users[name]
            del users[bisect_left(users, change.key)]
            if not users:
                del self._users[name]
        for name in after - before:
            insort(self._users.setdefault(name, []), change.key)
        for name in before ^ after:
            count = len(self.users(name))
            self._work.add(Key(TOPOLOGY_USAGE, name), DEBOUNCE_SECONDS if count > 1 else 0.0)
            if not count:
                self._work.add(Key(TOPOLOGY, name))  # its deletion may wait for this
        self._queue_failures(TOPOLOGY_USAGE, self.topology_failures, change)
        self._queue_failures(POLICY_ROLLOUT, self.policy_failures, change)

    def _queue_failures(
        self, kind: str, index: ReportIndex[WatchedClaim, DeviceFailure], change: Change[WatchedClaim]
    ) -> None:
        """Have summaries written whose claims fail, or no longer do: soon the first and the last failure of an object.

        Many claims fail, and recover, at the same time. The count of the summaries in between may be late.
        """
        for name in index.update(change):
            few = index.count(name) <= 1
            self._work.add(Key(kind, name), DEBOUNCE_SECONDS if few else FAILURES_SECONDS)

    def _on_node_change(self, change: Change[NodeNetworkReport]) -> None:
        wait = self._reports_seconds
        for policy in self.policy_reports.update(change):
            is_urgent = self._is_bad_news(policy, change) | self._is_last_report(policy, change)
            self._work.add(Key(POLICY_ROLLOUT, policy), 0.0 if is_urgent else wait)
        for device in self.custom_device_reports.update(change):
            self._work.add(Key(CUSTOM_DEVICE_ROLLOUT, device), wait)
        if _features(change.old) != _features(change.new):
            self._work.add(Key(FEATURES, ""), FEATURES_SECONDS)

    def _is_bad_news(self, policy: str, change: Change[NodeNetworkReport]) -> bool:
        """Whether a node is the first that reports a problem of a policy: the status then does not wait for others."""
        failing = self._failing[policy]
        report = policies_of(change.new).get(policy) if change.new is not None else None
        if report is not None and report.problems:
            failing.add(change.key)
            return len(failing) == 1
        failing.discard(change.key)
        if not failing:
            del self._failing[policy]
        return False

    def _note_generation(self, name: str, policy: DeviceExposurePolicy | None) -> None:
        """A policy was changed or deleted: the nodes that report an older generation of it are awaited."""
        self._outdated.pop(name, None)
        reports = self.policy_reports.of(name) if policy is not None else ()
        outdated = {node for node, at in reports if policy and at.report.generation < policy.metadata.generation}
        if outdated:
            self._outdated[name] = outdated

    def _is_last_report(self, policy: str, change: Change[NodeNetworkReport]) -> bool:
        """Whether a report completes the rollout of a policy's generation: then it is written at once."""
        outdated, known = self._outdated.get(policy, set()), self.policies.objects.get(policy)
        report = policies_of(change.new).get(policy) if change.new is not None else None
        if known is None or change.key not in outdated:
            return False
        if report is None or report.report.generation >= known.metadata.generation:
            outdated.discard(change.key)
        if not outdated:
            del self._outdated[policy]
        return not outdated


def _features(node: NodeNetworkReport | None) -> tuple[str, ...] | None:
    return node.status.features if node is not None and node.status is not None else None


def _is_status_alone(change: Change[Any]) -> bool:
    """Whether only a status was written, as a rule by this controller: no reason to inspect once."""
    old, new = change.old, change.new
    if old is None or new is None:
        return False
    metadata = (old.metadata.deletion_timestamp, old.metadata.finalizers, old.metadata.uid)
    return old.spec == new.spec and metadata == (
        new.metadata.deletion_timestamp,
        new.metadata.finalizers,
        new.metadata.uid,
    )
