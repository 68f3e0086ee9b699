"""What slices say of policies, written on them (`netdra.model.report`): devices by policy, and what is wrong.

Called by `netdra.node.publishing.offering` for each pool that it makes. Pure. The controller reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from netdra.model.device import Problem
from netdra.model.errors import InvalidInputError
from netdra.model.report import ANNOTATION, PolicyReport, ReportedSlice, ReportedSpec, of_slice, to_text
from netdra.model.resource import ResourceSlice


def annotated(
    slices: tuple[ResourceSlice, ...], policies: Mapping[str, str], problems: Iterable[Problem]
) -> tuple[ResourceSlice, ...]:
    """A pool's slices with their reports; the problems are on the last one.

    Problems come and go with devices, and those are on the last slice, where counter sets come first: so that one write
    tells of both.

    Args:
        slices: the pool's.
        policies: which policy offers which device.
        problems: what is wrong with policies there; those of no policy are for events alone.
    """
    messages: dict[str, dict[str, None]] = {}
    for problem in problems:
        if problem.policy:
            messages.setdefault(problem.policy, {})[problem.message] = None
    found = []
    for number, one in enumerate(slices):
        counted = Counter(policies[device.name] for device in one.spec.devices if policies.get(device.name))
        wrong = messages if number == len(slices) - 1 else {}
        reports = {
            policy: PolicyReport(devices=counted[policy], problems=tuple(wrong.get(policy, ())))
            for policy in {*counted, *wrong}
        }
        found.append(_with_report(one, to_text(reports)) if reports else one)
    return tuple(found)


def only_policy(one: ResourceSlice) -> str:
    """The policy that makes all devices of a slice, as far as its report tells; "" if it does not."""
    try:
        found = of_slice(ReportedSlice(metadata=one.metadata, spec=ReportedSpec(driver=one.spec.driver)))
    except InvalidInputError:
        return ""
    making = [policy for policy, said in found.items() if said.devices]
    return making[0] if len(making) == 1 else ""


def _with_report(one: ResourceSlice, text: str) -> ResourceSlice:
    metadata = msgspec.structs.replace(one.metadata, annotations={ANNOTATION: text})
    return msgspec.structs.replace(one, metadata=metadata)
