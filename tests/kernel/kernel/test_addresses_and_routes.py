"""Addresses and routes as iproute2 then sees them."""

from __future__ import annotations

import socket

import msgspec
import pytest

from netdra.discovery.routes import MadeRoutes
from netdra.kernel import address, link, route
from netdra.kernel.errors import KernelExistsError, KernelMissingError, KernelRefusedError
from netdra.kernel.route import Route
from netdra.model.errors import InvalidInputError
from testbed.waiting import until
from tests.kernel.conftest import Machine


@pytest.fixture
def index(machine: Machine) -> int:
    """The index of `a`, a veth that is up with its peer."""
    machine.veth("a", "b", up=True)
    link.change(machine.sock, "b", up=True)
    return machine.index("a")


def test_addresses_with_broadcast_and_without_detection(machine: Machine, index: int) -> None:
    for text in ("10.1.2.3/24", "10.9.9.9/32", "fd00::3/64"):
        address.add(machine.sock, index, text)
    seen = {each["local"]: each for each in machine.ip("address", "show", "a")[0]["addr_info"]}
    assert seen["10.1.2.3"]["broadcast"] == "10.1.2.255"
    assert "broadcast" not in seen["10.9.9.9"]
    assert seen["fd00::3"]["nodad"] is True
    assert "tentative" not in seen["fd00::3"]
    ours = {each.text for each in address.dump(machine.sock, index)}
    assert {"10.1.2.3/24", "10.9.9.9/32", "fd00::3/64"} <= ours
    with pytest.raises(KernelExistsError, match=r"10\.1\.2\.3/24"):
        address.add(machine.sock, index, "10.1.2.3/24")
    address.delete(machine.sock, index, "10.1.2.3/24")
    with pytest.raises(KernelMissingError):
        address.delete(machine.sock, index, "10.1.2.3/24")


def test_only_the_addresses_of_one_link_are_listed(machine: Machine, index: int) -> None:
    address.add(machine.sock, index, "10.1.2.3/24")
    address.add(machine.sock, machine.index("b"), "10.1.2.4/24")
    assert [each.text for each in address.dump(machine.sock, index, socket.AF_INET)] == ["10.1.2.3/24"]


MANY = [*(f"10.{number}.0.5/24" for number in range(1, 21)), *(f"fd00:{number}::5/64" for number in range(1, 21))]


@pytest.mark.parametrize(
    "wanted",
    [
        (),
        ("10.7.0.5/24",),
        ("10.7.0.5/16", "10.7.0.6/24", "fd00:9::5/64"),
        ("10.0.0.24/24", "2.0.10.1/24"),  # bytes that are in each message, but are not its IP
        tuple(MANY[5:35]),
    ],
    ids=len,
)
def test_addresses_are_found_by_their_ips_among_many(machine: Machine, index: int, wanted: tuple[str, ...]) -> None:
    for text in MANY:
        address.add(machine.sock, index, text)
    address.add(machine.sock, machine.index("b"), "10.7.0.6/24")
    hosts = {text.partition("/")[0] for text in wanted}
    expected = [entry for entry in address.dump(machine.sock, index) if entry.text.partition("/")[0] in hosts]
    assert address.find(machine.sock, index, wanted) == expected
    assert len(expected) == len({text.partition("/")[0] for text in MANY} & hosts)


ROUTES = [
    Route(destination="0.0.0.0/0", gateway="10.1.2.1", metric=50, mtu=1300, advmss=1200),
    Route(destination="192.0.2.0/24", gateway="10.1.2.1", table=1000, source="10.1.2.3"),
    Route(destination="198.51.100.0/24", metric=5),
    Route(destination="203.0.113.0/24", gateway="172.16.0.1", on_link=True),
    Route(destination="::/0", gateway="fd00::1", metric=70),
    Route(destination="2001:db8::/32", table=77, gateway="fd00::1"),
]


@pytest.mark.parametrize("wanted", ROUTES, ids=lambda each: each.destination)
def test_a_route_is_read_back_as_it_was_added(machine: Machine, index: int, wanted: Route) -> None:
    address.add(machine.sock, index, "10.1.2.3/24")
    address.add(machine.sock, index, "fd00::3/64")
    wanted = msgspec.structs.replace(wanted, index=index)
    route.add(machine.sock, wanted)
    family = socket.AF_INET6 if ":" in wanted.destination else socket.AF_INET
    (found,) = (
        each for each in route.dump(machine.sock, family, wanted.table) if each.destination == wanted.destination
    )
    same = msgspec.structs.replace(found, links=(), scope=None, metric=found.metric if wanted.metric else 0)
    assert same == wanted
    with pytest.raises(KernelExistsError, match="cannot add route"):
        route.add(machine.sock, msgspec.structs.replace(wanted, metric=found.metric))
    route.delete(machine.sock, wanted)
    with pytest.raises(KernelMissingError):
        route.delete(machine.sock, wanted)


@pytest.mark.parametrize("wanted", ROUTES, ids=lambda each: each.destination)
def test_routes_through_one_link_are_listed_without_all_others(machine: Machine, index: int, wanted: Route) -> None:
    for each, number in ((index, 3), (machine.index("b"), 4)):
        address.add(machine.sock, each, f"10.1.{number}.{number}/24")
        address.add(machine.sock, each, f"fd0{number}::3/64")
    other = machine.index("b")
    plain = msgspec.structs.replace(wanted, gateway="", on_link=False, source="")
    for each in (index, other):
        route.add(machine.sock, msgspec.structs.replace(plain, index=each, metric=900 + each))
    everything, through = _both(machine, index)
    assert through == [each for each in everything if index in each.links]
    assert plain.destination in {each.destination for each in through}
    assert any(each.index == other for each in everything)


def _both(machine: Machine, index: int) -> tuple[list[Route], list[Route]]:
    """All routes and those through one link, of one state: the kernel adds some of IPv6 in the background."""

    def at_rest() -> tuple[list[Route], list[Route]] | None:
        before = route.dump(machine.sock)
        through = route.dump(machine.sock, through=index)
        return (before, through) if before == route.dump(machine.sock) else None

    return until(at_rest, "the routes to come to rest")


def test_iproute2_sees_the_same_route(machine: Machine, index: int) -> None:
    address.add(machine.sock, index, "10.1.2.3/24")
    route.add(machine.sock, msgspec.structs.replace(ROUTES[0], index=index))
    (seen,) = machine.ip("route", "show", "default")
    assert (seen["gateway"], seen["dev"], seen["metric"]) == ("10.1.2.1", "a", 50)
    assert seen["metrics"] == [{"mtu": 1300, "advmss": 1200}]


def test_links_of_default_routes_and_of_added_routes_are_found_in_all_tables(machine: Machine, index: int) -> None:
    address.add(machine.sock, index, "10.1.2.3/24")
    address.add(machine.sock, index, "fd00::3/64")
    for each in (
        Route(destination="0.0.0.0/0", gateway="10.1.2.1", index=index),
        Route(destination="0.0.0.0/0", index=machine.index("b"), table=4000),
        Route(destination="::/0", gateway="fd00::1", index=index, table=9),
        Route(destination="10.0.0.0/8", gateway="10.1.2.1", index=index),
    ):
        route.add(machine.sock, each)
    machine.run("ip", "route", "add", "unreachable", "default", "table", "5")
    routes = MadeRoutes(route.dump_made(machine.sock))
    assert routes.default_links == routes.links == {index, machine.index("b")}


def test_the_routes_that_come_with_an_address_are_nobodys(machine: Machine, index: int) -> None:
    address.add(machine.sock, index, "10.1.2.3/24")
    address.add(machine.sock, index, "fd00::3/64")
    assert route.dump_made(machine.sock) == []
    route.add(machine.sock, Route(destination="10.0.0.0/8", gateway="10.1.2.1", index=index))
    routes = MadeRoutes(route.dump_made(machine.sock))
    assert (routes.default_links, routes.links) == (frozenset(), frozenset({index}))


def test_a_route_that_cannot_be(machine: Machine, index: int) -> None:
    with pytest.raises(KernelRefusedError, match=r"via 10\.9\.9\.1 .*ENETUNREACH"):
        route.add(machine.sock, Route(destination="192.0.2.0/24", gateway="10.9.9.1", index=index))
    with pytest.raises(InvalidInputError, match="neither a link nor a gateway"):
        route.add(machine.sock, Route(destination="192.0.2.0/24"))
