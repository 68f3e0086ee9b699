"""The plugin that tests talk to as its runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.unit.node.nri.peer import listening
from tests.unit.node.nri.scene import Scene


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Callable[[Scene], Awaitable[None]]], None]:
    """Runs a test's scene beside the plugin."""

    async def main(act: Callable[[Scene], Awaitable[None]]) -> None:
        async with listening(tmp_path / "nri.sock") as come:
            scene = Scene(tmp_path / "nri.sock", come)
            running = asyncio.create_task(scene.plugin.run())
            try:
                await act(scene)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    return lambda act: asyncio.run(main(act))
