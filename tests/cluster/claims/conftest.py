"""Builds a node for a test."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from testbed.control_plane import ControlPlane
from testbed.workspace import Workspace
from tests.cluster.claims.scene import POLICIES, node


@pytest.fixture
def tell(control_plane: ControlPlane, workspace: Workspace, tmp_path: Path) -> Any:
    """Runs a story on a node of its own."""

    def run(story: Any, policies: Any = POLICIES) -> None:
        async def whole() -> None:
            async with node(control_plane, workspace, tmp_path, policies) as scene:
                await story(scene)

        asyncio.run(whole())

    return run
