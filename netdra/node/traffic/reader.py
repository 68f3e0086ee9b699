"""Reads what the interfaces of pods carry, once for each scrape, and writes it as series.

`Traffic.page` is the source of `netdra.node.metrics.TRAFFIC`; it is called in threads of the metrics' server. The
counters are the kernel's own, so they outlive this process, and a series ends with its pod. A namespace is entered for
one message to the kernel, RTM_GETSTATS. VFs in user space have no link in the pod: their PF has their counters.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from netdra.chain.checkpoint import Saved
from netdra.kernel import counters, netns, rdma_counters, unlocked
from netdra.kernel.counters import LinkCounters
from netdra.kernel.errors import KernelError
from netdra.kernel.netlink import Socket
from netdra.kernel.sysfs import Sysfs
from netdra.model.errors import NetdraError
from netdra.node import metrics
from netdra.node.traffic.interfaces import BYTES_PER_MBIT, SandboxInterface, of_checkpoint
from netdra.node.traffic.links import NamespacesOf, PodLink
from netdra.ops.metrics import Family, header, series_name

log = logging.getLogger(__name__)

FRESH_SECONDS = 1.0
"""For how long counters are not read again: several scrapers, or one that asks all the time, cost no more than one."""

COUNTED: Sequence[tuple[Family, tuple[str, ...]]] = (
    (metrics.RECEIVE_BYTES, ("rx_bytes",)),
    (metrics.RECEIVE_PACKETS, ("rx_packets",)),
    (metrics.RECEIVE_DROP, ("rx_dropped", "rx_missed_errors")),  # as /proc/net/dev
    (metrics.RECEIVE_ERRS, ("rx_errors",)),
    (metrics.TRANSMIT_BYTES, ("tx_bytes",)),
    (metrics.TRANSMIT_PACKETS, ("tx_packets",)),
    (metrics.TRANSMIT_DROP, ("tx_dropped",)),
    (metrics.TRANSMIT_ERRS, ("tx_errors",)),
)
"""The families of counters, each with the counters of a link whose sum it is."""
_PLACES = {name: place for place, name in enumerate(LinkCounters._fields)}
LINKED: Sequence[tuple[Family, Callable[[PodLink], int | None]]] = (
    (metrics.CARRIER, lambda link: int(not link.silent)),
    (metrics.CARRIER_UP, lambda link: link.carrier_up),
    (metrics.CARRIER_DOWN, lambda link: link.carrier_down),
    (metrics.SPEED, lambda link: link.speed * BYTES_PER_MBIT or None),
)


class _Lines(msgspec.Struct, frozen=True, eq=False):
    """An interface, with the beginnings of its lines in the page: they never change. Compared by its identity."""

    interface: SandboxInterface
    counted: tuple[str, ...]
    bandwidth: str
    linked: tuple[str, ...]

    @classmethod
    def of(cls, interface: SandboxInterface) -> _Lines:
        labels = interface.labels
        counted = tuple(series_name(family, labels) for family, _ in COUNTED)
        linked = tuple(series_name(family, labels) for family, _ in LINKED)
        bandwidth = f"{series_name(metrics.BANDWIDTH, labels)}{interface.bandwidth}\n"
        return cls(interface, counted, bandwidth, linked)


class _Shape(msgspec.Struct, frozen=True):
    """The series of a page, without their values, in its order.

    Attributes:
        counted: the interfaces with counters, for each of `COUNTED`.
        linked: for each of `LINKED`, the interfaces with a value.
        bound: those with a bandwidth.
    """

    counted: list[_Lines]
    linked: tuple[list[_Lines], ...]
    bound: list[_Lines]

    def template(self) -> bytes:
        """The page, with `%d` for each value.

        One formatting of all values takes a fifth of the time of one for each line, and between two scrapes the series
        are the same nearly always.
        """
        text: list[str] = []
        for place, (family, _) in enumerate(COUNTED):
            text += (_plain(header(family)), *(f"{_plain(line.counted[place])}%d\n" for line in self.counted))
        for place, ((family, _), lines) in enumerate(zip(LINKED, self.linked, strict=True)):
            text += (_plain(header(family)), *(f"{_plain(line.linked[place])}%d\n" for line in lines))
        text += (_plain(header(metrics.BANDWIDTH)), *(_plain(line.bandwidth) for line in self.bound))
        return "".join((*text, _plain(header(metrics.RDMA_COUNTER)))).encode()


def _plain(text: str) -> str:
    return text.replace("%", "%%")


class Traffic:
    """The counters of all interfaces of pods of this node."""

    def __init__(
        self,
        checkpoints: Callable[[], Iterable[Saved]],
        namespaces: NamespacesOf,
        most: int,
        *,
        links: Callable[[], Mapping[SandboxInterface, PodLink]] = dict,
        sysfs: Sysfs | None = None,
        on_omitted: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Nothing is read yet.

        Args:
            checkpoints: those of the node's sandboxes.
            namespaces: opens the namespaces of sandboxes.
            most: how many interfaces are exported.
            links: the links of interfaces.
            sysfs: where RDMA devices are.
            on_omitted: called with their number, in any thread, when more or fewer interfaces than before are omitted.
        """
        self._checkpoints, self._namespaces, self._most = checkpoints, namespaces, most
        self._sysfs = sysfs if sysfs is not None else Sysfs()
        self._on_omitted, self._links = on_omitted, links
        self._known: dict[str, tuple[Saved, tuple[_Lines, ...]]] = {}
        self._indexes: dict[str, dict[str, int]] = {}
        self._counting: set[str] = set()
        self._omitted = 0
        self._page, self._read_at = b"", -FRESH_SECONDS
        self._shape, self._template = _Shape([], (), []), b""
        self._one_at_a_time = threading.Lock()

    def page(self) -> bytes:
        """All series, in the text format of Prometheus. Any thread may call."""
        with self._one_at_a_time:
            now = time.monotonic()
            if now - self._read_at >= FRESH_SECONDS:
                with metrics.TRAFFIC_SECONDS.time():
                    self._page = self._write_quietly()
                self._read_at = now
            return self._page

    def _write_quietly(self) -> bytes:
        """As `_write`; without series if the kernel cannot be asked at all: the other metrics must not fail with it."""
        try:
            return self._write()
        except NetdraError as problem:
            metrics.TRAFFIC_UNREADABLE.inc()
            log.warning("interfaces of pods are not counted: %s", problem)
            return "".join(map(header, metrics.TRAFFIC.families)).encode()

    def _write(self) -> bytes:
        lines = self._listed()
        values = self._values([line.interface for line in lines])
        numbers = _columns([link for link in values if link is not None])
        counted = [line for line, link in zip(lines, values, strict=True) if link is not None]
        states = self._links()
        present = [(line, states[line.interface]) for line in lines if line.interface in states]
        linked: list[list[_Lines]] = []
        for _, of_link in LINKED:
            found = [(line, number) for line, state in present if (number := of_link(state)) is not None]
            linked.append([line for line, _ in found])
            numbers += (number for _, number in found)
        shape = _Shape(counted, tuple(linked), [line for line in lines if line.interface.bandwidth])
        if shape != self._shape or not self._template:
            self._shape, self._template = shape, shape.template()
        rdma = (text for line in lines for text in self._rdma(line.interface))
        return self._template % tuple(numbers) + "".join(rdma).encode()

    def _listed(self) -> list[_Lines]:
        """The interfaces to export: of each pod the first ones, so that no pod's interfaces keep out another pod."""
        known: dict[str, tuple[Saved, tuple[_Lines, ...]]] = {}
        try:
            checkpoints = list(self._checkpoints())
        except NetdraError as problem:
            log.warning("interfaces of pods are not counted: %s", problem)
            checkpoints = []
        for saved in checkpoints:
            sandbox = saved.header.pod.sandbox
            before = self._known.get(sandbox)
            is_known = before is not None and before[0] is saved
            known[sandbox] = before if is_known and before else (saved, tuple(map(_Lines.of, of_checkpoint(saved))))
        self._known = known
        self._indexes = {sandbox: self._indexes.get(sandbox, {}) for sandbox in known}
        ranked = [(rank, line) for _, lines in known.values() for rank, line in enumerate(lines)]
        if len(ranked) > self._most:
            ranked.sort(key=lambda entry: entry[0])
        exported = [line for _, line in ranked[: self._most]]
        self._note_omitted(len(ranked) - len(exported))
        metrics.TRAFFIC_INTERFACES.set(len(exported))
        return exported

    def _note_omitted(self, omitted: int) -> None:
        metrics.TRAFFIC_OMITTED.set(omitted)
        if omitted != self._omitted:
            self._omitted = omitted
            self._on_omitted(omitted)

    def _values(self, interfaces: Sequence[SandboxInterface]) -> list[LinkCounters | None]:
        """The counters of interfaces; None for those that are not there, or cannot be read."""
        names: dict[str, list[str]] = {}
        for interface in interfaces:
            if interface.if_name:
                names.setdefault(interface.sandbox, []).append(interface.if_name)
        with self._namespaces(names) as opened:
            sandboxes = tuple(opened)
            read = netns.tour(
                tuple(opened.values()), lambda place: self._of_pod(sandboxes[place], names[sandboxes[place]])
            )
        found = {sandbox: _valid(answer) for sandbox, answer in zip(sandboxes, read, strict=True)}
        vfs = self._of_vfs([interface.vf for interface in interfaces if interface.vf is not None])
        return [
            vfs.get(interface.vf[0]) if interface.vf else found.get(interface.sandbox, {}).get(interface.if_name)
            for interface in interfaces
        ]

    def _of_pod(self, sandbox: str, names: Iterable[str]) -> dict[str, LinkCounters]:
        """In a pod's namespace: the counters of its links of these names.

        A link keeps its index until it is gone, also under another name, so names are looked up once.
        """
        indexes = self._indexes[sandbox]
        links = counters.of_links(indexes.values()) if indexes else {}
        if missing := [name for name in names if indexes.get(name, 0) not in links]:
            with Socket() as sock:
                indexes.update((name, unlocked.index_of(sock, name)) for name in missing)
            links = counters.of_links(indexes.values())
        return {name: links[indexes[name]] for name in names if indexes[name] in links}

    def _of_vfs(self, vfs: Sequence[tuple[str, str, int]]) -> dict[str, LinkCounters]:
        """The counters of VFs by PCI address, from their PFs. A PF without any count for all of its VFs has none.

        Some drivers have no such counters, such as igb; for them the kernel reports zeros.
        """
        by_pf: dict[str, dict[int, str]] = {}
        for address, pf, index in vfs:
            by_pf.setdefault(pf, {})[index] = address
        found: dict[str, LinkCounters] = {}
        if not by_pf:
            return found
        with Socket() as sock:
            for pf, addresses in by_pf.items():
                try:
                    read = counters.of_vfs(sock, pf)
                except KernelError as problem:
                    metrics.TRAFFIC_UNREADABLE.inc()
                    log.debug("counters of VFs: %s", problem)
                    continue
                if any(any(link) for link in read.values()):
                    self._counting.add(pf)
                if pf in self._counting:
                    found |= {addresses[index]: link for index, link in read.items() if index in addresses}
        return found

    def _rdma(self, interface: SandboxInterface) -> Iterator[str]:
        for device in interface.rdma_devices:
            for port, name, value in rdma_counters.of_device(self._sysfs, device):
                yield f"{series_name(metrics.RDMA_COUNTER, (*interface.labels, device, port, name))}{value}\n"


def _columns(links: Sequence[LinkCounters]) -> list[int]:
    """The values of links, as a page has them: for each of `COUNTED` those of all links."""
    columns = tuple(zip(*links, strict=True))
    numbers: list[int] = []
    for _, names in COUNTED if columns else ():
        first, *others = (columns[_PLACES[name]] for name in names)
        numbers += map(sum, zip(first, *others, strict=True)) if others else first
    return numbers


def _valid(answer: dict[str, LinkCounters] | KernelError) -> dict[str, LinkCounters]:
    if isinstance(answer, KernelError):
        metrics.TRAFFIC_UNREADABLE.inc()
        log.debug("counters of a pod: %s", answer)
        return {}
    return answer
