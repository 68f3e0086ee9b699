"""An inventory that is kept current by the kernel's events, reading again only what a change concerns.

Used by the daemon on its event loop (`loop.add_reader(watcher.fileno(), ...)` and `handle`) and by blocking loops
(`wait`). Every few minutes, and whenever events were lost, all is read again; a difference found then is a change like
any other (decision D14). That also finds changes for which the kernel has no event: new names (alias, alternative
names) of a link that is down.

A reading that fails, or that changes interrupt, ends nothing: events are followed on, `stale` reports that something
may be missing, and all is read again later, at longer and longer intervals.
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from typing import TypeVar

import msgspec

from netdra.discovery import assemble, live, scan, update
from netdra.discovery.facts import Key, MachineFacts
from netdra.discovery.pairs import SETTLE_SECONDS, Pairs
from netdra.kernel.closing import Closing
from netdra.kernel.errors import EventsLostError, KernelError
from netdra.kernel.host_use import POD
from netdra.kernel.monitor import DeviceMonitor, Monitor
from netdra.kernel.sysfs import Sysfs
from netdra.model.inventory import Interface, Inventory, InventoryNode

log = logging.getLogger(__name__)

T = TypeVar("T")

RESCAN_EVERY = 300.0
"""Seconds between full readings."""
RETRY_SECONDS, MOST_RETRY_SECONDS = 1.0, 60.0
"""The first and the longest wait until all is read again after a reading that was not whole."""
READING_SHARE = 0.1
"""The greatest part of a CPU's time that readings after lost events take; longer ones are further apart."""
MAX_LEFT = 1024
"""How many interfaces that went to other namespaces are remembered."""


class InterfaceChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The differences since the last time: interfaces that came, went, or have other facts now (before, after)."""

    added: tuple[Interface, ...] = ()
    removed: tuple[Interface, ...] = ()
    changed: tuple[tuple[Interface, Interface], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    @property
    def of_pods(self) -> frozenset[str]:
        """The names of the interfaces if all are ends of pods' pairs, or bridges with such ports; none otherwise.

        An end counts whose other end is in a namespace that ends, or is not known: nothing is offered on it either.
        """
        pods = [_is_pods(before) and _is_pods(after) for before, after in self.changed]
        ends = {interface.if_name for interface in (*self.added, *self.removed) if _is_pods(interface)}
        ends |= {before.if_name for (before, _), is_pods in zip(self.changed, pods, strict=True) if is_pods}
        are_of_pods = all(map(_is_pods, (*self.added, *self.removed))) and all(
            is_pods or _differ_by_ports(*pair, ends) for pair, is_pods in zip(self.changed, pods, strict=True)
        )
        listed = (*self.added, *self.removed, *(before for before, _ in self.changed))
        return frozenset(interface.if_name for interface in listed if are_of_pods)


class Watcher(Closing):
    """The current inventory of the network namespace of the thread that makes it; for one thread at a time.

    Attributes:
        node: the node of the interfaces.
        rescans: how often all was read again.
        events: how many events of the kernel were taken in.
        overflows: how often the kernel dropped some.
        left: interfaces by identity that continued in another namespace and have not come back, the last ones of them.
            An interface that went while events were lost is unclear, and counts as one of these.
    """

    def __init__(
        self,
        node: InventoryNode | None = None,
        *,
        sysfs: Sysfs | None = None,
        rescan_every: float = RESCAN_EVERY,
        settle: float = SETTLE_SECONDS,
    ) -> None:
        """Begin to listen, then read everything, so that nothing between is missed.

        Args:
            node: the node of the interfaces; this machine by its host name if it is not given.
            sysfs: where /sys is.
            rescan_every: seconds between full readings.
            settle: for how many seconds the other end of a pair must stay at one place until an end is an interface.

        Raises:
            KernelError: the links cannot be listed.
        """
        self.node = node or scan.this_node()
        self.rescans = 0
        self.events = 0
        self.overflows = 0
        self.left: dict[str, Interface] = {}
        self._rescan_every = rescan_every
        self._retry_seconds = 0.0
        self._earliest = 0.0
        self._next_rescan = 0.0
        self._pairs = Pairs(settle)
        self._interfaces: dict[Key, Interface] = {}
        with ExitStack() as opened:
            self._monitor = opened.enter_context(Monitor())
            self._device_monitor = opened.enter_context(DeviceMonitor())
            self._kernel = opened.enter_context(live.Kernel(sysfs))
            self._ready = opened.enter_context(select.epoll())
            for source in (self._monitor, self._device_monitor):
                self._ready.register(source.fileno(), select.EPOLLIN | select.EPOLLERR)
            self._read_all(None)
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Stop listening; closing twice is not an error."""
        self._opened.close()

    def fileno(self) -> int:
        """One descriptor that is ready when there is something to handle."""
        return self._ready.fileno()

    @property
    def sysfs(self) -> Sysfs:
        """Where /sys is."""
        return self._kernel.sysfs

    @property
    def inventory(self) -> Inventory:
        """The inventory as it is known now."""
        return scan.collect(self.node, self._interfaces, self._facts)

    @property
    def stale(self) -> bool:
        """Whether something may be missing: events were lost, or the last full reading failed or was interrupted."""
        return bool(self._facts.stale)

    @property
    def timeout(self) -> float:
        """Seconds until something is to be read without an event; `handle` then does it."""
        due = self._pairs.due
        return max(0.0, (self._next_rescan if due is None else min(due, self._next_rescan)) - time.monotonic())

    @property
    def arriving(self) -> frozenset[int]:
        """The ends of pairs that are not interfaces yet, because their other ends may still move."""
        return frozenset(self._pairs.arriving)

    @property
    def settling(self) -> float:
        """Seconds until the first end of a pair that is not an interface yet becomes one, 0.0 without such an end."""
        return 0.0 if self._pairs.due is None else max(0.0, self._pairs.due - time.monotonic())

    def wait(self, timeout: float | None = None) -> InterfaceChanges:
        """Wait for events (or until `timeout` seconds are over, or something is to be read) and handle them.

        Raises:
            KernelError: the event sockets failed.
        """
        self._ready.poll(self.timeout if timeout is None else min(timeout, self.timeout))
        return self.handle()

    def handle(self) -> InterfaceChanges:
        """Take in the events that have arrived, without waiting, and return the differences.

        Raises:
            KernelError: the event sockets failed.
        """
        now = time.monotonic()
        if self._next_rescan <= now:
            return self.rescan()
        try:
            events, device_events = self._monitor.read(), self._device_monitor.read()
        except EventsLostError:
            self.overflows += 1
            if time.monotonic() >= self._earliest:
                return self.rescan()
            self._facts.stale.add("events")
            self._next_rescan = min(self._next_rescan, self._earliest)
            return InterfaceChanges()
        self.events += len(events) + len(device_events)
        settled = self._pairs.overdue(now)
        if not events and not device_events and not settled:
            return InterfaceChanges()
        changes = self._refresh(update.apply_events(self._kernel, self._facts, events, device_events, settled))
        if self.stale and not self._retry_seconds:
            due = self._next_rescan
            self._plan_rescan()
            self._next_rescan = min(due, self._next_rescan)
        return changes

    def rescan(self) -> InterfaceChanges:
        """Read everything again. If the links cannot be listed, what is known stays, and events are followed."""
        events, device_events = _drained(self._monitor.read), _drained(self._device_monitor.read)
        before = self._interfaces
        self.rescans += 1
        try:
            self._read_all(self._facts)
        except KernelError as problem:
            log.warning("the interfaces cannot be read again, the known interfaces are kept: %s", problem.what)
            self._facts.stale.add("links")
            self._plan_rescan()
            return self._refresh(update.apply_events(self._kernel, self._facts, events, device_events))
        for key in before.keys() - self._interfaces.keys():
            self._note_left(before[key])
        for key in self._interfaces.keys() - before.keys():
            self.left.pop(self._interfaces[key].identity, None)
        return _difference(before, self._interfaces)

    def _read_all(self, known: MachineFacts | None) -> None:
        began = time.thread_time()
        try:
            self._facts: MachineFacts = live.read(self._kernel, known, self._pairs)
        finally:
            self._earliest = time.monotonic() + (time.thread_time() - began) / READING_SHARE
        self._facts.wired = self.node.wired
        self._uplinks = assemble.host_uplinks(self._facts)
        former, arriving = self._interfaces, self._pairs.arriving
        assembled = scan.interfaces(self._facts)
        self._interfaces = {key: assembled[key] for key in assembled if key not in arriving or key in former}
        self._plan_rescan()

    def _plan_rescan(self) -> None:
        if self.stale and not self._retry_seconds:
            log.warning(
                "the interfaces could not be read consistently (%s); events are followed, and all "
                "interfaces are read again later",
                ", ".join(sorted(self._facts.stale)),
            )
        elif self._retry_seconds and not self.stale:
            log.info("all interfaces were read again")
        if self.stale:
            self._retry_seconds = min(2 * self._retry_seconds or RETRY_SECONDS, MOST_RETRY_SECONDS)
        else:
            self._retry_seconds = 0.0
        self._next_rescan = time.monotonic() + min(self._retry_seconds or self._rescan_every, self._rescan_every)

    def _refresh(self, concerned: set[Key]) -> InterfaceChanges:
        """Make the concerned interfaces again, and those that became or ceased to be uplinks.

        A new end of a pair is an interface when it is known whose it is: nothing is to be published for it before.
        """
        facts = self._facts
        uplinks = assemble.host_uplinks(facts)
        before: dict[Key, Interface] = {}
        after: dict[Key, Interface] = {}
        changed = concerned | uplinks.changed(self._uplinks)
        for key in changed | assemble.above(facts, (key for key in changed if isinstance(key, int))):
            if key in self._interfaces:
                before[key] = self._interfaces.pop(key)
            if key in self._pairs.arriving and key not in before:
                continue
            if isinstance(key, int) and key in facts.links:
                after[key] = assemble.interface(facts, key, uplinks)
            elif isinstance(key, str) and key in facts.functions:
                after[key] = assemble.function(facts, key)
        self._interfaces.update(after)
        self._uplinks = uplinks
        for key in facts.moved & before.keys():
            self._note_left(before[key])
        facts.moved.clear()
        for key in after.keys() - before.keys():
            self.left.pop(after[key].identity, None)
        return _difference(before, after)

    def _note_left(self, interface: Interface) -> None:
        self.left[interface.identity] = interface
        if len(self.left) > MAX_LEFT:
            del self.left[next(iter(self.left))]


def _difference(before: Mapping[Key, Interface], after: Mapping[Key, Interface]) -> InterfaceChanges:
    return InterfaceChanges(
        added=tuple(after[key] for key in after if key not in before),
        removed=tuple(before[key] for key in before if key not in after),
        changed=tuple((before[key], after[key]) for key in after if key in before and after[key] != before[key]),
    )


def _is_pods(interface: Interface) -> bool:
    """Whether an interface is the end of a pair whose other end is in a pod, or at a place that is not known."""
    return POD in interface.host_use or interface.peer_unknown


def _differ_by_ports(before: Interface, after: Interface, ends: Collection[str]) -> bool:
    """Whether an interface has other ports among some ends than before, and all else is the same."""
    ports = set(before.lower_devices) ^ set(after.lower_devices)
    return ports.issubset(ends) and before == msgspec.structs.replace(after, lower_devices=before.lower_devices)


def _drained(read: Callable[[], list[T]]) -> list[T]:
    """The events from before a full reading, which has all that they are about; without those that are lost."""
    while True:
        with suppress(EventsLostError):
            return read()
