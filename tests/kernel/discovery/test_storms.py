"""Links that change faster than all can be listed end neither a follower nor a hook, and keep none from starting."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from netdra.discovery import live
from netdra.discovery.scan import scan
from netdra.discovery.watch import Watcher
from netdra.kernel import address, kinds, link, monitor, netlink, uapi
from netdra.kernel.device_files import DeviceFiles
from netdra.kernel.errors import kernel_error
from netdra.model.inventory import Inventory, InventoryNode
from netdra.node.metrics import KERNEL_EVENTS
from netdra.node.publishing.interfaces import READINGS_AT_ONCE, SECONDS_PER_READING, Interfaces
from testbed.waiting import until
from tests.kernel.conftest import Machine

NODE = InventoryNode(name="worker-1")
PAIRS = 150
"""So many that a dump is of several messages, between which links can change."""


def make_links(machine: Machine, pairs: int = PAIRS) -> None:
    for number in range(pairs):
        machine.veth(f"a{number}", f"b{number}")


def fresh(machine: Machine) -> Inventory:
    with machine.namespace.run(live.Kernel) as kernel:
        return scan(NODE, kernel, settle=0.0)


def names_of(watcher: Watcher) -> set[str]:
    return {interface.if_name for interface in watcher.inventory.interfaces}


def agree(watcher: Watcher, machine: Machine) -> None:
    def agrees() -> bool:
        watcher.handle()
        return not watcher.stale and watcher.inventory == fresh(machine)

    until(agrees, "the watcher to agree with a scan", detail=lambda: (watcher.stale, watcher.inventory))


class Interruptions:
    """Interrupts each dump of links, addresses or speeds: a link comes and goes between two of its messages.

    Attributes:
        kinds: of the dumps that were sent.
        over: set once no more are interrupted.
    """

    def __init__(self, sock: netlink.Socket, patched: pytest.MonkeyPatch) -> None:
        self.kinds: list[int] = []
        self.over = False
        self._changing = sock
        self._dumping: netlink.Socket | None = None
        self._send, self._receive = netlink.Socket._send, netlink.Socket._receive
        patched.setattr(netlink.Socket, "_send", lambda *sent: self._sent(*sent))
        patched.setattr(netlink.Socket, "_receive", lambda *received: self._received(*received))

    def _sent(self, sock: netlink.Socket, kind: int, flags: int, body: bytes, doing: str) -> int:
        is_dump = flags & netlink.NLM_F_DUMP == netlink.NLM_F_DUMP and kind != uapi.RTM_GETROUTE
        self._dumping = sock if is_dump else None
        if is_dump:
            self.kinds.append(kind)
        return self._send(sock, kind, flags, body, doing)

    def _received(self, sock: netlink.Socket, doing: str) -> bytes:
        data = self._receive(sock, doing)
        if sock is self._dumping and not self.over:
            self._dumping = None
            link.create(self._changing, "comes", "veth", kinds.veth(kinds.Peer("along")))
            link.delete(self._changing, "comes")
        return data


@pytest.fixture
def interruptions(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Interruptions]:
    """In a namespace with so many links that a dump is of several messages."""
    make_links(machine)
    with machine.namespace.socket() as sock:
        yield Interruptions(sock, monkeypatch)


STAYING = {f"{end}{number}" for end in "ab" for number in range(PAIRS)} | {"lo"}


def test_links_are_listed_although_each_dump_is_interrupted(machine: Machine, interruptions: Interruptions) -> None:
    names = [netdev.name for netdev in link.dump(machine.sock)]
    assert set(names) - {"comes", "along"} == STAYING
    assert len(names) == len(set(names))
    assert len(interruptions.kinds) <= 3, "each dump locks all of the kernel's networks"
    index = machine.index("a7")
    link.create(machine.sock, "mv0", "macvlan", kinds.macvlan(), lower=index)
    assert [netdev.name for netdev in link.stacked_on(machine.sock, index)] == ["mv0"]


def test_a_watcher_begins_and_goes_on_although_each_dump_is_interrupted(
    machine: Machine, interruptions: Interruptions
) -> None:
    for number in (1, 2):
        address.add(machine.sock, machine.index("a3"), f"10.1.{number}.1/24")
    with machine.namespace.run(lambda: Watcher(NODE, settle=0.0)) as watcher:
        assert watcher.stale
        assert names_of(watcher) - {"comes", "along"} == STAYING
        addresses = {each.if_name: each.ipv4 for each in watcher.inventory.interfaces}
        assert addresses["a3"] == ("10.1.1.1/24", "10.1.2.1/24")
        assert watcher.inventory.unreadable == {}
        link.change(machine.sock, "a5", mtu=1400)
        watcher.handle()
        watcher.rescan()
        assert watcher.stale
        assert {each.if_name: each.mtu for each in watcher.inventory.interfaces}["a5"] == 1400
        assert watcher.inventory.unreadable == {}
        interruptions.over = True
        agree(watcher, machine)


def test_a_failed_rescan_keeps_the_inventory_and_is_retried_soon(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.veth("a", "b", up=True)
    address.add(machine.sock, machine.index("a"), "10.1.1.1/24")
    machine.at_rest()
    with machine.namespace.run(lambda: Watcher(NODE, settle=0.0)) as watcher:
        agree(watcher, machine)
        before = watcher.inventory

        def refuse(*_: object, **__: object) -> None:
            raise kernel_error(errno.ENOMEM, "cannot list")

        for target in ((netlink.Socket, "dump"), (netlink.Socket, "try_dump")):
            with monkeypatch.context() as patched:
                patched.setattr(*target, refuse)
                assert not watcher.rescan()
                assert watcher.stale
                assert watcher.inventory == before
                link.change(machine.sock, "b", mtu=1400)
                assert [after.mtu for _, after in watcher.rescan().changed] == [1400], "events are followed"
                link.change(machine.sock, "b", mtu=1500)
                watcher.handle()
                assert watcher.inventory == before
                assert 0 < watcher.timeout < 60, "it is tried again soon, but not at once"
        agree(watcher, machine)


def test_retries_of_a_reading_are_further_and_further_apart(machine: Machine, interruptions: Interruptions) -> None:
    with machine.namespace.run(lambda: Watcher(NODE, settle=0.0)) as watcher:
        waits = []
        for _ in range(5):
            waits.append(watcher.timeout)
            watcher.rescan()
        assert waits == sorted(waits)
        assert waits[-1] > 4 * waits[0]


def test_readings_after_lost_events_are_apart(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "_RECEIVE_BUFFER", 4096)
    make_links(machine)
    with machine.namespace.run(lambda: Watcher(NODE, settle=0.0)) as watcher:
        while watcher.overflows < 30:
            for mtu in range(1300, 1330):
                link.change(machine.sock, "a0", mtu=mtu)
            watcher.handle()
        assert watcher.rescans < 20
        agree(watcher, machine)
        assert 1 <= watcher.rescans < 20


@contextmanager
def storm(machine: Machine, pairs: int) -> Iterator[None]:
    """Veth pairs that come and go as fast as the kernel makes them, by a process of its own."""
    lines = "".join(
        f"link add s{number % 50} type veth peer name t{number % 50}\nlink del s{number % 50}\n"
        for number in range(pairs)
    )
    command = ("ip", "-n", machine.name, "-batch", "-")
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None

        def feed(text: str = lines) -> None:
            with process.stdin:  # type: ignore[union-attr]
                process.stdin.write(text)  # type: ignore[union-attr]

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            yield
        finally:
            feeder.join()
            process.wait()


def test_a_real_storm_ends_no_watcher(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "_RECEIVE_BUFFER", 64 * 1024)  # so that events are lost, too
    make_links(machine, 500)
    stay = names = {netdev.name for netdev in link.dump(machine.sock)}
    with storm(machine, 400), machine.namespace.run(lambda: Watcher(NODE, settle=0.0)) as watcher:
        for number in range(15):
            watcher.wait(0.1)
            link.change(machine.sock, f"a{number}", mtu=1400 + number)
            names = names_of(watcher)
            assert stay <= names
            if number % 5 == 0:
                watcher.rescan()
                assert stay <= {netdev.name for netdev in link.dump(machine.sock)}
    with machine.namespace.run(lambda: Watcher(NODE, settle=0.0)) as after:
        assert names_of(after) == stay
        mtus = {each.if_name: each.mtu for each in after.inventory.interfaces}
        assert [mtus[f"a{number}"] for number in range(15)] == [1400 + number for number in range(15)]


def test_a_daemon_that_cannot_read_the_kernel_yet_begins_when_it_can(machine: Machine) -> None:
    machine.veth("a", "b")
    attempts = 0

    def watch() -> Watcher:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise kernel_error(errno.ENOBUFS, "cannot list links")
        return machine.namespace.run(lambda: Watcher(NODE, settle=0.0))

    async def begin() -> set[str]:
        async with Interfaces.watching(watch, DeviceFiles()) as interfaces:
            return names_of(interfaces.watcher)

    assert asyncio.run(begin()) == {"lo", "a", "b"}
    assert attempts == 3


def test_events_of_a_storm_are_read_together(machine: Machine) -> None:
    machine.veth("a", "b")
    readings = 0

    async def follow() -> float:
        nonlocal readings

        async def count() -> None:
            nonlocal readings
            readings += 1
            link.change(machine.sock, "a", mtu=1000 + readings)  # the next event is there before the reading

        async with Interfaces.watching(
            lambda: machine.namespace.run(lambda: Watcher(NODE, settle=0.0)), DeviceFiles()
        ) as interfaces:
            link.change(machine.sock, "a", mtu=1000)
            began = time.monotonic()
            while time.monotonic() < began + 1:
                await interfaces.next(count)
                link.change(machine.sock, "b", mtu=1000 + readings)
            return time.monotonic() - began

    seconds = asyncio.run(follow())
    assert READINGS_AT_ONCE < readings <= READINGS_AT_ONCE + 1 + seconds / SECONDS_PER_READING


def test_events_that_change_no_interface_are_counted(machine: Machine) -> None:
    """A pair that comes and goes is not an interface meanwhile, so that nothing else is done for it."""

    def counted() -> float:
        (family,) = KERNEL_EVENTS.collect()
        return next(sample.value for sample in family.samples if sample.name == "netdra_discovery_events_total")

    async def clear() -> None:
        pass

    async def follow() -> None:
        async with Interfaces.watching(
            lambda: machine.namespace.run(lambda: Watcher(NODE)), DeviceFiles()
        ) as interfaces:
            before = counted()
            link.create(machine.sock, "comes", "veth", kinds.veth(kinds.Peer("along")))
            link.delete(machine.sock, "comes")
            assert not await interfaces.next(clear)
            assert counted() >= before + 4

    asyncio.run(follow())
