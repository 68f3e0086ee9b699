"""The kernel's own messages, sent again, make the same: compared as bytes, also what iproute2 does not print."""

from __future__ import annotations

import socket

import pytest

from netdra.kernel import address, link, replay, route_replay, uapi
from netdra.kernel.netlink import NLM_F_CREATE, attribute, attributes, u8, u32
from tests.kernel.conftest import Machine

IFA_PROTO = 11
_HEADER = 8  # struct ifaddrmsg


@pytest.fixture
def index(machine: Machine) -> int:
    """The index of `a`, a veth that is up with its peer."""
    machine.veth("a", "b", up=True)
    link.change(machine.sock, "b", up=True)
    return machine.index("a")


@pytest.mark.parametrize("text", ["10.1.2.3/24", "2001:db8::3/64"])
def test_an_address_has_its_protocol_and_metric_again(machine: Machine, index: int, text: str) -> None:
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    packed = socket.inet_pton(family, text.partition("/")[0])
    body = bytes((family, int(text.partition("/")[2]), 0, 0)) + u32(index)
    body += attribute(uapi.IFA_LOCAL, packed) + attribute(IFA_PROTO, u8(77)) + attribute(9, u32(55))
    machine.sock.request(uapi.RTM_NEWADDR, body, flags=NLM_F_CREATE, doing="add")

    def seen() -> dict[int, bytes]:
        (message,) = [one for one in replay.dump_addresses(machine.sock, index) if address.parse(one).text == text]
        fields = attributes(message, _HEADER)
        times = {uapi.IFA_CACHEINFO: fields[uapi.IFA_CACHEINFO][:8]}  # when it was made and changed follows
        volatile = {uapi.IFA_FLAGS: u32(address.parse(message).flags & ~uapi.IFA_F_TENTATIVE)}
        return fields | times | volatile

    before = seen()
    (message,) = [one for one in replay.dump_addresses(machine.sock, index) if address.parse(one).text == text]
    address.delete(machine.sock, index, text)
    used = message[:2] + b"\0" + message[3:]
    requests = replay.add_address(used, index, "a", None, None)
    assert machine.sock.request_all(requests) == [None] * len(requests)
    assert before[IFA_PROTO] == u8(77)
    assert seen() == before


def test_several_requests_are_made_in_their_order_and_each_has_its_own_error(machine: Machine, index: int) -> None:
    address.add(machine.sock, index, "10.1.2.3/24")
    machine.run("ip", "route", "add", "192.0.2.0/24", "via", "10.1.2.1")
    machine.run("ip", "route", "append", "192.0.2.0/24", "via", "10.1.2.2")
    first, _ = (
        route_replay.settable(body)
        for body in route_replay.dump(machine.sock)
        if route_replay.destination(body) == "192.0.2.0/24"
    )
    requests = [route_replay.delete(first), route_replay.delete(first), route_replay.add(first)]
    problems = machine.sock.request_all(requests)
    assert [problem is None for problem in problems] == [True, False, True]
    assert "cannot delete route to 192.0.2.0/24 via 10.1.2.1 (table 254)" in str(problems[1])
    assert [each["gateway"] for each in machine.ip("route", "show", "192.0.2.0/24")] == ["10.1.2.2", "10.1.2.1"]
    assert machine.sock.request_all([]) == []


def order(now: str, wanted: str, family: int = socket.AF_INET) -> str:
    """The changes as text: -x deletes, +x adds behind, ^x adds before."""
    signs = {None: "-", True: "+", False: "^"}

    def routes(letters: str) -> list[bytes]:
        return [bytes((family, ord(letter))) for letter in letters]

    return "".join(signs[last] + chr(body[1]) for body, last in route_replay.changes(routes(now), routes(wanted)))


@pytest.mark.parametrize(
    ("now", "wanted", "changes"),
    [
        ("", "a", "+a"),
        ("b", "ab", "^a"),
        ("b", "ba", "+a"),
        ("ba", "ab", "-a^a"),
        ("bc", "bac", "-c+a+c"),
        ("ab", "b", "-a"),
        ("ab", "", "-a-b"),
        ("ab", "ab", ""),
    ],
)
def test_routes_come_to_their_places_with_the_fewest_changes(now: str, wanted: str, changes: str) -> None:
    assert order(now, wanted) == changes


def test_routes_of_ipv6_are_added_behind_the_others_alone() -> None:
    assert order("b", "ab", socket.AF_INET6) == "-b+a+b"
