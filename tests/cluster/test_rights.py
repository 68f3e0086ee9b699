"""Each process has the rights that are in the tables below and no others, and a node's driver is kept to its node."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from testbed import yaml
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.kubectl import KubectlError, denial, kubectl
from testbed.objects import CLAIM, POD, SLICE, manifest
from testbed.waiting import until
from testbed.workspace import Workspace
from tests import draws
from tests.cluster import identities
from tests.cluster.identities import NETDRA

pytestmark = pytest.mark.usefixtures("installed")

_EVENTS = itertools.count()
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
READ = frozenset({"get", "list", "watch"})
OURS, CNI, DRA = "networking.dra.io", "cni.networking.k8s.io", "resource.k8s.io"

REPORT = f"{OURS}/v1alpha1/NodeNetwork"

Right = tuple[str, str, str]
Rights = dict[str, frozenset[str]]

NODE: Rights = {
    "nodes": READ,
    "pods": READ,
    f"resourceslices.{DRA}": READ | {"create", "update", "patch", "delete"},
    f"resourceclaims.{DRA}": frozenset({"get"}),
    f"resourceclaims/status.{DRA}": frozenset({"get", "update", "patch"}),
    f"deviceexposurepolicies.{OURS}": READ,
    f"networktopologies.{OURS}": READ,
    f"customdevices.{OURS}": READ,
    f"neutronports.{OURS}": READ | {"patch"},
    f"podaddresses.{OURS}": frozenset({"list", "watch"}),
    f"podnetworks.{OURS}": frozenset({"get"}),
    f"nodenetworks.{OURS}": READ | {"create"},
    f"nodenetworks/status.{OURS}": frozenset({"update"}),
    f"cnipluginschemas.{CNI}": READ,
    "tokenreviews.authentication.k8s.io": frozenset({"create"}),
    "events.events.k8s.io": frozenset({"create", "patch"}),
}
CONTROLLER: Rights = {
    "nodes": frozenset({"get", "list"}),
    "services": frozenset({"list", "watch"}),
    "pods": frozenset({"list", "watch"}),
    "endpointslices.discovery.k8s.io": READ | {"create", "update", "delete"},
    f"resourceclaims.{DRA}": READ,
    f"resourceslices.{DRA}": frozenset({"list", "watch", "create", "update", "delete"}),
    f"neutronports.{OURS}": READ | {"create", "patch", "delete"},
    f"neutronports/status.{OURS}": frozenset({"patch"}),
    f"neutronports/finalizers.{OURS}": frozenset({"update"}),
    f"podnetworks.{OURS}": READ | {"patch"},
    f"podnetworks/status.{OURS}": frozenset({"patch"}),
    f"podaddresses.{OURS}": READ | {"create", "update", "delete"},
    f"deviceclasses.{DRA}": READ | {"create", "update", "delete"},
    f"devicetaintrules.{DRA}": frozenset({"list", "watch", "create", "update", "delete"}),
    f"networktopologies.{OURS}": READ | {"patch"},
    f"networktopologies/status.{OURS}": frozenset({"patch"}),
    f"networktopologies/finalizers.{OURS}": frozenset({"update"}),
    f"deviceexposurepolicies.{OURS}": READ,
    f"deviceexposurepolicies/status.{OURS}": frozenset({"patch"}),
    f"customdevices.{OURS}": READ,
    f"cniplugins.{OURS}": READ | {"patch"},
    f"cniplugins/status.{OURS}": frozenset({"patch"}),
    f"cniplugins/finalizers.{OURS}": frozenset({"update"}),
    f"networktopologyusages.{OURS}": READ | {"create", "patch"},
    f"deviceexposurepolicyrollouts.{OURS}": READ | {"create", "patch"},
    f"customdevicerollouts.{OURS}": READ | {"create", "patch"},
    f"nodenetworks.{OURS}": READ,
    f"cnipluginschemas.{CNI}": READ | {"create", "update", "delete"},
    f"cnipluginschemas/status.{CNI}": frozenset({"patch"}),
    "events.events.k8s.io": frozenset({"create", "patch"}),
}
WEBHOOK: Rights = {
    "nodes": READ,
    f"networktopologies.{OURS}": READ,
    f"deviceexposurepolicies.{OURS}": READ,
    f"customdevices.{OURS}": READ,
    f"nodenetworks.{OURS}": READ,
    f"podnetworks.{OURS}": READ,
    "servicecidrs.networking.k8s.io": READ,
    f"neutronports.{OURS}": frozenset({"list"}),
    f"cnipluginschemas.{CNI}": READ,
    f"deviceclasses.{DRA}": READ,
    f"resourceclaims.{DRA}": frozenset({"get", "list"}),
    f"resourceclaimtemplates.{DRA}": frozenset({"get"}),
}
LISTED, FOLLOWED = frozenset({"list"}), frozenset({"list", "watch"})
CONSOLE: Rights = {
    "nodes": LISTED,
    "pods": FOLLOWED,
    "events": FOLLOWED,
    f"resourceslices.{DRA}": FOLLOWED,
    f"resourceclaims.{DRA}": FOLLOWED,
    f"resourceclaimtemplates.{DRA}": LISTED,
    f"deviceclasses.{DRA}": LISTED,
    f"devicetaintrules.{DRA}": LISTED,
    f"nodenetworks.{OURS}": FOLLOWED,
    f"networktopologies.{OURS}": FOLLOWED,
    f"neutronports.{OURS}": FOLLOWED,
    f"deviceexposurepolicies.{OURS}": FOLLOWED,
    f"cniplugins.{OURS}": FOLLOWED,
    f"networktopologyusages.{OURS}": LISTED,
    f"deviceexposurepolicyrollouts.{OURS}": LISTED,
    f"customdevices.{OURS}": LISTED,
    f"cnipluginschemas.{CNI}": LISTED,
    f"podnetworks.{OURS}": FOLLOWED,
    f"podaddresses.{OURS}": FOLLOWED,
}
EXPECTED: dict[str, Rights] = {
    "netdra-node": NODE,
    "netdra-controller": CONTROLLER,
    "netdra-webhook": WEBHOOK,
    "netdra-console": CONSOLE,
}
IN_NAMESPACE: dict[str, Rights] = {
    "netdra-node": {},
    "netdra-controller": {
        "leases.coordination.k8s.io": frozenset({"create"}),
        "daemonsets.apps": READ | {"create", "patch"},
        "pods": frozenset({"get"}),  # beside those of all namespaces
    },
    "netdra-webhook": {"secrets": frozenset({"create"})},
    "netdra-console": {"pods/proxy": frozenset({"get"})},
}
NAMED = [
    ("netdra-console", "leases.coordination.k8s.io", "netdra-controller", {"get"}, NETDRA),
    ("netdra-controller", "leases.coordination.k8s.io", "netdra-controller", {"get", "update"}, NETDRA),
    ("netdra-controller", "leases.coordination.k8s.io", "netdra-neutron", {"get", "update"}, NETDRA),
    ("netdra-webhook", "secrets", "netdra-webhook", {"get", "list", "watch", "update"}, NETDRA),
    (
        "netdra-webhook",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
        "netdra-claims",
        {"get", "list", "watch", "patch"},
        "",
    ),
    ("netdra-webhook", "validatingwebhookconfigurations.admissionregistration.k8s.io", "other", set(), ""),
    ("netdra-webhook", "secrets", "other", set(), NETDRA),
    ("netdra-webhook", "secrets", "netdra-webhook", set(), "kube-system"),
    ("netdra-controller", "leases.coordination.k8s.io", "kube-scheduler", set(), "kube-system"),
    ("netdra-controller", "namespaces", "kube-system", {"get"}, ""),
    ("netdra-controller", "namespaces", "default", set(), ""),
    ("netdra-controller", f"neutronports/finalizers.{OURS}", "any", {"update"}, "default"),
]


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[None]:
    """The service accounts with their rights, and the policies for drivers' writes."""
    identities.install(api)
    # The API server heeds a policy a moment after it is written, which cannot be watched.
    unbound = identities.kubeconfig(control_plane, api, "netdra-node")
    written = yaml.safe_dump(slice_of("nobody", "heeded"))

    def refused() -> bool:
        try:
            kubectl(unbound, "create", "--dry-run=server", "-f", "-", text=written)
        except KubectlError as problem:
            return "bound to a node" in problem.stderr
        return False

    until(refused, "the API server to heed a policy")
    yield
    api.delete_all(POD, NETDRA)


def _groups() -> list[str]:
    return ["system:serviceaccounts", f"system:serviceaccounts:{NETDRA}", "system:authenticated"]


def may(api: Api, account: str, verb: str, resource: str, *, name: str = "", namespace: str = "") -> bool:
    """Whether a service account may do something, as the API server states."""
    full, _, group = resource.partition(".")
    plural, _, subresource = full.partition("/")
    asked = {
        "verb": verb,
        "group": group,
        "resource": plural,
        "subresource": subresource,
        "name": name,
        "namespace": namespace,
    }
    spec = {"user": f"system:serviceaccount:{NETDRA}:{account}", "groups": _groups(), "resourceAttributes": asked}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer: bool = api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"][
        "allowed"
    ]
    return answer


def granted(plane: ControlPlane, account: str, namespace: str) -> Rights:
    """A service account's rights to objects of any name, in a namespace or in all, as the API server lists them."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    answer = kubectl(
        plane.kubeconfig(),
        f"--as=system:serviceaccount:{NETDRA}:{account}",
        *(f"--as-group={group}" for group in _groups()),
        *("create", "--raw=/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", "-f", "-"),
        text=json.dumps(review),
    )
    found: dict[str, set[str]] = {}
    for rule in json.loads(answer)["status"]["resourceRules"]:
        for group, resource in itertools.product(rule["apiGroups"], rule["resources"]):
            if not rule.get("resourceNames"):
                found.setdefault(f"{resource}.{group}" if group else resource, set()).update(rule["verbs"])
    return {resource: frozenset(verbs) for resource, verbs in found.items()}


def beyond(rights: Rights, *others: Rights) -> Rights:
    """The rights that are not among others."""
    left = {
        resource: verbs.difference(*(other.get(resource, ()) for other in others)) for resource, verbs in rights.items()
    }
    return {resource: verbs for resource, verbs in left.items() if verbs}


def resources(api: Api) -> list[str]:
    """Everything that the API server serves, subresources included."""
    found = {each["name"] for each in api.request("GET", "/api/v1")["resources"]}
    for group in api.request("GET", "/apis")["groups"]:
        version = group["preferredVersion"]["groupVersion"]
        found |= {f"{each['name']}.{group['name']}" for each in api.request("GET", f"/apis/{version}")["resources"]}
    return sorted(found)


@pytest.fixture(scope="module")
def anybody(control_plane: ControlPlane, installed: None) -> Rights:
    """The rights that every authenticated account has."""
    return granted(control_plane, "nobody", NETDRA)


@pytest.mark.parametrize(("account", "expected"), EXPECTED.items())
def test_an_account_has_its_rights_and_no_others(
    control_plane: ControlPlane, anybody: Rights, account: str, expected: Rights
) -> None:
    everywhere = granted(control_plane, account, "nowhere")
    assert beyond(everywhere, anybody) == expected
    assert beyond(granted(control_plane, account, NETDRA), anybody, everywhere) == IN_NAMESPACE[account]


@pytest.mark.parametrize("account", EXPECTED)
def test_the_listed_rights_of_an_account_are_those_that_the_api_server_decides_by(
    api: Api, control_plane: ControlPlane, account: str
) -> None:
    listed = granted(control_plane, account, "nowhere")
    pairs = [(resource, verb) for resource in resources(api) for verb in VERBS]
    tried = {*random.Random(draws.seed()).sample(pairs, draws.count(150, len(pairs)))}
    tried |= {(resource, verb) for resource in listed.keys() & {*resources(api)} for verb in VERBS}
    decided = {(resource, verb) for resource, verb in tried if may(api, account, verb, resource)}
    assert decided == {(resource, verb) for resource, verb in tried if verb in listed.get(resource, ())}


@pytest.mark.parametrize(("account", "resource", "name", "verbs", "namespace"), NAMED)
def test_rights_on_named_objects(
    api: Api, account: str, resource: str, name: str, verbs: set[str], namespace: str
) -> None:
    found = {verb for verb in VERBS if may(api, account, verb, resource, name=name, namespace=namespace)}
    assert found - {"create"} == verbs


def test_only_the_driver_may_write_devices_of_its_driver_and_only_on_its_node(api: Api) -> None:
    driver = f"resourceclaims/driver.{DRA}"
    for verb in ("associated-node:patch", "associated-node:update"):
        assert may(api, "netdra-node", verb, driver, name="dra.networking")
        assert not may(api, "netdra-node", verb, driver, name="gpu.example.com")
        assert not may(api, "netdra-controller", verb, driver, name="dra.networking")
    assert not may(api, "netdra-node", "arbitrary-node:patch", driver, name="dra.networking")


class Driver:
    """A node's driver, as kubectl with the token of its pod."""

    def __init__(self, plane: ControlPlane, api: Api, node: str) -> None:
        self.node = node
        self._kubeconfig: Path = identities.kubeconfig(plane, api, "netdra-node", node)

    def apply(self, written: Object) -> None:
        """Create or change an object."""
        how = ("--server-side", "--force-conflicts")
        kubectl(self._kubeconfig, "apply", *how, "-f", "-", text=yaml.safe_dump(written))

    def create(self, written: Object) -> None:
        """Create an object."""
        kubectl(self._kubeconfig, "create", "-f", "-", text=yaml.safe_dump(written))

    def delete(self, name: str, kind: str = "resourceslice") -> None:
        """Delete a slice, or another object."""
        kubectl(self._kubeconfig, "delete", kind, name)

    def report(self, node: str, offered: int) -> None:
        """Write a node's NodeNetwork."""
        if node == self.node:
            self.create(manifest(REPORT, node))
        found = yaml.safe_load(kubectl(self._kubeconfig, "get", "nodenetwork", node, "-o", "yaml"))
        written = yaml.safe_dump({**found, "status": {"summary": {"offered": offered}}})
        kubectl(self._kubeconfig, "replace", "--subresource=status", "-f", "-", text=written)

    def patch(self, namespace: str, port: str, change: Object, *subresource: str) -> None:
        """Change a NeutronPort."""
        how = ("--type=merge", *(f"--subresource={name}" for name in subresource), "-p", json.dumps(change))
        kubectl(self._kubeconfig, "-n", namespace, "patch", "neutronport", port, *how)

    def say(self, namespace: str, claim: str, *devices: Object) -> None:
        """Write what a claim's devices became."""
        written = manifest(CLAIM, claim, namespace, status={"devices": list(devices)})
        how = ("--server-side", "--force-conflicts", "--subresource=status")
        kubectl(self._kubeconfig, "apply", *how, "-f", "-", text=yaml.safe_dump(written))


@pytest.fixture
def drivers(control_plane: ControlPlane, workspace: Workspace) -> tuple[Driver, Driver]:
    """The drivers of two nodes."""
    one, two = workspace.add_node("one"), workspace.add_node("two")
    return Driver(control_plane, workspace.api, one), Driver(control_plane, workspace.api, two)


def refusal(write: Callable[[], None]) -> str:
    """Why the API server refuses a write."""
    with pytest.raises(KubectlError) as refused:
        write()
    return refused.value.stderr


def slice_of(node: str, name: str, driver: str = "dra.networking", **spec: object) -> Object:
    pool = {"name": f"{node}/{name}" if node else name, "generation": 1, "resourceSliceCount": 1}
    where = {"nodeName": node} if node else {"allNodes": True}
    return manifest(SLICE, name, spec={"driver": driver, "pool": pool, "devices": [{"name": "a"}], **where, **spec})


def test_a_driver_writes_the_slices_of_its_own_node_only(workspace: Workspace, drivers: tuple[Driver, Driver]) -> None:
    one, two = drivers
    name = workspace.name("own")
    one.apply(slice_of(one.node, name))
    one.apply(slice_of(one.node, name, devices=[{"name": "b"}]))
    text = f"the driver of node {two.node} may not write a ResourceSlice of node {one.node}"
    assert text in refusal(lambda: two.apply(slice_of(one.node, name, devices=[{"name": "c"}])))
    assert text in refusal(lambda: two.apply(slice_of(one.node, workspace.name("other"))))
    assert text in refusal(lambda: two.delete(name))
    everywhere = slice_of("", workspace.name("everywhere"))
    assert "may not write a ResourceSlice of several nodes" in refusal(lambda: two.apply(everywhere))
    foreign = slice_of(two.node, workspace.name("foreign"), "gpu.example.com")
    assert "of driver dra.networking only" in refusal(lambda: two.apply(foreign))
    one.delete(name)


def test_a_driver_does_not_write_the_addresses_of_pod_networks(
    workspace: Workspace, drivers: tuple[Driver, Driver]
) -> None:
    one, _ = drivers
    pool = {"name": f"podnetworks.dra.networking/{workspace.name('lan')}", "generation": 1, "resourceSliceCount": 1}
    name = workspace.name("addresses")
    workspace.create(slice_of("", name, pool=pool))
    text = "may not write a ResourceSlice of several nodes"
    assert text in refusal(lambda: one.apply(slice_of("", name, pool=pool, devices=[{"name": "b"}])))
    assert text in refusal(lambda: one.delete(name))
    assert text in refusal(lambda: one.apply(slice_of("", workspace.name("second"), pool=pool)))
    own = slice_of(one.node, workspace.name("third"), pool=pool)
    assert f"may not make a ResourceSlice of pool {pool['name']}" in refusal(lambda: one.apply(own))


def test_a_driver_adds_nothing_to_another_nodes_pool(workspace: Workspace, drivers: tuple[Driver, Driver]) -> None:
    # A pool of which two nodes have slices is of no use: its devices could not be allocated any more.
    one, two = drivers
    for name in (f"{one.node}/sriov-eth0", f"{one.node}-sriov-eth0", f"{two.node}-b/sriov-eth0", f"{two.node}-x", "x"):
        pool = {"name": name, "generation": 9, "resourceSliceCount": 1}
        text = refusal(partial(two.apply, slice_of(two.node, workspace.name("thief"), pool=pool)))
        assert f"the driver of node {two.node} may not make a ResourceSlice of pool {name}" in text
    two.apply(slice_of(two.node, workspace.name("own")))


def test_a_pool_that_was_called_otherwise_is_written_until_it_goes(
    workspace: Workspace, drivers: tuple[Driver, Driver]
) -> None:
    one, two = drivers
    name = workspace.name("former")
    pool = {"name": f"{one.node}-sriov-eth0", "generation": 1, "resourceSliceCount": 1}
    workspace.create(slice_of(one.node, name, pool=pool))
    one.apply(slice_of(one.node, name, pool={**pool, "generation": 2}, devices=[{"name": "b"}]))
    text = refusal(lambda: two.apply(slice_of(two.node, name, pool=pool)))
    assert f"may not write a ResourceSlice of node {one.node}" in text or "immutable" in text
    one.delete(name)


def test_a_driver_does_not_take_away_another_drivers_slices(
    workspace: Workspace, drivers: tuple[Driver, Driver]
) -> None:
    one, _ = drivers
    name = workspace.name("gpu")
    workspace.create(slice_of(one.node, name, "gpu.example.com"))
    assert "of driver dra.networking only" in refusal(lambda: one.delete(name))


def test_a_token_that_is_bound_to_no_node_writes_no_slice(
    control_plane: ControlPlane, workspace: Workspace, drivers: tuple[Driver, Driver]
) -> None:
    one, _ = drivers
    stolen = identities.kubeconfig(control_plane, workspace.api, "netdra-node")
    written = yaml.safe_dump(slice_of(one.node, workspace.name("stolen")))
    text = refusal(lambda: [kubectl(stolen, "apply", "--server-side", "-f", "-", text=written)].clear())
    assert "with a token that is bound to a node" in text


def event_of(workspace: Workspace, reporter: str, kind: str, name: str, api_version: str = "v1") -> Object:
    return {
        **manifest("events.k8s.io/v1/Event", f"{workspace.name('event')}.{next(_EVENTS)}", "default"),
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "dra.networking/node",
        "reportingInstance": reporter,
        "action": "Publish",
        "reason": "Test",
        "type": "Warning",
        "note": "as a test says",
        "regarding": {"apiVersion": api_version, "kind": kind, "name": name, "namespace": "default"},
    }


def test_a_driver_writes_events_only_in_its_own_name_and_not_about_other_nodes(
    workspace: Workspace, drivers: tuple[Driver, Driver]
) -> None:
    one, two = drivers
    ours = event_of(workspace, one.node, "Node", one.node)
    one.create(ours)
    one.create(event_of(workspace, one.node, "Pod", "web"))
    one.create(event_of(workspace, one.node, "ResourceClaim", "net", "resource.k8s.io/v1"))
    one.create(event_of(workspace, one.node, "DeviceExposurePolicy", "nics", "networking.dra.io/v1alpha1"))
    in_our_name = event_of(workspace, one.node, "Node", two.node)
    assert "may write events in its own name only" in refusal(lambda: two.create(in_our_name))
    of_us = event_of(workspace, two.node, "Node", one.node)
    assert f"may not write an event about Node {one.node}" in refusal(lambda: two.create(of_us))
    secret = event_of(workspace, two.node, "Secret", "token")
    assert "may not write an event about Secret token" in refusal(lambda: two.create(secret))
    counted = {**ours, "series": {"count": 9, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}
    assert "may write events in its own name only" in refusal(lambda: two.apply(counted))
    one.apply(counted)
    taken_over = {**event_of(workspace, two.node, "Node", two.node), "metadata": ours["metadata"]}
    assert "reportingInstance" in refusal(lambda: two.apply(taken_over))


def test_a_driver_reports_of_its_own_node_only(
    control_plane: ControlPlane, workspace: Workspace, drivers: tuple[Driver, Driver]
) -> None:
    """A stolen token of a node reports nothing in another node's name, and makes no node disappear."""
    one, two = drivers
    one.report(one.node, 3)
    assert workspace.api.get(REPORT, one.node)["status"]["summary"]["offered"] == 3
    text = f"the driver of node {two.node} may not write the NodeNetwork of node {one.node}"
    assert text in refusal(lambda: two.report(one.node, 0))
    assert text in refusal(lambda: two.create(manifest(REPORT, one.node)))
    other = workspace.name("nowhere")
    assert f"may not write the NodeNetwork of node {other}" in refusal(lambda: two.create(manifest(REPORT, other)))
    generated = {"apiVersion": f"{OURS}/v1alpha1", "kind": "NodeNetwork", "metadata": {"generateName": two.node}}
    assert "may not write the NodeNetwork" in refusal(lambda: two.create(generated))
    assert "cannot delete" in refusal(lambda: one.delete(one.node, "nodenetwork"))
    stolen = identities.kubeconfig(control_plane, workspace.api, "netdra-node")
    written = yaml.safe_dump(manifest(REPORT, other))
    unbound = refusal(lambda: [kubectl(stolen, "create", "-f", "-", text=written)].clear())
    assert "with a token that is bound to a node" in unbound


PORT = f"{OURS}/v1alpha1/NeutronPort"
ADDRESS = f"{OURS}/v1alpha1/PodAddress"
PORT_SPEC: Object = {
    "claim": {"name": "claim", "uid": "5f0c"},
    "request": "vf0",
    "pool": "pool",
    "device": "claim-vf0",
    "nodeName": "worker-1",
    "topology": "net",
    "step": "vf0",
    "physnet": "physnet2",
    "pciAddress": "0000:05:10.1",
    "host": "worker-1",
}
FORGED = {
    "portID": "p",
    "settings": {"mac": "02:00:00:00:00:66", "vlan": 666},
    "conditions": [
        {
            "type": "Bound",
            "status": "True",
            "reason": "Bound",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
}


class Author:
    """An author of pods and claims in a namespace, with all rights there."""

    def __init__(self, plane: ControlPlane, workspace: Workspace) -> None:
        self._namespace = workspace.namespace
        account = {"kind": "ServiceAccount", "name": "author", "namespace": workspace.namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        workspace.create(manifest("v1/ServiceAccount", "author", workspace.namespace))
        binding = manifest("rbac.authorization.k8s.io/v1/RoleBinding", "author", workspace.namespace)
        workspace.create({**binding, "roleRef": role, "subjects": [account]})
        self._kubeconfig = identities.kubeconfig(plane, workspace.api, "author", namespace=workspace.namespace)

    def __call__(self, *arguments: str) -> str:
        """Run kubectl as the author."""
        return kubectl(self._kubeconfig, "-n", self._namespace, *arguments)

    def refused(self, *arguments: str, written: Object | None = None) -> str:
        """The error that kubectl gets where the author is refused; "" where not."""
        text = "" if written is None else yaml.safe_dump(written)
        return denial(self._kubeconfig, "-n", self._namespace, *arguments, text=text)


def test_only_the_controller_writes_neutron_ports_and_their_status(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    """With a forged status, a pod would get another's VLAN and MAC address on its VF."""
    author = Author(control_plane, workspace)
    assert author("auth", "can-i", "update", "neutronports.networking.dra.io", "--subresource=status").strip() == "yes"
    controller = identities.kubeconfig(control_plane, workspace.api, "netdra-controller")
    port = manifest(PORT, "port", workspace.namespace, spec=PORT_SPEC)
    text = "author may not write NeutronPorts: netdra's controller alone does"
    until(lambda: text in author.refused("create", "--dry-run=server", "-f", "-", written=port), "policy to be heeded")
    assert text in author.refused("create", "-f", "-", written=port)
    kubectl(controller, "create", "-f", "-", text=yaml.safe_dump(port))
    stored = yaml.safe_load(author("get", "neutronport", "port", "-o", "yaml"))
    forged = {**stored, "status": FORGED}
    assert text in author.refused("replace", "--subresource=status", "-f", "-", written=forged)
    how = ("--server-side", "--force-conflicts", "--subresource=status")
    applied = {**port, "status": FORGED}
    assert text in author.refused("apply", *how, "-f", "-", written=applied)
    assert text in author.refused("label", "neutronport", "port", "some=thing")
    assert text in author.refused("delete", "neutronport", "port")
    assert text in author.refused("delete", "neutronports", "--all")
    assert "status" not in workspace.api.get(PORT, "port", workspace.namespace)
    kubectl(controller, "apply", *how, "-f", "-", text=yaml.safe_dump(applied))
    assert workspace.api.get(PORT, "port", workspace.namespace)["status"]["settings"]["vlan"] == 666
    kubectl(controller, "delete", "neutronport", "port", "-n", workspace.namespace)


def test_only_the_controller_assigns_addresses(control_plane: ControlPlane, workspace: Workspace) -> None:
    """With a forged one, a pod would get the address of another."""
    controller = identities.kubeconfig(control_plane, workspace.api, "netdra-controller")
    network = workspace.name("net")
    owner = {"namespace": workspace.namespace, "claim": "c", "topology": "t", "step": "s"}

    def address(text: str, name: str, **metadata: Any) -> Object:
        spec = {
            "network": network,
            "address": text,
            "families": ["IPv4"],
            "owner": owner,
            "claim": {"name": "c", "uid": "u"},
        }
        made = manifest(ADDRESS, f"{network}.{name}", spec=spec)
        return {**made, "metadata": made["metadata"] | metadata}

    def refused(account: Path, written: Object) -> str:
        return denial(account, "create", "-f", "-", text=yaml.safe_dump(written))

    good = address("10.77.0.5/24", "10.77.0.5")
    someone = control_plane.kubeconfig("someone", ["others"])
    api, rules = workspace.api, [{"apiGroups": [OURS], "resources": ["podaddresses"], "verbs": ["create", "delete"]}]
    role = workspace.name("writer")
    api.create({**manifest("rbac.authorization.k8s.io/v1/ClusterRole", role), "rules": rules})
    subjects = [{"kind": "User", "name": "someone", "apiGroup": "rbac.authorization.k8s.io"}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    binding = manifest("rbac.authorization.k8s.io/v1/ClusterRoleBinding", role)
    api.create({**binding, "roleRef": reference, "subjects": subjects})
    try:
        text = "someone may not write PodAddresses: netdra's controller alone does"
        until(lambda: text in refused(someone, good), "the policy to be heeded")
        for wrong in (
            address("10.77.0.5/24", "10.77.0.6"),
            address("2001:db8::5/64", "2001-db8-0-0-0-0-0-6"),
            address("2001:db8::5/64", "2001-db8--5"),
            address("10.77.0.5/24", "10.77.0.5", labels={"some": "thing"}),
            address("10.77.0.5/24", "10.77.0.5", finalizers=["example.com/keep"]),
        ):
            # The kind's own rule comes first, where it has one.
            wordings = ("named after their network and address", "the object's name ends with the address")
            answer = refused(controller, wrong)
            assert any(wording in answer for wording in wordings), answer
        for right, name in (
            (good, "10.77.0.5"),
            (address("2001:db8::5/64", "2001-db8-0-0-0-0-0-5"), "2001-db8-0-0-0-0-0-5"),
        ):
            kubectl(controller, "create", "-f", "-", text=yaml.safe_dump(right))
            assert text in denial(someone, "delete", "podaddress", f"{network}.{name}")
            kubectl(controller, "delete", "podaddress", f"{network}.{name}")
    finally:
        api.delete("rbac.authorization.k8s.io/v1/ClusterRoleBinding", role)
        api.delete("rbac.authorization.k8s.io/v1/ClusterRole", role)


def test_a_driver_may_only_choose_the_vf_of_pooled_ports_of_its_own_node(
    workspace: Workspace, drivers: tuple[Driver, Driver]
) -> None:
    """With another node's choice, a pod there would get a port that is bound to a VF that it does not have."""
    one, two = drivers
    pooled = {**PORT_SPEC, "device": "eth0-vfs", "shareID": "5f0c4d9a", "pciAddress": "", "nodeName": one.node}
    for name, spec in (("pooled", pooled), ("single", {**PORT_SPEC, "nodeName": one.node})):
        workspace.create(manifest(PORT, name, workspace.namespace, spec=spec))

    def choose(driver: Driver, name: str = "pooled", address: str = "0000:05:02.1", **change: Any) -> None:
        driver.patch(workspace.namespace, name, {"chosenVF": {"pciAddress": address}, **change})

    for address in ("0000:05:02.1", "0000:05:02.1", "0000:05:02.2"):
        choose(one, address=address)
        assert workspace.api.get(PORT, "pooled", workspace.namespace)["chosenVF"] == {"pciAddress": address}
    text = "netdra-node may not write NeutronPorts"
    stored = workspace.api.get(PORT, "pooled", workspace.namespace)
    assert text in refusal(lambda: choose(two))
    assert "spec.shareID is required" in refusal(lambda: choose(one, "single"))
    assert "a port is of one VF" in refusal(lambda: choose(one, spec={**pooled, "host": two.node}))
    single = {"metadata": {"labels": {"some": "thing"}}}
    assert text in refusal(lambda: one.patch(workspace.namespace, "single", single))
    for metadata in (
        {"labels": {"some": "thing"}},
        {"annotations": {"some": "thing"}},
        {"finalizers": ["example.com/some"]},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": one.node, "uid": "1"}]},
    ):
        assert text in refusal(partial(choose, one, metadata=metadata))
    assert "should match" in refusal(lambda: choose(one, address="0000:05:02.1 spoofchk off"))
    assert "forbidden" in refusal(lambda: one.patch(workspace.namespace, "pooled", {"status": FORGED}, "status"))
    assert "forbidden" in refusal(lambda: one.delete("pooled", "neutronport"))
    assert workspace.api.get(PORT, "pooled", workspace.namespace) == stored


def test_kubernetes_deletes_ports_and_writes_none(workspace: Workspace, control_plane: ControlPlane) -> None:
    """The garbage collector takes off its own finalizers; that it may do more by RBAC lets it forge nothing."""
    workspace.create(manifest(PORT, "port", workspace.namespace, spec=PORT_SPEC))
    for account in ("generic-garbage-collector", "namespace-controller"):
        binding = manifest("rbac.authorization.k8s.io/v1/RoleBinding", account, workspace.namespace)
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        subject = {"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}
        workspace.create({**binding, "roleRef": role, "subjects": [subject]})
    here = ("--as=system:serviceaccount:kube-system:generic-garbage-collector", "-n", workspace.namespace)
    merge = ("patch", "neutronport", "port", "--type=merge")
    control_plane.kubectl(*here, *merge, "-p", '{"metadata": {"finalizers": ["example.com/some"]}}')
    control_plane.kubectl(*here, *merge, "-p", '{"metadata": {"finalizers": []}}')
    text = "generic-garbage-collector may not write NeutronPorts"
    forged = ("--subresource=status", "-p", '{"status": {"portID": "p"}}')
    assert text in refusal(lambda: [control_plane.kubectl(*here, *merge, *forged)].clear())
    other = yaml.safe_dump(manifest(PORT, "other", workspace.namespace, spec=PORT_SPEC))
    assert text in refusal(lambda: [control_plane.kubectl(*here, "create", "-f", "-", text=other)].clear())
    namespace_controller = "--as=system:serviceaccount:kube-system:namespace-controller"
    control_plane.kubectl(namespace_controller, "-n", workspace.namespace, "delete", "neutronports", "--all")
    assert workspace.api.list(PORT, workspace.namespace) == []


def test_a_cluster_admin_releases_a_port_that_is_being_deleted_and_writes_nothing_else(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    """By the command of docs/neutron.md; all rights in the namespace are not enough."""
    author = Author(control_plane, workspace)
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": workspace.name("admin")}
    binding = manifest("rbac.authorization.k8s.io/v1/ClusterRoleBinding", workspace.name("admin"))
    workspace.create({**binding, "roleRef": role, "subjects": [subject]})
    port = manifest(PORT, "port", workspace.namespace, spec=PORT_SPEC)
    port["metadata"]["finalizers"] = ["networking.dra.io/neutron-port"]
    workspace.api.create(port)
    test = {"op": "test", "path": "/metadata/finalizers/0", "value": "networking.dra.io/neutron-port"}
    remove = {"op": "remove", "path": "/metadata/finalizers/0"}
    label = {"op": "add", "path": "/metadata/labels", "value": {"some": "thing"}}

    def release(*operations: Object) -> tuple[str, ...]:
        return "patch", "neutronport", "port", "--type=json", "-p", json.dumps(operations)

    def admin(*arguments: str) -> str:
        who = f"--as={workspace.name('admin')}"
        return denial(control_plane.kubeconfig(), who, "-n", workspace.namespace, *arguments)

    text = "may not write NeutronPorts"
    until(lambda: text in admin(*release(label)), "the binding to be heeded")
    assert text in admin(*release(test, remove))  # it is not being deleted
    workspace.api.delete(PORT, "port", workspace.namespace)
    assert text in author.refused(*release(test, remove))
    assert text in admin(*release(test, remove, label))
    assert text in admin("patch", "neutronport", "port", "--type=merge", "-p", '{"spec": {"vlan": 1}}')
    assert admin(*release(test, remove)) == ""
    assert workspace.api.list(PORT, workspace.namespace) == []


def test_a_port_goes_with_its_claim(workspace: Workspace) -> None:
    made = workspace.api.create(manifest(CLAIM, "owner", workspace.namespace, spec={"devices": {}}))
    owner = {"apiVersion": f"{DRA}/v1", "kind": "ResourceClaim", "name": "owner", "uid": made["metadata"]["uid"]}
    port = manifest(PORT, "owned", workspace.namespace, spec=PORT_SPEC)
    workspace.api.create({**port, "metadata": {**port["metadata"], "ownerReferences": [owner]}})
    workspace.api.delete(CLAIM, "owner", workspace.namespace)
    until(lambda: not workspace.api.list(PORT, workspace.namespace), "the garbage collector to delete the port")


def said(device: str, driver: str = "dra.networking", **more: object) -> Object:
    return {"driver": driver, "pool": "pool", "device": device, **more}


@pytest.fixture
def claim(workspace: Workspace, drivers: tuple[Driver, Driver]) -> str:
    """A claim with a device of netdra, allocated on the first driver's node."""
    requests = [{"name": "vf0", "exactly": {"deviceClassName": "net-vf0"}}]
    made = workspace.api.create(manifest(CLAIM, "claim", workspace.namespace, spec={"devices": {"requests": requests}}))
    status = identities.allocated("claim", "net", ["vf0"], drivers[0].node)
    status["allocation"]["devices"]["results"].append(
        {"request": "vf0", "driver": "gpu.example.com", "pool": "pool", "device": "gpu0"}
    )
    workspace.api.update({**made, "status": status}, subresource="status")
    return "claim"


def test_a_driver_writes_the_status_of_its_own_devices_on_its_own_node_only(
    workspace: Workspace, drivers: tuple[Driver, Driver], claim: str
) -> None:
    one, two = drivers
    ours = said("claim-vf0", networkData={"interfaceName": "net1"})
    one.say(workspace.namespace, claim, ours)
    (stored,) = workspace.api.get(CLAIM, claim, workspace.namespace)["status"]["devices"]
    assert stored["networkData"] == {"interfaceName": "net1"}
    assert "orbidden" in refusal(lambda: two.say(workspace.namespace, claim))
    gpu = said("gpu0", "gpu.example.com")
    assert "orbidden" in refusal(lambda: one.say(workspace.namespace, claim, ours, gpu))
    assert workspace.api.get(CLAIM, claim, workspace.namespace)["status"]["devices"] == [stored]


def test_the_manifests_are_taken_by_kubectl_and_a_second_time_change_nothing(control_plane: ControlPlane) -> None:
    for name in identities.INSTALLED:
        text = yaml.safe_dump_all(identities.rights(name))
        control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=text)
        assert control_plane.kubectl("diff", "--server-side", "-f", "-", text=text) == ""
