"""The half of the node's daemon that keeps pods and their claims, put together.

Started by `netdra.node.daemon`, which hands `hooks` to the runtime's connection, `claims` to the kubelet's services and
`held` to the publishing half.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from netdra.chain.site import Settings
from netdra.kube.client import Client
from netdra.kube.events import Occurrence
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.prepare import Claims
from netdra.node.claims.store import ClaimStore
from netdra.node.pods.attachments import WORKERS, Attachments
from netdra.node.pods.guard import Guard
from netdra.node.pods.held import Held
from netdra.node.pods.network import Network
from netdra.node.pods.orphans import Orphans
from netdra.node.pods.reconcile import Reconciler
from netdra.node.pods.reports import Reports
from netdra.node.pods.tracker import Tracker
from netdra.node.pods.writer import StatusWriter
from netdra.node.view import NodeView


@dataclass(frozen=True)
class Pods:
    """What runs for a node's pods.

    Attributes:
        hooks: what the runtime's connection calls.
        claims: what the kubelet's calls are handed to.
        held: which devices are held.
    """

    hooks: Attachments
    claims: Claims
    held: Held
    tracker: Tracker
    writer: StatusWriter
    reconciler: Reconciler
    orphans: Orphans

    async def run(self) -> None:
        """Work until cancelled, then end what has begun. Hooks may be called from the time `recall` has returned."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.tracker.run())
                tasks.create_task(self.writer.run())
                tasks.create_task(self.reconciler.run())
                tasks.create_task(self.orphans.run())
        finally:
            await asyncio.shield(self.hooks.aclose())

    async def recall(self) -> None:
        """Take up what a former process left, from the disk alone: to be awaited before anything else is started.

        Raises:
            NetdraError: the state folder or a CDI specification cannot be written.
        """
        await self.reconciler.recall()


@dataclass(frozen=True)
class Surroundings:
    """What the half that keeps pods is given by the daemon.

    Attributes:
        node: the node's name.
        settings: how chains are run here.
        files: where claims' files are.
        prepared: the claims that are prepared here.
        view: the node's devices and topologies.
        emit: takes an event.
        threads: where blocking work is done, in the host's network namespace.
    """

    client: Client
    node: str
    settings: Settings
    files: ClaimFiles
    prepared: ClaimStore
    view: NodeView
    emit: Callable[[Occurrence], None]
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(WORKERS, "pods"))


def assemble(given: Surroundings) -> Pods:
    """All parts, connected; nothing runs yet."""
    tracker = Tracker.of_node(given.client, given.node, lambda: bool(given.prepared.uids()))
    attachments = Attachments(
        tracker=tracker,
        view=given.view,
        network=Network(given.settings, Guard(given.files, given.prepared)),
        writer=StatusWriter(given.client),
        reports=Reports(given.emit),
        threads=given.threads,
    )
    reconciler = Reconciler(attachments)
    held = Held(attachments)
    claims = Claims(given.client, given.node, given.view, held, given.prepared, given.files)
    orphans = Orphans(attachments, claims)

    def synchronized() -> None:
        reconciler.look()
        orphans.look()

    attachments.work = synchronized
    return Pods(
        hooks=attachments,
        claims=claims,
        held=held,
        tracker=tracker,
        writer=attachments.writer,
        reconciler=reconciler,
        orphans=orphans,
    )
