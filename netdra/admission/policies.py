"""A DeviceExposurePolicy that is about to be written: whether it can be used, and whether it says what was meant."""

from __future__ import annotations

from collections.abc import Callable

from netdra.admission.cluster import Cluster
from netdra.admission.effects import effect
from netdra.admission.messages import Verdict
from netdra.cel.analysis import examine
from netdra.cel.vocabulary import of_interfaces
from netdra.exposure.check import check, try_out
from netdra.exposure.unwise import warnings
from netdra.model.policy import DeviceExposurePolicy


def review(
    new: DeviceExposurePolicy, old: DeviceExposurePolicy | None, cluster: Cluster, in_time: Callable[[], bool]
) -> Verdict:
    """What stands against a policy, and what its author should know.

    Args:
        new: the policy as it will be.
        old: the policy as it is; None if it is new.
        cluster: what else is there.
        in_time: whether there is time to tell what the policy will do.
    """
    named = f'DeviceExposurePolicy "{new.name}"'
    if errors := check(new):
        return Verdict(tuple(f"{named}: {text}" for text in errors))
    remarks = examine(new.spec.selector.cel, of_interfaces(cluster.added))
    if wrong := [f"{named}: spec.selector.cel: {remark.what}" for remark in remarks if remark.wrong]:
        return Verdict(tuple(wrong))
    try_out(new.spec.selector.cel)
    told = [f"spec.selector.cel: {remark.what}" for remark in remarks]
    told += warnings(new, cluster.policies.values())
    if done := effect(cluster.policies.values(), old, new, cluster.reported, in_time):
        told.insert(0, done)
    return Verdict((), tuple(f"{named}: {text}" for text in told))


def review_deletion(old: DeviceExposurePolicy, cluster: Cluster, in_time: Callable[[], bool]) -> Verdict:
    """What its deletion will do; nothing stands against one."""
    done = effect(cluster.policies.values(), old, None, cluster.reported, in_time)
    return Verdict((), (f'DeviceExposurePolicy "{old.name}": its deletion {done}',) if done else ())
