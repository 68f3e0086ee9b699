"""The stories of claims, devices and topologies; the users of devices, and the free devices."""

from __future__ import annotations

import msgspec
import pytest

from netdra.cluster.objects import ClusterState
from netdra.controller import status
from netdra.story import topologies
from netdra.story.claims import claim_story
from netdra.story.devices import device_story
from netdra.story.statement import Story
from netdra.story.topologies import topology_story
from netdra.story.usage import ClassUse, DeviceUse, UseCount, class_uses, device_uses, node_uses, pf_uses
from tests.unit.story.making import NODES, RUNNING, TOPOLOGY, claim, cluster, pod, report, slices

HIDDEN = {"type": "nic", "count": 1, "names": ["wlan0"], "reason": "no policy matches it"}
OFFERED = {"type": "nic", "count": 2, "names": ["eth0", "eth1"], "devices": [{"policy": "nics"}]}
STATE = cluster(
    TOPOLOGY,
    NODES,
    report(interfaces=[OFFERED, HIDDEN], summary={"interfaces": 3, "offered": 2, "allocated": 1, "problems": 0}),
    slices("eth0", "eth1"),
    slices("br0", node="worker-2", kind="bridge", taints="[{key: dra.networking/gone, effect: NoSchedule}]"),
    claim("net", "eth0"),
    pod("db-0", "net"),
)

UNUSED = "{apiVersion: networking.dra.io/v1alpha1, kind: NetworkTopologyUsage, metadata: {name: fast}}"


def cause(story: Story) -> str:
    assert story.cause is not None
    return f"{story.cause.text}; {story.cause.next_step}"


def device(state: ClusterState, name: str, node: str = "worker-1") -> Story:
    return device_story(state, node, name)


def test_a_device_has_its_policy_and_its_claims() -> None:
    story = device(STATE, "eth0")
    assert (story.state, story.cause) == ("is allocated to apps/net", None)
    texts = [each.text for each in story.statements]
    assert 'offered by DeviceExposurePolicy "nics"' in texts
    assert "allocated to ResourceClaim apps/net, used by db-0" in texts
    assert device(STATE, "eth1").state == "is published and free"


@pytest.mark.parametrize(
    ("node", "name", "text"),
    [
        ("worker-2", "br0", "restore the interface"),
        ("worker-1", "wlan0", 'interface "wlan0" is hidden: no policy matches it'),
        ("worker-1", "eth7", 'node "worker-1" has no device and no interface "eth7"; its devices: eth0, eth1'),
        ("worker-3", "eth0", 'node "worker-3" does not exist; nodes: worker-1, worker-2'),
    ],
)
def test_the_cause_of_a_device_story_names_its_problem(node: str, name: str, text: str) -> None:
    assert text in cause(device(STATE, name, node))


def test_a_claim_has_its_state() -> None:
    story = claim_story(STATE, "apps", "net")
    assert story.state == "is used by db-0"
    assert cause(story) == (
        "Pod apps/db-0 does not run, and no driver has reported on the claim's devices; netdra why pod apps/db-0"
    )
    runs = pod("db-0", "net", spec="nodeName: worker-1", status=RUNNING)
    assert claim_story(cluster(TOPOLOGY, NODES, slices("eth0"), claim("net", "eth0"), runs), "apps", "net").is_fine
    waits = claim_story(cluster(TOPOLOGY, NODES, slices("eth0"), claim("first", "eth0"), claim("net")), "apps", "net")
    assert waits.state == "is not allocated"
    assert "eth0: held by claim apps/first" in cause(waits)
    assert 'did you mean "net"?' in cause(claim_story(STATE, "apps", "nett"))


def test_a_claim_of_pods_that_have_ended_has_no_cause() -> None:
    ended = pod("db-0", "net", spec="nodeName: worker-1", status="phase: Succeeded")
    held = cluster(TOPOLOGY, NODES, slices("eth0"), claim("first", "eth0"), claim("net"), ended)
    story = claim_story(held, "apps", "net")
    assert (story.state, story.cause) == ("is not allocated", None)
    assert "named by pods db-0, which have ended" in story.statements[-1].text


def test_an_evicted_pod_of_the_driver_does_not_hide_its_successor() -> None:
    evicted, new = (
        pod(name, spec="nodeName: worker-1", status=status)
        for name, status in (("new", "phase: Pending"), ("evicted", "phase: Failed"))
    )
    state = cluster(evicted, new)
    assert msgspec.structs.replace(state, drivers=state.pods).driver_of("worker-1") == state.pod("apps", "new")


def test_an_allocated_device_that_is_not_published_is_a_warning() -> None:
    story = claim_story(cluster(TOPOLOGY, NODES, claim("net", "eth0")), "apps", "net")
    assert story.is_fine
    assert "is allocated, but not published; netdra why device worker-1/eth0" in cause(story)


def test_a_topology_counts_its_devices() -> None:
    state = cluster(TOPOLOGY, NODES, slices("eth0", "eth1"), claim("net", "eth0"), UNUSED)
    story = topology_story(state, "fast")
    assert (story.state, story.cause) == ("is Ready", None)
    assert "2 devices on 1 node, 1 free" in [each.text for each in story.statements]
    without = topology_story(cluster(TOPOLOGY, NODES, slices("br0", kind="bridge")), "fast")
    assert 'no device of the cluster matches DeviceClass "fast-nic"' in cause(without)
    assert 'did you mean "fast"?' in cause(topology_story(state, "fst"))


@pytest.mark.parametrize(
    ("failing", "next_step"), [("", "netdra why --all-namespaces"), ("apps/a", "netdra why claim apps/a")]
)
def test_a_topology_with_failing_claims_reports_them_as_its_cause(failing: str, next_step: str) -> None:
    usage = f"""
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopologyUsage
metadata: {{name: fast}}
status: {{users: 2, usedBy: [apps/a], failingClaims: {{number: 1, claims: [{failing}]}}, conditions: [
  {{type: Degraded, status: 'True', reason: ClaimsFailed, message: 1 claim fails}}]}}
"""
    story = topology_story(cluster(TOPOLOGY, NODES, slices("eth0"), usage), "fast")
    assert cause(story) == f"Degraded: 1 claim fails; {next_step}"


def test_a_bond_whose_frames_the_nic_may_drop_is_a_warning_of_its_topology() -> None:
    links = "links: ['{{ nic.interfaceName }}', '{{ other.interfaceName }}']"
    bond = f"- {{name: bond0, type: bond, dependOn: [nic, other], config: {{mode: 802.3ad, {links}}}}}"
    other = "- {name: other, type: sriov, selector: {cel: 'true'}}"
    bonded = TOPOLOGY.replace("\nstatus:", f"\n  {other}\n  {bond}\nstatus:").replace("host-device", "sriov")
    story = topology_story(cluster(bonded, NODES, slices("eth0")), "fast")
    warnings = [each for each in story.statements if each.reason == "SpoofCheck"]
    assert [each.severity for each in warnings] == ["warning"]
    assert "spoofchk of steps nic, other is not off" in warnings[0].text
    assert 'spoofchk: "off"' in warnings[0].next_step


def test_devices_are_listed_with_their_users_and_hidden_interfaces_with_their_reason() -> None:
    found = {(use.node, use.device): use for use in device_uses(STATE)}
    assert [(key, use.state) for key, use in found.items()] == [
        (("worker-1", "eth0"), "allocated"),
        (("worker-1", "eth1"), "free"),
        (("worker-1", "wlan0"), "hidden"),
        (("worker-2", "br0"), "tainted"),
    ]
    assert found["worker-1", "eth0"].claims == ("apps/net",)
    assert found["worker-1", "eth0"].pods == ("db-0",)
    assert [use.device for use in device_uses(STATE, ["worker-2"])] == ["br0"]
    assert isinstance(found["worker-1", "wlan0"], DeviceUse)


def test_free_devices_are_counted_by_node_class_and_pf() -> None:
    assert node_uses(STATE) == [
        UseCount(
            name="worker-1", devices=2, allocated=1, free=1, tainted=0, bandwidth=50_000, allocated_bandwidth=25_000
        ),
        UseCount(name="worker-2", devices=1, allocated=0, free=0, tainted=1, bandwidth=25_000),
    ]
    assert [use.name for use in pf_uses(STATE, ["worker-1"])] == ["worker-1/eth0", "worker-1/eth1"]
    assert [*class_uses(STATE)] == [ClassUse(device_class="fast-nic", devices=2, allocated=1, free=1, nodes=1)]


@pytest.mark.parametrize(
    ("consumed", "policy", "free"),
    [("1", "{default: '1'}", 1), ("3", "{default: '1'}", 0), ("3", "{default: '0'}", 1), ("1", "", 0)],
    ids=["room", "full", "without-default", "whole"],
)
@pytest.mark.parametrize("domain", ["", "dra.networking/"])
def test_a_shared_device_is_free_while_another_claim_can_get_a_part(
    consumed: str, policy: str, free: int, domain: str
) -> None:
    requests = f", requestPolicy: {policy}" if policy else ""
    shared = (
        f"allowMultipleAllocations: true\n    capacity: {{{domain}pods: {{value: '3'{requests}}}}}\n    attributes:"
    )
    share = f"device: eth0, shareID: '7', consumedCapacity: {{dra.networking/pods: '{consumed}'}}}}"
    state = cluster(
        TOPOLOGY,
        NODES,
        slices("eth0").replace("attributes:", shared),
        claim("net", "eth0").replace("device: eth0}", share),
    )
    assert [(use.allocated, use.free) for use in node_uses(state)] == [(1, free)]
    assert [(use.allocated, use.free) for use in class_uses(state)] == [(1, free)]


def test_a_taint_with_the_effect_none_keeps_no_claim_off() -> None:
    state = cluster(TOPOLOGY, NODES, slices("eth0", taints="[{key: fan, effect: None}]"), claim("net", "eth0"))
    free = cluster(TOPOLOGY, NODES, slices("eth0", taints="[{key: fan, effect: None}]"))
    assert [use.state for use in device_uses(free)] == ["free"]
    assert [(use.free, use.tainted) for use in node_uses(free)] == [(1, 0)]
    assert [(use.free, use.tainted) for use in class_uses(free)] == [(1, 0)]
    assert device(free, "eth0").state == "is published and free"
    assert device(free, "eth0").cause is None
    assert claim_story(state, "apps", "net").cause is None


def test_a_rule_that_taints_another_device_is_not_named() -> None:
    rule = """
kind: DeviceTaintRule
metadata: {name: other}
spec: {deviceSelector: {device: eth7}, taint: {key: fan, effect: NoSchedule}}
"""
    state = cluster(TOPOLOGY, NODES, slices("eth0", taints="[{key: fan, effect: NoSchedule}]"), rule)
    assert cause(device(state, "eth0")).endswith("remove the taint, or tolerate it")


def test_the_bandwidth_of_a_pf_is_that_of_its_link_and_vfs_have_their_share() -> None:
    text = slices("pf0v0", "pf0v1", kind="vf").replace("linkSpeed: {int: 25000}", "pfName: {string: pf0}")
    shared = text.replace("taints: []", "taints: []\n    capacity: {dra.networking/bandwidth: {value: '12500'}}")
    counters = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: counters}
spec:
  driver: dra.networking
  nodeName: worker-1
  pool: {name: worker-1/vf, generation: 1, resourceSliceCount: 1}
  sharedCounters: [{name: pf0-counters, counters: {bandwidth: {value: '100000'}}}]
"""
    held = claim("net", "pf0v0").replace("worker-1/nic", "worker-1/vf")
    (use,) = pf_uses(cluster(NODES, shared, counters, held))
    assert (use.name, use.bandwidth, use.allocated_bandwidth) == ("worker-1/pf0", 100_000, 12_500)


def test_each_reason_of_a_topology_that_is_not_ready_has_a_next_step_of_its_own() -> None:
    reasons = {*status._WRONG, status._PENDING, "Deleting"}
    assert reasons <= topologies._TOPOLOGY_STEPS.keys()


def test_a_next_step_that_the_message_of_a_condition_ends_with_is_shown_once() -> None:
    message = 'DeviceClass "fast-nic" is not managed by netdra and not changed; delete it, or rename the step'
    condition = f"{{type: Ready, status: 'False', reason: ForeignDeviceClass, message: {message!r}}}"
    topology = "\n".join([*TOPOLOGY.splitlines()[:-1], f"status: {{conditions: [{condition}]}}"])
    assert cause(topology_story(cluster(topology, NODES), "fast")).count("delete it, or rename the step") == 1


@pytest.mark.parametrize(
    ("pool", "selector"),
    [("worker-1/nic", "{}"), ("worker-1-sriov-eth0", "{nodeSelectorTerms: [{matchFields: [FIELD]}]}")],
    ids=["node-in-pool", "former-name"],
)
def test_the_node_of_a_device_that_is_gone_is_that_of_the_allocation(pool: str, selector: str) -> None:
    of_node = selector.replace("FIELD", "{key: metadata.name, operator: In, values: [worker-1]}")
    held = claim("net", "eth0").replace("worker-1/nic", pool)
    held = held.replace("allocation: {", f"allocation: {{nodeSelector: {of_node}, ")
    story = claim_story(cluster(TOPOLOGY, NODES, held), "apps", "net")
    assert cause(story).endswith("; netdra why device worker-1/eth0")


def test_a_pod_network_of_another_name_is_no_guess() -> None:
    head = "apiVersion: networking.dra.io/v1alpha1, kind: PodNetwork, spec: {ranges: [{cidr: 10.77.0.0/24}]}"
    networks = [f"{{{head}, metadata: {{name: {name}}}}}" for name in ("lan", "storage")]
    for asked, text in (("blue", "create it, or request another"), ("storag", 'did you mean "podnetwork.storage"?')):
        state = cluster(TOPOLOGY, NODES, *networks, claim("net", device_class=f"podnetwork.{asked}"))
        assert text in cause(claim_story(state, "apps", "net"))
