"""Nodes and their reports in the form in which the webhook keeps them: thousands, most parts of which are equal.

Kept by `netdra.admission.nodes`. Decoded, the report of a node with 131 devices takes 10 KiB. Therefore the entries of
its interfaces stay JSON, a quarter of that, and equal entries of several nodes are kept once. So are the labels of
nodes: feature discovery sets a hundred on each.
"""

from __future__ import annotations

from functools import lru_cache
from typing import AnyStr

import msgspec
from msgspec.structs import force_setattr

from netdra.kube.resources import NODE_NETWORKS, Resource
from netdra.model.core import NodeWithoutStatus
from netdra.model.meta import ObjectMeta
from netdra.model.node_network import InterfaceGroup

SHARED = 8192
"""How many values are remembered for later objects that contain them, too."""
DECODED = 256
"""How many entries are kept decoded."""
MOST_BYTES = 4096
"""Longer values are not remembered: a node's driver may write others again and again, up to 1.5 MB each."""

_entry = msgspec.json.Decoder(InterfaceGroup)


def shared(value: AnyStr) -> AnyStr:
    """The first of equal values, so that the others are freed."""
    return _shared(value) if len(value) <= MOST_BYTES else value


@lru_cache(maxsize=SHARED)
def _shared(value: AnyStr) -> AnyStr:
    return value


def decoded(entry: bytes) -> InterfaceGroup:
    """An entry of a report."""
    return _decoded(entry) if len(entry) <= MOST_BYTES else _entry.decode(entry)


@lru_cache(maxsize=DECODED)
def _decoded(entry: bytes) -> InterfaceGroup:
    return _entry.decode(entry)


def _brief(metadata: ObjectMeta) -> ObjectMeta:
    """The fields of the metadata that reviews and reflectors use."""
    labels = {shared(key): shared(value) for key, value in metadata.labels.items()}
    return ObjectMeta(name=metadata.name, resource_version=metadata.resource_version, labels=labels)


class PackedInterfaces(msgspec.Struct, frozen=True):
    """The interfaces of a node, decoded when they are read.

    Attributes:
        packed: an entry each, as JSON; an entry of another form is an error when the object is read.
    """

    packed: tuple[msgspec.Raw, ...] = msgspec.field(default=(), name="interfaces")

    def __post_init__(self) -> None:
        """Copy the entries: msgspec's refer to the whole answer of the API server."""
        packed = tuple(shared(bytes(entry)) for entry in self.packed)
        for entry in packed:
            decoded(entry)
        force_setattr(self, "packed", packed)


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """As much of a NodeNetwork as the webhook keeps."""

    metadata: ObjectMeta
    status: PackedInterfaces | None = None

    def __post_init__(self) -> None:
        """Keep the metadata brief."""
        force_setattr(self, "metadata", _brief(self.metadata))

    @property
    def size(self) -> int:
        """The bytes of these entries."""
        return sum(map(len, self.status.packed)) if self.status is not None else 0

    @property
    def interfaces(self) -> tuple[InterfaceGroup, ...]:
        """The entries of the node's interfaces."""
        return tuple(map(decoded, self.status.packed)) if self.status is not None else ()


class LabelledNode(NodeWithoutStatus, frozen=True):
    """As much of a Node as the webhook keeps: its labels, and the addresses of its pods."""

    def __post_init__(self) -> None:
        """Keep the metadata brief."""
        force_setattr(self, "metadata", _brief(self.metadata))


REPORTS = Resource(NODE_NETWORKS.group_version, NODE_NETWORKS.plural, NodeReport)
LABELLED_NODES = Resource("v1", "nodes", LabelledNode)
