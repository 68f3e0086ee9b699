"""A control plane that these tests may kill, pause and compact."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from testbed.api import Api
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from tests.cluster.conftest import StartControlPlane


@pytest.fixture(scope="module")
def plane(start_control_plane: StartControlPlane) -> ControlPlane:
    """A control plane of this module's own, since its parts are killed."""
    return start_control_plane(Settings(scheduler=False, controller_manager=False))


@pytest.fixture
def server(plane: ControlPlane) -> Iterator[Api]:
    with closing(plane.client()) as client:
        yield client
