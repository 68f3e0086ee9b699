"""The cluster of one node of `tests/cluster/install`, for an upgrade from an older netdra (`make test-upgrade`)."""

from __future__ import annotations

from tests.cluster.conftest import start_control_plane
from tests.cluster.install.conftest import image, site
from tests.cluster.pods.conftest import pytest_runtest_makereport, pytest_runtest_setup

__all__ = ["image", "pytest_runtest_makereport", "pytest_runtest_setup", "site", "start_control_plane"]
