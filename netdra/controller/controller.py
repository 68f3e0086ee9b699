"""Looks at one object after the other, compares what should be with what is there, and writes what differs.

Run by `netdra.controller.daemon` while this process leads. What should be is said by the pure modules beside it; a
second look at the same state writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from netdra.controller import metrics, policy_status, schema_status, topology_status
from netdra.controller.classes import Changes, changes
from netdra.controller.state import FEATURES, POLICY, SCHEMA, TOPOLOGY, State
from netdra.controller.topology_status import Seen
from netdra.controller.work import Key, Work
from netdra.kube.client import Client, Selection
from netdra.kube.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    NotFoundError,
    RefusedError,
)
from netdra.kube.resources import DEVICE_CLASSES, POLICIES, RESOURCE_SLICES, SCHEMAS, TOPOLOGIES, Resource
from netdra.model import documents, names
from netdra.model.device import Features
from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.model.meta import ObjectMeta
from netdra.model.resource import ResourceSlice
from netdra.model.topology import NetworkTopology
from netdra.ops.metrics import counted, measured
from netdra.topology import contract
from netdra.topology.validation import check_topology

log = logging.getLogger(__name__)

FINALIZER = f"{names.GROUP}/in-use"
MANAGER = "netdra-controller"
REFUSED_SECONDS = 30.0
_SAMPLE = 20
_slice = msgspec.json.Decoder(ResourceSlice)


class _WithStatus(Protocol):
    """Whatever has metadata and a status."""

    @property
    def metadata(self) -> ObjectMeta: ...

    @property
    def status(self) -> Any: ...


def now() -> datetime:
    """The time, with its zone."""
    return datetime.now(UTC)


class Controller:
    """The work of whoever leads; made anew for each term."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Callable[[], datetime] = now,
        in_hand: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Begin nothing yet.

        Args:
            client: the way to the API server.
            clock: the time, for conditions.
            in_hand: entered around each look, which the end of the process waits for.
        """
        self._client = client
        self._clock = clock
        self._in_hand = in_hand
        self.work = Work()
        self.state = State(client, self.work)
        self._features = Features()
        self._looks: Mapping[str, Callable[[str], Awaitable[None]]] = {
            TOPOLOGY: self._topology,
            POLICY: self._policy,
            SCHEMA: self._schema,
            FEATURES: self._learn_features,
        }

    async def run(self) -> None:
        """Work until cancelled."""

        async def work() -> None:
            await self._learn_features("")
            await self.work.run(self._look)

        await self.state.run(lambda: asyncio.ensure_future(work()))

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
            log.warning("%s %s: %s", *key, problem)
            return problem.retry_after if isinstance(problem, TemporaryError) else REFUSED_SECONDS
        return None

    async def _topology(self, name: str) -> None:
        topology = self.state.topologies.objects.get(name)
        if topology is None:
            return  # its classes go with it
        sound = [schema for schema in self.state.schemas.objects.values() if not contract.examine(schema)[1]]
        findings = check_topology(topology, sound)
        deleted = bool(topology.metadata.deletion_timestamp)
        planned = Changes() if findings and not deleted else self._changes(topology)
        problem = await self._write(planned)
        users = self.state.users(name)
        await self._hold(topology, held=bool(users))
        seen = Seen(findings=findings, changes=planned, problem=problem, users=users)
        if users or not deleted:
            await self._say(TOPOLOGIES, topology, topology_status.status(topology, seen, self._clock()))

    def _changes(self, topology: NetworkTopology) -> Changes:
        try:
            return changes(topology, self.state.classes.objects, self._features)
        except InvalidInputError as problem:
            log.warning("%s", problem)
            return Changes()

    async def _write(self, planned: Changes) -> str:
        """Write what is planned; what the API server refuses of it, or "".

        Raises:
            ApiError: it cannot be written just now.
        """
        refused: list[str] = []
        for each in planned.delete:
            with counted(metrics.CLASS_WRITES, "delete"):
                await self._client.delete(DEVICE_CLASSES, each)
            log.info('deleted DeviceClass "%s"', each.metadata.name)
        writes = (("create", self._client.create, planned.create), ("update", self._client.replace, planned.replace))
        for verb, write, group in writes:
            for each in group:
                try:
                    with counted(metrics.CLASS_WRITES, verb):
                        await write(DEVICE_CLASSES, each)
                    log.info('wrote DeviceClass "%s"', each.metadata.name)
                except AlreadyExistsError:
                    continue  # the store will learn of it, and it is looked at again
                except RefusedError as problem:
                    refused.append(problem.what)
        return "\n".join(refused)

    async def _hold(self, topology: NetworkTopology, *, held: bool) -> None:
        """Keep a topology from going while it is used.

        Raises:
            ApiError: it was changed meanwhile, or cannot be written just now.
        """
        present = topology.metadata.finalizers
        if held == (FINALIZER in present) or (held and topology.metadata.deletion_timestamp):
            return
        kept = [name for name in present if name != FINALIZER]
        wanted = [*kept, FINALIZER] if held else kept
        version = topology.metadata.resource_version
        await self._client.merge(
            TOPOLOGIES, topology.name, {"metadata": {"finalizers": wanted, "resourceVersion": version}}
        )

    async def _policy(self, name: str) -> None:
        policy = self.state.policies.objects.get(name)
        if policy is not None:
            said = policy_status.status(policy, self.state.policies.objects, self.state.reports(name), self._clock())
            await self._say(POLICIES, policy, said)

    async def _schema(self, name: str) -> None:
        schema = self.state.schemas.objects.get(name)
        if schema is not None:
            await self._say(SCHEMAS, schema, schema_status.status(schema, self.state.schemas.objects, self._clock()))

    async def _say(self, resource: Resource[Any], about: _WithStatus, status: Any) -> None:
        """Write a status, unless it stands there already.

        Raises:
            ApiError: it cannot be written just now.
        """
        if status == about.status:
            return
        wanted = {
            "apiVersion": resource.group_version,
            "kind": resource.type.__name__,
            "metadata": {"name": about.metadata.name, "uid": about.metadata.uid},
            "status": documents.plain(status),
        }
        await self._client.apply(resource, wanted, manager=MANAGER, subresource="status")
        metrics.STATUS_WRITES.labels(resource.plural).inc()

    async def _learn_features(self, _: str) -> None:
        """See in which form nodes publish supportedCNIs, and ask for it in that form (decision D6)."""
        ours = Selection(field_selector=f"spec.driver={names.DRIVER}")
        page = await self._client.page(RESOURCE_SLICES, ours, limit=_SAMPLE)
        attribute = names.qualified(names.SUPPORTED_CNIS)
        listed = any(
            device.attributes[attribute].strings is not None
            for raw in page.items or ()
            for device in _slice.decode(raw).spec.devices
            if attribute in device.attributes
        )
        found = Features(list_attributes=listed)
        if found != self._features:
            self._features = found
            for name in self.state.topologies.objects:
                self.work.note(Key(TOPOLOGY, name))
