"""The content of each page, read from a cluster source. Called by `netdra.console.server`, which answers requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from netdra.cluster.devices import DeviceLine, DeviceLines
from netdra.cluster.objects import ClusterState
from netdra.console import rows
from netdra.console.access import SignedOnUser
from netdra.console.fleet import ClassShare, NodeCounts
from netdra.console.forecast_page import Forecast, forecast_page
from netdra.console.frame import PageLife
from netdra.console.listing import ObjectList, Shown, list_page, shown_of
from netdra.console.object_page import object_page
from netdra.console.routes import KINDS, PageRoute
from netdra.console.rows import codes_of
from netdra.console.search_page import MAX_HITS, Hit, HitGroup, of_addresses, search_page
from netdra.console.start_page import ClassChoice, start_page
from netdra.console.traffic_page import PodTraffic, traffic_page
from netdra.console.troubles import ClusterExamination
from netdra.model.errors import InvalidInputError
from netdra.model.pod_address import PodAddress
from netdra.model.policy import DeviceExposurePolicy

T = TypeVar("T")

FLEET_SECONDS, OBJECT_SECONDS, TRAFFIC_SECONDS = 2.0, 5.0, 3.0
"""The least time between two events of a page."""


class ClusterSource(Protocol):
    """Reads a cluster, with the rights of the console's account or user."""

    def fleet(self) -> Sequence[NodeCounts]:
        """All nodes, in the order of their names."""

    async def of_user(self, user: SignedOnUser) -> ClusterSource:
        """The same cluster as a user may read it.

        Raises:
            NetdraError: the user's rights cannot be read.
        """

    @property
    def problem(self) -> str:
        """Why the fleet may be old or incomplete, "" if it is current."""

    @property
    def now(self) -> str:
        """The time by the API server's clock, in RFC 3339."""

    async def examination(self) -> ClusterExamination:
        """The result of the last examination; it is repeated while pages ask for it."""

    async def shares(self, chosen: str) -> Mapping[str, ClassShare]:
        """By node, the devices that match a DeviceClass.

        Raises:
            InvalidInputError: no such class exists.
        """

    async def objects(self, kind: str, place: str, name: str) -> ClusterState:
        """The objects that the page of one object shows; `place` is its namespace or its node."""

    async def read_list(self, kind: str) -> ClusterState:
        """The objects that the list of a kind shows; `unread` names kinds that the user may not read."""

    async def devices(self, node: str, matches: Callable[[DeviceLine], bool]) -> DeviceLines:
        """The devices of a node, or with "" of all, that match."""

    async def addresses(self, text: str) -> Sequence[PodAddress]:
        """The addresses of PodNetworks that begin with a text."""

    async def traffic(self, node: str) -> PodTraffic:
        """The rates of pods' interfaces on a node, or with "" on all."""

    async def forecast(self, policies: Sequence[DeviceExposurePolicy], node: str) -> Forecast:
        """The result of policies on a node, or with "" on all."""

    @property
    def version(self) -> str:
        """Another text when the fleet or the result of the examination has changed."""

    async def wait_fleet(self, since: str) -> None:
        """Wait until the version is another one, or some seconds."""

    async def wait_objects(self, kind: str, place: str, name: str) -> None:
        """Wait until an object of a page has changed, or some seconds."""

    async def wait_list(self, kind: str) -> None:
        """Wait until an object of a list has changed, or some seconds."""


class ReadInTurn(Protocol):
    """Calls a function that reads the cluster when it is its turn."""

    async def __call__(self, read: Callable[[], Awaitable[T]]) -> T:
        """The function's result."""


class Pages:
    """Makes pages of one source: the console's own, or that of a user."""

    def __init__(self, source: ClusterSource, read: ReadInTurn) -> None:
        """Keep the source.

        Args:
            source: reads the cluster.
            read: calls a function that reads the cluster when it is its turn.
        """
        self.source, self._read = source, read

    async def body(self, asked: PageRoute) -> bytes:
        """The page that a URL requests.

        Raises:
            NetdraError: the cluster cannot be read, or too many pages are read.
            TimeoutError: it does not answer in time.
        """
        if asked.page == "start":
            return await self._start(asked)
        if asked.page == "what-if":
            return forecast_page("", asked.query.get("node", ""))
        if asked.page == "search":
            return await self._read(partial(self._search, asked.query.get("q", "").strip()))
        if asked.page == "list":
            return await self._list(asked)
        if asked.page == "traffic":
            return await self._traffic(shown_of(asked.query, asked.number))
        return await self._read(partial(self._of_object, asked))

    async def _start(self, asked: PageRoute) -> bytes:
        found = await self.source.examination()
        classes = ClassChoice(found.classes, asked.query.get("class", ""))
        if classes.chosen:
            try:
                shares = await self._read(partial(self.source.shares, classes.chosen))
                classes = classes._replace(shares=shares)
            except InvalidInputError as problem:
                classes = classes._replace(problem=str(problem))
        life = PageLife(True, self.source.version, self.source.now)
        return start_page(self.source.fleet(), found, classes, self.source.problem, life)

    async def _list(self, asked: PageRoute) -> bytes:
        shown = shown_of(asked.query, asked.number)
        codes = codes_of((await self.source.examination()).troubles)
        if asked.kind == "nodes":
            life = PageLife(True, self.source.version, self.source.now)
            return list_page(rows.node_list(self.source.fleet(), codes), shown, self.source.problem, life)
        if asked.kind == "devices":
            names = {node.name for node in self.source.fleet()}
            node = shown.node or (shown.text if shown.text in names else "")
            found = await self._read(partial(self.source.devices, node, partial(_is_shown, shown)))
            listed = rows.device_list(found, len(found.lines))
        else:
            cluster = await self._read(partial(self.source.read_list, asked.kind))
            listed = rows.LISTS[asked.kind](cluster, codes)
        return list_page(listed, shown, life=PageLife(is_live=True, now=self.source.now))

    async def _traffic(self, shown: Shown) -> bytes:
        found = await self._read(partial(self.source.traffic, shown.node))
        life = PageLife(is_live=True, now=self.source.now)
        return await asyncio.to_thread(traffic_page, found, shown, life)

    async def _search(self, text: str) -> bytes:
        """The objects that match a text."""
        if not text:
            return search_page("", ())
        small, groups, unread = text.lower(), list[HitGroup](), list[str]()
        nodes = rows.node_list([node for node in self.source.fleet() if small in node.name.lower()], {})
        groups.append(_hits(nodes, small))
        for kind in ("pods", "claims", "topologies", "policies", "networks", "plugins"):
            found = rows.LISTS[kind](await self.source.read_list(kind), {})
            unread += found.unread
            groups.append(_hits(found, small))
        devices = await self.source.devices("", lambda line: small in line.text)
        groups.append(_hits(rows.device_list(devices, 0), small))
        if small[0] in "0123456789abcdef:" and any(sign in small for sign in ".:"):
            groups.append(of_addresses(await self.source.addresses(small)))
        return search_page(text, groups, [*dict.fromkeys(unread)])

    async def _of_object(self, asked: PageRoute) -> bytes:
        """The page of an object."""
        cluster = await self.source.objects(KINDS[asked.kind], asked.place, asked.name)
        # In a thread: the story of a pod that is not scheduled searches all devices.
        return await asyncio.to_thread(object_page, cluster, asked.kind, asked.place, asked.name)

    async def wait(self, asked: PageRoute, since: str) -> None:
        """Wait until a page may differ."""
        if is_of_fleet(asked):
            await asyncio.sleep(FLEET_SECONDS)
            await self.source.examination()
            await self.source.wait_fleet(since)
            return
        if asked.page == "traffic":
            await asyncio.sleep(TRAFFIC_SECONDS)  # it always differs
            return
        await asyncio.sleep(OBJECT_SECONDS)
        if asked.page == "list":
            await self.source.wait_list(asked.kind)
        else:
            await self.source.wait_objects(KINDS[asked.kind], asked.place, asked.name)


def is_of_fleet(asked: PageRoute) -> bool:
    """Whether a page shows all nodes, which are followed anyway."""
    return asked.page == "start" or (asked.page, asked.kind) == ("list", "nodes")


def _is_shown(shown: Shown, line: DeviceLine) -> bool:
    return shown.text.lower() in line.text and shown.state in ("", line.state)


def _hits(found: ObjectList, text: str) -> HitGroup:
    """The objects of a list that match."""
    matching = [row for row in found.rows if text in row.text]
    hits = [Hit(row.segments, row.words, row.why(text)) for row in matching[:MAX_HITS]]
    return HitGroup(found.title, hits, len(matching))
