"""The node's configuration of a device is on the node again afterwards, exactly, as iproute2 sees all of it."""

from __future__ import annotations

import ipaddress
import json
import re
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from netdra.chain.detach import detach
from netdra.chain.report import DetachReport
from netdra.kernel.errors import KernelError
from netdra.kernel.netlink import Request, Socket
from netdra.model.plan import PlannedDevice
from netdra.steps import node_configuration
from testbed.waiting import until
from tests.kernel.chain.conftest import Bed, device, differences
from tests.kernel.conftest import Machine
from tests.plans import attach, plan, step

NIC: PlannedDevice = device("nic0", allow_host_use=True, allow_host_addresses=True)

VOLATILE = frozenset(
    {
        "ifindex",  # the kernel may give the device another
        "link_index",
        "unbalanced_time",  # a report of a resilient group
        "used",  # statistics of a neighbour
        "confirmed",
        "updated",
        "refcnt",
        "probes",
        "stats",
        "stats64",
        "qdisc",
        "operstate",  # follows the carrier in the background
        "flags",  # those of a link do so, too; those of addresses and routes are words of their own
        "tentative",  # the detection of a duplicate of the link-local address goes on
        "bridge_id",
        "root_id",
    }
)
COUNTS_DOWN = frozenset({"valid_life_time", "preferred_life_time", "expires"})
FOREVER = 0xFFFFFFFF


def node(bed: Bed) -> None:
    """Two NICs of a node and their other ends."""
    bed.run("ip", "link", "set", "lo", "up")
    for name, mac in (("nic0", "02:00:00:00:00:10"), ("nic1", "02:00:00:00:00:11")):
        bed.veth(name, name.replace("nic", "wire"), mac=mac, up=True)
        bed.run("ip", "link", "set", name.replace("nic", "wire"), "up")
    until(lambda: len(bed.ip("-6", "addr", "show", "scope", "link", "-tentative")) >= 4, "the links to be at rest")


def stable(value: Any) -> Any:
    """A value of iproute2 without what changes by itself; of a time that counts down only that it does."""
    if isinstance(value, dict):
        return {
            key: item in (0, FOREVER) and item if key in COUNTS_DOWN else stable(item)
            for key, item in value.items()
            if key not in VOLATILE
        }
    return [stable(item) for item in value if item != {}] if isinstance(value, list) else value


def seen(bed: Bed) -> dict[str, Any]:
    """Everything that the node has configured on its links, in the kernel's order."""

    def asked(program: str, *words: str) -> Any:
        return stable(json.loads(bed.run(program, "-j", "-d", *words) or "[]"))

    # These come with the carrier, each for its link alone. The kernel adds those to the node's own addresses, too, in
    # the background: where two links have one address, their order is by chance.
    local = ("fe80", "ff00")
    found: dict[str, Any] = {
        "addresses": [
            (each["ifname"], [info for info in each["addr_info"] if not info["local"].startswith("fe80")])
            for each in asked("ip", "addr")
        ],
        "nexthops": asked("ip", "nexthop"),
        "neighbours": sorted(asked("ip", "neigh", "show", "nud", "permanent"), key=str),
        "managed": sorted((each["dst"] for each in asked("ip", "neigh", "show") if "managed" in each), key=str),
        "proxies": sorted(asked("ip", "neigh", "show", "proxy"), key=str),
        "forwarding": sorted((each for each in asked("bridge", "fdb") if not each["mac"].startswith("33:33")), key=str),
        "groups": [
            (each["ifname"], [entry for entry in each["maddr"] if "static" in json.dumps(entry)])
            for each in asked("ip", "maddr")
        ],
    }
    for family in ("-4", "-6"):
        found[f"rules{family}"] = asked("ip", family, "rule")
        routes = asked("ip", family, "route", "show", "table", "all")
        found[f"routes{family}"] = [
            each for each in routes if not each["dst"].startswith(local) and not (family == "-6" and is_own(each))
        ]
    found["own"] = sorted((each for each in routes if is_own(each) and not each["dst"].startswith(local)), key=str)
    return found


def is_own(route: Mapping[str, Any]) -> bool:
    """Whether it is the kernel's route to an address of the node itself."""
    return route.get("type") in ("local", "anycast") and route.get("protocol") == "kernel"


def away(bed: Bed) -> None:
    """Attach the pod: nic0 leaves."""
    attach((plan(step("dev", "host-device", "net1", device=NIC)),), bed.container, bed.pod.path, bed.settings)


def back(bed: Bed) -> DetachReport:
    """Detach the pod: nic0 comes back."""
    return detach(bed.container.sandbox, bed.settings)


def addressed(bed: Bed) -> set[tuple[str, str]]:
    """The links with their IPv6 addresses."""
    return {(each["ifname"], info["local"]) for each in bed.ip("-6", "addr") for info in each.get("addr_info", ())}


def reached(bed: Bed) -> set[tuple[str, str]]:
    """The links with the IPv6 addresses that the kernel has made a route for, in the background."""
    return {(each["dev"], each["dst"]) for each in bed.ip("-6", "route", "show", "table", "local") if is_own(each)}


def comes_back(bed: Bed) -> None:
    """Everything is as it was after a pod that made its own."""
    until(lambda: addressed(bed) <= reached(bed), "the routes to the node's own addresses")
    before = seen(bed)
    away(bed)
    assert seen(bed) != before
    bed.run("ip", "addr", "add", "10.1.0.5/16", "dev", "net1", inside=True)
    bed.run("ip", "nexthop", "add", "id", "1", "dev", "net1", inside=True)
    report = back(bed)
    assert (report.is_clean, report.notes) == (True, ())
    is_again(bed, before)


def is_again(bed: Bed, before: dict[str, Any]) -> None:
    """Everything is as it was, at once, except the routes that the kernel adds in the background."""
    until(lambda: seen(bed)["own"] == before["own"], "the routes to the node's own addresses", seconds=5)
    assert differences(before, seen(bed)) == []


ADDRESSES = [
    "10.1.0.5/24 metric 100 label nic0:mgmt",
    "10.9.0.1 peer 10.9.0.2/32",
    "10.1.0.6/24",
    "10.1.0.7/24 broadcast 10.1.0.200 noprefixroute",
    "10.4.0.1/24 scope link",
    "10.5.0.1/31 valid_lft 4000 preferred_lft 0",
    "10.6.0.1/24 preferred_lft 0",
    "2001:db8:1::5/64 metric 77 nodad",
    "2001:db8:1::6/64",
    "2001:db8:1::7/128 home nodad",
    "2001:db8:2::5/64 noprefixroute nodad",
    "2001:db8:3::1 peer 2001:db8:3::2/128 nodad",
    "2001:db8:4::5/64 valid_lft 4000 preferred_lft 0 nodad",
]
ROUTES = [
    "172.16.1.0/24 via 10.1.0.1 dev nic0 metric 300 initcwnd 20 window 70000 mtu lock 1300 rto_min 20ms features ecn",
    "172.16.2.0/24 nexthop via 10.1.0.1 dev nic0 weight 3 nexthop via 10.2.0.1 dev nic1",
    "172.16.5.0/24 via 10.1.0.1 dev nic0 tos 0x10",
    "172.16.5.0/24 via 10.1.0.2 dev nic0",
    "172.16.6.0/24 via inet6 2001:db8:1::1 dev nic0 onlink proto bird",
    "172.16.7.0/24 via 10.2.0.1 dev nic1 src 10.1.0.5",
    "172.16.8.0/24 dev nic0 table 1000 scope link",
    "172.16.9.0/24 encap seg6 mode encap segs fc00::1 dev nic0",
    "local 172.16.10.0/24 dev nic0 table local",
    "blackhole 172.16.11.0/24",
    "default via 10.1.0.1 dev nic0 proto dhcp src 10.1.0.5 metric 1002",
    "2001:db8:f1::/64 via 2001:db8:1::1 dev nic0 metric 300 pref high expires 3000",
    "2001:db8:f2::/64 nexthop via 2001:db8:1::1 dev nic0 weight 2 nexthop via fe80::9 dev nic1",
    "2001:db8:f3::/64 nexthop via fe80::9 dev nic1 nexthop via 2001:db8:1::2 dev nic0 nexthop via fe80::8 dev nic1",
    "2001:db8:f4::/64 from 2001:db8:1::/64 via 2001:db8:1::1 dev nic0 mtu lock 1300",
    "2001:db8:f5::/64 encap seg6 mode encap segs fc00::1 dev nic0",
    "2001:db8:f6::/64 via 2001:db8:1::1 dev nic0 src 2001:db8:1::6",
    "2001:db8:f7::/64 via fe80::9 dev nic1 src 2001:db8:1::6",
    "default via fe80::1 dev nic0 proto static metric 2000",
]


def configure(bed: Bed, *commands: str) -> None:
    """Run commands of iproute2 on the node."""
    for command in commands:
        family = ("-6",) if "db8:" in command.split("via inet6")[0] or "fe80:" in command else ()
        program, *words = command.split()
        bed.run(program, *family, *words)


def with_addresses(bed: Bed) -> None:
    node(bed)
    configure(bed, *(f"ip addr add {text} dev nic0" for text in ADDRESSES))
    configure(bed, "ip addr add 10.2.0.5/24 dev nic1", "ip addr add 10.1.0.9/24 metric 100 dev nic1")
    until(lambda: not bed.ip("addr", "show", "tentative"), "the addresses to be checked for duplicates")


def test_addresses_come_back_with_all_attributes(bed: Bed) -> None:
    with_addresses(bed)
    comes_back(bed)


def test_routes_come_back_with_all_attributes_and_in_order(bed: Bed) -> None:
    with_addresses(bed)
    configure(bed, *(f"ip route add {text}" for text in ROUTES))
    configure(
        bed,
        *(f"ip route append 172.17.0.0/24 via {gateway}" for gateway in ("10.1.0.1", "10.2.0.1", "10.1.0.2")),
        *(f"ip route append 2001:db8:fa::/64 dev {name} metric 50" for name in ("nic0", "nic1")),
    )
    comes_back(bed)


def test_next_hop_objects_groups_and_their_routes_come_back(bed: Bed) -> None:
    with_addresses(bed)
    configure(
        bed,
        "ip nexthop add id 1 via 10.1.0.1 dev nic0 proto static",
        "ip nexthop add id 2 via 10.2.0.1 dev nic1",
        "ip nexthop add id 3 via 192.0.2.1 dev nic0 onlink encap seg6 mode encap segs fc00::1",
        "ip nexthop add id 4 via 2001:db8:1::1 dev nic0",
        "ip nexthop add id 5 via fe80::9 dev nic1",
        "ip nexthop add id 6 blackhole",
        "ip nexthop add id 10 group 1,5/2,200 proto zebra",
        "ip nexthop add id 11 group 1,3/2,1 type resilient buckets 8 idle_timer 60 unbalanced_timer 300",
        "ip nexthop add id 12 group 1",
        "ip nexthop add id 13 group 4/5",
        *(f"ip route add 172.16.{number}.0/24 nhid {number}" for number in (1, 2, 3, 4, 6, 10, 11, 12)),
        *(f"ip route add 2001:db8:{number}::/64 nhid {number}" for number in (4, 13)),
    )
    comes_back(bed)


def test_neighbours_forwarding_entries_and_groups_come_back(bed: Bed) -> None:
    with_addresses(bed)
    configure(
        bed,
        "ip neigh add 10.1.0.1 lladdr 02:00:00:00:00:01 dev nic0 protocol static",
        "ip neigh add 2001:db8:1::1 lladdr 02:00:00:00:00:01 dev nic0 router",
        "ip neigh add 10.1.0.2 lladdr 02:00:00:00:00:02 dev nic0 nud noarp",
        "ip neigh add 10.1.0.3 lladdr 02:00:00:00:00:03 dev nic0 extern_learn",
        "ip neigh add 10.1.0.4 dev nic0 managed",
        "ip neigh add proxy 10.1.0.77 dev nic0",
        "ip neigh add proxy 2001:db8:1::77 dev nic0 router",
        "bridge fdb add 02:00:00:00:00:77 dev nic0 self permanent",
        "ip maddr add 01:00:5e:00:00:77 dev nic0",
    )
    comes_back(bed)


def test_policy_rules_stay_as_they_are(bed: Bed) -> None:
    with_addresses(bed)
    configure(
        bed,
        "ip rule add iif nic0 lookup 107 priority 1007 suppress_prefixlength 0",
        "ip rule add from 2001:db8:1::5 oif nic0 lookup 107 priority 1007",
        "ip rule add from 10.1.0.5 fwmark 0x5/0xff lookup 107 priority 1008",
    )
    comes_back(bed)


ROUTER = "2001:db8:aa::/64"


@contextmanager
def router(other: Machine) -> Iterator[Callable[[int], None]]:
    """A router at the end of wire0: advertises a prefix and itself for so many seconds."""

    def opened() -> socket.socket:
        sock = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
        return sock

    sock, index = other.namespace.run(opened), other.index("wire0")
    network = ipaddress.ip_network(ROUTER)

    def advertise(lifetime: int) -> None:
        on_link_and_autonomous = 0xC0
        prefix = (3, 4, network.prefixlen, on_link_and_autonomous, lifetime, lifetime // 2, 0)
        option = struct.pack("!BBBBIII", *prefix) + network.network_address.packed
        sock.sendto(struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, lifetime, 0, 0) + option, ("ff02::1", 0, 0, index))

    with sock:
        yield advertise


def by_router(bed: Bed) -> list[dict[str, Any]]:
    """The default routes of the node that a router gave."""
    return [each for each in bed.ip("-6", "route", "show", "default") if each["protocol"] == "ra"]


def test_addresses_and_routes_of_a_router_are_never_made_permanent(bed: Bed, other: Machine) -> None:
    node(bed)
    bed.run("ip", "link", "set", "wire0", "netns", other.name)
    other.run("ip", "link", "set", "wire0", "up")
    configure(bed, "ip addr add 2001:db8:1::5/64 dev nic0 nodad")
    configure(bed, "ip route add 2001:db8:f1::/64 via fe80::1 dev nic0 expires 3000")
    with router(other) as advertise:
        comes_back_by_router(bed, advertise)


def comes_back_by_router(bed: Bed, advertise: Callable[[int], None]) -> None:
    def is_advertised() -> bool:
        # The router's own address is checked for duplicates at first, and nothing is sent from it until then.
        with suppress(OSError):
            advertise(1800)
        checked = bed.ip("-6", "addr", "show", "dev", "nic0", "tentative")
        return bool(by_router(bed)) and not any(each.get("addr_info") for each in checked)

    until(is_advertised, "the router to be heard")
    before = seen(bed)
    away(bed)
    report = back(bed)
    assert (report.is_clean, report.notes) == (True, ())
    (link,) = bed.ip("-6", "addr", "show", "dev", "nic0")
    lifetimes = {each["local"]: each["valid_life_time"] for each in link["addr_info"]}
    (own,) = [lifetimes[text] for text in lifetimes if text.startswith("2001:db8:aa:")]
    assert 0 < own <= 1800
    assert by_router(bed) == []
    until(is_advertised, "the router to be heard")
    is_again(bed, before)
    # The kernel removes only a route that is its own.
    advertise(0)
    until(lambda: not by_router(bed), "the router's leave")


def test_additions_of_others_meanwhile_are_left_alone(bed: Bed) -> None:
    with_addresses(bed)
    configure(
        bed,
        "ip nexthop add id 1 via 10.1.0.1 dev nic0",
        "ip nexthop add id 2 via 10.1.0.2 dev nic0",
        "ip route append 172.17.0.0/24 via 10.1.0.1",
        "ip route append 172.17.0.0/24 via 10.2.0.1",
    )
    away(bed)
    configure(
        bed,
        "ip nexthop add id 1 via 10.2.0.1 dev nic1",
        "ip route append 172.17.0.0/24 via 10.2.0.9",
        "ip route add 172.18.0.0/24 via 10.2.0.9",
    )
    report = back(bed)
    assert report.is_clean
    (note,) = report.notes
    assert note.endswith("next hop object 1 is another one by now, and is left alone")
    assert [each["gateway"] for each in bed.ip("nexthop")] == ["10.2.0.1", "10.1.0.2"]
    routes = bed.ip("route", "show", "table", "main")
    assert [each["gateway"] for each in routes if each["dst"] == "172.17.0.0/24"] == [
        "10.1.0.1",
        "10.2.0.1",
        "10.2.0.9",
    ]
    assert [each["gateway"] for each in routes if each["dst"] == "172.18.0.0/24"] == ["10.2.0.9"]


def test_a_route_that_was_deleted_by_hand_does_not_come_with_its_address(bed: Bed) -> None:
    node(bed)
    configure(bed, "ip addr add 10.1.0.5/24 dev nic0", "ip addr add 2001:db8:1::5/64 dev nic0")
    configure(bed, "ip route del 10.1.0.0/24 dev nic0", "ip route del 2001:db8:1::/64 dev nic0")
    comes_back(bed)


def test_a_refused_part_is_a_note_and_an_existing_part_stays(bed: Bed) -> None:
    with_addresses(bed)
    path = "2001:db8:f2::/64 nexthop via fe80::7 dev nic2 nexthop via fe80::8 dev nic0 nexthop via fe80::9 dev nic1"
    bed.veth("nic2", "wire2", up=True)
    configure(bed, f"ip route add {path}")
    away(bed)
    bed.run("ip", "link", "del", "nic2")
    report = back(bed)
    assert report.is_clean
    (note,) = report.notes
    assert "cannot add route to 2001:db8:f2::/64" in note
    assert [each["dev"] for each in bed.ip("-6", "route", "show", "2001:db8:f2::/64")] == ["nic1"]


def test_a_device_with_routes_alone_gets_them_back(bed: Bed) -> None:
    node(bed)
    Path("/proc/sys/net/ipv6/conf/nic0/disable_ipv6").write_text("1")
    configure(bed, "ip route add 10.1.0.0/24 dev nic0", "ip route add 172.16.1.0/24 via 10.1.0.1 dev nic0")
    comes_back(bed)


def test_of_too_many_routes_those_of_daemons_are_left_out_and_counted(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_configuration, "MOST", 30)
    node(bed)
    batch(
        bed,
        "addr add 10.1.0.5/24 dev nic0",
        *(f"route add 172.16.{number}.0/24 via 10.1.0.1 proto bird" for number in range(40)),
        *(f"route add 172.17.{number}.0/24 via 10.1.0.1" for number in range(20)),
    )
    away(bed)
    report = back(bed)
    assert report.is_clean
    (note,) = report.notes
    # The three that the kernel makes for the address are among the recorded ones.
    assert '"nic0": 33 of 63 routes are not restored, 33 of them of routing daemons; at most 30 are recorded' in note
    back_again = [each["dst"] for each in bed.ip("route")]
    assert sum(text.startswith("172.17.") for text in back_again) == 20
    assert sum(text.startswith("172.16.") for text in back_again) == 7


NICS = st.sampled_from(["nic0", "nic0", "nic1"])


EXPIRING = (("nic0", "valid_lft 4000 preferred_lft 2000"), ("nic1", ""))


def chosen(*words: str) -> st.SearchStrategy[str]:
    return st.sampled_from(words)


@st.composite
def addresses(draw: st.DrawFn) -> str:
    net, host = draw(st.integers(1, 2)), draw(st.integers(5, 8))
    if draw(st.booleans()):
        text = (
            f"10.{net}.0.{host}/{draw(chosen('24', '24', '25', '32'))} {draw(chosen('', 'broadcast + ', 'scope link'))}"
        )
    else:
        text = f"2001:db8:{net}::{host}/{draw(chosen('64', '64', '128'))} {draw(chosen('nodad', '', 'home'))}"
    # A route of another link that expires is the kernel's own, and stays where it is.
    nic = draw(NICS)
    times = draw(chosen("", "", "preferred_lft 0", *(["valid_lft 4000 preferred_lft 2000"] if nic == "nic0" else [])))
    return f"addr add {text} {draw(chosen('', '', 'metric 50', 'noprefixroute'))} {times} dev {nic}"


@st.composite
def hops(draw: st.DrawFn, *, ipv6: bool) -> str:
    nic = draw(NICS)
    gateway = (
        f"fe80::{draw(st.integers(1, 2))}" if ipv6 else f"10.{draw(st.integers(1, 2))}.0.{draw(st.integers(1, 2))}"
    )
    return f"via {gateway} dev {nic} {'' if ipv6 else 'onlink'}"


@st.composite
def routes(draw: st.DrawFn) -> str:
    ipv6 = draw(st.booleans())
    number = draw(st.integers(1, 3))
    text = f"2001:db8:f{number}::/64" if ipv6 else f"172.16.{number}.0/24"
    text += draw(chosen("", "", " metric 50", " table 100", " proto bird", " mtu lock 1300 initcwnd 5"))
    if not ipv6:
        text += draw(chosen("", "", " tos 0x10", " src 10.1.0.5", " src 10.2.0.5"))
    several = draw(st.lists(hops(ipv6=ipv6), min_size=1, max_size=3))
    if len(several) == 1:
        way = draw(st.one_of(st.just(several[0]), st.integers(1, 12).map(lambda number: f"nhid {number}")))
    else:
        way = " ".join(f"nexthop {hop} weight {draw(st.integers(1, 3))}" for hop in several)
    return f"route {draw(chosen('add', 'append', 'prepend'))} {text} {way}"


@st.composite
def objects(draw: st.DrawFn) -> str:
    number = draw(st.integers(1, 12))
    if number < 8:
        return f"nexthop add id {number} {draw(hops(ipv6=draw(st.booleans())))} {draw(chosen('', 'proto bird'))}"
    members = draw(st.lists(st.integers(1, 7), min_size=1, max_size=3, unique=True))
    kind = draw(chosen("", "", "type resilient buckets 4"))
    return f"nexthop add id {number} group {'/'.join(f'{member},{member + 1}' for member in members)} {kind}"


@st.composite
def neighbours(draw: st.DrawFn) -> str:
    where = draw(chosen("10.1.0.77", "10.2.0.77", "2001:db8:1::77"))
    what = draw(chosen("", "", "nud noarp", "extern_learn", "protocol bird"))
    if draw(st.integers(0, 3)) == 0:
        return f"neigh add proxy {where} dev {draw(NICS)}"
    return f"neigh add {where} lladdr 02:00:00:00:00:{draw(st.integers(10, 99))} dev {draw(NICS)} {what}"


@st.composite
def rules(draw: st.DrawFn) -> str:
    which = draw(chosen("iif nic0", "oif nic0", "from 10.1.0.5", "from 2001:db8:1::5", "to 2001:db8::/32 oif nic1"))
    return f"rule add {which} lookup 100 priority {draw(st.integers(100, 105))}"


def test_the_whole_configuration_of_the_node_comes_back(bed: Bed) -> None:
    """The kernel refuses some of the drawn commands, as it refuses an administrator: the rest is there."""
    for which in ("all", "default"):
        Path(f"/proc/sys/net/ipv6/conf/{which}/accept_dad").write_text("0")
    some = {
        "addresses": st.lists(addresses(), min_size=1, max_size=8),
        "objects": st.lists(objects(), max_size=6),
        "routes": st.lists(routes(), max_size=10),
        "others": st.lists(st.one_of(neighbours(), rules()), max_size=5),
    }

    @example({
        "addresses": [f"addr add 2001:db8:2::5/64 nodad {times} dev {nic}" for nic, times in EXPIRING],
        "objects": [], "routes": [], "others": [],
    })  # fmt: skip  # the first of two routes is one that expires
    @settings(max_examples=20)
    @given(st.fixed_dictionaries(some))
    def holds(drawn: dict[str, list[str]]) -> None:
        node(bed)
        lines = [line for part in ("addresses", "objects", "routes", "others") for line in drawn[part]]
        batch(bed, "addr add 10.1.0.5/24 dev nic0", "addr add 10.2.0.5/24 dev nic1", *lines)
        try:
            comes_back(bed)
        finally:
            own = [f"rule del priority {number}" for number in range(100, 106) for _ in range(5)]
            batch(bed, "link del nic0", "link del nic1", "nexthop flush", *own, *(f"-6 {line}" for line in own))

    holds()


def batch(bed: Bed, *lines: str) -> None:
    """Commands of `ip`; those that the kernel refuses are left out."""
    subprocess.run(("ip", "-force", "-batch", "-"), input="\n".join(lines), text=True, capture_output=True, check=False)


def test_a_record_of_an_older_netdra_is_restored_as_it_was_then(bed: Bed) -> None:
    node(bed)
    configure(bed, "ip addr add 10.1.0.5/24 dev nic0", "ip route add 172.16.1.0/24 via 10.1.0.1")
    before = seen(bed)
    away(bed)
    (checkpoint,) = bed.settings.state.rglob("*.jsonl")
    text = checkpoint.read_text()
    older = re.sub(r',"node":\{.*?\]\}', "", text)
    assert older != text
    checkpoint.write_text(older)
    assert back(bed).is_clean
    is_again(bed, before)


def test_killed_while_the_configuration_comes_back_the_next_try_restores_the_rest(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_addresses(bed)
    configure(
        bed,
        *(f"ip route append 172.17.0.0/24 via {gateway}" for gateway in ("10.2.0.1", "10.1.0.1", "10.2.0.2")),
        *(f"ip route append 2001:db8:fa::/64 dev {name} metric 50" for name in ("nic0", "nic1")),
    )
    before = seen(bed)
    sent = Socket.request_all

    class KilledError(BaseException):
        pass

    for most in range(1, 100, 7):
        away(bed)
        left = iter(range(most))

        def send(sock: Socket, requests: Sequence[Request], left: Iterator[int] = left) -> list[KernelError | None]:
            if next(left, None) is None:
                raise KilledError
            return sent(sock, requests)

        monkeypatch.setattr(Socket, "request_all", send)
        try:
            report = back(bed)
        except KilledError:
            monkeypatch.setattr(Socket, "request_all", sent)
            report = back(bed)
        else:
            assert most > 1
            break
        finally:
            monkeypatch.setattr(Socket, "request_all", sent)
        assert (report.is_clean, report.notes) == (True, ())
        is_again(bed, before)


def test_a_link_local_address_that_the_node_chose_is_the_only_one_again(bed: Bed) -> None:
    node(bed)
    Path("/proc/sys/net/ipv6/conf/nic0/addr_gen_mode").write_text("1")  # none
    configure(
        bed, "ip addr flush dev nic0", "ip addr add fe80::1/64 dev nic0 nodad", "ip addr add 10.1.0.5/24 dev nic0"
    )

    def link_local() -> list[str]:
        return [each["local"] for each in bed.ip("-6", "addr", "show", "dev", "nic0")[0]["addr_info"]]

    assert link_local() == ["fe80::1"]
    comes_back(bed)
    assert link_local() == ["fe80::1"]
