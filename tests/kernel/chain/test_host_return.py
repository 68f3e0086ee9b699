"""What the node had configured on a device is on the node again afterwards, exactly, as iproute2 sees all of it."""

from __future__ import annotations

import ipaddress
import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netdra.chain.detach import detach
from netdra.chain.report import DetachReport
from netdra.model.plan import PlannedDevice
from netdra.steps import node_network
from testbed.waiting import until
from tests.kernel.chain.conftest import Bed, device
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

    local = ("fe80", "ff00")  # come with the carrier, each for its link alone: their order among links is by chance
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
        found[f"routes{family}"] = [
            each for each in asked("ip", family, "route", "show", "table", "all") if not each["dst"].startswith(local)
        ]
    return found


def away(bed: Bed) -> None:
    """Attach the pod: nic0 leaves."""
    attach((plan(step("dev", "host-device", "net1", device=NIC)),), bed.container, bed.pod.path, bed.settings)


def back(bed: Bed) -> DetachReport:
    """Detach the pod: nic0 comes back."""
    return detach(bed.container.sandbox, bed.settings)


def comes_back(bed: Bed) -> None:
    """Everything is as it was after a pod that made its own."""
    before = seen(bed)
    away(bed)
    assert seen(bed) != before
    bed.run("ip", "addr", "add", "10.1.0.5/16", "dev", "net1", inside=True)
    bed.run("ip", "nexthop", "add", "id", "1", "dev", "net1", inside=True)
    report = back(bed)
    assert (report.is_clean, report.notes) == (True, ())
    assert seen(bed) == before


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
    "172.16.7.0/24 via 10.2.0.1 dev nic1 src 10.1.0.6",
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


def test_addresses_have_all_that_they_had(bed: Bed) -> None:
    with_addresses(bed)
    comes_back(bed)


def test_routes_have_all_that_they_had_and_their_order(bed: Bed) -> None:
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
