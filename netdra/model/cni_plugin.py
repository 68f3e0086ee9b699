"""CNIPlugin (networking.dra.io/v1alpha1, cluster-scoped): a CNI plugin that netdra installs on the nodes from an image.

Written by the platform team, carried out by the controller: a DaemonSet that installs the binary, and the
CNIPluginSchema that the image holds beside it. The object's name is the plugin's, so that each type has one object.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from netdra.model.errors import UNREADABLE, InvalidInputError
from netdra.model.meta import MAX_REPORTED, Condition, ObjectMeta
from netdra.model.schema import CNIPluginSchemaSpec

MAX_PATH = 1024
MAX_IMAGE = 1024
MAX_MESSAGE = 4096
"""Bytes of a container's termination message (kubernetes, pkg/kubelet/container)."""
MAX_UNPACKED = 256 * 1024

FilePath = Annotated[str, msgspec.Meta(max_length=MAX_PATH)]


class CNIPluginSpec(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """The image that contains the plugin, and the nodes on which it is installed.

    Attributes:
        image: The image that contains the plugin, e.g. `registry.example.com/ovs-cni:1.2.0`.
        binary_path: The path of the plugin's program in the image, e.g. `/usr/bin/ovs`. On the nodes, the program gets
            the name of this object, which is the `type` of steps.
        digest: The SHA-256 that the program must have, in hexadecimal, e.g. `9f86d081…` (64 digits). If absent, the
            program is not checked.
        schema_path: The path of the plugin's CNIPluginSchema in the image, as YAML, e.g. `/usr/share/ovs/schema.yaml`.
            If absent, `schema.yaml` beside the program, if the image has it.
        schema: The plugin's CNIPluginSchema, in place of the image's, e.g. `{cniType: ovs, configParameters: {required:
            [{name: bridge, type: string}]}}`. If absent, the image's.
        image_pull_policy: When the nodes pull the image, as in a pod, e.g. `Always` for a tag whose image changes.
        image_pull_secrets: The names of image pull secrets in netdra's namespace, e.g. `[registry]`. If absent, none.
        node_selector: The labels of the nodes on which the plugin is installed, e.g. `{example.com/ovs: "true"}`. If
            absent, all nodes.
        tolerations: The taints that the installing pods tolerate, as in a pod, e.g. `[{key: gpu, operator: Exists}]`.
            If absent, all taints.
        max_unavailable: The number of nodes on which the plugin is replaced at the same time, as a number or a
            percentage, e.g. `1`.
    """

    image: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_IMAGE)]
    binary_path: FilePath
    digest: Annotated[str, msgspec.Meta(max_length=71)] = ""
    schema_path: FilePath = ""
    schema: CNIPluginSchemaSpec | None = None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: Annotated[tuple[str, ...], msgspec.Meta(max_length=16)] = ()
    node_selector: Mapping[str, str] = {}
    tolerations: tuple[Mapping[str, Any], ...] | None = None
    max_unavailable: str | int = "10%"


class CNIPluginFailure(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A node on which the plugin is not as it should be.

    Attributes:
        node: The node, e.g. `node-1`.
        message: The error on that node, e.g. `the program does not answer VERSION`.
        digest: The SHA-256 of the program that the node still has, e.g. `9f86d081…` (64 digits). If absent, the node
            does not have the program, or its digest is not known.
    """

    node: str
    message: str
    digest: str = ""


class CNIPluginVersion(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A binary that nodes have.

    Attributes:
        digest: The SHA-256 of the program, e.g. `9f86d081…` (64 digits).
        nodes: The number of nodes that have it, e.g. `120`.
        cni_versions: The versions of CNI that the program supports, e.g. `[1.0.0, 1.1.0]`. If absent, they are not
            known.
    """

    digest: str
    nodes: int = 0
    cni_versions: tuple[str, ...] = ()


class CNIPluginStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The nodes on which the plugin is installed, and its schema.

    Attributes:
        observed_generation: The generation of the object that this status describes, e.g. `3`.
        desired_nodes: The number of nodes that should have the plugin, e.g. `120`.
        ready_nodes: The number of these nodes that have the plugin of `spec.image`, e.g. `118`.
        versions: The programs that nodes have, e.g. `[{digest: 9f86d081…, nodes: 118}]`: several during an upgrade, or
            if the nodes have several architectures. If absent, no node has one.
        schema: The CNIPluginSchema that was applied for the plugin, e.g. `ovs`. If absent, none was applied.
        conditions: The plugin's state, e.g. `[{type: Installed, status: "True"}]`. `Installed`: every node has the
            plugin. `SchemaApplied`: a schema describes the plugin; without one, no node runs it. `InUse`: topologies
            use the plugin, so it cannot be deleted. If absent, the controller has not installed it yet.
        failures: The nodes on which the installation failed, with the reason, e.g. `[{node: node-1, message: the image
            cannot be pulled}]`; at most 16 are kept. If absent, no node reports a failure.
    """

    observed_generation: int = 0
    desired_nodes: int = 0
    ready_nodes: int = 0
    versions: Annotated[tuple[CNIPluginVersion, ...], msgspec.Meta(max_length=MAX_REPORTED)] = ()
    schema: str = ""
    conditions: tuple[Condition, ...] = ()
    failures: Annotated[tuple[CNIPluginFailure, ...], msgspec.Meta(max_length=MAX_REPORTED)] = ()


class CNIPlugin(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Installs a CNI plugin, and the schema that it ships, on the cluster's nodes.

    Attributes:
        spec: The image that contains the plugin, and the nodes on which it is installed.
        status: The nodes on which the plugin is installed, and its schema; written by netdra.
    """

    metadata: ObjectMeta
    spec: CNIPluginSpec
    api_version: Literal["networking.dra.io/v1alpha1"]
    kind: Literal["CNIPlugin"]
    status: CNIPluginStatus | None = None

    @property
    def name(self) -> str:
        """The plugin's name: the object's, the file's on the node, and the `type` of steps."""
        return self.metadata.name


class DescribedPlugin(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An image's binary, as a node reports it to the controller in the termination message of a container.

    Attributes:
        digest: the binary's SHA-256.
        cni_versions: the versions of CNI that it speaks.
        schema: the contract that comes with it.
    """

    digest: str
    cni_versions: tuple[str, ...] = ()
    schema: CNIPluginSchemaSpec | None = None

    def as_text(self) -> str:
        """One line of at most `MAX_MESSAGE` bytes.

        Raises:
            InvalidInputError: the schema is too long for it.
        """
        text = base64.b64encode(zlib.compress(msgspec.json.encode(self), 9)).decode()
        if len(text) > MAX_MESSAGE:
            raise InvalidInputError(
                f"the schema in the image is too long for a container's message: {len(text)} bytes of {MAX_MESSAGE}",
                hint="give it in the CNIPlugin's spec.schema, or shorten its descriptions",
                code="ND1505",
            )
        return text

    @classmethod
    def of_text(cls, text: str) -> DescribedPlugin | None:
        """The report of a container; None for another text."""
        return _described(text)


@lru_cache(maxsize=16)  # all pods of an image report the same
def _described(text: str) -> DescribedPlugin | None:
    try:
        unpacked = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), MAX_UNPACKED)
        return msgspec.json.decode(unpacked, type=DescribedPlugin)
    except (ValueError, zlib.error, *UNREADABLE):  # what is not ASCII is a ValueError, and no binascii.Error
        return None
