"""Times as people read them: `3 min ago`, with the exact one in the element; and ages in few letters. Pure."""

from __future__ import annotations

from netdra.console.markup import Markup, element
from netdra.model.meta import time_of

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def age(time: str, now: str) -> str:
    """How long ago a time is, e.g. `3 min`; "" if one of the times is unknown. The script has the same rule."""
    if not time or not now:
        return ""
    try:
        seconds = int((time_of(now) - time_of(time)).total_seconds())
    except ValueError:
        return ""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{max(seconds, 0)} s"


def ago(time: str, now: str) -> Markup | None:
    """A time as an element; None if it is unknown."""
    if not time:
        return None
    old = age(time, now)
    return element("time", f"{old} ago" if old else time, datetime=time, title=time)
