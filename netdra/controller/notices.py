"""Which conditions users are told of by an event, when they come about and when they are over. Pure.

The status is what was told: a condition is told of when it is written for the first time, so a restart tells nothing
again. What changes in the message only is told again only if the object was changed too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from netdra.kube.events import ObjectReference, Occurrence
from netdra.model.meta import Condition

_ACTIONS: Mapping[str, str] = {
    "Compiled": "Compile",
    "Ready": "WriteDeviceClasses",
    "Accepted": "Accept",
    "Conflicting": "Compare",
    "Degraded": "Expose",
    "Applied": "Apply",
}
_WARNINGS = frozenset(
    {
        ("Compiled", "Unsound"),
        ("Ready", "ForeignDeviceClass"),
        ("Ready", "Refused"),
        ("Ready", "Deleting"),
        ("Accepted", "Invalid"),
        ("Accepted", "Contradictory"),
        ("Accepted", "Duplicate"),
        ("Conflicting", "SameRank"),
        ("Degraded", "FailsOnNodes"),
        ("Applied", "NotEverywhere"),
    }
)


def notices(
    regarding: ObjectReference, before: Sequence[Condition], after: Sequence[Condition]
) -> Iterator[Occurrence]:
    """What there is to tell after a status was written.

    Args:
        regarding: the object.
        before: its conditions as they stood.
        after: as they stand now.
    """
    known = {each.type: each for each in before}
    for each in after:
        old = known.get(each.type)
        if _is_warning(each):
            if old is None or _is_news(old, each):
                yield _occurrence(regarding, each, warning=True)
        elif old is not None and _is_warning(old) and old.status != each.status:
            yield _occurrence(regarding, each, warning=False)


def drift(regarding: ObjectReference, classes: Sequence[str]) -> Occurrence:
    """What there is to tell when somebody else had changed DeviceClasses of a topology."""
    named = ", ".join(f'"{name}"' for name in classes)
    note = f"DeviceClass {named} had been changed and is as the topology says again; change the topology instead"
    return Occurrence(regarding=regarding, type="Warning", reason="DriftCorrected", action=_ACTIONS["Ready"], note=note)


def _is_warning(condition: Condition) -> bool:
    return (condition.type, condition.reason) in _WARNINGS


def _is_news(old: Condition, new: Condition) -> bool:
    if (old.status, old.reason) != (new.status, new.reason):
        return True
    return old.message != new.message and old.observed_generation != new.observed_generation


def _occurrence(regarding: ObjectReference, condition: Condition, *, warning: bool) -> Occurrence:
    return Occurrence(
        regarding=regarding,
        type="Warning" if warning else "Normal",
        reason=condition.reason,
        action=_ACTIONS[condition.type],
        note=condition.message,
    )
