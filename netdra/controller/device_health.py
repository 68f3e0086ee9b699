"""Taints devices for the faults that their nodes report, by DeviceTaintRules, within a cap (decision D85).

Run by `netdra.controller.daemon` while this process leads. Only the controller knows how many devices of the cluster
are tainted, so a node asks for a taint by its report and does not set it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from contextlib import ExitStack

from msgspec.structs import replace

from netdra.controller.state import InHand, State
from netdra.health.rules import HealthCap, TaintDecision, decide, is_as
from netdra.kube.client import Client, Selection
from netdra.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError, UnavailableError
from netdra.kube.events import ObjectReference, Occurrence, Recorder
from netdra.kube.queue import AGAIN, WorkQueue
from netdra.kube.reflector import Reflector
from netdra.kube.resources import DEVICE_TAINT_RULES, RESOURCE_SLICES
from netdra.kube.store import Change, Store
from netdra.model import names
from netdra.model.errors import sentence
from netdra.model.node_network import NodeNetworkReport
from netdra.model.taint_rule import DeviceTaintRule

log = logging.getLogger(__name__)

BATCH_SECONDS = 0.5
"""How long further reports are waited for: a fault of a switch is one of many nodes."""
AGAIN_SECONDS = 30.0
"""Seconds until the slices of a node are read again that reports a fault of a device which it does not publish."""
_ALL = "all"
_HINT = (
    "Compare the threshold with the counters (docs/health.md). If the devices are really faulty, raise the cap "
    "(chart value controller.health)"
)


class DeviceTaints:
    """The taints for faults of devices, for one term."""

    def __init__(self, client: Client, recorder: Recorder, state: State, cap: HealthCap, in_hand: InHand) -> None:
        """Begin nothing yet.

        Args:
            state: the controller's copies of the nodes' reports.
            cap: how many devices may be tainted.
        """
        self._client, self._recorder, self._state = client, recorder, state
        self._cap, self._in_hand = cap, in_hand
        self._rules: Store[DeviceTaintRule] = Store()
        self._is_full = False
        self.work: WorkQueue[str] = WorkQueue("device-health", self._decide)

    async def run(self) -> None:
        """Work until cancelled."""
        ours = Selection(label_selector=names.HEALTH_LABEL)
        reflector = Reflector(self._client, DEVICE_TAINT_RULES, self._rules, ours, vital=False)
        with ExitStack() as following:
            following.enter_context(self._rules.following(lambda _: self.work.add(_ALL, BATCH_SECONDS)))
            following.enter_context(self._state.nodes.following(self._on_node_change))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(reflector.run())
                await self._rules.wait_synced()
                await self._state.nodes.wait_synced()
                self.work.add(_ALL)
                tasks.create_task(self.work.run())

    def _on_node_change(self, change: Change[NodeNetworkReport]) -> None:
        former, latest = (
            (found.status.faults, found.status.watched_devices) if found is not None and found.status else None
            for found in (change.old, change.new)
        )
        if former != latest:
            self.work.add(_ALL, BATCH_SECONDS)

    async def _decide(self, _: str) -> float | None:
        """Have the rules as they should be."""
        with self._in_hand():
            present = self._rules.objects
            decision = decide(self._state.nodes.objects.values(), present.values(), self._cap)
            self._report(decision)
            try:
                is_complete = await self._write(decision)
            except (AlreadyExistsError, ConflictError, NotFoundError) as problem:
                log.debug("taints for faults changed meanwhile: %s", problem)
                return AGAIN
        if not is_complete:
            self.work.add(_ALL, AGAIN_SECONDS)
        return None

    async def _write(self, decision: TaintDecision) -> bool:
        """Write the rules; returns whether each has one whose device is published.

        A rule that another client refuses or undoes delays no other. But for each that is still there and should not
        be, a new one waits, so that no more devices are tainted than the cap allows.

        Raises:
            UnavailableError: the server is away.
            ApiError: some could not be written; of their errors the one that is over first.
        """
        present, problems = self._rules.objects, list[ApiError]()
        unwanted = [rule for name, rule in present.items() if name not in decision.rules]
        problems += await _each(self._remove(rule) for rule in unwanted if not rule.metadata.is_ending)
        left = len(problems) + sum(rule.metadata.is_ending for rule in unwanted)
        problems += await _each(
            self._change(former, decision.rules[name])
            for name, former in present.items()
            if name in decision.rules and not former.metadata.is_ending
        )
        new = [rule for name, rule in decision.rules.items() if name not in present]
        published = [rule for rule in new if await self._is_published(rule)]
        problems += await _each(self._add(rule) for rule in published[: max(0, len(published) - left)])
        if problems:
            raise min(problems, key=lambda problem: problem.retry_after)
        return len(published) == len(new)

    async def _remove(self, rule: DeviceTaintRule) -> None:
        await self._client.delete(DEVICE_TAINT_RULES, rule)
        log.info("device %s is not tainted any more", _called(rule))

    async def _change(self, former: DeviceTaintRule, wanted: DeviceTaintRule) -> None:
        if not is_as(former, wanted):
            metadata = replace(former.metadata, labels=wanted.metadata.labels, annotations=wanted.metadata.annotations)
            await self._client.replace(DEVICE_TAINT_RULES, replace(wanted, metadata=metadata))

    async def _add(self, rule: DeviceTaintRule) -> None:
        await self._client.create(DEVICE_TAINT_RULES, rule)
        log.warning("device %s is tainted with %s", _called(rule), rule.spec.taint.effect)

    async def _is_published(self, rule: DeviceTaintRule) -> bool:
        """Whether the node that reports the fault publishes the device: its report might name another one's."""
        selector = rule.spec.device_selector
        reporting = [
            report.metadata.name
            for report in self._state.nodes.objects.values()
            if report.status is not None
            and any((fault.pool, fault.device) == (selector.pool, selector.device) for fault in report.status.faults)
        ]
        for node in reporting:
            fields = f"spec.driver={names.DRIVER},spec.nodeName={node}"
            for found in await self._client.list(RESOURCE_SLICES, Selection(field_selector=fields)):
                is_pool = found.spec.pool.name == selector.pool
                if is_pool and any(device.name == selector.device for device in found.spec.devices):
                    return True
        log.warning("a node reports a fault of device %s, which it does not publish", _called(rule))
        return False

    def _report(self, decision: TaintDecision) -> None:
        """Report once that the cap is reached, until it is not any more."""
        kept = decision.kept
        if kept and not self._is_full:
            policies = sorted({fault.policy for _, fault in kept})
            shares = f"{self._cap.cluster} % of the cluster's devices and {self._cap.node} % of a node's"
            node, fault = kept[0]
            note = sentence(
                f"{len(kept)} faulty devices are not tainted: at most {shares} are, at one time. "
                f"The first is on node {node}: {fault.text}.",
                f"{_HINT}.",
            )
            log.warning("%s", note)
            regarding = ObjectReference(api_version=names.GROUP_VERSION, kind="DeviceExposurePolicy", name=policies[0])
            self._recorder.emit(
                Occurrence(
                    regarding=regarding,
                    type="Warning",
                    reason="HealthCapReached",
                    action="Taint",
                    note=note,
                    next_step=f"{_HINT}.",
                )
            )
        self._is_full = bool(kept)


async def _each(acts: Iterable[Awaitable[None]]) -> list[ApiError]:
    """Do all of them; returns the errors.

    Raises:
        UnavailableError: the server is away.
    """
    problems: list[ApiError] = []
    for act in acts:
        try:
            await act
        except UnavailableError:
            raise
        except ApiError as problem:
            problems.append(problem)
    return problems


def _called(rule: DeviceTaintRule) -> str:
    selector = rule.spec.device_selector
    return f'"{selector.device}" of pool "{selector.pool}"'
