"""What one check found, as it is printed. Made by the verdicts, shown by `netdra doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Level = Literal["ok", "warning", "error"]
LEVELS: tuple[Level, ...] = ("ok", "warning", "error")


class Diagnosis(msgspec.Struct, frozen=True, omit_defaults=True):
    """One check.

    Attributes:
        where: cluster, node, or the cloud's Neutron.
        check: what was looked at.
        level: ok; warning: something that netdra can do will not work, or could not be seen; error: netdra itself
            will not work.
        seen: what is there.
        fix: what to do, a command or a setting; "" where all is well.
    """

    where: Literal["cluster", "neutron", "node"]
    check: str
    level: Level
    seen: str
    fix: str = ""


def worst(findings: Iterable[Diagnosis]) -> Level:
    """The worst level of all."""
    return max((finding.level for finding in findings), key=LEVELS.index, default="ok")
