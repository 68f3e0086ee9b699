"""The addresses of PodNetworks in the stories of claims and pods: the cause is named first."""

from __future__ import annotations

import pytest

from netdra.cli.why import lines
from netdra.model.pod_address import object_name
from netdra.story.claims import claim_story
from netdra.story.networks import network_story
from netdra.story.pods import pod_story
from testbed import yaml
from tests.unit.story.making import READY, cluster, event, pod, slices

TOPOLOGY = f"""
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {{name: fast}}
spec:
  steps:
  - name: nic
    type: macvlan
    network: storage
    selector: {{cel: 'device.attributes["dra.networking"].type == "nic"'}}
    config: {{ipam: {{type: network}}}}
{READY}
"""
CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: net
  namespace: apps
  uid: uid-of-net
  annotations: {resource.kubernetes.io/pod-claim-name: net}
  ownerReferences: [{apiVersion: v1, kind: Pod, name: db-0, uid: uid-of-db-0, controller: true}]
spec: {devices: {requests: [{name: nic, exactly: {deviceClassName: fast-nic}}]}}
status:
  reservedFor: [{resource: pods, name: db-0, uid: uid-of-db-0}]
  allocation:
    nodeSelector:
      nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [worker-1]}]}]
    devices:
      results: [{request: nic, driver: dra.networking, pool: worker-1/nic, device: eth0}]
      config:
      - source: FromClass
        requests: [nic]
        opaque: {driver: dra.networking, parameters: {networkTopologyRef: {name: fast}, step: nic}}
"""
PLACED = pod("db-0", "net", spec="nodeName: worker-1")


BOTH = "[{cidr: 10.77.0.0/16}, {cidr: '2001:db8::/64'}]"
OF_RACK = "[{cidr: 10.77.0.0/16, nodeSelector: {matchLabels: {rack: z}}}]"
WORKER = "{kind: Node, metadata: {name: worker-1, labels: {rack: a}}}"
LATE = """
apiVersion: networking.dra.io/v1alpha1
kind: NodeNetwork
metadata: {name: worker-2}
"""


def network(name: str = "storage", status: str = "{}", more: str = "", ranges: str = BOTH) -> str:
    """A PodNetwork, of two families unless its ranges are given."""
    return f"""
apiVersion: networking.dra.io/v1alpha1
kind: PodNetwork
metadata: {{name: {name}}}
spec: {{ranges: {ranges} {more}}}
status: {status}
"""


def condition(kind: str, message: str) -> str:
    """A status with a condition that does not hold."""
    return f"{{conditions: [{{type: {kind}, status: 'False', reason: R, message: {message}, lastTransitionTime: ''}}]}}"


def taken(text: str) -> str:
    """A PodAddress of another claim."""
    return address(text, "uid-of-another", pod="web-0")


def address(text: str, uid: str = "uid-of-net", node: str = "worker-1", pod: str = "db-0") -> str:
    """A PodAddress of the claim's step."""
    owner = {"namespace": "apps", "pod": pod, "claim": "net", "topology": "fast", "step": "nic"}
    family = "IPv6" if ":" in text else "IPv4"
    claim = {"name": "net", "uid": uid}
    spec = {"network": "storage", "address": text, "families": [family], "owner": owner, "claim": claim}
    spec["nodeName"] = node
    name = object_name("storage", text.partition("/")[0])
    about = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "PodAddress", "metadata": {"name": name}}
    return yaml.safe_dump({**about, "spec": spec})


@pytest.mark.parametrize(
    ("objects", "cause", "next_step"),
    [
        ([], 'of PodNetwork "storage": it does not exist', "create it"),
        ([network("storages")], "it does not exist", 'did you mean "storages"?'),
        (
            [network(status=condition("AddressesAvailable", "range 10.77.0.0/16 has no free address"))],
            'of PodNetwork "storage": range 10.77.0.0/16 has no free address',
            "add a range",
        ),
        ([network(ranges="[{cidr: 10.77.0.0/31}]"), taken("10.77.0.0/31"), taken("10.77.0.1/31")], "", "add a range"),
        ([network(ranges=OF_RACK), WORKER], 'PodNetwork "storage" has no range of IPv4 for the node', "nodeSelector"),
        ([network(ranges="[{cidr: 10.77.0.0/16, first: a}]")], 'PodNetwork "storage" cannot be used: ', "correct"),
        ([network(status=condition("Ready", "wrong"))], 'of PodNetwork "storage": wrong', "correct it"),
        (
            [network(more=", namespaces: [web]")],
            'is not for namespace "apps"',
            'an administrator can add "apps" to its spec.namespaces: web',
        ),
        ([network(), address("10.77.0.5/16")], 'no address of PodNetwork "storage" yet', "netdra doctor"),
        ([network(), address("10.77.0.5/16", "other")], 'no address of PodNetwork "storage" yet', "netdra doctor"),
        (
            [network(), event("AddressTaken", "it was taken; wait"), address("10.77.0.5/16", "gone", "worker-2"), LATE],
            'PodAddress "storage.10.77.0.5" cannot be assigned: Node "worker-2" has not reported yet',
            "it is assigned once the node has reported",
        ),
        (
            [
                network(),
                event(
                    "AddressHeld",
                    'PodAddress "x" still belongs to ResourceClaim "y"; it is assigned later',
                    next_step="it is assigned later",
                ),
            ],
            'PodAddress "x" still belongs to ResourceClaim "y"',
            "it is assigned later",
        ),
        ([network(), event("NoFreeAddress", "no address; add one", uid="another")], "yet", "netdra doctor"),
    ],
)
def test_a_missing_address_is_the_cause_in_the_first_three_lines(
    objects: list[str], cause: str, next_step: str
) -> None:
    state = cluster(TOPOLOGY, CLAIM, PLACED, slices("eth0", plugin="macvlan"), *objects)
    for story in (claim_story(state, "apps", "net"), pod_story(state, "apps", "db-0")):
        _, second, third, *_ = lines(story)
        assert second.startswith('Cause: step "nic" has no address of PodNetwork "storage"')
        assert cause in second
        assert next_step in third


def test_a_network_without_a_free_address_has_its_waiting_claims() -> None:
    full = condition("AddressesAvailable", "range 10.77.0.0/16 has no free address")
    gone, lease = address("10.77.0.9/16", "gone"), yaml.safe_load(address("10.77.0.8/16"))
    del lease["spec"]["claim"]
    lease["spec"]["lease"] = {"plugin": "whereabouts", "pool": "kube-system/pool"}
    state = cluster(TOPOLOGY, CLAIM, network(status=full), gone, yaml.safe_dump(lease))
    first, second, *_ = lines(network_story(state, "storage"))
    assert first == "PodNetwork storage has a range without a free address."
    assert second.startswith('Cause: step "nic" has no address of PodNetwork "storage": range 10.77.0.0/16')
    texts = "\n".join(entry.text for entry in network_story(state, "storage").statements)
    assert "used by NetworkTopologies fast" in texts
    assert "1 addresses are imported from other IPAM plugins" in texts
    assert "addresses of claims that do not exist: 10.77.0.9/16" in texts


def test_a_network_with_few_free_addresses_has_that_as_its_state() -> None:
    few = "{type: NearlyFull, status: 'True', reason: RangeNearlyFull, message: few are left, lastTransitionTime: ''}"
    ready = "{type: Ready, status: 'True', reason: R, message: m, lastTransitionTime: ''}"
    story = network_story(cluster(network(status=f"{{conditions: [{ready}, {few}]}}")), "storage")
    assert story.state == "has a range with few free addresses"
    (warning,) = (entry for entry in story.statements if entry.severity == "warning")
    assert (warning.text, warning.reason) == ("few are left", "RangeNearlyFull")
    assert "add a range" in warning.next_step


def test_a_network_that_works_has_no_problem_and_an_unknown_one_the_nearest_name() -> None:
    ready = "{conditions: [{type: Ready, status: 'True', reason: R, message: m, lastTransitionTime: ''}], ranges: "
    ranges = "[{cidr: 10.77.0.0/16, total: 65533, used: 2, reserved: 1}]}"
    state = cluster(network(status=ready + ranges))
    story = network_story(state, "storage")
    assert (story.state, story.cause) == ("is Ready", None)
    assert any("2 of 65533 addresses used, 1 reserved" in entry.text for entry in story.statements)
    unknown = network_story(state, "storag")
    assert unknown.cause is not None
    assert unknown.cause.next_step == 'did you mean "storage"?'


def test_addresses_that_a_claim_has_are_shown() -> None:
    state = cluster(TOPOLOGY, CLAIM, PLACED, network(), address("10.77.0.5/16"), address("2001:db8::5/64"))
    found = [statement for statement in claim_story(state, "apps", "net").statements if "PodNetwork" in statement.text]
    assert [(entry.severity, entry.text) for entry in found] == [
        ("ok", 'step "nic" has 10.77.0.5/16, 2001:db8::5/64 of PodNetwork "storage"')
    ]


def test_addresses_that_may_not_be_read_are_not_missing() -> None:
    state = cluster(TOPOLOGY, CLAIM, PLACED, unread={"podaddresses": "you may not"})
    assert not any("PodNetwork" in entry.text for entry in claim_story(state, "apps", "net").statements)


def test_a_network_shows_its_limits_and_the_namespaces_that_have_all_they_can_have() -> None:
    limits = ", namespaces: [apps, web], requests: Required, limits: {perNamespace: 1}"
    found = network_story(cluster(network(more=limits), address("10.77.0.5/16")), "storage")
    text = "\n".join(lines(found))
    assert "a namespace gets addresses for 1 steps at most" in text
    assert "claims must request addresses by DeviceClass podnetwork.storage" in text
    assert "1 namespaces have all addresses that they can have: apps" in text


def test_a_network_that_is_being_deleted_names_the_claims_that_the_deletion_waits_for() -> None:
    status = condition("Ready", "'deletion waits: 1 claim has addresses of the network (apps/net)'")
    deleted = network(status=status).replace("name: storage", "name: storage, deletionTimestamp: now")
    found = network_story(cluster(deleted, address("10.77.0.5/16")), "storage")
    text = "\n".join(lines(found))
    assert "PodNetwork storage is being deleted" in text
    assert "deletion waits: 1 claim has addresses of the network (apps/net)" in text
    assert "delete the pods and claims that have addresses of it" in text
