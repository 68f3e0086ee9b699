"""A VF keeps its addresses in the pod, and the node has them again: also when the pod's namespace went first.

Unlike a virtual link, a device of hardware outlives its pod's namespace, so here the node's configuration can be
restored after that, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from netdra.discovery.scan import scan
from netdra.discovery.watch import Watcher
from netdra.exposure.expose import expose
from netdra.model.inventory import Inventory
from testbed.waiting import until
from tests.builders import OURS, exclusive
from tests.hardware.node import PATIENCE, PF, VF, ip, up
from tests.hardware.pods import Pod, allocated, assert_as_before, node_state
from tests.plans import plan, step

TABLE = "107"


def configured(name: str, netns: str = "") -> dict[str, Any]:
    """Addresses, routes of all tables and permanent neighbours of an interface."""
    shown = {
        what: json.loads(ip("-j", *what.split(), netns=netns) or "[]")
        for what in ("-4 addr show", "route show table all", "neigh show nud permanent")
    }
    addresses = [entry["addr_info"] for entry in shown["-4 addr show"] if entry.get("ifname") == name]
    return {
        "addresses": [f"{each['local']}/{each['prefixlen']}" for entry in addresses for each in entry],
        "routes": sorted(
            f"{each['dst']} via {each.get('gateway')} table {each.get('table', 'main')}"
            for each in shown["route show table all"]
            if each.get("dev") == name and each.get("type", "unicast") == "unicast" and each["dst"] != "fe80::/64"
        ),
        "neighbours": [each["dst"] for each in shown["neigh show nud permanent"] if each.get("dev") == name],
    }


@pytest.fixture
def rail(pfs: tuple[PF, ...]) -> Iterator[VF]:
    """A VF with an address, a table of its own with a rule, and a permanent neighbour."""
    vf = pfs[0].vf(1)
    name = vf.name
    up(name)
    ip("addr", "add", "10.9.0.5/24", "dev", name)
    ip("route", "add", "default", "via", "10.9.0.1", "dev", name, "table", TABLE)
    ip("rule", "add", "from", "10.9.0.5", "lookup", TABLE, "priority", "1007")
    ip("neigh", "add", "10.9.0.1", "lladdr", "02:00:00:00:00:01", "nud", "permanent", "dev", name)
    yield vf
    ip("rule", "del", "priority", "1007")
    ip("addr", "flush", "dev", vf.name)
    ip("neigh", "flush", "dev", vf.name, "nud", "permanent")
    ip("link", "set", vf.name, "down")


@pytest.mark.parametrize("kind", ["sriov", "host-device"])
@pytest.mark.parametrize("gone", [False, True])
def test_a_vf_has_its_addresses_in_the_pod_and_afterwards_on_the_node(
    rail: VF, new_pod: Callable[[], Pod], kind: str, gone: bool
) -> None:
    pod, name = new_pod(), rail.name
    before, on_node = node_state(), configured(name)
    assert on_node["routes"] == ["10.9.0.0/24 via None table main", f"default via 10.9.0.1 table {TABLE}"]
    keep = ("addresses", "routes", "rules", "neighbours")
    pod.attach(plan(step("rail", kind, "rail0", device=allocated(rail, allow_host_addresses=True, keep=keep))))
    assert configured("rail0", pod.netns) == on_node
    assert any(each["priority"] == 1007 for each in json.loads(ip("-j", "rule", netns=pod.netns)))
    if gone:
        ip("netns", "delete", pod.netns)
    report = pod.detach()
    assert report.is_clean, str(report)
    until(lambda: configured(name) == on_node, "the VF to be as it was", seconds=PATIENCE)
    assert_as_before(before, pod.settings)


def test_a_default_route_that_needs_a_rule_does_not_hide_a_rail_with_addresses_and_one_for_all_does(rail: VF) -> None:
    """The node's own traffic takes the main table; the watch reports the same as a scan."""
    name = rail.name
    offering = exclusive("rails", f'{OURS}.ifName == "{name}"', "host-device", allowHostAddresses=True)

    def offered(inventory: Inventory) -> bool:
        return bool(expose(inventory, [offering]).devices)

    def follows(watcher: Watcher, expected: bool) -> bool:
        watcher.handle()
        return offered(watcher.inventory) is expected and offered(scan()) is expected

    with Watcher() as watcher:
        (seen,) = [each for each in watcher.inventory.interfaces if each.if_name == name]
        assert (seen.host_uplink, seen.uplink_by_rules) == (True, True)
        assert follows(watcher, expected=True)
        assert not expose(watcher.inventory, [exclusive("plain", f'{OURS}.ifName == "{name}"')]).devices
        ip("route", "add", "default", "via", "10.9.0.1", "dev", name, "metric", "4000")
        until(lambda: follows(watcher, expected=False), "the rail to be an uplink", seconds=PATIENCE)
        ip("route", "del", "default", "via", "10.9.0.1", "dev", name, "metric", "4000")
        until(lambda: follows(watcher, expected=True), "the rail to be offered again", seconds=PATIENCE)
