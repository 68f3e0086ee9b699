"""Builds what msgspec needs to decode netdra's types, before any thread does.

Called by each daemon before its first thread, and by `netdra.chain` before it runs steps side by side. msgspec
(0.20) builds it when a type is first decoded, and another thread that decodes the same type in that moment finds it
half done and crashes the process.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import msgspec

_lock = threading.Lock()
_built: set[type[msgspec.Struct]] = set()
_seen: dict[tuple[str, ...], int] = {}
"""How many modules there were when it was built for some packages: without another one there is no other type."""


def build(*packages: str) -> None:
    """Build it for every type that is imported by now; those that were built before cost nothing.

    Args:
        packages: for the types of these alone (`netdra.cni`); without any, for all of netdra's, 0.2 to 0.5 ms each.
    """
    wanted = packages or ("netdra",)
    modules = len(sys.modules)
    if _seen.get(wanted) == modules:
        return
    with _lock:
        missing: set[type[msgspec.Struct]] = {*_types(msgspec.Struct)} - _built
        for kind in missing:
            if not any(f"{kind.__module__}.".startswith(f"{package}.") for package in wanted):
                continue
            with suppress(TypeError):  # one that cannot be decoded at all, such as one with a function in it
                msgspec.json.Decoder(kind)
            _built.add(kind)
        _seen[wanted] = modules


def _types(base: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for kind in base.__subclasses__():
        if kind.__module__.partition(".")[0] == "netdra":
            yield kind
        yield from _types(kind)
