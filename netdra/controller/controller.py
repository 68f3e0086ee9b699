"""Looks at one object after the other, compares what should be with what is there, and writes what differs.

Run by `netdra.controller.daemon` while this process leads. What should be is said by the pure modules beside it, what
is wrong with an object by a worker process; a second look at the same state writes nothing.
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
from netdra.controller.classes import Changes, changes
from netdra.controller.schemas import change
from netdra.controller.state import CUSTOM_DEVICE, FEATURES, POLICY, SCHEMA, TOPOLOGY, State, published
from netdra.controller.status import Seen
from netdra.controller.work import Key, Work
from netdra.controller.writing import Status, WithStatus, drift, hold, reference, say, ship, write
from netdra.kube.backoff import Backoff
from netdra.kube.client import Client
from netdra.kube.errors import ApiError, ConflictError, NotFoundError
from netdra.kube.events import Recorder
from netdra.kube.resources import CUSTOM_DEVICES, POLICIES, SCHEMAS, TOPOLOGIES, Resource
from netdra.model.device import Features
from netdra.model.errors import InvalidInputError, NetdraError, TemporaryError
from netdra.model.topology import NetworkTopology
from netdra.ops.logs import fields
from netdra.ops.metrics import measured
from netdra.topology import shipped

log = logging.getLogger(__name__)

REFUSED_SECONDS = 30.0


def now() -> datetime:
    """The time, with its zone."""
    return datetime.now(UTC)


class Controller:
    """The work of whoever leads; made anew for each term."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        in_hand: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Begin nothing yet.

        Args:
            client: the way to the API server.
            recorder: who writes events.
            in_hand: entered around each look, which the end of the process waits for.
        """
        self._client = client
        self._recorder = recorder
        self._checks = Checks()
        self._in_hand = in_hand
        self.work = Work()
        self.state = State(client, self.work)
        self._features = Features()
        self._looks: Mapping[str, Callable[[str], Awaitable[None]]] = {
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
        # Before anything else: classes would be written in one form now and in the other a moment later.
        backoff = Backoff()
        again = await self._look(Key(FEATURES, ""))
        while again is not None:
            await asyncio.sleep(backoff.next(again))
            again = await self._look(Key(FEATURES, ""))
        await self.work.run(self._look)

    async def _look(self, key: Key) -> float | None:
        """Look at one object; the seconds after which it must be looked at again, None if all is well."""
        metrics.PENDING.set(len(self.work))
        try:
            with self._in_hand(), measured(metrics.LOOK_SECONDS, key.kind):
                await self._looks[key.kind](key.name)
        except (ConflictError, NotFoundError) as problem:
            log.debug("%s %s changed meanwhile: %s", *key, problem)
            return 0.0
        except ApiError as problem:
            log.warning("%s", problem, extra=fields(kind=key.kind, name=key.name))
            return problem.retry_after if isinstance(problem, TemporaryError) else REFUSED_SECONDS
        except NetdraError as problem:
            log.warning("%s", problem, extra=fields(kind=key.kind, name=key.name))
            return 0.0 if isinstance(problem, TemporaryError) else REFUSED_SECONDS
        except Exception:
            # One object that nobody thought of must not keep all others from being looked at.
            log.exception("%s %s: a defect of netdra", *key)
            return REFUSED_SECONDS
        return None

    async def _topology(self, name: str) -> None:
        topology = self.state.topologies.objects.get(name)
        if topology is None:
            self._forget()
            return  # its classes go with it
        findings = await self._checks.topology(topology, shipped.own_of(self.state.schemas.objects.values()))
        deleted = bool(topology.metadata.deletion_timestamp)
        planned = Changes() if findings and not deleted else self._changes(topology)
        problem = await write(self._client, planned)
        self._tell_of_drift(topology, planned)
        users = self.state.users(name)
        await hold(self._client, topology, held=bool(users))
        seen = Seen(findings=findings, changes=planned, problem=problem, users=users)
        if (users or not deleted) and not status.is_interim(topology, seen):
            await self._say(TOPOLOGIES, topology, status.of_topology(topology, seen, now()))

    def _changes(self, topology: NetworkTopology) -> Changes:
        try:
            return changes(topology, self.state.classes.objects, self._features)
        except InvalidInputError as problem:
            log.warning("%s", problem)
            return Changes()

    def _tell_of_drift(self, topology: NetworkTopology, planned: Changes) -> None:
        """Tell of classes that were as they should be, and then were changed by somebody."""
        if not planned.replace or not status.is_ready(topology):
            return
        other = changes(
            topology, self.state.classes.objects, Features(list_attributes=not self._features.list_attributes)
        )
        asked_otherwise = {each.metadata.name for each in planned.replace} - {
            each.metadata.name for each in other.replace
        }
        if changed := [each.metadata.name for each in planned.replace if each.metadata.name not in asked_otherwise]:
            self._recorder.emit(drift(reference(TOPOLOGIES, topology), changed))

    async def _policy(self, name: str) -> None:
        policy = self.state.policies.objects.get(name)
        if policy is None:
            self._forget()
            return
        if not self.state.nodes.synced and policy.status is not None:
            return  # what nodes say is not known yet: what stands there is likelier than nothing
        wrong = await self._checks.policy(policy)
        reports = self.state.policy_reports.of(name)
        said = status.of_policy(policy, self.state.policies.objects, wrong, reports, now())
        await self._say(POLICIES, policy, said)

    async def _schema(self, name: str) -> None:
        schema = self.state.schemas.objects.get(name)
        if (planned := change(name, schema)) is not None:
            await ship(self._client, planned)
        elif schema is not None:
            await self._say(SCHEMAS, schema, status.of_schema(schema, self.state.schemas.objects, now()))

    async def _custom_device(self, name: str) -> None:
        device = self.state.custom_devices.objects.get(name)
        if device is not None and (self.state.nodes.synced or device.status is None):
            reports = self.state.custom_device_reports.of(name)
            await self._say(CUSTOM_DEVICES, device, status.of_custom_device(device, reports, now()))

    async def _say(self, resource: Resource[Any], about: WithStatus, wanted: Status) -> None:
        await say(self._client, self._recorder, resource, about, wanted)

    def _forget(self) -> None:
        self._checks.forget(self.state.policies.objects, self.state.topologies.objects)

    async def _learn_features(self, _: str) -> None:
        """See in which form nodes publish supportedCNIs, and ask for it in that form (decision D6)."""
        found = published(self.state.nodes.objects.values())
        if found is not None and found != self._features:
            self._features = found
            for name in self.state.topologies.objects:
                self.work.note(Key(TOPOLOGY, name))
