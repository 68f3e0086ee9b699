"""One node with one driver for all tests of this folder, and the devices that each test offers on it.

The driver has its own rights and no others. A test begins and ends with nothing of any pod on the node.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.driver import Driver
from testbed.pods import Pods
from testbed.workspace import Workspace
from tests.cluster.pods.conftest import Machine, running_machine
from tests.cluster.pods.driver import Offer, opened
from tests.cluster.pods.running import account


@pytest.fixture(scope="session")
def machine(
    request: pytest.FixtureRequest, control_plane: ControlPlane, api: Api, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """A Ready node of the shared control plane."""
    with running_machine(request.config, control_plane, api, tmp_path_factory.mktemp("node")) as found:
        yield found


@pytest.fixture(scope="session")
def driver(machine: Machine, control_plane: ControlPlane, api: Api, custom_kinds: None) -> Driver:
    """The node's driver."""
    account_file = account(machine.node, control_plane, api)
    found = Driver(machine.node, account_file, options=["--pod-network-kind=netdra"])
    found.start()
    return found


@pytest.fixture
def offer(driver: Driver, workspace: Workspace, pods: Pods) -> Iterator[Offer]:
    """The devices that a test offers on the node; afterwards nothing of its pods is left."""
    with opened(driver, workspace, pods) as offer:
        yield offer
