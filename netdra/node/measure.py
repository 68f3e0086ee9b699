"""What parts that know no metrics count by themselves, carried over into the node's metrics.

Called by the node daemon after each reading of the kernel, after each attachment and after each publication.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from netdra.chain.report import AttachReport, DetachReport, FailedAttachReport, UndoReport
from netdra.model.inventory import Inventory
from netdra.model.resource import ResourceSlice
from netdra.node import metrics


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


def published(slices: Sequence[ResourceSlice], left_out: Iterable[str] = ()) -> None:
    """Show what is to be published.

    Args:
        slices: all of the node's.
        left_out: for each interface or device that is not published, the reason, as the metric's help names them.
    """
    devices = [device for each in slices for device in each.spec.devices]
    metrics.POOLS.set(len({each.spec.pool.name for each in slices}))
    metrics.SLICES.set(len(slices))
    metrics.DEVICES.set(len(devices))
    metrics.TAINTED.set(sum(bool(device.taints) for device in devices))
    reasons = Counter(left_out)
    for reason in ("unselected", "excluded", "problem", "limit", "refused"):
        metrics.LEFT_OUT.labels(reason).set(reasons[reason])


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
        if step.outcome == "undone":
            metrics.STEP_SECONDS.labels(kind, "del").observe(step.seconds)
        else:
            metrics.STEP_FAILURES.labels(kind, f"undo-{step.outcome}").inc()
