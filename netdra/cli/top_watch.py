"""`netdra top --watch`: draws the dashboard, reads keys, and follows the cluster until the user quits."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from netdra.cli.dashboard import DashboardData, Line, Screen, entries, press, render
from netdra.console.live_cluster import LiveCluster
from netdra.kube.client import Client
from netdra.model.errors import NetdraError
from netdra.model.pod_network import PodNetwork

DRAW_SECONDS = 1.0
NETWORK_SECONDS = 10.0
_BEGIN, _END = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_STYLES = {"bold": "1", "selected": "7", "bad": "31", "warn": "33", "quiet": "2"}
_SEQUENCES = dict(
    (
        *(("\x1b[A", "up"), ("\x1b[B", "down"), ("\x1bOA", "up"), ("\x1bOB", "down")),
        *(("\x1b[5~", "pageup"), ("\x1b[6~", "pagedown"), ("\x1b[H", "home"), ("\x1b[F", "end")),
        *(("\x1b", "escape"), ("\r", "enter"), ("\n", "enter"), ("\x7f", "backspace"), ("\t", "tab")),
    )
)


def keys(data: str) -> Iterator[str]:
    """The keys in the input of a terminal; unknown sequences are skipped."""
    while data:
        known = next((text for text in sorted(_SEQUENCES, key=len, reverse=True) if data.startswith(text)), "")
        if known == "\x1b" and len(data) > 1 and data[1] in "[O":
            data = data[3:]
        elif known:
            yield _SEQUENCES[known]
            data = data[len(known) :]
        else:
            yield data[0]
            data = data[1:]


def picture(lines: list[Line], *, has_colors: bool) -> str:
    """The lines as a terminal takes them: each replaces the former one, so nothing flickers."""
    made: list[str] = []
    for number, line in enumerate(lines, 1):
        style = _STYLES.get(line.style, "") if has_colors or line.style in ("selected", "bold") else ""
        made.append(f"\x1b[{number};1H\x1b[{style}m{line.text}\x1b[0m\x1b[K")
    return "".join(made)


async def run(client: Client) -> None:
    """Show the dashboard until the user quits.

    Raises:
        ApiError: the API server does not answer at the beginning.
    """
    cluster = LiveCluster(client)
    await client.read("/version", "version")
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(cluster.run())
        try:
            with _terminal():
                await _Dashboard(cluster).run(tasks)
        finally:
            work.cancel()


@contextmanager
def _terminal() -> Iterator[None]:
    """The terminal without lines and echo, on its second screen."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    sys.stdout.write(_BEGIN)
    try:
        yield
    finally:
        sys.stdout.write(_END)
        sys.stdout.flush()
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


class _Dashboard:
    def __init__(self, cluster: LiveCluster) -> None:
        self._cluster = cluster
        self._screen, self._networks = Screen(), list[PodNetwork]()
        self._changed, self._problem = asyncio.Event(), ""

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Draw after each key, after each change of the window, and every second."""
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), self._read_keys)
        loop.add_signal_handler(signal.SIGWINCH, self._changed.set)
        following = tasks.create_task(self._follow_networks())
        try:
            while not self._screen.has_ended:
                await self._cluster.examination()
                self._draw()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), DRAW_SECONDS)
                self._changed.clear()
        finally:
            following.cancel()
            loop.remove_signal_handler(signal.SIGWINCH)
            loop.remove_reader(sys.stdin.fileno())

    def _snapshot(self) -> DashboardData:
        problem = self._problem or self._cluster.live.reflector.problem
        return DashboardData(self._cluster.fleet(), self._cluster.examined, self._networks, self._cluster.now, problem)

    def _read_keys(self) -> None:
        data = os.read(sys.stdin.fileno(), 1024).decode(errors="replace")
        for key in keys(data) if data else ("q",):
            self._screen = press(self._screen, key, len(entries(self._screen, self._snapshot())))
        self._changed.set()

    def _draw(self) -> None:
        columns, lines = shutil.get_terminal_size()
        made = render(self._screen, self._snapshot(), columns, lines)
        sys.stdout.write(picture(made, has_colors="NO_COLOR" not in os.environ))
        sys.stdout.flush()

    async def _follow_networks(self) -> None:
        while True:
            try:
                self._networks = [*(await self._cluster.read_list("networks")).networks]
                self._problem = ""
            except NetdraError as problem:
                self._problem = str(problem)
            self._changed.set()
            await asyncio.sleep(NETWORK_SECONDS)
