"""Whether a pod still has its network: by its checkpoint alone, or by the check of every step.

Called by `netdra check` and the node daemon. The daemon inspects the checkpoint alone before it attaches and when it
comes back, and checks every step of a running pod. Nothing is changed, unless a person asks for the repair of a VF.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import msgspec

from netdra.chain import checkpoint, holders
from netdra.chain import site as sites
from netdra.chain.checkpoint import BadCheckpointError, Saved
from netdra.chain.detach import detach
from netdra.chain.execute import Executor
from netdra.chain.flow import ChainStep, tasks
from netdra.chain.look import UncheckableError
from netdra.chain.report import CheckReport, StepCheck, StepName, name_of
from netdra.chain.site import ChainSettings
from netdra.chain.step_check import StepChecks
from netdra.kernel import link
from netdra.model.errors import NetdraError
from netdra.ops.boot import boot_id
from netdra.ops.files import NewerStateError
from netdra.steps import drift
from netdra.steps.contract import Site


def load(directory: Path, sandbox: str) -> Saved | None:
    """A sandbox's checkpoint as it stands, not locked; None if none exists that can be read.

    Raises:
        InvalidInputError: the id cannot be a sandbox's.
        TemporaryError: the disk cannot be read.
    """
    try:
        return checkpoint.load(directory, sandbox)
    except (FileNotFoundError, BadCheckpointError, NewerStateError):
        return None


def standing(directory: Path, sandbox: str, netns: str) -> Saved | None:
    """A sandbox's checkpoint if its network is complete in the namespace at that path, else None.

    Whether the plans would differ today does not matter: a running pod keeps the network that it was given.

    Raises:
        InvalidInputError: the id cannot be a sandbox's.
        TemporaryError: the disk, or the namespace, cannot be read.
    """
    saved = load(directory, sandbox)
    if saved is None or not is_complete(saved):
        return None
    with sites.reopen_pod(msgspec.structs.replace(saved.header.namespace, path=netns), same_boot=True) as space:
        return saved if space is not None else None


def is_complete(saved: Saved) -> bool:
    """Whether all steps of a checkpoint were done in this boot, and none is undone."""
    undone = any(state.undone for state in saved.steps.values())
    return saved.complete and not saved.damaged and not undone and saved.header.boot_id == boot_id()


def check(sandbox: str, settings: ChainSettings, *, repair: bool = False) -> CheckReport:
    """Whether a sandbox still has its network, step by step. Changes nothing.

    Args:
        sandbox: its id.
        settings: how chains are run here.
        repair: restore first what a reset has taken from VFs; all else is left as it is. The steps of a sandbox that
            has ended are undone, as far as that is possible.

    Raises:
        InvalidInputError: the id cannot be a sandbox's.
        TemporaryError: the sandbox is just being attached or detached.
    """
    try:
        journal = checkpoint.open_existing(settings.state, sandbox, settings.budget)
    except BadCheckpointError as problem:
        return CheckReport(sandbox=sandbox, problems=(problem.what,))
    if journal is None:
        return CheckReport(sandbox=sandbox, problems=("it was never attached on this node, or it is already detached",))
    try:
        header = journal.saved.header
        ended = _ended(journal.saved)
        if ended and repair:
            journal.close()
            return _undone(sandbox, settings)
        if ended:
            return ended
        unfit = _problem(journal.saved)
        if unfit:
            return CheckReport(sandbox=sandbox, problems=(unfit,))
        with sites.reopen_pod(header.namespace, same_boot=True) as space:
            if space is None:
                return CheckReport(sandbox=sandbox, problems=("its network namespace no longer exists",))
            with sites.opened(header.pod, space, settings, settings.budget, plugins=header.plugins) as site:
                graph = tasks(header.plans)
                with closing(Executor(graph, journal, site, settings)) as executor:
                    checks = StepChecks(executor)
                    steps = tuple(_check_one(checks, site, key, task, repair=repair) for key, task in graph.items())
    finally:
        journal.close()
    return CheckReport(sandbox=sandbox, steps=steps)


def _ended(saved: Saved) -> CheckReport | None:
    """The report on a sandbox whose pod has ended, and that is not wholly undone; None for any other.

    Raises:
        UnknownNamespaceError: whether its namespace is there cannot be read.
    """
    sandbox, held = saved.header.pod.sandbox, saved.held
    with sites.reopen_pod(saved.header.namespace, same_boot=saved.header.boot_id == boot_id()) as space:
        if space is not None and not held:
            return None
    if not held:
        what = _problem(saved) or "its network namespace no longer exists"
        return CheckReport(sandbox=sandbox, problems=(what,), hint=f"netdra check {sandbox} --repair undoes its steps")
    graph = tasks(saved.header.plans)
    steps = {key: StepName(**name_of(graph[key].topology, graph[key].step)) for key in held if key in graph}
    problems = tuple(f"{steps.get(key, key)} is not undone: {text}" for key, text in held.items())
    return CheckReport(sandbox=sandbox, problems=problems, hint=holders.held_hint(sandbox))


def _undone(sandbox: str, settings: ChainSettings) -> CheckReport:
    """Undo a sandbox that has ended."""
    report = detach(sandbox, settings)
    hint = holders.held_hint(sandbox) if report.is_stranded else ""
    return CheckReport(sandbox=sandbox, undone=report.undone, problems=report.problems, hint=hint)


def _problem(saved: Saved) -> str:
    """Why a checkpoint's steps cannot all be there, or ""."""
    if saved.header.boot_id != boot_id():
        return "it was attached before the last reboot of the node"
    if not saved.complete or any(state.undone for state in saved.steps.values()):
        return "it is not completely attached"
    return "its checkpoint is damaged" if saved.damaged else ""


def _check_one(checks: StepChecks, site: Site, key: str, task: ChainStep, *, repair: bool) -> StepCheck:
    named = name_of(task.topology, task.step)
    repaired: tuple[str, ...] = ()
    try:
        repaired = checks.repair(key) if repair else ()
        netdev = link.find(site.inside.sock, task.step.if_name)
        state = drift.without_carrier(netdev) if netdev is not None else ""
        return StepCheck(**named, drift=checks.check(key), link=state, repaired=repaired)
    except UncheckableError as problem:
        return StepCheck(**named, skipped=problem.what, repaired=repaired)
    except NetdraError as problem:
        return StepCheck(**named, drift=(problem.what,), repaired=repaired)
