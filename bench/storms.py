"""The cost of links or routes that change hundreds of times a second: the follower's CPU time, and the hooks.

The kernel's events are followed as the daemon follows them, in a namespace of the benchmark; another process makes the
changes, so that its CPU time does not count. The hooks are those of `bench.hook`, which moves a device by host-device,
with a thousand other links on the node: at rest, and while links change. Between two pods the returned device is
examined, as the daemon has it done in the background. A dump of all links is interrupted by most of these changes, and
all readings of the follower take place as well.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import msgspec

from bench.figures import Figure
from bench.hook import BUDGET, bed, examine
from netdra.chain import site
from netdra.discovery.watch import Watcher
from netdra.kernel import kinds, link, netns, route
from netdra.kernel.device_files import DeviceFiles
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from netdra.kernel.route import Route
from netdra.kernel.sysfs import Sysfs
from netdra.node.nri.hooks import Sandbox
from netdra.node.publishing.interfaces import Interfaces

ROUTES, ROUTE_RATE = 20_000, 200
LINKS, LINK_RATE = 1000, 500
SECONDS = 20.0
HOOKS = 100
ROUTES_PERCENT = 3.0
STORM_RATIO = 2.0
RUN_MS = 6.0
SPARE = 100
QUICK = {"ROUTES": 200, "LINKS": 20, "SECONDS": 0.5, "HOOKS": 3}
_HOOKS = ("RunPodSandbox", "StopPodSandbox")


class Followed(msgspec.Struct, frozen=True):
    """The cost of following for some seconds: CPU time, and the watcher's counts."""

    seconds: float
    cpu: float
    events: int
    scans: int
    overflows: int

    @property
    def percent(self) -> float:
        """Of one CPU."""
        return 100 * self.cpu / self.seconds

    @property
    def note(self) -> str:
        """The counts, in words."""
        rate = self.events / self.seconds
        return f"of one CPU; {rate:.0f} events/s, {self.scans} full readings, {self.overflows} overflows"


def run() -> Iterator[Figure]:
    """The figures."""
    yield from _routes()
    yield from _links()


def _routes() -> Iterator[Figure]:
    with _namespace() as (name, namespace, sock):
        _make_links(sock, 2)
        link.change(sock, "a0", up=True)
        link.change(sock, "b0", up=True)
        index = link.get(sock, "a0").index
        for number in range(ROUTES):
            route.add(sock, _route(number, index))
        with _changes("routes", name, ROUTE_RATE):
            followed = asyncio.run(_follow(namespace))
    what = f"{ROUTES:,} routes, {ROUTE_RATE} changes/s"
    yield Figure(f"following {what}", followed.percent, "%", ROUTES_PERCENT, followed.note)


def _links() -> Iterator[Figure]:
    with _namespace() as (name, namespace, sock):
        _make_links(sock, LINKS)
        quiet = asyncio.run(_hooks(namespace))
        with _changes("links", name, LINK_RATE):
            followed = asyncio.run(_follow(namespace))
            stormy = asyncio.run(_hooks(namespace))
    what = f"{LINK_RATE} changes/s of links"
    yield Figure(f"following {what}", followed.percent, "%", note=f"{LINKS:,} links; {followed.note}")
    for hook in _HOOKS:
        note = f"host-device, median of {HOOKS} with {LINKS:,} other links; with the kernel's {_ms(quiet[hook]):.2f} ms"
        yield Figure(f"{hook}, netdra's own time", _ms(quiet[f"{hook}, own"]), "ms", RUN_MS, note)
        ratio = _p99(stormy[hook]) / _p99(quiet[hook])
        note = f"{1000 * _p99(stormy[hook]):.1f} ms with {what}, {1000 * _p99(quiet[hook]):.1f} ms without"
        yield Figure(f"{hook} in a storm, p99", ratio, "x", STORM_RATIO, note)


async def _follow(namespace: Namespace) -> Followed:
    """Follow as the daemon does, for some seconds after the first reading."""

    async def at_once() -> None:
        pass

    async with Interfaces.watching(lambda: namespace.run(Watcher), DeviceFiles()) as interfaces:
        watcher = interfaces.watcher
        began, cpu, events = time.monotonic(), time.process_time(), watcher.events
        while (seconds := time.monotonic() - began) < SECONDS:
            await interfaces.next(at_once)
        return Followed(seconds, time.process_time() - cpu, watcher.events - events, watcher.rescans, watcher.overflows)


async def _hooks(node: Namespace) -> dict[str, list[float]]:
    """Seconds of the hooks of pods that begin and end, one after the other, and of these netdra's own."""
    times: dict[str, list[float]] = {}
    with _sysfs(node), bed(node) as (pods, claim, pod, spent):
        prepared = pods.network.table.prepared.get(claim.metadata.uid)
        assert prepared is not None
        for number in range(1 + HOOKS):
            box = Sandbox(id=f"sb-{number}", name="pod", namespace="ns", uid="pod-uid", netns=pod.path, pid=1)
            pods.network.table.prepared.put(prepared)
            pods.network.table.files.write_metadata(prepared)
            for name, hook in zip(_HOOKS, (pods.hooks.run, pods.hooks.stop), strict=True):
                spent.kernel = 0.0
                begun = time.perf_counter()
                await hook(box, BUDGET)
                seconds = time.perf_counter() - begun
                if number:
                    times.setdefault(name, []).append(seconds)
                    times.setdefault(f"{name}, own", []).append(seconds - spent.kernel)
            await pods.claims.unprepare(claim.reference)
            await examine(pods)
        await pods.hooks.aclose()
    return times


@contextmanager
def _sysfs(node: Namespace) -> Iterator[None]:
    """Have steps read the sysfs of the node's namespace, as in a daemon: without it, they list all links."""
    with tempfile.TemporaryDirectory() as folder:
        mount = ("mount", "-t", "sysfs", "sysfs", folder)
        node.run(lambda: subprocess.run(mount, check=True))
        try:
            with patch.object(site, "Sysfs", lambda: Sysfs(folder)):
                yield
        finally:
            subprocess.run(("umount", folder), check=True)


def _ms(seconds: Sequence[float]) -> float:
    return 1000 * statistics.median(seconds)


def _p99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[len(seconds) * 99 // 100]


@contextmanager
def _namespace() -> Iterator[tuple[str, Namespace, Socket]]:
    name = f"netdra-bench-{uuid.uuid4().hex[:8]}"
    with Namespace.create(name) as namespace:
        try:
            with namespace.socket() as sock:
                yield name, namespace, sock
        finally:
            netns.delete(name)


def _make_links(sock: Socket, number: int) -> None:
    for pair in range(number // 2):
        link.create(sock, f"a{pair}", "veth", kinds.veth(kinds.Peer(f"b{pair}")))


def _route(number: int, index: int) -> Route:
    return Route(destination=f"10.{number // 65536}.{number // 256 % 256}.{number % 256}/32", index=index)


@contextmanager
def _changes(what: str, name: str, rate: int) -> Iterator[None]:
    """Change something so many times a second, in a process of its own."""
    process = subprocess.Popen((sys.executable, "-m", "bench.storms", what, name, str(rate)), stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline(), "it has begun"
        yield
    finally:
        process.kill()
        process.communicate()


def _change(what: str, name: str, rate: int) -> None:
    """Routes come and go; one change of links in ten is a pair that comes and goes, the others are new names."""
    with Namespace.open(f"/run/netns/{name}") as namespace, namespace.socket() as sock:
        index = link.get(sock, "a0").index
        for number in range(SPARE if what == "links" else 0):
            link.create(sock, f"s{number}", "veth", kinds.veth(kinds.Peer(f"t{number}")))
        print("begun", flush=True)
        begun, done, renamed = time.monotonic(), 0, 0
        while True:
            if what == "routes":
                for change in (route.add, route.delete):
                    change(sock, _route(200_000 + done % 1000, index))
                done += 2
            elif done % 10 == 0:
                link.create(sock, "comes", "veth", kinds.veth(kinds.Peer("along")))
                link.delete(sock, "comes")
                done += 4
            else:
                turn, spare = divmod(renamed, SPARE)
                old, new = ("s", "r") if turn % 2 == 0 else ("r", "s")
                link.change(sock, f"{old}{spare}", name=f"{new}{spare}")
                renamed += 1
                done += 1
            time.sleep(max(0.0, begun + done / rate - time.monotonic()))


if __name__ == "__main__":
    _change(sys.argv[1], sys.argv[2], int(sys.argv[3]))
