"""Undo what a checkpoint says has begun: backwards along the graph, gathering every error, going on to the end.

Used by `attach` when a step failed and by `detach`. A checkpoint of an earlier boot describes a kernel that is gone:
then only what plugins keep on disk is released.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from netdra.chain import checkpoint, flow, order
from netdra.chain.checkpoint import Saved
from netdra.chain.execute import Executor, NoTimeError, NotUndoneError
from netdra.chain.flow import Task
from netdra.chain.report import UndoReport, name_of
from netdra.cni.errors import PluginError
from netdra.model.errors import NetdraError
from netdra.steps.allocated import GivenBack


def undo(executor: Executor) -> tuple[UndoReport, ...]:
    """Undo all that is not undone yet, and say what became of each step, in the order in which they were undone."""
    saved = executor.journal.saved
    same_boot = saved.header.boot_id == checkpoint.boot_id()
    todo = to_undo(executor.tasks, saved, same_boot=same_boot)
    edges = flow.edges({key: executor.tasks[key] for key in todo})
    reports: dict[str, UndoReport] = {}

    def attempt(key: str) -> None:
        act = executor.undo if same_boot and key in saved.steps else executor.release
        reports[key] = _undo_one(executor.tasks[key], lambda: act(key))

    def is_binary(key: str) -> bool:
        return executor.tasks[key].is_binary

    order.run(order.reverse(edges), attempt, beside=is_binary, stop_on_failure=False, interrupt=executor.interrupt)
    return tuple(reports.values())


def to_undo(found: Mapping[str, Task], saved: Saved, *, same_boot: bool) -> list[str]:
    """The steps that may have done something, in the order in which they run.

    Of a journal with unreadable lines, or one that a power failure may have cut, every step may have begun.
    """
    if same_boot and not saved.damaged:
        return [key for key in found if key in saved.steps and not saved.steps[key].undone]
    return [key for key in found if key not in saved.steps or not saved.steps[key].undone]


def _undo_one(task: Task, act: Callable[[], GivenBack]) -> UndoReport:
    named = name_of(task.topology, task.step)
    started = time.monotonic()
    try:
        given = act()
    except NoTimeError:
        return UndoReport(**named, outcome="left")
    except NotUndoneError as problem:
        return UndoReport(
            **named,
            outcome="failed",
            message=problem.what,
            restored=problem.restored,
            stranded=problem.stranded,
            refused=problem.refused,
            hung=problem.hung,
            seconds=time.monotonic() - started,
        )
    except Exception as problem:  # noqa: BLE001 (whatever it is, the step is not undone, and the others must be)
        message = problem.what if isinstance(problem, NetdraError) else f"{type(problem).__name__}: {problem}"
        hung = problem.failure.hung if isinstance(problem, PluginError) else ""
        seconds = time.monotonic() - started
        return UndoReport(**named, outcome="failed", message=message, seconds=seconds, hung=hung)
    seconds = time.monotonic() - started
    return UndoReport(**named, outcome="undone", notes=given.notes, restored=given.restored, seconds=seconds)
