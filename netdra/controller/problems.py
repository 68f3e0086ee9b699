"""What fails on many nodes, each message once. Pure; used by the statuses that add up reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def by_message(problems: Iterable[tuple[str, Iterable[str]]]) -> Mapping[str, frozenset[str]]:
    """The nodes on which each message stands: those of most nodes first, then in order.

    Args:
        problems: a node, and what fails there; a node may come several times.
    """
    nodes: dict[str, set[str]] = {}
    for node, messages in problems:
        for message in messages:
            nodes.setdefault(message, set()).add(node)
    ordered = sorted(nodes.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    return {message: frozenset(where) for message, where in ordered}
