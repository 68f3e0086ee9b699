"""What parts that know no metrics count by themselves, carried over into the node's metrics.

Called by the node daemon after each reading of the kernel, after each attachment and after each publication.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, get_args

from netdra.chain.report import AttachReport, DetachReport, FailedAttachReport, UndoReport
from netdra.model.device import LeftOut
from netdra.model.inventory import Inventory
from netdra.model.resource import ResourceSlice
from netdra.node import metrics
from netdra.node.view import HeldDevice


class Watched(Protocol):
    """Who counts what it reads of the kernel: `netdra.discovery.watch.Watcher`."""

    rescans: int
    events: int
    overflows: int


class Discovered:
    """The discovery metrics of one watcher."""

    def __init__(self, watcher: Watched) -> None:
        self._watcher = watcher
        self._counted = (-1, 0, 0)  # the first reading is a scan too
        self._types: set[str] = set()

    def update(self, inventory: Inventory) -> None:
        """Count what was read since the last call, and show what is known now."""
        watcher = self._watcher
        before, self._counted = self._counted, (watcher.rescans, watcher.events, watcher.overflows)
        counters = (metrics.SCANS, metrics.KERNEL_EVENTS, metrics.OVERFLOWS)
        for counter, now, then in zip(counters, self._counted, before, strict=True):
            counter.inc(now - then)
        found = Counter(each.type for each in inventory.interfaces)
        self._types |= found.keys()
        for kind in self._types:
            metrics.INTERFACES.labels(kind).set(found[kind])
        metrics.UNREADABLE_FACTS.set(sum(inventory.unreadable.values()))


class Delay:
    """How long it takes from a change of the kernel until the API server has what came of it."""

    def __init__(self) -> None:
        self._since: float | None = None

    def begins(self) -> None:
        """A change was read; if one is on its way already, that one's time counts."""
        if self._since is None:
            self._since = time.monotonic()

    def ends(self, *, published: bool) -> None:
        """All that came of it is there, or nothing came of it."""
        if published and self._since is not None:
            metrics.PUBLISH_SECONDS.observe(time.monotonic() - self._since)
        self._since = None


def on_scrape(
    prepared: Callable[[], int],
    attached: Callable[[], int],
    namespaces: Callable[[], int],
    registered: Callable[[], bool],
) -> None:
    """Have what is on the disk or in another part's hand looked up when somebody asks.

    Args:
        prepared: how many claims are prepared.
        attached: how many sandboxes have a network.
        namespaces: of how many sandboxes the namespace is held.
        registered: whether the kubelet has the driver.
    """
    metrics.PREPARED.set_function(prepared)
    metrics.ATTACHMENTS.set_function(attached)
    metrics.HELD_NAMESPACES.set_function(namespaces)
    metrics.REGISTERED.set_function(registered)


def held(devices: Sequence[HeldDevice]) -> None:
    """Show which devices claims have."""
    metrics.HELD.set(len({each.key for each in devices}))
    metrics.STUCK.set(len({each.key for each in devices if each.trouble}))


def published(slices: Sequence[ResourceSlice], left_out: Mapping[LeftOut, int]) -> None:
    """Show what is to be published.

    Args:
        slices: all of the node's.
        left_out: how often devices are left out of them, and why.
    """
    devices = [device for each in slices for device in each.spec.devices]
    metrics.POOLS.set(len({each.spec.pool.name for each in slices}))
    metrics.SLICES.set(len(slices))
    metrics.DEVICES.set(len(devices))
    metrics.TAINTED.set(sum(bool(device.taints) for device in devices))
    for reason in get_args(LeftOut):
        metrics.LEFT_OUT.labels(reason).set(left_out.get(reason, 0))


def attached(report: AttachReport | FailedAttachReport) -> None:
    """Count the steps of an attachment that was done now, whether it came about or not."""
    if isinstance(report, FailedAttachReport):
        for failure in report.failures:
            outcome = "temporary" if failure.temporary else "defect" if failure.kind == "defect" else "permanent"
            metrics.STEP_FAILURES.labels(metrics.step_type(failure.plugin), outcome).inc()
        _undone(report.undone)
    elif not report.repeated:
        for step in report.steps:
            metrics.STEP_SECONDS.labels(metrics.step_type(step.plugin), "add").observe(step.seconds)


def detached(report: DetachReport) -> None:
    """Count the steps of a detachment."""
    _undone(report.undone)


def _undone(steps: Iterable[UndoReport]) -> None:
    for step in steps:
        kind = metrics.step_type(step.plugin)
        if step.restored or step.stranded:
            metrics.RESTORED.labels(kind, "permanent" if step.stranded else "ok").inc()
        if step.outcome == "undone":
            metrics.STEP_SECONDS.labels(kind, "del").observe(step.seconds)
        else:
            metrics.STEP_FAILURES.labels(kind, f"undo-{step.outcome}").inc()
