"""The API server takes netdra's definitions, fills in what is absent, and tells an author what is wrong and why."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from netdra.model import crd, kinds
from testbed.api import Api, ApiError, Object
from testbed.control_plane import ControlPlane
from testbed.objects import manifest

pytestmark = pytest.mark.usefixtures("custom_kinds")

GROUP = "networking.dra.io/v1alpha1"
POLICY = f"{GROUP}/DeviceExposurePolicy"
TOPOLOGY = f"{GROUP}/NetworkTopology"
CUSTOM_DEVICE = f"{GROUP}/CustomDevice"
SCHEMA = "cni.networking.k8s.io/v1alpha1/CNIPluginSchema"
CNI_PLUGIN = f"{GROUP}/CNIPlugin"
NEUTRON_PORT = f"{GROUP}/NeutronPort"

OURS = "apiVersion: networking.dra.io/"
ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "netdra" / "topology" / "schemas").glob("*.yaml"))
_WRITTEN = (path for path in (ROOT / "examples").rglob("*.yaml") if path.name != "wrong.yaml")
EXAMPLES = sorted(path for path in _WRITTEN if OURS in path.read_text())

SLOTS = {"value": "64", "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": 4, "step": "1"}}}
GOOD: dict[str, Object] = {
    POLICY: {
        "nodeSelector": {"matchExpressions": [{"key": "net", "operator": "In", "values": ["fast"]}]},
        "selector": {"cel": 'device.attributes["dra.networking"].type == "pf"'},
        "exposure": {
            "deviceNameSuffix": "-macvlan",
            "exclusionGroup": "rx-handler",
            "allowMultipleAllocations": True,
            "capacity": {"macvlans": SLOTS, "example.com/other": {"value": 10}},
            "supportedCNIPlugins": [
                {"name": "macvlan", "consumePerAllocation": {"macvlans": 1}},
                {"name": "ipvlan", "consumePerAllocation": {"macvlans": "2"}},
            ],
            "additionalAttributes": {"rack": 7, "fast": True, "physnet": "a", "zones": ["a", "b"]},
            "taints": {"gone": "NoExecute"},
        },
    },
    TOPOLOGY: {
        "steps": [
            {"name": "vf0", "type": "sriov", "selector": {"cel": "true"}, "config": {"vlan": 0, "trust": "on"}},
            {
                "name": "vf1",
                "type": "sriov",
                "extendedResourceName": "example.com/vf",
                "neutron": {"network": "blue", "fixedIPs": ["10.0.0.1"], "assignAddresses": False},
            },
            {"name": "bond0", "type": "bond", "dependOn": ["vf0", "vf1"], "config": {"links": "{{ vf0.interfaces }}"}},
        ]
    },
    CUSTOM_DEVICE: {
        "provider": "bctl",
        "selector": {"pool.name": "default-net-pool"},
        "device": "enp1s0",
        "addIfNotExist": False,
        "attributes": {"rdma": {"bool": True}},
        "capacity": {"bandwidth": {"value": 4096}},
    },
    SCHEMA: {
        "cniType": "bond",
        "version": "1.0.0",
        "configParameters": {
            "required": [
                {"name": "mode", "type": "string", "enum": ["802.3ad", "active-backup"]},
                {
                    "name": "links",
                    "type": "[]object",
                    "minItems": 2,
                    "items": {"properties": {"name": {"type": "string"}}},
                },
            ],
            "optional": [
                {"name": "miimon", "type": "integer", "minimum": 0, "default": 100},
                {"name": "sysctl", "type": "map[string]string|[]string", "aliases": ["sysctls"]},
            ],
        },
        "input": {"prevResult": {"required": True, "interfaces": {"minItems": 2, "maxItems": 8}}},
        "output": {
            "interfaces": {"appends": 1, "passthrough": True},
            "devices": {"appends": True, "properties": [{"name": "pciAddress", "type": "string"}]},
        },
    },
    CNI_PLUGIN: {"image": "registry.example.com/cni-plugins/bond:v1.0.0", "binaryPath": "/opt/cni/bin/bond"},
}


def changed(kind: str, path: str, value: Any) -> Object:
    """The good object of a kind with another value at a path; None takes the field away."""
    found = manifest(kind, "bad", spec=copy.deepcopy(GOOD[kind]))
    *way, last = path.split(".")
    at = found["spec"]
    for part in way:
        at = at[int(part) if part.isdecimal() else part]
    if value is None:
        del at[last]
    else:
        at[int(last) if last.isdecimal() else last] = value
    return found


@pytest.mark.parametrize("kind", GOOD)
def test_a_second_apply_changes_nothing_and_the_diff_is_empty(kind: str, control_plane: ControlPlane) -> None:
    text = yaml.safe_dump(manifest(kind, "good", spec=GOOD[kind]))

    control_plane.kubectl("apply", "--server-side", "-f", "-", text=text)
    try:
        before = control_plane.kubectl("get", "-f", "-", "-o", "jsonpath={.metadata.resourceVersion}", text=text)
        control_plane.kubectl("apply", "--server-side", "-f", "-", text=text)
        assert control_plane.kubectl("diff", "--server-side", "-f", "-", text=text) == ""
        after = control_plane.kubectl("get", "-f", "-", "-o", "jsonpath={.metadata.resourceVersion}", text=text)
        assert after == before
    finally:
        control_plane.kubectl("delete", "-f", "-", text=text)


def test_the_server_fills_in_the_models_defaults(api: Api) -> None:
    policy = api.create(manifest(POLICY, "defaults", spec={"selector": {"cel": "true"}}), dry_run=True)
    topology = api.create(manifest(TOPOLOGY, "defaults", spec=GOOD[TOPOLOGY]), dry_run=True)
    plain = {"name": "vf", "type": "sriov", "selector": {"cel": "true"}, "neutron": {}}
    with_port = api.create(manifest(TOPOLOGY, "defaults", spec={"steps": [plain]}), dry_run=True)
    plugin = api.create(manifest(CNI_PLUGIN, "defaults", spec=GOOD[CNI_PLUGIN]), dry_run=True)

    assert (policy["spec"]["priority"], policy["spec"]["action"]) == (100, "expose")
    assert [step["execution"] for step in topology["spec"]["steps"]] == ["Auto"] * 3
    assert with_port["spec"]["steps"][0]["neutron"] == {"assignAddresses": True}
    assert (plugin["spec"]["imagePullPolicy"], plugin["spec"]["maxUnavailable"]) == ("IfNotPresent", "10%")


def test_a_status_is_written_apart_from_the_spec(api: Api) -> None:
    made = api.create(manifest(TOPOLOGY, "with-status", spec=GOOD[TOPOLOGY], status={"users": 7}))
    try:
        condition = {
            "type": "Compiled",
            "status": "True",
            "reason": "Sound",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
        status = manifest(TOPOLOGY, "with-status", status={"users": 2, "conditions": [condition]})
        applied = api.apply(status, subresource="status")
        assert "status" not in made
        assert applied["status"]["users"] == 2
        assert applied["metadata"]["generation"] == made["metadata"]["generation"]
    finally:
        api.delete(TOPOLOGY, "with-status")


BAD: list[tuple[str, str, Any, str]] = [
    (POLICY, "priority", 1001, "spec.priority in body should be less than or equal to 1000"),
    (POLICY, "priority", -1, "spec.priority in body should be greater than or equal to 0"),
    (POLICY, "action", "hide", 'supported values: "exclude", "expose"'),
    (POLICY, "action", "exclude", "leave it out, or set action: expose"),
    (POLICY, "selector", {"cel": ""}, "spec.selector.cel"),
    (POLICY, "selector", None, "spec.selector: Required value"),
    (POLICY, "exposure.capacity", None, "needs capacity for them to share"),
    (POLICY, "exposure.capacity", {"9lives": SLOTS}, "names are letters, digits and underscores"),
    (POLICY, "exposure.capacity.macvlans", {"value": "plenty"}, "spec.exposure.capacity.macvlans.value"),
    (POLICY, "exposure.capacity.macvlans.requestPolicy.validValues", ["1"], "give one of the two"),
    (POLICY, "exposure.deviceNameSuffix", "_x", "spec.exposure.deviceNameSuffix"),
    (POLICY, "exposure.taints.gone", "None", 'supported values: "NoExecute", "NoSchedule"'),
    (POLICY, "exposure.supportedCNIPlugins.0.consumePerAllocation", {"macvlan": 1}, "does not have"),
    (POLICY, "exposure.supportedCNIPlugins.1.name", "macvlan", "Duplicate value"),
    (POLICY, "nodeSelector.matchExpressions.0.values", None, "In and NotIn need values"),
    (POLICY, "nodeSelector.matchExpressions.0.operator", "Exists", "Exists and DoesNotExist take none"),
    (TOPOLOGY, "steps", [], "should have at least 1 items"),
    (TOPOLOGY, "steps.1.name", "vf0", "Duplicate value"),
    (TOPOLOGY, "steps.1.name", "VF_1", "spec.steps[1].name"),
    (TOPOLOGY, "steps.2.dependOn", ["bond0"], "a step cannot depend on itself"),
    (TOPOLOGY, "steps.2.dependOn", ["vf0", "vf2"], "dependOn names a step that the topology does not have"),
    (TOPOLOGY, "steps.2.dependOn", ["vf0", "vf0"], "Duplicate value"),
    (TOPOLOGY, "steps.2.selector", {"cel": "true"}, "only a root step has a selector"),
    (TOPOLOGY, "steps.2.extendedResourceName", "example.com/x", "only a root step has an extendedResourceName"),
    (TOPOLOGY, "steps.2.type", "../bond", "spec.steps[2].type"),
    (TOPOLOGY, "steps.2.execution", "Sometimes", 'supported values: "Auto", "Binary"'),
    (TOPOLOGY, "steps", [{"name": "a", "type": "vlan", "dependOn": ["a"]}], "no step is a root step"),
    (TOPOLOGY, "steps.2.neutron", {}, "only a root step of type sriov has a port in Neutron"),
    (TOPOLOGY, "steps.1.type", "host-device", "only a root step of type sriov has a port in Neutron"),
    (TOPOLOGY, "steps.1.dependOn", ["vf0"], "only a root step of type sriov has a port in Neutron"),
    (TOPOLOGY, "steps.1.neutron", {"port": "p", "network": "blue"}, "give port alone"),
    (TOPOLOGY, "steps.1.neutron", {"port": "p", "subnet": "s"}, "give port alone"),
    (TOPOLOGY, "steps.1.neutron", {"port": "p", "securityGroups": []}, "give port alone"),
    (TOPOLOGY, "steps.1.neutron", {"port": "p", "qosPolicy": "q"}, "give port alone"),
    (TOPOLOGY, "steps.1.neutron", {"port": "p", "fixedIPs": ["10.0.0.1"]}, "give port alone"),
    (TOPOLOGY, "steps.1.neutron.fixedIPs", [f"10.0.0.{at}" for at in range(17)], "must have at most 16 items"),
    (CUSTOM_DEVICE, "provider", "dra.networking", "choose a domain of your own"),
    (CUSTOM_DEVICE, "provider", "resource.kubernetes.io", "choose a domain of your own"),
    (CUSTOM_DEVICE, "provider", "Bctl", "spec.provider"),
    (CUSTOM_DEVICE, "attributes.rdma", {"bool": True, "int": 1}, "must have at most 1"),
    (CUSTOM_DEVICE, "attributes.rdma", {}, "should have at least 1"),
    (CUSTOM_DEVICE, "attributes", {"a/b": {"int": 1}}, "names are letters, digits and underscores"),
    (CUSTOM_DEVICE, "attributes", {f"a{number}": {"int": 1} for number in range(32)}, "at most 32"),
    (SCHEMA, "cniType", "../bond", "spec.cniType"),
    (SCHEMA, "cniType", None, "spec.cniType: Required value"),
    (SCHEMA, "configParameters.optional.0.type", "uint8", "spec.configParameters.optional[0].type"),
    (SCHEMA, "configParameters.optional.0.type", "string|", "spec.configParameters.optional[0].type"),
    (SCHEMA, "configParameters.optional.0.name", "mode", "either required or optional"),
    (SCHEMA, "configParameters.optional.0.name", "sysctl", "Duplicate value"),
    (SCHEMA, "input.prevResult.interfaces.maxItems", 1, "minItems is more than maxItems"),
    (CNI_PLUGIN, "binaryPath", "opt/cni/bin/bond", "spec.binaryPath"),
    (CNI_PLUGIN, "binaryPath", "/opt/cni/bin/", "spec.binaryPath"),
    (CNI_PLUGIN, "maxUnavailable", "some", "spec.maxUnavailable"),
    (CNI_PLUGIN, "binaryPath", "/opt/../../etc/bond", "binaryPath has no . and no .. in it"),
    (CNI_PLUGIN, "schemaPath", "/opt/cni/./schema.yaml", "schemaPath has no . and no .. in it"),
    (CNI_PLUGIN, "digest", "sha256:abc", "spec.digest"),
    (CNI_PLUGIN, "image", "registry.example.com/Bond Plugin", "spec.image"),
    (CNI_PLUGIN, "image", "registry.example.com/bond@sha256:abc", "spec.image"),
    (CNI_PLUGIN, "image", "-v", "spec.image"),
]


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
    part = "status" if kind is kinds.NODE_NETWORK else "spec"  # nobody writes what it is to be
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
        columns = ["NAME", "ACTION", "PRIORITY", "NODES", "DEVICES", "ACCEPTED", "DEGRADED", "OVERLAPPING", "AGE"]
        assert header.split() == columns
        assert row.split()[:3] == ["listed", "expose", "100"]
        assert "listed" in control_plane.kubectl("get", "netdra")
    finally:
        control_plane.kubectl("delete", "-f", "-", text=text)


@pytest.mark.parametrize("path", [*SHIPPED, *EXAMPLES], ids=lambda path: path.stem)
def test_the_server_takes_every_schema_and_example_that_netdra_ships(path: Path, control_plane: ControlPlane) -> None:
    applied = control_plane.kubectl("apply", "--server-side", "--dry-run=server", "-f", str(path))

    assert "serverside-applied" in applied
