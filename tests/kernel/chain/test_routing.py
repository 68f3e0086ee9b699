"""Rules, neighbours, tables and source routing: they take effect, a loss is drift, and undoing leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from netdra.chain.check import check
from netdra.chain.detach import detach
from netdra.chain.report import AttachError
from netdra.model.plan import PlannedStep
from tests.draws import count
from tests.kernel.chain.conftest import Bed, device, differences
from tests.plans import attach, plan, step

NODE = "10.9.0.1"
ALL = ("rules", "routes", "neighbours")


def routing(bed: Bed) -> dict[str, list[Any]]:
    """The rules, the routes of all tables and the permanent neighbours of the pod, as iproute2 lists them."""
    kept = {"dst", "gateway", "dev", "table", "metric", "prefsrc", "scope", "type", "nexthops", "flags"}
    found: dict[str, list[Any]] = {name: [] for name in ALL}
    for family in ("-4", "-6"):
        found["rules"] += [(family, sorted(each.items(), key=str)) for each in bed.ip(family, "rule", inside=True)]
        for each in bed.ip(family, "route", "show", "table", "all", inside=True):
            if not str(each["dst"]).startswith(("fe80", "ff00", "multicast")):
                found["routes"].append((family, sorted((k, str(v)) for k, v in each.items() if k in kept)))
    found["neighbours"] = bed.ip("neigh", "show", "nud", "permanent", inside=True)
    return {name: sorted(entries, key=str) for name, entries in found.items()}


@pytest.fixture
def pod(bed: Bed) -> Bed:
    """A pod with two interfaces, one of them with addresses of both families."""
    for number in range(2):
        bed.veth(f"host{number}", "temporary", up=True)
        name = bed.pod.path.rsplit("/", 1)[1]
        bed.run("ip", "link", "set", "temporary", "netns", name, "name", f"eth{number}")
        bed.run("ip", "link", "set", f"eth{number}", "up", inside=True)
        bed.run("ip", "addr", "add", f"10.{number}.0.2/24", "dev", f"eth{number}", inside=True)
    bed.run("ip", "addr", "add", "2001:db8::2/64", "dev", "eth0", "nodad", inside=True)
    return bed


def tuned(pod: Bed, config: dict[str, Any]) -> None:
    attach((plan(step("tune", "tuning", "eth0", config)),), pod.container, pod.pod.path, pod.settings)


EVERYTHING: dict[str, Any] = {
    "rules": [
        {"from": "10.0.0.2", "table": 100, "priority": 1000},
        {"to": "10.7.0.0/16", "iif": "IFNAME", "table": 100},
        {"oif": "eth1", "fwmark": "0x10/0xf0", "table": 2000, "priority": 3},
        {"from": "2001:db8::/64", "table": 100},
    ],
    "neighbours": [
        {"address": "10.0.0.9", "mac": "02:00:00:00:00:09"},
        {"address": "2001:db8::9", "mac": "02:00:00:00:00:0A"},
    ],
    "routes": [
        {"dst": "default", "gw": "10.0.0.1", "table": 100},
        {
            "destination": "10.8.0.0/16",
            "nexthops": [{"gateway": "10.0.0.1"}, {"gateway": "10.1.0.1", "dev": "eth1", "weight": 3}],
        },
        {"destination": "10.6.0.0/16", "scope": "link", "src": "10.0.0.2", "metric": 7, "table": 2000},
    ],
    "arp_ignore": 1, "arp_announce": 2, "arp_filter": 1, "rp_filter": 2,
}  # fmt: skip


def test_rules_neighbours_routes_and_arp_modes_are_set_checked_and_undone(pod: Bed) -> None:
    pod.run(
        "ip", "neigh", "add", "10.0.0.9", "lladdr", "02:00:00:00:00:99", "nud", "permanent", "dev", "eth0", inside=True
    )
    before, state = routing(pod), pod.state()
    tuned(pod, EVERYTHING)
    rules = {
        (
            each["priority"],
            each["src"],
            each.get("dst"),
            each.get("iif"),
            each.get("oif"),
            each.get("fwmark"),
            each["table"],
        )
        for family in ("-4", "-6")
        for each in pod.ip(family, "rule", inside=True)
        if each["priority"] not in (0, 32766, 32767)
    }
    assert rules == {
        (1000, "10.0.0.2", None, None, None, None, "100"),
        (20000, "all", "10.7.0.0", "eth0", None, None, "100"),
        (3, "all", None, None, "eth1", "0x10", "2000"),
        (20000, "2001:db8::", None, None, None, None, "100"),
    }
    (balanced,) = pod.ip("route", "show", "10.8.0.0/16", inside=True)
    assert [(hop["gateway"], hop["dev"], hop["weight"]) for hop in balanced["nexthops"]] == [
        ("10.0.0.1", "eth0", 1), ("10.1.0.1", "eth1", 3),
    ]  # fmt: skip
    assert pod.ip("route", "get", "10.200.0.1", "from", "10.0.0.2", inside=True)[0]["gateway"] == "10.0.0.1"
    for name in ("arp_ignore", "arp_announce", "arp_filter", "rp_filter"):
        assert pod.run("sysctl", "-n", f"net.ipv4.conf.eth0.{name}", inside=True).strip() == str(EVERYTHING[name])
    assert check(pod.container.sandbox, pod.settings).is_clean
    assert detach(pod.container.sandbox, pod.settings).is_clean
    assert differences(before, routing(pod)) == []
    assert differences(state, pod.state()) == []
    assert pod.run("sysctl", "-n", "net.ipv4.conf.eth0.rp_filter", inside=True).strip() == "0"


@pytest.mark.parametrize(
    ("loss", "drift"),
    [
        (("ip", "rule", "del", "priority", "1000"), "rule 1000: from 10.0.0.2/32 lookup 100 is gone"),
        (("ip", "neigh", "del", "10.0.0.9", "dev", "eth0"), "neighbour 10.0.0.9 is not 02:00:00:00:00:09"),
        (("ip", "route", "del", "10.8.0.0/16"), "route to 10.8.0.0/16 is gone"),
        (("ip", "route", "flush", "table", "100"), "route to 0.0.0.0/0 is gone"),
    ],
    ids=["rule", "neighbour", "nexthops", "table"],
)
def test_a_lost_rule_neighbour_or_route_is_drift_and_the_rest_is_undone(
    pod: Bed, loss: tuple[str, ...], drift: str
) -> None:
    before = routing(pod)
    tuned(pod, EVERYTHING)
    pod.run(*loss, inside=True)
    (seen,) = check(pod.container.sandbox, pod.settings).steps
    assert len(seen.drift) == 1
    assert drift in seen.drift[0]
    assert detach(pod.container.sandbox, pod.settings).is_clean
    assert differences(before, routing(pod)) == []


def test_a_rule_that_is_not_the_step_s_stays_though_it_asks_for_more(pod: Bed) -> None:
    """The kernel deletes the first rule with all fields of the message: this one."""
    foreign = ("from", "10.0.0.2", "iif", "eth1", "lookup", "100", "priority", "1000")
    pod.run("ip", "rule", "add", *foreign, inside=True)
    before = routing(pod)
    tuned(pod, {"rules": [{"from": "10.0.0.2", "table": 100, "priority": 1000}]})
    assert detach(pod.container.sandbox, pod.settings).is_clean
    assert differences(before, routing(pod)) == []


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({"rules": [{"table": 100}]}, "the rule matches all traffic"),
        ({"rules": [{"from": "10.0.0.0/24", "to": "2001:db8::/64", "table": 5}]}, "are of different families"),
        ({"rules": [{"from": "ten", "table": 5}]}, 'from "ten" is not a network'),
        ({"rules": [{"fwmark": "0x100/0xf", "table": 5}]}, "must be a mark above 0 within its mask"),
        (
            {"neighbours": [{"address": "10.0.0.0/24", "mac": "02:00:00:00:00:01"}]},
            "is not an address without a prefix",
        ),
        ({"neighbours": [{"address": "224.0.0.1", "mac": "02:00:00:00:00:01"}]}, "is not the address of a single host"),
        ({"routes": [{"dst": "10.8.0.0/16", "gw": "10.0.0.1", "nexthops": [{"gateway": "10.0.0.1"}]}]}, "not both"),
        ({"routes": [{"dst": "10.8.0.0/16", "nexthops": [{"dev": "eth9"}]}]}, 'the pod has no interface "eth9"'),
        ({"arp_ignore": 1, "sysctl": {"net.ipv4.conf.eth0.arp_ignore": 1}}, "arp_ignore is also among the sysctls"),
    ],
)
def test_a_wrong_rule_neighbour_or_route_is_refused_before_anything_is_changed(
    pod: Bed, config: dict[str, Any], error: str
) -> None:
    before = routing(pod)
    with pytest.raises(Exception, match=error.replace("[", r"\[").replace(".", r"\.")):
        tuned(pod, config)
    assert differences(before, routing(pod)) == []


networks = st.sampled_from(["10.0.0.2", "10.0.0.0/24", "10.7.0.0/16", "2001:db8::2/128", "2001:db8::/64"])
rules: Any = st.fixed_dictionaries(
    {"table": st.sampled_from([100, 101, 254])},
    optional={
        "from": networks, "to": networks, "priority": st.sampled_from([1, 1000, 32765]),
        "iif": st.sampled_from(["IFNAME", "eth1"]), "oif": st.sampled_from(["eth0", "later0"]),
        "fwmark": st.sampled_from([16, "0x10", "0x10/0xf0"]),
    },
).filter(lambda rule: len(rule.keys() & {"from", "to", "iif", "oif", "fwmark"}) > 0)  # fmt: skip
families: Any = rules.filter(lambda rule: len({":" in rule[key] for key in ("from", "to") if key in rule}) < 2)
hops = st.lists(
    st.sampled_from([{"gateway": "10.0.0.1"}, {"gateway": "10.0.0.9"}, {"gateway": "10.1.0.1", "dev": "eth1"}]),
    min_size=2, max_size=3, unique_by=str,
)  # fmt: skip
routes = st.one_of(
    st.fixed_dictionaries(
        {
            "dst": st.sampled_from(["10.8.0.0/16", "10.6.0.0/16", "2001:db8:8::/48"]),
            "table": st.sampled_from([100, 254]),
        },
        optional={"metric": st.sampled_from([5, 6])},
    ),
    st.fixed_dictionaries({"dst": st.sampled_from(["10.8.0.0/16", "10.5.0.0/16"]), "nexthops": hops}),
)
neighbours = st.builds(
    lambda last, address: {"address": address, "mac": f"02:00:00:00:00:{last:02x}"},
    st.integers(1, 3), st.sampled_from(["10.0.0.9", "10.0.0.8", "2001:db8::9"]),
)  # fmt: skip
parts = st.fixed_dictionaries(
    {},
    optional={
        "rules": st.lists(families, max_size=4),
        "routes": st.lists(routes, max_size=3, unique_by=lambda entry: repr(sorted(entry.items(), key=str))),
        "neighbours": st.lists(neighbours, max_size=2, unique_by=lambda entry: entry["address"]),
    },
)  # fmt: skip


def test_any_rules_routes_and_neighbours_are_added_and_undone_without_a_trace(pod: Bed) -> None:
    """Two steps on one interface, some of it there before: attached, checked, detached, and the kernel is as before."""
    pod.run("ip", "rule", "add", "from", "10.0.0.2", "iif", "eth1", "lookup", "100", "priority", "1000", inside=True)
    pod.run("ip", "route", "add", "10.6.0.0/16", "dev", "eth0", "table", "100", inside=True)
    before = routing(pod)

    # The kernel says of a rule that states less than another one that it exists.
    marked: dict[str, Any] = {"table": 100, "fwmark": 16}
    # Without a metric, the kernel deletes the route with the least one; that of IPv6 is 1024 then.
    plain: dict[str, Any] = {"dst": "2001:db8:8::/48", "table": 254}

    @settings(max_examples=count(25, 500), deadline=None)
    @example({}, {"rules": [{**marked, "from": "10.0.0.2"}, marked]})
    @example({}, {"routes": [{**plain, "metric": 5}, plain]})
    @given(parts, parts)
    def attach_and_detach(first: dict[str, Any], second: dict[str, Any]) -> None:
        steps = (step("one", "tuning", "eth0", first), step("two", "tuning", "eth0", second))
        try:
            attach((plan(*steps),), pod.container, pod.pod.path, pod.settings)
        except AttachError as problem:
            assert "File exists" in str(problem) or "not" in str(problem), problem  # noqa: PT017
        else:
            report = check(pod.container.sandbox, pod.settings)
            overridden = {entry["address"] for entry in second.get("neighbours", ())}
            drift = [text for each in report.steps for text in each.drift]
            assert not [text for text in drift if not any(f"neighbour {address} " in text for address in overridden)]
        assert detach(pod.container.sandbox, pod.settings).is_clean
        assert differences(before, routing(pod)) == []

    attach_and_detach()


def rails(bed: Bed, networks: list[str]) -> Iterator[PlannedStep]:
    """NICs that are cabled to one switch, and steps that give each an address."""
    bed.run("ip", "link", "add", "switch", "type", "bridge")
    bed.run("ip", "link", "set", "switch", "up")
    for network in dict.fromkeys(networks):
        bed.run("ip", "addr", "add", f"{network}.1/24", "dev", "switch")
    for at, network in enumerate(networks):
        bed.veth(f"nic{at}", f"port{at}", up=True)
        bed.run("sysctl", "-qw", f"net.ipv6.conf.port{at}.disable_ipv6=1")
        bed.run("ip", "link", "set", f"port{at}", "up", "master", "switch")
        ipam = {"type": "static", "addresses": [{"address": f"{network}.{at + 10}/24"}]}
        nic = step(f"rail{at}", "host-device", f"rail{at}", {"ipam": ipam}, device=device(f"nic{at}"))
        yield msgspec.structs.replace(nic, source_routing=True)


def sent(bed: Bed, name: str) -> int:
    """How many packets of ARP and IPv4 a rail has sent, counted at its peer."""
    (peer,) = bed.ip("-s", "link", "show", name)
    received: int = peer["stats64"]["rx"]["packets"]
    return received


def used(bed: Bed, count: int, *command: str, inside: bool = False) -> set[int]:
    """The rails that send while a command runs."""
    before = [sent(bed, f"port{at}") for at in range(count)]
    bed.run(*command, inside=inside)
    return {at for at in range(count) if sent(bed, f"port{at}") - before[at]}


@pytest.mark.parametrize("networks", [["10.9.0"] * 4, ["10.9.0", "10.9.1", "10.9.2", "10.9.3"]], ids=["one", "several"])
def test_traffic_from_each_address_of_four_rails_leaves_by_its_own_interface(bed: Bed, networks: list[str]) -> None:
    before = routing(bed)
    steps = tuple(rails(bed, networks))
    attach((plan(*steps),), bed.container, bed.pod.path, bed.settings)
    for at in range(4):
        bed.run("sysctl", "-qw", f"net.ipv6.conf.rail{at}.disable_ipv6=1", inside=True)
    for at, network in enumerate(networks):
        address = f"{network}.{at + 10}"
        bed.run("ip", "neigh", "flush", "all")
        bed.run("ip", "neigh", "flush", "all", inside=True)
        assert used(bed, 4, "busybox", "ping", "-c", "2", "-W", "5", address) == {at}
        own = ("busybox", "ping", "-c", "2", "-W", "5", "-I", address, f"{network}.1")
        assert used(bed, 4, *own, inside=True) == {at}
        foreign = bed.ip("-4", "rule", inside=True)
        assert sum(each["src"] == address and each["priority"] == 30000 for each in foreign) == 1
    assert all(int(each["table"]) > 1_000_000 for each in foreign if each["priority"] == 30000)
    assert check(bed.container.sandbox, bed.settings).is_clean
    bed.run("ip", "rule", "del", "from", f"{networks[2]}.12", inside=True)
    drift = [text for each in check(bed.container.sandbox, bed.settings).steps for text in each.drift]
    assert [f"from {networks[2]}.12/32" in text for text in drift] == [True]
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert differences(before, routing(bed)) == []


def test_source_routing_uses_the_router_of_the_address_and_no_other_interface(bed: Bed) -> None:
    """With a router, everything from the address goes there; without one, nothing leaves by the default route."""
    name = bed.pod.path.rsplit("/", 1)[1]
    bed.veth("up0", "temporary", up=True)
    bed.run("ip", "link", "set", "temporary", "netns", name, "name", "eth0")
    bed.run("ip", "link", "set", "eth0", "up", inside=True)
    bed.run("ip", "addr", "add", "10.0.0.2/24", "dev", "eth0", inside=True)
    bed.run("ip", "route", "add", "default", "via", "10.0.0.1", inside=True)
    before, state = routing(bed), bed.state()
    steps = []
    for at, router in enumerate(("10.1.0.1", "")):
        bed.veth(f"nic{at}", f"port{at}", up=True)
        bed.run("ip", "link", "set", f"port{at}", "up")
        given = {"address": f"10.{at + 1}.0.5/24"} | ({"gateway": router} if router else {})
        six = {"address": f"2001:db8:{at + 1}::5/64"} | ({"gateway": "2001:db8:1::1"} if router else {})
        ipam = {
            "type": "static",
            "addresses": [given, six],
            "routes": [{"dst": f"10.{at + 50}.0.0/16", "gw": f"10.{at + 1}.0.7"}],
        }
        nic = step(f"r{at}", "host-device", f"net{at}", {"ipam": ipam}, device=device(f"nic{at}"))
        steps.append(msgspec.structs.replace(nic, source_routing=True))
    attach((plan(*steps),), bed.container, bed.pod.path, bed.settings)

    def way(to: str, source: str) -> tuple[str, str | None]:
        (found,) = bed.ip("route", "get", to, "from", source, inside=True)
        return found["dev"], found.get("gateway")

    assert way("192.0.2.1", "10.1.0.5") == ("net0", "10.1.0.1")
    assert way("10.50.0.1", "10.1.0.5") == ("net0", "10.1.0.7")
    assert way("10.51.0.1", "10.2.0.5") == ("net1", "10.2.0.7")
    assert way("2001:db8:99::1", "2001:db8:1::5") == ("net0", "2001:db8:1::1")
    assert way("2001:db8:2::9", "2001:db8:2::5") == ("net1", None)
    assert way("192.0.2.1", "10.0.0.2") == ("eth0", "10.0.0.1")
    assert check(bed.container.sandbox, bed.settings).is_clean
    for to, source in (("192.0.2.1", "10.2.0.5"), ("2001:db8:99::1", "2001:db8:2::5")):
        with pytest.raises(Exception, match="returned non-zero"):
            way(to, source)
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert differences(before, routing(bed)) == []
    assert [line for line in differences(state, bed.state()) if "nic" not in line and "port" not in line] == []


def test_source_routing_without_an_address_is_an_error_and_nothing_is_left(bed: Bed) -> None:
    bed.veth("nic0", "port0", up=True)
    before = routing(bed)
    nic = msgspec.structs.replace(step("r", "host-device", "net0", device=device("nic0")), source_routing=True)
    with pytest.raises(AttachError, match='sourceRouting is set, but interface "net0" has no address'):
        attach((plan(nic),), bed.container, bed.pod.path, bed.settings)
    assert differences(before, routing(bed)) == []
