"""The hooks of pod sandboxes, and how a hook is answered in time.

`plugin` calls a `SandboxHooks` through a `Runner`; the daemon's attachments are one. Hooks are called at least once:
two daemons during a rolling update, a reconnect or a retry of the runtime call them again for the same sandbox. A late
hook is never cancelled: it must end or undo its work, and a runtime that gets no answer lets the pod continue without
it. This is the one place that answers in time (docs/nri.md).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from typing import Protocol

import msgspec

from netdra.model.errors import NetdraError, PermanentError, TemporaryError
from netdra.node.metrics import HOOK_SECONDS
from netdra.node.priority import PriorityGate
from netdra.ops.logs import Fields
from netdra.ops.metrics import outcome_of


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's sandbox as the runtime knows it. A pod may have several over its life, an old and a new one at once.

    Attributes:
        id: the runtime's id of it, which is the key of everything that netdra keeps of a pod's network.
        name: the pod's name.
        namespace: the pod's namespace.
        uid: the pod's uid.
        netns: the path of its network namespace. For a pod on the host's network and for a stopped sandbox it is "";
            CRI-O reports the path of the host's namespace, and a path that no longer exists. Below /proc for
            a sandbox whose namespaces the runtime does not know.
        pid: a process in it; 0 once it has stopped, and always if a sandbox has no process of its own.
    """

    id: str
    name: str
    namespace: str
    uid: str
    netns: str = ""
    pid: int = 0

    @property
    def fields(self) -> Fields:
        """The sandbox and its pod, as log lines name them."""
        return Fields(pod=f"{self.namespace}/{self.name}", sandbox=self.id)

    def is_of_pod_of(self, other: Sandbox) -> bool:
        """Whether two sandboxes are of one pod. The uid alone proves nothing: a sandbox's maker chooses it."""
        return self.uid == other.uid and (self.namespace, self.name) == (other.namespace, other.name)


class SandboxHooks(Protocol):
    """Acts when a sandbox begins, stops and goes."""

    async def synchronize(self, sandboxes: Sequence[Sandbox]) -> None:
        """All sandboxes that the runtime has, stopped ones too: after each (re)connection, before any other call.

        It answers at once and works afterwards: the runtime gives all plugins together one request timeout for it.
        """

    async def run(self, sandbox: Sandbox, budget: float) -> None:
        """A sandbox has its namespace and its eth0, and no container yet.

        Args:
            sandbox: the pod's.
            budget: seconds until the answer must be there, undoing included. After that the runtime lets the pod
                continue without us, so this raises in time instead.

        Raises:
            NetdraError: the pod must not start; the runtime tears the sandbox down and the kubelet tries again.
        """

    async def stop(self, sandbox: Sandbox, budget: float) -> None:
        """A sandbox's containers have ended and its namespace goes next; may come late, again, or without a namespace.

        Raises:
            NetdraError: not all could be undone yet. The runtime continues anyway.
        """

    async def remove(self, sandbox: Sandbox) -> None:
        """A sandbox is gone for good; all that is left of it is cleaned.

        Raises:
            NetdraError: not all could be undone yet.
        """


log = logging.getLogger(__name__)

DEFAULT_TIMEOUT = 2.0
"""How long runtimes wait if they are not configured otherwise, in seconds."""
WORK_SHARE = 3 / 4
ANSWER_SHARE = 7 / 8
LOOKUP_SHARE = 2 / 5
"""The part of the time for the work that asking the API server for a pod's claims may take."""
REMOVE_SECONDS = 5.0
"""For the hook of a sandbox that is gone. It is answered in the runtime's time, as others are, and goes on then."""
MOST_HOOKS = 256
"""Hooks that may run at once, the late ones included."""


class Budget(msgspec.Struct, frozen=True):
    """How long a request may take from now on, in seconds.

    Attributes:
        work: for the hook, undoing included.
        answer: until the answer is given without the hook's end.
    """

    work: float
    answer: float


def budget(configured: float, asked: float, spent: float) -> Budget:
    """Divide the time that the runtime waits.

    Args:
        configured: the timeout of Configure in seconds, 0 without one.
        asked: the timeout of this request in seconds, 0 without one.
        spent: the seconds since the request came.
    """
    timeout = min((seconds for seconds in (configured, asked) if seconds > 0), default=DEFAULT_TIMEOUT)
    return Budget(max(timeout * WORK_SHARE - spent, 0.0), max(timeout * ANSWER_SHARE - spent, 0.0))


def one_line(problem: NetdraError) -> str:
    """An error as the runtime's log and a pod's event show it."""
    return problem.text


class LateError(TemporaryError):
    """A hook had not ended when its answer was due; it continues."""


class BusyError(TemporaryError):
    """Too many hooks run already; another hook was not begun."""


class StoppingError(TemporaryError):
    """A hook was cut off, because netdra is stopping."""


class DefectError(PermanentError):
    """A hook failed by a defect of netdra."""


class Runner:
    """The hooks that run, over all connections."""

    def __init__(self, gate: PriorityGate) -> None:
        """Begin with none.

        Args:
            gate: the priority gate; other work waits for it while a hook runs.
        """
        self._gate = gate
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, name: str, what: str, hook: Coroutine[object, object, None], seconds: float) -> None:
        """Run a hook, and wait for it at most `seconds`.

        Args:
            name: the hook's, for metrics.
            what: the hook and its object, for texts.
            seconds: when to answer without its end. It continues then, and only the log has its outcome.

        Raises:
            NetdraError: the hook failed or is late, or too many run already.
        """
        if len(self._running) >= MOST_HOOKS:
            hook.close()
            raise BusyError(f"{what}: {MOST_HOOKS} others have not ended yet", code="ND2197")
        task = asyncio.create_task(hook)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        began = time.perf_counter()
        with self._gate.in_hand():
            await asyncio.wait({task}, timeout=seconds)
        HOOK_SECONDS.labels(name, _outcome(task)).observe(time.perf_counter() - began)
        problem = _problem(what, task) if task.done() else _late(what, task, seconds)
        if problem is not None:
            raise problem

    async def finish(self, seconds: float) -> None:
        """Wait for all hooks at most `seconds`. A hook that still runs continues: it must end its work."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)


def _outcome(task: asyncio.Task[None]) -> str:
    """The metrics' word for a hook's outcome."""
    if not task.done():
        return "timeout"
    if task.cancelled():
        return "cancelled"
    problem = task.exception()
    return outcome_of(problem) if problem else "ok"


def _problem(what: str, task: asyncio.Task[None]) -> NetdraError | None:
    """Why a hook failed that has ended; None if it succeeded."""
    if task.cancelled():
        return StoppingError(f"{what}: netdra is stopping", code="ND2198")
    problem = task.exception()
    if problem is None or isinstance(problem, NetdraError):
        return problem
    log.error("%s: a defect of netdra", what, exc_info=problem)
    return DefectError(f"{what}: a defect of netdra: {type(problem).__name__}: {problem}", code="ND2199")


def _late(what: str, task: asyncio.Task[None], seconds: float) -> LateError:
    def report(ended: asyncio.Task[None]) -> None:
        problem = _problem(what, ended)
        log.warning("%s ended after its answer was due: %s", what, one_line(problem) if problem else "it succeeded")

    log.warning("%s has not ended after %.2f s; it continues", what, seconds)
    task.add_done_callback(report)
    return LateError(f"{what} has not ended after {seconds:.2f} s", code="ND2200")
