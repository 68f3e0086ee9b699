"""The reports of attaching, detaching and checking: for people, for events and conditions, and as JSON.

Made by `attach`, `detach` and `check`; shown by the command line and the daemon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from netdra.cni.errors import PluginError, coded, stderr_lines
from netdra.model.errors import NetdraError, PermanentError, TemporaryError, sentence, with_code
from netdra.model.plan import PlannedStep, called
from netdra.model.result import StepResult


class DuplicateAddress(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An address of a pod that another machine on the wire has, too.

    Attributes:
        claim: the uid of the pod's claim.
        network: the PodNetwork.
        if_name: the interface in the pod.
        address: the address, without prefix length.
        mac: the other machine's link-layer address; "" if the kernel found the duplicate and keeps that to itself.
    """

    claim: str
    network: str
    if_name: str
    address: str
    mac: str = ""

    def __str__(self) -> str:
        """The duplicate as events describe it."""
        other = f"the machine with MAC {self.mac}" if self.mac else "another machine"
        where = f'of PodNetwork "{self.network}" on interface "{self.if_name}"'
        return f"address {self.address} {where} is also used by {other}"


class DuplicateAddressError(TemporaryError):
    """A step's address is used by another machine; the pod gets another address.

    Attributes:
        duplicates: the step's addresses that are.
    """

    def __init__(self, duplicates: Sequence[DuplicateAddress]) -> None:
        what = "; ".join(map(str, duplicates))
        super().__init__(
            what, hint="the pod is tried again with another address (onDuplicate: Reassign)", code="ND2301"
        )
        self.duplicates = tuple(duplicates)


class StepName(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Which step of which topology, and the plugin that it is."""

    topology: str
    step: str
    plugin: str
    execution: Literal["Builtin", "Binary"]

    def __str__(self) -> str:
        """The step as messages call it."""
        binary = " binary" if self.execution == "Binary" else ""
        return f"{called(self.topology, self.step)} ({self.plugin}{binary})"


class StepReport(StepName, frozen=True, kw_only=True):
    """A step that succeeded.

    Attributes:
        interface: the interface that it made or changed.
        result: its CNI result.
        notes: what it could not do without failing, such as an offload that the device does not have.
        seconds: how long it took; 0 where it was done before.
    """

    interface: str
    result: StepResult
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


class StepFailure(StepName, frozen=True, kw_only=True):
    """A step that failed. `kind`, `code`, `details` and `stderr` are those of `netdra.cni.errors.PluginFailure`.

    `error_code` is the error's `NetdraError.code`. `hung` is the plugin that did not answer in time, which may be the
    IPAM plugin of a step; "" if none. `duplicates` are the step's addresses that another machine on the wire has.
    """

    message: str
    hint: str = ""
    error_code: str = ""
    kind: str = ""
    code: int = 0
    details: str = ""
    stderr: str = ""
    temporary: bool = False
    hung: str = ""
    duplicates: tuple[DuplicateAddress, ...] = ()


class UndoReport(StepName, frozen=True, kw_only=True):
    """The outcome of undoing a step.

    Attributes:
        outcome: `undone`; `failed`, for the reason in `message`; `left`, for lack of time; or `accepted`: its device is
            not what it was, for the reason in `message`, and is released anyway.
        notes: settings that could not be restored, and do not matter for the device's next user.
        restored: settings of the step's device that netdra restored after its plugin had left them changed.
        stranded: its device is not as it was, and no other pod may have it.
        refused: its plugin cannot read its config, and has never done anything.
        hung: the plugin that did not answer in time, "" if none.
    """

    outcome: Literal["undone", "failed", "left", "accepted"]
    message: str = ""
    notes: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    stranded: bool = False
    refused: bool = False
    seconds: float = 0.0
    hung: str = ""

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to be tried again."""
        return self.outcome in {"undone", "accepted"}


class AttachReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A sandbox whose network is complete.

    Attributes:
        steps: in the order of the plans.
        repeated: it was complete already, and nothing was done.
        problems: further problems, such as an earlier checkpoint that could not be read.
    """

    sandbox: str
    netns: str
    steps: tuple[StepReport, ...]
    problems: tuple[str, ...] = ()
    seconds: float = 0.0
    repeated: bool = False


class FailedAttachReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A sandbox that was not attached: the failure, and the outcome of all steps that had begun."""

    sandbox: str
    netns: str
    failures: tuple[StepFailure, ...]
    undone: tuple[UndoReport, ...]
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left to undo."""
        return all(step.outcome == "undone" for step in self.undone)

    @property
    def with_hints(self) -> str:
        """The report in lines: each failure with its next step and code, then the outcome of other steps."""
        return "\n".join(
            [
                *(_failure_lines(failure, failure.hint, failure.error_code) for failure in self.failures),
                *_undo_lines(self.undone),
            ]
        )

    def __str__(self) -> str:
        """The report in lines, without next steps and codes."""
        return "\n".join([*(_failure_lines(failure) for failure in self.failures), *_undo_lines(self.undone)])


class DetachReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The outcome of undoing a sandbox.

    Attributes:
        found: whether there was a checkpoint.
        namespace_gone: whether the pod's namespace was gone already, or only the caller still held it.
        undone: step by step.
        problems: further errors, such as a damaged checkpoint.
        record: where the checkpoint is now if differences were accepted, "" otherwise.
    """

    sandbox: str
    found: bool
    record: str = ""
    namespace_gone: bool = False
    undone: tuple[UndoReport, ...] = ()
    problems: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def is_undone(self) -> bool:
        """Whether no step is left to undo."""
        return all(step.is_over for step in self.undone)

    @property
    def is_tried(self) -> bool:
        """Whether there was time for every step."""
        return all(step.outcome != "left" for step in self.undone)

    @property
    def is_clean(self) -> bool:
        """Whether no step is left to undo and nothing else is wrong."""
        return self.is_undone and not self.problems

    @property
    def notes(self) -> tuple[str, ...]:
        """The settings that could not be restored by the undone steps."""
        return tuple(f"{step}: {note}" for step in self.undone for note in step.notes)

    @property
    def restored(self) -> tuple[str, ...]:
        """The settings of devices that netdra restored after their plugins had left them changed."""
        return tuple(f"{step}: {text}" for step in self.undone for text in step.restored)

    @property
    def is_stranded(self) -> bool:
        """Whether a device is not what it was, and so is held."""
        return any(step.stranded and not step.is_over for step in self.undone)

    @property
    def is_refused(self) -> bool:
        """Whether all that is left are steps whose plugin cannot read their config: trying again changes nothing."""
        return not self.is_undone and all(step.refused or step.is_over for step in self.undone)

    def __str__(self) -> str:
        """The report in lines."""
        return "\n".join([*self.problems, *_undo_lines(self.undone)])


class StepCheck(StepName, frozen=True, kw_only=True):
    """A step's drift; `skipped` states why the step could not be checked, `repaired` what was done before the check.

    `link` states that the interface of the step lacks a carrier. The cause of that is outside the pod, so the step is
    in order.
    """

    drift: tuple[str, ...] = ()
    link: str = ""
    skipped: str = ""
    repaired: tuple[str, ...] = ()


class CheckReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Whether a sandbox still has its network.

    Attributes:
        steps: the check of each step.
        problems: those of the sandbox as a whole.
        undone: the steps of a sandbox that has ended that were undone just now, or tried.
        hint: what to do about the problems.
    """

    sandbox: str
    steps: tuple[StepCheck, ...] = ()
    problems: tuple[str, ...] = ()
    undone: tuple[UndoReport, ...] = ()
    hint: str = ""

    @property
    def is_clean(self) -> bool:
        """Whether each undo is over, no step has drifted, and no problem was found."""
        is_undone = all(step.is_over for step in self.undone)
        return is_undone and not self.problems and not any(step.drift for step in self.steps)


class NetworkCollected(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The outcome of GC of one network's plugin.

    Attributes:
        network: the network's name.
        plugin: the plugin that was called, for a built-in step its IPAM plugin.
        valid: how many attachments the plugin was asked to keep.
        skipped: why it could not be asked.
        problem: how it failed.
    """

    network: str
    plugin: str
    valid: int
    skipped: str = ""
    problem: str = ""


class CollectReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The outcome of GC of all networks. `problems` are the reasons for a GC that was not done."""

    networks: tuple[NetworkCollected, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether every plugin that could be asked has collected."""
        return not self.problems and not any(network.problem for network in self.networks)


class AttachError(NetdraError):
    """A pod's network could not be attached; `report` has the failure and the undone steps. A subclass is raised."""

    def __init__(self, report: FailedAttachReport) -> None:
        hint = next((failure.hint for failure in report.failures if failure.hint), "")
        code = next((failure.error_code for failure in report.failures if failure.error_code), "")
        super().__init__(f"sandbox {report.sandbox}: {report}", hint=hint)
        self.code = code
        self.report = report

    def __str__(self) -> str:
        """The report; the next step and the code are beside their failure, not after the outcome of other steps."""
        return f"sandbox {self.report.sandbox}: {self.report.with_hints}"


class AttachPermanentError(AttachError, PermanentError):
    """Trying again changes nothing."""


class AttachTemporaryError(AttachError, TemporaryError):
    """It may work when tried again."""


def attach_error(report: FailedAttachReport) -> AttachError:
    """The error for a report: temporary if all failures are."""
    temporary = all(failure.temporary for failure in report.failures)
    return AttachTemporaryError(report) if temporary else AttachPermanentError(report)


def name_of(topology: str, step: PlannedStep) -> dict[str, Any]:
    """The fields of a `StepName`."""
    return {"topology": topology, "step": step.name, "plugin": step.type, "execution": step.execution}


def failure_of(topology: str, step: PlannedStep, problem: Exception) -> StepFailure:
    """An exception of a step as its failure."""
    named = name_of(topology, step)
    temporary = isinstance(problem, TemporaryError)
    if isinstance(problem, PluginError):
        failure = problem.failure
        return StepFailure(
            **named,
            message=failure.message,
            hint=problem.hint,
            error_code=problem.code,
            kind=failure.kind,
            code=failure.code,
            details=failure.details,
            stderr=failure.stderr,
            temporary=temporary,
            hung=failure.hung,
        )
    if isinstance(problem, DuplicateAddressError):
        return StepFailure(
            **named,
            message=problem.what,
            hint=problem.hint,
            error_code=problem.code,
            temporary=temporary,
            duplicates=problem.duplicates,
        )
    if isinstance(problem, NetdraError):
        message = _without_name(named, problem.what)
        return StepFailure(**named, message=message, hint=problem.hint, error_code=problem.code, temporary=temporary)
    return StepFailure(**named, message=f"{type(problem).__name__}: {problem}", kind="defect")


def _without_name(named: dict[str, Any], what: str) -> str:
    """A message without the step's name at its beginning, which the report gives by itself."""
    return what.removeprefix(str(StepName(**named))).lstrip(":, ")


def _failure_lines(failure: StepFailure, hint: str = "", code: str = "") -> str:
    first, *others = f"{failure}: {failure.message}{_with_code(failure)}".split("\n")
    return "\n".join([with_code(sentence(first, hint), code), *others])


def _with_code(failure: StepFailure) -> str:
    code = coded(failure.code)
    details = f": {failure.details}" if failure.details else ""
    return "\n".join((f"{code}{details}", *(f"  stderr: {line}" for line in stderr_lines(failure.stderr))))


def _undo_lines(undone: tuple[UndoReport, ...]) -> list[str]:
    lines = []
    done = [step.step for step in undone if step.outcome == "undone"]
    if done:
        lines.append(f"undone: {', '.join(done)}")
    lines += [f"not undone: {step}: {step.message or 'no time left'}" for step in undone if step.outcome != "undone"]
    lines += [f"restored: {step}: {text}" for step in undone for text in step.restored]
    lines += [f"note: {step}: {note}" for step in undone for note in step.notes]
    return lines
