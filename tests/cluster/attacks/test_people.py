"""A user who may write CNIPlugins is root on every node: one of the chart's roles allows it, none in a namespace."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import pytest

from testbed.api import Api, Object
from testbed.objects import manifest
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster import identities

RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLE, BINDING, IN_NAMESPACE = (
    f"{RBAC}/v1/{kind}" for kind in ("ClusterRole", "ClusterRoleBinding", "RoleBinding")
)
PROGRAMS = (("networking.dra.io", "cniplugins"), ("cni.networking.k8s.io", "cnipluginschemas"))
WRITING = ("create", "update", "patch", "delete")
_NUMBERS = itertools.count(1)


@pytest.fixture(autouse=True)
def roles(api: Api, custom_kinds: None) -> Iterator[None]:
    """The chart's roles for people."""
    found = [each for each in identities.rights("people.yaml") if each["kind"] == "ClusterRole"]
    assert len(found) == 5
    for each in found:
        api.create(each)
    yield
    for each in found:
        api.delete(CLUSTER_ROLE, each["metadata"]["name"])


def user(workspace: Workspace, role: str, namespace: str = "") -> str:
    """A user with a ClusterRole, in the whole cluster or in one namespace."""
    name = workspace.name(f"user-{next(_NUMBERS)}")
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    subject = {"apiGroup": RBAC, "kind": "User", "name": name}
    made: Object = manifest(IN_NAMESPACE, name, namespace) if namespace else manifest(BINDING, name)
    workspace.create({**made, "roleRef": reference, "subjects": [subject]})
    return name


def may(api: Api, who: str, verb: str, group: str, resource: str, namespace: str = "") -> bool:
    """Whether a user may do something, as the API server states."""
    attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
    spec = {"user": who, "groups": ["system:authenticated"], "resourceAttributes": attributes}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def wait(api: Api, who: str, *right: str) -> None:
    """Until the API server heeds a binding."""
    until(partial(may, api, who, *right), "the binding to be heeded")


def programs(api: Api, who: str) -> set[str]:
    """The rights of a user on the kinds that bring programs to nodes, or let them run there."""
    return {
        f"{verb} {resource}" for group, resource in PROGRAMS for verb in WRITING if may(api, who, verb, group, resource)
    }


EVERY = {f"{verb} {resource}" for _, resource in PROGRAMS for verb in WRITING}


@pytest.mark.parametrize(
    ("netdras", "kubernetes", "verb"),
    [("netdra-view", "view", "list"), ("netdra-reader", "view", "list"), ("netdra-edit", "edit", "create")],
)
def test_view_and_edit_roles_cannot_bring_programs_to_nodes(
    api: Api, workspace: Workspace, netdras: str, kubernetes: str, verb: str
) -> None:
    for role in (netdras, kubernetes):
        who = user(workspace, role)
        wait(api, who, verb, "networking.dra.io", "networktopologies")
        assert programs(api, who) == set()


def test_an_administrator_of_the_cluster_does_and_one_of_a_namespace_does_not(api: Api, workspace: Workspace) -> None:
    for role in ("netdra-admin", "admin"):
        everywhere, here = user(workspace, role), user(workspace, role, workspace.namespace)
        wait(api, everywhere, "create", "networking.dra.io", "cniplugins")
        # That it counts in its namespace is seen by what RBAC says of kinds that are not of a namespace.
        wait(api, here, "create", "networking.dra.io", "cniplugins", workspace.namespace)
        assert programs(api, everywhere) == EVERY
        assert programs(api, here) == set()
