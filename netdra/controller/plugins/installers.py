"""How a CNIPlugin is carried out: the DaemonSet that installs or removes it, its schema, and its status. Pure.

Called by `netdra.controller.plugins.cluster_plugins`. A DaemonSet's pods run netdra's own image with the vendor's as an
image volume, so that a vendor's image needs no shell and only its plugin is run (decision D46).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from netdra.controller.status import Desired, conditions
from netdra.model import names
from netdra.model.cni_plugin import CNIPlugin, CNIPluginFailure, CNIPluginStatus, CNIPluginVersion, DescribedPlugin
from netdra.model.errors import printable
from netdra.model.meta import MAX_REPORTED, ObjectMeta, OwnerReference
from netdra.model.schema import CNIPluginSchema, CNIPluginSchemaSpec
from netdra.model.topology import BUILTIN_TYPES, NetworkTopology, described
from netdra.rules import contract

PLUGIN_LABEL = f"{names.GROUP}/cni-plugin"
TEMPLATE_LABEL = f"{names.GROUP}/template"
"""On pods: the DaemonSet's template that they are of."""
FORMER_NODES = f"{names.GROUP}/former-nodes"
"""On a DaemonSet: the plugin was installed on other nodes than its CNIPlugin selects now."""
Mode = Literal["install", "remove"]

_DESCRIBE, _INSTALL = "describe", "install"
_READY = "/run/netdra/ready"
_MAX_TEXT = 512
_LINUX = {"kubernetes.io/os": "linux"}
_ANY_TAINT = {"operator": "Exists"}


class InstallerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the pods that install plugins.

    Attributes:
        image: netdra's image; "" if plugins are not to be installed.
        cni_folder: the folder of CNI plugins on the nodes.
        namespace: where the pods are.
        pull_secrets: names of the pull secrets of netdra's image there.
    """

    image: str
    cni_folder: str = "/opt/cni/bin"
    namespace: str = "netdra"
    pull_secrets: tuple[str, ...] = ()


class _State(msgspec.Struct, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class _ContainerState(msgspec.Struct, frozen=True, kw_only=True):
    waiting: _State | None = None
    terminated: _State | None = None


class _Container(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    ready: bool = False
    state: _ContainerState = _ContainerState()
    last_state: _ContainerState = _ContainerState()


class _PodCondition(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    status: str
    message: str = ""


class _PodStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    conditions: tuple[_PodCondition, ...] = ()
    init_container_statuses: tuple[_Container, ...] = ()
    container_statuses: tuple[_Container, ...] = ()


class _PodSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    node_name: str = ""


class InstallerPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that installs a plugin on its node, as far as the controller inspects it."""

    metadata: ObjectMeta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def is_ready(self) -> bool:
        """Whether the plugin is installed there, or removed."""
        ready = any(condition.type == "Ready" and condition.status == "True" for condition in self.status.conditions)
        return ready and not self.metadata.deletion_timestamp

    @property
    def described(self) -> DescribedPlugin | None:
        """The image's binary as the pod reports it; None before that."""
        for init_container_status in self.status.init_container_statuses:
            if init_container_status.name == _DESCRIBE and init_container_status.state.terminated is not None:
                return DescribedPlugin.of_text(init_container_status.state.terminated.message)
        return None

    @property
    def problem(self) -> str:
        """Why the pod is not ready, as netdra or the kubelet states."""
        containers = (*self.status.init_container_statuses, *self.status.container_statuses)
        for container in containers:
            waiting, ended = container.state.waiting, container.state.terminated or container.last_state.terminated
            if container.ready or (container.name == _DESCRIBE and self.described is not None):
                continue
            if ended is not None and ended.message and DescribedPlugin.of_text(ended.message) is None:
                return _clipped(ended.message)
            if waiting is not None and waiting.message and waiting.reason != "PodInitializing":
                return _clipped(f"{waiting.reason}: {waiting.message}")
        unplaced = (
            condition
            for condition in self.status.conditions
            if condition.type == "PodScheduled" and condition.status == "False"
        )
        return _clipped(next((condition.message for condition in unplaced), ""))


class _DaemonSetStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    observed_generation: int = 0
    desired_number_scheduled: int = 0


class _TemplateSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    node_selector: Mapping[str, str] = {}
    tolerations: tuple[Mapping[str, Any], ...] = ()


class _Template(msgspec.Struct, frozen=True, kw_only=True):
    spec: _TemplateSpec = _TemplateSpec()


class _DaemonSetSpec(msgspec.Struct, frozen=True, kw_only=True):
    template: _Template = _Template()


class DaemonSet(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin's DaemonSet, as far as the controller inspects it."""

    metadata: ObjectMeta
    spec: _DaemonSetSpec = _DaemonSetSpec()
    status: _DaemonSetStatus = _DaemonSetStatus()


class PluginState(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of a plugin.

    Attributes:
        template: the template that its pods are to be of.
        daemon_set: its DaemonSet, if there is one.
        pods: its pods, of any template.
        users: the topologies that use it.
        former: by node, the binaries that nodes had before.
    """

    template: str
    daemon_set: DaemonSet | None
    pods: Sequence[InstallerPod] = ()
    users: tuple[str, ...] = ()
    former: Mapping[str, DescribedPlugin] = {}

    @property
    def binaries(self) -> Mapping[str, DescribedPlugin]:
        """By node, the binary that the node has.

        An upgrade removes a node's pod before the new version is installed, and the former one stays if it cannot be.
        """
        nodes = {pod.spec.node_name for pod in self.pods}
        binaries = {node: binary for node, binary in self.former.items() if node in nodes or not self.is_complete}
        for pod in self.pods:
            if pod.is_ready and (binary := pod.described) is not None:
                binaries[pod.spec.node_name] = binary
            elif pod.is_ready:  # it has removed the plugin
                binaries.pop(pod.spec.node_name, None)
        return binaries

    @property
    def desired(self) -> int | None:
        """The number of nodes that are to have it; None while that is not known for the present spec."""
        applied = self.daemon_set
        if applied is None or applied.status.observed_generation != applied.metadata.generation:
            return None
        return applied.status.desired_number_scheduled

    @property
    def current(self) -> tuple[InstallerPod, ...]:
        """The pods of the present template, in the order of their nodes."""
        current = (pod for pod in self.pods if pod.metadata.labels.get(TEMPLATE_LABEL) == self.template)
        return tuple(sorted(current, key=lambda pod: pod.spec.node_name))

    @property
    def ready(self) -> tuple[InstallerPod, ...]:
        """The current pods whose nodes have the plugin as it should be."""
        return tuple(pod for pod in self.current if pod.is_ready)

    @property
    def is_complete(self) -> bool:
        """Whether all is as it should be on every node."""
        return self.desired is not None and len(self.ready) >= self.desired

    @property
    def described(self) -> DescribedPlugin | None:
        """The image's binary as the first node reports it."""
        return next((binary for pod in self.current if (binary := pod.described) is not None), None)


def former_binaries(status: CNIPluginStatus | None) -> dict[str, DescribedPlugin]:
    """By node, the binaries that nodes still have by a status: a controller that starts knows no more of them."""
    failures = status.failures if status is not None else ()
    return {failure.node: DescribedPlugin(digest=failure.digest) for failure in failures if failure.digest}


def daemon_set_name(plugin: str) -> str:
    """The name of a plugin's DaemonSet."""
    return f"netdra-cni-{plugin}"


def has_left_nodes(present: DaemonSet | None, plugin: CNIPlugin) -> bool:
    """Whether nodes may have the plugin that its CNIPlugin no longer selects.

    Args:
        present: its DaemonSet, if there is one.
    """
    if present is None:
        return False
    pods = present.spec.template.spec
    selector, tolerations = _nodes_of(plugin)
    selects_others = pods.node_selector != selector or _without_empty(pods.tolerations) != _without_empty(tolerations)
    return FORMER_NODES in present.metadata.annotations or selects_others


def _nodes_of(plugin: CNIPlugin) -> tuple[Mapping[str, str], list[Any]]:
    """The node selector and the tolerations of the pods that install it."""
    spec = plugin.spec
    tolerations = [_ANY_TAINT] if spec.tolerations is None else list(spec.tolerations)
    return {**_LINUX, **spec.node_selector}, tolerations


def _without_empty(tolerations: Iterable[Any]) -> list[dict[str, Any]]:
    """Tolerations without the fields that the API server leaves out."""
    return [
        {field: value for field, value in toleration.items() if value not in ("", None)} for toleration in tolerations
    ]


def daemon_set(plugin: CNIPlugin, settings: InstallerSettings, mode: Mode, *, has_left: bool = False) -> dict[str, Any]:
    """The DaemonSet as it should be, for a server-side apply.

    Args:
        mode: whether the plugin is to be installed or removed.
        has_left: nodes may have the plugin that are no longer selected: it is removed from every node.
    """
    labels = {"app.kubernetes.io/part-of": "netdra", "app.kubernetes.io/component": "cni-plugin"}
    own = {**labels, PLUGIN_LABEL: plugin.name}
    pod = _pod(plugin, settings, mode)
    if has_left and mode == "remove":
        pod |= {"nodeSelector": _LINUX, "tolerations": [_ANY_TAINT]}
    template = hashlib.sha256(msgspec.json.encode(pod, order="sorted")).hexdigest()[:16]
    owner = OwnerReference(
        api_version=plugin.api_version,
        kind=plugin.kind,
        name=plugin.name,
        uid=plugin.metadata.uid,
        controller=True,
    )
    at_once = plugin.spec.max_unavailable if mode == "install" else "100%"
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": daemon_set_name(plugin.name),
            "namespace": settings.namespace,
            "labels": own,
            **({"annotations": {FORMER_NODES: "true"}} if has_left else {}),
            "ownerReferences": [msgspec.to_builtins(owner)],
        },
        "spec": {
            "selector": {"matchLabels": {PLUGIN_LABEL: plugin.name}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": at_once}},
            "template": {"metadata": {"labels": {**own, TEMPLATE_LABEL: template}}, "spec": pod},
        },
    }


def template_of(manifest: Mapping[str, Any]) -> str:
    """The template of a DaemonSet's pods."""
    template: str = manifest["spec"]["template"]["metadata"]["labels"][TEMPLATE_LABEL]
    return template


def _pod(plugin: CNIPlugin, settings: InstallerSettings, mode: Mode) -> dict[str, Any]:
    spec = plugin.spec
    node_selector, tolerations = _nodes_of(plugin)
    volumes: list[dict[str, Any]] = [
        {"name": "cni", "hostPath": {"path": settings.cni_folder, "type": "DirectoryOrCreate"}},
        {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    ]
    pod: dict[str, Any] = {
        # Without an interface of its own: the cluster's network may need the plugin.
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": 5,
        "nodeSelector": node_selector,
        "tolerations": tolerations,
        "securityContext": {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    secrets = dict.fromkeys((*settings.pull_secrets, *spec.image_pull_secrets))
    if secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in secrets]
    folder = f"--cni-folder={settings.cni_folder}"
    if mode == "remove":
        arguments = ["remove", plugin.name, folder, f"--ready={_READY}", "--stay"]
        return {**pod, "containers": [_container(settings, _INSTALL, arguments)], "volumes": volumes}
    source = [plugin.name, f"--source=/plugin{PurePosixPath(spec.binary_path)}"]
    source += [f"--digest={spec.digest}"] if spec.digest else []
    schema = [f"--schema=/plugin{PurePosixPath(spec.schema_path)}"] if spec.schema_path else []
    describe = _container(settings, _DESCRIBE, ["describe", *source, *schema, "--report=/dev/termination-log"])
    install = _container(settings, _INSTALL, ["install", *source, folder, f"--ready={_READY}"])
    image = {"reference": spec.image, "pullPolicy": spec.image_pull_policy}
    return {
        **pod,
        "initContainers": [describe],
        "containers": [install],
        "volumes": [*volumes, {"name": "plugin", "image": image}],
    }


def _container(settings: InstallerSettings, name: str, arguments: Sequence[str]) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": name,
        "image": settings.image,
        "args": ["cni-plugin", *arguments],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "5m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [],
    }
    if name == _INSTALL:
        script = f"import os; os.stat({_READY!r})"
        container["readinessProbe"] = {"exec": {"command": ["python3", "-I", "-S", "-c", script]}, "periodSeconds": 5}
        container["volumeMounts"] += [
            {"name": "cni", "mountPath": settings.cni_folder},
            {"name": "run", "mountPath": str(PurePosixPath(_READY).parent)},
        ]
    if arguments[0] != "remove":
        container["volumeMounts"].append({"name": "plugin", "mountPath": "/plugin", "readOnly": True})
    return container


def users_of(plugin: str, topologies: Iterable[NetworkTopology]) -> tuple[str, ...]:
    """The topologies that run a plugin's program, as a step or as a step's IPAM plugin, in order."""
    return tuple(sorted(topology.name for topology in topologies if _uses(topology, plugin)))


def _uses(topology: NetworkTopology, plugin: str) -> bool:
    for step in topology.spec.steps:
        if step.type == plugin and not step.is_builtin:
            return True
        ipam = step.config.get("ipam")
        if isinstance(ipam, Mapping) and ipam.get("type") == plugin:
            return True
    return False


class PlannedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The write that a plugin's schema needs, and the condition of it.

    Attributes:
        condition: the condition SchemaApplied.
        verb: the write; "" for none.
        schema: the object as it is to be, or as it is if it is to be deleted.
    """

    condition: Desired
    verb: Literal["", "create", "update", "delete"] = ""
    schema: CNIPluginSchema | None = None


def schema_name(plugin: str) -> str:
    """The name of the schema of a plugin's program, made like those of netdra's own schemas."""
    return f"{plugin}-binary" if plugin in BUILTIN_TYPES else plugin


def planned_schema(
    plugin: CNIPlugin, binary: DescribedPlugin | None, present: CNIPluginSchema | None, schemas: Iterable[str]
) -> PlannedSchema:
    """The write that a plugin's schema needs.

    Args:
        binary: the image's binary, if a node has reported it.
        present: the object of the schema's name, if there is one.
        schemas: the plugins that other schemas describe.
    """
    name = schema_name(plugin.name)
    is_own = present is not None and present.metadata.labels.get(PLUGIN_LABEL) == plugin.name
    spec = plugin.spec.schema or (binary.schema if binary is not None else None)
    if spec is not None and present is not None and present.is_shipped:
        message = f'deleting CNIPluginSchema "{name}" of an older netdra first'
        return PlannedSchema(condition=Desired("SchemaApplied", False, "Pending", message))
    if spec is not None and present is not None and not is_own:
        message = f'CNIPluginSchema "{name}" is managed by a user and replaces the plugin\'s own schema'
        return PlannedSchema(condition=Desired("SchemaApplied", True, "Own", message))
    if spec is None:
        return _without_schema(plugin, binary, present if is_own else None, schemas)
    wanted = _schema(plugin, name, spec)
    wrong = _wrong(plugin, wanted)
    if wrong:
        return PlannedSchema(condition=Desired("SchemaApplied", False, "Contradictory", wrong))
    condition = Desired("SchemaApplied", True, "Applied", f'CNIPluginSchema "{name}" describes it')
    if present is None:
        return PlannedSchema(condition=condition, verb="create", schema=wanted)
    labels = {**present.metadata.labels, **wanted.metadata.labels}
    metadata = replace(present.metadata, labels=labels, owner_references=wanted.metadata.owner_references)
    changed = replace(present, spec=spec, metadata=metadata)
    if changed == present:
        return PlannedSchema(condition=condition)
    return PlannedSchema(condition=condition, verb="update", schema=changed)


def _without_schema(
    plugin: CNIPlugin, binary: DescribedPlugin | None, own: CNIPluginSchema | None, schemas: Iterable[str]
) -> PlannedSchema:
    expected = described(plugin.name, is_builtin=False)
    if binary is None:
        condition = Desired("SchemaApplied", False, "Pending", "no node has reported the content of the image yet")
        if own is not None:
            message = f'CNIPluginSchema "{own.metadata.name}" describes it'
            condition = Desired("SchemaApplied", True, "Applied", message)
        return PlannedSchema(condition=condition)
    if expected in schemas:
        message = f"the cluster has a schema for {expected}; the image does not contain one"
        condition = Desired("SchemaApplied", True, "Present", message)
    else:
        message = (
            f"neither the image nor the cluster contains a schema for {expected}, and nodes do not run "
            "plugins without a schema; add schema.yaml beside the binary, set spec.schema, or add the "
            "plugin to node.allowPlugins (--allow-plugin)"
        )
        condition = Desired("SchemaApplied", False, "NoSchema", message)
    return PlannedSchema(condition=condition, verb="delete" if own is not None else "", schema=own)


def _schema(plugin: CNIPlugin, name: str, spec: CNIPluginSchemaSpec) -> CNIPluginSchema:
    owner = OwnerReference(
        api_version=plugin.api_version, kind=plugin.kind, name=plugin.name, uid=plugin.metadata.uid, controller=True
    )
    return CNIPluginSchema(
        metadata=ObjectMeta(name=name, labels={PLUGIN_LABEL: plugin.name}, owner_references=(owner,)),
        spec=spec,
        api_version="cni.networking.k8s.io/v1alpha1",
        kind="CNIPluginSchema",
    )


def _wrong(plugin: CNIPlugin, schema: CNIPluginSchema) -> str:
    expected = described(plugin.name, is_builtin=False)
    if schema.spec.plugin != expected:
        return (
            f"its schema describes {schema.spec.plugin}, but the plugin is {expected}; set cniType to "
            "the object's name, and execution: Binary if netdra has a built-in type of this name"
        )
    _, findings = contract.examine(schema)
    return "; ".join(str(finding) for finding in findings)


def status(plugin: CNIPlugin, seen: PluginState | None, schema: PlannedSchema, now: datetime) -> CNIPluginStatus:
    """A plugin's status.

    Args:
        seen: its current state; None if the controller is not to install plugins.
        schema: the write and the condition of its schema.
        now: the time, with its zone.
    """
    before = plugin.status or CNIPluginStatus()
    generation = plugin.metadata.generation
    if seen is None:
        message = "the controller was started without --image (the image of netdra); it cannot install plugins"
        only = Desired("Installed", False, "NotConfigured", message)
        return CNIPluginStatus(
            observed_generation=generation, conditions=conditions((only,), before.conditions, generation, now)
        )
    users = ", ".join(f'"{name}"' for name in seen.users[:MAX_REPORTED])
    in_use = Desired("InUse", False, "Unused")
    if users:
        in_use = Desired("InUse", True, "Topologies", f"used by NetworkTopology {users}")
    if users and plugin.metadata.deletion_timestamp:
        in_use = Desired(
            "InUse", True, "DeletionWaits", f"deletion waits until NetworkTopology {users} no longer uses it"
        )
    present = seen.binaries
    failures = tuple(
        CNIPluginFailure(
            node=pod.spec.node_name,
            message=pod.problem,
            digest=present[pod.spec.node_name].digest if pod.spec.node_name in present else "",
        )
        for pod in seen.current
        if not pod.is_ready and pod.problem and pod.spec.node_name
    )
    counts = Counter(binary.digest for binary in present.values())
    said = {version.digest: version.cni_versions for version in before.versions}
    cni_versions = said | {binary.digest: binary.cni_versions for binary in present.values() if binary.cni_versions}
    versions = [
        CNIPluginVersion(digest=digest, nodes=counts[digest], cni_versions=cni_versions.get(digest, ()))
        for digest in sorted(counts)
    ]
    desired = (_installed(plugin, seen, failures), schema.condition, in_use)
    return CNIPluginStatus(
        observed_generation=generation,
        desired_nodes=seen.desired if seen.desired is not None else before.desired_nodes,
        ready_nodes=len(seen.ready),
        versions=tuple(versions[:MAX_REPORTED]),
        schema=schema_name(plugin.name) if schema.condition.reason == "Applied" else "",
        conditions=conditions(desired, before.conditions, generation, now),
        failures=failures[:MAX_REPORTED],
    )


def _installed(plugin: CNIPlugin, seen: PluginState, failures: Sequence[CNIPluginFailure]) -> Desired:
    removing = bool(plugin.metadata.deletion_timestamp) and not seen.users
    named = ", ".join(failure.node for failure in failures[:MAX_REPORTED])
    if failures:
        first = failures[0]
        message = f"on {len(failures)} nodes ({named}); {first.node}: {first.message}"
        return Desired("Installed", False, "Failing", message)
    if seen.desired is None:
        return Desired("Installed", False, "Pending", "the DaemonSet is being created")
    if removing:
        missing = len(seen.ready) - seen.desired
        return Desired("Installed", False, "Removing", f"it is being removed; {-missing} nodes remain")
    if seen.desired == 0:
        return Desired("Installed", False, "NoNodes", "spec.nodeSelector does not match any node")
    if not seen.is_complete:
        return Desired("Installed", False, "Installing", f"installed on {len(seen.ready)} of {seen.desired} nodes")
    return Desired("Installed", True, "Installed", f"installed on {seen.desired} nodes")


def _clipped(text: str) -> str:
    """A program's text as one printable line; its lines, such as a cause and a hint, are separated by semicolons."""
    lines = (printable(" ".join(line.split())).rstrip(";") for line in text.splitlines())
    text = "; ".join(filter(None, lines))
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
