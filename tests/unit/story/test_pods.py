"""The story of a pod: its cause, for faults at each step of its way, and all that is well."""

from __future__ import annotations

import json

import pytest

from netdra.story.pods import pod_story
from netdra.story.statement import Story
from tests.unit.story.making import (
    NODES,
    RUNNING,
    TOPOLOGY,
    UNSCHEDULABLE,
    claim,
    cluster,
    event,
    pod,
    report,
    slices,
)

WAITING = pod("db-0", "net", status=UNSCHEDULABLE)
PLACED = pod("db-0", "net", spec="nodeName: worker-1", status="phase: Pending")
ATTACHED = """devices:
  - driver: dra.networking
    pool: worker-1/nic
    device: eth0
    conditions: [{type: Ready, status: 'True', reason: Attached, lastTransitionTime: '2026-11-27T10:00:04Z'}]
    networkData: {interfaceName: net1, ips: [10.0.0.5/24], hardwareAddress: '02:00:00:00:00:05'}
    data:
      pods:
      - {name: db-0, uid: uid-of-db-0, steps: [
          {step: nic, type: host-device, interface: net1, result: {ips: [{address: 10.0.0.5/24}]}}]}
      - {name: other, uid: uid-of-other, steps: [{step: foreign}]}"""


def failed(reason: str, message: str) -> str:
    return f"""devices:
  - driver: dra.networking
    pool: worker-1/nic
    device: eth0
    conditions: [{{type: Ready, status: 'False', reason: {reason}, message: {json.dumps(message)}}}]"""


def story(*texts: str, unread: dict[str, str] | None = None) -> Story:
    return pod_story(cluster(*texts, unread=unread), "apps", "db-0")


def cause(*texts: str) -> tuple[str, str]:
    found = story(*texts).cause
    assert found is not None
    return found.reason, f"{found.text}; {found.next_step}"


RULE = """
kind: DeviceTaintRule
metadata: {name: repair}
spec: {deviceSelector: {device: eth0}, taint: {key: fan, effect: NoExecute}}
"""
RULES = (
    ("deviceSelector: {device: eth0}, ", True),
    ("deviceSelector: {}, ", True),
    ("deviceSelector: {device: eth1}, ", False),
    ("", False),
)
BASE = (TOPOLOGY, NODES, report("worker-1"), report("worker-2"))
TOLERANT = "tolerations: [{operator: Exists}]"
CAUSES: dict[str, tuple[tuple[str, ...], str, str]] = {
    "the only device is held": (
        (WAITING, claim("net"), claim("other", "eth0"), slices("eth0")),
        "InUse",
        "eth0: held by claim apps/other",
    ),
    "the only device is tainted": (
        (WAITING, claim("net"), slices("eth0", taints="[{key: dra.networking/link-down, effect: NoSchedule}]")),
        "Tainted",
        "the interface has no carrier",
    ),
    "an administrator has tainted it": (
        (
            WAITING,
            claim("net"),
            slices("eth0"),
            RULE,
        ),
        "Tainted",
        'DeviceTaintRule "repair" sets the taint',
    ),
    "the request's selector matches nothing": (
        (WAITING, claim("net", more=", selectors: [{cel: {expression: 'false'}}]"), slices("eth0")),
        "NotSelected",
        "not selected by the request's expression 1",
    ),
    "devices are on another node alone": (
        (
            pod("db-0", "net", spec="nodeSelector: {zone: b}\n  " + TOLERANT, status=UNSCHEDULABLE),
            claim("net"),
            slices("eth0"),
            slices("br0", node="worker-2", kind="bridge"),
        ),
        "NodesExcluded",
        'worker-1: nodeSelector requires zone=b; the label is "a"',
    ),
    "the only node with a device is tainted": (
        (WAITING, claim("net"), slices("eth0", node="worker-2"), slices("br0", kind="bridge")),
        "NodesExcluded",
        "the pod does not tolerate the node's taint gpu:NoSchedule",
    ),
    "no such hardware": (
        (WAITING, claim("net"), slices("br0", "br1", kind="bridge")),
        "NoDevice",
        'devices of class "fast-nic" are available on 1 node, which offer 2 bridge',
    ),
    "no claim": ((WAITING, slices("eth0")), "InvalidPod", 'ResourceClaim "net" not found in namespace "apps"'),
    "no class": (
        (WAITING, claim("net", device_class="fast-nicc"), slices("eth0")),
        "UnknownDeviceClass",
        'NetworkTopology "fast" has no such root step; did you mean "fast-nic"?',
    ),
    "something else": ((WAITING, claim("net"), slices("eth0")), "Unschedulable", "0/2 nodes are available"),
    "gates": (
        (pod("db-0", "net", spec="schedulingGates: [{name: quota}]"), claim("net"), slices("eth0")),
        "SchedulingGated",
        "quota",
    ),
    "not prepared": (
        (PLACED, claim("net", "eth0", status=failed("NotPrepared", "mtu 9000 is too much")), slices("eth0")),
        "NotPrepared",
        'device "eth0" is not prepared: mtu 9000 is too much',
    ),
    "a step": (
        (PLACED, claim("net", "eth0", status=failed("StepFailed", 'step "b" failed')), slices("eth0")),
        "StepFailed",
        'device "eth0" is not attached: step "b" failed',
    ),
    "no answer of the driver": (
        (
            PLACED,
            claim("net", "eth0"),
            slices("eth0"),
            event("FailedPrepareDynamicResources", "not found in the list of registered DRA drivers"),
        ),
        "DriverNotRunning",
        'the kubelet of node "worker-1" cannot reach the driver',
    ),
    "another refusal of Prepare": (
        (PLACED, claim("net", "eth0"), slices("eth0"), event("FailedPrepareDynamicResources", "hostNetwork")),
        "FailedPrepareDynamicResources",
        "hostNetwork; correct what the text names",
    ),
    "drift": (
        (
            pod("db-0", "net", spec="nodeName: worker-1", status=RUNNING),
            claim("net", "eth0", status=ATTACHED),
            slices("eth0"),
            event("NetworkChanged", "net1 has MTU 1300"),
        ),
        "NetworkChanged",
        "the network is not as it was attached: net1 has MTU 1300",
    ),
    "an image": (
        (
            pod(
                "db-0",
                "net",
                spec="nodeName: worker-1",
                status="containerStatuses: [{name: main, state: {waiting: {reason: ErrImagePull, message: no such}}}]",
            ),
            claim("net", "eth0", status=ATTACHED),
            slices("eth0"),
        ),
        "ErrImagePull",
        'container "main" waits: ErrImagePull: no such',
    ),
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_is_the_first_error(name: str) -> None:
    texts, reason, text = CAUSES[name]
    found = cause(*BASE, *texts)
    assert found[0] == reason, found
    assert text in found[1]


RUNS = (
    *BASE,
    pod("db-0", "net", spec="nodeName: worker-1", status=RUNNING),
    claim("net", "eth0", status=ATTACHED),
    slices("eth0"),
)


def test_a_pod_that_runs_is_fine_and_each_step_has_its_address() -> None:
    found = story(*RUNS, event("NetworkChanged", "of a former pod", uid="another"))
    assert found.cause is None
    assert found.state == "runs on node worker-1"
    (device,) = (each for each in found.statements if each.reason == "Attached")
    assert device.text == "is attached as net1 with 10.0.0.5/24, MAC 02:00:00:00:00:05"
    assert device.details == ("step nic (host-device) → net1 10.0.0.5/24",)
    assert device.time == "2026-11-27T10:00:04Z"


def test_a_claim_that_no_container_lists_is_a_warning() -> None:
    unlisted = pod("db-0", "net", spec="nodeName: worker-1", status=RUNNING, listed=False)
    found = story(*BASE, unlisted, claim("net", "eth0", status=ATTACHED), slices("eth0"))
    assert found.is_fine
    assert found.cause is not None
    assert 'no container lists claim "net"' in found.cause.text


def with_metadata(text: str, metadata: str) -> str:
    return text.replace("metadata: {", f"metadata: {{{metadata}, ", 1)


DELETED = "deletionTimestamp: '2026-11-27T09:00:00Z'"
EXITED = "containerStatuses: [{name: main, state: {terminated: {exitCode: 1, startedAt: '2026-11-27T10:00:05Z'}}}]"
NEVER_STARTED = """containerStatuses: [{name: main, state: {terminated: {exitCode: 137, startedAt: null,
    reason: ContainerStatusUnknown}}}]"""
SUCCEEDED = pod("db-0", "net", spec="nodeName: worker-1", status="phase: Succeeded")
OF_A_TEMPLATE = pod(
    "db-0",
    spec="nodeName: worker-1",
    status="""phase: Succeeded
  resourceClaimStatuses: [{name: net, resourceClaimName: db-0-net-x7f2p}]""",
).replace("resourceClaims: []", "resourceClaims: [{name: net, resourceClaimTemplateName: nets}]")
OF_ANOTHER = claim("net", "eth0").replace("name: db-0, uid: uid-of-db-0", "name: db-1, uid: uid-of-db-1")
ENDED = {
    "succeeded, claim still reserved": (
        (SUCCEEDED, claim("net", "eth0")),
        "Succeeded",
        "is still reserved for the pod",
    ),
    "claim released": ((SUCCEEDED, claim("net")), "Succeeded", "Kubernetes has released its devices"),
    "claim deleted": ((SUCCEEDED,), "Succeeded", "was deleted"),
    "claim of a template deleted": (
        (OF_A_TEMPLATE,),
        "Succeeded",
        "was created for the pod, and Kubernetes has deleted",
    ),
    "claim used by another pod, whose step failed": (
        (SUCCEEDED, OF_ANOTHER.replace("status:", "status:\n  " + failed("StepFailed", "no carrier"))),
        "Succeeded",
        "was released by the pod, and is used by db-1",
    ),
    "evicted": (
        (
            pod(
                "db-0",
                "net",
                spec="nodeName: worker-1",
                status="phase: Failed\n  reason: Evicted\n  message: low on disk",
            ),
        ),
        "Failed: Evicted",
        "low on disk",
    ),
    "failed after its network was attached": (
        (
            pod("db-0", "net", spec="nodeName: worker-1", status=f"phase: Failed\n  {EXITED}"),
            claim("net"),
            event("NetworkNotAttached", "no carrier"),
        ),
        "Failed",
        "Kubernetes has released its devices",
    ),
    "kept by a finalizer after it succeeded": (
        (with_metadata(SUCCEEDED, f"{DELETED}, finalizers: [batch.kubernetes.io/job-tracking]"),),
        "Succeeded",
        "finalizers keep the object: batch.kubernetes.io/job-tracking",
    ),
    "deleted before it was scheduled": (
        (with_metadata(WAITING, DELETED), event("FailedResourceClaimCreation", "quota")),
        "deleted",
        "was deleted",
    ),
    "deleted, and its containers have ended": (
        (with_metadata(pod("db-0", "net", spec="nodeName: worker-1", status=EXITED), DELETED), claim("net")),
        "deleted",
        "Kubernetes has released its devices",
    ),
}
NOT_READY = "status: {conditions: [{type: Ready, status: 'False', reason: PluginNotAllowed, message: firewall}]}"


@pytest.mark.parametrize("name", ENDED)
def test_a_pod_that_has_ended_has_no_cause_and_the_state_of_its_claims(name: str) -> None:
    texts, how, text = ENDED[name]
    topology = "\n".join([*TOPOLOGY.splitlines()[:-1], NOT_READY])
    found = story(topology, *BASE[1:], *texts)
    assert (found.state, found.cause) == (f"has ended ({how})", None)
    assert text in "\n".join(statement.text for statement in found.statements)


@pytest.mark.parametrize("status", ["", NEVER_STARTED])
@pytest.mark.parametrize("reason", ["NetworkNotAttached", "FailedPrepareDynamicResources"])
def test_a_failed_pod_whose_network_was_never_attached_has_that_cause(reason: str, status: str) -> None:
    late = f"phase: Failed\n  reason: DeadlineExceeded\n  {status}"
    ended = pod("db-0", "net", spec="nodeName: worker-1", status=late)
    found = cause(*BASE, ended, event(reason, 'step "bond0" (bond): no free name'))
    assert found == (reason, 'step "bond0" (bond): no free name; correct what the text names, and create the pod again')


def test_a_pod_that_is_being_deleted_needs_no_claim() -> None:
    for placed, *claims in ((PLACED,), (PLACED, claim("net"))):
        found = story(*BASE, with_metadata(placed, DELETED), *claims)
        assert (found.state, found.cause) == ("is being deleted", None)


def test_a_deleted_pod_has_the_reason_why_it_stays() -> None:
    deleted = with_metadata(pod("db-0", "net", spec="nodeName: worker-1"), DELETED)
    assert cause(*BASE, deleted, claim("net", "eth0"), event("NetworkNotDetached", "busy"))[0] == "NetworkNotDetached"


def test_a_claim_of_another_namespace_is_named() -> None:
    elsewhere = claim("net").replace("namespace: apps", "namespace: other")
    assert 'it exists in namespace "other"' in cause(*BASE, WAITING, elsewhere, slices("eth0"))[1]


def test_a_missing_plugin_comes_before_the_missing_device() -> None:
    topology = TOPOLOGY.replace("type: host-device", "type: ovs")
    lacks = report("worker-1", missingPlugins=[{"name": "ovs", "reason": "it does not answer VERSION"}])
    reason, text = cause(topology, NODES, lacks, WAITING, claim("net"), slices("eth0"))
    assert reason == "PluginMissing"
    assert 'node worker-1 cannot run CNI plugin "ovs"' in text
    assert "it does not answer VERSION" in text


@pytest.mark.parametrize(
    ("texts", "reason", "text"),
    [
        ((), "DriverMissing", "has never reported from node"),
        (
            (report(interfaces=[{"type": "nic", "count": 1, "names": ["eth0"], "reason": "no policy matches it"}]),),
            "NoDevices",
            "eth0: no policy matches it; create a DeviceExposurePolicy",
        ),
    ],
)
def test_a_pod_story_reports_why_its_node_offers_no_devices(texts: tuple[str, ...], reason: str, text: str) -> None:
    found = cause(TOPOLOGY, NODES, WAITING, claim("net"), *texts)
    assert found[0] == reason
    assert text in found[1]


def test_an_unknown_extended_resource_is_reported_as_the_cause() -> None:
    asks = WAITING.replace("resources: {claims: [{name: net}]}", "resources: {limits: {example.com/nicc: 1}}")
    provided = TOPOLOGY.replace("type: host-device", "type: host-device, extendedResourceName: example.com/nic")
    found = cause(provided, NODES, asks.replace("{name: net, resourceClaimName: net}", ""), slices("eth0"))
    assert found[0] == "UnknownResource"
    assert 'did you mean "example.com/nic"?' in found[1]


def test_an_extended_resource_is_explained_as_a_claim_is() -> None:
    asks = WAITING.replace("resources: {claims: [{name: net}]}", "resources: {limits: {example.com/nic: 1}}")
    provided = TOPOLOGY.replace("type: host-device", "type: host-device, extendedResourceName: example.com/nic")
    texts = (asks.replace("{name: net, resourceClaimName: net}", ""), claim("other", "eth0"), slices("eth0"))
    assert cause(provided, NODES, *texts)[0] == "InUse"


def test_a_policy_that_loses_is_the_cause_if_it_would_offer_the_type() -> None:
    policy = """
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: b}
spec: {selector: {cel: 'true'}, exposure: {supportedCNIPlugins: [{name: PLUGIN}]}}
status: {conditions: [{type: Conflicting, status: 'True', reason: SameRank, message: '"a" alone is used'}]}
"""
    texts = (*BASE, WAITING, claim("net"), slices("br0", kind="bridge"))
    assert cause(*texts, policy.replace("PLUGIN", "host-device"))[0] == "SameRank"
    assert cause(*texts, policy.replace("PLUGIN", "macvlan"))[0] == "NoDevice"


def test_a_topology_that_is_not_ready_is_the_cause_before_the_pod_runs_and_a_warning_after() -> None:
    refused = "status: {conditions: [{type: Ready, status: 'False', reason: PluginNotAllowed, message: firewall}]}"
    topology = "\n".join([*TOPOLOGY.splitlines()[:-1], refused])
    assert cause(topology, NODES, WAITING, claim("net"), slices("eth0"))[0] == "PluginNotAllowed"
    runs = story(topology, *RUNS[1:])
    assert runs.is_fine
    assert runs.cause is not None
    assert runs.cause.severity == "warning"


def test_a_port_that_is_not_bound_is_the_cause() -> None:
    port = """
apiVersion: networking.dra.io/v1alpha1
kind: NeutronPort
metadata: {name: p, namespace: apps}
spec: {claim: {name: net, uid: uid-of-net}, request: nic, pool: worker-1/nic, device: eth0, nodeName: worker-1,
  topology: fast, step: nic, physnet: physnet2, pciAddress: '0000:03:00.2', host: worker-1}
status: {conditions: [{type: Bound, status: 'False', reason: BindingFailed, message: no agent}]}
"""
    found = cause(*BASE, PLACED, claim("net", "eth0"), slices("eth0"), port)
    assert found[0] == "BindingFailed"
    assert "no agent" in found[1]


def test_an_unknown_pod_has_the_nearest_name() -> None:
    found = pod_story(cluster(pod("db-0")), "apps", "bd-0")
    assert found.cause is not None
    assert found.cause.next_step == 'did you mean "db-0"?'


def test_unreadable_kinds_are_listed_and_the_remaining_story_is_reported() -> None:
    refusals = {"resourceslices": "no right to list resourceslices", "nodes": "no right to list nodes"}
    found = story(TOPOLOGY, WAITING, claim("net"), unread=refusals)
    assert found.unread == tuple(refusals.values())
    assert found.cause is not None
    assert found.cause.text == "the scheduler does not place the pod: 0/2 nodes are available"


@pytest.mark.parametrize(("selector", "expected"), RULES)
def test_a_taint_rule_without_a_selector_taints_no_device_and_an_empty_one_taints_all(
    selector: str, expected: bool
) -> None:
    rule = RULE.replace("deviceSelector: {device: eth0}, ", selector)
    state = cluster(*BASE, slices("eth0"), rule)
    assert [bool(found.device.taints) for found in state.devices.values()] == [expected]
    assert bool(state.applied_rules) == expected


def test_a_rule_that_taints_no_device_is_not_named_for_an_equal_taint_of_a_slice() -> None:
    tainted = slices("eth0", taints="[{key: fan, effect: NoExecute}]")
    idle = RULE.replace("deviceSelector: {device: eth0}, ", "")
    assert "DeviceTaintRule" not in cause(*BASE, WAITING, claim("net"), tainted, idle)[1]


OUTCOME = 'step "bond0" (bond): no free name; remove the other bond\nundone: vf1, vf0\nnot undone: lan: no time left'


@pytest.mark.parametrize(
    ("texts", "next_step"),
    [
        (
            (claim("net", "eth0", status=failed("StepFailed", OUTCOME)), slices("eth0")),
            "correct what the text names; the container runtime tries again every few seconds",
        ),
        (
            (event("NetworkNotAttached", OUTCOME), claim("net", "eth0"), slices("eth0")),
            "correct what the text names; the container runtime tries again every few seconds",
        ),
    ],
)
def test_the_outcome_of_the_other_steps_is_no_next_step(texts: tuple[str, ...], next_step: str) -> None:
    found = story(*BASE, PLACED, *texts).cause
    assert found is not None
    assert found.text.endswith(OUTCOME.splitlines()[0])
    assert found.next_step == next_step
    assert found.details == ("undone: vf1, vf0", "not undone: lan: no time left")
