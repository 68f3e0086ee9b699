"""The pod's default routes: those of eth0, and before them those that steps request, from any source."""

from __future__ import annotations

import ipaddress
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from netdra.chain.check import check
from netdra.chain.detach import detach
from netdra.chain.report import AttachError, AttachReport
from netdra.kernel import kinds, link, route, uapi
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from netdra.model.plan import PlannedStep
from testbed.waiting import until
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.kernel.chain.routers import advertise
from tests.plans import attach, plan, step

Default = tuple[str, str, int]
"""A default route of the pod: its interface, its router, its metric (0: not compared)."""
ETH0 = {4: ("eth0", "10.0.0.1", 0), 6: ("eth0", "fd00::1", 1024)}


@pytest.fixture
def pod(bed: Bed) -> Bed:
    """A pod with default routes of both families through eth0, and NICs with a carrier on the node."""
    with bed.pod.socket() as sock, Socket() as host:
        link.create(sock, "eth0", "veth", kinds.veth(kinds.Peer("cluster")), up=True)
        peer = link.get(sock, "cluster")
        link.change(sock, peer.index, netns_fd=bed.host.fd, up=True)
        link.change(host, "cluster", up=True)
    for command in (
        ("addr", "add", "10.0.0.2/24", "dev", "eth0"),
        ("addr", "add", "fd00::2/64", "dev", "eth0", "nodad"),
        ("route", "add", "default", "via", "10.0.0.1"),
        ("route", "add", "default", "via", "fd00::1", "metric", "1024"),
    ):
        bed.run("ip", *command, inside=True)
    return bed


def defaults(bed: Bed, family: int) -> list[Default]:
    """The pod's default routes, in the kernel's order, each next hop by itself."""
    return [
        (hop["dev"], hop["gateway"], entry.get("metric", 0))
        for entry in bed.ip(f"-{family}", "route", "show", "default", inside=True)
        for hop in entry.get("nexthops", [entry])
    ]


def used(bed: Bed, family: int) -> str:
    """The interface through which the pod sends to an address that only default routes lead to."""
    (found,) = bed.ip("route", "get", {4: "198.51.100.9", 6: "2001:db8:ffff::9"}[family], inside=True)
    return str(found["dev"])


def nic(bed: Bed, number: int = 7) -> None:
    """eth<number> on the node, with a carrier."""
    bed.veth(f"eth{number}", f"peer{number}")
    for name in (f"eth{number}", f"peer{number}"):
        bed.run("ip", "link", "set", name, "up")


def requesting(made: PlannedStep) -> PlannedStep:
    """The same step, with `defaultRoute`."""
    return msgspec.structs.replace(made, default_route=True)


def attached(bed: Bed, *steps: PlannedStep) -> AttachReport:
    return attach((plan(*steps),), bed.container, bed.pod.path, bed.settings)


def drift(bed: Bed) -> str:
    """All drift of the pod, in words."""
    report = check(bed.container.sandbox, bed.settings)
    return "\n".join((*report.problems, *(text for entry in report.steps for text in entry.drift)))


def static(number: int, *, routes: list[dict[str, Any]]) -> dict[str, Any]:
    """Addresses of both families with their gateways."""
    return {
        "type": "static",
        "addresses": [
            {"address": f"10.{number}.0.5/24", "gateway": f"10.{number}.0.1"},
            {"address": f"fd{number}::5/64", "gateway": f"fd{number}::1"},
        ],
        "routes": routes,
    }


BOTH = [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]


@pytest.mark.parametrize("binary", [False, True], ids=["built in", "program"])
def test_default_routes_of_ipam_stay_out_of_the_pod_unless_the_step_requests_them(pod: Bed, binary: bool) -> None:
    nic(pod)
    before = pod.state()
    config = {"device": "eth7", "ipam": static(20, routes=BOTH)}
    made = step("nic", "host-device", "net1", config, device=device("eth7"), binary=binary)

    report = attached(pod, made)
    assert [defaults(pod, family) for family in (4, 6)] == [[ETH0[4]], [ETH0[6]]]
    notes = [note for note in report.steps[0].notes if "set defaultRoute: true" in note]
    assert len(notes) == 2
    assert not report.steps[0].result.routes
    assert drift(pod) == ""
    assert detach(pod.container.sandbox, pod.settings).is_clean
    assert differences(before, pod.state()) == []

    attached(pod, requesting(made))
    assert defaults(pod, 4) == [("net1", "10.20.0.1", 0), ETH0[4]]
    assert defaults(pod, 6) == [("net1", "fd20::1", 1023), ETH0[6]]
    assert [used(pod, family) for family in (4, 6)] == ["net1", "net1"]
    assert drift(pod) == ""
    assert detach(pod.container.sandbox, pod.settings).is_clean
    assert differences(before, pod.state()) == []


def test_an_ipv6_default_route_among_a_step_s_own_routes_comes_first_and_is_no_drift(pod: Bed) -> None:
    nic(pod)
    before = pod.state()
    tuning = {"addresses": ["fd20::5/64"], "routes": [{"destination": "::/0", "gateway": "fd20::1"}]}
    attached(
        pod,
        step("nic", "host-device", "net1", {}, device=device("eth7")),
        step("tune", "tuning", "net1", tuning, after=["nic"]),
    )
    assert defaults(pod, 6) == [("net1", "fd20::1", 1023), ETH0[6]]
    assert drift(pod) == ""
    pod.run("ip", "-6", "route", "del", "default", "via", "fd20::1", inside=True)
    assert "route to ::/0 is gone" in drift(pod)
    assert detach(pod.container.sandbox, pod.settings).is_clean
    assert differences(before, pod.state()) == []


@pytest.mark.parametrize("listed", [False, True], ids=["of itself", "as listed"])
def test_a_program_s_default_route_stays_only_if_it_is_among_the_step_s_own_routes(pod: Bed, listed: bool) -> None:
    nic(pod)
    program, inside = recorder(pod, "maker"), f"ip -n {Path(pod.pod.path).name}"
    program.prints(
        "ADD", {"interfaces": [{"name": "x", "sandbox": pod.pod.path}], "ips": [{"address": "10.20.0.5/24"}]}
    )
    make = f"{inside} link add x type veth peer name y && {inside} link set x up && {inside} link set y up"
    add = f"{inside} addr add 10.20.0.5/24 dev x && {inside} route prepend default via 10.20.0.1 dev x"
    program.does("ADD", f'{make} && {add} && cat "$state/ADD.json"')
    routes = [{"dst": "0.0.0.0/0", "gw": "10.20.0.1"}, "of another form"] if listed else []
    nic_step = step("nic", "host-device", "net1", device=device("eth7"))
    attached(pod, nic_step, step("made", "maker", "x", {"routes": routes}, after=["nic"]))
    assert [interface for interface, _, _ in defaults(pod, 4)] == (["x", "eth0"] if listed else ["eth0"])
    assert used(pod, 4) == ("x" if listed else "eth0")


def test_ipv6_routes_of_two_steps_to_the_same_network_are_no_drift(pod: Bed) -> None:
    """The kernel joins them into one route with two next hops."""
    for number in (7, 8):
        nic(pod, number)
    routes = [{"dst": "2001:db8:9::/48"}]
    attached(
        pod,
        step("a", "host-device", "net1", {"ipam": static(20, routes=routes)}, device=device("eth7")),
        step("b", "host-device", "net2", {"ipam": static(21, routes=routes)}, device=device("eth8")),
    )
    assert drift(pod) == ""
    pod.run("ip", "-6", "route", "del", "2001:db8:9::/48", "via", "fd21::1", "dev", "net2", inside=True)
    assert drift(pod) == 'interface "net2" has lost the route to 2001:db8:9::/48 by fd21::1'


MAKE = 'ip -n "$(basename "$CNI_NETNS")" link add "$CNI_IFNAME" type bridge || exit 1'
UNMAKE = 'ip -n "$(basename "$CNI_NETNS")" link del "$CNI_IFNAME" 2>/dev/null; true'
REPLACE = """
in_pod() { ip -n "$(basename "$CNI_NETNS")" "$@" || exit 1; }
in_pod link set "$CNI_IFNAME" up
in_pod addr add 10.30.0.5/24 dev "$CNI_IFNAME"
in_pod addr add fd30::5/64 dev "$CNI_IFNAME" nodad
in_pod route replace default via 10.30.0.1 dev "$CNI_IFNAME"
in_pod -6 route replace default via fd30::1 dev "$CNI_IFNAME" metric 1024
"""
RESULT = 'echo \'{"interfaces": [{"name": "\'"$CNI_IFNAME"\'", "sandbox": "\'"$CNI_NETNS"\'"}]}\''


@pytest.mark.parametrize("requested", [False, True])
def test_a_program_that_replaces_eth0_s_default_routes_does_not_take_them(pod: Bed, requested: bool) -> None:
    greedy = recorder(pod, "greedy")
    greedy.does("ADD", f"{MAKE}\n{REPLACE}\n{RESULT}")
    greedy.does("DEL", UNMAKE)
    before = pod.state()
    made = step("s", "greedy", "net1")
    attached(pod, requesting(made) if requested else made)
    assert defaults(pod, 4) == [*([("net1", "10.30.0.1", 0)] if requested else []), ETH0[4]]
    assert defaults(pod, 6) == [*([("net1", "fd30::1", 1023)] if requested else []), ETH0[6]]
    assert drift(pod) == ""
    assert detach(pod.container.sandbox, pod.settings).is_clean
    assert differences(before, pod.state()) == []


def test_a_program_that_fails_after_it_has_replaced_eth0_s_default_routes_leaves_them_as_before(pod: Bed) -> None:
    greedy = recorder(pod, "greedy")
    greedy.does("ADD", f"{MAKE}\n{REPLACE}\nexit 1")
    greedy.does("DEL", UNMAKE)
    before = pod.state()
    with pytest.raises(AttachError, match="exit status 1"):
        attached(pod, step("s", "greedy", "net1"))
    assert differences(before, pod.state()) == []


def test_a_pod_without_any_route_has_no_default_route_to_keep() -> None:
    """In a new namespace, the kernel has no table of routes yet."""
    with Namespace.anonymous() as space, space.socket() as sock:
        assert route.dump(sock, table=uapi.RT_TABLE_MAIN) == []


class Drawn(msgspec.Struct, frozen=True):
    """One interface of a random pod.

    Attributes:
        kind: the plugin; "built in" is host-device of netdra.
        ipam: the IPAM plugin.
        families: the families of its addresses.
        metric: whether its default routes have a metric.
        requested: whether the step requests default routes.
        own: whether a tuning step after it has a default route among its routes, too.
    """

    kind: str
    ipam: str
    families: tuple[int, ...]
    metric: bool
    requested: bool
    own: bool


METRICS = {4: 700, 6: 2000}
EVERYWHERE = {4: "0.0.0.0/0", 6: "::/0"}


def subnet(number: int, family: int) -> str:
    return {4: f"10.{20 + number}.0.0/24", 6: f"fd{20 + number}::/64"}[family]


def router(number: int, family: int) -> str:
    return str(ipaddress.ip_network(subnet(number, family))[1])


@st.composite
def interfaces(draw: st.DrawFn) -> list[Drawn]:
    drawn = st.builds(
        Drawn,
        kind=st.sampled_from(["built in", "host-device", "macvlan", "bridge"]),
        ipam=st.sampled_from(["static", "host-local"]),
        families=st.sampled_from([(4,), (6,), (4, 6)]),
        metric=st.booleans(),
        requested=st.booleans(),
        own=st.booleans(),
    )
    return draw(st.lists(drawn, min_size=1, max_size=3))


def ipam_of(drawn: Drawn, number: int, bed: Bed) -> dict[str, Any]:
    routes: list[dict[str, Any]] = []
    for family in drawn.families:
        metric = {"priority": METRICS[family]} if drawn.metric else {}
        routes.append({"dst": EVERYWHERE[family], "gw": router(number, family), **metric})
        routes.append({"dst": {4: f"10.{120 + number}.0.0/16", 6: f"2001:db8:{number}::/48"}[family]})
    if drawn.ipam == "static":
        networks = {family: ipaddress.ip_network(subnet(number, family)) for family in drawn.families}
        addresses = [
            {"address": f"{network[5]}/{network.prefixlen}", "gateway": str(network[1])}
            for network in networks.values()
        ]
        return {"type": "static", "addresses": addresses, "routes": routes}
    ranges = [[{"subnet": subnet(number, family)}] for family in drawn.families]
    return {"type": "host-local", "ranges": ranges, "routes": routes, "dataDir": str(bed.plugins.parent / "leases")}


def steps_of(drawn: Drawn, number: int, bed: Bed) -> list[PlannedStep]:
    config: Mapping[str, Any] = {"ipam": ipam_of(drawn, number, bed)}
    at, name = f"eth{number}", f"net{number}"
    match drawn.kind:
        case "macvlan":
            made = step(name, "macvlan", name, {"master": at, **config}, device=device(at))
        case "bridge":
            made = step(name, "bridge", name, {"bridge": f"br{number}", **config})
        case _:
            binary = drawn.kind != "built in"
            made = step(name, "host-device", name, {"device": at, **config}, device=device(at), binary=binary)
    tuning = {
        "addresses": [f"10.{60 + number}.0.5/24", f"fd{60 + number}::5/64"],
        "routes": [
            {"destination": EVERYWHERE[4], "gateway": f"10.{60 + number}.0.1"},
            {"destination": EVERYWHERE[6], "gateway": f"fd{60 + number}::1"},
        ],
    }
    own = [step(f"tune{number}", "tuning", name, tuning, after=[name])] if drawn.own else []
    return [requesting(made) if drawn.requested else made, *own]


def expected(drawn: list[Drawn], family: int) -> tuple[set[tuple[str, str]], set[str]]:
    """By the rule: the default routes by interface and router, and the interfaces of those that come first."""
    routes, first = {ETH0[family][:2]}, set[str]()
    for number, entry in enumerate(drawn):
        if entry.own:
            routes.add((f"net{number}", {4: f"10.{60 + number}.0.1", 6: f"fd{60 + number}::1"}[family]))
            first.add(f"net{number}")
        if family in entry.families and (entry.metric or entry.requested):
            routes.add((f"net{number}", router(number, family)))
        if family in entry.families and entry.requested and not entry.metric:
            first.add(f"net{number}")
    return routes, first or {"eth0"}


def test_default_routes_follow_the_rule_for_random_steps_and_check_names_each_lost_route(pod: Bed) -> None:
    for number in range(3):
        nic(pod, number)
    before = pod.state()["pod"]  # the program "bridge" leaves its bridge on the node
    all_routes = Drawn("built in", "static", (4, 6), metric=False, requested=True, own=True)

    @example([all_routes, msgspec.structs.replace(all_routes, kind="bridge")], 1)
    @example([msgspec.structs.replace(all_routes, kind="macvlan", requested=False, own=False)], 0)
    @settings(
        max_examples=15,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(interfaces(), st.integers(0, 100))
    def holds(drawn: list[Drawn], chosen: int) -> None:
        steps = [made for number, entry in enumerate(drawn) for made in steps_of(entry, number, pod)]
        attached(pod, *steps)
        for family in (4, 6):
            routes, first = expected(drawn, family)
            assert {entry[:2] for entry in defaults(pod, family)} == routes
            assert used(pod, family) in first
            assert ETH0[family] in defaults(pod, family)
        assert drift(pod) == ""
        losable = [
            (family, entry["dst"], hop["gateway"], hop["dev"])
            for family in (4, 6)
            for entry in pod.ip(f"-{family}", "route", "show", inside=True)
            for hop in entry.get("nexthops", [entry])
            if hop.get("dev", "eth0") != "eth0" and "gateway" in hop
        ]
        if losable:
            family, destination, gateway, name = losable[chosen % len(losable)]
            pod.run("ip", f"-{family}", "route", "del", destination, "via", gateway, "dev", name, inside=True)
            text = EVERYWHERE[family] if destination == "default" else destination
            assert f"route to {text}" in drift(pod)
        assert detach(pod.container.sandbox, pod.settings).is_clean
        assert differences(before, pod.state()["pod"]) == []

    holds()


def follow(bed: Bed, name: str, prefix: str) -> None:
    """Advertise until the pod has an address of the prefix; a link-local address is needed first, on both sides."""

    def has_address() -> bool:
        with suppress(OSError):
            advertise(name, prefix)
        return any(prefix.partition("::")[0] in text for text in bed.addresses("net1", inside=True))

    until(has_address, "an address of the advertised prefix")


ADVERTISED = "2001:db8:bad::/64"


@pytest.mark.parametrize("binary", [False, True], ids=["built in", "program"])
def test_a_router_s_default_route_stays_out_of_the_pod_and_its_address_is_reported(pod: Bed, binary: bool) -> None:
    nic(pod)
    config = {"device": "eth7", "ipam": static(20, routes=[])}
    attached(pod, step("nic", "host-device", "net1", config, device=device("eth7"), binary=binary))
    follow(pod, "peer7", ADVERTISED)
    assert defaults(pod, 6) == [ETH0[6]]
    assert re.fullmatch(
        r'interface "net1" has address 2001:db8:bad:.*/64, which a router advertised and no step requests', drift(pod)
    )
    pod.run("sysctl", "-q", "-w", "net.ipv6.conf.net1.accept_ra_defrtr=1", inside=True)
    advertise("peer7", ADVERTISED)
    until(lambda: len(defaults(pod, 6)) == 2, "the router's default route")
    assert 'interface "net1" has a default route via fe80:' in drift(pod)


def test_a_requested_default_route_of_a_router_comes_first(pod: Bed) -> None:
    nic(pod)
    attached(pod, requesting(step("nic", "host-device", "net1", {}, device=device("eth7"))))
    follow(pod, "peer7", ADVERTISED)
    assert [(name, metric) for name, _, metric in defaults(pod, 6)] == [("net1", 1023), ("eth0", 1024)]
    assert drift(pod) == ""


def test_configuration_of_a_router_is_no_drift_where_a_step_lets_the_interface_follow_routers(pod: Bed) -> None:
    nic(pod)
    settings = {"net.ipv6.conf.IFNAME.accept_ra": "2", "net.ipv6.conf.IFNAME.accept_ra_defrtr": "1"}
    attached(
        pod,
        step("nic", "host-device", "net1", {"ipam": static(20, routes=[])}, device=device("eth7")),
        step("tune", "tuning", "net1", {"sysctl": settings}, after=["nic"]),
    )
    follow(pod, "peer7", ADVERTISED)
    assert drift(pod) == ""


WITHOUT_IPV6 = 'nsenter --net="$0" mount -t tmpfs none /proc/sys/net/ipv6 && exec "$@"'


def test_an_ipv6_address_on_a_node_without_ipv6_is_refused_by_its_reason_and_undone(pod: Bed) -> None:
    """As with ipv6.disable=1, the folder of IPv6's settings is empty."""
    nic(pod)
    before = pod.state()
    steps = plan(step("nic", "host-device", "net1", {"ipam": static(20, routes=BOTH)}, device=device("eth7")))
    written = pod.plugins.parent / "plan.json"
    written.write_bytes(msgspec.json.encode([steps]))
    options = ("--netns", pod.pod.path, "--plan", str(written), "--state", str(pod.settings.state))
    attach_it = (sys.executable, "-m", "netdra", "attach", *options, "--cni-path", str(pod.plugins))
    done = subprocess.run(
        ("unshare", "--mount", "sh", "-c", WITHOUT_IPV6, pod.pod.path, *attach_it),
        capture_output=True,
        text=True,
        check=False,
    )
    assert 'interface "net1" can have no IPv6 address: the kernel of the node has no IPv6' in done.stderr
    assert "undone: nic" in done.stderr
    assert differences(before, pod.state()) == []
