"""As much of Kubernetes' objects as `netdra.doctor.cluster_look` reads, and the reviews that it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from netdra.kube.resources import POLICIES, Resource
from netdra.model.meta import Condition, ObjectMeta


class _Read(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whatever is only read."""

    metadata: ObjectMeta


class DefinitionStatus(msgspec.Struct, frozen=True):
    """Whether the kind is served."""

    conditions: tuple[Condition, ...] | None = ()


class CustomResourceDefinition(_Read, frozen=True):
    """A kind as the API server knows it; its spec is compared as plain data."""

    spec: Any
    status: DefinitionStatus = DefinitionStatus()


class NodeInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What runs on a node."""

    kubelet_version: str = ""
    container_runtime_version: str = ""


class NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A node's status."""

    node_info: NodeInfo = NodeInfo()


class Node(_Read, frozen=True):
    """A node."""

    status: NodeStatus = NodeStatus()


class Pod(_Read, frozen=True):
    """A pod: its labels are enough."""


class Review(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question to the API server, and its answer."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Mapping[str, Any] = {}
    status: Mapping[str, Any] = {}


class Written(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An object as it is sent."""

    api_version: str
    kind: str
    metadata: ObjectMeta
    spec: Any = None


DEFINITIONS = Resource("apiextensions.k8s.io/v1", "customresourcedefinitions", CustomResourceDefinition)
NODES = Resource("v1", "nodes", Node)
PODS = Resource("v1", "pods", Pod, namespaced=True)
WHO_AM_I = Resource("authentication.k8s.io/v1", "selfsubjectreviews", Review)
MAY_I = Resource("authorization.k8s.io/v1", "selfsubjectaccessreviews", Review)
MAY_THEY = Resource("authorization.k8s.io/v1", "subjectaccessreviews", Review)
WRITTEN_POLICIES = Resource(POLICIES.group_version, POLICIES.plural, Written)

WRONG_POLICY = Written(
    api_version=POLICIES.group_version,
    kind="DeviceExposurePolicy",
    metadata=ObjectMeta(generate_name="netdra-doctor-"),
    spec={"selector": {"cel": "device.driver =="}},
)
"""A policy that the API server takes by its schema, and the webhook refuses."""
