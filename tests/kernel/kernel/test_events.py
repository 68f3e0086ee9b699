"""Events of links, addresses and routes arrive; a socket that ran over states so; foreign senders are not heard."""

from __future__ import annotations

import select
import socket

import pytest

from netdra.kernel import address, link, monitor, netlink, route
from netdra.kernel.errors import EventsLostError
from netdra.kernel.monitor import AddressEvent, LinkEvent, Monitor, RouteEvent
from netdra.kernel.route import Route
from tests.kernel.conftest import Machine


def test_link_events_arrive_in_order_along_with_address_and_route_events(machine: Machine) -> None:
    with machine.namespace.run(Monitor) as events:
        machine.veth("a", "b", up=True)
        index = machine.index("a")
        address.add(machine.sock, index, "10.1.2.3/24")
        route.add(machine.sock, Route(destination="0.0.0.0/0", gateway="10.1.2.1", index=index))
        link.change(machine.sock, "a", name="eth9")
        link.delete(machine.sock, "eth9")
        arrived = events.read()
    links = [(each.link.name, each.gone) for each in arrived if isinstance(each, LinkEvent)]
    assert links.index(("a", False)) < links.index(("eth9", False)) < links.index(("eth9", True))
    assert ("b", True) in links
    assert ("10.1.2.3/24", False) in [
        (each.address.text, each.gone) for each in arrived if isinstance(each, AddressEvent)
    ]
    assert any(each.route.is_default for each in arrived if isinstance(each, RouteEvent))


def test_leaving_a_bridge_is_not_the_end_of_a_link(machine: Machine) -> None:
    machine.veth("a", "b")
    link.create(machine.sock, "br0", "bridge")
    with machine.namespace.run(Monitor) as events:
        link.change(machine.sock, "a", master=machine.index("br0"))
        link.change(machine.sock, "a", master=0)
        arrived = [each for each in events.read() if isinstance(each, LinkEvent)]
    assert arrived
    assert not any(each.gone for each in arrived)


def test_a_socket_overflow_raises_events_lost_and_later_events_are_read(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "_RECEIVE_BUFFER", 4096)
    with machine.namespace.run(Monitor) as events:
        for number in range(20):
            machine.veth(f"a{number}", f"b{number}")
        with pytest.raises(EventsLostError):
            events.read()
        events.read()
        machine.veth("last", "peer")
        assert "last" in {each.link.name for each in events.read() if isinstance(each, LinkEvent)}


def test_nothing_waits(machine: Machine) -> None:
    with machine.namespace.run(Monitor) as events:
        assert events.read() == []
        assert select.select([events], [], [], 0)[0] == []


def test_other_processes_are_not_taken_for_the_kernel(machine: Machine) -> None:
    def send(port: int) -> None:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, netlink.NETLINK_ROUTE) as forged:
            forged.sendto(b"\x20\0\0\0\x10\0" + b"\0" * 26, (port, 0))

    with machine.namespace.run(Monitor) as events:
        port = events._socket.getsockname()[0]
        machine.namespace.run(lambda: send(port))
        assert events.read() == []
        machine.veth("a", "b")
        assert events.read()


def test_a_dump_that_changes_meanwhile_is_asked_for_again(machine: Machine) -> None:
    for number in range(300):
        machine.veth(f"a{number}", f"b{number}")
    interrupted = _Interrupting(machine)
    machine.namespace.run(interrupted.open)
    with interrupted:
        names = {each.name for each in link.dump(interrupted)}
    assert interrupted.dumps > 1
    assert {"renamed", "b299"} <= names
    assert "a0" not in names


class _Interrupting(netlink.Socket):
    """A socket during whose first dump a link is renamed, as another process would."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.dumps = 0

    def open(self) -> None:
        super().__init__()

    def _send(self, kind: int, flags: int, body: bytes, doing: str) -> int:
        self.dumps += 1
        return super()._send(kind, flags, body, doing)

    def _receive(self, doing: str) -> bytes:
        if self.dumps == 1 and link.find(self.machine.sock, "renamed") is None:
            data = super()._receive(doing)
            link.change(self.machine.sock, "a0", name="renamed")
            link.delete(self.machine.sock, "a1")
            return data
        return super()._receive(doing)
