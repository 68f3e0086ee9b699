"""Routes that are counted from the kernel's messages are the routes that the kernel lists, after any change."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.discovery.routes import MadeRoutes
from netdra.discovery.watch import Watcher
from netdra.kernel import address, link, route
from netdra.model.inventory import InventoryNode
from testbed.waiting import until
from tests.draws import count
from tests.kernel.conftest import Machine, new_machine

LINKS = ("p1", "p2", "p3", "p4")
_links = st.sampled_from(LINKS[:3])
_gateways = {4: ("10.0.0.1", "10.0.0.2"), 6: ("fd00::1", "fd00::2")}


def _through(family: int) -> st.SearchStrategy[str]:
    gateways = st.sampled_from(_gateways[family])
    return st.builds(lambda gateway, name: f"via {gateway} dev {name} onlink", gateways, _links)


def _hops(family: int) -> st.SearchStrategy[str]:
    several = st.lists(_through(family), min_size=2, max_size=3, unique=True)
    through = st.one_of(_through(family), several.map(lambda hops: " ".join(f"nexthop {hop}" for hop in hops)))
    return st.one_of(_on_link, through) if family == 4 else through


_on_link = _links.map(lambda name: f"dev {name}")
# Few, so that most commands meet a route that is there. Routes of IPv6 with and without a gateway have destinations of
# their own: if they share one, a route may replace both sorts, and no message of the kernel says so.
_TARGETS = {
    4: ("0.0.0.0/0 table 254 metric 10", "10.1.0.0/16 table 1000 metric 10"),
    6: ("::/0 table 254 metric 10", "fd01::/64 table 1000 metric 10"),
}
_ON_LINK_TARGET = "fd02::/64 table 1000 metric 10"


def _routes(target: st.SearchStrategy[str], hops: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    verbs = st.sampled_from(["append", "append", "prepend", "replace", "replace", "del"])
    return st.builds(lambda verb, target, hops: f"route {verb} {target} {hops}", verbs, target, hops)


_four = _routes(st.sampled_from(_TARGETS[4]), _hops(4))
_six = _routes(st.sampled_from(_TARGETS[6]), _hops(6))


def _renewed(name: str) -> str:
    return f"link del {name}\nlink add {name} type veth peer name peer-{name}\nlink set {name} up"


_changes = st.one_of(
    st.builds(lambda target: f"route del {target}", st.sampled_from((*_TARGETS[4], *_TARGETS[6]))),
    st.builds(lambda name: f"link set {name} down", _links),
    st.builds(lambda name: f"link set {name} down\nlink set {name} up", _links),
    st.just("\n".join(f"link set {name} up" for name in LINKS)),
    st.builds(_renewed, _links),
    st.builds(lambda name: f"addr del 10.9.0.{name[1]}/24 dev {name}", _links),
    st.builds(
        lambda name: (
            f"addr replace 10.9.0.{name[1]}/24 dev {name}\nroute add 10.3.0.0/16 dev {name} src 10.9.0.{name[1]}"
        ),
        _links,
    ),
    st.just("route flush table 1000"),
)
_commands = st.one_of(_four, _four, _four, _six, _six, _routes(st.just(_ON_LINK_TARGET), _on_link), _changes)


def contents(routes: MadeRoutes) -> object:
    """All next hops by key; in IPv4 the first of a key apart, for it is the one that is replaced."""
    return (
        {key: (key[0] == 2 and group[0], {frozenset(hops) for hops in group}) for key, group in routes._groups.items()},
        routes.links,
        routes.default_links,
    )


def agree(watcher: Watcher, machine: Machine) -> None:
    def agrees() -> bool:
        watcher.handle()
        listed = MadeRoutes(route.dump_made(machine.sock))
        counted = watcher._facts.routes
        return contents(counted) == contents(listed)

    until(
        agrees,
        "the routes to agree with a dump",
        seconds=5.0,
        detail=lambda: (
            contents(watcher._facts.routes),
            contents(MadeRoutes(route.dump_made(machine.sock))),
        ),
    )


@pytest.fixture
def routed(machine: Machine) -> Machine:
    """A namespace with links that are up, and an address without which no gateway can be reached."""
    return with_links(machine)


def with_links(machine: Machine) -> Machine:
    for name in LINKS:
        machine.veth(name, f"peer-{name}", up=True)
        link.change(machine.sock, f"peer-{name}", up=True)
    address.add(machine.sock, machine.index("p4"), "10.9.9.9/24")
    return machine


def run(machine: Machine, commands: list[str]) -> None:
    command = ("ip", "-n", machine.name, "-force", "-batch", "-")
    subprocess.run(command, input="\n".join(commands), text=True, stderr=subprocess.DEVNULL, check=False)


@settings(max_examples=count(40, 250))
@given(st.lists(st.lists(_commands, min_size=4, max_size=8), min_size=4, max_size=8))
def test_counted_routes_are_the_listed_routes(batches: list[list[str]]) -> None:
    for machine in map(with_links, new_machine()):
        with machine.namespace.run(lambda: Watcher(InventoryNode(name="worker-1"))) as watcher:
            for batch in batches:
                run(machine, batch)
                agree(watcher, machine)
            assert watcher.rescans == 0


def test_a_route_that_went_with_its_link_and_came_again_is_behind_the_others(routed: Machine) -> None:
    target = "0.0.0.0/0 table 254 metric 10"
    with routed.namespace.run(lambda: Watcher(InventoryNode(name="worker-1"))) as watcher:
        run(
            routed,
            [
                f"route append {target} dev p1",
                f"route prepend {target} dev p2",
                "link set p2 down\nlink set p2 up",
                f"route append {target} dev p2",
            ],
        )
        agree(watcher, routed)
        assert watcher.rescans == 0


@pytest.mark.parametrize(
    ("hops", "loss"),
    [
        ("via 10.0.0.1 dev p2 onlink", "link set p2 down\nlink set p2 up"),
        ("dev p2 src 10.9.0.2", "addr del 10.9.0.2/24 dev p2"),
    ],
)
def test_a_replace_after_a_silent_route_loss_replaces_the_first_remaining_route(
    routed: Machine, hops: str, loss: str
) -> None:
    """The kernel's message about the new route does not state in whose place it stands."""
    target = "0.0.0.0/0 table 254 metric 10"
    with routed.namespace.run(lambda: Watcher(InventoryNode(name="worker-1"))) as watcher:
        first = ["addr add 10.9.0.2/24 dev p2", f"route append {target} dev p1", f"route prepend {target} {hops}"]
        run(routed, first)
        agree(watcher, routed)
        run(routed, [loss, f"route replace {target} dev p3"])
        agree(watcher, routed)
        assert watcher.rescans == 0


@pytest.mark.parametrize("on_link_first", [True, False])
def test_a_route_with_a_gateway_and_one_without_replace_each_other(routed: Machine, on_link_first: bool) -> None:
    on_link, through = "dev p1", "nexthop via fd00::1 dev p2 onlink nexthop via fd00::2 dev p3 onlink"
    with routed.namespace.run(lambda: Watcher(InventoryNode(name="worker-1"))) as watcher:
        for hops in (on_link, through, on_link) if on_link_first else (through, on_link, through):
            run(routed, [f"route replace fd01::/64 metric 10 {hops}"])
            agree(watcher, routed)
            assert watcher._facts.routes.links == {routed.index(name) for name in LINKS if f"dev {name}" in hops}
