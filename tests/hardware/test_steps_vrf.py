"""The vrf step: the routes of its interface are in the VRF's table, a loss is drift, and undoing leaves nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from netdra.chain.check import check
from netdra.chain.report import AttachError
from netdra.model.errors import NetdraError
from netdra.model.plan import PlannedStep
from tests.hardware.node import PF, ip, run
from tests.hardware.pods import Pod, allocated, assert_as_before, node_state
from tests.plans import plan, step

_KEPT = ("dst", "gateway", "dev", "table", "metric", "type")


def routing(pod: Pod) -> dict[str, list[str]]:
    """The rules, the routes of all tables, and the links with their addresses, of the pod."""
    found: dict[str, list[str]] = {"rules": [], "routes": [], "links": []}
    for family in ("-4", "-6"):
        found["rules"] += [f"{family} {each}" for each in json.loads(ip("-j", family, "rule", netns=pod.netns))]
        listed = json.loads(ip("-j", family, "route", "show", "table", "all", netns=pod.netns))
        found["routes"] += [str({key: each.get(key) for key in _KEPT}) for each in listed]
    for each in json.loads(ip("-j", "address", netns=pod.netns)):
        addresses = sorted(entry["local"] for entry in each["addr_info"] if entry["scope"] == "global")
        found["links"].append(f"{each['ifname']} {each.get('master')} {addresses}")
    return {name: sorted(line for line in lines if "fe80" not in line) for name, lines in found.items()}


def has_drift(pod: Pod) -> list[str]:
    return [text for each in check(pod.netns, pod.settings).steps for text in each.drift]


@pytest.fixture
def inside(pod: Pod) -> Pod:
    """A pod with two interfaces that have addresses and routes already."""
    for number in (0, 1):
        ip("link", "add", f"eth{number}", "type", "dummy", netns=pod.netns)
        run("ip", "netns", "exec", pod.netns, "sysctl", "-qw", f"net.ipv6.conf.eth{number}.accept_dad=0")
        ip("link", "set", f"eth{number}", "up", netns=pod.netns)
        ip("address", "add", f"10.{number}.0.2/24", "dev", f"eth{number}", netns=pod.netns)
        ip("address", "add", f"2001:db8:{number + 1}::2/64", "dev", f"eth{number}", "nodad", netns=pod.netns)
        ip("route", "add", f"10.{number + 50}.0.0/16", "via", f"10.{number}.0.1", netns=pod.netns)
        ip("route", "add", f"2001:db8:{number + 50}::/48", "via", f"2001:db8:{number + 1}::1", netns=pod.netns)
    return pod


def joining(name: str, if_name: str, **config: Any) -> PlannedStep:
    return step(name, "vrf", if_name, config)


def test_interfaces_join_a_vrf_with_their_routes_and_leave_it_as_they_were(inside: Pod) -> None:
    before = routing(inside)
    inside.attach(plan(joining("a", "eth0", vrfname="blue", table=77), joining("b", "eth1", vrfname="blue")))
    assert inside.link("blue")["linkinfo"]["info_data"]["table"] == 77
    assert {inside.link(f"eth{number}")["master"] for number in (0, 1)} == {"blue"}
    for number in (0, 1):
        for family, source, to, router in (
            ("-4", f"10.{number}.0.2", f"10.{number + 50}.0.9", f"10.{number}.0.1"),
            ("-6", f"2001:db8:{number + 1}::2", f"2001:db8:{number + 50}::9", f"2001:db8:{number + 1}::1"),
        ):
            (way,) = json.loads(ip("-j", family, "route", "get", "vrf", "blue", to, netns=inside.netns))
            assert (way["gateway"], way["dev"], way["prefsrc"]) == (router, f"eth{number}", source)
            assert json.loads(ip("-j", family, "route", "show", to, netns=inside.netns) or "[]") == []
    assert has_drift(inside) == []
    ip("link", "set", "eth1", "nomaster", netns=inside.netns)
    assert has_drift(inside) == ['interface "eth1" is not in VRF "blue"']
    ip("link", "set", "eth1", "master", "blue", netns=inside.netns)
    assert inside.detach().is_clean
    after = routing(inside)
    assert [line for name in before for line in {*before[name]} ^ {*after[name]}] == []


def test_a_vrf_of_another_table_and_a_link_of_its_name_are_refused_and_nothing_is_left(inside: Pod) -> None:
    before = routing(inside)
    for config, error in (
        ({"vrfname": "eth1"}, '"eth1" exists and is not a VRF'),
        ({"vrfname": "red", "table": 254}, "table 254 is not one for a VRF"),
    ):
        with pytest.raises(NetdraError, match=error):
            inside.attach(plan(joining("a", "eth0", **config)))
    second = joining("b", "eth1", vrfname="blue", table=8)
    with pytest.raises(AttachError, match='VRF "blue" has table 7, not 8'):
        inside.attach(plan(joining("a", "eth0", vrfname="blue", table=7), second))
    assert routing(inside) == before


def test_a_vf_in_a_vrf_of_its_own_and_back(pfs: tuple[PF, ...], pod: Pod) -> None:
    before = node_state()
    addresses = [{"address": "10.5.0.7/24"}, {"address": "2001:db8:5::7/64"}]
    ipam = {"type": "static", "addresses": addresses, "routes": [{"dst": "10.9.0.0/16", "gw": "10.5.0.1"}]}
    vf = step("vf", "sriov", "net1", {"ipam": ipam}, device=allocated(pfs[0].vf(0)))
    pod.attach(plan(vf, step("red", "vrf", "net1", {"vrfname": "red"}, after=["vf"])))
    assert (pod.link("net1")["master"], pod.addresses("net1")) == ("red", {"10.5.0.7/24", "2001:db8:5::7/64"})
    (way,) = json.loads(ip("-j", "route", "get", "vrf", "red", "10.9.0.1", netns=pod.netns))
    assert (way["gateway"], way["dev"]) == ("10.5.0.1", "net1")
    assert [text for text in has_drift(pod) if "carrier" not in text] == []
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)
