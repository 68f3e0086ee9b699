"""The SR-IOV machine as a node with a real kubelet, for all tests of this folder, and the devices that they offer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from netdra.cni.plugins import PluginPath
from testbed.pods import Pods
from testbed.workspace import open_workspace
from tests.cluster.pods.conftest import MOST_SECONDS
from tests.cluster.pods.conftest import pytest_runtest_makereport as pytest_runtest_makereport
from tests.cluster.pods.conftest import pytest_runtest_setup as pytest_runtest_setup
from tests.cluster.pods.driver import Offer, opened
from tests.hardware.conftest import ACROSS_BOOTS
from tests.hardware.real.worker import Worker, running_worker

FOLDER = Path(__file__).parent


@pytest.fixture(scope="session")
def worker(request: pytest.FixtureRequest, plugins: PluginPath) -> Iterator[Worker]:
    """The machine as a node of the control plane outside, with its kubelet, its runtime and its driver.

    `plugins` comes before, for then programs are found on the disk, which has not all of those.
    """
    with running_worker(request.config) as found:
        yield found


@pytest.fixture
def offer(worker: Worker) -> Iterator[Offer]:
    """The devices that a test offers on the node; afterwards nothing of its pods is left."""
    with open_workspace(worker.api) as workspace:
        pods = Pods(worker.api, workspace.namespace, worker.machine.containerd)
        with opened(worker.driver, workspace, pods) as offer:
            yield offer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of real pods come last, for their node's programs stay, and of them what the next boot finds."""
    items.sort(key=lambda item: (item.path.is_relative_to(FOLDER), item.get_closest_marker(ACROSS_BOOTS) is not None))
    for item in items:  # and they have more time than all others
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.timeout(MOST_SECONDS))
