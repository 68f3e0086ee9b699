"""Holds the network namespaces of sandboxes until netdra's devices are out of them, whatever the runtime does first.

CRI-O removes a sandbox's namespace before it tells of the stop, and a containerd that was restarted tells of no stop of
an older sandbox. What is virtual in a namespace ends with it (default_device_exit_batch() in net/core/dev.c), so
`netdra.node.pods.network` holds it from before the first device is moved in until the last one is out.

It is held by a descriptor and by nothing else (decision D22): all of them end with the process, so none is held for a
pod that ends while there is no daemon. The next daemon holds those of the checkpoints that are still there.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

from netdra.kernel.errors import KernelError
from netdra.kernel.netns import Namespace

LOOK_SECONDS = 1.0
"""How often the paths are looked at. A sandbox is looked for when its namespace was gone twice: CRI-O tells of the stop
in between."""


@dataclass(frozen=True)
class _Held:
    """A namespace, open, the path by which the runtime and others know it, and the device and inode that it has."""

    namespace: Namespace
    path: str
    file: tuple[int, int]

    @property
    def is_lost(self) -> bool:
        """Whether the path leads to it no longer. One system call: all are asked once a second."""
        try:
            found = os.stat(self.path)  # noqa: PTH116
        except OSError:
            return True
        return (found.st_dev, found.st_ino) != self.file


class Namespaces:
    """The namespaces that are held, by sandbox. Any thread may call."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._lock = threading.Lock()

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
            found = os.fstat(namespace.fd)
            self._held[sandbox] = _Held(namespace, path, (found.st_dev, found.st_ino))
            if former is not None:
                former.namespace.close()

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
        return tuple(sandbox for sandbox, _ in self._lost())

    def close(self) -> None:
        """Hold none any more."""
        for sandbox in tuple(self._held):
            self.release(sandbox)

    async def follow(self, lost: Callable[[], None]) -> None:
        """Until cancelled, have those looked for that ended without our being told.

        The paths are looked at, not watched: a node's programs may have used up all that can be watched (fs.inotify),
        and what is below /proc cannot be.

        Args:
            lost: called once for each sandbox of which nothing has been heard for a while since its namespace went.
        """
        before: set[tuple[str, int]] = set()
        told: set[tuple[str, int]] = set()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = self._lost()
            told &= now
            if (now & before) - told:
                told |= now & before
                lost()
            before = now

    def _lost(self) -> set[tuple[str, int]]:
        """The same with the namespaces' numbers."""
        with self._lock:
            held = list(self._held.items())
        return {(sandbox, each.file[1]) for sandbox, each in held if each.is_lost}
