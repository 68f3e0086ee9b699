"""The documents' policies (`tests.documents`) and an inventory in YAML give the slices in YAML beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.exposure import expose
from netdra.model import documents
from netdra.model.policy import DeviceExposurePolicy
from netdra.slices.pack import Packed, layout
from testbed import yaml
from tests.builders import read_inventory
from tests.documents import DEVICES, REFERENCE_NODE

HERE = Path(__file__).parent
WORKER_1 = HERE.parents[2] / "examples" / "worker-1"


def policies_of(*paths: Path) -> list[DeviceExposurePolicy]:
    found = [each for path in paths for each in documents.read(path.read_text(), path.name)]
    return [each for each in found if isinstance(each, DeviceExposurePolicy)]


def as_read(packed: Packed) -> Any:
    return msgspec.json.decode(msgspec.json.encode(packed.slices))


def planned(inventory: Path, *policies: Path) -> Packed:
    node = read_inventory(inventory.read_text())
    result = expose(node, policies_of(*policies))
    assert result.problems == ()
    return layout(result, node=node.node.name)


@pytest.mark.parametrize("folder", sorted((HERE / "golden").iterdir()), ids=lambda folder: folder.name)
def test_an_example_gives_exactly_its_slices(folder: Path) -> None:
    packed = planned(folder / "inventory.yaml", *folder.glob("policies.yaml"), _of_the_document(folder))
    assert as_read(packed) == list(yaml.safe_load_all((folder / "slices.yaml").read_text()))
    assert packed.problems == ()


def _of_the_document(folder: Path) -> Path:
    """The policies of the section whose number a folder's name begins with."""
    return DEVICES / f"5.{folder.name.partition('-')[0]}.yaml"


def test_the_reference_node_gives_exactly_its_slices() -> None:
    packed = planned(WORKER_1 / "inventory.json", REFERENCE_NODE)
    assert as_read(packed) == list(yaml.safe_load_all((WORKER_1 / "slices.yaml").read_text()))


def test_the_reference_node_has_three_pools_and_sixteen_devices() -> None:
    packed = planned(WORKER_1 / "inventory.json", REFERENCE_NODE)
    devices = [device for each in packed.slices for device in each.spec.devices]
    counters = {
        each.name: {name: counter.value for name, counter in each.counters.items()}
        for part in packed.slices
        for each in part.spec.shared_counters
    }
    assert {each.spec.pool.name for each in packed.slices} == {
        "worker-1/bridge-br-data",
        "worker-1/sriov-enp3s0f0",
        "worker-1/sriov-enp3s0f1",
    }
    assert len(devices) == 16
    assert counters == {
        "enp3s0f0-counters": {"exclusion-slots": "9", "bandwidth": "100000", "macvlans-capacity": "64"},
        "enp3s0f1-counters": {"exclusion-slots": "5", "bandwidth": "25000"},
    }
    names = {device.attributes["ifName"].value for device in devices}
    assert names.isdisjoint({"eno1", "br-int", "ovn-k8s-mp0"})
