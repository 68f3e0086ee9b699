"""One cloud for a module: Keystone and Neutron with a network, and the agents of the nodes' NICs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from testbed.openstack.cloud import Cloud

HOST = "node-1"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with Cloud(tmp_path_factory.mktemp("cloud") / "state") as running:
        running.beat(HOST, physnet2=["enp1s0f0"], physnet3=["enp1s0f1"])
        yield running


@pytest.fixture(scope="module")
def network(cloud: Cloud) -> Any:
    return cloud.network("data", "physnet2", ["10.20.0.0/24", "fd00:20::/64"])
