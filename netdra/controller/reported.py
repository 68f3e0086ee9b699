"""What nodes report of one kind of object: an index of the annotations of all slices.

Kept by `netdra.controller.state`, read for the statuses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from netdra.kube.store import Change
from netdra.model.errors import InvalidInputError
from netdra.model.report import ReportedSlice

log = logging.getLogger(__name__)
R = TypeVar("R")


class Reported(Generic[R]):
    """Reports by what they are about, and by the slice that they stand on."""

    def __init__(self, read: Callable[[ReportedSlice], Mapping[str, R]]) -> None:
        """Begin empty.

        Args:
            read: the reports of a slice; raises InvalidInputError.
        """
        self._read = read
        self._reports: dict[str, dict[str, tuple[str, R]]] = {}

    def of(self, name: str) -> Iterator[tuple[str, R]]:
        """What nodes report of an object: the node, and what one of its slices says."""
        return iter(self._reports.get(name, {}).values())

    def changed(self, change: Change[ReportedSlice]) -> Iterator[str]:
        """Take a slice's change; the names of what is reported otherwise than before."""
        before, after = self._found(change.old), self._found(change.new)
        for name in before.keys() - after.keys():
            found = self._reports[name]
            del found[change.key]
            if not found:
                del self._reports[name]
        for name, said in after.items():
            self._reports.setdefault(name, {})[change.key] = said
        return (name for name in before.keys() | after.keys() if before.get(name) != after.get(name))

    def _found(self, one: ReportedSlice | None) -> dict[str, tuple[str, R]]:
        if one is None:
            return {}
        try:
            return {name: (one.spec.node_name, said) for name, said in self._read(one).items()}
        except InvalidInputError as problem:
            log.warning("%s", problem)
            return {}
