"""Watches the links of pods' interfaces: carrier, speed, and how often the carrier came and went.

The host sees no event of a link in another namespace, except on a socket for all namespaces (decision D84). An event
names a namespace; its links are then read. Changes are given to `on_change` in the event loop: the claim's condition,
an event of the pod and the kubelet's health of the device follow from them
(`netdra.node.sandboxes.carriers.Carriers.report_links`). A pod that changes its links all the time is read seldom: it
must not cost others anything, nor fill the API server and the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress

import msgspec

from netdra.chain.checkpoint import Saved
from netdra.kernel import ethtool, link, netns, pod_namespaces, uapi
from netdra.kernel.errors import EventsLostError, KernelError
from netdra.kernel.monitor import PodLinkMonitor
from netdra.kernel.netlink import Socket, to_u32
from netdra.kernel.netns import Namespace
from netdra.model.errors import NetdraError
from netdra.node.publishing.interfaces import BURST, Bucket
from netdra.node.signals import Signal
from netdra.node.traffic.interfaces import SandboxInterface, of_checkpoint
from netdra.steps.drift import without_carrier
from netdra.topology.devices import DeviceKey

log = logging.getLogger(__name__)

DAMPING_SECONDS = 0.25
"""How long after an event further ones are awaited: a link that comes up sends several."""
OVERFLOW_SECONDS = 2.0
"""The same after events were lost."""
CHECK_SECONDS = 60.0
"""Seconds between two looks at all pods although no event came, as a check."""
POLL_SECONDS = 10.0
"""The same where the kernel does not report events of other namespaces."""


class PodLink(msgspec.Struct, frozen=True, kw_only=True):
    """The link of one interface.

    Attributes:
        silent: why it has no carrier, in words; "" if it has one, or none is expected.
        is_down: whether it is set down, by someone in the pod, as no step leaves it so.
        speed: in Mbit/s, 0 if unknown.
        carrier_up, carrier_down: how often the carrier came and went since the link was made.
    """

    silent: str = ""
    is_down: bool = False
    speed: int = 0
    carrier_up: int = 0
    carrier_down: int = 0


class LinkChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of an interface's link; `before` is None at the first look."""

    interface: SandboxInterface
    before: PodLink | None
    after: PodLink

    @property
    def is_lost(self) -> bool:
        """Whether it had a carrier until now."""
        return bool(self.after.silent) and self.before is not None and not self.before.silent

    @property
    def is_back(self) -> bool:
        """Whether it has one again."""
        return not self.after.silent and self.before is not None and bool(self.before.silent)

    @property
    def is_flap(self) -> bool:
        """Whether it lost its carrier and had it again between two looks."""
        before, after = self.before, self.after
        return before is not None and before.silent == after.silent == "" and after.carrier_down > before.carrier_down


OnChange = Callable[[Sequence[LinkChange]], None]
NamespacesOf = Callable[[Collection[str]], AbstractContextManager[Mapping[str, Namespace]]]
"""Opens the namespaces of sandboxes while the context lasts."""
States = Mapping[SandboxInterface, PodLink]


class PodLinks:
    """The links of all pods of this node.

    Attributes:
        states: the links as of the last look, by interface.
        changed: emitted after a look that found other states than before.
    """

    def __init__(
        self, checkpoints: Callable[[], Iterable[Saved]], namespaces: NamespacesOf, on_change: OnChange
    ) -> None:
        """Nothing is watched yet.

        Args:
            checkpoints: those of the node's sandboxes.
            namespaces: opens the namespaces of sandboxes.
            on_change: gets the changed links of each look, in the event loop.
        """
        self._checkpoints, self._namespaces, self._on_change = checkpoints, namespaces, on_change
        self._known: dict[str, tuple[Saved, tuple[SandboxInterface, ...]]] = {}
        self._ids: dict[int, str] = {}
        self._read_as: dict[str, Saved] = {}
        self._due: set[str] = set()
        self._buckets: dict[str, Bucket] = {}
        self._is_new_due = False
        self._pause = DAMPING_SECONDS
        self._woken = asyncio.Event()
        self.states: States = {}
        self.changed = Signal()

    def look(self) -> None:
        """Read the links of new pods soon, and forget those of pods that are gone."""
        self._is_new_due = True
        self._woken.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            monitor = PodLinkMonitor()
        except KernelError as problem:
            log.warning("links of pods are read every %g s only: %s", POLL_SECONDS, problem)
            await self._work(POLL_SECONDS)
            return
        with monitor:
            loop.add_reader(monitor, lambda: self._on_events(monitor))
            try:
                await self._work(CHECK_SECONDS)
            finally:
                loop.remove_reader(monitor)

    async def _work(self, every: float) -> None:
        is_all = True
        while True:
            self._is_new_due = False
            due = self._take_due(time.monotonic())
            try:
                now = await asyncio.to_thread(self._read, None if is_all else due)
            except NetdraError as problem:
                log.warning("links of pods are not read: %s", problem)
            else:
                self._take(now)
            await asyncio.sleep(self._pause)
            self._pause = DAMPING_SECONDS
            is_all = not await self._wait_due(time.monotonic() + every)

    async def _wait_due(self, until: float) -> bool:
        """Wait until links are due; False if none were until then."""
        while (now := time.monotonic()) < until:
            rest = min((self._bucket(sandbox, now).wait(now) for sandbox in self._due), default=until - now)
            if self._is_new_due or (self._due and not rest):
                return True
            self._woken.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(rest, until - now)):
                    await self._woken.wait()
        return False

    def _bucket(self, sandbox: str, now: float) -> Bucket:
        return self._buckets.get(sandbox) or Bucket(BURST, now)

    def _take_due(self, now: float) -> set[str]:
        """The sandboxes that are due and have not been too often lately; the others stay due."""
        due = {sandbox for sandbox in self._due if not self._bucket(sandbox, now).wait(now)}
        self._due -= due
        self._buckets |= {sandbox: self._bucket(sandbox, now).less(now) for sandbox in due}
        return due

    def _on_events(self, monitor: PodLinkMonitor) -> None:
        try:
            changed = monitor.read()
        except EventsLostError:
            self._pause = OVERFLOW_SECONDS
            self._due.update(self._ids.values())
            self._woken.set()
            return
        except KernelError as problem:
            log.warning("%s", problem)
            return
        due = {self._ids[number] for number in changed if number in self._ids}
        if due:
            self._due |= due
            self._woken.set()

    def _take(self, now: States) -> None:
        before, self.states = self.states, now
        changes = [
            LinkChange(interface=interface, before=before.get(interface), after=state)
            for interface, state in now.items()
            if before.get(interface) != state
        ]
        if changes or before.keys() - now.keys():
            self._on_change(changes)
            self.changed.emit()

    def _read(self, due: Collection[str] | None) -> States:
        """In a thread: the links of all pods; those of pods that are neither due nor new as they were.

        Raises:
            TemporaryError: checkpoints cannot be read.
        """
        known = self._list()
        new = {sandbox for sandbox, (saved, _) in known.items() if self._read_as.get(sandbox) is not saved}
        wanted = known.keys() if due is None else known.keys() & {*due, *new}
        self._ids = {number: sandbox for number, sandbox in self._ids.items() if sandbox in known}
        self._buckets = {sandbox: bucket for sandbox, bucket in self._buckets.items() if sandbox in known}
        with self._namespaces(wanted) as opened:
            self._ids |= _ids({sandbox: space.fd for sandbox, space in opened.items() if due is None or sandbox in new})
            self._read_as = {sandbox: saved for sandbox, saved in self._read_as.items() if sandbox in known}
            self._read_as |= {sandbox: known[sandbox][0] for sandbox in opened}
            sandboxes = tuple(opened)
            results = netns.tour(tuple(opened.values()), lambda place: _links(known[sandboxes[place]][1]))
        states = {
            interface: state
            for interface, state in self.states.items()
            if interface.sandbox in known and interface.sandbox not in opened
        }
        for result in results:
            if isinstance(result, KernelError):
                log.debug("links of a pod: %s", result)
            else:
                states.update(result)
        return states

    def _list(self) -> dict[str, tuple[Saved, tuple[SandboxInterface, ...]]]:
        known: dict[str, tuple[Saved, tuple[SandboxInterface, ...]]] = {}
        for saved in self._checkpoints():
            sandbox = saved.header.pod.sandbox
            before = self._known.get(sandbox)
            known[sandbox] = before if before is not None and before[0] is saved else (saved, of_checkpoint(saved))
        self._known = known
        return known


def broken(states: States) -> dict[DeviceKey, str]:
    """The devices that one pod has alone and whose link has no carrier there, with the reason.

    A link that is set down in the pod is the pod's own act. The health of a device of pooled VFs is that of all of
    them (k8s.io/kubelet, dra-health), so the condition of the claim alone reports one VF.
    """
    return {
        (interface.pool, interface.device): state.silent
        for interface, state in states.items()
        if interface.is_own and not interface.is_pooled and state.silent and not state.is_down
    }


def _ids(descriptors: Mapping[str, int]) -> dict[int, str]:
    """The sandboxes by the ids of their namespaces; without an id, a namespace's events do not arrive."""
    ids: dict[int, str] = {}
    with Socket() as sock:
        for sandbox, descriptor in descriptors.items():
            try:
                ids[pod_namespaces.assign_id(sock, descriptor)] = sandbox
            except KernelError as problem:
                log.debug("events of a pod's links do not arrive: %s", problem)
    return ids


def _links(interfaces: Sequence[SandboxInterface]) -> dict[SandboxInterface, PodLink]:
    """In a pod's namespace: its links."""
    states: dict[SandboxInterface, PodLink] = {}
    with Socket() as sock:
        for interface in interfaces:
            found = link.find(sock, interface.if_name) if interface.if_name else None
            if found is not None:
                states[interface] = PodLink(
                    silent=without_carrier(found),
                    is_down=not found.is_up,
                    speed=_speed(sock, found.index) if interface.is_own else 0,
                    carrier_up=_count(found, uapi.IFLA_CARRIER_UP_COUNT),
                    carrier_down=_count(found, uapi.IFLA_CARRIER_DOWN_COUNT),
                )
    return states


def _count(found: link.Link, kind: int) -> int:
    value = found.message.get(kind)
    return to_u32(value) if value else 0


def _speed(sock: Socket, index: int) -> int:
    with suppress(KernelError):  # the driver has none
        return ethtool.speed(sock, index)
    return 0
