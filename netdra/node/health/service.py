"""Samples the counters of devices whose policies have health rules, and reports their faults.

Run by `netdra.node.parts`. Without such a policy nothing is read. Faults are in the node's NodeNetwork, from which the
controller taints devices (decision D85), and each is an event of the node. They are kept over a restart in a file of
this boot: after a reboot the counters begin again, and so do the faults.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, get_args

import msgspec

from netdra.health.watch import DeviceKey, Fault, HealthWatch, WatchedDevice
from netdra.kernel.sysfs import Sysfs
from netdra.kube.events import ObjectReference, Occurrence
from netdra.model.errors import UNREADABLE, NetdraError
from netdra.model.health import HealthEffect, HealthRule
from netdra.model.meta import time_text
from netdra.model.node_network import MAX_FAULTS, DeviceFault
from netdra.model.plan import PlannedDevice
from netdra.node import metrics
from netdra.node.health.sampling import SampledDevice, read
from netdra.node.settings import HEALTH_FILE
from netdra.node.traffic.interfaces import SandboxInterface
from netdra.node.traffic.links import NamespacesOf
from netdra.ops import files
from netdra.ops.boot import boot_id

log = logging.getLogger(__name__)

SECONDS = 15.0
"""Seconds between two samples."""
_WRITE_SECONDS = 2.0
_RUNBOOK = "See docs/health.md for the cause and how to repair it."


class _KeptFaults(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The faults of one boot, as they are kept over a restart."""

    boot_id: str
    faults: tuple[DeviceFault, ...] = ()
    watched: int = 0


class HealthView(Protocol):
    """The node's devices and their policies."""

    @property
    def devices(self) -> Mapping[DeviceKey, PlannedDevice]:
        """The facts of each published device."""

    @property
    def ready(self) -> bool:
        """Whether devices and policies are known."""

    @property
    def health_rules(self) -> Mapping[str, tuple[HealthRule, ...]]:
        """The health rules of each policy that has any."""


class DeviceHealthWatch:
    """The faults of this node's devices.

    Attributes:
        faults: the present ones, with the evidence of their begin.
        watched: how many devices have health rules.
    """

    def __init__(
        self,
        view: HealthView,
        namespaces: NamespacesOf,
        in_pods: Callable[[], Iterable[SandboxInterface]],
        emit: Callable[[Occurrence], None],
        node: str,
        state: Path,
        *,
        sysfs: Sysfs | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Read the faults of this boot; nothing is sampled yet.

        Args:
            view: the node's devices.
            namespaces: opens the namespaces of sandboxes.
            in_pods: the interfaces of pods.
            emit: takes an event.
            node: the node's name.
            state: the state folder.
            sysfs: the node's.
            on_change: called after `faults` or `watched` have changed.
        """
        self._view, self._namespaces, self._in_pods = view, namespaces, in_pods
        self._emit, self._node, self._path = emit, node, state / HEALTH_FILE
        self._sysfs, self._on_change = sysfs if sysfs is not None else Sysfs(), on_change
        kept = self._read()
        self._known = {_key(fault): fault for fault in kept.faults}
        now = time.monotonic()
        known = (((fault.pool, fault.device), fault.policy, fault.rule, now) for fault in kept.faults)
        self._watch = HealthWatch(known)
        # The taints must not go before the first sample: the controller counts the watched devices, too.
        self.faults: tuple[DeviceFault, ...] = kept.faults[:MAX_FAULTS]
        self.watched = kept.watched

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            try:
                await self.sample()
            except NetdraError as problem:
                log.warning("counters of devices are not read: %s", problem)
            await asyncio.sleep(SECONDS)

    async def sample(self) -> None:
        """Take one sample of all devices, and report what has changed."""
        if not self._view.ready:
            return
        rules = self._view.health_rules
        if not rules and not self.watched and not self.faults:
            return
        devices = {key: device for key, device in self._view.devices.items() if device.policy in rules}
        watched = [WatchedDevice(key, d.key or d.if_name, d.policy, rules[d.policy]) for key, d in devices.items()]
        sampled = self._sampled(devices, rules)
        samples = await asyncio.to_thread(read, sampled, self._namespaces, self._sysfs)
        self._watch.update(time.monotonic(), watched, samples)
        before = self.faults, self.watched
        self._report(self._watch.faults())
        self.watched = len(watched)
        if before != (self.faults, self.watched):
            await asyncio.to_thread(self._write)
            self._on_change()

    def _sampled(
        self, devices: Mapping[DeviceKey, PlannedDevice], rules: Mapping[str, tuple[HealthRule, ...]]
    ) -> list[SampledDevice]:
        in_pods = {
            (entry.pool, entry.device): entry for entry in self._in_pods() if entry.is_own and not entry.is_pooled
        }
        return [
            SampledDevice(
                key=key,
                if_name=in_pods[key].if_name if key in in_pods else device.if_name or device.pf_name,
                sandbox=in_pods[key].sandbox if key in in_pods else "",
                pci_address=device.pci_address,
                rdma_device=device.rdma_device,
                wanted=frozenset(rule.counter for rule in rules[device.policy]),
            )
            for key, device in devices.items()
        ]

    def _report(self, faults: Iterable[Fault]) -> None:
        """Take the present faults: new ones, and those that are over, become events."""
        present: dict[tuple[str, ...], DeviceFault] = {}
        for fault in faults:
            report = _reported(fault)
            present[_key(report)] = self._known.get(_key(report), report)
        for key, report in present.items():
            if key not in self._known:
                self._tell("Warning", "DeviceFaulty", f"{report.text}. {_effect(report)}. {_RUNBOOK}")
        for key, report in self._known.items():
            if key not in present:
                note = (
                    f'device "{report.device}" of pool "{report.pool}": {report.counter} is below the threshold again'
                )
                self._tell("Normal", "DeviceRecovered", f'{note} (policy "{report.policy}", rule "{report.rule}")')
        self._known = present
        # The strongest effects first: the controller sees those.
        order = sorted(present.values(), key=lambda report: (report.effect == "Report", report.since, _key(report)))
        self.faults = tuple(order[:MAX_FAULTS])
        counts = Counter(report.effect for report in order)
        for effect in get_args(HealthEffect):
            metrics.FAULTS.labels(effect).set(counts[effect])

    def _tell(self, kind: str, reason: str, note: str) -> None:
        log.warning("%s", note) if kind == "Warning" else log.info("%s", note)
        node = ObjectReference(api_version="v1", kind="Node", name=self._node)
        is_problem = kind == "Warning"
        self._emit(
            Occurrence(
                regarding=node,
                type="Warning" if is_problem else "Normal",
                reason=reason,
                action="Watch",
                note=note,
                next_step=_RUNBOOK if is_problem else "",
            )
        )

    def _read(self) -> _KeptFaults:
        nothing = _KeptFaults(boot_id=boot_id())
        try:
            kept = msgspec.json.decode(self._path.read_bytes(), type=_KeptFaults)
        except FileNotFoundError:
            return nothing
        except (OSError, *UNREADABLE) as problem:
            log.warning("%s cannot be read: %s; faults of devices begin again", self._path, problem)
            return nothing
        return kept if kept.boot_id == nothing.boot_id else nothing

    def _write(self) -> None:
        try:
            kept = _KeptFaults(boot_id=boot_id(), faults=tuple(self._known.values()), watched=self.watched)
            files.replace(self._path, msgspec.json.encode(kept), _WRITE_SECONDS)
        except (OSError, NetdraError) as problem:
            log.warning("the faults of devices are not written: %s", problem)


def _key(report: DeviceFault) -> tuple[str, ...]:
    return report.pool, report.device, report.policy, report.rule


def _effect(report: DeviceFault) -> str:
    if report.effect == "Report":
        return "It is only reported"
    return f"The controller taints it with {report.effect}, unless too many devices are tainted"


def _reported(fault: Fault) -> DeviceFault:
    now, clock = time.monotonic(), datetime.now(UTC).timestamp()

    def text(at: float) -> str:
        return time_text(datetime.fromtimestamp(clock - now + at, UTC))

    return DeviceFault(
        pool=fault.key[0],
        device=fault.key[1],
        policy=fault.policy,
        rule=fault.rule.name,
        effect=fault.effect,
        since=text(fault.since),
        counter=fault.rule.counter,
        increase=fault.increase,
        at_least=fault.rule.at_least,
        within_seconds=fault.rule.within_seconds,
        values=tuple(f"{text(at).partition('T')[2]} {value}" for at, value in fault.values),
    )
