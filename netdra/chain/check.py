"""Check a pod: ask every step whether what it made is still so. Called by `netdra check` and the node daemon."""

from __future__ import annotations

from contextlib import closing

from netdra.chain import checkpoint
from netdra.chain import site as sites
from netdra.chain.checkpoint import BadCheckpointError, Saved
from netdra.chain.execute import Executor
from netdra.chain.flow import Task, tasks
from netdra.chain.look import UncheckableError
from netdra.chain.report import CheckReport, StepCheck, name_of
from netdra.chain.site import Settings
from netdra.model.errors import NetdraError


def check(sandbox: str, settings: Settings) -> CheckReport:
    """Whether a sandbox still has its network, step by step. Changes nothing.

    Raises:
        InvalidInputError: the id cannot be a sandbox's.
        TemporaryError: the sandbox is just being attached or detached.
    """
    try:
        journal = checkpoint.open_existing(settings.state, sandbox, settings.budget)
    except BadCheckpointError as problem:
        return CheckReport(sandbox=sandbox, problems=(problem.what,))
    if journal is None:
        return CheckReport(sandbox=sandbox, problems=("it was never attached here, or is detached",))
    try:
        header = journal.saved.header
        unfit = _problem(journal.saved)
        if unfit:
            return CheckReport(sandbox=sandbox, problems=(unfit,))
        with sites.reopen_pod(header.namespace, same_boot=True) as space:
            if space is None:
                return CheckReport(sandbox=sandbox, problems=("its network namespace is gone",))
            with sites.opened(header.pod, space, settings, settings.budget, plugins=header.plugins) as site:
                found = tasks(header.plans)
                with closing(Executor(found, journal, site, settings)) as executor:
                    steps = tuple(_check_one(executor, key, task) for key, task in found.items())
    finally:
        journal.close()
    return CheckReport(sandbox=sandbox, steps=steps)


def _problem(saved: Saved) -> str:
    """Why a checkpoint's steps cannot all be there, or ""."""
    if saved.header.boot_id != checkpoint.boot_id():
        return "it was attached before the machine was started"
    if not saved.complete or any(state.undone for state in saved.steps.values()):
        return "it is not attached completely"
    return "its checkpoint is damaged" if saved.damaged else ""


def _check_one(executor: Executor, key: str, task: Task) -> StepCheck:
    named = name_of(task.topology, task.step)
    try:
        return StepCheck(**named, drift=executor.check(key))
    except UncheckableError as problem:
        return StepCheck(**named, skipped=problem.what)
    except NetdraError as problem:
        return StepCheck(**named, drift=(problem.what,))
