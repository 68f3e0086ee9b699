"""One cloud, restored for each module: Keystone and Neutron with a network, agents of NICs, and a controller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.openstack.cloud import Cloud
from testbed.process import Process
from testbed.waiting import until
from tests.cluster.daemons import running_controller

PORT = "networking.dra.io/v1alpha1/NeutronPort"
HOST = "node-1"
PATIENCE = 180.0
INTERVAL = 2.0
"""How often the controller looks through the cluster's ports, in seconds."""


@pytest.fixture(scope="module")
def cloud(empty_cloud: Cloud) -> Cloud:
    """The cloud, with the agent of a host."""
    empty_cloud.beat(HOST, physnet2=["enp1s0f0"], physnet3=["enp1s0f1"])
    return empty_cloud


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
        try:
            yield process
            # Without a controller they would stay, and be seen by other tests.
            until(lambda: not api.list(PORT), "the controller to delete all NeutronPorts", seconds=PATIENCE)
        finally:
            remove_ports(api)


def remove_ports(api: Api) -> None:
    """Remove all NeutronPorts without their finalizers, which wait for a controller."""
    for port in api.list(PORT):
        name, namespace = port["metadata"]["name"], port["metadata"]["namespace"]
        api.patch(PORT, name, {"metadata": {"finalizers": None}}, namespace=namespace)
        api.delete(PORT, name, namespace)
