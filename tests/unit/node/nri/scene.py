"""A plugin beside a runtime that a test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from netdra.kube.backoff import Backoff
from netdra.node.nri.plugin import NriSettings, Plugin
from netdra.nri import nri_pb2
from tests.unit.node.nri.peer import PATIENCE, Diary, Peer

EVERY_POD_EVENT = 0b111
RUN = nri_pb2.RUN_POD_SANDBOX


class Scene:
    """A plugin that runs, and the runtime's socket that it connects to."""

    def __init__(self, path: Path, come: Callable[[], asyncio.Task[Peer]]) -> None:
        self.path = path
        self.come = come
        self.diary = Diary()
        settings = NriSettings(name="tester", index="42", socket=path)
        self.plugin = Plugin(self.diary, settings, backoff=Backoff(0.01, 0.01))

    async def connected(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.plugin.connected.wait()


Play = Callable[[Callable[[Scene], Awaitable[None]]], None]
