"""Every setting of a device that a pod can change is as it was when the device is back, or the report names it.

The kernel's settings are read with ip, bridge, ethtool and from /proc/sys: never with netdra.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from netdra.chain import checkpoint
from netdra.chain.detach import detach
from netdra.chain.report import DetachReport
from netdra.model.plan import Plan
from testbed.recorder import Recorder
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.plans import attach, plan, step

POD = '"$(basename "$CNI_NETNS")"'
TAKE = f'ip link set eth7 netns {POD} && ip -n {POD} link set eth7 name "$CNI_IFNAME" up || exit 1'
GIVE = f'ip -n {POD} link set "$CNI_IFNAME" name eth7 && ip -n {POD} link set eth7 netns $$ || exit 1'
RESULT = """echo '{"interfaces": [{"name": "net1", "sandbox": "'"$CNI_NETNS"'"}]}'"""
USED = device("eth7", allow_host_use=True)

FEATURES = (
    "gso", "tso", "tx", "gro", "sg", "rx", "tx-checksum-ip-generic", "rx-gro-list", "rx-udp-gro-forwarding",
    "tx-udp-segmentation", "tx-nocache-copy", "tx-tcp6-segmentation", "rx-vlan-hw-parse", "tx-vlan-stag-hw-insert",
)  # fmt: skip
LINK = {
    "gso_max_size": (1000, 65536),
    "gso_max_segs": (1, 65535),
    "gro_max_size": (1000, 65536),
    "group": (1, 9),
    "txqueuelen": (1, 2000),
}
SYSCTLS = {
    "ipv4": ("rp_filter", "arp_ignore", "arp_announce", "proxy_arp", "accept_local", "forwarding", "accept_redirects"),
    "ipv6": ("accept_ra", "autoconf", "disable_ipv6", "dad_transmits", "forwarding", "mtu", "addr_gen_mode"),
}


def kernel(bed: Bed, name: str = "eth7") -> dict[str, Any]:
    """All settings of a link of the node."""
    (link,) = bed.ip("link", "show", name)
    volatile = {"ifindex", "operstate", "flags", "link_index", "link", "link_netnsid", "linkmode"}
    sysctls = {
        str(path): read(path)
        for family in ("ipv4", "ipv6")
        for folder in ("conf", "neigh")
        for path in sorted(Path(f"/proc/sys/net/{family}/{folder}/{name}").iterdir())
    }
    return {
        "link": {key: value for key, value in link.items() if key not in volatile},
        "up": "UP" in link["flags"],
        "features": bed.run("ethtool", "-k", name).splitlines(),
        "channels": bed.run("ethtool", "-l", name).splitlines(),
        "sysctls": sysctls,
    }


def read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as problem:
        return str(problem.errno)


def link_changes() -> st.SearchStrategy[tuple[str, ...]]:
    return st.sampled_from(sorted(LINK)).flatmap(
        lambda name: st.integers(*LINK[name]).map(lambda value: ("ip", "link", "set", "net1", name, str(value)))
    )


def feature_changes() -> st.SearchStrategy[tuple[str, ...]]:
    pairs = st.tuples(st.sampled_from(FEATURES), st.sampled_from(["on", "off"]))
    return pairs.map(lambda pair: ("ethtool", "-K", "net1", *pair))


CHANGES = st.one_of(
    feature_changes(),
    link_changes(),
    st.sampled_from(
        [
            ("ethtool", "-L", "net1", "rx", "1", "tx", "1"),
            ("ip", "link", "set", "net1", "promisc", "on"),
            ("ip", "link", "set", "net1", "allmulticast", "on"),
            ("ip", "link", "set", "net1", "alias", "the pod's own"),
            ("ip", "link", "set", "net1", "mtu", "1300"),
            ("ip", "link", "set", "net1", "address", "02:00:00:00:00:99"),
        ]
    ),
)
"""What a pod with NET_ADMIN does to its interface."""


def own_sysctls() -> st.SearchStrategy[tuple[str, str]]:
    """The sysctls that an administrator set for the link on the node: the kernel forgets them when the link moves."""
    paths = [f"{family}/conf/eth7/{name}" for family, names in SYSCTLS.items() for name in names]
    return st.tuples(st.sampled_from(paths), st.sampled_from(["0", "1"]))


def mover(bed: Bed, on_del: str = "true") -> Recorder:
    plugin = recorder(bed, "mover")
    plugin.does("ADD", f"{TAKE}; {RESULT}")
    plugin.does("DEL", on_del)
    return plugin


def plans(kind: str, *, used: bool = False) -> tuple[Plan, ...]:
    return (plan(step("nic", kind, "net1", device=USED if used else device("eth7"))),)


def undone(bed: Bed) -> DetachReport:
    return detach(bed.container.sandbox, bed.settings)


def write(path: str, value: str) -> None:
    Path("/proc/sys/net", path).write_text(value)


def tried(act: Callable[..., Any], *arguments: str) -> None:
    """The kernel refuses some values, as a feature that depends on another one."""
    with suppress(OSError, subprocess.CalledProcessError):
        act(*arguments)


@pytest.mark.parametrize(("kind", "on_del"), [("host-device", ""), ("mover", "true"), ("mover", GIVE)])
def test_detach_restores_the_interface_after_any_changes_of_settings_by_the_pod(
    bed: Bed, kind: str, on_del: str
) -> None:
    bed.veth("eth7", "peer7", mtu=1450, up=True)
    bed.run("ip", "link", "set", "peer7", "up")
    if kind == "mover":
        mover(bed, on_del)

    @example([("ethtool", "-K", "net1", "tso", "off"), ("ethtool", "-K", "net1", "tx", "off")], [])
    @example([("ip", "link", "set", "net1", "gso_max_size", "9000"), ("ip", "link", "set", "net1", "group", "5")], [])
    @example([], [("ipv6/conf/eth7/disable_ipv6", "1"), ("ipv4/conf/eth7/rp_filter", "1")])
    @settings(max_examples=15)
    @given(st.lists(CHANGES, max_size=6), st.lists(own_sysctls(), max_size=4))
    def holds(changes: Sequence[tuple[str, ...]], own: Sequence[tuple[str, str]]) -> None:
        for path, value in own:
            tried(write, path, value)
        before = kernel(bed)
        attach(plans(kind), bed.container, bed.pod.path, bed.settings)
        for command in changes:
            tried(lambda *words: bed.run(*words, inside=True), *command)
        report = undone(bed)
        assert report.is_clean, str(report)
        assert differences(before, kernel(bed)) == []

    holds()


def test_a_setting_that_cannot_be_restored_strands_the_device_and_is_named(bed: Bed) -> None:
    bed.veth("eth7", "peer7")
    attach(plans("host-device"), bed.container, bed.pod.path, bed.settings)
    # A size that the kernel does not take stands for one that a driver refuses.
    path = checkpoint.path_of(bed.settings.state, bed.container.sandbox)
    recorded = path.read_bytes()
    path.write_bytes(recorded.replace(b'"gso_max_size":65536', b'"gso_max_size":99999999'))
    assert path.read_bytes() != recorded
    (failed,) = undone(bed).undone
    assert (failed.outcome, failed.stranded) == ("failed", True)
    assert 'netdev "eth7" has gso_max_size 65536, not 99999999' in failed.message
    assert "cannot set gso_max_size 99999999 of link" in failed.message


def test_a_binarys_device_names_the_setting_that_cannot_be_restored(bed: Bed) -> None:
    bed.veth("eth7", "peer7")
    mover(bed, GIVE)
    attach(plans("mover"), bed.container, bed.pod.path, bed.settings)
    path = checkpoint.path_of(bed.settings.state, bed.container.sandbox)
    path.write_bytes(path.read_bytes().replace(b'"gso_max_size":65536', b'"gso_max_size":99999999'))
    (failed,) = undone(bed).undone
    assert (failed.outcome, failed.stranded) == ("failed", True)
    assert 'netdev "eth7" has gso_max_size 65536, not 99999999' in failed.message


@pytest.mark.parametrize("kind", ["host-device", "mover"])
def test_the_record_of_an_older_netdra_is_restored_as_far_as_it_goes(bed: Bed, kind: str) -> None:
    bed.veth("eth7", "peer7", mtu=1450)
    mover(bed)
    before = bed.link("eth7")
    attach(plans(kind), bed.container, bed.pod.path, bed.settings)
    path = checkpoint.path_of(bed.settings.state, bed.container.sandbox)
    lines = []
    for line in path.read_text().splitlines(keepends=True):
        head, found, rest = line.partition('"settings":')
        if found:
            recorded, end = json.JSONDecoder().raw_decode(rest)
            line = f'{head}"settings":{json.dumps({"txqlen": recorded["txqlen"]})}{rest[end:]}'
        lines.append(line)
    path.write_text("".join(lines))
    assert '"settings":{"txqlen": 1000}' in path.read_text()
    bed.run("ip", "link", "set", "net1", "txqueuelen", "7", "promisc", "on", "group", "5", "mtu", "1300", inside=True)
    assert undone(bed).is_clean
    after = bed.link("eth7")
    assert [after[key] for key in ("txqlen", "promiscuity", "mtu")] == [
        before[key] for key in ("txqlen", "promiscuity", "mtu")
    ]


@pytest.mark.parametrize("kind", ["host-device", "mover"])
def test_a_bridges_settings_for_its_port_come_back_with_the_port(bed: Bed, kind: str) -> None:
    bed.veth("eth7", "peer7", up=True)
    mover(bed)
    bed.run("ip", "link", "add", "br0", "up", "type", "bridge")
    bed.run("ip", "link", "set", "eth7", "master", "br0")
    off = ("learning", "flood", "mcast_flood")
    on = ("isolated", "neigh_suppress", "hairpin", "guard")
    words = [word for name in off for word in (name, "off")] + [word for name in on for word in (name, "on")]
    bed.run("bridge", "link", "set", "dev", "eth7", *words, "cost", "77", "priority", "9")
    before = json.loads(bed.run("bridge", "-d", "-j", "link", "show", "dev", "eth7"))[0]
    attach(plans(kind, used=True), bed.container, bed.pod.path, bed.settings)
    assert undone(bed).is_clean
    after = json.loads(bed.run("bridge", "-d", "-j", "link", "show", "dev", "eth7"))[0]
    assert [
        (key, before[key], after.get(key)) for key in before if key != "ifindex" and before[key] != after[key]
    ] == []


def test_a_default_that_changes_after_attach_is_not_treated_as_a_link_setting(bed: Bed) -> None:
    """A plugin that turns forwarding on for the node turns it on for all links."""
    bed.veth("eth7", "peer7")
    attach(plans("host-device"), bed.container, bed.pod.path, bed.settings)
    write("ipv4/ip_forward", "1")
    assert undone(bed).is_clean
    assert Path("/proc/sys/net/ipv4/conf/eth7/forwarding").read_text() == "1\n"


def test_a_secret_for_addresses_comes_back_with_the_device(bed: Bed) -> None:
    bed.veth("eth7", "peer7")
    write("ipv6/conf/eth7/stable_secret", "2001:db8::1234")
    before = kernel(bed)
    attach(plans("host-device"), bed.container, bed.pod.path, bed.settings)
    assert undone(bed).is_clean
    assert differences(before, kernel(bed)) == []
