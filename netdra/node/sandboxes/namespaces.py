"""Holds the network namespaces of sandboxes until netdra's devices are out of them, even if the runtime is first.

CRI-O removes a sandbox's namespace before it reports the stop, and a containerd that was restarted reports no stop of
an older sandbox. Virtual devices in a namespace end with it (default_device_exit_batch() in net/core/dev.c), so
`netdra.node.sandboxes.network` holds it from before the first device is moved in until the last one is out.

It is held by a descriptor and by nothing else (decision D22): descriptors end with the process, so no namespace is held
for a pod that ends while no daemon runs. The next daemon holds those of the checkpoints that are still there.

A path alone is one signal (decision D59): a clean-up script may have removed the names of running pods' namespaces. A
namespace is lost if its path leads elsewhere and no process is in it; until then, such a process's path is followed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Self

from netdra.kernel import reachable
from netdra.kernel.errors import KernelError, KernelMissingError, from_os_error, is_missing
from netdra.kernel.mounts import MountChanges
from netdra.kernel.netns import Namespace

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How long after a namespace was gone it is looked at again. If it is still gone, ended sandboxes are looked for: CRI-O
reports the stop in between."""
DAMPING_SECONDS = 0.1
"""How long after mounts changed further changes are awaited: a runtime unmounts several things of a sandbox. While they
go on changing, all are looked at every LOOK_SECONDS: a node that starts pods mounts all the time."""
IDLE_SECONDS = 30.0
"""Seconds between two looks at all namespaces although no mount has changed, as a check."""
MOST_FAILURES = 5
"""How often taking a sandbox down may fail before anything could be done, as for a checkpoint that cannot be opened,
while its lost namespace is held."""
_PROCESSES = "/proc/"


@dataclass(frozen=True)
class _Held:
    """An open namespace, a path that leads to it for others, and its device and inode.

    The path is the runtime's, or once that leads elsewhere, the path of a process in the namespace.
    """

    namespace: Namespace
    path: str
    file: tuple[int, int]

    @property
    def has_lost_path(self) -> bool:
        """Whether the kernel reports that the path no longer leads to the namespace; False if unknown (decision D59).

        One system call: all are inspected in one go.
        """
        try:
            status = os.stat(self.path)  # noqa: PTH116
        except OSError as problem:
            return is_missing(problem)
        # No other namespace can have the number while this one is held.
        return (status.st_dev, status.st_ino) != self.file


class Namespaces:
    """The namespaces that are held, by sandbox. Any thread may call."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._failures: dict[str, int] = {}
        self._has_moved = False
        self._lock = threading.Lock()
        self._look: Callable[[], object] = lambda: None

    def __len__(self) -> int:
        """How many are held."""
        return len(self._held)

    def hold(self, sandbox: str, path: str) -> None:
        """Hold the namespace at a path, in place of another one that is held for the sandbox.

        A missing namespace is not held, without an error: the next action in it fails.

        Raises:
            KernelError: it cannot be held. No device may be moved into it.
        """
        try:
            namespace = Namespace.open(path)
        except KernelMissingError:
            return
        try:
            status = os.fstat(namespace.fd)
        except OSError as problem:
            namespace.close()
            raise from_os_error(problem, f'cannot read network namespace "{path}"') from None
        new = _Held(namespace, path, (status.st_dev, status.st_ino))
        with self._lock:
            former = self._held.get(sandbox)
            if former is not None and (former.path, former.file) == (new.path, new.file):
                namespace.close()
                return
            self._held[sandbox] = new
            if former is not None:
                former.namespace.close()
        if path.startswith(_PROCESSES):
            self._look()

    def release(self, sandbox: str) -> None:
        """Hold a sandbox's namespace no longer; a sandbox without one is not an error."""
        with self._lock:
            former = self._held.pop(sandbox, None)
            self._failures.pop(sandbox, None)
            if former is not None:
                former.namespace.close()

    def count_failure(self, sandbox: str) -> bool:
        """A sandbox could not even begin to be taken down; returns whether that was so too often to hold its namespace.

        A namespace that is still at its path is not counted: it is the sandbox's, not only this process's.
        """
        try:
            if sandbox not in self.lost():
                return False
        except KernelError:
            return False
        with self._lock:
            self._failures[sandbox] = self._failures.get(sandbox, 0) + 1
            return self._failures[sandbox] >= MOST_FAILURES

    def has(self, sandbox: str) -> bool:
        """Whether a namespace is held for a sandbox."""
        return sandbox in self._held

    def sandboxes(self) -> tuple[str, ...]:
        """The sandboxes whose namespaces are held."""
        with self._lock:
            return tuple(self._held)

    @contextmanager
    def opened(self, sandboxes: Iterable[str]) -> Iterator[dict[str, Namespace]]:
        """The held namespaces of sandboxes, open while the context lasts, also if they are released meanwhile.

        A sandbox without one is left out, and so are those for which the process lacks descriptors.
        """
        with ExitStack() as stack:
            found: dict[str, Namespace] = {}
            with self._lock:
                for sandbox in sandboxes:
                    entry = self._held.get(sandbox)
                    with suppress(KernelError):
                        if entry is not None:
                            found[sandbox] = stack.enter_context(entry.namespace.duplicate())
            yield found

    def path(self, sandbox: str) -> str:
        """The path of a sandbox's held namespace for this process and the programs that it runs; "" for none."""
        with self._lock:
            entry = self._held.get(sandbox)
            return f"/proc/{os.getpid()}/fd/{entry.namespace.fd}" if entry is not None else ""

    def others_path(self, sandbox: str) -> str:
        """The path of a sandbox's held namespace for all processes, as of the last look; "" for none."""
        entry = self._held.get(sandbox)
        return entry.path if entry is not None else ""

    def lost(self) -> tuple[str, ...]:
        """The sandboxes whose namespace has no path and no process any more: only this process still has it.

        Raises:
            KernelError: a path is gone, and whether a process is in the namespace cannot be read.
        """
        return tuple(sandbox for sandbox, _ in self._look_for_lost())

    def close(self) -> None:
        """Close the descriptors of all namespaces: the kernel then ends those that no path or process keeps."""
        for sandbox in tuple(self._held):
            self.release(sandbox)

    async def follow(self, lost: Callable[[], None]) -> None:
        """Until cancelled, have sandboxes searched for that ended without a hook.

        A namespace's path ends with an unmount, which the kernel reports. The paths themselves are not watched: the
        programs of a node may have used up all watches (fs.inotify). Below /proc a path ends with a process, and the
        kernel reports nothing: while such a namespace is held, the paths are inspected all the time.

        Args:
            lost: called once for each namespace that is still held a while after it went, and for one that has only
                lost its path.
        """
        before: set[tuple[str, int]] = set()
        reported: set[tuple[str, int]] = set()
        with _Unmounts() as unmounts:
            self._look = unmounts.look
            while True:
                now = await self._look_quietly(before)
                reported &= now
                if self._reset_moved() or (now & before) - reported:
                    reported |= now & before
                    lost()
                before = now
                if before - reported or self._has_processes():
                    await asyncio.sleep(LOOK_SECONDS)
                else:
                    await unmounts.wait()

    async def _look_quietly(self, before: set[tuple[str, int]]) -> set[tuple[str, int]]:
        """As `_look_for_lost`; the result before if the kernel does not answer."""
        try:
            return await asyncio.to_thread(self._look_for_lost)
        except KernelError as problem:
            log.debug("whether namespaces of sandboxes have ended is unknown: %s", problem)
            return before

    def _has_processes(self) -> bool:
        with self._lock:
            return any(entry.path.startswith(_PROCESSES) for entry in self._held.values())

    def _reset_moved(self) -> bool:
        """Whether any look, also one of another caller, has found a namespace at another path since the last call."""
        with self._lock:
            has_moved, self._has_moved = self._has_moved, False
        return has_moved

    def _look_for_lost(self) -> set[tuple[str, int]]:
        """The lost sandboxes with their namespaces' inode numbers.

        Raises:
            KernelError: as of `lost`.
        """
        with self._lock:
            entries = tuple(self._held.items())
        without_path = [(sandbox, entry) for sandbox, entry in entries if entry.has_lost_path]
        processes = reachable.inhabited() if without_path else {}
        lost: set[tuple[str, int]] = set()
        for sandbox, entry in without_path:
            if path := processes.get(entry.file[1]):
                self._follow_process(sandbox, entry, path)
            else:
                lost.add((sandbox, entry.file[1]))
        return lost

    def _follow_process(self, sandbox: str, entry: _Held, path: str) -> None:
        """Follow a namespace by a process in it from now on; while it is held, no other one has its inode number."""
        with self._lock:
            if self._held.get(sandbox) is entry:
                self._held[sandbox] = replace(entry, path=path)
                self._has_moved = True
        self._look()


class _Unmounts:
    """Waits until mounts change; where the kernel does not report that, for as long as between two looks."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._heard = asyncio.Event()
        self._stack = ExitStack()
        self._seconds = IDLE_SECONDS
        self._ended = -math.inf

    def __enter__(self) -> Self:
        try:
            changes = self._stack.enter_context(MountChanges())
        except KernelError as problem:
            log.warning("namespaces of sandboxes are checked every %g s: %s", LOOK_SECONDS, problem)
            self._seconds = LOOK_SECONDS
            return self

        self._loop.add_reader(changes, self._heard.set)
        self._stack.callback(self._loop.remove_reader, changes)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def look(self) -> None:
        """End the wait. Any thread may call, also after the wait."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._heard.set)

    async def wait(self) -> None:
        """Until mounts have changed since the last call, or it is time for a check."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await self._heard.wait()
                await asyncio.sleep(max(DAMPING_SECONDS, self._ended + LOOK_SECONDS - self._loop.time()))
        self._heard.clear()
        self._ended = self._loop.time()
