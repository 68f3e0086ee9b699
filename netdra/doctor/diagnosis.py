"""The result of one check, as it is printed. Made by the verdicts, shown by `netdra doctor`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable
from typing import Literal, TypeVar

import msgspec

from netdra.model.errors import NetdraError, code_of, with_code, without_code

T = TypeVar("T")

Level = Literal["ok", "warning", "error"]
Where = Literal["cluster", "neutron", "node"]
LEVELS: tuple[Level, ...] = ("ok", "warning", "error")


class Diagnosis(msgspec.Struct, frozen=True, omit_defaults=True):
    """One check.

    Attributes:
        where: cluster, node, or the cloud's Neutron.
        check: the subject.
        level: ok; warning: something that netdra can do will not work, or could not be seen; error: netdra itself
            will not work.
        seen: what is there.
        fix: what to do, a command or a setting; "" where all is well.
        code: of a warning or an error (`netdra.model.errors.NetdraError`); "" where all is well.
    """

    where: Where
    check: str
    level: Level
    seen: str
    fix: str = ""
    code: str = ""

    @property
    def coded(self) -> str:
        """The state with the code."""
        return with_code(self.seen, self.code)


class Unseen(msgspec.Struct, frozen=True):
    """A subject that could not be checked, and why."""

    why: str


def diagnose(where: Where, check: str, level: Level, seen: str, fix: str = "", *, code: str = "") -> Diagnosis:
    """A check's result; a code in the text, e.g. of an error of the cloud, is its code."""
    return Diagnosis(where, check, level, without_code(seen), fix, code_of(seen) or code)


def number(version: str) -> tuple[int, ...]:
    """`v1.37.1-rc.0+x` as (1, 37, 1)."""
    parts = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(map(int, parts[1].split("."))) if parts else (0,)


def worst(findings: Iterable[Diagnosis]) -> Level:
    """The worst level of the findings; "ok" without any."""
    return max((finding.level for finding in findings), key=LEVELS.index, default="ok")


async def attempt(work: Awaitable[T]) -> T | Unseen:
    """A look's result, or why none exists."""
    try:
        return await work
    except NetdraError as problem:
        return Unseen(with_code(problem.what, problem.code))
