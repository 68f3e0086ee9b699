"""Plugins that do not answer are left alone for a while: their pods are refused at once instead of after a timeout.

A runtime calls hooks for one sandbox after the other, so a hook that waits in vain holds up every pod of the node.
Called by `netdra.node.sandboxes.hooks` before a sandbox is attached, and after it with the outcome. A plugin type has
one circuit, which a timeout opens for 5 s, then for twice as long each time up to 5 minutes. When that is over one
sandbox is let through to try.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from netdra.chain.report import AttachError
from netdra.cni.errors import PluginError
from netdra.model.errors import NetdraError, TemporaryError
from netdra.model.plan import Plan
from netdra.node.metrics import CIRCUITS_OPEN, step_type

FIRST_SECONDS = 5.0
MOST_SECONDS = 300.0


class NotAnsweringError(TemporaryError):
    """A plugin that a sandbox needs did not answer lately, so the sandbox was not begun."""


@dataclass
class _Circuit:
    """A plugin that timed out: how long it is left alone, until when, and whether a sandbox is trying it just now."""

    seconds: float
    until: float
    trying: bool = False


@dataclass
class Circuits:
    """The plugins that timed out. One event loop's.

    Attributes:
        opened: called with a plugin that is left alone from now on, and for how many seconds.
        clock: seconds that never go back.
    """

    opened: Callable[[str, float], None] = lambda _plugin, _seconds: None
    clock: Callable[[], float] = time.monotonic
    _circuits: dict[str, _Circuit] = field(default_factory=dict)

    @contextmanager
    def trying(self, plugins: Collection[str]) -> Iterator[None]:
        """Let a sandbox try its plugins in the body, which raises an error that names those that did not answer.

        Raises:
            NotAnsweringError: one of them is left alone, or another sandbox tries it just now. Errors of the body come
                through.
        """
        self._admit(plugins)
        tried = [self._circuits[plugin] for plugin in plugins if plugin in self._circuits]
        for circuit in tried:
            circuit.trying = True
        try:
            yield
        except NetdraError as problem:
            self.open(hung_of(problem))
            raise
        else:
            self._close(plugins)
        finally:
            for circuit in tried:
                circuit.trying = False

    def _admit(self, plugins: Collection[str]) -> None:
        now = self.clock()
        for plugin in sorted(plugins):
            circuit = self._circuits.get(plugin)
            if circuit is not None and (circuit.trying or now < circuit.until):
                raise NotAnsweringError(
                    f'CNI plugin "{plugin}" did not answer in time, and is left alone for {circuit.seconds:.0f} s',
                    hint="nothing was begun; see what the plugin waits for",
                )

    def _close(self, plugins: Collection[str]) -> None:
        """All of these plugins have answered."""
        for plugin in plugins:
            if self._circuits.pop(plugin, None) is not None:
                CIRCUITS_OPEN.labels(step_type(plugin)).set(0)

    def open(self, plugins: Iterable[str]) -> None:
        """These plugins did not answer in time."""
        now = self.clock()
        for plugin in plugins:
            circuit = self._circuits.get(plugin)
            if circuit is not None and now < circuit.until:
                continue  # several sandboxes began before the first one's plugin was known to hang
            seconds = min(MOST_SECONDS, circuit.seconds * 2) if circuit is not None else FIRST_SECONDS
            self._circuits[plugin] = _Circuit(seconds, now + seconds)
            CIRCUITS_OPEN.labels(step_type(plugin)).set(1)
            self.opened(plugin, seconds)

    def is_open(self, plugins: Iterable[str]) -> bool:
        """Whether one of these plugins is left alone just now."""
        now = self.clock()
        return any(plugin in self._circuits and now < self._circuits[plugin].until for plugin in plugins)


def programs(plans: Iterable[Plan]) -> frozenset[str]:
    """The plugins that plans run as programs, IPAM plugins included."""
    return frozenset(_programs(plans))


def _programs(plans: Iterable[Plan]) -> Iterator[str]:
    for step in (step for plan in plans for step in plan.steps):
        if step.execution == "Binary":
            yield step.type
        ipam = step.config.get("ipam")
        if isinstance(ipam, dict) and isinstance(ipam.get("type"), str):
            yield ipam["type"]


def hung_of(problem: NetdraError) -> tuple[str, ...]:
    """The plugins that did not answer in time, by an error."""
    hung: Iterable[str] = ()
    if isinstance(problem, AttachError):
        report = problem.report
        hung = (*(step.hung for step in report.failures), *(step.hung for step in report.undone))
    elif isinstance(problem, PluginError):
        hung = [problem.failure.hung]
    return tuple(dict.fromkeys(plugin for plugin in hung if plugin))
