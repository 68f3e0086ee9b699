"""A cluster of one node in which netdra runs as its own pods, from its own image and chart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from image.__main__ import Built, build
from testbed.node import Node
from testbed.site import Site, opened, settings
from tests.cluster.conftest import StartControlPlane
from tests.cluster.pods.conftest import logs_shown, pytest_runtest_makereport, pytest_runtest_setup

__all__ = ["pytest_runtest_makereport", "pytest_runtest_setup"]


@pytest.fixture(scope="session")
def image() -> Built:
    """The image of these sources, which `make test` has built before."""
    return build()


@pytest.fixture(scope="module")
def site(
    request: pytest.FixtureRequest,
    start_control_plane: StartControlPlane,
    image: Built,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """A cluster of one node, with the image, for the tests of a module; netdra is not installed."""
    folder = tmp_path_factory.mktemp("site")
    socket = folder / "proxy"
    plane = start_control_plane(settings(socket))
    with (
        closing(plane.client()) as api,
        Node("node-1", folder=folder / "node") as node,
        logs_shown(request.config, node),
        opened(plane, api, node, socket, image.archive) as found,
    ):
        yield found
