"""CNIPlugin (networking.dra.io/v1alpha1, cluster-scoped): a CNI plugin that netdra installs on the nodes from an image.

Written by the platform team, carried out by the controller: a DaemonSet that copies the binary, and the
CNIPluginSchema that the image holds beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from netdra.model.meta import MAX_REPORTED, Condition, ObjectMeta

MAX_PATH = 1024
MAX_IMAGE = 1024

FilePath = Annotated[str, msgspec.Meta(max_length=MAX_PATH)]


class CNIPluginSpec(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """Where the plugin comes from, and which nodes get it.

    Attributes:
        image: The image that holds the plugin.
        binary_path: The plugin's binary in the image; on the node it keeps its file name, which is the `type` of steps.
        schema_path: The plugin's CNIPluginSchema in the image, as YAML; none if the plugin ships without one.
        image_pull_policy: When the image is pulled.
        image_pull_secrets: Names of pull secrets in netdra's namespace.
        node_selector: Labels that a node must have to get the plugin; every node gets it if there are none.
        tolerations: Taints that the installing pods tolerate, as in a pod; all, if the field is absent.
        max_unavailable: On how many nodes the plugin is replaced at the same time, as a number or a percentage.
    """

    image: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_IMAGE)]
    binary_path: FilePath
    schema_path: FilePath = ""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: Annotated[tuple[str, ...], msgspec.Meta(max_length=16)] = ()
    node_selector: Mapping[str, str] = {}
    tolerations: tuple[Any, ...] | None = None
    max_unavailable: str | int = "10%"


class CNIPluginFailure(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A node on which the plugin is not as it should be.

    Attributes:
        node: The node.
        message: What is wrong there.
    """

    node: str
    message: str


class CNIPluginStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """On which nodes the plugin stands, and with which schema.

    Attributes:
        observed_generation: The generation of the object that this status is about.
        desired_nodes: How many nodes should have the plugin.
        ready_nodes: How many have it, in the version of `spec.image`.
        schema: The CNIPluginSchema that was found in the image and applied.
        conditions: `Installed`: every node has the plugin. `SchemaApplied`: its schema stands. `Progressing`: nodes
            are being changed over.
        failures: Nodes without it, with the reason; at most 16 are kept.
    """

    observed_generation: int = 0
    desired_nodes: int = 0
    ready_nodes: int = 0
    schema: str = ""
    conditions: tuple[Condition, ...] = ()
    failures: Annotated[tuple[CNIPluginFailure, ...], msgspec.Meta(max_length=MAX_REPORTED)] = ()


class CNIPlugin(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Installs a CNI plugin, and the schema that it ships, on the cluster's nodes.

    Attributes:
        spec: Where the plugin comes from, and which nodes get it.
        status: On which nodes the plugin stands, and with which schema; written by netdra.
    """

    metadata: ObjectMeta
    spec: CNIPluginSpec
    api_version: Literal["networking.dra.io/v1alpha1"]
    kind: Literal["CNIPlugin"]
    status: CNIPluginStatus | None = None

    @property
    def name(self) -> str:
        """The plugin's name among netdra's plugins."""
        return self.metadata.name
