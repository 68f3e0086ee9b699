"""Whether a process is alive and whether it is ready, as the sum of named checks.

Filled by each daemon's start, asked by `netdra.ops.server` for /healthz and /readyz. Alive means that a restart would
not help; ready that the process does its work now. A check states in words what it saw, also when all is well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec


class CheckResult(NamedTuple):
    """The result of a check: whether it passed, and its text."""

    ok: bool
    detail: str = ""


Check = Callable[[], CheckResult]


class Named(msgspec.Struct, frozen=True):
    """A check's result, with its name."""

    name: str
    ok: bool
    detail: str = ""


class Report(msgspec.Struct, frozen=True):
    """All results; `ok` if each of them is."""

    ok: bool
    checks: tuple[Named, ...] = ()

    @property
    def trouble(self) -> str:
        """The failed checks in one line; "" if all pass."""
        return "; ".join(f"{check.name}: {check.detail or 'not yet'}" for check in self.checks if not check.ok)


class ProcessHealth:
    """The checks of one process.

    Attributes:
        stopping: asked to stop; not ready from then on, even if the checks pass.
    """

    def __init__(self) -> None:
        self.stopping = False
        self._live: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}

    def live(self, name: str, check: Check) -> None:
        """Alive only if the check is well; a check of that name is replaced."""
        self._live[name] = check

    def ready(self, name: str, check: Check) -> None:
        """Ready only if the check is well; a check of that name is replaced."""
        self._ready[name] = check

    def task(self, name: str, task: asyncio.Task[Any]) -> None:
        """Alive only while a task runs, unless the process is stopping."""
        self.live(name, lambda: CheckResult(self.stopping or not task.done(), "ended" if task.done() else "runs"))

    def liveness(self) -> Report:
        """Whether the process is alive."""
        return _report(self._live)

    def readiness(self) -> Report:
        """Whether the process is ready; never before a check was added, never again once it is stopping."""
        if self.stopping:
            return Report(ok=False, checks=(Named("stopping", ok=False, detail="stopping"),))
        if not self._ready:
            return Report(ok=False, checks=(Named("started", ok=False, detail="starting"),))
        return _report(self._ready)


def met(condition: Callable[[], bool], yet: str, then: str = "") -> Check:
    """A check of one condition.

    Args:
        condition: asked each time.
        yet: the text while it does not hold.
        then: the text when it does.
    """

    def check() -> CheckResult:
        ok = condition()
        return CheckResult(ok, then if ok else yet)

    return check


def _report(checks: Mapping[str, Check]) -> Report:
    checked = tuple(Named(name, *check()) for name, check in checks.items())
    return Report(ok=all(named.ok for named in checked), checks=checked)
