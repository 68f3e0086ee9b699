"""Manifests of the chart that are applied twice change nothing, for all values: for kubectl, Argo CD and Flux."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from testbed import helm
from testbed.api import Api, Object, kind_of
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.objects import NAMESPACE, add_namespace, manifest
from testbed.waiting import until
from tests.cluster.conftest import DEFINITION, StartControlPlane
from tests.cluster.install.rendering import CASES, CHART

OF_OTHERS = ("cert-manager.io/", "monitoring.coreos.com/")
"""API groups that a bare cluster does not serve."""
OF_PODS = ("Namespace", "PriorityClass", "ServiceAccount")
"""What a pod is not taken without."""


def applied(api: Api, objects: list[Object]) -> dict[tuple[str, str, str], object]:
    """Of each object its generation, and which fields kubectl applied, and when it last changed one."""
    found: dict[tuple[str, str, str], object] = {}
    for each in objects:
        name, namespace = each["metadata"]["name"], each["metadata"].get("namespace", "")
        metadata = api.get(kind_of(each), name, namespace)["metadata"]
        (own,) = (
            entry
            for entry in metadata["managedFields"]
            if (entry["manager"], entry["operation"], entry.get("subresource")) == ("kubectl", "Apply", None)
        )
        found[kind_of(each), namespace, name] = (metadata.get("generation"), own)
    return found


def until_next_second() -> None:
    """Wait until a change has another time in managedFields, where times have no fractions."""
    began = time.time()
    until(lambda: time.time() - began > 1.5, "the next second")


@pytest.fixture(scope="module")
def plane(start_control_plane: StartControlPlane) -> ControlPlane:
    """A cluster without nodes."""
    return start_control_plane(Settings())


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[Api]:
    with closing(plane.client()) as client:
        yield client


@pytest.fixture(scope="module")
def tried() -> set[str]:
    """The objects that have been applied twice, as JSON; most are the same for most values."""
    return set()


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_second_apply_changes_no_object(plane: ControlPlane, api: Api, tried: set[str], name: str) -> None:
    case = CASES[name]
    if not any(found["metadata"]["name"] == case.objects_namespace for found in api.list(NAMESPACE)):
        add_namespace(api, case.objects_namespace)
    served = [each for each in case.objects() if not each["apiVersion"].startswith(OF_OTHERS)]
    objects = [each for each in served if each["kind"] in OF_PODS or json.dumps(each) not in tried]
    tried.update(map(json.dumps, objects))
    text = as_list(objects)
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=text)
    before = applied(api, objects)
    until_next_second()
    plane.kubectl("apply", "--server-side", "-f", "-", text=text)
    assert applied(api, objects) == before
    kept = ("CustomResourceDefinition", "Namespace")
    own = as_list([each for each in objects if each["kind"] not in kept])
    plane.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", text=own)


def as_list(objects: list[Object]) -> str:
    """Objects as one document; JSON, in which a namespace "y" is not a truth."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def test_a_second_release_is_refused_also_without_definitions(plane: ControlPlane) -> None:
    def install(release: str, *options: str) -> str:
        where = (f"--namespace={release}", "--create-namespace")
        return helm.helm("install", release, str(CHART), *where, *options, kubeconfig=plane.kubeconfig())

    install("first", "--set=crds.enabled=false")
    with pytest.raises(helm.HelmError) as refused:
        install("second", "--set=crds.enabled=false")
    assert 'ClusterRole "netdra-admin"' in refused.value.stderr
    assert "first" in refused.value.stderr
    # Nothing runs here that could run the hooks.
    helm.helm("uninstall", "first", "--namespace=first", "--no-hooks", kubeconfig=plane.kubeconfig())


def test_kept_definitions_are_taken_over_by_a_release_of_another_name(plane: ControlPlane, api: Api) -> None:
    def install(release: str, *options: str) -> str:
        return helm.helm("install", release, str(CHART), "--namespace=default", *options, kubeconfig=plane.kubeconfig())

    api.delete_all(DEFINITION)
    install("former")
    helm.helm("uninstall", "former", "--namespace=default", "--no-hooks", kubeconfig=plane.kubeconfig())
    with pytest.raises(helm.HelmError, match="CustomResourceDefinition"):
        install("later")
    printed = install("later", "--take-ownership")
    owners = {
        each["metadata"]["annotations"]["meta.helm.sh/release-name"]
        for each in api.list(DEFINITION)
        if each["metadata"]["name"].endswith(".networking.dra.io")
    }
    assert owners == {"later"}
    assert "netdra preset shared | kubectl apply -f -" in printed
    helm.helm("uninstall", "later", "--namespace=default", "--no-hooks", kubeconfig=plane.kubeconfig())


def test_kubernetes_own_roles_have_the_rights_of_people(plane: ControlPlane, api: Api) -> None:
    for shipped in helm.objects(CASES["defaults"].manifests, "people.yaml"):
        api.apply(shipped)
    for role in ("view", "edit", "admin"):
        binding = manifest("rbac.authorization.k8s.io/v1/ClusterRoleBinding", role)
        binding["roleRef"] = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        binding["subjects"] = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": f"{role}ers"}]
        api.apply(binding)

    def may(role: str, verb: str, resource: str) -> bool:
        attributes = {"verb": verb, "group": "networking.dra.io", "resource": resource}
        review = manifest(
            "authorization.k8s.io/v1/SubjectAccessReview",
            "",
            spec={"user": "somebody", "groups": [f"{role}ers"], "resourceAttributes": attributes},
        )
        allowed: bool = api.create(review)["status"]["allowed"]
        return allowed

    until(lambda: may("admin", "create", "deviceexposurepolicies"), "the roles to be aggregated")
    until(lambda: may("admin", "create", "networktopologies"), "the roles to be aggregated")
    until(lambda: may("view", "list", "nodenetworks"), "the roles to be aggregated")
    # The rights of "view" come to "edit" and "admin" by their own aggregation.
    until(lambda: all(may(role, "list", "neutronports") for role in ("view", "edit", "admin")), "all may list")
    assert [role for role in ("view", "edit", "admin") if may(role, "create", "networktopologies")] == ["edit", "admin"]
    assert [role for role in ("view", "edit", "admin") if may(role, "delete", "deviceexposurepolicies")] == ["admin"]
    assert not may("admin", "update", "nodenetworks")
    assert not may("admin", "create", "neutronports")
