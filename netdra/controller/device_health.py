"""Taints devices for the faults that their nodes report, by DeviceTaintRules, within a cap (decision D85).

Run by `netdra.controller.daemon` while this process leads. Only the controller knows how many devices of the cluster
are tainted, so a node asks for a taint by its report and does not set it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from msgspec.structs import replace

from netdra.controller.state import State
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

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        state: State,
        cap: HealthCap,
        in_hand: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Begin nothing yet.

        Args:
            state: the controller's copies of the nodes' reports.
            cap: how many devices may be tainted.
            in_hand: entered around each decision, which the end of the process waits for.
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

        Raises:
            UnavailableError: the server is away.
            ApiError: some could not be written, though all others are; of their errors the one that is over first.
        """
        is_complete, present = True, self._rules.objects
        problems: list[ApiError] = []
        for name in sorted(present.keys() | decision.rules.keys()):
            try:
                is_complete &= await self._write_rule(present.get(name), decision.rules.get(name))
            except UnavailableError:
                raise
            except ApiError as problem:  # a rule that somebody else refuses or undoes delays no other
                problems.append(problem)
        if problems:
            raise min(problems, key=lambda problem: problem.retry_after)
        return is_complete

    async def _write_rule(self, former: DeviceTaintRule | None, wanted: DeviceTaintRule | None) -> bool:
        """Have one rule as it should be; returns whether its device is published."""
        if former is not None and former.metadata.is_ending:
            return True
        if wanted is None:
            if former is not None:
                await self._client.delete(DEVICE_TAINT_RULES, former)
                log.info("device %s is not tainted any more", _called(former))
        elif former is None:
            if not await self._is_published(wanted):
                return False
            await self._client.create(DEVICE_TAINT_RULES, wanted)
            log.warning("device %s is tainted with %s", _called(wanted), wanted.spec.taint.effect)
        elif not is_as(former, wanted):
            metadata = replace(former.metadata, labels=wanted.metadata.labels, annotations=wanted.metadata.annotations)
            await self._client.replace(DEVICE_TAINT_RULES, replace(wanted, metadata=metadata))
        return True

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


def _called(rule: DeviceTaintRule) -> str:
    selector = rule.spec.device_selector
    return f'"{selector.device}" of pool "{selector.pool}"'
