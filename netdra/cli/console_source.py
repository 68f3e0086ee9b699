"""The cluster as the console reads it: a copy of all nodes' numbers, and everything else when a page is opened.

Called by `netdra.cli.console`. Of a NodeNetwork only the counted part is kept, so thousands of nodes take some
megabytes. What-if reads the nodes' reports page by page and keeps the first changes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from netdra.cli import why_objects
from netdra.cli.cluster_plan import ClusterNow, DeviceChange, compare
from netdra.console.access import ConsoleAccess
from netdra.console.fleet import CountedNode, NodeCounts, count
from netdra.console.forecast_page import Forecast, ForecastDevice
from netdra.console.frame import MAX_ROWS
from netdra.console.server import Console
from netdra.exposure.check import check
from netdra.kube import resources
from netdra.kube.answers import decoder
from netdra.kube.client import Client, Selection
from netdra.kube.reflector import Reflector
from netdra.kube.resources import Resource
from netdra.kube.store import Store
from netdra.model.errors import UNREADABLE
from netdra.model.node_network import NodeNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.ops.health import met
from netdra.ops.process import Process
from netdra.story.objects import ClusterState

COUNTED_NODES = Resource(resources.NODE_NETWORKS.group_version, resources.NODE_NETWORKS.plural, CountedNode)
WAIT_SECONDS = 30.0
FIRST_SECONDS = 5.0
PAGE = 200
"""Reports of nodes that what-if has in memory at one time."""
MAX_NOTES = 20


class LiveCluster:
    """A `netdra.console.server.ClusterSource` that reads an API server."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._store: Store[CountedNode] = Store()
        self.reflector = Reflector(client, COUNTED_NODES, self._store)
        self._counted: tuple[str, Sequence[NodeCounts]] = ("", ())

    def fleet(self) -> Sequence[NodeCounts]:
        """All nodes, in the order of their names."""
        if self._counted[0] != self.version or not self._store.synced:
            nodes = sorted(map(count, self._store.objects.values()))
            self._counted = self.version, nodes
        return self._counted[1]

    @property
    def problem(self) -> str:
        """Why the fleet may be old or incomplete, "" if it is current."""
        if self.reflector.problem:
            return f"The numbers may be old: {self.reflector.problem}"
        if not self._store.synced:
            return "The nodes are being read. Reload the page."
        unreadable = len(self._store.unreadable)
        return f"{unreadable} NodeNetworks cannot be read and are not shown." if unreadable else ""

    @property
    def version(self) -> str:
        """Another text when the fleet has changed."""
        return f"{self._store.version} {self.reflector.problem}"

    async def node(self, name: str) -> ClusterState:
        """The objects of a node's page."""
        return await why_objects.read_node(self._client, name)

    async def objects(self, kind: str, place: str, name: str) -> ClusterState:
        """The objects of a story."""
        return await why_objects.read(self._client, why_objects.scope_of(kind, place, name))

    async def forecast(self, policies: Sequence[DeviceExposurePolicy], node: str) -> Forecast:
        """The result of policies on a node, or with "" on all."""
        return await forecast(self._client, policies, node)

    async def wait_read(self) -> None:
        """Wait until all nodes are read, or some seconds: the first page is complete then."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                await self._store.wait_synced()

    async def wait_fleet(self, since: str) -> None:
        """Wait until the fleet's version is another one, or some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                await self._store.until(lambda: self.version != since)

    async def wait_objects(self, kind: str, place: str, name: str) -> None:
        """Wait until an object of a story or of a node has changed, or some seconds."""
        scope = why_objects.scope_of(kind, place, name)
        await why_objects.wait_change(self._client, await why_objects.versions(self._client, scope))


@dataclass
class _Changes:
    """The changes so far, of which the first are kept."""

    first: list[DeviceChange] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    nodes: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def add(self, lines: Sequence[DeviceChange], notes: Sequence[str]) -> None:
        """Add those of some nodes."""
        for line in (line for line in lines if line.differs):
            kind = "moved" if line.now and line.after else "hidden" if line.now else "offered"
            self.counts[kind] += 1
            self.counts["in use"] += kind == "hidden" and line.allocated
            self.nodes.add(line.node)
            if len(self.first) < MAX_ROWS:
                self.first.append(line)
        self.notes += notes

    def result(self) -> Forecast:
        """All of them."""
        counts, left = self.counts, len(self.notes) - MAX_NOTES
        devices = [ForecastDevice(one.node, one.device, one.now, one.after, one.allocated) for one in self.first]
        notes = [*self.notes[:MAX_NOTES], *([f"{left} more remarks are not shown."] if left > 0 else ())]
        kinds = (counts["hidden"], counts["offered"], counts["moved"], counts["in use"])
        return Forecast(*kinds, len(self.nodes), devices, notes)


async def forecast(client: Client, written: Sequence[DeviceExposurePolicy], node: str) -> Forecast:
    """The devices that change when policies are written.

    Raises:
        ApiError: the cluster cannot be read.
    """
    only = Selection(field_selector=f"metadata.name={node}" if node else "")
    policies = await client.list(resources.POLICIES)
    nodes = await client.list(resources.NODES, only)
    labels = {entry.metadata.name: entry.metadata.labels for entry in nodes}
    notes = [f'policy "{policy.name}": {finding.text_at_path}' for policy in written for finding in check(policy)]
    changes = _Changes(notes=notes)
    reported: set[str] = set()
    async for reports in _reports(client, only, changes.notes):
        now = ClusterNow(labels=_labels(labels, reports), reports=reports, policies=policies, slices=())
        changes.add(*await asyncio.to_thread(compare, now, written))
        reported.update(report.name for report in reports)
    silent = len(labels.keys() - reported)
    if silent:
        changes.notes.append(f"{silent} nodes have no report, so the result is unknown there.")
    return changes.result()


def _labels(labels: Mapping[str, Mapping[str, str]], reports: Sequence[NodeNetwork]) -> dict[str, Mapping[str, str]]:
    return {report.name: labels.get(report.name, {}) for report in reports}


async def _reports(client: Client, selection: Selection, notes: list[str]) -> AsyncIterator[list[NodeNetwork]]:
    """The nodes' reports, some at a time."""
    continue_, read = "", decoder(NodeNetwork)
    while True:
        page = await client.page(resources.NODE_NETWORKS, selection, limit=PAGE, continue_=continue_)
        found: list[NodeNetwork] = []
        for item in page.items or ():
            try:
                found.append(read.decode(item))
            except UNREADABLE as problem:
                notes.append(f"A NodeNetwork cannot be read: {problem}")
        yield found
        continue_ = page.metadata.continue_
        if not continue_:
            return


async def run(client: Client, process: Process, address: str, port: int, announce: Callable[[int, str], None]) -> None:
    """Serve until cancelled.

    Args:
        client: the API server's.
        process: whose health it is.
        address, port: where to listen; port 0 is a free one.
        announce: called with the port and each token, first when the nodes are read.

    Raises:
        OSError: the address cannot be listened on.
    """
    source = LiveCluster(client)
    process.health.ready("nodes", met(lambda: source.reflector.synced, "the nodes are not read yet"))
    tokens: asyncio.Queue[str] = asyncio.Queue()
    console = Console(source, ConsoleAccess(tokens.put_nowait))
    async with console.serving(address, port) as server, asyncio.TaskGroup() as tasks:
        tasks.create_task(source.reflector.run())
        await source.wait_read()
        while True:
            announce(server.port, await tokens.get())
