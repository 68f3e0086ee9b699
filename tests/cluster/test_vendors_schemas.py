"""A vendor ships the schema of its plugin under the plugin's own name, by Helm or kubectl, and it counts.

netdra's own schemas are not objects of the cluster (decision D35); those that former versions made are deleted.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest

from testbed import yaml
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.helm import helm
from testbed.kubectl import KubectlError
from testbed.objects import manifest
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster.daemons import running_controller, running_webhook, start_controller
from tests.cluster.test_controller import SCHEMA, TOPOLOGY, condition, is_gone, is_ready
from tests.documents import SCHEMAS

LABEL = "networking.dra.io/shipped"
AS_STORED = {"execution": "Auto"}
"""What the API server adds to a spec."""
BOND: Object = yaml.safe_load((SCHEMAS / "bond.yaml").read_text())
VLAN: Object = yaml.safe_load((SCHEMAS / "vlan.yaml").read_text())

pytestmark = pytest.mark.usefixtures("working")


@pytest.fixture(scope="module")
def working(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[None]:
    """A controller and a webhook at work."""
    with running_controller(control_plane, api), running_webhook(control_plane, api):
        yield


@pytest.fixture(autouse=True)
def clean(api: Api) -> Iterator[None]:
    """No schema is left of a test."""
    yield
    for each in api.list(SCHEMA):
        api.delete(SCHEMA, each["metadata"]["name"])
    until(lambda: api.list(SCHEMA) == [], "the schemas to be gone")


def accepted(found: Object | None) -> tuple[str, str]:
    return condition(found, "Accepted")


def counts(api: Api, name: str) -> Object:
    """A schema, once it counts; the controller leaves it as its author wrote it."""
    found = api.wait_for(SCHEMA, name, lambda found: accepted(found) == ("True", "Valid"))
    assert found is not None
    return found


def bonded(name: str, members: int, parent: str = "id") -> Object:
    """A topology of a bond with a VLAN on it."""
    vfs = [{"name": f"vf{at}", "type": "sriov", "selector": {"cel": "true"}} for at in range(members)]
    links = [{"name": f"{{{{ vf{at}.interfaceName }}}}"} for at in range(members)]
    on = [each["name"] for each in vfs]
    bond = {"name": "bond0", "type": "bond", "dependOn": on, "config": {"mode": "802.3ad", "links": links}}
    vlan = {
        "name": "vlan0",
        "type": "vlan",
        "dependOn": ["bond0"],
        "config": {"master": "{{ bond0.interfaceName }}", parent: 100},
    }
    return manifest(TOPOLOGY, name, spec={"steps": [*vfs, bond, vlan]})


def test_netdra_keeps_no_schema_of_its_own_in_the_cluster(api: Api, workspace: Workspace) -> None:
    name = workspace.name("net")
    workspace.create(bonded(name, 2))
    api.wait_for(TOPOLOGY, name, is_ready)
    assert api.list(SCHEMA) == []


def test_a_vendors_chart_is_installed_upgraded_and_uninstalled(
    api: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    templates = tmp_path / "cni-plugin-bond" / "templates"
    templates.mkdir(parents=True)
    (templates.parent / "Chart.yaml").write_text("{apiVersion: v2, name: cni-plugin-bond, version: 1.0.0}\n")
    shown = yaml.safe_dump(BOND).replace("{{", "{{`{{").replace("}}", "}}`}}").replace("1.0.0", "{{ .Values.version }}")
    (templates / "cnipluginschema.yaml").write_text(shown)
    chart = (str(templates.parent), f"--kubeconfig={control_plane.kubeconfig()}")
    helm("install", "cni-bond", *chart, "--set-string=version=1.0.0")
    assert counts(api, "bond")["spec"] == BOND["spec"] | AS_STORED
    nine = bonded("nine", 9)
    until(lambda: "at most 8 interfaces" in _refused(control_plane, nine), "the vendor's schema to count")
    helm("upgrade", "cni-bond", *chart, "--set-string=version=1.0.1")
    upgraded = api.wait_for(
        SCHEMA, "bond", lambda found: (found or {}).get("status", {}).get("observedGeneration") == 2
    )
    assert upgraded is not None
    assert upgraded["spec"]["version"] == "1.0.1"
    helm("uninstall", "cni-bond", f"--kubeconfig={control_plane.kubeconfig()}")
    api.wait_for(SCHEMA, "bond", is_gone)
    until(lambda: not _refused(control_plane, nine), "netdra's own schema to count")


@pytest.mark.parametrize(
    "verb", [("create",), ("apply",), ("apply", "--server-side"), ("replace", "--force")], ids=" ".join
)
def test_every_verb_of_kubectl_writes_it(verb: tuple[str, ...], api: Api, control_plane: ControlPlane) -> None:
    kubectl, written = control_plane.kubectl, deepcopy(VLAN)
    kubectl(*verb, "-f", "-", text=yaml.safe_dump(written))
    assert counts(api, "vlan")["spec"] == VLAN["spec"] | AS_STORED
    if verb[0] != "create":
        written["spec"]["version"] = "2.0.0"
        kubectl(*verb, "-f", "-", text=yaml.safe_dump(written))
    else:
        kubectl("patch", "cnis", "vlan", "--type=merge", "-p", '{"spec": {"version": "2.0.0"}}')
    kubectl("label", "cnis", "vlan", "team=a")
    assert counts(api, "vlan")["spec"]["version"] == "2.0.0"
    assert "it accepts" not in str(counts(api, "vlan")["status"])
    header, row = kubectl("get", "cnis").splitlines()
    assert header.split() == ["NAME", "TYPE", "EXECUTION", "VERSION", "ACCEPTED", "AGE"]
    assert row.split()[:5] == ["vlan", "vlan", "Auto", "2.0.0", "True"]
    kubectl("delete", "cnis", "vlan")
    assert api.list(SCHEMA) == []


def test_the_cluster_and_validate_give_the_same_answers(
    api: Api, control_plane: ControlPlane, workspace: Workspace, tmp_path: Path
) -> None:
    """The vendor's bond takes eight members and its vlan knows no `vlanId`; netdra's take nine, and both keys."""
    schemas, netdra = tmp_path / "schemas.yaml", Netdra(tmp_path)
    schemas.write_text(yaml.safe_dump_all([BOND, VLAN]))
    kinds = ((2, "id"), (9, "id"), (2, "vlanId"))
    written = [bonded(workspace.name(f"t{at}"), *each) for at, each in enumerate(kinds)]
    control_plane.kubectl("create", "-f", str(schemas))
    for name in ("bond", "vlan"):
        counts(api, name)
    answers = [(netdra.refusal(each, schemas), _refused(control_plane, each)) for each in written]
    assert answers[0] == ("", "")
    for (by_validate, by_cluster), reason in zip(
        answers[1:], ("at most 8 interfaces", 'does not accept parameter "vlanId"'), strict=True
    ):
        assert reason in by_validate
        assert reason in by_cluster
    control_plane.kubectl("delete", "-f", str(schemas))
    until(lambda: not any(_refused(control_plane, each) for each in written), "netdra's own schemas to count")
    assert [netdra.refusal(each) for each in written] == ["", "", ""]


class Netdra:
    """The command line, with files."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "topology.yaml"

    def refusal(self, written: Object, *more: Path) -> str:
        """The error that `netdra validate` reports for an object beside others, or ""."""
        self._file.write_text(yaml.safe_dump(written))
        command = (sys.executable, "-m", "netdra", "validate", *map(str, (self._file, *more)))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        return done.stdout if done.returncode else ""


def _refused(plane: ControlPlane, written: Object) -> str:
    """Why the API server refuses an object, or ""."""
    try:
        plane.kubectl("create", "--dry-run=server", "-f", "-", text=yaml.safe_dump(written))
    except KubectlError as problem:
        return problem.stderr
    return ""


def test_an_upgrade_deletes_only_the_schemas_of_an_earlier_version(
    workspace: Workspace, control_plane: ControlPlane
) -> None:
    api, unknown, copied = workspace.api, workspace.name("unknown"), workspace.name("copied")
    control_plane.processes["netdra-controller"].stop()
    labels = {"vlan": "vlan", unknown: unknown, copied: "ptp", "bridge": ""}
    made = {}
    for name, label in labels.items():
        schema = manifest(SCHEMA, name, spec={"cniType": name})
        schema["metadata"]["labels"] = {LABEL: label} if label else {}
        made[name] = workspace.create(schema)
    start_controller(control_plane, api)
    for name in ("vlan", unknown):
        api.wait_for(SCHEMA, name, is_gone)
    for name in (copied, "bridge"):
        assert counts(api, name)["spec"] == made[name]["spec"]
    control_plane.kubectl("create", "-f", "-", text=yaml.safe_dump(VLAN))
    assert counts(api, "vlan")["spec"] == VLAN["spec"] | AS_STORED
