"""What the API server makes of the chart: every set of values is taken, and helm installs and upgrades it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from netdra.model import kinds
from testbed.api import Api, Object
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.helm import helm
from testbed.objects import NAMESPACE, add_namespace
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
    if not any(each["metadata"]["name"] == case.namespace for each in admin.list(NAMESPACE)):
        add_namespace(admin, case.namespace)
    objects = [each for each in case.objects() if not each["apiVersion"].startswith(FOREIGN)]
    # A pod's account is looked up even if it is only tried.
    accounts = of_kind(objects, "ServiceAccount")
    plane.kubectl("apply", "--server-side", "-f", "-", text=as_list(accounts))
    told = plane.kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", text=as_list(objects))
    assert len(told.splitlines()) == len(objects)


def test_it_is_installed_upgraded_with_its_definitions(plane: ControlPlane, admin: Api) -> None:
    where = plane.kubeconfig()

    def printed_columns() -> list[int]:
        return [
            len(admin.get(DEFINITION, kind.name)["spec"]["versions"][0]["additionalPrinterColumns"])
            for kind in kinds.KINDS
        ]

    notes = helm("install", "first", str(CHART), "--namespace=net", "--create-namespace", kubeconfig=where)
    assert "helm test first -n net" in notes
    before = printed_columns()
    for kind in kinds.KINDS:
        changed = {"spec": {"versions": admin.get(DEFINITION, kind.name)["spec"]["versions"]}}
        changed["spec"]["versions"][0]["additionalPrinterColumns"] = []
        admin.patch(DEFINITION, kind.name, changed)
    helm("upgrade", "first", str(CHART), "--namespace=net", "--force-conflicts", kubeconfig=where)
    assert printed_columns() == before
