"""One process's life: its work in progress, and how it ends when it is asked to stop.

Made by `netdra.cli.daemons` and given to each daemon, whose parts add their checks and their work in progress. On
SIGTERM or SIGINT it stops being ready first; what has begun is finished within a bound; then the work is cancelled,
which gives leadership and connections back. A second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import mmap
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from netdra.model.errors import TemporaryError
from netdra.ops.health import CheckResult, ProcessHealth
from netdra.ops.metrics import IN_FLIGHT, LOOP_DELAY

log = logging.getLogger(__name__)

BEAT_SECONDS = 1.0
LARGE = 128 * 1024
"""Bytes of a block that has pages of its own, which are returned to the kernel when it is freed: glibc's default."""
YOUNG_OBJECTS = 10_000
"""So many new objects bring a garbage collection; 700 by default."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Of mallopt(3)."""


@dataclass(frozen=True)
class Bounds:
    """How long an end may take, in seconds.

    Attributes:
        drain: how long it continues as before, no longer ready, so that no further clients are sent here.
        finish: how long what has begun may take, and after it the end itself.
    """

    drain: float = 0.0
    finish: float = 20.0


class Process:
    """The shared objects of one process's parts. One event loop's.

    Attributes:
        name: controller, webhook or node.
        health: the checks.
    """

    def __init__(self, name: str, *, on_stop: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self._on_stop = on_stop
        self.health = ProcessHealth()
        self._in_flight = 0
        self._changed = asyncio.Event()
        self._stop = asyncio.Event()
        self._late = 0.0
        self.health.live("event-loop", lambda: CheckResult(ok=True, detail=f"late by {self._late * 1000:.1f} ms"))

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stop.is_set()

    @contextmanager
    def in_hand(self) -> Iterator[None]:
        """Something is begun that the end of the process waits for: a hook, a request, a write."""
        self._in_flight += 1
        IN_FLIGHT.set(self._in_flight)
        try:
            yield
        finally:
            self._in_flight -= 1
            IN_FLIGHT.set(self._in_flight)
            self._changed.set()

    def stop(self) -> None:
        """Begin the end: not ready any more."""
        self.health.stopping = True
        self._stop.set()
        self._on_stop()

    async def run(self, work: Callable[[], Awaitable[None]], bounds: Bounds = Bounds()) -> None:
        """Work until asked to stop (SIGTERM, SIGINT or `stop`), or until the work ends.

        Raises:
            TemporaryError: the work did not end in time and was left behind.
            BaseException: any exception of the work.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._handle_signal, number)
        working = asyncio.ensure_future(work())
        beating = asyncio.create_task(self._beat())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                await self._end(working, bounds)
            with suppress(asyncio.CancelledError):
                working.result()
        finally:
            self.health.stopping = True
            for task in (beating, stopping, working):
                task.cancel()

    async def _end(self, working: asyncio.Future[None], bounds: Bounds) -> None:
        await asyncio.wait((working,), timeout=bounds.drain)
        if not await self._idle(bounds.finish):
            log.warning("%d pieces of work have not ended within %g s", self._in_flight, bounds.finish)
        working.cancel()
        await asyncio.wait((working,), timeout=bounds.finish)
        if not working.done():
            raise TemporaryError(
                f"netdra {self.name} did not end within {bounds.finish:g} s and was broken off", code="ND2281"
            )
        log.info("ended")

    async def _idle(self, seconds: float) -> bool:
        """Wait until nothing is in progress; whether that happened in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._in_flight:
                    self._changed.clear()
                    await self._changed.wait()
        return not self._in_flight

    def _handle_signal(self, number: signal.Signals) -> None:
        log.info("%s: ending; a second signal ends at once", number.name)
        loop = asyncio.get_running_loop()
        for ending_signal in (signal.SIGTERM, signal.SIGINT):
            # By the kernel, not by the event loop: the loop itself may be blocked then.
            loop.remove_signal_handler(ending_signal)
            signal.signal(ending_signal, signal.SIG_DFL)
        self.stop()

    async def _beat(self) -> None:
        """See by how much the event loop is late."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(BEAT_SECONDS)
            self._late = max(0.0, time.monotonic() - began - BEAT_SECONDS)
            LOOP_DELAY.observe(self._late)


def return_large_blocks() -> None:
    """Have large blocks returned to the kernel whenever they are freed; called before the work begins.

    By default, glibc raises the size from which a block has its own pages to that of the largest block that was freed,
    up to 32 MiB. After one list of 1,500 nodes, the webhook then keeps 19 MiB that it does not use.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, LARGE)
        mallopt(_TRIM_THRESHOLD, LARGE)


def spare_what_is_loaded() -> None:
    """Take everything that is in memory by now out of the garbage collector's sight; called once all is imported.

    It stays as long as the process anyway, and a full collection of it takes 30 to 60 ms in which nothing else is done.
    Memory that only the start needed is returned to the kernel. So is the code of libraries: most of the code of the
    start (10 MiB of the CEL engine, TLS and Python itself) never runs again, and the rest is mapped again from the
    kernel's cache of files when it is called.

    Collections of later objects are rarer than by default: while thousands of objects are read and kept, they take as
    long as the reading, and find nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    libc = ctypes.CDLL(None)
    trim = getattr(libc, "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    with suppress(OSError):
        for begin, end in _unchanged_code(Path("/proc/self/smaps").read_text(errors="replace")):
            libc.madvise(begin, end - begin, mmap.MADV_DONTNEED)


def _unchanged_code(smaps: str) -> Iterator[tuple[int, int]]:
    """Where files are mapped to be executed, by their text of proc(5), smaps.

    A page that was changed in memory would be lost: mappings with such pages (`Anonymous`) are left out.
    """
    mapping: tuple[int, int] | None = None
    for line in smaps.splitlines():
        span, *fields = line.split(maxsplit=5)
        if not span.endswith(":"):
            begin, _, end = span.partition("-")
            is_code = fields[0] == "r-xp" and len(fields) == 5 and fields[4].startswith("/")
            mapping = (int(begin, 16), int(end, 16)) if is_code else None
        elif span == "Anonymous:" and fields[0] == "0" and mapping is not None:
            yield mapping
