"""One cloud for a module: Keystone and Neutron with a network, the agents of the nodes' NICs, and a controller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.openstack.cloud import Cloud
from testbed.process import Process
from tests.cluster.daemons import running_controller

HOST = "node-1"
INTERVAL = 2.0
"""How often the controller looks through the cluster's ports, in seconds."""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with Cloud(tmp_path_factory.mktemp("cloud") / "state") as running:
        running.beat(HOST, physnet2=["enp1s0f0"], physnet3=["enp1s0f1"])
        yield running


@pytest.fixture(scope="module")
def network(cloud: Cloud) -> Any:
    return cloud.network("data", "physnet2", ["10.20.0.0/24", "fd00:20::/64"])


@pytest.fixture(scope="module")
def arguments(cloud: Cloud, network: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The arguments that the controller is started with."""
    folder = tmp_path_factory.mktemp("clouds")
    (folder / "physnets.yaml").write_text("physnet2: {network: data}\n")
    return (
        f"--neutron-clouds={cloud.clouds(folder / 'clouds.yaml')}",
        f"--neutron-physnets={folder / 'physnets.yaml'}",
        f"--neutron-check-interval={INTERVAL}",
    )


@pytest.fixture(scope="module")
def controller(
    control_plane: ControlPlane, api: Api, custom_kinds: None, arguments: tuple[str, ...]
) -> Iterator[Process]:
    with running_controller(control_plane, api, *arguments) as process:
        yield process
