"""The documents' objects, as they are written: `netdra validate`, `plan`, `simulate` and the controller's classes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from netdra.cli.simulate import command as simulate
from netdra.cli.validate import command as validate
from netdra.model import documents
from netdra.model.policy import DeviceExposurePolicy
from netdra.topology.classes import device_classes
from testbed import yaml
from tests.documents import (
    ATTRIBUTES,
    CLAIMS,
    CLASSES,
    DEVICES,
    GRAPH,
    HERE,
    REFERENCE_NODE,
    SCHEMAS,
    TOPOLOGIES,
    filled_in,
)

EXAMPLES = Path(__file__).parents[2] / "examples"
WORKER_1 = EXAMPLES / "worker-1"
DIGEST = "8b4007ebe723d12478b71f191f18bcb8339b43d4361607a64fbd9c5292fa7d96"
"""Of all objects; it changes if somebody edits one."""
FIRST = "the default route comes before that of eth0"
WIDER = "allows more than netdra's built-in schema"
FORMER = ('unknown field "requestPolicy"', 'unknown field "basic"', '"stringSlice"', 'unknown field "valueFrom"')
LACP = "mode 802.3ad requires that the switch receives LACP frames of the VFs"
FINDINGS: dict[Path, tuple[str, ...]] = {
    DEVICES / "2.1.yaml": ("no object can have this name",),  # a form to fill in
    DEVICES / "6.3.yaml": (*FORMER, *FORMER, *FORMER[1:3]),
    ATTRIBUTES / "slice.yaml": ('"generation" is missing', '"resourceSliceCount"', 'did you mean "value"?'),
    ATTRIBUTES / "custom-device.yaml": ('"metadata" is missing', 'unknown field "status"'),
    TOPOLOGIES / "ai-bonded-rdma.yaml": (LACP, FIRST),
    TOPOLOGIES / "bonded-vlan-topology.yaml": (LACP, FIRST),
    SCHEMAS / "bond.yaml": (WIDER,),
    SCHEMAS / "tuning.yaml": (WIDER,),
}
"""The lines of `netdra validate` for a file, a text of each; other files have none."""
FILES = sorted(HERE.rglob("*.yaml"))


def objects_of(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def test_the_objects_are_those_of_the_documents() -> None:
    objects = {str(path.relative_to(HERE)): objects_of(path) for path in FILES}
    assert hashlib.sha256(json.dumps(objects, sort_keys=True).encode()).hexdigest() == DIGEST


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HERE)))
def test_validate_reports_only_the_known_findings_of_a_file(path: Path) -> None:
    beside = [GRAPH] if GRAPH in path.parents else [path, TOPOLOGIES] if path.name == "6.5.yaml" else [path]
    done = CliRunner().invoke(validate, [str(each) for each in beside])
    lines = [line for line in done.stdout.splitlines() if line.startswith(f"{path}:")]
    assert len(lines) == len(FINDINGS.get(path, ()))
    assert all(text in line for text, line in zip(FINDINGS.get(path, ()), lines, strict=True)), lines


def test_every_field_of_the_form_is_one_of_a_policy(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(filled_in()))
    done = CliRunner().invoke(validate, [str(tmp_path)])
    assert (done.exit_code, done.stdout) == (0, "")


def test_the_form_shows_the_defaults() -> None:
    written = filled_in()
    (whole,) = documents.read(yaml.safe_dump(written), "form")
    for field in ("priority", "action"):
        del written["spec"][field]
    for field in ("deviceNameSuffix", "allowMultipleAllocations", "exclusionGroup"):
        del written["spec"]["exposure"][field]
    del written["spec"]["exposure"]["supportedCNIPlugins"][0]["exclusive"]
    (short,) = documents.read(yaml.safe_dump(written), "form")
    assert short == whole


COPIES = {
    **{
        DEVICES / f"5.{number}.yaml": next((EXAMPLES / "cookbook").glob(f"{number}-*")) / "policies.yaml"
        for number in range(1, 10)
    },
    REFERENCE_NODE: WORKER_1 / "policies",
}


@pytest.mark.parametrize(("of_document", "of_example"), COPIES.items(), ids=lambda path: path.parent.name)
def test_the_examples_have_the_documents_policies(of_document: Path, of_example: Path) -> None:
    """Without the fields that have their defaults."""
    shown = {policy.name: policy.spec for policy in policies_in(of_example)}
    assert {policy.name: shown[policy.name] for policy in policies_in(of_document)} == {
        policy.name: policy.spec for policy in policies_in(of_document)
    }


def policies_in(path: Path) -> Iterator[DeviceExposurePolicy]:
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        for each in documents.read(file.read_text(), file.name):
            assert isinstance(each, DeviceExposurePolicy)
            yield each


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*bond*.yaml")), ids=lambda path: path.stem)
def test_the_classes_of_a_topology_are_the_documents(path: Path) -> None:
    """Their selectors have all conditions of the documents', and guards (docs/claims.md)."""
    (topology,) = documents.read(path.read_text(), path.name)
    made = {each.metadata.name: documents.plain(each) for each in device_classes(topology)}  # type: ignore[arg-type]
    files = sorted(CLASSES.glob(f"{path.stem}-*.yaml"))
    assert files
    for written in (each for file in files for each in objects_of(file)):
        found = made[written["metadata"]["name"]]
        assert found["metadata"] == written["metadata"]
        assert list(found["spec"]["config"]) == written["spec"]["config"]
        (selector,), (asked,) = found["spec"]["selectors"], written["spec"]["selectors"]
        for condition in asked["cel"]["expression"].split(" && "):
            assert condition in selector["cel"]["expression"]


def test_the_reference_node_publishes_the_documents_devices() -> None:
    """All their facts, with the names of Kubernetes 1.37; docs/mission.md lists the differences of counters."""
    published = {
        device["name"]: device
        for part in objects_of(WORKER_1 / "slices.yaml")
        for device in part["spec"].get("devices", ())
    }
    compared = 0
    for part in objects_of(DEVICES / "6.3.yaml"):
        for written in part["spec"]["devices"]:
            device, basic = published[written["name"]], written["basic"]
            attributes = {_short(name): value for name, value in device["attributes"].items()}
            for name, value in basic["attributes"].items():
                listed = f",{','.join(value['stringSlice'])}," if "stringSlice" in value else None
                assert attributes[_short(name)] == ({"string": listed} if listed else value), (written["name"], name)
                compared += 1
            assert device.get("allowMultipleAllocations") == written.get("allowMultipleAllocations")
            for name, capacity in basic.get("capacity", {}).items():
                assert device["capacity"][name] == capacity
            _same_counters(written, device)
    assert compared > 80


def _same_counters(written: dict[str, Any], device: dict[str, Any]) -> None:
    """The slots and the bandwidth that a device takes; a claim's own share of it is not possible (decision D4)."""
    (given,) = written.get("consumesCounters", [None])
    if given is None:
        return
    (found,) = device["consumesCounters"]
    for name in ("exclusion-slots", "bandwidth"):
        wanted = given["counters"][name]
        assert found["counters"][name]["value"] == (
            device["capacity"]["dra.networking/bandwidth"]["value"] if "valueFrom" in wanted else str(wanted["value"])
        )


def _short(name: str) -> str:
    return name.removeprefix("dra.networking/")


GPUS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "worker-1-gpus"},
    "spec": {
        "driver": "gpu.nvidia.com",
        "nodeName": "worker-1",
        "pool": {"name": "worker-1-gpus", "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": f"gpu-{number}",
                "attributes": {"productName": {"string": "H100"}, "device.k8s.io/pcieRoot": {"string": root}},
            }
            for number, root in enumerate(("pci0000:c0", "pci0000:00"))
        ],
    },
}


@pytest.mark.parametrize(
    ("path", "devices"),
    [
        (DEVICES / "6.5.yaml", {"enp3s0f0v0", "enp3s0f1v0"}),
        (CLAIMS / "my-network.yaml", {"enp3s0f0v0", "enp3s0f1v0"}),
        (CLAIMS / "ai-gpu-bonded-rdma.yaml", {"gpu-1", "enp3s0f0v0", "enp3s0f1v0"}),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else "",
)
def test_the_documents_claims_are_allocated_on_the_reference_node(
    path: Path, devices: set[str], tmp_path: Path
) -> None:
    (tmp_path / "gpus.yaml").write_text(yaml.safe_dump(GPUS))
    arguments = [WORKER_1 / "slices.yaml", tmp_path, path, TOPOLOGIES, CLASSES / "nvidia-gpu-h100.yaml"]
    done = CliRunner().invoke(simulate, [*map(str, arguments), "-o", "json"])
    (claim,) = json.loads(done.stdout)["claims"]
    assert {result["device"] for result in claim["allocation"]["devices"]["results"]} == devices
