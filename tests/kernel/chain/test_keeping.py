"""A device keeps its addresses, routes, rules and neighbours in the pod, and has them again on the node afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.chain.check import check
from netdra.chain.detach import detach
from netdra.chain.report import AttachReport
from netdra.kernel import netns
from netdra.model.errors import NetdraError
from netdra.model.kept import Keep
from tests.kernel.chain.conftest import Bed, device, differences
from tests.kernel.chain.test_crash import ENOUGH, assert_undone, crasher, dies
from tests.plans import attach, plan, step

EVERYTHING: tuple[Keep, ...] = ("addresses", "routes", "rules", "neighbours", "mtu")


def rail(bed: Bed) -> None:
    """A NIC as a cloud's agent configures it: an address, a table of its own with a rule, a static neighbour."""
    bed.veth("eth7", "peer7", mtu=4200, mac="02:00:00:00:00:07", up=True)
    bed.run("ip", "link", "set", "peer7", "up")
    bed.run("ip", "addr", "add", "10.9.0.5/24", "dev", "eth7")
    bed.run("ip", "addr", "add", "2001:db8:9::5/64", "dev", "eth7", "nodad")
    bed.run("ip", "route", "add", "10.77.0.0/16", "via", "10.9.0.1", "metric", "5")
    bed.run("ip", "route", "add", "default", "via", "10.9.0.1", "table", "107")
    bed.run("ip", "-6", "route", "add", "default", "via", "2001:db8:9::1", "table", "107")
    for family in ("-4", "-6"):
        bed.run("ip", family, "rule", "add", "iif", "eth7", "lookup", "107", "priority", "1007")
    bed.run("ip", "rule", "add", "from", "10.9.0.5", "lookup", "107", "priority", "1008")
    bed.run("ip", "rule", "add", "from", "10.99.0.0/16", "lookup", "300", "priority", "1009")
    bed.run("ip", "neigh", "add", "10.9.0.1", "lladdr", "02:00:00:00:00:01", "nud", "permanent", "dev", "eth7")


def moved(bed: Bed, given: Any, config: dict[str, Any] | None = None, **fields: Any) -> AttachReport:
    one = msgspec.structs.replace(step("dev", "host-device", "rail0", config or {}, device=given), **fields)
    return attach((plan(one),), bed.container, bed.pod.path, bed.settings)


def seen(bed: Bed, name: str, *, inside: bool) -> dict[str, Any]:
    """The settings of a namespace for one interface beside its links: routes in all tables, rules, neighbours."""
    routes = [
        (each["dst"], each.get("gateway"), each.get("table", "main"), each.get("metric"))
        for family in ("-4", "-6")
        for each in bed.ip(family, "route", "show", "table", "all", inside=inside)
        if each.get("dev") == name and each.get("type", "unicast") == "unicast"
        if not str(each["dst"]).startswith(("fe80", "ff00", "multicast"))
    ]
    rules = [
        (family, each["priority"], each["src"], each.get("iif"), each.get("table"))
        for family in ("-4", "-6")
        for each in bed.ip(family, "rule", inside=inside)
        if each["priority"] not in (0, 32766, 32767)
    ]
    known = [
        (each["dst"], each["lladdr"])
        for each in bed.ip("neigh", "show", "nud", "permanent", inside=inside)
        if each["dev"] == name
    ]
    return {"routes": sorted(routes, key=str), "rules": sorted(rules), "neighbours": known}


ROUTES = [
    ("10.77.0.0/16", "10.9.0.1", "main", 5),
    ("10.9.0.0/24", None, "main", None),
    ("2001:db8:9::/64", None, "main", 256),
    ("default", "10.9.0.1", "107", None),
    ("default", "2001:db8:9::1", "107", 1024),
]


def test_all_that_a_rail_has_is_in_the_pod_and_back_on_the_node_exactly(bed: Bed) -> None:
    rail(bed)
    before, on_node = bed.state(), seen(bed, "eth7", inside=False)
    assert on_node["routes"] == ROUTES
    report = moved(bed, device("eth7", allow_host_addresses=True, keep=EVERYTHING))
    assert bed.link("rail0", inside=True)["mtu"] == 4200
    assert bed.addresses("rail0", inside=True) == {"10.9.0.5/24", "2001:db8:9::5/64"}
    inside = seen(bed, "rail0", inside=True)
    assert inside["routes"] == ROUTES
    assert inside["rules"] == [
        ("-4", 1007, "all", "rail0", "107"),
        ("-4", 1008, "10.9.0.5", None, "107"),
        ("-6", 1007, "all", "rail0", "107"),
    ]
    assert inside["neighbours"] == [("10.9.0.1", "02:00:00:00:00:01")]
    (done,) = report.steps
    assert [entry.address for entry in done.result.ips] == ["10.9.0.5/24", "2001:db8:9::5/64"]
    assert [entry.interface for entry in done.result.ips] == [0, 0]
    assert [each.drift for each in check(bed.container.sandbox, bed.settings).steps] == [()]
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert differences(before, bed.state()) == []
    assert seen(bed, "eth7", inside=False) == on_node
    assert seen(bed, "rail0", inside=True)["rules"] == []


def test_a_pod_s_namespace_that_has_died_has_nothing_left_to_undo(bed: Bed) -> None:
    rail(bed)
    moved(bed, device("eth7", allow_host_addresses=True, keep=EVERYTHING))
    netns.delete(Path(bed.pod.path).name)
    bed.pod.close()
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert [each["priority"] for each in bed.ip("rule")] == [0, 1007, 1008, 1009, 32766, 32767]


def test_an_address_that_is_lost_in_the_pod_is_drift(bed: Bed) -> None:
    rail(bed)
    moved(bed, device("eth7", allow_host_addresses=True, keep=("addresses",)))
    bed.run("ip", "addr", "del", "10.9.0.5/24", "dev", "rail0", inside=True)
    (drift,) = [each.drift for each in check(bed.container.sandbox, bed.settings).steps]
    assert drift == ('interface "rail0" has lost address 10.9.0.5/24',)


@pytest.mark.parametrize(
    ("of_step", "of_policy", "config", "addresses"),
    [
        (None, ("addresses",), {}, {"10.9.0.5/24", "2001:db8:9::5/64"}),
        (("addresses",), (), {}, {"10.9.0.5/24", "2001:db8:9::5/64"}),
        ((), ("addresses",), {}, set()),
        (None, (), {}, set()),
        (
            None,
            ("addresses",),
            {"ipam": {"type": "static", "addresses": [{"address": "10.5.0.5/24"}]}},
            {"10.5.0.5/24"},
        ),
    ],
    ids=["the policy's", "the step's", "the step keeps nothing", "nobody says", "IPAM gives others"],
)
def test_a_step_s_word_comes_before_its_policy_s(
    bed: Bed, of_step: Any, of_policy: Any, config: dict[str, Any], addresses: set[str]
) -> None:
    rail(bed)
    moved(bed, device("eth7", allow_host_addresses=True, keep=of_policy), config, keep=of_step)
    assert bed.addresses("rail0", inside=True) == addresses
    assert seen(bed, "rail0", inside=True)["rules"] == []


@pytest.mark.parametrize("wanted", [False, True])
def test_a_default_route_that_would_precede_eth0_is_omitted_and_reported_unless_wanted(bed: Bed, wanted: bool) -> None:
    rail(bed)
    bed.run("ip", "route", "add", "default", "via", "10.9.0.1")
    bed.run("ip", "route", "add", "default", "via", "10.9.0.1", "metric", "700")
    keep: tuple[Keep, ...] = ("addresses", "routes")
    report = moved(bed, device("eth7", allow_host_addresses=True), keep=keep, default_route=wanted)
    defaults = [route for route in seen(bed, "rail0", inside=True)["routes"] if route[0] == "default"]
    assert (("default", "10.9.0.1", "main", None) in defaults) is wanted
    assert ("default", "10.9.0.1", "main", 700) in defaults
    told = [note for note in report.steps[0].notes if "would come before that of eth0" in note]
    assert bool(told) is not wanted


def test_a_device_without_an_address_to_keep_is_reported(bed: Bed) -> None:
    bed.veth("eth7", "peer7", up=True)
    report = moved(bed, device("eth7", keep=("addresses",)))
    assert report.steps[0].notes == ('device "eth7" had no address on the node, so the pod has none to keep',)


def test_a_network_manager_s_own_route_to_its_network_comes_back(bed: Bed) -> None:
    """NetworkManager sets noprefixroute and makes the route itself, with a metric."""
    bed.veth("eth7", "peer7", mac="02:00:00:00:00:07", up=True)
    bed.run("ip", "link", "set", "peer7", "up")
    bed.run("ip", "addr", "add", "10.9.0.5/24", "dev", "eth7", "noprefixroute")
    through = ("10.9.0.0/24", "dev", "eth7", "src", "10.9.0.5", "metric", "101")
    bed.run("ip", "route", "add", *through, "proto", "kernel", "scope", "link")
    before = seen(bed, "eth7", inside=False)
    assert before["routes"] == [("10.9.0.0/24", None, "main", 101)]
    moved(bed, device("eth7", allow_host_addresses=True, keep=("addresses", "routes")))
    assert seen(bed, "rail0", inside=True)["routes"] == [("10.9.0.0/24", None, "main", None)]
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert seen(bed, "eth7", inside=False) == before


def test_more_than_can_be_kept_is_refused_and_the_device_stays(bed: Bed) -> None:
    rail(bed)
    routes = "".join(f"route add 10.{200 + at // 256}.{at % 256}.0/24 via 10.9.0.1\n" for at in range(1100))
    (bed.plugins.parent / "routes").write_text(routes)
    bed.run("ip", "-batch", str(bed.plugins.parent / "routes"))
    with pytest.raises(NetdraError, match=r"has 1105 addresses, routes, rules and neighbours .* more than 1024"):
        moved(bed, device("eth7", allow_host_addresses=True, keep=("addresses", "routes")))
    assert bed.link("eth7")["ifname"] == "eth7"
    assert netns.names()


def test_other_uses_still_keep_the_device_on_the_node(bed: Bed) -> None:
    rail(bed)
    bed.run("ip", "link", "add", "br0", "type", "bridge")
    bed.run("ip", "link", "set", "eth7", "master", "br0")
    with pytest.raises(NetdraError, match="the host uses device") as refused:
        moved(bed, device("eth7", allow_host_addresses=True, keep=EVERYTHING))
    assert "allowHostUse" in refused.value.hint


def test_addresses_alone_are_refused_with_the_word_that_allows_them(bed: Bed) -> None:
    rail(bed)
    with pytest.raises(NetdraError, match="the host uses device") as refused:
        moved(bed, device("eth7", keep=EVERYTHING))
    assert "allowHostAddresses" in refused.value.hint


def test_killed_at_any_point_of_attaching_the_node_has_all_again_and_the_pod_nothing(bed: Bed) -> None:
    rail(bed)
    before, on_node = bed.state(), seen(bed, "eth7", inside=False)
    one = step("dev", "host-device", "rail0", device=device("eth7", allow_host_addresses=True, keep=EVERYTHING))
    with crasher(bed, "attach", (plan(one),)) as process:
        for number in range(1, ENOUGH):
            killed = dies(process, number)
            assert_undone(bed, before, number)
            assert seen(bed, "eth7", inside=False) == on_node, f"after event {number}"
            assert seen(bed, "rail0", inside=True)["rules"] == [], f"after event {number}"
            if not killed:
                break
    assert 10 < number < ENOUGH - 1
