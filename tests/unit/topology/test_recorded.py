"""The documents' topologies give the plans and DeviceClasses in `expected/`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from netdra.model import documents
from netdra.model.topology import NetworkTopology
from netdra.topology.bind import unbound
from netdra.topology.classes import device_classes
from testbed import yaml
from tests.documents import TOPOLOGIES

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in TOPOLOGIES.glob("*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_topology_gives_the_expected_plan_and_classes(
    recorded: Callable[[str], NetworkTopology], name: str
) -> None:
    topology = recorded(name)
    expected = list(yaml.safe_load_all((HERE / "expected" / f"{name}.yaml").read_text()))
    found = documents.to_yaml([unbound(topology), *device_classes(topology)])
    assert list(yaml.safe_load_all(found)) == expected


def test_all_of_them_are_there() -> None:
    assert NAMES == [
        "ai-bonded-rdma",
        "bonded-vlan-topology",
        "ovnk-localnet",
        "ovnk-localnet-tuned",
        "ovnk-udn-accelerated",
    ]
