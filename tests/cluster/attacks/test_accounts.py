"""An attacker with the stolen token of one of the chart's accounts cannot change objects of users.

Each verb that RBAC gives an account on a kind is tried on a user's object of that kind. The attempts follow the
chart's roles: a right that is added without an attack here fails the test.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from testbed import helm
from testbed.api import Api, Object, kind_of
from testbed.control_plane import ControlPlane
from testbed.kubectl import denial
from testbed.objects import CLASS, SLICE, manifest
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster import identities
from tests.cluster.daemons import POLICY
from tests.cluster.identities import NETDRA
from tests.cluster.install.rendering import Case
from tests.cluster.test_controller import SCHEMA, TOPOLOGY
from tests.cluster.test_pod_networks import NETWORK
from tests.cluster.test_rights import REPORT

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
PLUGIN = "networking.dra.io/v1alpha1/CNIPlugin"
ENDPOINTS = "discovery.k8s.io/v1/EndpointSlice"
TAINT_RULE = "resource.k8s.io/v1/DeviceTaintRule"
DAEMON_SET, LEASE, EVENT = "apps/v1/DaemonSet", "coordination.k8s.io/v1/Lease", "events.k8s.io/v1/Event"

Right = tuple[str, str]
"""A verb, and a resource with its subresource."""

SUMMARIES = ("networktopologyusages", "deviceexposurepolicyrollouts", "customdevicerollouts")
WORK: dict[str, dict[Right, str]] = {
    "controller": {
        **{
            (verb, f"{kind}/status"): "statuses are its work, and a subresource has nothing else"
            for kind in ("networktopologies", "deviceexposurepolicies", "cniplugins", "podnetworks")
            for verb in ("patch",)
        },
        **{(verb, kind): "it alone writes them" for kind in SUMMARIES for verb in ("create", "patch")},
        ("patch", "cnipluginschemas/status"): "the same",
        **{(verb, "neutronports"): "it alone writes them" for verb in ("create", "patch", "delete")},
        ("patch", "neutronports/status"): "it alone writes them",
        **{(verb, "podaddresses"): "it alone writes them" for verb in ("create", "update", "delete")},
        **{
            ("update", f"{kind}/finalizers"): "nothing is stored there: it lets owners be set"
            for kind in ("neutronports", "cniplugins", "networktopologies")
        },
        ("update", "leases"): "by name in RBAC: that of its leaders",
    },
    "uninstall-clean": {
        **{
            ("delete", kind): "all are netdra's"
            for kind in (
                "nodenetworks",
                "networktopologyusages",
                "deviceexposurepolicyrollouts",
                "customdevicerollouts",
                "podaddresses",
            )
        },
        ("delete", "leases"): "by name in RBAC: that of the leaders",
        ("delete", "secrets"): "by name in RBAC: the webhook's certificate",
        ("patch", "neutronports"): "tried in test_neutron_ports.py",
    },
    "presets": {},
}
"""Rights that are used for what they are meant for, on any object, with why that is no attack."""


def taint(value: str) -> Object:
    """The rule of an administrator for a device of netdra."""
    key = "dra.networking/unhealthy"
    device = {"driver": "dra.networking", "pool": "node-1/eth1", "device": "eth1"}
    return {"deviceSelector": device, "taint": {"key": key, "value": value, "effect": "NoSchedule"}}


def theirs(name: str) -> dict[str, tuple[Object, Object]]:
    """A user's object of each kind, and an attacker's change to it."""
    steps = [{"name": "a", "type": "sriov", "selector": {"cel": "true"}}]
    other = [{"name": "a", "type": "attacker", "selector": {"cel": "true"}}]
    pod = {"containers": [{"name": "main", "image": "none"}]}
    template = {"metadata": {"labels": {"a": name}}, "spec": pod}
    daemons = {"selector": {"matchLabels": {"a": name}}, "template": template}
    pool = {"name": f"{name}/a", "generation": 1, "resourceSliceCount": 1}
    slices = {"driver": "gpu.example.com", "nodeName": "node-1", "pool": pool, "devices": []}
    event: Object = {
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "kubelet",
        "reportingInstance": "node-1",
        "action": "Start",
        "reason": "Started",
        "type": "Normal",
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    }
    selector = {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]}
    false: Object = {"selectors": [{"cel": {"expression": "false"}}]}
    return {
        "networktopologies": (
            manifest(TOPOLOGY, name, spec={"steps": steps}),
            manifest(TOPOLOGY, name, spec={"steps": other}),
        ),
        "podnetworks": (
            manifest(NETWORK, name, spec={"ranges": [{"cidr": "10.99.0.0/24"}]}),
            manifest(NETWORK, name, spec={"ranges": [{"cidr": "10.98.0.0/24"}]}),
        ),
        "cniplugins": (
            manifest(PLUGIN, name, spec={"image": "example.com/a:1", "binaryPath": "/a"}),
            manifest(PLUGIN, name, spec={"image": "example.com/attacker:1", "binaryPath": "/a"}),
        ),
        "deviceclasses": (manifest(CLASS, name, spec=selector), manifest(CLASS, name, spec=false)),
        "cnipluginschemas": (
            manifest(SCHEMA, name, spec={"cniType": name}),
            manifest(SCHEMA, name, spec={"cniType": "attacker"}),
        ),
        "resourceslices": (manifest(SLICE, name, spec=slices), manifest(SLICE, name, spec=slices)),
        "nodenetworks": (manifest(REPORT, name), manifest(REPORT, name)),
        "daemonsets": (
            manifest(DAEMON_SET, name, NETDRA, spec=daemons),
            manifest(DAEMON_SET, name, NETDRA, spec={**daemons, "minReadySeconds": 5}),
        ),
        "devicetaintrules": (manifest(TAINT_RULE, name, spec=taint("a")), manifest(TAINT_RULE, name, spec=taint("b"))),
        "endpointslices": (
            manifest(ENDPOINTS, name, "default", addressType="IPv4", endpoints=[{"addresses": ["10.1.0.1"]}], ports=[]),
            manifest(ENDPOINTS, name, "default", addressType="IPv4", endpoints=[{"addresses": ["10.1.0.9"]}], ports=[]),
        ),
        "leases": (
            manifest(LEASE, name, NETDRA, spec={"holderIdentity": "a"}),
            manifest(LEASE, name, NETDRA, spec={"holderIdentity": "attacker"}),
        ),
        "events": (
            manifest(EVENT, name, "default", **event),
            manifest(EVENT, name, "default", **event, series={"count": 2, "lastObservedTime": event["eventTime"]}),
        ),
        "deviceexposurepolicies": (
            manifest(POLICY, name, spec={"selector": {"cel": "true"}, "action": "exclude"}),
            manifest(POLICY, name, spec={"selector": {"cel": "false"}, "action": "exclude"}),
        ),
    }


@pytest.fixture(scope="module")
def templates(api: Api, custom_kinds: None) -> Iterator[dict[str, list[Object]]]:
    """The objects of the chart that have to do with each account, installed."""
    identities.install(api)
    values = {**helm.WITH_ALL, "presets": {"shared": True}, "hooks": {"render": "always"}}
    objects = Case(values=values).objects()
    kinds = {"ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "ServiceAccount"}
    kinds |= {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    hooks = [each for each in objects if each["kind"] in kinds and "helm.sh/hook" in _annotations(each)]
    for each in hooks:
        api.apply(each)
    yield {account: [each for each in objects if _is_of(account, each)] for account in WORK}
    for each in hooks:
        version, metadata = each["apiVersion"], each["metadata"]
        api.delete(f"{version}/{each['kind']}", metadata["name"], metadata.get("namespace", ""))


def _annotations(item: Object) -> Object:
    found: Object = item["metadata"].get("annotations") or {}
    return found


def _is_of(account: str, item: Object) -> bool:
    return item["kind"] in {"ClusterRole", "Role"} and item["metadata"]["name"] == f"netdra-{account}"


def rights(roles: list[Object]) -> set[Right]:
    """The objects that RBAC allows an account to write."""
    return {
        (verb, resource)
        for role in roles
        for rule in role["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
        if verb in WRITES
    }


class Stolen:
    """Requests with an account's token, as bare as a thief makes them: kubectl would read the object first."""

    def __init__(self, plane: ControlPlane, api: Api, account: str) -> None:
        config = json.loads(identities.kubeconfig(plane, api, f"netdra-{account}").read_text())
        self._api, self._token = api, config["users"][0]["user"]["token"]
        self._server = config["clusters"][0]["cluster"]
        self._trust = ssl.create_default_context(cafile=self._server["certificate-authority"])

    def send(self, method: str, item: Object, name: str, body: Object | None, how: str = "application/json") -> str:
        """The API server's error for a request, "" if it accepts the request."""
        kind, namespace = f"{item['apiVersion']}/{item['kind']}", item["metadata"].get("namespace", "")
        request = urllib.request.Request(
            f"{self._server['server']}{self._api.path(kind, namespace, name)}?dryRun=All",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": how},
            method=method,
        )
        try:
            urllib.request.urlopen(request, context=self._trust).close()
        except urllib.error.HTTPError as problem:
            message: str = json.load(problem)["message"]
            return message
        return ""

    def attack(self, verb: str, before: Object, after: Object) -> str:
        """The API server's error for an attack on a user's object, "" if the attack succeeds."""
        name = before["metadata"]["name"]
        match verb:
            case "create":
                made = {**after, "metadata": {**after["metadata"], "name": f"{name}-new"}}
                return self.send("POST", after, "", made)
            case "update":
                kind, namespace = f"{before['apiVersion']}/{before['kind']}", before["metadata"].get("namespace", "")
                stored = self._api.get(kind, name, namespace)
                return self.send("PUT", before, name, {**stored, **after, "metadata": stored["metadata"]})
            case "patch":
                return self.send("PATCH", before, name, after, "application/merge-patch+json")
            case "deletecollection":
                return self.send("DELETE", before, "", None)
        return self.send("DELETE", before, name, None)


@pytest.mark.parametrize("account", WORK)
def test_no_verb_on_anybodys_object_succeeds(
    control_plane: ControlPlane,
    workspace: Workspace,
    templates: dict[str, list[Object]],
    account: str,
) -> None:
    stolen = Stolen(control_plane, workspace.api, account)
    tried = rights(templates[account]) - WORK[account].keys()
    assert WORK[account].keys() <= rights(templates[account])
    name = workspace.name("theirs")
    objects = {plural: pair for plural, pair in theirs(name).items() if plural in {kind for _, kind in tried}}
    assert {plural for _, plural in tried} == objects.keys(), "a right has no attack"
    for before, _ in objects.values():
        workspace.create(before)

    def succeeded() -> list[tuple[str, str, str]]:
        said = [(verb, plural, stolen.attack(verb, *objects[plural])) for verb, plural in sorted(tried)]
        return [each for each in said if "ValidatingAdmissionPolicy 'netdra-" not in each[2]]

    # The API server begins to heed each policy at its own time, and for a moment not while it takes others.
    until(lambda: succeeded() == [], "no attack to succeed", detail=succeeded)


@pytest.mark.parametrize("field", ["labels", "annotations", "ownerReferences", "finalizers"])
@pytest.mark.parametrize("account", ["controller", "uninstall-clean"])
@pytest.mark.parametrize("plural", ["networktopologies", "podnetworks"])
def test_of_a_topology_or_pod_network_it_writes_its_finalizer_alone(
    control_plane: ControlPlane,
    workspace: Workspace,
    templates: dict[str, list[Object]],
    plural: str,
    account: str,
    field: str,
) -> None:
    stolen = Stolen(control_plane, workspace.api, account)
    name = workspace.name("theirs")
    own, another = "networking.dra.io/in-use", "example.com/theirs"
    topology = theirs(name)[plural][0]
    topology["metadata"]["finalizers"] = [own, another]
    workspace.create(topology)
    owner = {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "b"}
    metadata: dict[str, Any] = {"labels": {"a": "b"}, "annotations": {"a": "b"}, "ownerReferences": [owner]}
    metadata["finalizers"] = [own]
    patch = "application/merge-patch+json"

    def write(value: Any) -> str:
        return stolen.send("PATCH", topology, name, {"metadata": {field: value}}, patch)

    assert "ValidatingAdmissionPolicy 'netdra-" in write(metadata[field])
    if field == "finalizers":
        assert "ValidatingAdmissionPolicy 'netdra-" in write([])
        assert write([another]) == ""
    workspace.api.patch(kind_of(topology), name, {"metadata": {"finalizers": []}})


def test_the_job_of_presets_creates_the_preset(
    control_plane: ControlPlane, workspace: Workspace, templates: dict[str, list[Object]]
) -> None:
    token = identities.kubeconfig(control_plane, workspace.api, "netdra-presets")
    command = (sys.executable, "-m", "netdra", "preset", "shared")
    done = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert denial(token, "create", "--dry-run=server", "-f", "-", text=done) == ""
    for wrong in (("macvlan", "host-device"), ("shared}", "other}"), ("ipv4", "ipv6"), ('== "nic"', '!= "nic"')):
        text = done.replace(*wrong)
        assert text != done
        assert "ValidatingAdmissionPolicy 'netdra-presets'" in denial(
            token, "create", "--dry-run=server", "-f", "-", text=text
        )
