"""The events of pods whose network failed, was restored or came late, each with a line in the log.

Used by `hooks` and `recover`. The runtime tries a refused pod again every dozen seconds, each
time with another sandbox; an event with the same text but for the sandbox is not emitted again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from netdra.chain.report import AttachError, DuplicateAddress
from netdra.kube.events import ObjectReference, Occurrence
from netdra.model.errors import NetdraError, TemporaryError, sentence
from netdra.model.plan import ClaimReference
from netdra.node.nri.hooks import Sandbox
from netdra.node.traffic.links import LinkChange
from netdra.ops.logs import Fields, fields

log = logging.getLogger(__name__)

MOST_PODS = 1000
_CABLE = "Check the cable, the transceiver and the switch's port; see docs/traffic.md"


class PodEvents:
    """The events of this node's pods, and the last one of each pod."""

    def __init__(self, emit: Callable[[Occurrence], None], node: str = "") -> None:
        """Begin with none.

        Args:
            emit: takes an event, e.g. `netdra.kube.events.Recorder.emit`.
            node: the node's name.
        """
        self._emit, self._node = emit, node
        self._last: dict[str, str] = {}

    def report_failure(self, sandbox: Sandbox, problem: NetdraError) -> None:
        """A sandbox was refused."""
        text = message_of(problem)
        if self._is_new(sandbox, text):
            log.warning("%s", text, extra=_about(sandbox, problem))
            self._emit_of(sandbox, "Warning", "NetworkNotAttached", "Attach", text, problem.hint)

    def report_not_undone(self, sandbox: Sandbox, trouble: str) -> None:
        """A sandbox's network could not be returned yet, or not whole."""
        if self._is_new(sandbox, trouble):
            log.warning("not released yet: %s", trouble, extra=_about(sandbox))
            self._emit_of(sandbox, "Warning", "NetworkNotDetached", "Detach", trouble)

    def report_not_restored(self, sandbox: Sandbox, notes: str) -> None:
        """A sandbox is undone, and the node is not as it was before: a virtual device is lost."""
        log.warning("not as it was before: %s", notes, extra=_about(sandbox))
        self._emit_of(sandbox, "Warning", "NetworkNotRestored", "Detach", notes)

    def report_restored(self, sandbox: Sandbox, restored: str) -> None:
        """A plugin left a device of the node changed, and netdra restored it."""
        log.warning("restored, as its plugin had not: %s", restored, extra=_about(sandbox))
        self._emit_of(sandbox, "Normal", "DeviceRestored", "Detach", restored)

    def report_unknown(self, sandbox: Sandbox, reason: str) -> None:
        """Whether a sandbox still has its network namespace cannot be read; the caller reports that once."""
        text = f"the network is left as it is: whether the pod's network namespace exists cannot be read: {reason}"
        log.warning("%s", text, extra=_about(sandbox))
        self._emit_of(sandbox, "Warning", "NetworkUnknown", "Check", text)

    def report_nameless(self, sandbox: Sandbox) -> None:
        """A running sandbox's namespace has lost its path; the caller reports that once."""
        hint = (
            "Find the program that removes names of network namespaces on the node, then recreate the pod; until then "
            "its containers may fail to restart."
        )
        text = sentence(
            f"{sandbox.netns} no longer leads to the pod's network namespace, which a process still uses: the network "
            "is left as it is.",
            hint,
        )
        log.warning("%s", text, extra=_about(sandbox))
        self._emit_of(sandbox, "Warning", "NetworkNamespaceUnnamed", "Check", text, hint)

    def report_specified(self, sandbox: Sandbox, claim: ClaimReference, path: Path) -> None:
        """The CDI specification of a running pod's claim was removed, and is written again."""
        hint = f"Find the program that removes files from {path.parent} or from netdra's state directory on the node."
        text = sentence(
            f'{path}, the CDI specification of ResourceClaim "{claim.name}", was removed while the pod runs; netdra '
            "has written it again. Until then, containers of the pod could not start (unresolvable CDI devices).",
            hint,
        )
        log.warning("%s", text, extra=_about(sandbox))
        self._emit_of(sandbox, "Warning", "SpecificationRestored", "Check", text, hint)

    def report_given_up(self, sandbox: Sandbox, trouble: str) -> None:
        """A network that could not be returned is tried no more, and left for a person."""
        log.error('pod "%s/%s", sandbox %s: %s', sandbox.namespace, sandbox.name, sandbox.id, trouble)
        self._emit_of(sandbox, "Warning", "NetworkGivenUp", "Detach", trouble)

    def report_drift(self, sandbox: Sandbox, drift: str) -> None:
        """The network of a pod that runs is not as it was made."""
        if self._is_new(sandbox, drift):
            log.warning("the network is not as it was made: %s", drift, extra=_about(sandbox))
            self._emit_of(sandbox, "Warning", "NetworkChanged", "Check", drift)

    def report_topologies(self, sandbox: Sandbox, changes: Sequence[str]) -> None:
        """A pod has the network that its claims were prepared with (D52), and these topologies are others by now."""
        if not changes:
            return
        keeps = "the pod keeps the network that was prepared; a pod with a new claim gets the new one"
        text = f"{'; '.join(changes)}: {keeps}"
        if self._is_new(sandbox, text):
            log.info("%s", text, extra=_about(sandbox))
            self._emit_of(sandbox, "Normal", "TopologyChanged", "Attach", text)

    def report_duplicates(self, sandbox: Sandbox, duplicates: Sequence[DuplicateAddress]) -> None:
        """A pod starts with addresses that another machine on the wire has, too."""
        if not duplicates:
            return
        hint = "Find that machine, or exclude the address from the PodNetwork."
        text = sentence(f"{'; '.join(map(str, duplicates))}.", hint)
        log.warning("%s", text, extra=_about(sandbox))
        self._emit_of(sandbox, "Warning", "DuplicateAddress", "Attach", text, hint)

    def report_link(self, sandbox: Sandbox, change: LinkChange) -> None:
        """The link of a pod's interface has lost its carrier, or has it again."""
        interface = change.interface
        device = f' (device "{interface.device}")' if interface.device else ""
        name = f'interface "{interface.if_name}"{device}'
        if change.is_lost:
            cause = "Find the program in the pod that set it down" if change.after.is_down else _CABLE
            text = sentence(f"{name} does not work any more: {change.after.silent}.", f"{cause}.")
            log.warning("%s", text, extra=_about(sandbox))
            self._emit_of(sandbox, "Warning", "LinkDown", "Watch", text, f"{cause}.")
        elif change.is_back:
            text = f"{name} has a carrier again"
            log.info("%s", text, extra=_about(sandbox))
            self._emit_of(sandbox, "Normal", "LinkUp", "Watch", text)
        elif change.is_flap:
            text = sentence(f"{name} lost its carrier for a moment.", f"{_CABLE}.")
            log.warning("%s", text, extra=_about(sandbox))
            self._emit_of(sandbox, "Warning", "LinkFlapped", "Watch", text, f"{_CABLE}.")

    def report_late(self, sandbox: Sandbox) -> None:
        """A pod that had begun without its network has it now."""
        text = "the pod began while the network driver was away; its network is complete now"
        log.warning("%s", text, extra=_about(sandbox))
        self._emit_of(sandbox, "Warning", "NetworkAttachedLate", "Attach", text)

    def report_hanging(self, plugin: str, seconds: float) -> None:
        """A plugin did not answer in time, and is left alone for a while."""
        text = f'CNI plugin "{plugin}" did not answer in time: pods that need it are refused for {seconds:.0f} s'
        log.warning("%s", text, extra=fields(name=self._node))
        node = ObjectReference(api_version="v1", kind="Node", name=self._node)
        self._emit(Occurrence(regarding=node, type="Warning", reason="PluginNotAnswering", action="Attach", note=text))

    def report_left_behind(self, device: str, finding: str, *, is_gone: bool) -> None:
        """A pod had left a link on a device in another network namespace; no pod gets the device until it is gone."""
        text = f"device {device} came back from a pod with {finding}"
        log.warning("%s", text, extra=fields(name=self._node))
        reason = "DeviceRestored" if is_gone else "DeviceNotRestored"
        node = ObjectReference(api_version="v1", kind="Node", name=self._node)
        self._emit(Occurrence(regarding=node, type="Warning", reason=reason, action="Examine", note=text))

    def forget(self, sandbox: Sandbox) -> None:
        """A pod has no problem, or is gone: its next problem is a new event."""
        self._last.pop(sandbox.uid, None)

    def _is_new(self, sandbox: Sandbox, text: str) -> bool:
        text = text.replace(sandbox.id, "").replace(sandbox.netns or sandbox.id, "")
        if self._last.get(sandbox.uid) == text:
            return False
        while len(self._last) >= MOST_PODS:
            del self._last[next(iter(self._last))]
        self._last[sandbox.uid] = text
        return True

    def _emit_of(
        self, sandbox: Sandbox, kind: Literal["Normal", "Warning"], reason: str, action: str, note: str, hint: str = ""
    ) -> None:
        pod = ObjectReference(
            api_version="v1", kind="Pod", name=sandbox.name, namespace=sandbox.namespace, uid=sandbox.uid
        )
        self._emit(Occurrence(regarding=pod, type=kind, reason=reason, action=action, note=note, next_step=hint))


def message_of(problem: NetdraError) -> str:
    """A problem's text for people: of a chain, the step that failed and the outcome of the other steps."""
    return problem.report.with_hints if isinstance(problem, AttachError) else str(problem)


def reason_of(problem: NetdraError) -> str:
    """A problem as one word for programs."""
    if isinstance(problem, AttachError):
        return "StepFailed"
    return "NotYet" if isinstance(problem, TemporaryError) else "Refused"


def _about(sandbox: Sandbox, problem: NetdraError | None = None) -> dict[str, object]:
    """The fields of a log line: the pod, and the first step that failed."""
    about = sandbox.fields
    if isinstance(problem, AttachError) and problem.report.failures:
        first = problem.report.failures[0]
        about |= Fields(topology=first.topology, step=first.step)
    if problem is not None and problem.hint:
        about |= Fields(hint=problem.hint)
    if problem is not None and problem.code:
        about |= Fields(code=problem.code)
    return fields(**about)
