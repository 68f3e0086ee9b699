"""The cluster as the console reads it: a live copy of all nodes, and everything else when a page is opened.

Called by `netdra.cli.console`. A user whom a proxy has signed on sees as much as the API server allows. What-if reads
the nodes' reports page by page and keeps the first changes.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from netdra.cluster import reading
from netdra.cluster.devices import DeviceLine, DeviceLines
from netdra.cluster.listing import ListReader
from netdra.cluster.live import LiveFleet
from netdra.cluster.objects import ClusterState
from netdra.console.access import ConsoleAccess, SignedOnUser, SignOn
from netdra.console.examination import TAINTED, examine
from netdra.console.fleet import ClassShare, NodeCounts, count
from netdra.console.forecast_page import Forecast, ForecastDevice
from netdra.console.frame import MAX_ROWS
from netdra.console.server import Console
from netdra.console.traffic import DriverPlace, TrafficFollower
from netdra.console.traffic_page import PodTraffic
from netdra.console.troubles import ClusterExamination, TroubleKind, stuck_pods
from netdra.doctor.cluster_look import MAY_I, Review
from netdra.exposure.changes import ClusterNow, DeviceChange, compare
from netdra.exposure.check import check
from netdra.kube import resources
from netdra.kube.client import Client, Selection
from netdra.model.errors import InvalidInputError, NetdraError, PermanentError
from netdra.model.meta import time_text
from netdra.model.pod_address import PodAddress
from netdra.model.policy import DeviceExposurePolicy
from netdra.ops.health import met
from netdra.ops.process import Process
from netdra.story.usage import class_shares

WAIT_SECONDS = 30.0
FIRST_SECONDS = 5.0
EXAMINATION_SECONDS, EXAMINATION_SHARE = 10.0, 8
"""The least time between two examinations, and how many times as long as one takes the time between two is."""
MAX_NOTES = 20
NETDRAS_DRIVERS = DriverPlace()
MAX_NAMESPACES = 64
"""Namespaces with pods in trouble whose rights are checked."""
RESOURCES: Mapping[TroubleKind, tuple[str, str]] = {
    "netdra": ("", "nodes"),
    "nodes": ("networking.dra.io", "nodenetworks"),
    "devices": ("resource.k8s.io", "resourceslices"),
    "pods": ("", "pods"),
    "topologies": ("networking.dra.io", "networktopologies"),
    "policies": ("networking.dra.io", "deviceexposurepolicies"),
    "networks": ("networking.dra.io", "podnetworks"),
    "plugins": ("networking.dra.io", "cniplugins"),
}
"""By kind of trouble, the group and the plural of the objects that a user must be allowed to list."""


class LiveCluster:
    """A `netdra.console.pages.ClusterSource` that reads an API server.

    Attributes:
        client, namespaces: see `__init__`.
        live: the nodes.
        examined: the result of the last examination.
    """

    def __init__(self, client: Client, namespaces: Sequence[str] = (), drivers: DriverPlace = NETDRAS_DRIVERS) -> None:
        """Read nothing yet.

        Args:
            namespaces: the only namespaces whose pods, claims and events are read; all if none is named.
            drivers: where the counters of pods' interfaces are read.
        """
        self.client, self.namespaces = client, tuple(namespaces)
        self.live = LiveFleet(client)
        self._counted: tuple[str, Sequence[NodeCounts]] = ("", ())
        self.examined = ClusterExamination()
        self._traffic = TrafficFollower(client, drivers)
        self._demand, self._turn = asyncio.Event(), asyncio.Event()

    def fleet(self) -> Sequence[NodeCounts]:
        """All nodes, in the order of their names."""
        if self._counted[0] != self._fleet_version or not self.live.nodes.synced:
            now = self.live.now
            ruled = (trouble for trouble in self.examined.troubles if trouble.code == TAINTED)
            named = {(subject.place, subject.name) for trouble in ruled for subject in trouble.subjects}
            named |= {(device.node, device.device) for device in now.tainted}
            tainted = Counter(node for node, _ in named)
            nodes = sorted(map(count, now.nodes))
            nodes = [node._replace(tainted=tainted[node.name]) if tainted[node.name] else node for node in nodes]
            self._counted = self._fleet_version, nodes
        return self._counted[1]

    @property
    def problem(self) -> str:
        """Why the fleet may be old or incomplete, "" if it is current."""
        if self.live.reflector.problem:
            return f"The numbers may be old: {self.live.reflector.problem}"
        if not self.live.nodes.synced:
            return "The nodes are being read. Reload the page."
        unreadable = len(self.live.nodes.unreadable)
        return f"{unreadable} NodeNetworks cannot be read and are not shown." if unreadable else ""

    @property
    def _fleet_version(self) -> str:
        return f"{self.live.version} {self.examined.number}"

    @property
    def version(self) -> str:
        """Another text when the fleet or the result of the examination has changed."""
        return f"{self._fleet_version} {self.examined.problem}"

    @property
    def now(self) -> str:
        """The time by the API server's clock."""
        return time_text(self.client.now())

    async def examination(self) -> ClusterExamination:
        """The result of the last examination; another one begins soon."""
        self._demand.set()
        return self.examined

    async def run(self) -> None:
        """Follow the nodes, and examine the cluster again and again while pages ask for it, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.live.run())
            tasks.create_task(self._examine_often())

    async def _examine_often(self) -> None:
        await self.live.nodes.wait_synced()
        while True:
            began = time.monotonic()
            self._demand.clear()
            await self._examine()
            seconds = max(EXAMINATION_SECONDS, EXAMINATION_SHARE * (time.monotonic() - began))
            await asyncio.sleep(seconds)
            await self._demand.wait()

    async def _examine(self) -> None:
        before = self.examined
        try:
            found = await examine(self.client, self.live.now, self.namespaces)
        except NetdraError as problem:
            self.examined = before._replace(problem=str(problem))
        else:
            same = (found.troubles, found.pods, found.stuck) == (before.troubles, before.pods, before.stuck)
            is_first = not before.checked
            self.examined = found._replace(number=before.number + (not same or is_first))
        self._turn.set()
        self._turn = asyncio.Event()

    async def shares(self, chosen: str) -> Mapping[str, ClassShare]:
        """By node, the devices that match a DeviceClass.

        Raises:
            InvalidInputError: no such class exists.
        """
        cluster = await reading.read(self.client, reading.Scope())
        if chosen not in cluster.known.classes:
            raise InvalidInputError(f'DeviceClass "{chosen}" does not exist', code="ND4012")
        shares = await asyncio.to_thread(class_shares, cluster, chosen)
        return {node: ClassShare(*share) for node, share in shares.items()}

    async def of_user(self, user: SignedOnUser) -> LiveCluster:
        """The same cluster as a user may read it.

        Raises:
            ApiError: the API server does not answer.
        """
        return await UserCluster.of(self, user)

    @property
    def _lists(self) -> ListReader:
        """A reader; each notes what it cannot read."""
        return ListReader(self.client, self.namespaces)

    async def objects(self, kind: str, place: str, name: str) -> ClusterState:
        """The objects of the page of an object."""
        if self.namespaces and kind in ("pod", "claim") and place not in self.namespaces:
            raise PermanentError(f'namespace "{place}" is not shown by this console', code="ND4013")
        return await self._lists.read_object(kind, place, name)

    async def read_list(self, kind: str) -> ClusterState:
        """The objects of a list."""
        return await self._lists.read_list(kind)

    async def devices(self, node: str, matches: Callable[[DeviceLine], bool]) -> DeviceLines:
        """The devices of a node, or with "" of all, that match."""
        return await self._lists.devices(node, matches)

    async def addresses(self, text: str) -> Sequence[PodAddress]:
        """The addresses of PodNetworks that begin with a text."""
        return await self._lists.addresses(text)

    async def traffic(self, node: str) -> PodTraffic:
        """The rates of pods' interfaces on a node, or with "" on all."""
        found = await self._traffic.now(node)
        if not self.namespaces:
            return found
        return found._replace(rows=[row for row in found.rows if row.namespace in self.namespaces])

    async def forecast(self, policies: Sequence[DeviceExposurePolicy], node: str) -> Forecast:
        """The result of policies on a node, or with "" on all."""
        return await forecast(self.client, policies, node)

    async def wait_read(self) -> None:
        """Wait until all nodes are read and examined, or some seconds: the first page is complete then."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                await self.live.nodes.wait_synced()
                if not self.examined.checked:
                    await self._turn.wait()

    async def wait_fleet(self, since: str) -> None:
        """Wait until the version is another one, or some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                while self.version == since:
                    turns = [self.live.nodes.until(lambda: self.version != since), self._turn.wait()]
                    tasks = [asyncio.ensure_future(turn) for turn in turns]
                    try:
                        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        for task in tasks:
                            task.cancel()

    async def wait_objects(self, kind: str, place: str, name: str) -> None:
        """Wait until an object of a page has changed, or some seconds."""
        await self._lists.wait_object(kind, place, name)

    async def wait_list(self, kind: str) -> None:
        """Wait until an object of a list has changed, or some seconds."""
        await self._lists.wait_list(kind)


class UserCluster(LiveCluster):
    """A cluster as a user may read it: requests are the user's, and objects that are followed anyway are filtered."""

    def __init__(self, whole: LiveCluster, client: Client, rights: UserRights) -> None:
        super().__init__(client, whole.namespaces)
        self._whole, self._rights = whole, rights

    @classmethod
    async def of(cls, whole: LiveCluster, user: SignedOnUser) -> UserCluster:
        """The cluster of a user.

        Raises:
            ApiError: the API server does not answer.
        """
        client = whole.client.acting_as(user.name, user.groups)
        places = {
            subject.place
            for trouble in whole.examined.troubles
            if trouble.kind == "pods"
            for subject in trouble.subjects
        }
        return cls(whole, client, await user_rights(client, places - {""}))

    def fleet(self) -> Sequence[NodeCounts]:
        """All nodes, if the user may list NodeNetworks."""
        return self._whole.fleet() if "nodes" in self._rights.kinds else ()

    @property
    def problem(self) -> str:
        """Why the fleet may be old or incomplete, "" if it is current."""
        return self._whole.problem if "nodes" in self._rights.kinds else _NO_NODES

    @property
    def version(self) -> str:
        """Another text when the fleet or the result of the examination has changed."""
        return self._whole.version

    async def examination(self) -> ClusterExamination:
        """The result of the last examination, as far as the user may list its objects."""
        found = await self._whole.examination()
        if "pods" not in self._rights.kinds:
            found = found.of_namespaces(self._rights.namespaces)._replace(pods=0)
        kept = [trouble for trouble in found.troubles if trouble.kind in {"pods", *self._rights.kinds}]
        hidden = sorted({*RESOURCES} - self._rights.kinds)
        notes = [f"You are not allowed to list {', '.join(hidden)} in the whole cluster."] if hidden else []
        return found._replace(troubles=kept, stuck=len(stuck_pods(kept)), notes=[*found.notes, *notes])

    async def traffic(self, node: str) -> PodTraffic:
        """The rates of the interfaces of pods that the user may list; the drivers are read by the console's account."""
        found = await self._whole.traffic(node)
        if "pods" in self._rights.kinds:
            return found
        allowed = await find_allowed_namespaces(self.client, {row.namespace for row in found.rows})
        return found._replace(rows=[row for row in found.rows if row.namespace in allowed], unread=())

    async def wait_fleet(self, since: str) -> None:
        """Wait until the version is another one, or some seconds."""
        await self._whole.wait_fleet(since)


_NO_NODES = "You are not allowed to list NodeNetworks, so nodes are not shown."


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
    async for reports in reading.report_pages(client, only, changes.notes):
        present = {report.name: labels.get(report.name, {}) for report in reports}
        now = ClusterNow(labels=present, reports=reports, policies=policies, slices=())
        changes.add(*await asyncio.to_thread(compare, now, written))
        reported.update(report.name for report in reports)
    silent = len(labels.keys() - reported)
    if silent:
        changes.notes.append(f"{silent} nodes have no report, so the result is unknown there.")
    return changes.result()


async def run(
    client: Client,
    process: Process,
    where: tuple[str, int],
    announce: Callable[[int, str], None],
    namespaces: Sequence[str] = (),
    sign_on: SignOn | None = None,
    drivers: DriverPlace = NETDRAS_DRIVERS,
) -> None:
    """Serve until cancelled.

    Args:
        process: whose health it is.
        where: the address and the port to listen on; port 0 is a free one.
        announce: called with the port and each token, first when the nodes are read.
        namespaces: the only namespaces whose pods, claims and events are read; all if none is named.
        sign_on: the proxy that signs users on, in place of sessions.
        drivers: where the counters of pods' interfaces are read.

    Raises:
        OSError: the address cannot be listened on.
    """
    source = LiveCluster(client, namespaces, drivers)
    process.health.ready("nodes", met(lambda: source.live.reflector.synced, "the nodes are not read yet"))
    tokens: asyncio.Queue[str] = asyncio.Queue()
    console = Console(source, ConsoleAccess(tokens.put_nowait), sign_on)
    async with console.serving(*where) as server, asyncio.TaskGroup() as tasks:
        tasks.create_task(source.run())
        await source.wait_read()
        while True:
            token = await tokens.get()
            announce(server.port, token if sign_on is None else "")


class UserRights(NamedTuple):
    """The kinds that a user may list in the whole cluster, and the namespaces whose pods the user may list."""

    kinds: frozenset[TroubleKind]
    namespaces: frozenset[str]


async def user_rights(client: Client, namespaces: Collection[str]) -> UserRights:
    """The rights of the client's user.

    Args:
        client: acts as the user.
        namespaces: those that are checked if the user may not list all pods.

    Raises:
        ApiError: the API server does not answer.
    """
    kinds = [*RESOURCES]
    allowed = await asyncio.gather(*(_may_list(client, *RESOURCES[kind]) for kind in kinds))
    found = frozenset(kind for kind, is_allowed in zip(kinds, allowed, strict=True) if is_allowed)
    if "pods" in found:
        return UserRights(found, frozenset())
    return UserRights(found, await find_allowed_namespaces(client, namespaces))


async def find_allowed_namespaces(client: Client, namespaces: Collection[str]) -> frozenset[str]:
    """Of `MAX_NAMESPACES` namespaces at most, those whose pods the client's user may list.

    Raises:
        ApiError: the API server does not answer.
    """
    places = sorted(namespaces)[:MAX_NAMESPACES]
    allowed = await asyncio.gather(*(_may_list(client, "", resources.SERVED_PODS.plural, place) for place in places))
    return frozenset(place for place, is_allowed in zip(places, allowed, strict=True) if is_allowed)


async def _may_list(client: Client, group: str, plural: str, namespace: str = "") -> bool:
    attributes = {"verb": "list", "group": group, "resource": plural, "namespace": namespace}
    answer = await client.create(MAY_I, Review(spec={"resourceAttributes": attributes}))
    return bool(answer.status.get("allowed", False))
