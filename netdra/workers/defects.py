"""A defect of netdra in the check of an object: its place, and the texts for the object's author and for the log. Pure.

Used by `netdra.workers` and by the webhook. A defect of netdra is not an error of the object.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import msgspec

_PACKAGE = __name__.partition(".")[0]
_MOST_CALLS, _MOST_CHARACTERS = 20, 200


class Defect(msgspec.Struct, frozen=True):
    """A defect.

    Attributes:
        place: the error's kind, and netdra's function: "TypeError in netdra.rules.bonds.one_mac, line 30".
        report: a line for the log: the error with its text, and the calls that led to it.
    """

    place: str
    report: str


def of(error: BaseException) -> Defect:
    """The defect that an error shows. No line of source is read, for a worker cannot open files."""
    kind, calls = type(error).__name__, [*_calls(error)]
    text = str(error)[:_MOST_CHARACTERS]
    return Defect(
        place=f"{kind} in {calls[-1] if calls else 'a library'}",
        report=f"a defect of netdra: {kind}: {text!r} in {' > '.join(calls[-_MOST_CALLS:])}",
    )


def remark(place: str) -> str:
    """The warning for the author of an object whose check failed at a place."""
    return f"netdra could not check this object: internal error ({place}); please report it to netdra's developers"


def _calls(error: BaseException) -> Iterator[str]:
    """Netdra's own functions among the calls that led to an error, the last one last, with their lines."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] == _PACKAGE:
            yield f"{module}.{frame.f_code.co_qualname}, line {line}"
