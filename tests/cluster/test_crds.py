"""The API server accepts netdra's definitions, fills in defaults, and reports errors and their reasons to an author."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from netdra.model import crd, kinds
from testbed.api import Api, ApiError, Object
from testbed.control_plane import ControlPlane
from testbed.objects import manifest
from tests.custom_objects import BAD, CNI_PLUGIN, GOOD, NEUTRON_PORT, POLICY, TOPOLOGY, changed

pytestmark = pytest.mark.usefixtures("custom_kinds")

OURS = "apiVersion: networking.dra.io/"
ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "netdra" / "rules" / "schemas").glob("*.yaml"))
_WRITTEN = (path for path in (ROOT / "examples").rglob("*.yaml") if path.name != "wrong.yaml")
EXAMPLES = sorted(path for path in _WRITTEN if OURS in path.read_text())


@pytest.mark.parametrize("kind", GOOD)
def test_a_second_apply_changes_nothing_and_the_diff_is_empty(kind: str, control_plane: ControlPlane) -> None:
    text = yaml.safe_dump(manifest(kind, "good", spec=GOOD[kind]))

    control_plane.kubectl("apply", "--server-side", "-f", "-", text=text)
    try:
        before = control_plane.kubectl("get", "-f", "-", "-o", "jsonpath={..metadata.resourceVersion}", text=text)
        control_plane.kubectl("apply", "--server-side", "-f", "-", text=text)
        assert control_plane.kubectl("diff", "--server-side", "-f", "-", text=text) == ""
        after = control_plane.kubectl("get", "-f", "-", "-o", "jsonpath={..metadata.resourceVersion}", text=text)
        assert after == before != ""
    finally:
        control_plane.kubectl("delete", "-f", "-", text=text)


def test_the_server_fills_in_the_models_defaults(api: Api) -> None:
    policy = api.create(manifest(POLICY, "defaults", spec={"selector": {"cel": "true"}}), dry_run=True)
    topology = api.create(manifest(TOPOLOGY, "defaults", spec=GOOD[TOPOLOGY]), dry_run=True)
    plugin = api.create(manifest(CNI_PLUGIN, "defaults", spec=GOOD[CNI_PLUGIN]), dry_run=True)

    assert (policy["spec"]["priority"], policy["spec"]["action"]) == (100, "expose")
    assert [step["execution"] for step in topology["spec"]["steps"]] == ["Auto"] * 3
    assert (plugin["spec"]["imagePullPolicy"], plugin["spec"]["maxUnavailable"]) == ("IfNotPresent", "10%")


def with_defaults(schema: dict[str, Any], path: str) -> list[str]:
    """The fields with a default in objects of which no field is required."""
    fields: dict[str, Any] = schema.get("properties", {})
    found = [] if schema.get("required") else [f"{path}.{name}" for name in fields if "default" in fields[name]]
    inner: dict[str, Any] = {word: schema[word] for word in ("items", "additionalProperties") if word in schema}
    inner |= fields
    return [*found, *(each for name, part in inner.items() for each in with_defaults(part, f"{path}.{name}"))]


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.type.__name__)
def test_no_object_that_may_be_empty_has_a_default_of_the_server(kind: Any) -> None:
    (version,) = crd.manifest(kind)["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]
    assert with_defaults(schema.get("spec", {}), "") == []


def test_a_status_is_written_apart_from_the_spec(api: Api) -> None:
    made = api.create(manifest(TOPOLOGY, "with-status", spec=GOOD[TOPOLOGY], status={"observedGeneration": 7}))
    try:
        condition = {
            "type": "Compiled",
            "status": "True",
            "reason": "Sound",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
        status = manifest(TOPOLOGY, "with-status", status={"observedGeneration": 2, "conditions": [condition]})
        applied = api.apply(status, subresource="status")
        assert "status" not in made
        assert applied["status"]["observedGeneration"] == 2
        assert applied["metadata"]["generation"] == made["metadata"]["generation"]
    finally:
        api.delete(TOPOLOGY, "with-status")


@pytest.mark.parametrize(("kind", "path", "value", "told"), BAD)
def test_a_bad_object_is_refused_with_the_place_and_the_rule(
    kind: str, path: str, value: Any, told: str, api: Api
) -> None:
    with pytest.raises(ApiError) as refused:
        api.create(changed(kind, path, value), dry_run=True)

    assert refused.value.code == 422
    assert told in refused.value.message


def test_the_largest_topology_is_within_the_servers_cost_limits(api: Api) -> None:
    roots = [{"name": f"{'r' * 60}{number}", "type": "sriov"} for number in range(16)]
    names = [root["name"] for root in roots]
    derived = [{"name": f"{'d' * 60}{number}", "type": "bond", "dependOn": names} for number in range(48)]

    made = api.create(manifest(TOPOLOGY, "largest", spec={"steps": [*roots, *derived]}), dry_run=True)

    assert len(made["spec"]["steps"]) == 64


PORT_SPEC: Object = {
    "claim": {"name": "mine", "uid": "5f0c"},
    "request": "vf",
    "pool": "worker-1/sriov-eth0",
    "device": "eth0v0",
    "nodeName": "worker-1",
    "topology": "physnet2",
    "step": "vf",
    "physnet": "physnet2",
    "pciAddress": "0000:05:10.1",
    "host": "worker-1",
}


def test_a_port_stays_that_of_its_vf(api: Api) -> None:
    made = api.create(manifest(NEUTRON_PORT, "port", "default", spec=PORT_SPEC))
    try:
        bound = {"portID": "p", "settings": {"mac": "02:00:00:00:00:01", "vlan": 7}}
        written = api.update({**made, "status": bound}, subresource="status")
        assert written["status"]["settings"]["spoofchk"] is True
        assert written["status"]["settings"]["linkState"] == "auto"
        changed_port = {**written, "spec": {**PORT_SPEC, "network": "blue"}}
        with pytest.raises(ApiError, match="a port is of one VF"):
            api.update(changed_port)
        api.update({**written, "metadata": {**written["metadata"], "finalizers": ["networking.dra.io/neutron-port"]}})
        api.patch(NEUTRON_PORT, "port", {"metadata": {"finalizers": []}}, namespace="default")
    finally:
        api.delete(NEUTRON_PORT, "port", "default")


def test_ports_are_listed_by_node(control_plane: ControlPlane, api: Api) -> None:
    api.create(manifest(NEUTRON_PORT, "here", "default", spec=PORT_SPEC))
    api.create(manifest(NEUTRON_PORT, "there", "default", spec={**PORT_SPEC, "nodeName": "worker-2"}))
    try:
        listed = control_plane.kubectl("get", "nport", "--field-selector", "spec.nodeName=worker-2", "-o", "name")
        assert listed.split() == ["neutronport.networking.dra.io/there"]
    finally:
        api.delete(NEUTRON_PORT, "here", "default")
        api.delete(NEUTRON_PORT, "there", "default")


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.plural)
def test_explain_reads_the_models_docstrings(kind: crd.CustomKind, control_plane: ControlPlane) -> None:
    told = control_plane.kubectl("explain", f"{kind.plural}.{kind.group}", "--recursive=false")
    unwritten = (kinds.NODE_NETWORK, kinds.TOPOLOGY_USAGE, kinds.POLICY_ROLLOUT, kinds.CUSTOM_DEVICE_ROLLOUT)
    part = "status" if kind in unwritten else "spec"  # nobody writes what it is to be
    told_of_part = control_plane.kubectl("explain", f"{kind.plural}.{kind.group}.{part}")

    first = (kind.type.__doc__ or "").split("\n")[0].split()
    assert " ".join(first) in " ".join(told.split())
    assert "<no description>" not in told_of_part
    assert ("-required-" in told_of_part) == (part == "spec")


def test_short_names_and_the_category_list_the_objects(control_plane: ControlPlane) -> None:
    text = yaml.safe_dump(manifest(POLICY, "listed", spec={"selector": {"cel": "true"}}))
    control_plane.kubectl("apply", "--server-side", "-f", "-", text=text)
    try:
        header, row = control_plane.kubectl("get", "dxp", "listed").splitlines()
        columns = ["NAME", "ACTION", "PRIORITY", "ACCEPTED", "CONFLICTING", "AGE"]
        assert header.split() == columns
        assert row.split()[:3] == ["listed", "expose", "100"]
        assert "listed" in control_plane.kubectl("get", "netdra")
    finally:
        control_plane.kubectl("delete", "-f", "-", text=text)


@pytest.mark.parametrize("path", [*SHIPPED, *EXAMPLES], ids=lambda path: path.stem)
def test_the_server_takes_every_schema_and_example_that_netdra_ships(path: Path, control_plane: ControlPlane) -> None:
    applied = control_plane.kubectl("apply", "--server-side", "--dry-run=server", "-f", str(path))

    assert "serverside-applied" in applied
