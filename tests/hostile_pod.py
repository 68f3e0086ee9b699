"""The changes that a pod with all rights in its namespace can make to its device, and an independent view of a device.

Used by the tests of the kernel and of the hardware. The commands are iproute2's, ethtool's and the shell's: never
netdra's. A command that the driver refuses is part of the draw, too.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

Run = Callable[..., subprocess.CompletedProcess[str]]
Act = tuple[str, ...]

NAME = "DEVICE"
"""Stands for the device's name in the pod."""
FEATURES = (
    "gso", "tso", "tx", "gro", "sg", "rx", "tx-checksum-ip-generic", "rx-gro-list", "rx-udp-gro-forwarding",
    "tx-udp-segmentation", "tx-nocache-copy", "rxvlan", "txvlan", "ntuple", "rxhash", "loopback",
)  # fmt: skip
_FOLLOWS_BY_ITSELF = {
    "ifindex": "the kernel chooses it anew where another link has taken it",
    "operstate": "follows the carrier, some time later",
    "link_index": "the index of the peer",
    "link": "the name of the peer",
    "link_netnsid": "the number of the peer's namespace",
    "stats64": "counters",
    "stats": "counters",
}
_FLAGS = {"NO-CARRIER", "LOWER_UP"}
"""Flags that follow the carrier."""
_OF_THE_CARRIER = re.compile(r"\t(Speed|Duplex|Link detected|Link partner|Lanes|MDI-X)\b|\t{3,}")
"""Lines of ethtool that follow the carrier and the link partner, with their continuations."""
_RSS_TABLE = re.compile(r"\s+\d+:")
_DEFAULT_QUEUES = re.compile(r"(qdisc )?(noop|noqueue|mq|pfifo_fast|fq_codel)\b")
"""Queue disciplines that the kernel selects automatically when a link is created, moved or set up."""
_OWN_INDEX = re.compile(r"\A\d+:(?=\t)")
"""The link's index, with which `ip maddr` begins."""
_ALL_NODES = re.compile(r"(33:33:00:00:00:01 self permanent|\tlink  33:33:00:00:00:01)\Z")
"""The Ethernet address of IPv6's all nodes, as `bridge fdb` and `ip maddr` print it: a link has it from its creation
until it is set down after it had a carrier, and when it is up (ipv6_mc_down in net/ipv6/mcast.c)."""
_READERS = (
    ("ethtool",), ("ethtool", "-k"), ("ethtool", "-l"), ("ethtool", "-c"), ("ethtool", "-g"), ("ethtool", "-a"),
    ("ethtool", "-x"), ("ethtool", "-u"), ("ethtool", "-T"), ("ethtool", "--show-eee"), ("ethtool", "--show-fec"),
    ("ethtool", "--show-priv-flags"), ("ethtool", "-P"), ("tc", "qdisc", "show", "dev"),
    ("tc", "filter", "show", "ingress", "dev"), ("tc", "filter", "show", "egress", "dev"),
    ("bridge", "fdb", "show", "dev"), ("ip", "neigh", "show", "nud", "permanent", "dev"),
    ("ip", "neigh", "show", "proxy", "dev"), ("ip", "maddr", "show", "dev"),
)  # fmt: skip
_IGNORED = {
    ("ethtool",): _OF_THE_CARRIER,
    ("tc", "qdisc", "show", "dev"): _DEFAULT_QUEUES,
    ("bridge", "fdb", "show", "dev"): _ALL_NODES,
    ("ip", "maddr", "show", "dev"): _ALL_NODES,
}
"""Lines of readers that say nothing of what a pod did."""
_HASHES = tuple(("ethtool", "-n", NAME, "rx-flow-hash", flow) for flow in ("tcp4", "udp4", "tcp6", "udp6"))


def link_acts() -> st.SearchStrategy[Act]:
    """Acts on the link itself."""
    states = [("arp", "off"), ("multicast", "off"), ("dynamic", "on"), ("trailers", "off"), ("promisc", "on"),
              ("allmulticast", "on"), ("mode", "dormant"), ("state", "dormant"), ("protodown", "on"), ("down",),
              ("up",), ("addrgenmode", "none"), ("carrier", "off"), ("nomaster",)]  # fmt: skip
    values = st.one_of(
        st.tuples(st.just("mtu"), st.integers(68, 1500).map(str)),
        st.tuples(st.just("txqueuelen"), st.integers(1, 2000).map(str)),
        st.tuples(st.just("group"), st.integers(1, 9).map(str)),
        st.tuples(st.just("gso_max_size"), st.integers(1000, 65536).map(str)),
        st.tuples(st.just("gso_max_segs"), st.integers(1, 65535).map(str)),
        st.tuples(st.just("gro_max_size"), st.integers(1000, 65536).map(str)),
        st.tuples(st.just("alias"), st.sampled_from(["mine", "a b", "-x"])),
        st.tuples(st.just("address"), st.integers(0, 255).map(lambda byte: f"02:00:00:00:66:{byte:02x}")),
        st.tuples(st.just("broadcast"), st.integers(0, 255).map(lambda byte: f"ff:ff:ff:ff:00:{byte:02x}")),
    )
    return st.one_of(st.sampled_from(states), values).map(lambda words: ("ip", "link", "set", "dev", NAME, *words))


def driver_acts() -> st.SearchStrategy[Act]:
    """Acts on the driver's settings."""
    switch = st.sampled_from(["on", "off"])
    small = st.integers(0, 9).map(str)
    return st.one_of(
        st.tuples(st.just("-K"), st.just(NAME), st.sampled_from(FEATURES), switch),
        st.tuples(st.just("-L"), st.just(NAME), st.sampled_from(["rx", "tx", "combined"]), small),
        st.tuples(st.just("-G"), st.just(NAME), st.sampled_from(["rx", "tx"]), st.integers(80, 4096).map(str)),
        st.tuples(st.just("-C"), st.just(NAME), st.sampled_from(["rx-usecs", "tx-usecs", "rx-frames"]), small),
        st.tuples(st.just("-A"), st.just(NAME), st.sampled_from(["autoneg", "rx", "tx"]), switch),
        st.tuples(st.just("-s"), st.just(NAME), st.just("msglvl"), st.integers(0, 255).map(str)),
        st.tuples(st.just("-s"), st.just(NAME), st.just("wol"), st.sampled_from(["g", "d", "ug"])),
        st.tuples(st.just("-X"), st.just(NAME), st.just("equal"), st.integers(1, 4).map(str)),
        st.tuples(st.just("--set-eee"), st.just(NAME), st.just("eee"), switch),
        st.sampled_from([
            ("-s", NAME, "speed", "10", "duplex", "half", "autoneg", "off"),
            ("-s", NAME, "autoneg", "on"),
            ("-s", NAME, "advertise", "0x3"),
            ("-N", NAME, "rx-flow-hash", "udp4", "sdfn"),
            ("-N", NAME, "flow-type", "ether", "proto", "0x88b5", "action", "0"),
            ("-N", NAME, "flow-type", "ether", "proto", "0x88b6", "action", "1"),
        ]),
    ).map(lambda words: ("ethtool", *words))  # fmt: skip


def traffic_acts() -> st.SearchStrategy[Act]:
    """Acts on how packets are treated."""
    return st.sampled_from([
        ("tc", "qdisc", "add", "dev", NAME, "clsact"),
        ("tc", "filter", "add", "dev", NAME, "ingress", "matchall", "action", "drop"),
        ("tc", "qdisc", "add", "dev", NAME, "root", "tbf", "rate", "8kbit", "burst", "2k", "latency", "1s"),
        ("tc", "qdisc", "add", "dev", NAME, "root", "netem", "loss", "100%"),
        ("ip", "neigh", "add", "192.0.2.9", "lladdr", "02:00:00:00:00:09", "dev", NAME),
        ("ip", "neigh", "add", "proxy", "192.0.2.8", "dev", NAME),
        ("bridge", "fdb", "add", "02:00:00:00:44:44", "dev", NAME, "self"),
        ("ip", "maddr", "add", "33:33:00:00:00:99", "dev", NAME),
        ("ip", "address", "add", "192.0.2.77/24", "dev", NAME),
        ("ip", "route", "add", "198.51.100.0/24", "dev", NAME),
        ("ip", "link", "property", "add", "dev", NAME, "altname", "pods-own-name"),
        ("ip", "link", "set", "dev", NAME, "name", "renamed"),
        ("sysctl", "-qw", f"net.ipv4.conf.{NAME}.arp_ignore=8", f"net.ipv6.conf.{NAME}.disable_ipv6=1"),
        ("sh", "-c", f"for file in /sys/class/net/{NAME}/queues/*/?ps_cpus; do echo 1 >$file; done"),
        ("sh", "-c", f"echo 7 >/sys/class/net/{NAME}/queues/rx-0/rps_flow_cnt"),
        ("sh", "-c", f"echo 9 >/sys/class/net/{NAME}/queues/tx-0/tx_maxrate"),
        ("sh", "-c", f"echo 5000 >/sys/class/net/{NAME}/gro_flush_timeout"),
        ("sh", "-c", f"echo 3 >/sys/class/net/{NAME}/napi_defer_hard_irqs"),
        ("sh", "-c", f"echo 1 >/sys/class/net/{NAME}/threaded"),
    ])  # fmt: skip


def as_called(act: Sequence[str], name: str) -> Act:
    """An act on the device, which has that name in the pod."""
    return tuple(word.replace(NAME, name) for word in act)


def view(run: Run, name: str) -> dict[str, Any]:
    """All that iproute2, ethtool, bridge and tc print of a link of the node.

    Args:
        run: runs a command on the node.
        name: the link's name.
    """
    (link,) = json.loads(run("ip", "-d", "-j", "link", "show", name).stdout)
    seen: dict[str, Any] = {key: value for key, value in link.items() if key not in _FOLLOWS_BY_ITSELF}
    seen["flags"] = sorted(set(link["flags"]) - _FLAGS)
    if _DEFAULT_QUEUES.match(link["qdisc"]):
        del seen["qdisc"]
    for reader in _READERS:
        done = run(*reader, name, check=False)
        lines = (done.stdout + done.stderr).splitlines()
        ignored = _IGNORED.get(reader)
        if reader == ("ethtool", "-x") and any("with 1 RX ring" in line for line in lines):
            ignored = _RSS_TABLE  # the driver has a table of more queues than it uses, and takes none such
        lines = [line for line in lines if ignored is None or not ignored.match(line)]
        seen[" ".join(reader)] = sorted(_OWN_INDEX.sub("", line) for line in lines)
    for reader in _HASHES:
        done = run(*as_called(reader, name), check=False)
        seen[" ".join(reader)] = (done.stdout + done.stderr).splitlines()
    return seen
