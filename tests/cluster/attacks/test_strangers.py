"""A client that reaches the webhook's port, without a certificate, learns nothing of namespaces, nodes or the cloud.

The answer is the same for objects that exist and for those that do not, and the webhook reads nothing for it.
"""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, manifest
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster import identities
from tests.cluster.daemons import Webhook, running_webhook, steps
from tests.cluster.test_rights import PORT_SPEC
from tests.cluster.test_webhook import GROUP, TEMPLATE, TOPOLOGY, claim

Ask = Callable[..., Object]
READS = "apiserver_request_total{"


@pytest.fixture(scope="module")
def webhook(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Webhook]:
    """The webhook with the chart's values, installed and asked by the API server."""
    with running_webhook(control_plane, api) as running:
        yield running


@pytest.fixture
def ask(webhook: Webhook) -> Ask:
    """Send a review to the webhook as a client without a certificate does; returns the response without its uid."""
    url = webhook.configurations[0]["webhooks"][0]["clientConfig"]["url"]

    def send(written: Object, operation: str = "CREATE", old: Object | None = None) -> Object:
        group, _, version = written["apiVersion"].rpartition("/")
        kind = {"group": group, "version": version, "kind": written["kind"]}
        metadata = written["metadata"]
        asked = {"uid": "1", "kind": kind, "operation": operation, "name": metadata["name"]}
        asked |= {"namespace": metadata.get("namespace", ""), "object": written, "oldObject": old}
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
        posted = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(posted, context=ssl._create_unverified_context()) as answered:
            response: Object = json.load(answered)["response"]
        return response

    return send


def reads_nothing(control_plane: ControlPlane, answers: Callable[[], None], *resources: str) -> None:
    """Have answers given, for which no object of some kinds is read.

    The API server counts the requests of all its clients, so a read of another one must not come between: again then.
    """
    for _ in range(5):
        before = [reads(control_plane, each) for each in resources]
        answers()
        if [reads(control_plane, each) for each in resources] == before:
            return
    pytest.fail(f"each time some of {', '.join(resources)} were read")


def reads(control_plane: ControlPlane, resource: str) -> float:
    """How often objects of a kind were read or listed so far."""
    lines = control_plane.kubectl("get", "--raw", "/metrics").splitlines()
    of_kind = (line for line in lines if line.startswith(READS) and f'resource="{resource}"' in line)
    return sum(float(line.rpartition(" ")[2]) for line in of_kind if 'verb="GET"' in line or 'verb="LIST"' in line)


def test_it_does_not_learn_whether_a_claim_of_a_namespace_exists_or_its_requests(
    control_plane: ControlPlane, workspace: Workspace, ask: Ask
) -> None:
    topology = workspace.name("pair")
    workspace.create(manifest(TOPOLOGY, topology, spec=steps("vf0", "vf1")))
    spec = claim(f"{topology}-vf0", f"{topology}-vf1")
    workspace.api.create(manifest(CLAIM, "there", workspace.namespace, spec=spec))
    workspace.api.create(manifest(TEMPLATE, "there", workspace.namespace, spec={"spec": spec}))

    def said(field: str, name: str) -> Object:
        listed = {"name": "net", "request": "nothing"}
        container = {"name": "main", "image": "none", "resources": {"claims": [listed]}}
        pod = {"containers": [container], "resourceClaims": [{"name": "net", field: name}], "hostNetwork": True}
        return ask(manifest("v1/Pod", "pod", workspace.namespace, spec=pod))

    def answers() -> None:
        for field in ("resourceClaimName", "resourceClaimTemplateName"):
            assert said(field, "there") == said(field, "missing") == {"uid": "1", "allowed": True}

    reads_nothing(control_plane, answers, "resourceclaims", "resourceclaimtemplates")
    # An error that only the pod itself contains is still reported.
    plain = {"containers": [{"name": "main", "image": "none"}]}
    unlisted = plain | {"resourceClaims": [{"name": "net", "resourceClaimName": "there"}]}
    (warning,) = ask(manifest("v1/Pod", "pod", workspace.namespace, spec=unlisted))["warnings"]
    assert 'no container lists claim "net"' in warning


def test_it_does_not_learn_the_ranges_of_services_nodes_and_neutron_and_causes_no_list_of_ports(
    control_plane: ControlPlane, workspace: Workspace, ask: Ask
) -> None:
    node, pods = workspace.add_node("routed"), "10.244.7.0/24"
    workspace.api.patch("v1/Node", node, {"spec": {"podCIDR": pods, "podCIDRs": [pods]}})
    port = manifest(f"{GROUP}/NeutronPort", "port", workspace.namespace, spec=PORT_SPEC)
    settings = {"mac": "fa:16:3e:00:00:01", "vlan": 100, "addresses": ["10.79.0.5/24"]}
    status = {"networkName": "blue", "networkID": "n", "portID": "p", "settings": settings}
    workspace.api.update({**workspace.create(port), "status": status}, subresource="status")

    def answers() -> None:
        for cidr in ("10.0.0.0/24", "10.244.0.0/16", "10.79.0.0/16"):
            network = manifest(f"{GROUP}/PodNetwork", workspace.name("net"), spec={"ranges": [{"cidr": cidr}]})
            assert ask(network) == {"uid": "1", "allowed": True}

    reads_nothing(control_plane, answers, "neutronports", "servicecidrs")


def test_it_does_not_learn_how_many_claims_use_a_topology_and_causes_no_list_of_claims(
    control_plane: ControlPlane, workspace: Workspace, ask: Ask
) -> None:
    topology = workspace.name("pair")
    stored = workspace.create(manifest(TOPOLOGY, topology, spec=steps("vf0")))
    made = workspace.api.create(manifest(CLAIM, "user", workspace.namespace, spec=claim(f"{topology}-vf0")))
    status = identities.allocated("user", topology, ["vf0"])
    workspace.api.update({**made, "status": status}, subresource="status")
    changed = {**stored, "spec": steps("vf1")}

    def guess(uid: str) -> Any:
        old = {**stored, "metadata": stored["metadata"] | {"uid": uid}}
        return ask(changed, "UPDATE", old)

    until(lambda: "uid is not that of the stored object" in str(guess("")), "the webhook to know the topology")

    def answers() -> None:
        for uid in ("", "7c1d4a5e-0000-4000-8000-000000000000"):
            answered = guess(uid)
            assert not answered["allowed"]
            assert answered["status"]["message"] == (
                f'NetworkTopology "{topology}": its uid is not that of the stored object; try again (ND3098)'
            )

    reads_nothing(control_plane, answers, "resourceclaims")
    # The API server sends the stored object, so its request is checked.
    assert "1 ResourceClaim" in str(guess(stored["metadata"]["uid"]))
