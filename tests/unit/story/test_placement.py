"""Which restriction keeps claims from being allocated, and which nodes a pod can use."""

from __future__ import annotations

import msgspec
import pytest
import yaml

from netdra.cluster.objects import PlacedPod
from netdra.networks import shares
from netdra.story.nodes import exclusions
from netdra.story.pods import pod_story
from netdra.story.statement import Statement
from netdra.story.usage import class_uses, device_uses, node_uses
from tests.unit.networks.builders import network
from tests.unit.story.making import TOPOLOGY, UNSCHEDULABLE, claim, cluster, pod, report, slices

WAITING = pod("db-0", "net", status=UNSCHEDULABLE)


def node(name: str, labels: str = "{}", spec: str = "{}") -> str:
    return f"{{kind: Node, metadata: {{name: {name}, labels: {labels}}}, spec: {spec}}}"


def cause(*texts: str) -> Statement:
    found = pod_story(cluster(TOPOLOGY, *texts), "apps", "db-0").cause
    assert found is not None
    return found


REQUIRED = """affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: zone, operator: In, values: [a]}]}]}}}"""


@pytest.mark.parametrize(
    ("spec", "excluded"),
    [
        ("{}", {"cordoned": "unschedulable", "tainted": "gpu=a100:NoExecute"}),
        ("tolerations: [{key: gpu, operator: Exists}]", {"cordoned": "unschedulable"}),
        ("tolerations: [{key: gpu, value: other}]", {"cordoned": "unschedulable", "tainted": "gpu=a100"}),
        ("tolerations: [{operator: Exists, effect: NoSchedule}]", {"tainted": "gpu=a100:NoExecute"}),
        ("tolerations: [{operator: Exists}]", {}),
        (
            f"tolerations: [{{operator: Exists}}]\n  {REQUIRED}",
            {"cordoned": "nodeAffinity", "tainted": "nodeAffinity", "preferred": "nodeAffinity"},
        ),
        (
            "tolerations: [{operator: Exists}]\n  nodeSelector: {zone: a}",
            {"cordoned": "zone=a; the label is not set", "tainted": "is not set", "preferred": 'the label is "b"'},
        ),
    ],
)
def test_nodes_are_excluded_as_by_the_scheduler(spec: str, excluded: dict[str, str]) -> None:
    state = cluster(
        node("plain", "{zone: a}"),
        node("cordoned", spec="{unschedulable: true}"),
        node("tainted", spec="{taints: [{key: gpu, value: a100, effect: NoExecute}]}"),
        node("preferred", "{zone: b}", "{taints: [{key: slow, effect: PreferNoSchedule}]}"),
        pod("db-0", spec=spec if spec != "{}" else ""),
    )
    found = exclusions(state, state.pods[0])
    assert found.keys() == excluded.keys()
    for name, text in excluded.items():
        assert text in found[name]


def test_of_many_nodes_the_one_where_it_would_fit_is_explained_first_and_few_others() -> None:
    names = [f"n{number:02}" for number in range(20)]
    held = [claim(f"c{name}", "eth0").replace("worker-1/nic", f"{name}/nic") for name in names]
    taint = "[{key: fan, effect: NoSchedule}]"
    offered = [slices("eth0", node=name, taints=taint if name != "n13" else "[]") for name in names]
    found = cause(*(node(name) for name in names), *offered, *held, WAITING, claim("net"))
    assert found.reason == "InUse"
    assert "on node n13: eth0: held by claim apps/cn13" in found.text
    assert [line for line in found.details if not line.startswith(" ")] == ["n13:", "n00:", "n01:"]


def test_devices_that_are_held_and_others_that_are_tainted_are_one_cause() -> None:
    both = claim("net", more=", count: 2")
    tainted = slices("eth1", kind="nic").replace("taints: []", "taints: [{key: fan, effect: NoSchedule}]")
    text = tainted.replace("worker-1/nic", "worker-1/more").replace("worker-1-nic", "worker-1-more")
    found = cause(node("worker-1"), slices("eth0"), text, claim("first", "eth0"), both, WAITING)
    assert found.reason == "InUse"
    assert "eth0: held by claim apps/first" in found.text
    assert "eth1: has the taint fan:NoSchedule" in found.text


def test_a_constraint_that_no_node_meets_is_the_cause() -> None:
    requests = "[{name: nic, exactly: {deviceClassName: fast-nic, count: 2}}]"
    constrained = claim("net").replace(
        "requests: [{name: nic, exactly: {deviceClassName: fast-nic}}]",
        f"requests: {requests}, constraints: [{{matchAttribute: dra.networking/ifName}}]",
    )
    found = cause(node("worker-1"), slices("eth0", "eth1"), constrained, WAITING)
    assert (found.reason, "dra.networking/ifName" in found.text) == ("Constrained", True)


def test_a_claim_that_is_allocated_for_a_node_that_the_pod_excludes_names_the_node() -> None:
    selector = "nodeSelector: {kubernetes.io/hostname: worker-2}"
    on_first = claim("net", "eth0").replace(
        "allocation: {", "allocation: {nodeSelector: {nodeSelectorTerms: [{matchFields: "
        "[{key: metadata.name, operator: In, values: [worker-1]}]}]}, ",
    )  # fmt: skip
    waits = pod("db-0", "net", spec=selector, status=UNSCHEDULABLE)
    found = cause(node("worker-1"), node("worker-2"), slices("eth0"), slices("eth9", node="worker-2"), on_first, waits)
    assert found.reason == "NodesExcluded"
    assert "worker-1: nodeSelector requires kubernetes.io/hostname=worker-2" in found.text


def test_a_claim_the_scheduler_can_never_allocate_reports_the_reason() -> None:
    wrong = claim("net", more=", selectors: [{cel: {expression: 'device.driver =='}}]")
    assert cause(node("worker-1"), slices("eth0"), wrong, WAITING).reason == "Unallocatable"


def driver(node: str, *, ready: bool, reason: str = "CrashLoopBackOff") -> PlacedPod:
    state = {"running": {}} if ready else {"waiting": {"reason": reason}}
    status = {
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [{"name": "node", "state": state}],
    }
    metadata = {"name": f"netdra-node-{ready}", "namespace": "netdra"}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": node}, "status": status}, PlacedPod)


@pytest.mark.parametrize(
    ("drivers", "reason", "text"),
    [
        ([driver("worker-2", ready=True)], "DriverMissing", "the node has no pod of netdra-node"),
        ([driver("worker-1", ready=False)], "DriverNotReady", "netdra-node-False is not ready (CrashLoopBackOff)"),
        ([driver("worker-1", ready=True), driver("worker-1", ready=False)], "NoDevices", "publishes no device"),
    ],
)
def test_the_drivers_pod_is_the_cause_where_no_device_is_published(
    drivers: list[PlacedPod], reason: str, text: str
) -> None:
    state = cluster(TOPOLOGY, node("worker-1"), report("worker-1"), WAITING, claim("net"))
    found = pod_story(msgspec.structs.replace(state, drivers=drivers), "apps", "db-0").cause
    assert found is not None
    assert (found.reason, text in found.text) == (reason, True), found.text


def network_slices(capacity: int) -> str:
    """The addresses of a PodNetwork, as the controller publishes them."""
    lan = network("10.0.0.0/24")
    (group,) = shares.groups(lan)
    return yaml.safe_dump(msgspec.to_builtins(shares.resource_slice(lan, group, capacity)))


LAN_CLASS = yaml.safe_dump(msgspec.to_builtins(shares.device_class(network("10.0.0.0/24"))))
ASKING = claim("net").replace(
    "requests: [",
    "requests: [{name: addr, exactly: {deviceClassName: podnetwork.storage, "
    "tolerations: [{key: dra.networking/addresses, operator: Exists}]}}, ",
)
SHARED = """
kind: ResourceClaim
metadata: {name: first, namespace: apps, uid: uid-of-first}
spec: {devices: {requests: []}}
status: {allocation: {devices: {results: [{request: addr, driver: dra.networking, device: addresses,
  pool: podnetworks.dra.networking/storage, shareID: a, consumedCapacity: {dra.networking/addresses: '1'}}]}}}
"""


@pytest.mark.parametrize(("capacity", "held"), [(1, True), (0, False)])
def test_a_pod_network_without_a_free_address_is_the_cause(capacity: int, *, held: bool) -> None:
    texts = [node("worker-1"), slices("eth0"), network_slices(capacity), LAN_CLASS, ASKING, WAITING]
    found = cause(*texts, *([SHARED] if held else []))
    assert found.reason == "NoFreeAddress"
    assert found.text.startswith('PodNetwork "storage" has no free address for request "addr" of ResourceClaim "net"')
    free = pod_story(cluster(TOPOLOGY, *texts[:2], network_slices(2), *texts[3:], SHARED), "apps", "db-0").cause
    assert free is None or free.reason != "NoFreeAddress"


def test_network_addresses_are_not_counted_as_node_devices() -> None:
    state = cluster(TOPOLOGY, node("worker-1"), slices("eth0"), network_slices(5), LAN_CLASS, SHARED)
    assert [use.device for use in device_uses(state)] == ["eth0"]
    assert [use.name for use in node_uses(state)] == ["worker-1"]
    assert [use.device_class for use in class_uses(state)] == ["fast-nic"]
    (use,) = class_uses(state, ["podnetwork.storage"])
    assert "kubectl get pnet storage" in use.problem
