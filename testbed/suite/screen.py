"""The output of a run: lines that stay, and below them, on a terminal, one for each level that is under way.

Without a terminal, the lines of levels under way are printed every minute.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TextIO

_EVERY_SECONDS = 60.0


class Screen:
    """The screen of one run."""

    def __init__(self, target: TextIO = sys.stdout) -> None:
        self._target = target
        self._live = target.isatty()
        self._shown = 0
        self._next = time.monotonic() + _EVERY_SECONDS

    def say(self, text: str) -> None:
        """Print a text that stays."""
        self._erase()
        print(text, file=self._target, flush=True)

    def show(self, lines: Sequence[str]) -> None:
        """Show the lines of levels under way, in place of the former lines."""
        if self._live:
            self._erase()
            for line in lines:
                print(line, file=self._target)
            self._shown = len(lines)
            self._target.flush()
        elif lines and time.monotonic() > self._next:
            self._next = time.monotonic() + _EVERY_SECONDS
            print("\n".join(lines), file=self._target, flush=True)

    def _erase(self) -> None:
        if self._shown:
            print(f"\x1b[{self._shown}A\x1b[J", end="", file=self._target)
            self._shown = 0


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"
