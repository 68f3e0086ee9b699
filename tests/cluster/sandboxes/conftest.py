"""A node of the shared control plane for each test, with a namespace of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.control_plane import ControlPlane
from testbed.workspace import Workspace
from tests.cluster.sandboxes.scene import Scene, new_machine


@pytest.fixture
def scene(control_plane: ControlPlane, workspace: Workspace, tmp_path: Path) -> Iterator[Scene]:
    """A node without devices or pods."""
    machine = new_machine(tmp_path)
    try:
        yield Scene(control_plane, workspace, workspace.add_node(), machine)
    finally:
        machine.close()
