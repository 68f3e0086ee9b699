"""Inspects one object after the other, compares the desired with the current state, and writes the differences.

Run by `netdra.controller.daemon` while this process leads. The pure modules beside it work out the desired state, and a
worker process checks an object's expressions. A second inspect the same state writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from netdra.controller import failures, metrics, status
from netdra.controller.checks import Checks
from netdra.controller.classes import ClassWrites, changes
from netdra.controller.state import (
    ALL_TOPOLOGIES,
    CUSTOM_DEVICE_ROLLOUT,
    FEATURES,
    POLICY,
    POLICY_ROLLOUT,
    SCHEMA,
    TOPOLOGY,
    TOPOLOGY_USAGE,
    InHand,
    Key,
    State,
    now,
    published,
)
from netdra.controller.status import TopologyState
from netdra.controller.writing import (
    StatusWithConditions,
    WithMetadata,
    WithStatus,
    delete_shipped,
    drift,
    finalize_topology,
    reference,
    write,
    write_status,
    write_summary,
)
from netdra.kube.client import Client
from netdra.kube.errors import ConflictError, NotFoundError
from netdra.kube.events import Recorder
from netdra.kube.queue import AGAIN, WorkQueue
from netdra.kube.resources import (
    CUSTOM_DEVICE_ROLLOUTS,
    CUSTOM_DEVICES,
    POLICIES,
    POLICY_ROLLOUTS,
    SCHEMAS,
    TOPOLOGIES,
    TOPOLOGY_USAGES,
    Resource,
)
from netdra.kube.store import Store
from netdra.model.device import Features
from netdra.model.errors import InvalidInputError
from netdra.model.meta import Condition
from netdra.model.topology import NetworkTopology
from netdra.ops.metrics import measured
from netdra.review.world import World
from netdra.rules import runnable, shipped

log = logging.getLogger(__name__)


class DegradedObjects:
    """How many topologies and policies are degraded, as the metric shows it while this process leads."""

    def __init__(self) -> None:
        """Begin with none."""
        self._names: dict[str, set[str]] = {TOPOLOGY: set(), POLICY: set()}
        self.clear()

    def note(self, kind: str, name: str, conditions: Iterable[Condition]) -> None:
        """Note the conditions of an object's summary; none of an object that is gone."""
        is_degraded = any((entry.type, entry.status) == ("Degraded", "True") for entry in conditions)
        names = self._names[kind]
        names.add(name) if is_degraded else names.discard(name)
        metrics.DEGRADED.labels(kind).set(len(names))

    def clear(self) -> None:
        """Show none: another process leads."""
        for kind, names in self._names.items():
            names.clear()
            metrics.DEGRADED.labels(kind).set(0)


class Controller:
    """The work of the leader; made again for each term."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        in_hand: InHand,
        allow_plugins: frozenset[str] = frozenset(),
    ) -> None:
        """Begin nothing yet.

        Args:
            allow_plugins: the nodes' list of plugins that topologies may run (`netdra.rules.runnable`).
        """
        self._client = client
        self._recorder = recorder
        self._checks = Checks()
        self._written: dict[str, str] = {}
        """The topologies whose classes this process has seen as they should be, with their uids."""
        self._in_hand = in_hand
        self._allow_plugins = allow_plugins
        self.work = WorkQueue[Key](
            "controller", self._reconcile, fields=lambda key: {"kind": key.kind, "name": key.name}
        )
        self.state = State(client, self.work)
        self._features = Features()
        self._degraded = DegradedObjects()
        self._reconcilers: Mapping[str, Callable[[str], Awaitable[None]]] = {
            TOPOLOGY: self._topology,
            POLICY: self._policy,
            SCHEMA: self._schema,
            TOPOLOGY_USAGE: self._topology_usage,
            POLICY_ROLLOUT: self._policy_rollout,
            CUSTOM_DEVICE_ROLLOUT: self._custom_device_rollout,
            FEATURES: self._learn_features,
            ALL_TOPOLOGIES: self._all_topologies,
        }

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            await self.state.run(lambda: asyncio.ensure_future(self._work()))
        finally:
            self._degraded.clear()

    async def _work(self) -> None:
        # The worker's start takes as long as thousands of claims, whose addresses do not wait for it.
        async with self._checks:
            # First of all, or classes would be written in one form now and in the other a moment later.
            await self._learn_features("")
            await self.work.run()

    async def _reconcile(self, key: Key) -> float | None:
        """Inspect one object, and write the differences.

        Raises:
            NetdraError: it cannot be written, or cannot be checked just now.
        """
        try:
            with self._in_hand(), measured(metrics.RECONCILE_SECONDS, key.kind):
                await self._reconcilers[key.kind](key.name)
        except (ConflictError, NotFoundError) as problem:
            log.debug("%s %s changed meanwhile: %s", *key, problem)
            return AGAIN
        return None

    async def _topology(self, name: str) -> None:
        topology = self.state.topologies.objects.get(name)
        if topology is None:
            self._checks.forget("topology", name)
            self._written.pop(name, None)
            return  # its classes go with it
        own = {schema.metadata.name: schema for schema in shipped.own_of(self.state.schemas.objects.values())}
        findings = await self._checks.errors(topology, World(schemas=own, is_stored=True))
        deleted = bool(topology.metadata.deletion_timestamp)
        planned = ClassWrites() if findings and not deleted else self._changes(topology)
        if not deleted:
            # Before there is a class, so that no claim is allocated through a topology that could go at once.
            await finalize_topology(self._client, topology, wanted=True)
        written = await write(self._client, planned)
        if written.undone is None:
            self._report_drift(topology, planned)
        used = bool(self.state.users(name))
        if deleted and not used:
            await finalize_topology(self._client, topology, wanted=False)
        seen = TopologyState(
            findings=findings,
            changes=planned,
            problem=written.refused,
            undone=written.undone.what if written.undone is not None else "",
            not_allowed=self._not_allowed(topology),
        )
        if (used or not deleted) and not status.is_interim(topology, seen):
            await self._write_status(TOPOLOGIES, topology, status.of_topology(topology, seen, now()))
        if written.undone is not None:
            raise written.undone

    def _not_allowed(self, topology: NetworkTopology) -> tuple[str, ...]:
        """The plugins of a topology that nodes do not allow."""
        findings = runnable.check_topology(
            topology, self.state.schemas.objects.values(), self._allow_plugins, self.state.named_plugins.names
        )
        return tuple(finding.text for finding in findings)

    def _changes(self, topology: NetworkTopology) -> ClassWrites:
        try:
            return changes(topology, self.state.classes_of(topology), self._features)
        except InvalidInputError as problem:
            log.warning("%s", problem)
            return ClassWrites()

    def _report_drift(self, topology: NetworkTopology, planned: ClassWrites) -> None:
        """Report classes that were as they should be, and then were changed by another client.

        Another version of netdra may have written them before this process began.
        """
        if planned.done:
            self._written[topology.name] = topology.metadata.uid
        is_own = self._written.get(topology.name) == topology.metadata.uid
        if not planned.replace or not is_own or not status.is_ready(topology):
            return
        other = changes(
            topology, self.state.classes_of(topology), Features(list_attributes=not self._features.list_attributes)
        )
        by_features = {entry.metadata.name for entry in planned.replace} - {
            device_class.metadata.name for device_class in other.replace
        }
        if changed := [entry.metadata.name for entry in planned.replace if entry.metadata.name not in by_features]:
            self._recorder.emit(drift(reference(TOPOLOGIES, topology), changed))

    async def _policy(self, name: str) -> None:
        policy = self.state.policies.objects.get(name)
        if policy is None:
            self._checks.forget("policy", name)
            return
        wrong = await self._checks.errors(policy, World(is_stored=True))
        await self._write_status(POLICIES, policy, status.of_policy(policy, self.state.ranks.of(policy), wrong, now()))

    async def _topology_usage(self, name: str) -> None:
        topology, usages = self.state.topologies.objects.get(name), self.state.usages
        if topology is not None and usages.synced:
            present = usages.objects.get(name)
            before = present.status if present is not None else None
            failing = failures.summary(self.state.topology_failures.of(name))
            desired = status.of_usage(topology, self.state.users(name), failing, before, now())
            await self._write_summary(TOPOLOGY_USAGES, present, (TOPOLOGIES, topology), desired)
            self._degraded.note(TOPOLOGY, name, desired.conditions)
        elif topology is None:
            self._degraded.note(TOPOLOGY, name, ())

    async def _policy_rollout(self, name: str) -> None:
        policy, rollouts = self.state.policies.objects.get(name), self.state.policy_rollouts
        if policy is not None and self._can_summarize(rollouts, name):
            present = rollouts.objects.get(name)
            before = present.status if present is not None else None
            failing = failures.summary(self.state.policy_failures.of(name))
            reports = self.state.policy_reports.of(name)
            desired = status.of_policy_rollout(policy, reports, failing, before, now())
            await self._write_summary(POLICY_ROLLOUTS, present, (POLICIES, policy), desired)
            self._degraded.note(POLICY, name, desired.conditions)
        elif policy is None:
            self._degraded.note(POLICY, name, ())

    async def _custom_device_rollout(self, name: str) -> None:
        device, rollouts = self.state.custom_devices.objects.get(name), self.state.custom_device_rollouts
        if device is not None and self._can_summarize(rollouts, name):
            present = rollouts.objects.get(name)
            before = present.status if present is not None else None
            desired = status.of_custom_device(device, self.state.custom_device_reports.of(name), before, now())
            await self._write_summary(CUSTOM_DEVICE_ROLLOUTS, present, (CUSTOM_DEVICES, device), desired)

    def _can_summarize(self, rollouts: Store[Any], name: str) -> bool:
        """Whether a rollout can be written: until reports are read, the stored one is likelier than an empty one."""
        return rollouts.synced and (self.state.nodes.synced or name not in rollouts.objects)

    async def _schema(self, name: str) -> None:
        schema = self.state.schemas.objects.get(name)
        if schema is None or schema.metadata.deletion_timestamp:
            return
        if schema.is_shipped:
            await delete_shipped(self._client, schema)
        else:
            await self._write_status(
                SCHEMAS, schema, status.of_schema(schema, self.state.first_schemas.of(schema), now())
            )

    async def _write_status(self, resource: Resource[Any], about: WithStatus, desired: StatusWithConditions) -> None:
        await write_status(self._client, self._recorder, resource, about, desired)

    async def _write_summary(
        self,
        resource: Resource[Any],
        present: WithStatus | None,
        owner: tuple[Resource[Any], WithMetadata],
        desired: StatusWithConditions,
    ) -> None:
        await write_summary(self._client, self._recorder, resource, present, owner, desired)

    async def _learn_features(self, _: str) -> None:
        """Learn in which form nodes publish supportedCNIs, so that classes ask for it in that form (decision D6)."""
        features = published(self.state.nodes.objects.values())
        if features is not None and features != self._features:
            self._features = features
            await self._all_topologies("")

    async def _all_topologies(self, _: str) -> None:
        for name in self.state.topologies.objects:
            self.work.add(Key(TOPOLOGY, name))
