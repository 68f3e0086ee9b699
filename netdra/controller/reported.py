"""What nodes report of one kind of object: an index of what stands in their NodeNetworks.

Kept by `netdra.controller.state`, read for the statuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from netdra.kube.store import Change
from netdra.model.node_network import NodeReport

R = TypeVar("R")


class Reported(Generic[R]):
    """Reports by what they are about, and by node."""

    def __init__(self, read: Callable[[NodeReport], Mapping[str, R]]) -> None:
        """Begin empty.

        Args:
            read: a node's reports, by what they are about.
        """
        self._read = read
        self._reports: dict[str, dict[str, R]] = {}

    def of(self, name: str) -> Iterator[tuple[str, R]]:
        """What nodes report of an object: the node, and what it says."""
        return iter(self._reports.get(name, {}).items())

    def changed(self, change: Change[NodeReport]) -> Iterator[str]:
        """Take a node's change; the names of what is reported otherwise than before."""
        before = self._read(change.old) if change.old is not None else {}
        after = self._read(change.new) if change.new is not None else {}
        for name in before.keys() - after.keys():
            nodes = self._reports[name]
            del nodes[change.key]
            if not nodes:
                del self._reports[name]
        for name, report in after.items():
            self._reports.setdefault(name, {})[change.key] = report
        return (name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
