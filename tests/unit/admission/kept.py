"""Nodes and their reports as the webhook keeps them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from netdra.admission.reports import LabelledNode, NodeReport
from netdra.model.meta import ObjectMeta
from netdra.model.node_network import InterfaceGroup, NodeInterfaces, ReportedInterfaces


def report(name: str, interfaces: Iterable[InterfaceGroup] | None = None) -> NodeReport:
    """The report of a node, read from its JSON; without interfaces, it has no status."""
    status = ReportedInterfaces(interfaces=tuple(interfaces)) if interfaces is not None else None
    written = msgspec.json.encode(NodeInterfaces(metadata=ObjectMeta(name=name), status=status))
    return msgspec.json.decode(written, type=NodeReport)


def node(name: str, **labels: str) -> LabelledNode:
    """A node with labels."""
    return LabelledNode(metadata=ObjectMeta(name=name, labels=labels))
