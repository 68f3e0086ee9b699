"""A queue of keys, each worked on until it succeeds: watchers add keys, a bounded number of workers takes them.

Used by the daemons for all work that may fail and is repeated. The rules are those of client-go's workqueue
(k8s.io/client-go/util/workqueue): a key that waits is there once, however often it is added; it is never worked on by
two workers at a time; a key that is added while it is worked on is worked on again afterwards; a key that failed comes
again after a back-off of its own, which a success forgets. All keys together are not repeated faster than a rate, until
one succeeds again. Unlike there, adding a key does not end a back-off after a temporary error: a server that is away is
not asked at the pace of the changes. A key whose write other clients undo is worked on again when that is due, or when
it is added. Keys that are added by `add_last` are worked on when no other key is ready. One event loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from itertools import chain
from typing import Generic, TypeVar

from netdra.kube import metrics
from netdra.kube.backoff import FIRST_SECONDS, MOST_SECONDS, Backoff
from netdra.kube.errors import ApiError
from netdra.kube.undone import UndoneError
from netdra.model.errors import NetdraError, TemporaryError
from netdra.ops.logs import Fields, about

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

AGAIN = 0.0
"""Returned by work that has to be done again without an error."""

REFUSED_SECONDS = 30.0
"""Seconds until a key that failed for good is worked on again: rights and rules may change."""
RETRIES_PER_SECOND = 10.0
RETRIES_AT_ONCE = 100
"""The rate at which all keys of a queue are repeated, and how many are repeated before it counts: client-go's."""


async def _no_gate() -> None:
    """A gate that is always open."""


def _no_fields(_: object) -> Fields:
    """The log lines of a key have no fields."""
    return {}


class WorkQueue(Generic[K]):
    """Keys, and the workers that take them while `run` runs."""

    def __init__(
        self,
        name: str,
        work: Callable[[K], Awaitable[float | None]],
        *,
        workers: int = 1,
        first: float = FIRST_SECONDS,
        most: float = MOST_SECONDS,
        refused: float = REFUSED_SECONDS,
        gate: Callable[[], Awaitable[None]] = _no_gate,
        fields: Callable[[K], Fields] = _no_fields,
    ) -> None:
        """Begin nothing yet.

        Args:
            name: the queue's name in metrics and logs.
            work: brings a key up to date and returns None, or the seconds after which it is to be done again, to which
                the back-off is added. After an error it is done again, too: after a temporary one with the server's
                Retry-After.
            workers: how many keys are worked on at a time.
            first: a key's first back-off, in seconds.
            most: its longest back-off.
            refused: how long it waits after an error that is not temporary, in seconds.
            gate: awaited before a key is taken; a key that is added again meanwhile is taken once.
            fields: the fields of a key's log lines.
        """
        self._name = name
        self._work = work
        self._workers = workers
        self._bounds = first, most
        self._refused = refused
        self._gate = gate
        self._fields = fields
        # The first key of a dict is found in the time of all that were taken before; there may be thousands.
        self._ready: OrderedDict[K, float] = OrderedDict()
        self._last: OrderedDict[K, float] = OrderedDict()
        self._waiting: dict[K, asyncio.TimerHandle] = {}
        self._busy: set[K] = set()
        self._backoffs: dict[K, Backoff] = {}
        self._limited: dict[K, float] = {}
        self._not_before: dict[K, float] = {}
        self._rated = float("-inf")
        self._tasks: asyncio.TaskGroup | None = None
        self._running = 0
        self._drained = asyncio.Event()
        self._drained.set()
        self._adds = metrics.QUEUE_ADDS.labels(name)
        self._depth = metrics.QUEUE_DEPTH.labels(name)
        self._retries = metrics.QUEUE_RETRIES.labels(name)
        self._queue_seconds = metrics.QUEUE_SECONDS.labels(name)
        self._work_seconds = metrics.WORK_SECONDS.labels(name)

    def __len__(self) -> int:
        """The number of keys that are to be worked on, now or later, without those that are worked on."""
        return len(self._ready) + len(self._last) + len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether no key waits or is worked on."""
        return not (self._ready or self._last or self._waiting or self._busy)

    def is_busy(self, key: K) -> bool:
        """Whether a key is worked on now."""
        return key in self._busy

    async def drain(self) -> None:
        """Wait until no key waits or is worked on."""
        while not self.is_idle:
            await self._drained.wait()

    def add(self, key: K, after: float = 0.0) -> None:
        """Have a key worked on.

        Args:
            after: seconds to wait before; of several waits the one that ends first counts.
        """
        if key in self._ready:
            return
        if key in self._not_before:
            after = max(after, self._not_before[key] - _now())
        timer = self._waiting.get(key)
        if after > 0.0 and timer is not None and timer.when() <= _now() + after:
            return
        if after > 0.0 and key in self._last:
            return
        self._drop_timer(key)
        self._drained.clear()
        if after > 0.0:
            self._waiting[key] = asyncio.get_running_loop().call_later(after, self._due, key)
            return
        if (since := self._last.pop(key, None)) is not None:
            self._ready[key] = since
            return
        self._enqueue(self._ready, key)

    def add_last(self, key: K) -> None:
        """Have a key worked on when no other key is ready; `add` has it worked on in its turn."""
        if key in self._ready or key in self._last or key in self._not_before:
            return
        self._drop_timer(key)
        self._drained.clear()
        self._enqueue(self._last, key)

    def _enqueue(self, keys: OrderedDict[K, float], key: K) -> None:
        self._adds.inc()
        keys[key] = _now()
        if self._tasks is not None:
            self._depth.inc()
            self._start_worker()

    def retry(self, key: K, at_least: float = 0.0, *, whole: bool = False) -> None:
        """Have a key worked on again after its back-off, which is longer each time until the key succeeds.

        Args:
            at_least: the seconds that the server asked for; the back-off comes on top.
            whole: whether the back-off lasts to its end though the key is added meanwhile, or was added already.
        """
        self._retries.inc()
        now = _now()
        wait = self._backoffs.setdefault(key, Backoff(*self._bounds)).next(at_least)
        self._rated = max(self._rated, now - RETRIES_AT_ONCE / RETRIES_PER_SECOND) + 1 / RETRIES_PER_SECOND
        if whole:
            self._not_before[key] = now + wait
            if self._pop(key) is not None and self._tasks is not None:
                self._depth.dec()
        self.add(key, max(wait, self._rated - now))
        if self._rated - now > wait and key in self._waiting:
            self._limited[key] = now + wait

    async def run(self) -> None:
        """Work until cancelled; no error of a key ends it.

        Keys that are left stay for the next run; their waits end with this one.
        """
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._depth.inc(len(self._ready) + len(self._last))
            for _ in (*self._ready, *self._last):
                self._start_worker()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._tasks = None
                self._depth.dec(len(self._ready) + len(self._last))
                self._not_before.clear()
                for key in tuple(self._waiting):
                    self._due(key)

    def _start_worker(self) -> None:
        if self._tasks is not None and self._running < self._workers:
            self._running += 1
            self._tasks.create_task(self._take_keys(), name=f"{self._name} worker")

    async def _take_keys(self) -> None:
        """Work on one key after the other until no key is left that no worker has."""
        try:
            while True:
                await self._gate()
                key = next((key for key in chain(self._ready, self._last) if key not in self._busy), None)
                if key is None:
                    return
                await self._take(key)
                await asyncio.sleep(0)  # there may be thousands of keys, and other tasks have work to do too
        finally:
            self._running -= 1

    async def _take(self, key: K) -> None:
        began, since = _now(), self._pop(key)
        assert since is not None
        self._queue_seconds.observe(began - since)
        self._depth.dec()
        self._busy.add(key)
        try:
            with about(**self._fields(key)):
                await self._try(key)
        except BaseException:
            self._last.pop(key, None)
            self._ready[key] = began  # it is not up to date
            raise
        finally:
            self._busy.discard(key)
            self._work_seconds.observe(_now() - began)
            if self.is_idle:
                self._drained.set()

    async def _try(self, key: K) -> None:
        """Work on a key, and have it come again if it is not up to date then."""
        self._not_before.pop(key, None)
        try:
            wait = await self._work(key)
        except UndoneError as problem:
            # Reported when it began. The key may need another write meanwhile, which does not wait.
            log.debug("%s: %s", self._name, problem)
            self.add(key, problem.retry_after)
        except TemporaryError as problem:
            log.warning("%s: %s", self._name, problem)
            self.retry(key, problem.retry_after if isinstance(problem, ApiError) else 0.0, whole=True)
        except NetdraError as problem:
            log.warning("%s: %s", self._name, problem)
            self.retry(key, self._refused)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            log.warning("%s: %s: cancelled while waiting", self._name, key)
            self.retry(key, whole=True)
        except Exception:
            # A defect in the work of one key must not keep all other keys from being worked on.
            log.exception("%s: %s: internal error of netdra", self._name, key)
            self.retry(key, self._refused)
        else:
            if wait is None:
                self._forget_failures(key)
            else:
                self.retry(key, wait)

    def _forget_failures(self, key: K) -> None:
        """Forget a key's back-off; keys that wait for the common rate alone wait for it no longer."""
        self._backoffs.pop(key, None)
        self._rated = float("-inf")
        limited, self._limited = self._limited, {}
        for other, due in limited.items():
            if other in self._waiting:
                self.add(other, due - _now())

    def _pop(self, key: K) -> float | None:
        """Take a key out of those that are ready; returns since when it was, None if it was not."""
        since = self._ready.pop(key, None)
        return since if since is not None else self._last.pop(key, None)

    def _due(self, key: K) -> None:
        self._not_before.pop(key, None)
        self._drop_timer(key)
        self.add(key)

    def _drop_timer(self, key: K) -> None:
        self._limited.pop(key, None)
        if (timer := self._waiting.pop(key, None)) is not None:
            timer.cancel()


def _now() -> float:
    return asyncio.get_running_loop().time()
