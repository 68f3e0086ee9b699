"""A plugin vanishes or comes back: offered devices follow, devices of claims are unaffected, the report names it."""

from __future__ import annotations

import pytest

from netdra.model.device import DEFAULT_FEATURES
from netdra.model.node_network import NodeNetworkStatus
from netdra.model.policy import DeviceExposurePolicy
from netdra.node.publishing.plugins import Presence
from netdra.topology.devices import supported_cnis
from tests.builders import OURS, exclusive, shared
from tests.unit.node.publishing.scene import ETH, ETH_KEY, Scene

VETH = f'{OURS}.type == "veth"'
SHARED = shared("veths", VETH, supportedCNIPlugins=[{"name": "macvlan"}])
EXCLUSIVE = exclusive("veths", VETH, "ovs")
THERE = Presence(programs=("macvlan", "ovs"))
WHY = "executable not found in /opt/cni/bin"
LOST = Presence(lost={"macvlan": WHY, "ovs": WHY})


def scene(policy: DeviceExposurePolicy, presence: Presence) -> Scene:
    found = Scene(policy)
    look(found, policy, presence)
    return found


def look(found: Scene, policy: DeviceExposurePolicy, presence: Presence) -> set[str]:
    found.offering.follow([policy], DEFAULT_FEATURES, presence)
    return found.see(ETH)


def published(found: Scene) -> tuple[str, ...]:
    return supported_cnis(found.devices(ETH_KEY[0])["eth7"])


@pytest.mark.parametrize(("policy", "plugin"), [(SHARED, "macvlan"), (EXCLUSIVE, "ovs")])
def test_offered_devices_follow_the_plugins_and_a_repeated_presence_changes_nothing(
    policy: DeviceExposurePolicy, plugin: str
) -> None:
    found = scene(policy, Presence())
    assert published(found) == ()
    assert look(found, policy, THERE) == {ETH_KEY[0]}
    assert published(found) == (plugin,)
    assert look(found, policy, THERE) == set()
    assert look(found, policy, LOST) == {ETH_KEY[0]}
    assert published(found) == ()


@pytest.mark.parametrize(("policy", "plugin"), [(SHARED, "macvlan"), (EXCLUSIVE, "ovs")])
def test_a_claim_keeps_its_device_as_it_was_allocated_while_its_plugin_is_away(
    policy: DeviceExposurePolicy, plugin: str
) -> None:
    found = scene(policy, THERE)
    before = found.devices(ETH_KEY[0])["eth7"]
    found.hold(ETH_KEY)
    look(found, policy, LOST)
    after = found.devices(ETH_KEY[0])["eth7"]
    assert (after.capacity, after.consumes_counters, after.taints) == (before.capacity, before.consumes_counters, ())
    assert published(found) == (() if policy is SHARED else (plugin,))
    if policy is SHARED:
        assert found.last is not None
        (planned,) = found.last.devices[ETH_KEY[0]].values()
        assert planned.supported_cnis == (plugin,)
    found.hold()
    look(found, policy, LOST)
    assert published(found) == ()


def test_a_daemon_that_begins_while_a_claims_plugin_is_away_does_not_refuse_the_claim() -> None:
    before = scene(SHARED, THERE)
    before.hold(ETH_KEY)
    look(before, SHARED, LOST)
    after = Scene(SHARED, published=before.slices)
    after.hold(ETH_KEY)
    look(after, SHARED, Presence())
    assert after.last is not None
    assert after.last.devices[ETH_KEY[0]][ETH_KEY].supported_cnis == ("macvlan",)


def report(found: Scene) -> NodeNetworkStatus:
    return found.offering.report()


def test_the_report_names_plugins_that_policies_list_and_the_node_lacks() -> None:
    found = scene(SHARED, Presence(programs=("bridge",)))
    status = report(found)
    assert status.plugins == ("bridge",)
    (missing,) = status.missing_plugins
    assert (missing.name, missing.reason, missing.devices, missing.allocated) == ("macvlan", "", 1, 0)
    assert status.problems == ()
    look(found, SHARED, THERE)
    assert report(found).missing_plugins == ()


def test_a_lost_plugin_is_a_problem_with_its_reason_and_devices_until_it_returns() -> None:
    found = scene(SHARED, THERE)
    found.hold(ETH_KEY)
    look(found, SHARED, LOST)
    status = report(found)
    (missing,) = status.missing_plugins
    assert (missing.reason, missing.devices, missing.allocated) == (WHY, 1, 1)
    (problem,) = status.problems
    assert problem.message == f'CNI plugin "macvlan" is not offered: {WHY}'
    assert status.summary.problems == 1
    look(found, SHARED, THERE)
    assert report(found).problems == ()


def test_a_plugin_that_no_policy_lists_is_nobodys_problem() -> None:
    found = scene(SHARED, Presence(programs=("macvlan",), unusable={"broken": "it does not answer"}))
    assert report(found).problems == ()
    assert report(found).missing_plugins == ()
