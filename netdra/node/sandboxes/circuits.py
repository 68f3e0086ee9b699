"""Plugins that do not answer are left alone for a while: their pods are refused at once instead of after a timeout.

A runtime calls hooks for one sandbox after the other, so a hook that waits for an absent answer delays every pod of the
node. Called by `netdra.node.sandboxes.hooks` around each attaching and undoing. Three rules keep what others wait:

- A plugin type has one circuit, which a timeout opens for 5 s, then for twice as long each time up to 5 minutes. When
  that is over one sandbox is admitted to try. Until an ADD succeeds, undoing waits for the plugin in no hook.
- Time without an answer is at most a tenth of all time: after it, nine times as long no
  plugin is tried that is not known to answer. Otherwise each of several plugins that hang would be waited for again,
  and so would a plugin that was called too late to be blamed.
- While work on plugins continues after its time is over, neither its plugins are tried nor those that are not known to
  answer.

A plugin is known to answer if its last ADD succeeded in this process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from netdra.chain.report import AttachError
from netdra.cni.errors import PluginError
from netdra.model.errors import NetdraError, TemporaryError
from netdra.node.metrics import CIRCUITS_OPEN, step_type

FIRST_SECONDS = 5.0
MOST_SECONDS = 300.0
VAIN_SHARE = 0.1
"""The part of the time that hooks wait in vain for plugins that are not known to answer."""
VAIN_SECONDS = 0.25
"""A shorter wait is nothing to others: it is as long as a plugin's that answers."""


class NotAnsweringError(TemporaryError):
    """A plugin that a sandbox needs did not answer lately, so the sandbox was not begun."""


@dataclass
class _Circuit:
    """A plugin that timed out: how long it is left alone, until when, and whether a sandbox is trying it just now."""

    seconds: float
    until: float
    trying: bool = False


@dataclass(eq=False)
class Work:
    """Work on a sandbox that waits for plugins, and when it should have ended."""

    plugins: frozenset[str]
    until: float


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
    _answering: set[str] = field(default_factory=set)
    _work: list[Work] = field(default_factory=list)
    _quiet_until: float = -math.inf

    @contextmanager
    def trying(self, plugins: Collection[str], until: float = math.inf) -> Iterator[None]:
        """Let a sandbox try its plugins in the body, which raises an error that names those that did not answer.

        Args:
            plugins: the programs that are run.
            until: when that is to have ended, by the clock.

        Raises:
            NotAnsweringError: one of them is left alone, or another sandbox tries it just now. Errors of the body come
                through.
        """
        self._admit(plugins)
        tried = [self._circuits[plugin] for plugin in plugins if plugin in self._circuits]
        for circuit in tried:
            circuit.trying = True
        began = self.clock()
        try:
            with self.working(plugins, until):
                yield
        except NetdraError as problem:
            silent = _silent(problem)
            if silent and self.count_vain(began):
                self._answering -= silent
            self.open(hung_of(problem))
            raise
        else:
            self._close(plugins)
        finally:
            for circuit in tried:
                circuit.trying = False

    @contextmanager
    def working(self, plugins: Collection[str], until: float) -> Iterator[Work]:
        """While the body works on a sandbox with plugins, know when that should have ended; the body may change it."""
        work = Work(frozenset(plugins), until)
        self._work.append(work)
        try:
            yield work
        finally:
            self._work.remove(work)

    def count_vain(self, began: float) -> bool:
        """Count the time since then as waited without an answer; returns whether it was long enough to matter."""
        now = self.clock()
        if now - began < VAIN_SECONDS:
            return False
        self._quiet_until = max(self._quiet_until, now + (now - began) * (1 / VAIN_SHARE - 1))
        return True

    def _admit(self, plugins: Collection[str]) -> None:
        now = self.clock()
        for plugin in sorted(plugins):
            circuit = self._circuits.get(plugin)
            if circuit is not None and (circuit.trying or now < circuit.until):
                raise NotAnsweringError(
                    f'CNI plugin "{plugin}" did not answer in time; it is not started for {circuit.seconds:.0f} s',
                    hint="nothing was changed; find the cause in the plugin's logs",
                    code="ND2227",
                )
        for plugin in sorted(plugins):
            if self._is_late(plugin) or (plugin not in self._answering and now < self._quiet_until):
                raise NotAnsweringError(
                    f'CNI plugin "{plugin}" is not started now: a pod waited for plugins without an answer, and it '
                    "is not known whether this plugin answers",
                    hint="nothing was changed, and the pod is retried automatically; see the node's events for the "
                    "plugin that does not answer",
                    code="ND2228",
                )

    def _is_late(self, plugin: str) -> bool:
        """Whether work that should have ended stands in the way of a plugin."""
        late = [work.plugins for work in self._work if self._is_over_time(work)]
        return bool(late) and (plugin not in self._answering or any(plugin in plugins for plugins in late))

    def _is_over_time(self, work: Work) -> bool:
        return bool(work.plugins) and self.clock() > work.until

    def _close(self, plugins: Collection[str]) -> None:
        """All of these plugins have answered."""
        self._answering |= set(plugins)
        for plugin in plugins:
            if self._circuits.pop(plugin, None) is not None:
                CIRCUITS_OPEN.labels(step_type(plugin)).set(0)

    def open(self, plugins: Iterable[str]) -> None:
        """These plugins did not answer in time."""
        now = self.clock()
        for plugin in plugins:
            self._answering.discard(plugin)
            circuit = self._circuits.get(plugin)
            if circuit is not None and now < circuit.until:
                continue  # several sandboxes began before the first one's plugin was known to hang
            seconds = min(MOST_SECONDS, circuit.seconds * 2) if circuit is not None else FIRST_SECONDS
            self._circuits[plugin] = _Circuit(seconds, now + seconds)
            CIRCUITS_OPEN.labels(step_type(plugin)).set(1)
            self.opened(plugin, seconds)

    def is_quiet(self) -> bool:
        """Whether plugins have recently not answered for so long that no hook waits for their undoing."""
        return self.clock() < self._quiet_until

    def has_trouble(self) -> bool:
        """Whether there is any plugin that no hook is to wait for."""
        return bool(self._circuits) or self.is_quiet() or any(map(self._is_over_time, self._work))

    def may_hang(self, plugins: Collection[str]) -> bool:
        """Whether one of these plugins has hung and has not answered since, or may do so just now."""
        quiet = self.is_quiet()
        return any(
            plugin in self._circuits or self._is_late(plugin) or (quiet and plugin not in self._answering)
            for plugin in plugins
        )


def _silent(problem: NetdraError) -> frozenset[str]:
    """The plugins that did not answer, by an error, also those that were called too late to be blamed."""
    silent = set(hung_of(problem))
    if isinstance(problem, AttachError):
        silent.update(step.plugin for step in problem.report.failures if step.kind == "timeout")
    elif isinstance(problem, PluginError) and problem.failure.kind == "timeout":
        silent.add(problem.failure.plugin)
    return frozenset(silent)


def hung_of(problem: NetdraError) -> tuple[str, ...]:
    """The plugins that did not answer in time, by an error."""
    hung: Iterable[str] = ()
    if isinstance(problem, AttachError):
        report = problem.report
        hung = (*(step.hung for step in report.failures), *(step.hung for step in report.undone))
    elif isinstance(problem, PluginError):
        hung = [problem.failure.hung]
    return tuple(dict.fromkeys(plugin for plugin in hung if plugin))
