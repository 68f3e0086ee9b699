"""With the controller's stolen token, an attacker can neither make nodes run other programs nor touch vendors' schemas.

The controller may write the CNIPluginSchemas of CNIPlugins, and the DaemonSets that install these. RBAC knows no
labels; what holds it to them are admission policies (`own-schemas.yaml` and `own-daemonsets.yaml` of the chart).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from netdra.controller.plugins.installers import PLUGIN_LABEL, InstallerSettings, Mode, daemon_set, planned_schema
from netdra.model.cni_plugin import CNIPlugin
from netdra.model.topology import BUILTIN_TYPES
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.kubectl import denial, kubectl
from testbed.objects import manifest
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster import identities
from tests.cluster.test_controller import SCHEMA

LABEL = "networking.dra.io/shipped"
OTHER_PLUGIN = "must describe the program of its CNIPlugin and no other plugin"
NOT_ITS_OWN = "must belong to its CNIPlugin alone"
NODE = {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "b"}
BOUNDED = "netdra's controller may write CNIPluginSchemas only whose label networking.dra.io/cni-plugin has the name"


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


def addresses(network: str, **changed: Any) -> Object:
    """The slice of a PodNetwork as the controller makes it, with changes."""
    of = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "PodNetwork", "name": network, "uid": "1"}
    owner = changed.pop("owner", of)
    device = {
        "name": "addresses",
        "allowMultipleAllocations": True,
        "capacity": {"dra.networking/addresses": {"value": "5", "requestPolicy": {"default": "1"}}},
        "taints": [{"key": "dra.networking/addresses", "effect": "NoSchedule"}],
    }
    pool = {"name": f"podnetworks.dra.networking/{network}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "dra.networking", "pool": pool, "allNodes": True, "devices": [device | changed.pop("device", {})]}
    name = changed.pop("name", f"podnetworks.dra.networking-{network}")
    made = manifest("resource.k8s.io/v1/ResourceSlice", name, spec=spec | changed)
    made["metadata"]["ownerReferences"] = [owner]
    return made


def test_it_writes_no_slice_but_those_of_pod_networks(stolen: Path, workspace: Workspace) -> None:
    name = workspace.name("lan")
    dry = ("create", "--dry-run=server", "-f", "-")
    assert denial(stolen, *dry, text=yaml.safe_dump(addresses(name))) == ""
    wrong: dict[str, Object] = {
        "another name": {"name": name},
        "another owner": {"owner": {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "1"}},
        "no taint": {"device": {"taints": []}},
        "an exclusive device": {"device": {"allowMultipleAllocations": False, "capacity": {}}},
        "another device": {"device": {"name": "nic"}},
    }
    for what, changed in wrong.items():
        text = denial(stolen, *dry, text=yaml.safe_dump(addresses(name, **changed)))
        assert "only as it makes them of PodNetworks" in text, what
    for spec in (
        {"driver": "gpu.example.com"},
        {"pool": {"name": "node-1/nic", "generation": 1, "resourceSliceCount": 1}},
    ):
        text = denial(stolen, *dry, text=yaml.safe_dump(addresses(name, **spec)))
        assert "may write only ResourceSlices of PodNetworks" in text
    pool = {"name": "node-1/nic", "generation": 1, "resourceSliceCount": 1}
    of_node = {"driver": "dra.networking", "nodeName": "node-1", "pool": pool, "devices": []}
    workspace.create(manifest("resource.k8s.io/v1/ResourceSlice", name, spec=of_node))
    assert "may write only ResourceSlices of PodNetworks" in denial(stolen, "delete", "resourceslice", name)


def test_it_makes_the_classes_of_pod_networks_as_they_are(stolen: Path, workspace: Workspace) -> None:
    name = workspace.name("lan")
    owner = {
        "apiVersion": "networking.dra.io/v1alpha1",
        "kind": "PodNetwork",
        "name": name,
        "uid": "1",
        "controller": True,
    }
    published = 'device.attributes["dra.networking"].podNetwork'
    cel = f'device.driver == "dra.networking" && has({published}) && {published} == "{name}"'

    def refused(called: str, expression: str, **more: Any) -> str:
        spec = {"selectors": [{"cel": {"expression": expression}}], **more}
        made = manifest("resource.k8s.io/v1/DeviceClass", called, spec=spec)
        made["metadata"]["ownerReferences"] = [owner]
        return denial(stolen, "create", "--dry-run=server", "-f", "-", text=yaml.safe_dump(made))

    assert refused(f"podnetwork.{name}", cel) == ""
    text = "only as it makes them of topologies and PodNetworks"
    assert text in refused(name, cel)
    for wider in (
        f"{cel} || true",
        cel.replace(f'"{name}"', '"other"'),
        f"{cel} ",
        f'{cel[:-1]}" || true || "a" == "a"',
    ):
        assert text in refused(f"podnetwork.{name}", wider), wider
    assert text in refused(f"podnetwork.{name}", 'device.driver == "dra.networking"')
    opaque = {"driver": "dra.networking", "parameters": {"kind": "DeviceParameters"}}
    assert text in refused(f"podnetwork.{name}", cel, config=[{"opaque": opaque}])
    assert text in refused(f"podnetwork.{name}", cel, extendedResourceName="example.com/address")


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
    for label in ("", "vlan", "true", name):
        text = yaml.safe_dump(schema(name, label))
        assert BOUNDED in denial(stolen, "create", "-f", "-", text=text)
    assert workspace.api.list(SCHEMA, fields=f"metadata.name={name}") == []


def test_the_controller_token_cannot_change_delete_or_take_over_a_foreign_schema(
    stolen: Path, workspace: Workspace
) -> None:
    name = workspace.name("vendors")
    made = workspace.create(schema(name, ""))
    assert BOUNDED in replaced(stolen, name, {"spec": {"cniType": "other"}})
    assert BOUNDED in replaced(stolen, name, {"labels": {LABEL: name}})
    assert BOUNDED in denial(stolen, "delete", "cnipluginschemas", name)
    assert workspace.api.get(SCHEMA, name) == made


def of_plugin(plugin: str, name: str = "", **spec: Any) -> Object:
    """A CNIPluginSchema as the controller makes it for a CNIPlugin."""
    made = manifest(SCHEMA, name or plugin, spec={"cniType": plugin, **spec})
    owner = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "CNIPlugin", "name": plugin, "uid": "u"}
    made["metadata"] |= {"labels": {PLUGIN_LABEL: plugin}, "ownerReferences": [{**owner, "controller": True}]}
    return made


def refused(token: Path, made: Object) -> str:
    return denial(token, "create", "--dry-run=server", "-f", "-", text=json.dumps(made))


def test_a_cniplugins_schema_has_its_name(stolen: Path) -> None:
    for label in ("", "other", "ovs-binary"):
        made = of_plugin("ovs")
        made["metadata"]["labels"] = {PLUGIN_LABEL: label}
        assert BOUNDED in refused(stolen, made)


@pytest.mark.parametrize(
    ("name", "schema"), [("ovs", {"cniType": "ovs"}), ("vlan", {"cniType": "vlan", "execution": "Binary"})]
)
def test_it_makes_the_schema_that_the_controller_makes(stolen: Path, name: str, schema: Object) -> None:
    head = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "CNIPlugin", "metadata": {"name": name, "uid": "u"}}
    spec = {"image": "registry.example.com/a:1", "binaryPath": "/a", "schema": schema}
    made = planned_schema(msgspec.convert({**head, "spec": spec}, CNIPlugin), None, None, ()).schema
    assert refused(stolen, msgspec.to_builtins(made)) == ""


def test_a_cniplugins_schema_describes_no_other_plugin(stolen: Path) -> None:
    """Nodes run by default any plugin that a schema describes; of two for one plugin, the first by name counts."""
    for other in ("firewall", "Ovs", "bond"):
        assert OTHER_PLUGIN in refused(stolen, {**of_plugin("ovs"), "spec": {"cniType": other}})
    assert OTHER_PLUGIN in refused(stolen, of_plugin("ovs", "ovs-binary"))


@pytest.mark.parametrize("kind", sorted(BUILTIN_TYPES))
def test_a_cniplugins_schema_does_not_describe_a_step_of_netdra(stolen: Path, kind: str) -> None:
    binary = f"{kind}-binary"
    assert refused(stolen, of_plugin(kind, binary, execution="Binary")) == ""
    assert OTHER_PLUGIN in refused(stolen, of_plugin(kind, binary))
    assert OTHER_PLUGIN in refused(stolen, of_plugin(kind))
    assert OTHER_PLUGIN in refused(stolen, of_plugin(kind, execution="Binary"))


@pytest.mark.parametrize(
    ("field", "value"),
    [("kind", "Node"), ("apiVersion", "example.com/v1"), ("name", "other"), ("controller", False)],
)
def test_a_cniplugins_schema_belongs_to_it(stolen: Path, field: str, value: Any) -> None:
    made = of_plugin("ovs")
    made["metadata"]["ownerReferences"][0][field] = value
    assert NOT_ITS_OWN in refused(stolen, made)


def test_a_cniplugins_schema_has_no_other_owner_and_no_finalizer(stolen: Path) -> None:
    made = of_plugin("ovs")
    made["metadata"]["finalizers"] = ["example.com/stays"]
    assert NOT_ITS_OWN in refused(stolen, made)
    for owners in ([], [*of_plugin("ovs")["metadata"]["ownerReferences"], NODE]):
        made = of_plugin("ovs")
        made["metadata"]["ownerReferences"] = owners
        assert NOT_ITS_OWN in refused(stolen, made)


def test_of_pods_it_reports_ports_of_neutron_alone(stolen: Path, workspace: Workspace) -> None:
    def reported(action: str, kind: str = "Pod") -> str:
        event = {
            **manifest("events.k8s.io/v1/Event", workspace.name("event"), "default"),
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "dra.networking/controller",
            "reportingInstance": "attacker",
            "action": action,
            "reason": "Test",
            "type": "Warning",
            "note": "as a test says",
            "regarding": {"apiVersion": "v1", "kind": kind, "name": "web", "namespace": "default"},
        }
        return denial(stolen, "create", "--dry-run=server", "-f", "-", text=yaml.safe_dump(event))

    assert [reported(action) for action in ("BindNeutronPort", "CompareNeutronPort")] == ["", ""]
    assert "may write events in its own name" in reported("Publish")
    assert "may write events in its own name" in reported("BindNeutronPort", "Secret")
    assert reported("PublishEndpoints", "Service") == ""
    assert "may write events in its own name" in reported("BindNeutronPort", "Service")
    assert "may write events in its own name" in reported("PublishEndpoints")


def installer(image: str, mode: Mode = "install", **more: Any) -> Object:
    """A DaemonSet as the controller makes it."""
    head = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "CNIPlugin"}
    spec = {"image": "registry.example.com/ovs:1", "binaryPath": "/ovs", **more}
    plugin = msgspec.convert({**head, "metadata": {"name": "ovs", "uid": "u"}, "spec": spec}, CNIPlugin)
    return daemon_set(plugin, InstallerSettings(image=image), mode)


def _changed(made: Object, path: str, value: Any) -> Object:
    found: Any = made
    *way, last = path.split(".")
    for part in way:
        found = found[int(part)] if part.isdecimal() else found.setdefault(part, {})
    found[int(last) if last.isdecimal() else last] = value
    return made


POD = "spec.template.spec"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "another"),
        ("metadata.labels", {}),
        (f"{POD}.hostPID", True),
        (f"{POD}.serviceAccountName", "netdra-node"),
        (f"{POD}.automountServiceAccountToken", True),
        (f"{POD}.volumes.0.hostPath", {"path": "/"}),
        (f"{POD}.volumes.1", {"name": "run", "secret": {"secretName": "netdra-webhook"}}),
        (f"{POD}.containers.0.image", "attacker"),
        (f"{POD}.initContainers.0.image", "attacker"),
        (f"{POD}.containers.0.command", ["python3"]),
        (f"{POD}.containers.0.args", ["node"]),
        (f"{POD}.containers.0.env", [{"name": "PYTHONSTARTUP", "value": "/plugin/x"}]),
        (f"{POD}.containers.0.readinessProbe", {"exec": {"command": ["python3", "-c", "1"]}}),
        (f"{POD}.containers.0.lifecycle", {"preStop": {"exec": {"command": ["/plugin/x"]}}}),
        (f"{POD}.containers.0.securityContext", {"privileged": True, "capabilities": {"drop": ["ALL"]}}),
        (f"{POD}.containers.0.securityContext.capabilities", {"drop": ["ALL"], "add": ["SYS_ADMIN"]}),
        (f"{POD}.initContainers.0.securityContext", {}),
    ],
)
def test_it_makes_no_pods_but_those_that_install_a_plugin(stolen: Path, path: str, value: Any) -> None:
    (controller,) = (each for each in identities.template("controller.yaml") if each["kind"] == "Deployment")
    image = controller["spec"]["template"]["spec"]["containers"][0]["image"]
    create = ("create", "--dry-run=server", "--namespace=netdra", "-f", "-")
    assert denial(stolen, *create, text=json.dumps(installer(image))) == ""
    refused = denial(stolen, *create, text=json.dumps(_changed(installer(image), path, value)))
    assert "ValidatingAdmissionPolicy 'netdra-own-daemonsets'" in refused


def test_of_one_that_a_former_version_made_it_changes_nothing_and_may_delete_it(
    stolen: Path, workspace: Workspace
) -> None:
    name = workspace.name("shown")
    workspace.create(schema(name, name))
    assert BOUNDED in replaced(stolen, name, {"labels": {}})
    assert BOUNDED in replaced(stolen, name, {"spec": {"version": "2"}})
    assert BOUNDED in replaced(stolen, name, {"labels": {PLUGIN_LABEL: name}})
    assert denial(stolen, "delete", "cnipluginschemas", name) == ""
