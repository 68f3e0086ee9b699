"""The node's CNI plugins: programs in the CNI path that answer VERSION, followed as they come and go.

Run by `netdra.node.publishing.service`, which publishes those of a policy's plugins that the node has (decision D45).
The folders are watched. Only programs that the node allows are asked, and without any rights (`netdra.cni.confined`):
a user who can write a file there does not become root by it.
Each program runs once for as long as it is the same file, in a thread of its own, so a plugin
that hangs costs the others nothing. A program that does not answer is left out, with the reason, and asked again after
a while.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import TypeVar

import msgspec

from netdra.cni import plugins, protocol
from netdra.cni.confined import ConfinedPrograms
from netdra.cni.plugins import Binary, PluginPath
from netdra.kernel.errors import KernelError
from netdra.kernel.inotify import FolderChanges
from netdra.model import decoders
from netdra.model.errors import NetdraError, TemporaryError

SETTLING_SECONDS = 0.1
"""How long after a change the next one is waited for: an installer makes several changes at once."""
SCAN_SECONDS = 60.0
"""Seconds between two looks at the folders without an event: some changes have none, such as of a link's target."""
UNWATCHED_SECONDS = 2.0
"""The same where the kernel has no watch for this process."""
KNOWN_SECONDS = 2.0
"""How long slices wait for plugins that do not answer: the first ones, and those of a policy that names a plugin."""
PROBES_AT_ONCE = 4
ANSWER_SECONDS = protocol.VERSION_TIMEOUT
FORBIDDEN = (
    "it is not allowed on this node: list it in node.allowPlugins (--allow-plugin), or write a CNIPluginSchema for it"
)
RETRY_SECONDS, MOST_RETRY_SECONDS = 30.0, 3600.0
"""Seconds until a program that did not answer is asked again; they double each time."""

log = logging.getLogger(__name__)

T = TypeVar("T")


class Presence(msgspec.Struct, frozen=True):
    """The CNI plugins of a node.

    Attributes:
        programs: the names of those that answer, in order.
        unusable: by name, why a program that is there does not count.
        lost: by name, why a plugin that counted before no longer does.
    """

    programs: tuple[str, ...] = ()
    unusable: dict[str, str] = {}
    lost: dict[str, str] = {}


class _Answer(msgspec.Struct, frozen=True):
    """A program's answer: no problem if it answered, else why not; when and after how long it is asked again."""

    binary: Binary
    problem: str
    retry_at: float = float("inf")
    patience: float = RETRY_SECONDS


class NodePlugins:
    """The plugins of one node.

    Attributes:
        presence: the present plugins.
    """

    def __init__(
        self, where: PluginPath, changed: Callable[[], None], is_allowed: Callable[[str], bool] = lambda _: True
    ) -> None:
        """Look nowhere yet.

        Args:
            where: the CNI path.
            changed: is called after `presence` has changed.
            is_allowed: whether a plugin may be run on the node at all; no other program is asked.
        """
        self._where = where
        self._changed = changed
        self._is_allowed = is_allowed
        self.presence = Presence()
        self._installed: dict[str, Binary] = {}
        self._forbidden: dict[str, str] = {}
        self._answers: dict[str, _Answer] = {}
        self._confined = ConfinedPrograms()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(PROBES_AT_ONCE)
        self._turn = asyncio.Event()
        self._scanned = asyncio.Event()

    async def wait_known(self) -> None:
        """Wait until the plugins are known that are there and allowed by now, or the time for that is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(KNOWN_SECONDS):
                await self._scanned.wait()
                while self._asking:
                    await asyncio.wait(self._asking.values())

    def look_again(self) -> None:
        """Other plugins may be allowed now; of those, nothing is known until they have been asked."""
        self._scanned.clear()
        self._turn.set()
        allowed = {name for name in self._forbidden if self._is_allowed(name)}
        self._forbidden = {name: why for name, why in self._forbidden.items() if name not in allowed}
        unusable, lost = (
            {name: why for name, why in part.items() if name not in allowed}
            for part in (self.presence.unusable, self.presence.lost)
        )
        self.presence = Presence(self.presence.programs, unusable, lost)

    async def run(self) -> None:
        """Follow the CNI path until cancelled."""
        decoders.build("netdra.cni")
        loop = asyncio.get_running_loop()
        with ExitStack() as closing:
            closing.callback(self._confined.close)
            changes = self._opened(closing)
            if changes is not None:
                loop.add_reader(changes.fileno(), self._on_folder_change, changes)
                closing.callback(loop.remove_reader, changes.fileno())
            async with asyncio.TaskGroup() as tasks:
                while True:
                    self._turn.clear()
                    watched = await self._scan(changes, tasks)
                    await self._rest(watched)

    def _opened(self, closing: ExitStack) -> FolderChanges | None:
        try:
            return closing.enter_context(FolderChanges())
        except KernelError as problem:
            log.warning("%s: the CNI path is checked every %d s instead", problem, UNWATCHED_SECONDS)
            return None

    def _on_folder_change(self, changes: FolderChanges) -> None:
        changes.take()
        self._turn.set()

    async def _rest(self, watched: bool) -> None:
        """Wait for the next reason to look."""
        again = (answer.retry_at for name, answer in self._answers.items() if name not in self._asking)
        due = min(again, default=float("inf")) - time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(SCAN_SECONDS if watched else UNWATCHED_SECONDS, due))):
                await self._turn.wait()
        await asyncio.sleep(SETTLING_SECONDS)

    async def _scan(self, changes: FolderChanges | None, tasks: asyncio.TaskGroup) -> bool:
        """List the programs, and ask those that have not answered yet.

        Returns:
            Whether the kernel watches the folders for the next change.
        """
        try:
            programs, watched = await _apart(partial(self._read, changes))
        except TemporaryError as problem:
            log.warning("%s; the plugins that were there count", problem)
            return False
        self._installed = {binary.name: binary for binary in programs if self._is_allowed(binary.name)}
        self._forbidden = {binary.name: FORBIDDEN for binary in programs if binary.name not in self._installed}
        now = time.monotonic()
        for name, binary in self._installed.items():
            answer = self._answers.get(name)
            is_known = answer is not None and answer.binary == binary and answer.retry_at > now
            if not is_known and name not in self._asking:
                self._asking[name] = tasks.create_task(self._ask(name))
        for name in self._answers.keys() - self._installed.keys():
            del self._answers[name]
        self._update_presence()
        self._scanned.set()
        return watched

    def _read(self, changes: FolderChanges | None) -> tuple[tuple[Binary, ...], bool]:
        """The installed programs, read after the watches stand, so that no change is missed."""
        watched = False
        if changes is not None:
            with plugins.folders(self._where) as folders:
                watched = changes.watch(folders)
        return plugins.installed(self._where), watched

    async def _ask(self, name: str) -> None:
        """Ask a program until its answer is of the file that is there."""
        try:
            async with self._slots:
                while (binary := self._installed.get(name)) is not None:
                    problem = await _apart(partial(_probe_problem, name, self._where, self._confined))
                    before = self._answers.get(name)
                    again = before is not None and before.binary == binary
                    self._answers[name] = _answer(binary, problem, before.patience if again and before else 0.0)
                    if self._installed.get(name) == binary:
                        break
        finally:
            del self._asking[name]
            if not self._asking:
                self._confined.rest()
            self._update_presence()
            self._turn.set()

    def _update_presence(self) -> None:
        """Work out the present plugins."""
        answers = {name: self._answers[name] for name in sorted(self._answers) if name in self._installed}
        unusable = {name: answer.problem for name, answer in answers.items() if answer.problem} | self._forbidden
        # A program that is being replaced counts until the new one has answered.
        usable = tuple(name for name in answers if name not in unusable)
        before = self.presence
        gone = {*before.programs, *before.lost} - {*usable} - (self._asking.keys() - answers.keys())
        lost = {name: self._lost(name) for name in gone}
        self.presence = Presence(usable, unusable, dict(sorted(lost.items())))
        if self.presence != before:
            for name, why in unusable.items():
                if before.unusable.get(name) != why and name not in self._forbidden:
                    log.warning('CNI plugin "%s" is not offered: %s', name, why)
            self._changed()

    def _lost(self, name: str) -> str:
        answer = self._answers.get(name)
        if answer is not None and answer.problem:
            return answer.problem
        return self._forbidden.get(name) or missing(self._where)


def missing(where: PluginPath) -> str:
    """The reason for a plugin that is not there."""
    if not where.directories:
        return "the node's driver runs no plugins (--no-plugins)"
    return f"executable not found in {':'.join(where.directories)}"


def _answer(binary: Binary, problem: str, patience: float) -> _Answer:
    if not problem:
        return _Answer(binary, "")
    patience = min(max(2 * patience, RETRY_SECONDS), MOST_RETRY_SECONDS)
    return _Answer(binary, problem, time.monotonic() + patience, patience)


def _probe_problem(name: str, where: PluginPath, confined: ConfinedPrograms) -> str:
    """Why a plugin cannot be used; "" if it supports a version of CNI that netdra supports."""
    try:
        protocol.find(name, where, timeout=ANSWER_SECONDS, confined=confined)
    except NetdraError as problem:
        return problem.what
    return ""


async def _apart(work: Callable[[], T]) -> T:
    """The result of work that may hang for ever, as in a file system that is away: a thread of its own does it.

    The process does not wait for the thread when it ends.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, problem: BaseException | None) -> None:
        if future.cancelled():
            return
        if problem is not None:
            future.set_exception(problem)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, problem = None, None
        try:
            result = work()
        except BaseException as caught:  # noqa: BLE001 (raised again where it is awaited)
            problem = caught
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(finish, result, problem)

    threading.Thread(target=run, name="cni-plugins", daemon=True).start()
    return await future
