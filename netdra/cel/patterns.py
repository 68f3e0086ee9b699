"""Regular expressions in linear time: RE2, the engine of Kubernetes' `matches`, `find` and `findAll`, in bounded size.

RE2 takes time in proportion to the text, but a pattern of thirty characters may be a program of half a million
instructions, which is what the time is in proportion to as well. So a pattern may need 64 KiB, and has to be written in
the expression: then `netdra.cel.bounds` knows what it costs before it is ever asked. RE2 is loaded with the first
pattern, for few selectors have one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

MAX_MEMORY = 64 * 1024
"""Bytes that RE2 may take for a pattern; a thousand instructions, where `^mlx5_[0-9]+$` has ten."""


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = MAX_MEMORY
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as problem:
        reason = problem.args[0] if problem.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"regular expression {pattern[:64]!r}: {text}") from None


def size(pattern: str) -> int:
    """How many instructions a pattern is.

    Raises:
        ValueError: the pattern is not valid, or needs too much memory.
    """
    return int(_compiled(pattern).programsize)


def find(text: str, pattern: str) -> str:
    """The first match, "" if none exists."""
    hit = _compiled(pattern).search(text)
    return str(hit.group()) if hit else ""


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """All matches that do not overlap, or the first few; an empty one right behind another does not count, as in Go."""
    matches: list[str] = []
    end = -1
    for hit in _compiled(pattern).finditer(text):
        if limit >= 0 and len(matches) >= limit:
            break
        if hit.end() > hit.start() or hit.start() != end:
            matches.append(str(hit.group()))
        end = hit.end()
    return matches
