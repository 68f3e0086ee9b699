"""The errors and warnings of a DeviceExposurePolicy: whether it can be used, and whether it is likely meant so.

One sentence has its effect on the devices of the nodes that report, as far as there is time. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from netdra.cel.analysis import Remark, examine
from netdra.exposure import unwise
from netdra.exposure.check import check
from netdra.exposure.foresight import UNCHANGED, DeviceForecast, Foresight, InterfaceReports, SimilarInterfaces
from netdra.exposure.ranks import RankIndex
from netdra.model.findings import Finding, about_object
from netdra.model.policy import DeviceExposurePolicy
from netdra.review.world import World
from netdra.rules import shipped
from netdra.vocabulary import of_interfaces

_TOO_MUCH = "takes too long to evaluate for all reported devices; use `netdra plan --cluster` to show its effect"


def errors(new: DeviceExposurePolicy, world: World) -> Iterator[Finding]:
    """The errors of a policy."""
    wrong = check(new)
    yield from (about_object("DeviceExposurePolicy", new.name, finding) for finding in wrong)
    if not wrong and not world.is_stored:
        remarks = examine(new.spec.selector.cel, of_interfaces(world.added))
        yield from (_of_selector(new, remark) for remark in remarks if remark.wrong)


def warnings(
    new: DeviceExposurePolicy, world: World, old: DeviceExposurePolicy | None, in_time: Callable[[], bool]
) -> Iterator[Finding]:
    """The warnings for the author of a policy without errors, the policy's effect first.

    Args:
        new: the policy as it will be.
        world: the other objects.
        old: the policy as it is; None if it is new.
        in_time: whether there is time to work out the policy's effect.
    """
    if done := effect(world.policies.values(), old, new, world.reported, in_time):
        yield about_object("DeviceExposurePolicy", new.name, Finding(done, code="ND1246"))
    remarks = examine(new.spec.selector.cel, of_interfaces(world.added))
    yield from (_of_selector(new, remark) for remark in remarks)
    rivals = RankIndex(world.policies.values()).of(new) if world.rivals is None else world.rivals
    own = {schema.spec.cni_type for schema in world.schemas.values()}
    yield from (about_object("DeviceExposurePolicy", new.name, finding) for finding in unwise.warnings(new, rivals))
    yield from (
        about_object("DeviceExposurePolicy", new.name, finding)
        for finding in unwise.misspelt_plugins(new, shipped.types() | own)
    )


def of_deletion(old: DeviceExposurePolicy, world: World, in_time: Callable[[], bool]) -> Iterator[Finding]:
    """The effect of a policy's deletion, which is never refused."""
    if done := effect(world.policies.values(), old, None, world.reported, in_time):
        yield about_object("DeviceExposurePolicy", old.name, Finding(f"its deletion {done}", code="ND1247"))


def _of_selector(policy: DeviceExposurePolicy, remark: Remark) -> Finding:
    return about_object(
        "DeviceExposurePolicy", policy.name, Finding(remark.what, path=("spec", "selector", "cel"), code="ND1248")
    )


class _Effect:
    """The effect of a policy on all interfaces that were inspected."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self.hidden = self.allocated = self.offered = self.taken = self.left = self.unknown = self.matched = 0
        self.pooled = self.alone = self.pooled_on = self.alone_on = 0
        self.hidden_on = self.offered_on = self.taken_on = self.left_on = 0

    def add(self, seen: SimilarInterfaces, change: DeviceForecast | None) -> None:
        if change is None:
            self.unknown += seen.count
            return
        if change is UNCHANGED:
            return
        nodes = int(seen.nodes, 16)
        self.matched += seen.count * change.matched
        self.hidden += seen.count * len(change.removed)
        self.allocated += seen.count * sum(device.allocated for device in change.removed)
        self.offered += seen.count * len(change.added)
        pooled = change.pooled is not None and change.pooled != change.was_pooled
        alone = change.was_pooled is not None and change.pooled is None
        self.pooled += seen.count * pooled
        self.alone += seen.count * alone
        self.pooled_on |= nodes if pooled else 0
        self.alone_on |= nodes if alone else 0
        taken = sum(policy == self._policy for policy in change.reassigned.values())
        left = len(change.reassigned) - taken
        self.taken += seen.count * taken
        self.left += seen.count * left
        self.hidden_on |= nodes if change.removed else 0
        self.offered_on |= nodes if change.added else 0
        self.taken_on |= nodes if taken else 0
        self.left_on |= nodes if left else 0


def effect(
    policies: Iterable[DeviceExposurePolicy],
    old: DeviceExposurePolicy | None,
    new: DeviceExposurePolicy | None,
    reported: InterfaceReports,
    in_time: Callable[[], bool],
) -> str:
    """The effect of a policy in one sentence; "" without any effect, or if no node reports.

    Args:
        policies: the present policies.
        old: the policy as it is; None if it is new.
        new: the policy as it will be; None if it is deleted.
        reported: the nodes' reports, by the attributes that the policy asks for.
        in_time: whether there is time to continue.
    """
    if not reported.nodes:
        return ""
    if reported.left and not reported.seen:
        return _TOO_MUCH
    removed = [old] if old is not None else []
    present = tuple(policies)
    here = Foresight(present, removed, [new] if new is not None else [])
    elsewhere = here if new is None or new.spec.node_selector is None else Foresight(present, removed, [])
    outcome = _Effect(new.name if new is not None else "")
    for seen in reported.seen:
        if not in_time():
            return _TOO_MUCH
        outcome.add(seen, (here if seen.holds else elsewhere).of(seen))
    return _sentence(outcome, reported, written=new is not None)


def _sentence(change: _Effect, reported: InterfaceReports, *, written: bool) -> str:
    parts = []
    if change.hidden:
        allocated = f", {change.allocated} of them allocated" if change.allocated else ""
        parts.append(f"hides {_counted(change.hidden, 'device')} on {_nodes(change.hidden_on)}{allocated}")
    if change.offered:
        parts.append(f"offers {_counted(change.offered, 'device')} more on {_nodes(change.offered_on)}")
    if change.pooled:
        parts.append(f"pools {_counted(change.pooled, 'VF')} on {_nodes(change.pooled_on)}")
    if change.alone:
        parts.append(f"stops pooling {_counted(change.alone, 'VF')} on {_nodes(change.alone_on)}")
    if change.taken:
        parts.append(f"takes over {_counted(change.taken, 'device')} on {_nodes(change.taken_on)} from other policies")
    if change.left:
        parts.append(f"leaves {_counted(change.left, 'device')} on {_nodes(change.left_on)} to other policies")
    if written and not change.matched and not change.unknown and not reported.left:
        parts.append(f"does not match any interface reported by {_counted(reported.nodes, 'node')}")
    if change.unknown:
        parts.append(
            f"cannot be evaluated for {_counted(change.unknown, 'interface')}, which report too few attributes"
        )
    if parts and reported.left:
        parts.append(f"{_counted(reported.left, 'node')} more were not evaluated")
    return "; ".join(parts)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _nodes(mask: int) -> str:
    return _counted(mask.bit_count(), "node")
