"""How long discovery takes: all of 2,000 and 5,000 links, and one that changed.

Links are veth pairs in namespaces that are gone afterwards (root). CPU times are the best of several rounds, taken in
turns with their references, because neighbours make noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyroute2 import IPRoute

from bench.figures import Figure
from netdra.discovery.live import Kernel
from netdra.discovery.scan import scan
from netdra.discovery.watch import Watcher
from netdra.kernel import kinds, link
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace

LINKS, MANY_LINKS, FEW_LINKS = 2000, 5000, 1000
BARE_RATIO = 3.0
PYROUTE2_RATIO = 0.1
MANY_LINKS_MS = 500.0
GROWTH_RATIO = 1.5
CHANGE_MS = 5.0
ROUNDS = 7
QUICK = {"LINKS": 20, "FEW_LINKS": 20, "MANY_LINKS": 60, "ROUNDS": 2}


def run() -> Iterator[Figure]:
    """The figures of discovery."""
    yield from _full()
    yield from _growth()
    yield _change()


def _full() -> Iterator[Figure]:
    with _namespace(LINKS) as (namespace, sock), namespace.run(Kernel) as kernel:
        ours, bare, peer = namespace.run(lambda: _beside_pyroute2(kernel, sock))
    size = f"{LINKS:,} links, CPU time"
    yield Figure("full discovery", ours, "ms", note=size)
    yield Figure("bare dump", bare, "ms", note=f"{size}; the same code without classification")
    yield Figure("pyroute2 get_links()", peer, "ms", note=size)
    yield Figure("full discovery / bare dump", ours / bare, "x", BARE_RATIO)
    yield Figure("full discovery / pyroute2 get_links()", ours / peer, "x", PYROUTE2_RATIO)


def _beside_pyroute2(kernel: Kernel, sock: Socket) -> list[float]:
    """In a thread that is in the namespace, where pyroute2 opens its sockets."""
    with IPRoute() as theirs:
        assert len(list(theirs.get_links())) == LINKS + 1
        return _in_turns(lambda: scan(kernel=kernel), lambda: link.dump(sock), lambda: list(theirs.get_links()))


def _growth() -> Iterator[Figure]:
    walls, perlink = [], []
    for size in (FEW_LINKS, MANY_LINKS):
        with _namespace(size) as (namespace, _), namespace.run(Kernel) as kernel:
            walls.append(min(_milliseconds(lambda: scan(kernel=kernel), time.perf_counter) for _ in range(ROUNDS)))
            perlink.append(min(_milliseconds(lambda: scan(kernel=kernel)) for _ in range(ROUNDS)) / size)
    yield Figure("full discovery, many links", walls[1], "ms", MANY_LINKS_MS, f"{MANY_LINKS:,} links, wall time")
    note = f"CPU time a link at {MANY_LINKS:,} / at {FEW_LINKS:,}; 1 is linear"
    yield Figure("growth", perlink[1] / perlink[0], "x", GROWTH_RATIO, note)


def _change() -> Figure:
    taken = []
    with _namespace(LINKS) as (namespace, sock), namespace.run(lambda: Watcher(settle=0.0)) as watcher:
        for mtu in range(1400, 1400 + ROUNDS):
            link.change(sock, "a7", mtu=mtu)
            started = time.process_time()
            change, inventory = watcher.handle(), watcher.inventory
            taken.append((time.process_time() - started) * 1000)
            assert [after.mtu for _, after in change.changed] == [mtu]
            assert len(inventory.interfaces) == LINKS + 1
        assert watcher.rescans == 0
    return Figure(
        "one changed link", min(taken), "ms", CHANGE_MS, f"of {LINKS:,}, until the inventory is right; CPU time"
    )


@contextmanager
def _namespace(links: int) -> Iterator[tuple[Namespace, Socket]]:
    with Namespace.anonymous() as namespace, namespace.socket() as sock:
        for number in range(links // 2):
            link.create(sock, f"a{number}", "veth", kinds.veth(kinds.Peer(f"b{number}")))
        yield namespace, sock


def _in_turns(*works: Callable[[], object]) -> list[float]:
    rounds = [[_milliseconds(work) for work in works] for _ in range(ROUNDS)]
    return [min(column) for column in zip(*rounds, strict=True)]


def _milliseconds(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    started = clock()
    work()
    return (clock() - started) * 1000
