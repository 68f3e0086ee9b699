"""A new pair of links waits until it is known whose it is: a pod's wire is never offered, a node's own pair is soon."""

from __future__ import annotations

import contextlib
import errno
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from netdra.discovery import live
from netdra.discovery.pairs import SETTLE_SECONDS
from netdra.discovery.scan import scan
from netdra.discovery.watch import Watcher
from netdra.exposure import expose
from netdra.kernel import link, pod_namespaces
from netdra.kernel.errors import EventsLostError, kernel_error
from netdra.kernel.monitor import Event
from netdra.kernel.netns import Namespace
from netdra.model.inventory import Inventory, InventoryNode
from testbed.waiting import until
from tests.builders import exclusive
from tests.kernel.conftest import Machine, new_machine
from tests.wires import WAYS, named, pods

NODE = InventoryNode(name="worker-1")
VETHS = (exclusive("veths", 'device.attributes["dra.networking"].type == "veth"'),)
COUNT = 50
SOON = SETTLE_SECONDS + 1.0
"""Seconds within which a node's own pair is offered, on a busy machine too."""


@pytest.fixture
def watcher(machine: Machine) -> Iterator[Watcher]:
    with machine.namespace.run(lambda: Watcher(NODE)) as opened:
        yield opened


def offered(inventory: Inventory) -> set[str]:
    """The devices of a policy for all veths."""
    return {device.name for device in expose(inventory, VETHS).devices}


def followed(watcher: Watcher, while_: Callable[[], bool]) -> Iterator[set[str]]:
    """The offered devices after each reading, while a condition holds."""
    yield offered(watcher.inventory)
    while while_():
        if watcher.wait(0.05):
            yield offered(watcher.inventory)


def wait_offered(watcher: Watcher, *names: str) -> None:
    def arrived() -> bool:
        watcher.handle()
        return set(names) <= offered(watcher.inventory)

    until(arrived, f"{', '.join(names)} to be offered", detail=lambda: watcher.inventory)


def test_the_wires_of_50_pods_are_never_offered_and_the_nodes_own_pair_is_soon(
    machine: Machine, watcher: Watcher
) -> None:
    with pods(COUNT) as spaces:
        wires = {f"wire{number}" for number in range(COUNT)}

        def make() -> None:
            for number, pod in enumerate(spaces):
                WAYS[number % len(WAYS)](machine, pod, f"wire{number}")

        making = threading.Thread(target=make)
        making.start()
        seen: set[str] = set()
        for names in followed(watcher, making.is_alive):
            seen |= names
        making.join()
        machine.veth("own", "peer")
        began = time.monotonic()
        for names in followed(watcher, lambda: not {"own", "peer"} <= offered(watcher.inventory)):
            seen |= names
        took = time.monotonic() - began
        assert SETTLE_SECONDS <= took < SOON
        wait = time.monotonic() + SETTLE_SECONDS
        for names in followed(watcher, lambda: time.monotonic() < wait):
            seen |= names
        assert seen == {"own", "peer"}
        uses = {each.if_name: each.host_use for each in watcher.inventory.interfaces}
        assert {uses[wire] for wire in wires} == {("pod-peer",)}
        assert watcher.rescans == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_wire_is_a_pods_at_once_and_there_is_nothing_to_publish_before(
    machine: Machine, pod: Machine, watcher: Watcher, way: Callable[[Machine, Machine, str], None]
) -> None:
    way(machine, pod, "wire")
    while not (change := watcher.wait(SETTLE_SECONDS)):
        pass
    assert [(each.if_name, each.host_use) for each in change.added] == [("wire", ("pod-peer",))]
    assert (change.changed, change.removed) == ((), ())


def test_an_end_that_is_reported_before_it_is_connected_is_read_again(
    machine: Machine, pod: Machine, watcher: Watcher
) -> None:
    """The only message about the node's end has no other end in it."""
    pod.veth("eth0", "wire", peer_in=machine.namespace)
    (wire,) = watcher.handle().added
    assert (wire.if_name, wire.host_use) == ("wire", ("pod-peer",))


def test_a_namespace_that_gets_its_name_after_its_wire(machine: Machine, watcher: Watcher) -> None:
    with Namespace.anonymous() as space:
        machine.veth("wire", "eth0", peer_in=space)
        assert not watcher.handle()
        with named(space, f"cni-{uuid.uuid4()}"):
            while not (changes := watcher.wait()):
                pass
            assert [each.host_use for each in changes.added] == [("pod-peer",)]


def test_a_namespace_that_loses_its_name_before_its_wire_goes(machine: Machine, watcher: Watcher) -> None:
    """A process of the pod may still be in it."""
    with Namespace.anonymous() as space:
        with named(space, f"cni-{uuid.uuid4()}"):
            machine.veth("wire", "eth0", peer_in=space)
            watcher.handle()
        link.change(machine.sock, "wire", mtu=1400)
        watcher.rescan()
        assert [each.host_use for each in watcher.inventory.interfaces if each.if_name == "wire"] == [("pod-peer",)]


def test_an_offered_pair_whose_other_end_moves_into_a_pod_is_withdrawn_with_that_event(
    machine: Machine, pod: Machine, watcher: Watcher
) -> None:
    machine.veth("own", "peer")
    wait_offered(watcher, "own", "peer")
    link.change(machine.sock, "peer", netns_fd=pod.namespace.fd)
    watcher.handle()
    assert offered(watcher.inventory) == set()


def test_an_offered_pair_whose_other_end_moves_elsewhere_is_withdrawn_until_it_has_stayed_there(
    machine: Machine, other: Machine, watcher: Watcher
) -> None:
    machine.veth("own", "peer")
    wait_offered(watcher, "own", "peer")
    link.change(machine.sock, "peer", netns_fd=other.namespace.fd)
    changes = watcher.handle()
    ((_, after),) = changes.changed
    assert (after.if_name, after.peer_unknown) == ("own", True)
    assert offered(watcher.inventory) == set()
    wait_offered(watcher, "own")


def test_a_pairs_end_that_a_pod_gives_back_is_offered_at_once(machine: Machine, pod: Machine, watcher: Watcher) -> None:
    machine.veth("own", "peer")
    wait_offered(watcher, "own", "peer")
    link.change(machine.sock, "own", netns_fd=pod.namespace.fd)
    watcher.handle()
    assert offered(watcher.inventory) == set()
    link.change(pod.sock, "own", netns_fd=machine.namespace.fd)
    watcher.handle()
    assert offered(watcher.inventory) == {"own", "peer"}


def test_an_end_that_comes_back_to_an_other_end_in_a_third_namespace_is_offered_at_once(
    machine: Machine, pod: Machine, other: Machine, watcher: Watcher
) -> None:
    machine.veth("own", "far", peer_in=other.namespace)
    wait_offered(watcher, "own")
    for _ in range(2):
        link.change(machine.sock, "own", netns_fd=pod.namespace.fd)
        watcher.handle()
        assert offered(watcher.inventory) == set()
        link.change(pod.sock, "own", netns_fd=machine.namespace.fd)
        watcher.handle()
        assert offered(watcher.inventory) == {"own"}
    link.change(machine.sock, "own", netns_fd=pod.namespace.fd)
    link.delete(pod.sock, "own")
    machine.veth("own", "far", peer_in=other.namespace)
    watcher.handle()
    assert offered(watcher.inventory) == set()


@pytest.mark.parametrize("way", WAYS)
def test_changes_by_pods_alone_are_known_as_such(
    machine: Machine, pod: Machine, watcher: Watcher, way: Callable[[Machine, Machine, str], None]
) -> None:
    link.create(machine.sock, "cni0", "bridge")
    bridge = link.get(machine.sock, "cni0").index
    machine.run("ip", "link", "set", "cni0", "up", "address", "02:00:00:00:00:01")  # as CNI's bridge plugin does
    machine.veth("port", "far", up=True)
    link.change(machine.sock, "port", up=True, master=bridge)
    link.change(machine.sock, "far", up=True)

    def changes_of(act: Callable[[], object]) -> set[str]:
        """The names that change by pods alone; an empty name for other changes."""
        act()
        found, ends = set[str](), time.monotonic() + 1.5 * SETTLE_SECONDS
        while time.monotonic() < ends:
            if changes := watcher.wait(0.05):
                found |= changes.of_pods or {""}
        return found

    changes_of(lambda: None)
    assert changes_of(lambda: way(machine, pod, "wire")) == {"wire"}
    assert changes_of(lambda: link.change(machine.sock, "wire", master=bridge)) == {"wire", "cni0"}
    assert changes_of(lambda: link.delete(machine.sock, "wire")) == {"wire", "cni0"}
    assert changes_of(lambda: machine.veth("own", "peer")) == {""}


def test_pairs_that_are_there_when_the_watcher_begins_are_no_interfaces_before_their_time(
    machine: Machine, pod: Machine
) -> None:
    machine.veth("own", "peer")
    machine.veth("wire", "eth0", peer_in=pod.namespace)
    with machine.namespace.run(lambda: Watcher(NODE)) as watcher:
        assert [each.if_name for each in watcher.inventory.interfaces] == ["lo", "wire"]
        assert 0.0 < watcher.settling <= SETTLE_SECONDS
        wait_offered(watcher, "own", "peer")
        assert watcher.settling == 0.0


def test_pairs_are_not_offered_by_a_reading_after_lost_events(
    machine: Machine, pod: Machine, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.veth("own", "peer")
    wait_offered(watcher, "own", "peer")

    read, lost = watcher._monitor.read, [EventsLostError("the socket's buffer overflowed")]

    def lose() -> list[Event]:
        if lost:
            raise lost.pop()
        return read()

    machine.veth("early", "late")
    machine.veth("wire", "there")
    monkeypatch.setattr(watcher._monitor, "read", lose)
    watcher.handle()
    assert (watcher.overflows, watcher.rescans) == (1, 1)
    assert offered(watcher.inventory) == {"own", "peer"}
    link.change(machine.sock, "there", netns_fd=pod.namespace.fd)
    wait_offered(watcher, "early", "late")
    assert offered(watcher.inventory) == {"own", "peer", "early", "late"}


def test_while_pods_namespaces_cannot_be_read_a_pair_into_another_namespace_is_not_offered(
    machine: Machine, other: Machine, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.veth("wire", "far", peer_in=other.namespace)
    wait_offered(watcher, "wire")

    def refuse(*_: object) -> None:
        raise kernel_error(errno.EMFILE, "cannot open")

    with contextlib.contextmanager(new_machine)(f"cni-{uuid.uuid4()}"), monkeypatch.context() as patched:
        patched.setattr(pod_namespaces, "id_of", refuse)
        watcher.rescan()
        (wire,) = [each for each in watcher.inventory.interfaces if each.if_name == "wire"]
        assert wire.peer_unknown
        assert offered(watcher.inventory) == set()
    watcher.rescan()
    assert offered(watcher.inventory) == {"wire"}


def test_a_scan_waits_until_it_is_known_whose_pairs_are(machine: Machine, pod: Machine) -> None:
    machine.veth("own", "peer")
    machine.veth("wire", "there")
    moving = threading.Timer(SETTLE_SECONDS / 2, lambda: link.change(machine.sock, "there", netns_fd=pod.namespace.fd))
    moving.start()
    with machine.namespace.run(live.Kernel) as kernel:
        found = scan(NODE, kernel)
    moving.join()
    assert offered(found) == {"own", "peer"}
    assert {each.if_name: each.host_use for each in found.interfaces}["wire"] == ("pod-peer",)


def test_a_scan_does_not_wait_where_no_pairs_are_on_the_node(machine: Machine, pod: Machine) -> None:
    link.create(machine.sock, "nic", "bridge")
    machine.veth("wire", "eth0", peer_in=pod.namespace)
    with machine.namespace.run(live.Kernel) as kernel:
        began = time.monotonic()
        scan(NODE, kernel)
        assert time.monotonic() - began < SETTLE_SECONDS
