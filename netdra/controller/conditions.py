"""Conditions of a status: what is to be said now, with the time at which it last became different.

Used by everything in this package that makes a status. Follows k8s.io/apimachinery's meta.SetStatusCondition: the time
changes with `status` only, so that saying the same again is no change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from netdra.model.meta import Condition

MAX_MESSAGE = 4096


class Said(msgspec.Struct, frozen=True):
    """One condition as it is to be; `reason` is one word for programs."""

    type: str
    holds: bool
    reason: str
    message: str = ""


def conditions(
    said: Iterable[Said], before: Sequence[Condition], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """The conditions of a status.

    Args:
        said: what holds.
        before: the status as it stands.
        generation: that of the object which was looked at.
        now: the time, with its zone.
    """
    known = {each.type: each for each in before}
    return tuple(_condition(each, known.get(each.type), generation, now) for each in said)


def _condition(said: Said, before: Condition | None, generation: int, now: datetime) -> Condition:
    made = Condition(
        type=said.type,
        status="True" if said.holds else "False",
        reason=said.reason,
        message=said.message[:MAX_MESSAGE],
        last_transition_time=now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        observed_generation=generation,
    )
    if before is not None and before.status == made.status:
        return replace(made, last_transition_time=before.last_transition_time)
    return made
