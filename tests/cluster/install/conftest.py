"""A cluster of one node in which netdra runs as its own pods, from its own image and chart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from image.__main__ import Built, build
from testbed.site import Site
from tests.cluster.conftest import StartControlPlane
from tests.cluster.install.fresh import fresh_site
from tests.cluster.pods.conftest import pytest_runtest_makereport, pytest_runtest_setup

__all__ = ["pytest_runtest_makereport", "pytest_runtest_setup"]

FOLDER = Path(__file__).parent
MOST_SECONDS = 900
"""The first test of a module has a cluster made and the image brought to the node: minutes on a slow machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give these tests more time than all others have."""
    for item in items:
        if item.path.is_relative_to(FOLDER) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(MOST_SECONDS))


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
    with fresh_site(request.config, start_control_plane, folder, image.archive) as (found, _):
        yield found
