"""Detach a pod: undo the steps of its checkpoint, from the checkpoint alone.

Called by the node daemon when a sandbox stops or is found dead, by `attach` for the rest of an earlier attempt, by the
lab and by `netdra detach`. It raises nothing when a step fails: everything is tried, backwards along the graph, and the
report states what is left. A checkpoint of an earlier boot describes a kernel that is gone: then only data that plugins
keep on disk is released.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing

import msgspec

from netdra.chain import checkpoint, flow, holders, order
from netdra.chain import site as sites
from netdra.chain.checkpoint import BadCheckpointError, CheckpointJournal, Saved
from netdra.chain.execute import Executor, NotUndoneError
from netdra.chain.flow import ChainStep, tasks
from netdra.chain.report import DetachReport, UndoReport, name_of
from netdra.chain.site import ChainSettings
from netdra.cni.errors import PluginError
from netdra.model.errors import NetdraError, PermanentError, with_code
from netdra.ops import files
from netdra.ops.boot import boot_id
from netdra.steps.allocated import Returned
from netdra.steps.contract import NoTimeError

GIVEN_UP = "given-up"
MOST_GIVEN_UP = 32
"""How many checkpoints of sandboxes that were given up are kept for a person on a node: the newest."""


def detach(
    sandbox: str,
    settings: ChainSettings,
    netns: str = "",
    *,
    held_netns: str = "",
    give_up: bool = False,
    keep_stranded: bool = False,
    accept_differences: bool = False,
) -> DetachReport:
    """Undo a sandbox's networks; a sandbox without networks is not an error, and neither is a namespace that is gone.

    Steps that cannot be undone stay in the checkpoint, so calling again tries again.

    Args:
        sandbox: the sandbox's id.
        settings: how chains are run here; plugins are searched for where they were at attaching.
        netns: a path of the pod's namespace, where it may have another one than at attaching.
        held_netns: a path by which the caller holds that namespace, which may be gone for all other processes.
        give_up: try for the last time: a checkpoint of the rest is renamed, for an administrator.
        keep_stranded: but not while a device is not what it was: no other pod may have it until it is.
        accept_differences: release devices that are not what they were, and rename the checkpoint, for a person who has
            inspected them. Other steps that are not undone stay.

    Raises:
        InvalidInputError: the id cannot be a sandbox's.
        PermanentError: differences are to be accepted, and the sandbox's namespace is still there.
        TemporaryError: another process is just attaching or detaching the sandbox, or the disk or the namespace cannot
            be read; nothing was undone, or all but the checkpoint.
    """
    started = time.monotonic()
    try:
        journal = checkpoint.open_existing(settings.state, sandbox, settings.budget)
    except BadCheckpointError as problem:
        aside = files.put_aside(checkpoint.path_of(settings.state, sandbox))
        text = f"{problem.what}; it was renamed to {aside}, and nothing could be undone"
        return DetachReport(sandbox=sandbox, found=True, problems=(text,))
    if journal is None:
        return DetachReport(sandbox=sandbox, found=False)
    with closing(journal):
        names_all = _names_all_devices(journal.saved)
        report = _undo(journal, settings, netns, held_netns, started, accept_differences=accept_differences)
        if report.is_undone and any(step.outcome == "accepted" for step in report.undone):
            return _released(journal, report, settings)
        if report.is_undone:
            return _remove_checkpoint(journal, report, settings, names_all=names_all)
        return _given_up(journal, report) if give_up and not (keep_stranded and report.is_stranded) else report


def _remove_checkpoint(
    journal: CheckpointJournal, report: DetachReport, settings: ChainSettings, *, names_all: bool
) -> DetachReport:
    """Remove the checkpoint of a sandbox that is undone; return the report, with the error if it stays.

    If the checkpoint named all devices, undoing its steps has released them, unless a link could not be removed.
    """
    try:
        if not names_all or journal.keeps_devices:
            holders.forget(settings.state, report.sandbox)
        journal.remove()
    except NetdraError as problem:
        return _with_problem(report, problem.what)
    return report


def _released(journal: CheckpointJournal, report: DetachReport, settings: ChainSettings) -> DetachReport:
    """The report of a sandbox whose devices are released as they are. Its checkpoint is kept for an administrator."""
    try:
        holders.forget(settings.state, report.sandbox)
        aside = files.put_aside(journal.path, GIVEN_UP)
        files.keep_newest(journal.path.parent, GIVEN_UP, MOST_GIVEN_UP)
    except NetdraError as problem:
        return _with_problem(report, problem.what)
    return msgspec.structs.replace(report, record=str(aside))


def _names_all_devices(saved: Saved) -> bool:
    """Whether a checkpoint names every device that its sandbox has.

    A device is the sandbox's before its step is written down, and until the step is undone. A process may have died in
    between, or after some steps.
    """
    planned = sum(len(plan.steps) for plan in saved.header.plans)
    return saved.complete and not saved.damaged and len(saved.steps) == planned


def _given_up(journal: CheckpointJournal, report: DetachReport) -> DetachReport:
    # Where the namespace is gone, or the steps that are left never did anything, no attachment is valid for `collect`.
    try:
        is_settled = report.namespace_gone or report.is_refused
        aside = files.put_aside(journal.path, GIVEN_UP if is_settled else "bad")
        files.keep_newest(journal.path.parent, GIVEN_UP, MOST_GIVEN_UP)
    except NetdraError as problem:
        return _with_problem(report, problem.what)
    return _with_problem(report, f"sandbox {report.sandbox}: netdra stops trying to undo it; its checkpoint is {aside}")


def _with_problem(report: DetachReport, text: str) -> DetachReport:
    return msgspec.structs.replace(report, problems=(*report.problems, text))


def _undo(
    journal: CheckpointJournal,
    settings: ChainSettings,
    netns: str,
    held_netns: str,
    started: float,
    *,
    accept_differences: bool,
) -> DetachReport:
    header = journal.saved.header
    problems: list[str] = []
    if journal.saved.damaged:
        text = f"checkpoint {journal.path} had {journal.saved.damaged} unreadable lines"
        try:
            problems.append(f"{text}; a copy is {files.copy_aside(journal.path)}")
        except NetdraError as problem:
            problems.append(f"{text}; {problem.what}")
    try:
        graph = tasks(header.plans)
    except NetdraError as problem:
        aside = files.put_aside(journal.path)
        text = f"{problem.what}: the checkpoint was renamed to {aside}, and nothing could be undone"
        return DetachReport(sandbox=header.pod.sandbox, found=True, problems=(*problems, text))
    same_boot = header.boot_id == boot_id()
    left = settings.budget - (time.monotonic() - started)
    if any(task.runs_programs for task in graph.values()) and not journal.await_programs(left / 2):
        problems.append("a plugin of an earlier attempt is still running; undone anyway")
    left = settings.budget - (time.monotonic() - started)
    with (
        sites.reopen_pod(header.namespace, netns, held_netns, same_boot=same_boot) as space,
        sites.opened(header.pod, space, settings, left, plugins=header.plugins) as site,
        closing(Executor(graph, journal, site, settings)) as executor,
    ):
        if accept_differences and space is not None and space.path != held_netns:
            raise PermanentError(
                f"sandbox {header.pod.sandbox}: its network namespace {space.path} still exists, and its pod may run",
                hint="delete the pod first; differences are accepted only of a pod that has ended",
                code="ND2112",
            )
        undone = undo(executor, accept_differences=accept_differences)
    return DetachReport(
        sandbox=header.pod.sandbox,
        found=True,
        namespace_gone=space is None or space.path == held_netns,
        undone=undone,
        problems=tuple(problems),
        seconds=time.monotonic() - started,
    )


def undo(executor: Executor, *, accept_differences: bool = False) -> tuple[UndoReport, ...]:
    """Undo all steps that are not undone yet; report what became of each, in the order in which they were undone.

    Args:
        executor: of the sandbox's checkpoint.
        accept_differences: release devices that are not what they were.
    """
    saved = executor.journal.saved
    for key in (key for key, state in saved.steps.items() if state.undone):
        executor.give_up(key)  # that may have failed when the step was undone
    same_boot = saved.header.boot_id == boot_id()
    todo = to_undo(executor.tasks, saved, same_boot=same_boot)
    edges = flow.edges({key: executor.tasks[key] for key in todo})
    reports: dict[str, UndoReport] = {}

    def attempt(key: str) -> None:
        act = executor.undo if same_boot and key in saved.steps else executor.release
        reports[key] = _undo_one(executor.tasks[key], lambda: act(key))

    def is_binary(key: str) -> bool:
        return executor.tasks[key].is_binary

    order.run(order.reverse(edges), attempt, beside=is_binary, stop_on_failure=False, interrupt=executor.interrupt)
    for key, report in reports.items():
        if report.stranded and accept_differences:
            executor.release_as_it_is(key)
            reports[key] = msgspec.structs.replace(report, outcome="accepted")
        elif report.stranded:
            executor.note_held(key, report.message)
    left: Mapping[str, tuple[str, ...]]
    try:
        left = executor.left()
    except NetdraError as problem:
        left = dict.fromkeys(reports, (f"cannot determine the state that plugins left in the pod: {problem.what}",))
    return tuple(
        msgspec.structs.replace(report, notes=(*report.notes, *left.get(key, ()))) for key, report in reports.items()
    )


def to_undo(graph: Mapping[str, ChainStep], saved: Saved, *, same_boot: bool) -> list[str]:
    """The steps that may have done something, in the order in which they run.

    If the journal has unreadable lines, or a power failure may have cut it, every step may have begun.
    """
    if same_boot and not saved.damaged:
        return [key for key in graph if key in saved.steps and not saved.steps[key].undone]
    return [key for key in graph if key not in saved.steps or not saved.steps[key].undone]


def _undo_one(task: ChainStep, act: Callable[[], Returned]) -> UndoReport:
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
            message=with_code(problem.what, problem.code),
            notes=problem.given.notes,
            restored=problem.given.restored,
            stranded=problem.stranded,
            refused=problem.refused,
            hung=problem.hung,
            seconds=time.monotonic() - started,
        )
    except Exception as problem:  # noqa: BLE001 (whatever it is, the step is not undone, and the others must be)
        message = (
            with_code(problem.what, problem.code)
            if isinstance(problem, NetdraError)
            else f"{type(problem).__name__}: {problem}"
        )
        hung = problem.failure.hung if isinstance(problem, PluginError) else ""
        seconds = time.monotonic() - started
        return UndoReport(**named, outcome="failed", message=message, seconds=seconds, hung=hung)
    seconds = time.monotonic() - started
    return UndoReport(**named, outcome="undone", notes=given.notes, restored=given.restored, seconds=seconds)
