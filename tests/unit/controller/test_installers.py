"""The effects of a CNIPlugin: its DaemonSet, its schema, its status, and its users."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from netdra.controller.plugins.installers import (
    PLUGIN_LABEL,
    TEMPLATE_LABEL,
    DaemonSet,
    InstallerPod,
    InstallerSettings,
    Mode,
    PlannedSchema,
    PluginState,
    daemon_set,
    former_binaries,
    has_left_nodes,
    planned_schema,
    status,
    template_of,
    users_of,
)
from netdra.controller.status import Desired
from netdra.model.cni_plugin import CNIPlugin, CNIPluginStatus, DescribedPlugin
from netdra.model.names import SHIPPED_LABEL
from netdra.model.schema import CNIPluginSchema, CNIPluginSchemaSpec
from netdra.model.topology import NetworkTopology

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = InstallerSettings(image="registry.example.com/netdra:1")
DESCRIBED = DescribedPlugin(
    digest="a" * 64, cni_versions=("1.0.0", "1.1.0"), schema=CNIPluginSchemaSpec(cni_type="ovs")
)
MODES: tuple[Mode, ...] = ("install", "remove")
QUIET = PlannedSchema(condition=Desired("SchemaApplied", True, "Present"))


def plugin(name: str = "ovs", *, deleted: bool = False, **spec: Any) -> CNIPlugin:
    metadata = {"name": name, "uid": "u", "generation": 3}
    metadata |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}
    wanted = {"image": "registry.example.com/ovs:1", "binaryPath": "/opt/cni/bin/ovs-amd64", **spec}
    head = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "CNIPlugin"}
    return msgspec.convert({**head, "metadata": metadata, "spec": wanted}, CNIPlugin)


def pod(node: str, template: str = "t", *, ready: bool = True, **containers: Any) -> InstallerPod:
    described = {"terminated": {"message": DESCRIBED.as_text()}}
    states = {
        "initContainerStatuses": [{"name": "describe", "ready": True, "state": described}],
        "containerStatuses": [{"name": "install", "ready": ready}],
        "conditions": [{"type": "Ready", "status": str(ready)}],
        **containers,
    }
    metadata = {"name": f"pod-{node}", "labels": {PLUGIN_LABEL: "ovs", TEMPLATE_LABEL: template}}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": node}, "status": states}, InstallerPod)


def seen(*pods: InstallerPod, desired: int = 2, observed: int = 1, users: tuple[str, ...] = ()) -> PluginState:
    found = {
        "metadata": {"generation": 1},
        "status": {"observedGeneration": observed, "desiredNumberScheduled": desired},
    }
    return PluginState(template="t", daemon_set=msgspec.convert(found, DaemonSet), pods=pods, users=users)


def said(found: CNIPluginStatus, kind: str = "Installed") -> tuple[str, str, str]:
    (one,) = (each for each in found.conditions if each.type == kind)
    return one.status, one.reason, one.message


def test_its_pods_run_netdras_image_with_no_rights_and_the_vendors_as_a_volume() -> None:
    made = daemon_set(plugin(digest="b" * 64), SETTINGS, "install")
    template = made["spec"]["template"]["spec"]
    containers = [*template["initContainers"], *template["containers"]]
    assert {each["image"] for each in containers} == {SETTINGS.image}
    for each in containers:
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert each["securityContext"]["readOnlyRootFilesystem"]
        assert not each["securityContext"]["allowPrivilegeEscalation"]
        assert each["args"][:3] == ["cni-plugin", each["name"], "ovs"]
        assert "--source=/plugin/opt/cni/bin/ovs-amd64" in each["args"]
        assert f"--digest={'b' * 64}" in each["args"]
    assert template["automountServiceAccountToken"] is False
    images = [each["image"]["reference"] for each in template["volumes"] if "image" in each]
    assert images == ["registry.example.com/ovs:1"]
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("CNIPlugin", "ovs", "u")


def test_to_remove_it_the_vendors_image_is_not_needed_any_more() -> None:
    made = daemon_set(plugin(), SETTINGS, "remove")
    template = made["spec"]["template"]["spec"]
    assert "ovs:1" not in str(template)
    assert template["containers"][0]["args"][:3] == ["cni-plugin", "remove", "ovs"]
    assert made["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == "100%"


def test_its_pods_can_pull_netdras_image_as_netdras_own_pods_do() -> None:
    settings = msgspec.structs.replace(SETTINGS, pull_secrets=("mirror", "both"))
    for mode in MODES:
        made = daemon_set(plugin(imagePullSecrets=["both", "vendor"]), settings, mode)
        names = [each["name"] for each in made["spec"]["template"]["spec"]["imagePullSecrets"]]
        assert names == ["mirror", "both", "vendor"]
    assert "imagePullSecrets" not in daemon_set(plugin(), SETTINGS, "install")["spec"]["template"]["spec"]


def written(manifest: dict[str, Any]) -> DaemonSet:
    """A DaemonSet as the API server returns it."""
    return msgspec.convert({**manifest, "metadata": {**manifest["metadata"], "uid": "d", "generation": 1}}, DaemonSet)


@pytest.mark.parametrize(
    "before",
    [{"nodeSelector": {"example.com/ovs": "true"}}, {"tolerations": [{"key": "gpu", "operator": "Exists"}]}],
)
def test_once_other_nodes_were_selected_it_is_removed_from_every_node(before: dict[str, Any]) -> None:
    changed = plugin(nodeSelector={"example.com/ovs": "2"}, tolerations=[])
    first = written(daemon_set(plugin(**before), SETTINGS, "install"))
    assert not has_left_nodes(first, plugin(**before))
    assert has_left_nodes(first, changed)
    second = written(daemon_set(changed, SETTINGS, "install", has_left=True))
    assert has_left_nodes(second, changed)
    made = daemon_set(changed, SETTINGS, "install", has_left=True)["spec"]["template"]["spec"]
    assert made["nodeSelector"] == {"kubernetes.io/os": "linux", "example.com/ovs": "2"}
    removing = daemon_set(changed, SETTINGS, "remove", has_left=True)
    assert removing["spec"]["template"]["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert removing["spec"]["template"]["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert has_left_nodes(written(removing), changed)


def test_an_empty_field_that_the_api_server_leaves_out_selects_no_other_nodes() -> None:
    made = daemon_set(plugin(tolerations=[{"key": "gpu"}]), SETTINGS, "install")
    assert not has_left_nodes(written(made), plugin(tolerations=[{"key": "gpu", "value": "", "effect": None}]))


def test_it_is_removed_from_the_selected_nodes_alone_if_no_others_were_selected() -> None:
    made = daemon_set(plugin(nodeSelector={"a": "b"}), SETTINGS, "remove")["spec"]["template"]["spec"]
    assert made["nodeSelector"] == {"kubernetes.io/os": "linux", "a": "b"}
    assert not has_left_nodes(None, plugin())


def test_a_template_is_the_same_exactly_if_its_pods_are() -> None:
    first = template_of(daemon_set(plugin(), SETTINGS, "install"))
    assert template_of(daemon_set(plugin(maxUnavailable=3), SETTINGS, "install")) == first
    others = [
        daemon_set(plugin(image="registry.example.com/ovs:2"), SETTINGS, "install"),
        daemon_set(plugin(nodeSelector={"a": "b"}), SETTINGS, "install"),
        daemon_set(plugin(), msgspec.structs.replace(SETTINGS, image="other"), "install"),
        daemon_set(plugin(), SETTINGS, "remove"),
    ]
    assert len({first, *map(template_of, others)}) == 5


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (seen(pod("a"), pod("b")), ("True", "Installed", "installed on 2 nodes")),
        (seen(pod("a"), pod("b", "old")), ("False", "Installing", "installed on 1 of 2 nodes")),
        (seen(observed=0), ("False", "Pending", "the DaemonSet is being created")),
        (seen(desired=0), ("False", "NoNodes", "spec.nodeSelector does not match any node")),
    ],
)
def test_it_is_installed_when_every_node_has_the_present_one(
    found: PluginState, expected: tuple[str, str, str]
) -> None:
    assert said(status(plugin(), found, QUIET, NOW)) == expected


def test_nodes_on_which_it_fails_are_named_with_the_reason() -> None:
    crashed: dict[str, Any] = {
        "name": "install",
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
        "lastState": {"terminated": {"message": "Error: /opt/cni/bin/ovs is not netdra's\n  remove it\n"}},
    }
    unpulled: dict[str, Any] = {
        "initContainerStatuses": [
            {"name": "describe", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}
        ],
        "containerStatuses": [{"name": "install", "state": {"waiting": {"reason": "PodInitializing"}}}],
    }
    found = status(
        plugin(),
        seen(pod("b", ready=False, containerStatuses=[crashed]), pod("a", ready=False, **unpulled)),
        QUIET,
        NOW,
    )
    assert [(each.node, each.message) for each in found.failures] == [
        ("a", "ImagePullBackOff: not found"),
        ("b", "Error: /opt/cni/bin/ovs is not netdra's; remove it"),
    ]
    assert said(found) == ("False", "Failing", "on 2 nodes (a, b); a: ImagePullBackOff: not found")


def test_the_same_again_is_the_same_status() -> None:
    found = seen(pod("a"), pod("b"), users=("net",))
    first = status(plugin(), found, QUIET, NOW)
    again = msgspec.structs.replace(plugin(), status=first)
    assert status(again, found, QUIET, datetime(2027, 1, 1, tzinfo=UTC)) == first
    (version,) = first.versions
    assert (version.digest, version.nodes, version.cni_versions) == ("a" * 64, 2, ("1.0.0", "1.1.0"))


def of_image(digest: str) -> dict[str, Any]:
    """The report of a pod on the binary in its image."""
    message = DescribedPlugin(digest=digest * 64, cni_versions=("1.0.0",)).as_text()
    return {
        "initContainerStatuses": [{"name": "describe", "ready": True, "state": {"terminated": {"message": message}}}]
    }


def test_an_upgrade_forgets_no_binary_that_a_node_still_has() -> None:
    failing: dict[str, Any] = {
        "initContainerStatuses": [{"name": "describe", "state": {"terminated": {"message": "netdra: no answer"}}}]
    }
    began = seen(pod("a", "old", **of_image("b")), pod("b", "old", **of_image("b")))
    # Node b has the former binary, whether there is no pod yet, a pod that begins, or a pod that cannot install it.
    for others in ((), (pod("b", ready=False, initContainerStatuses=[]),), (pod("b", ready=False, **failing),)):
        amid = msgspec.structs.replace(seen(pod("a"), *others), former=began.binaries)
        found = status(plugin(), amid, QUIET, NOW)
        assert [(each.digest[0], each.nodes) for each in found.versions] == [("a", 1), ("b", 1)]
    assert [(each.node, each.digest) for each in found.failures] == [("b", "b" * 64)]
    # Another controller that goes on knows it from the status.
    again = msgspec.structs.replace(amid, former=former_binaries(found))
    assert status(plugin(), again, QUIET, NOW).versions[1].nodes == 1
    done = msgspec.structs.replace(seen(pod("a"), pod("b")), former=amid.binaries)
    assert [(each.digest[0], each.nodes) for each in status(plugin(), done, QUIET, NOW).versions] == [("a", 2)]


def test_a_node_that_is_gone_or_has_it_removed_has_no_binary() -> None:
    former = {"a": DESCRIBED, "gone": DESCRIBED}
    complete = msgspec.structs.replace(seen(pod("a"), desired=1), former=former)
    assert list(complete.binaries) == ["a"]
    removing = msgspec.structs.replace(seen(pod("a", initContainerStatuses=[]), desired=2), former=former)
    assert list(removing.binaries) == ["gone"]


def test_a_waiting_deletion_names_its_users_and_a_running_deletion_its_remaining_nodes() -> None:
    waits = status(plugin(deleted=True), seen(pod("a"), pod("b"), users=("x", "y")), QUIET, NOW)
    assert said(waits, "InUse") == (
        "True",
        "DeletionWaits",
        'deletion waits until NetworkTopology "x", "y" no longer uses it',
    )
    assert said(waits)[1] == "Installed"
    goes = status(plugin(deleted=True), seen(pod("a")), QUIET, NOW)
    assert said(goes) == ("False", "Removing", "it is being removed; 1 nodes remain")


def test_without_an_image_the_status_names_the_missing_option() -> None:
    assert "started without --image" in said(status(plugin(), None, QUIET, NOW))[2]


def test_a_topology_uses_it_as_a_program_of_a_step_or_for_addresses() -> None:
    def topology(name: str, *steps: dict[str, Any]) -> NetworkTopology:
        head = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "NetworkTopology", "metadata": {"name": name}}
        return msgspec.convert({**head, "spec": {"steps": [{"name": "s", **each} for each in steps]}}, NetworkTopology)

    topologies = [
        topology("step", {"type": "ovs"}),
        topology("addresses", {"type": "macvlan", "config": {"ipam": {"type": "ovs"}}}),
        topology("other", {"type": "macvlan", "config": {"ipam": {"type": "static"}}}),
        topology("built-in", {"type": "vlan"}),
        topology("program", {"type": "vlan", "execution": "Binary"}),
    ]
    assert users_of("ovs", topologies) == ("addresses", "step")
    assert users_of("vlan", topologies) == ("program",)


def schema(name: str = "ovs") -> CNIPluginSchema:
    head = {"apiVersion": "cni.networking.k8s.io/v1alpha1", "kind": "CNIPluginSchema", "metadata": {"name": name}}
    return msgspec.convert({**head, "spec": {"cniType": name, "version": "0"}}, CNIPluginSchema)


def labelled(key: str, value: str) -> CNIPluginSchema:
    found = schema()
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, labels={key: value}))


def test_the_images_schema_is_made_put_right_and_not_written_twice() -> None:
    made = planned_schema(plugin(), DESCRIBED, None, ())
    assert made.verb == "create"
    assert made.schema is not None
    assert made.schema.metadata.labels == {PLUGIN_LABEL: "ovs"}
    assert planned_schema(plugin(), DESCRIBED, made.schema, ()).verb == ""
    changed = planned_schema(plugin(), DESCRIBED, labelled(PLUGIN_LABEL, "ovs"), ())
    assert changed.verb == "update"
    assert changed.schema is not None
    assert changed.schema.metadata.labels == {PLUGIN_LABEL: "ovs"}
    assert changed.schema.spec == DESCRIBED.schema


def test_the_images_schema_waits_until_one_of_a_former_version_is_gone() -> None:
    planned = planned_schema(plugin(), DESCRIBED, labelled(SHIPPED_LABEL, "ovs"), ())
    assert (planned.verb, planned.condition.reason) == ("", "Pending")


def test_an_inline_schema_counts_before_the_images() -> None:
    made = planned_schema(plugin(schema={"cniType": "ovs", "version": "mine"}), DESCRIBED, None, ())
    assert made.schema is not None
    assert made.schema.spec.version == "mine"


@pytest.mark.parametrize(
    ("spec", "told", "found", "known", "reason"),
    [
        ({}, DESCRIBED, schema(), (), "Own"),
        ({}, None, None, (), "Pending"),
        ({}, DescribedPlugin(digest="a"), None, ("ovs",), "Present"),
        ({}, DescribedPlugin(digest="a"), None, (), "NoSchema"),
        ({"schema": {"cniType": "other"}}, None, None, (), "Contradictory"),
    ],
)
def test_the_schema_condition_reports_the_reason_when_no_write_is_planned(
    spec: dict[str, Any],
    told: DescribedPlugin | None,
    found: CNIPluginSchema | None,
    known: tuple[str, ...],
    reason: str,
) -> None:
    planned = planned_schema(plugin(**spec), told, found, known)
    assert (planned.verb, planned.condition.reason) == ("", reason)


def test_a_schema_that_the_image_no_longer_has_goes() -> None:
    planned = planned_schema(plugin(), DescribedPlugin(digest="a"), labelled(PLUGIN_LABEL, "ovs"), ())
    assert (planned.verb, planned.condition.reason) == ("delete", "NoSchema")


def test_the_schema_of_a_program_of_a_built_in_type_has_the_name_of_netdras_own() -> None:
    told = DescribedPlugin(digest="a", schema=CNIPluginSchemaSpec(cni_type="vlan", execution="Binary"))
    made = planned_schema(plugin("vlan"), told, None, ())
    assert made.schema is not None
    assert made.schema.metadata.name == "vlan-binary"
