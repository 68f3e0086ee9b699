"""Holds the network namespaces of sandboxes until netdra's devices are out of them, whatever the runtime does first.

CRI-O removes a sandbox's namespace before it tells of the stop, and a containerd that was restarted tells of no stop of
an older sandbox. What is virtual in a namespace ends with it (default_device_exit_batch() in net/core/dev.c), so
`netdra.node.pods.network` holds it from before the first device is moved in until the last one is out.

It is held by a descriptor and by nothing else (decision D22): all of them end with the process, so none is held for a
pod that ends while there is no daemon. The next daemon holds those of the checkpoints that are still there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath

from netdra.kernel import netns
from netdra.kernel.errors import KernelError
from netdra.kernel.inotify import Removals
from netdra.kernel.netns import Namespace

log = logging.getLogger(__name__)

GRACE_SECONDS = 1.0
"""How long a runtime that has removed a namespace may take to tell of the stop, until it is looked for."""


@dataclass(frozen=True)
class _Held:
    """A namespace, open, and the path by which the runtime and others know it."""

    namespace: Namespace
    path: str


class Namespaces:
    """The namespaces that are held, by sandbox. Any thread may call."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._lock = threading.Lock()
        self._removals: Removals | None = None

    def __len__(self) -> int:
        """How many are held."""
        return len(self._held)

    def hold(self, sandbox: str, path: str) -> None:
        """Hold the namespace at a path, in place of another one that is held for the sandbox.

        One that is not there is not held, and nobody is told: whoever acts in it next finds out.
        """
        try:
            namespace = Namespace.open(path)
        except KernelError:
            return
        with self._lock:
            former = self._held.get(sandbox)
            if former is not None and former.path == path and former.namespace.inode == namespace.inode:
                namespace.close()
                return
            self._held[sandbox] = _Held(namespace, path)
            if former is not None:
                former.namespace.close()
        self._watch(path)

    def release(self, sandbox: str) -> None:
        """Hold a sandbox's namespace no longer; done already is no error."""
        with self._lock:
            held = self._held.pop(sandbox, None)
            if held is not None:
                held.namespace.close()

    def has(self, sandbox: str) -> bool:
        """Whether a namespace is held for a sandbox."""
        return sandbox in self._held

    def sandboxes(self) -> tuple[str, ...]:
        """The sandboxes that a namespace is held for."""
        with self._lock:
            return tuple(self._held)

    def path(self, sandbox: str) -> str:
        """A path of the namespace that is held for a sandbox, for us and the programs that we run; "" for none."""
        with self._lock:
            held = self._held.get(sandbox)
            return f"/proc/{os.getpid()}/fd/{held.namespace.fd}" if held is not None else ""

    def lost(self) -> tuple[str, ...]:
        """The sandboxes whose namespace is there for nobody but us: no longer at its path."""
        with self._lock:
            return tuple(key for key, held in self._held.items() if netns.inode_at(held.path) != held.namespace.inode)

    def close(self) -> None:
        """Hold none any more."""
        for sandbox in tuple(self._held):
            self.release(sandbox)

    async def follow(self, lost: Callable[[], None]) -> None:
        """Until cancelled, have those looked for that ended without our being told.

        Args:
            lost: called when a namespace is held that is there for nobody else any more.
        """
        try:
            removals = Removals()
        except KernelError as problem:
            log.warning("sandboxes that end without a word of the runtime are found late: %s", problem)
            return
        loop = asyncio.get_running_loop()
        timers: set[asyncio.TimerHandle] = set()

        def look() -> None:
            timers.clear()
            if self.lost():
                lost()

        def read() -> None:
            names = removals.read()
            if names is None:
                self._watch_all()
            if not timers and (names is None or not self._names().isdisjoint(names)):
                timers.add(loop.call_later(GRACE_SECONDS, look))

        with removals:
            self._removals = removals
            self._watch_all()
            loop.add_reader(removals.fileno(), read)
            try:
                await asyncio.Event().wait()
            finally:
                self._removals = None
                loop.remove_reader(removals.fileno())
                for timer in timers:
                    timer.cancel()

    def _names(self) -> set[str]:
        with self._lock:
            return {PurePath(held.path).name for held in self._held.values()}

    def _watch_all(self) -> None:
        with self._lock:
            paths = {held.path for held in self._held.values()}
        for path in paths:
            self._watch(path)

    def _watch(self, path: str) -> None:
        removals = self._removals
        if removals is not None:
            with suppress(KernelError):  # a folder of /proc cannot be watched
                removals.watch(str(PurePath(path).parent))
