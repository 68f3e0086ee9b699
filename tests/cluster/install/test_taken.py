"""The API server accepts the chart: with every set of values, and helm installs and upgrades it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from netdra.model import crd, kinds
from testbed.api import Api, Object
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.helm import HelmError, helm
from testbed.kubectl import denial
from testbed.objects import NAMESPACE, SLICE, add_namespace, manifest
from testbed.waiting import until
from tests.cluster.conftest import DEFINITION, StartControlPlane
from tests.cluster.install.rendering import CASES, CHART, Case, of_kind

FOREIGN = ("cert-manager.io/", "monitoring.coreos.com/")
"""Groups of others, which this API server does not serve."""


@pytest.fixture(scope="module")
def plane(start_control_plane: StartControlPlane) -> ControlPlane:
    return start_control_plane(Settings())


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[Api]:
    with closing(plane.client()) as client:
        yield client


def as_list(objects: Sequence[Object]) -> str:
    """As JSON: the programs disagree on which names YAML takes for something else."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_object_is_taken_by_the_api_server(plane: ControlPlane, admin: Api, case: Case) -> None:
    if not any(each["metadata"]["name"] == case.objects_namespace for each in admin.list(NAMESPACE)):
        add_namespace(admin, case.objects_namespace)
    objects = [each for each in case.objects() if not each["apiVersion"].startswith(FOREIGN)]
    # A pod's account is looked up even if it is only tried.
    accounts = of_kind(objects, "ServiceAccount")
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=as_list(accounts))
    told = plane.kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", text=as_list(objects)
    )
    assert len(told.splitlines()) == len(objects)


@pytest.fixture(scope="module")
def first(plane: ControlPlane) -> str:
    """A release that helm has installed: what helm printed. Nothing of it runs without a node."""
    return helm("install", "first", str(CHART), "--namespace=net", "--create-namespace", kubeconfig=plane.kubeconfig())


def test_its_definitions_are_upgraded_with_it(plane: ControlPlane, admin: Api, first: str) -> None:
    def printed_columns() -> list[int]:
        return [len(definition(admin, kind)["versions"][0]["additionalPrinterColumns"]) for kind in kinds.KINDS]

    assert "helm test first -n net" in first
    before = printed_columns()
    for kind in kinds.KINDS:
        versions = definition(admin, kind)["versions"]
        versions[0]["additionalPrinterColumns"] = []
        admin.patch(DEFINITION, kind.name, {"spec": {"versions": versions}})
    where = plane.kubeconfig()
    helm("upgrade", "first", str(CHART), "--namespace=net", "--force-conflicts", kubeconfig=where)
    assert printed_columns() == before


def definition(admin: Api, kind: crd.CustomKind) -> Object:
    """The spec of a kind's definition."""
    found = admin.get(DEFINITION, kind.name)
    assert found is not None
    spec: Object = found["spec"]
    return spec


@pytest.mark.usefixtures("first")
def test_a_second_netdra_is_refused(plane: ControlPlane) -> None:
    with pytest.raises(HelmError, match="invalid ownership metadata"):
        helm("install", "second", str(CHART), "--namespace=other", "--create-namespace", kubeconfig=plane.kubeconfig())


@pytest.mark.usefixtures("first")
def test_the_account_of_helm_test_may_try_and_write_nothing(plane: ControlPlane) -> None:
    account = [
        each
        for each in Case("first", "net", values={"hooks": {"render": "always"}}).objects()
        if each["metadata"]["name"] == "first-netdra-doctor" and each["kind"] != "Pod"
    ]
    plane.kubectl("apply", "--server-side", "-f", "-", text=as_list(account))
    pool = {"name": "node-1/tried", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "dra.networking", "nodeName": "node-1", "pool": pool, "devices": []}
    tried = json.dumps(manifest(SLICE, "tried", spec=spec))
    who = "--as=system:serviceaccount:net:first-netdra-doctor"

    def refused(*options: str) -> str:
        return denial(plane.kubeconfig(), "create", who, *options, "-f", "-", text=tried)

    until(lambda: "may try to write, and nothing else" in refused(), "the policy to hold the account to dry runs")
    assert refused("--dry-run=server") == ""


@pytest.mark.usefixtures("first")
def test_another_release_takes_over_the_definitions_that_an_uninstall_keeps(plane: ControlPlane, admin: Api) -> None:
    """The last of this module: the release `first` goes. Its hooks need a node, which none exists of."""
    where, kind = plane.kubeconfig(), "networking.dra.io/v1alpha1/DeviceExposurePolicy"
    helm("uninstall", "first", "--namespace=net", "--no-hooks", "--wait", kubeconfig=where)
    admin.create(manifest(kind, "kept", spec={"selector": {"cel": "false"}, "action": "exclude"}))
    names = {each.name for each in kinds.KINDS}
    assert names <= {each["metadata"]["name"] for each in admin.list(DEFINITION)}
    install = ("install", "other.name", str(CHART), "--namespace=other", "--create-namespace")
    with pytest.raises(HelmError, match="invalid ownership metadata"):
        helm(*install, kubeconfig=where)
    helm(*install, "--take-ownership", kubeconfig=where)
    owners = {
        each["metadata"]["annotations"]["meta.helm.sh/release-name"]
        for each in admin.list(DEFINITION)
        if each["metadata"]["name"] in names
    }
    assert owners == {"other.name"}
    assert admin.get(kind, "kept") is not None
