"""Which nodes a slice, a device or an allocation is for.

Called by the allocator and by `netdra.node.claims`. Follows the node selectors of k8s.io/component-helpers
(scheduling/corev1/nodeaffinity): terms are alternatives, an empty term is never met, fields know `metadata.name` only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from netdra.model.errors import InvalidInputError

HOSTNAME_LABEL = "kubernetes.io/hostname"


class SchedulerNode(msgspec.Struct, frozen=True):
    """A node as the scheduler sees it when it places devices: a name and labels."""

    name: str
    labels: Mapping[str, str] = {}


class Requirement(msgspec.Struct, frozen=True, omit_defaults=True):
    """One condition on a label or a field of a node."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()


class Term(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Conditions that must all hold."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(msgspec.Struct, frozen=True, rename="camel"):
    """Terms of which one must hold."""

    node_selector_terms: tuple[Term, ...] = ()


def named(name: str) -> SchedulerNode:
    """A node of which only the name is known; it has the label that every kubelet sets."""
    return SchedulerNode(name, {HOSTNAME_LABEL: name})


def parse_selector(raw: Any, origin: str) -> NodeSelector:
    """A node selector as it stands in an API object.

    Raises:
        InvalidInputError: it is not valid; the text begins with `origin`.
    """
    try:
        return msgspec.convert(raw, NodeSelector)
    except msgspec.ValidationError as problem:
        raise InvalidInputError(f"{origin}: node selector: {problem}", code="ND1561") from None


def selects(selector: NodeSelector, node: SchedulerNode) -> bool:
    """Whether one of the selector's terms holds for the node."""
    fields = {"metadata.name": node.name}
    return any(
        bool(term.match_expressions or term.match_fields)
        and all(_holds(requirement, node.labels) for requirement in term.match_expressions)
        and all(_holds(requirement, fields) for requirement in term.match_fields)
        for term in selector.node_selector_terms
    )


def serves(node: SchedulerNode, name: str | None, all_nodes: bool, selector: Any, origin: str) -> bool:
    """Whether something that names a node, all nodes or a selector is for this node; naming nothing is for none."""
    if name:
        return node.name == name
    return all_nodes or (selector is not None and selects(parse_selector(selector, origin), node))


def _holds(requirement: Requirement, values: Mapping[str, str]) -> bool:
    value = values.get(requirement.key)
    return _OPERATORS[requirement.operator](value, requirement.values)


def _compare(value: str | None, bounds: tuple[str, ...], sign: int) -> bool:
    try:
        return value is not None and (int(value) - int(bounds[0])) * sign > 0
    except (ValueError, IndexError):
        return False


_OPERATORS: dict[str, Callable[[str | None, tuple[str, ...]], bool]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value is None or value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compare(value, values, 1),
    "Lt": lambda value, values: _compare(value, values, -1),
}
