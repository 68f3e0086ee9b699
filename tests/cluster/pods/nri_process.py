"""`python -m tests.cluster.pods.nri_process DIARY SOCKET`: a process with nothing but the plugin, to be killed.

Its hooks write a line each to the file DIARY.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from netdra.node.nri.hooks import Sandbox
from netdra.node.nri.plugin import NriSettings, Plugin


class Diarist:
    """Hooks that record their calls."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def synchronize(self, sandboxes: Sequence[Sandbox]) -> None:
        self._note("synchronize", *sorted(sandbox.name for sandbox in sandboxes))

    async def run(self, sandbox: Sandbox, budget: float) -> None:
        self._note("run", sandbox.name)

    async def stop(self, sandbox: Sandbox, budget: float) -> None:
        self._note("stop", sandbox.name)

    async def remove(self, sandbox: Sandbox) -> None:
        self._note("remove", sandbox.name)

    def _note(self, *words: str) -> None:
        with self._path.open("a") as diary:
            print(*words, file=diary)


def main() -> None:
    """Be a plugin until killed."""
    path, socket = map(Path, sys.argv[1:])
    asyncio.run(Plugin(Diarist(path), NriSettings(socket=socket)).run())


if __name__ == "__main__":
    main()
