"""Links that come and continue a node, and how long it takes until a driver's slices state so.

Called by `bench.publishing`. A link is an end of a veth pair, so they come in twos.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import msgspec

from bench.slices import Watched
from netdra.kernel import kinds, link
from netdra.kernel.netlink import Socket

TIMEOUT = 65.0
"""Longer than a peer's slowest poll."""

Pairs = Sequence[tuple[str, str]]


class Burst(msgspec.Struct, frozen=True):
    """Many links at once: milliseconds until all was seen, from the first and from the last one made; and writes."""

    first: float
    last: float
    writes: int


def appear(sock: Socket, seen: Watched, pairs: Pairs) -> Burst:
    """Make veth pairs, until both ends of all are published."""
    names = {name for pair in pairs for name in pair}
    writes, started = seen.writes, time.perf_counter()
    for pair in pairs:
        _add(sock, pair)
    last = time.perf_counter()
    done = seen.wait(lambda found: names <= found, TIMEOUT)
    return Burst(since(started, done), since(last, done), seen.writes - writes)


def vanish(sock: Socket, seen: Watched, pairs: Pairs) -> Burst:
    """Delete veth pairs, until neither end of any is published."""
    names = {name for pair in pairs for name in pair}
    seen_before = names <= seen.interfaces()
    writes, started = seen.writes, time.perf_counter()
    for one, _ in pairs:
        link.delete(sock, one)
    last = time.perf_counter()
    gone = seen.wait(lambda found: not names & found, TIMEOUT)
    done = gone if seen_before else None
    return Burst(since(started, done), since(last, done), seen.writes - writes)


def grow(sock: Socket, made: int, size: int) -> int:
    """Make links until there are so many; they go with the node."""
    for number in range(made // 2, size // 2):
        _add(sock, (f"a{number}", f"b{number}"))
    return size


def _add(sock: Socket, pair: tuple[str, str]) -> None:
    link.create(sock, pair[0], "veth", kinds.veth(kinds.Peer(pair[1])))


def since(started: float, moment: float | None) -> float:
    """Milliseconds; infinitely many if the moment did not come."""
    return math.inf if moment is None else (moment - started) * 1000
