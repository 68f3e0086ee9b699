"""Keeps a node's NodeNetwork as it should be, and writes it as seldom as slices are written.

Run by `netdra.node.publishing.service`. Changes of offered devices, problems and policies are reported at once, as
slices are written at once, within a limit. Facts that come and go with pods (allocations, links' states, veths) wait
for the next report, but no longer than half a minute. A report that is there already is not written again, and
publishing never waits for reports: a server that does not know the kind, or refuses, is logged once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from netdra.kube.backoff import Backoff
from netdra.kube.client import Client, Selection
from netdra.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from netdra.kube.queue import WorkQueue
from netdra.kube.reflector import Reflector
from netdra.kube.resources import NODE_NETWORKS
from netdra.kube.store import Change, Store
from netdra.model.errors import NetdraError, PermanentError
from netdra.model.meta import ObjectMeta, OwnerReference
from netdra.model.node_network import NodeNetwork, NodeNetworkStatus
from netdra.node import metrics
from netdra.node.publishing.interfaces import Bucket

log = logging.getLogger(__name__)

BURST = 20
SECONDS_PER_REPORT = 2.0
"""How many reports may follow each other, and the seconds per report after that, also if others write the object."""
QUIET_SECONDS = 30.0
"""How long facts that come and go with pods wait after a report, so that they are reported together."""
LONGEST_WAIT = 60.0
"""The most seconds between two tries where the server does not take reports."""


class Reporter:
    """One node's NodeNetwork."""

    def __init__(self, client: Client, owner: OwnerReference, make: Callable[[], Awaitable[NodeNetworkStatus]]) -> None:
        """Begin nothing yet.

        Args:
            owner: the node that the object is named after and belongs to.
            make: makes the status to report.
        """
        self._client = client
        self._name = owner.name
        self._owner: OwnerReference | None = owner
        self._make = make
        self._store: Store[NodeNetwork] = Store()
        self._written: NodeNetwork | None = None
        self._queue = WorkQueue[str]("node-network", self._bring_up_to_date, most=LONGEST_WAIT, refused=LONGEST_WAIT)
        self._bucket = Bucket(BURST, 0.0, BURST, SECONDS_PER_REPORT)
        self._reported = float("-inf")
        self._problem = ""

    def note(self, *, urgent: bool) -> None:
        """There may be a new status; if it is not urgent, it waits for an urgent one, or for its time."""
        now = asyncio.get_running_loop().time()
        self._queue.add(self._name, 0.0 if urgent else self._reported + QUIET_SECONDS - now)

    def belong(self, owner: OwnerReference | None) -> None:
        """The Node was created again, or deleted (None): then nothing is reported."""
        self._owner = owner
        self.note(urgent=True)

    async def run(self) -> None:
        """Report until cancelled."""
        chosen = Selection(field_selector=f"metadata.name={self._name}")
        with self._store.following(self._on_change):
            async with asyncio.TaskGroup() as tasks:
                backoff = Backoff(most=LONGEST_WAIT)
                reflector = Reflector(self._client, NODE_NETWORKS, self._store, chosen, backoff=backoff, vital=False)
                tasks.create_task(reflector.run())
                tasks.create_task(self._work())

    def _on_change(self, change: Change[NodeNetwork]) -> None:
        """The object was changed or deleted: if that was not this process, it is written again."""
        if change.new is None or self._written is None or change.new.status != self._written.status:
            self.note(urgent=True)

    async def _work(self) -> None:
        await self._store.wait_synced()
        await self._queue.run()

    async def _bring_up_to_date(self, name: str) -> float | None:
        """Report, once there is a token for it."""
        loop = asyncio.get_running_loop()
        if wait := self._bucket.wait(loop.time()):
            self._queue.add(name, wait)
            return None
        try:
            await self._report(await self._make())
        except NetdraError as problem:
            self._tell(problem)
            return problem.retry_after if isinstance(problem, ApiError) else 0.0
        self._reported = loop.time()
        return None

    async def _report(self, status: NodeNetworkStatus) -> None:
        """Write a status, unless the object has it.

        Raises:
            ApiError: it cannot be written just now, or is refused.
        """
        present, owner = self._present, self._owner
        if owner is None or (present is not None and present.status == status):
            return
        self._bucket = self._bucket.less(asyncio.get_running_loop().time())
        if present is None:
            metadata = ObjectMeta(name=self._name, owner_references=(owner,))
            wanted = NodeNetwork(metadata=metadata, api_version="networking.dra.io/v1alpha1", kind="NodeNetwork")
            present = await self._client.create(NODE_NETWORKS, wanted)
        changed = msgspec.structs.replace(present, status=status)
        self._written = await self._client.replace(NODE_NETWORKS, changed, subresource="status")
        metrics.REPORTS.inc()
        if self._problem:
            log.info("%s: recovered from: %s", self._name, self._problem)
            self._problem = ""

    @property
    def _present(self) -> NodeNetwork | None:
        """The object as the server has it, as far as is known: the last write may not have come back yet."""
        stored, written = self._store.objects.get(self._name), self._written
        if written is not None and not self._store.reached(written.metadata.resource_version):
            return written
        return stored

    def _tell(self, problem: NetdraError) -> None:
        """Log once why the node cannot report; that the object was changed or deleted meanwhile is not a problem."""
        self._written = None
        if isinstance(problem, ConflictError | AlreadyExistsError):
            return
        metrics.REPORT_FAILURES.inc()
        if problem.what != self._problem and not (isinstance(problem, NotFoundError) and not self._problem):
            self._problem = problem.what
            lasting = isinstance(problem, PermanentError)
            log.warning("%s%s", problem, "; devices are published anyway" if lasting else "")
