"""A DeviceExposurePolicy that is about to be written: whether it can be used, and whether it says what was meant."""

from __future__ import annotations

from collections.abc import Mapping

from netdra.admission.messages import Verdict
from netdra.cel.analysis import examine
from netdra.cel.vocabulary import Added, of_interfaces
from netdra.exposure.check import check, try_out
from netdra.exposure.unwise import warnings
from netdra.model.policy import DeviceExposurePolicy


def review(new: DeviceExposurePolicy, policies: Mapping[str, DeviceExposurePolicy], added: Added) -> Verdict:
    """What stands against a policy, and what its author should know.

    Args:
        new: the policy.
        policies: those that are there.
        added: what policies and CustomDevices add to devices.
    """
    named = f'DeviceExposurePolicy "{new.name}"'
    if errors := check(new):
        return Verdict(tuple(f"{named}: {text}" for text in errors))
    remarks = examine(new.spec.selector.cel, of_interfaces(added))
    if wrong := [f"{named}: spec.selector.cel: {remark.what}" for remark in remarks if remark.wrong]:
        return Verdict(tuple(wrong))
    try_out(new.spec.selector.cel)
    told = [f"spec.selector.cel: {remark.what}" for remark in remarks]
    told += warnings(new, policies.values())
    return Verdict((), tuple(f"{named}: {text}" for text in told))
