"""What stands of a sandbox's network: its checkpoint, if that says that all is attached to the namespace that it has.

Asked by the node daemon before it attaches and when it comes back. It locks and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from netdra.chain import checkpoint
from netdra.chain import site as sites
from netdra.chain.checkpoint import BadCheckpointError, Namespace, Saved
from netdra.chain.flow import tasks
from netdra.chain.report import AttachReport
from netdra.model.errors import NetdraError
from netdra.model.plan import Plan
from netdra.model.result import StepResult


class PlanResults(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, and what came of those of its steps that were done: by the step's name, with what they had to say."""

    plan: Plan
    results: Mapping[str, StepResult]
    notes: Mapping[str, tuple[str, ...]] = {}


def load(directory: Path, sandbox: str) -> Saved | None:
    """A sandbox's checkpoint as it stands, not locked; None if there is none that can be read.

    Raises:
        InvalidInputError: the id cannot be a sandbox's.
    """
    try:
        return checkpoint.load(directory, sandbox)
    except (FileNotFoundError, BadCheckpointError):
        return None


def standing(directory: Path, sandbox: str, netns: str) -> Saved | None:
    """A sandbox's checkpoint if its network is complete in the namespace at that path, else None.

    What the plans would be today does not matter: a pod that runs keeps the network that it was given.

    Raises:
        InvalidInputError: the id cannot be a sandbox's.
    """
    saved = load(directory, sandbox)
    if saved is None or not is_complete(saved):
        return None
    return saved if is_there(msgspec.structs.replace(saved.header.namespace, path=netns)) else None


def is_there(namespace: Namespace) -> bool:
    """Whether the namespace at that path is the one of that cookie."""
    try:
        with sites.open_pod(namespace.path) as space:
            return space.cookie == namespace.cookie
    except NetdraError:
        return False


def is_complete(saved: Saved) -> bool:
    """Whether all that a checkpoint plans was done in this boot, and nothing of it undone."""
    undone = any(state.undone for state in saved.steps.values())
    return saved.complete and not saved.damaged and not undone and saved.header.boot_id == checkpoint.boot_id()


def reported(plans: Sequence[Plan], report: AttachReport) -> tuple[PlanResults, ...]:
    """What came of each plan as attaching them told it, in their order."""
    steps = iter(report.steps)
    found: list[PlanResults] = []
    for plan in plans:
        done = {step.name: next(steps) for step in plan.steps}
        found.append(
            PlanResults(
                plan=plan,
                results={name: each.result for name, each in done.items()},
                notes={name: each.notes for name, each in done.items() if each.notes},
            )
        )
    return tuple(found)


def results_of(saved: Saved) -> tuple[PlanResults, ...]:
    """What came of each plan, in their order.

    Raises:
        InvalidInputError: the plans make no sense.
    """
    done = {key: state for key, state in saved.steps.items() if state.result is not None}
    found: list[PlanResults] = []
    for place, plan in enumerate(saved.header.plans):
        named = {task.step.name: done[key] for key, task in tasks((plan,), place).items() if key in done}
        found.append(
            PlanResults(
                plan=plan,
                results={name: state.result for name, state in named.items() if state.result is not None},
                notes={name: state.notes for name, state in named.items() if state.notes},
            )
        )
    return tuple(found)
