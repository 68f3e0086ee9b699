"""Looks at one object after the other, compares the desired with the current state, and writes the differences.

Run by `netdra.controller.daemon` while this process leads. The pure modules beside it work out the desired state, and a
worker process checks an object's expressions. A second look at the same state writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

from netdra.controller import metrics, status
from netdra.controller.checks import Checks
from netdra.controller.classes import ClassWrites, changes
from netdra.controller.state import CUSTOM_DEVICE, FEATURES, POLICY, SCHEMA, TOPOLOGY, Key, State, published
from netdra.controller.status import TopologyState
from netdra.controller.writing import (
    StatusWithConditions,
    WithStatus,
    delete_shipped,
    drift,
    finalize_topology,
    reference,
    write,
    write_status,
)
from netdra.kube.client import Client
from netdra.kube.errors import ConflictError, NotFoundError
from netdra.kube.events import Recorder
from netdra.kube.queue import AGAIN, WorkQueue
from netdra.kube.resources import CUSTOM_DEVICES, POLICIES, SCHEMAS, TOPOLOGIES, Resource
from netdra.model.device import Features
from netdra.model.errors import InvalidInputError
from netdra.model.topology import NetworkTopology
from netdra.ops.metrics import measured
from netdra.rules import shipped

log = logging.getLogger(__name__)


def now() -> datetime:
    """The time, with its zone."""
    return datetime.now(UTC)


class Controller:
    """The work of the leader; made anew for each term."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        in_hand: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Begin nothing yet.

        Args:
            in_hand: entered around each look, which the end of the process waits for.
        """
        self._client = client
        self._recorder = recorder
        self._checks = Checks()
        self._in_hand = in_hand
        self.work = WorkQueue[Key](
            "controller", self._reconcile, fields=lambda key: {"kind": key.kind, "name": key.name}
        )
        self.state = State(client, self.work)
        self._features = Features()
        self._reconcilers: Mapping[str, Callable[[str], Awaitable[None]]] = {
            TOPOLOGY: self._topology,
            POLICY: self._policy,
            SCHEMA: self._schema,
            CUSTOM_DEVICE: self._custom_device,
            FEATURES: self._learn_features,
        }

    async def run(self) -> None:
        """Work until cancelled."""
        async with self._checks:
            await self.state.run(lambda: asyncio.ensure_future(self._work()))

    async def _work(self) -> None:
        # First of all, or classes would be written in one form now and in the other a moment later.
        await self._learn_features("")
        await self.work.run()

    async def _reconcile(self, key: Key) -> float | None:
        """Look at one object, and write the differences.

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
            self._forget()
            return  # its classes go with it
        findings = await self._checks.topology(topology, shipped.own_of(self.state.schemas.objects.values()))
        deleted = bool(topology.metadata.deletion_timestamp)
        planned = ClassWrites() if findings and not deleted else self._changes(topology)
        problem = await write(self._client, planned)
        self._report_drift(topology, planned)
        users = self.state.users(name)
        await finalize_topology(self._client, topology, wanted=bool(users))
        seen = TopologyState(findings=findings, changes=planned, problem=problem, users=users)
        if (users or not deleted) and not status.is_interim(topology, seen):
            await self._write_status(TOPOLOGIES, topology, status.of_topology(topology, seen, now()))

    def _changes(self, topology: NetworkTopology) -> ClassWrites:
        try:
            return changes(topology, self.state.classes.objects, self._features)
        except InvalidInputError as problem:
            log.warning("%s", problem)
            return ClassWrites()

    def _report_drift(self, topology: NetworkTopology, planned: ClassWrites) -> None:
        """Report classes that were as they should be, and then were changed by another client."""
        if not planned.replace or not status.is_ready(topology):
            return
        other = changes(
            topology, self.state.classes.objects, Features(list_attributes=not self._features.list_attributes)
        )
        by_features = {entry.metadata.name for entry in planned.replace} - {
            device_class.metadata.name for device_class in other.replace
        }
        if changed := [entry.metadata.name for entry in planned.replace if entry.metadata.name not in by_features]:
            self._recorder.emit(drift(reference(TOPOLOGIES, topology), changed))

    async def _policy(self, name: str) -> None:
        policy = self.state.policies.objects.get(name)
        if policy is None:
            self._forget()
            return
        if not self.state.nodes.synced and policy.status is not None:
            return  # the nodes' reports are not read yet: the present status is likelier than one without reports
        wrong = await self._checks.policy(policy)
        reports = self.state.policy_reports.of(name)
        desired = status.of_policy(policy, self.state.policies.objects, wrong, reports, now())
        await self._write_status(POLICIES, policy, desired)

    async def _schema(self, name: str) -> None:
        schema = self.state.schemas.objects.get(name)
        if schema is None or schema.metadata.deletion_timestamp:
            return
        if schema.is_shipped:
            await delete_shipped(self._client, schema)
        else:
            await self._write_status(SCHEMAS, schema, status.of_schema(schema, self.state.schemas.objects, now()))

    async def _custom_device(self, name: str) -> None:
        device = self.state.custom_devices.objects.get(name)
        if device is not None and (self.state.nodes.synced or device.status is None):
            reports = self.state.custom_device_reports.of(name)
            await self._write_status(CUSTOM_DEVICES, device, status.of_custom_device(device, reports, now()))

    async def _write_status(self, resource: Resource[Any], about: WithStatus, desired: StatusWithConditions) -> None:
        await write_status(self._client, self._recorder, resource, about, desired)

    def _forget(self) -> None:
        self._checks.forget(self.state.policies.objects, self.state.topologies.objects)

    async def _learn_features(self, _: str) -> None:
        """Learn in which form nodes publish supportedCNIs, so that classes ask for it in that form (decision D6)."""
        features = published(self.state.nodes.objects.values())
        if features is not None and features != self._features:
            self._features = features
            for name in self.state.topologies.objects:
                self.work.add(Key(TOPOLOGY, name))
