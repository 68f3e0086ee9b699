"""The half of the node's daemon that keeps pods and their claims, put together.

Started by `netdra.node.daemon`, which hands `hooks` to the runtime's connection, `claims` to the kubelet's services and
`network`, which knows the held devices, to the publishing half.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from netdra.chain.site import Settings
from netdra.kube.client import Client
from netdra.kube.events import Occurrence
from netdra.kube.store import Change
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.prepare import Claims
from netdra.node.claims.store import ClaimStore
from netdra.node.permits import EVERYTHING, NodePermits
from netdra.node.sandboxes.hooks import Attachments, Threads
from netdra.node.sandboxes.circuits import Circuits
from netdra.node.sandboxes.events import PodEvents
from netdra.node.sandboxes.network import Network
from netdra.node.sandboxes.orphans import Orphans
from netdra.node.sandboxes.recover import Reconciler
from netdra.node.sandboxes.table import Table
from netdra.node.sandboxes.tracker import Tracker, WatchedPod
from netdra.node.sandboxes.writer import StatusWriter
from netdra.node.priority import PriorityGate, Turns
from netdra.node.view import NodeView

_SWITCH_SECONDS = 0.0005


@dataclass(frozen=True)
class Pods:
    """The parts that run for a node's pods.

    Attributes:
        hooks: answers the runtime's hooks.
        claims: answers the kubelet's calls.
        network: acts on sandboxes; it knows the held devices.
    """

    hooks: Attachments
    claims: Claims
    network: Network
    tracker: Tracker
    writer: StatusWriter
    reconciler: Reconciler
    orphans: Orphans

    async def run(self) -> None:
        """Work until cancelled, then end the work in hand. Hooks may be called from the time `recover` has returned."""
        # A hook's thread gives the interpreter away at each call of the kernel. While the event loop works on the very
        # events that the hook causes, it would have it back only after 5 ms, each time.
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            with self.tracker.pods.following(self._pod_changed):
                await self._work()
        finally:
            await asyncio.shield(self.hooks.aclose())

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.tracker.run())
            tasks.create_task(self.writer.run())
            tasks.create_task(self.reconciler.run())
            tasks.create_task(self.orphans.run())
            tasks.create_task(self.network.table.namespaces.follow(self.orphans.look_at_sandboxes))

    def _pod_changed(self, change: Change[WatchedPod]) -> None:
        if change.old is not None and (change.new is None or change.new.metadata.uid != change.old.metadata.uid):
            self.writer.pod_gone(change.old.metadata.uid)

    async def recover(self) -> None:
        """Take up a former process's state, from the disk alone: to be awaited before anything else is started.

        Raises:
            NetdraError: the state folder or a CDI specification cannot be written.
        """
        await self.reconciler.recover()


@dataclass(frozen=True)
class Dependencies:
    """What the half that keeps pods gets from the daemon.

    Attributes:
        node: the node's name.
        settings: how chains are run here.
        files: where claims' files are.
        prepared: the claims that are prepared here.
        view: the node's devices and topologies.
        emit: takes an event.
        changed: called when the held devices, or their troubles, have changed.
        gate: the priority gate; statuses wait for it.
        turns: the turns of the kubelet's claims.
        threads: do blocking work, in the host's network namespace.
        permits: what authors of topologies may use of the node.
    """

    client: Client
    node: str
    settings: Settings
    files: ClaimFiles
    prepared: ClaimStore
    view: NodeView
    emit: Callable[[Occurrence], None]
    changed: Callable[[], None] = lambda: None
    gate: PriorityGate = field(default_factory=PriorityGate)
    turns: Turns = field(default_factory=lambda: Turns(PriorityGate()))
    threads: Threads = field(default_factory=Threads.made)
    permits: NodePermits = EVERYTHING


def assemble(given: Dependencies) -> Pods:
    """All parts, connected; nothing runs yet."""
    network = Network(given.settings, Table(given.files, given.prepared))
    tracker = Tracker.of_node(given.client, given.node, lambda: bool(given.prepared.uids()))
    events = PodEvents(given.emit, given.node)

    def listed() -> None:
        reconciler.look()
        orphans.look()

    attachments = Attachments(
        tracker=tracker,
        view=given.view,
        network=network,
        writer=StatusWriter(given.client, gate=given.gate),
        events=events,
        circuits=Circuits(events.plugin_hangs),
        threads=given.threads,
        changed=given.changed,
        permits=given.permits,
        listed=listed,
        ended_unseen=lambda: orphans.look_at_sandboxes(),
    )
    reconciler = Reconciler(attachments)
    claims = Claims(
        given.client,
        given.node,
        given.view,
        network,
        given.prepared,
        given.files,
        tracker,
        given.permits,
        lambda uid: orphans.settle(uid),
        given.turns,
    )
    orphans = Orphans(attachments, claims)
    return Pods(
        hooks=attachments,
        claims=claims,
        network=network,
        tracker=tracker,
        writer=attachments.writer,
        reconciler=reconciler,
        orphans=orphans,
    )
