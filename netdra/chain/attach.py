"""Attach a pod: run its plans in its network namespace, all or nothing.

Called by the node daemon when a sandbox starts, by the lab and by `netdra attach`. All errors that can be known before
are found before anything is touched: by the rules, which return the `CheckedPlans`, and by `preflight`. Then
the checkpoint is begun, and from there on every way out is either a complete network or an undone one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing, suppress

import msgspec

from netdra.chain import announcements, checkpoint, duplicates, flow, holders, order, other_links
from netdra.chain import site as sites
from netdra.chain.checkpoint import (
    BadCheckpointError,
    CheckpointExistsError,
    Complete,
    Header,
    NamespaceId,
    PodIdentity,
    Saved,
)
from netdra.chain.detach import detach, undo
from netdra.chain.execute import Executor
from netdra.chain.flow import ChainStep, tasks
from netdra.chain.outcome import reports_of
from netdra.chain.preflight import preflight
from netdra.chain.report import AttachReport, FailedAttachReport, attach_error, failure_of
from netdra.chain.site import ChainSettings
from netdra.cni.config import Attachment, check_attachment
from netdra.cni.errors import PluginError
from netdra.model.errors import TemporaryError
from netdra.ops import files
from netdra.ops.boot import boot_id
from netdra.rules.plans import CheckedPlans
from netdra.topology.binaries import translated_plan


def attach(
    checked: CheckedPlans, pod: PodIdentity, netns: str, settings: ChainSettings, *, announces: bool = True
) -> AttachReport:
    """Give a pod the networks of its plans.

    A complete network is not made again; one that was begun and not ended (a crash) is undone first.

    Args:
        checked: one plan for each topology of each of the pod's claims, which the rules have checked together.
        pod: the pod.
        netns: the path of the pod's network namespace.
        settings: how chains are run here.
        announces: whether to announce the pod's addresses; else the caller does.

    Raises:
        AttachError: a step failed; its report has the failure and the undone steps.
        NetdraError: no step ran: a plan cannot be run, a plugin or the namespace is missing.
    """
    started = time.monotonic()
    plans = tuple(map(translated_plan, checked.plans))
    graph = tasks(plans)
    check_attachment(Attachment(container_id=pod.sandbox, if_name="lo", netns=netns, arguments=sites.arguments(pod)))
    with sites.open_pod(netns) as space:
        header = Header(
            version=checkpoint.VERSION,
            boot_id=boot_id(),
            pod=pod,
            namespace=NamespaceId(path=netns, cookie=space.cookie),
            plugins=settings.plugins,
            plans=plans,
        )
        problems: list[str] = []
        deadline = started + settings.budget * settings.setup_share
        while True:
            left = msgspec.structs.replace(settings, budget=max(0.0, deadline - time.monotonic()))
            done = _undo_unless_done(header, left, problems)
            if done is not None:
                return _repeated(graph, done)
            with sites.opened(pod, space, settings, deadline - time.monotonic()) as site:
                preflight(graph, site)
                # Another process may have begun since: the next round waits for it.
                with suppress(CheckpointExistsError):
                    # Data of programs on the disk survives a power failure: then the checkpoint must, too.
                    programs = any(task.runs_programs for task in graph.values())
                    if programs:
                        links = tuple(sorted(other_links.names_in(space)))
                        header = msgspec.structs.replace(header, links=links)
                    journal = checkpoint.create(settings.state, header, site.remaining(), lasting=programs)
                    with closing(journal):
                        if programs:
                            journal.hold()
                        with closing(Executor(graph, journal, site, settings)) as executor:
                            report = _run(executor, settings, started)
                    if announces:
                        announcements.first(plans, space)
                    return msgspec.structs.replace(report, problems=tuple(problems))


def _run(executor: Executor, settings: ChainSettings, started: float) -> AttachReport:
    seconds: dict[str, float] = {}

    def act(key: str) -> None:
        begun = time.monotonic()
        executor.do(key)
        seconds[key] = time.monotonic() - begun

    edges = flow.edges(executor.tasks)
    # While a step with sysctls runs, the namespace's defaults have its values: no other step may run beside it.
    in_turn = any(task.step.sysctls for task in executor.tasks.values())
    try:
        failed = order.run(
            edges,
            act,
            beside=lambda key: executor.tasks[key].is_binary and not in_turn,
            stop_on_failure=True,
            interrupt=executor.interrupt,
        )
        if not failed:
            failed = duplicates.settle(executor.tasks, executor.journal.saved.header.plans, executor.site)
        if not failed:
            links = other_links.made(executor.journal.saved, executor.site.pod)
            executor.journal.append(Complete(links=tuple(sorted(links))))
    except BaseException:
        _back_out(executor, settings, started, {})
        raise
    if failed:
        raise attach_error(_back_out(executor, settings, started, failed))
    return _report(executor.tasks, executor.journal.saved, seconds, time.monotonic() - started)


def _back_out(
    executor: Executor, settings: ChainSettings, started: float, failed: Mapping[str, Exception]
) -> FailedAttachReport:
    """Undo all steps that have begun; those that cannot be undone in time stay in the checkpoint for `detach`."""
    until = started + settings.budget
    hung = any(isinstance(problem, PluginError) and problem.failure.hung for problem in failed.values())
    if hung and settings.undo_of_hung is not None:
        until = min(until, time.monotonic() + settings.undo_of_hung)
    executor.until(until)
    undone = undo(executor)
    header = executor.journal.saved.header
    report = FailedAttachReport(
        sandbox=header.pod.sandbox,
        netns=header.namespace.path,
        failures=tuple(
            failure_of(executor.tasks[key].topology, executor.tasks[key].step, problem)
            for key, problem in failed.items()
        ),
        undone=undone,
        seconds=time.monotonic() - started,
    )
    if report.is_clean:
        holders.forget(settings.state, header.pod.sandbox)
        with suppress(TemporaryError):  # the next detach or attach removes it
            executor.journal.remove()
    return report


def _undo_unless_done(header: Header, settings: ChainSettings, problems: list[str]) -> Saved | None:
    """Return the sandbox's checkpoint if all its steps are done already; undo any other one.

    Raises:
        TemporaryError: it cannot be undone, or another process has it for too long.
    """
    sandbox = header.pod.sandbox
    try:
        journal = checkpoint.open_existing(settings.state, sandbox, settings.budget)
    except BadCheckpointError as problem:
        aside = files.put_aside(checkpoint.path_of(settings.state, sandbox))
        problems.append(f"{problem.what}; it was renamed to {aside}")
        return None
    if journal is None:
        return None
    journal.close()
    if _is_done(journal.saved, header):
        return journal.saved
    report = detach(sandbox, settings)
    if not report.is_undone or journal.path.exists():
        raise TemporaryError(f"sandbox {sandbox}: cannot undo an earlier attempt: {report}", code="ND2104")
    problems.extend(report.problems)
    return None


def _is_done(saved: Saved, header: Header) -> bool:
    """Whether these plans are attached to this namespace, by the checkpoint."""
    earlier = saved.header
    return (
        saved.complete
        and not saved.damaged
        and not any(state.undone for state in saved.steps.values())
        and (earlier.boot_id, earlier.namespace.cookie) == (header.boot_id, header.namespace.cookie)
        and earlier.plans == header.plans
    )


def _repeated(graph: Mapping[str, ChainStep], saved: Saved) -> AttachReport:
    return msgspec.structs.replace(_report(graph, saved, {}, 0.0), repeated=True)


def _report(graph: Mapping[str, ChainStep], saved: Saved, seconds: Mapping[str, float], total: float) -> AttachReport:
    return AttachReport(
        sandbox=saved.header.pod.sandbox,
        netns=saved.header.namespace.path,
        steps=reports_of(saved, graph, seconds),
        seconds=total,
    )
