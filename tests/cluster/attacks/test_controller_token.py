"""Who has stolen the controller's token cannot have nodes run what nobody else allowed, nor touch a vendor's schema.

The controller may write CNIPluginSchemas, to show those that netdra ships. RBAC knows no labels; what holds it to
objects that count for nothing is an admission policy (`own-schemas.yaml` of the chart).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.kubectl import denial, kubectl
from testbed.objects import manifest
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster import identities
from tests.cluster.test_controller import SCHEMA

LABEL = "networking.dra.io/shipped"
BOUNDED = f"netdra's controller may write CNIPluginSchemas only whose label {LABEL} has their own name"


@pytest.fixture(scope="module")
def stolen(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Path:
    """The controller's token, once the policy is heeded."""
    identities.install(api)
    token = identities.kubeconfig(control_plane, api, "netdra-controller")
    asked = yaml.safe_dump(schema("heeded", ""))
    until(
        lambda: BOUNDED in denial(token, "create", "--dry-run=server", "-f", "-", text=asked),
        "the policy to be heeded",
    )
    return token


def schema(name: str, label: str) -> Object:
    made = manifest(SCHEMA, name, spec={"cniType": "attacker"})
    made["metadata"]["labels"] = {LABEL: label} if label else {}
    return made


def replaced(token: Path, name: str, patch: Object) -> str:
    """Why the API server refuses a change of labels or spec, or ""."""
    found = json.loads(kubectl(token, "get", "cnipluginschemas", name, "-o", "json"))
    found["metadata"]["labels"] = patch.get("labels", found["metadata"].get("labels", {}))
    found["spec"] = {**found["spec"], **patch.get("spec", {})}
    return denial(token, "replace", "-f", "-", text=json.dumps(found))


def test_it_makes_no_schema_that_counts(stolen: Path, workspace: Workspace) -> None:
    name = workspace.name("own")
    for label in ("", "vlan", "true"):
        text = yaml.safe_dump(schema(name, label))
        assert BOUNDED in denial(stolen, "create", "-f", "-", text=text)
    assert workspace.api.list(SCHEMA, fields=f"metadata.name={name}") == []


def test_it_neither_changes_nor_deletes_nor_takes_over_what_is_somebodys_own(
    stolen: Path, workspace: Workspace
) -> None:
    name = workspace.name("vendors")
    made = workspace.create(schema(name, ""))
    assert BOUNDED in replaced(stolen, name, {"spec": {"cniType": "other"}})
    assert BOUNDED in replaced(stolen, name, {"labels": {LABEL: name}})
    assert BOUNDED in denial(stolen, "delete", "cnipluginschemas", name)
    assert workspace.api.get(SCHEMA, name) == made


def test_it_makes_none_count_that_it_may_write(stolen: Path, workspace: Workspace) -> None:
    name = workspace.name("shown")
    workspace.create(schema(name, name))
    assert BOUNDED in replaced(stolen, name, {"labels": {}})
    assert replaced(stolen, name, {"spec": {"version": "2"}}) == ""
    assert denial(stolen, "delete", "cnipluginschemas", name) == ""
