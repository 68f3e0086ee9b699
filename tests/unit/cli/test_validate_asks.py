"""`netdra validate` on correct requests of classes and claims (tests/mistakes/asks.yaml has the mistakes)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed import yaml
from tests import validation

TOPOLOGY = yaml.safe_load((Path(__file__).parents[2] / "mistakes" / "asks.yaml").read_text())["beside"]
OURS = 'device.attributes["dra.networking"]'
CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec:
  devices:
    requests:
      - name: nic
        exactly:
          deviceClassName: lan-nic
          capacity: {requests: {dra.networking/bandwidth: 10k}}
          tolerations: [{key: dra.networking/link-down, operator: Exists}]
      - {name: gpu, firstAvailable: [{name: big, deviceClassName: gpu.example.com}]}
    constraints:
      - {requests: [nic, gpu], matchAttribute: resource.kubernetes.io/pcieRoot}
      - {requests: [gpu/big], matchAttribute: gpu.example.com/model}
      - {requests: [nic], distinctAttribute: dra.networking/numaNode}
"""


def said(folder: Path, text: str) -> list[str]:
    """The lines of the output, without places in the file."""
    _, lines = validation.lines(folder, text.lstrip(), TOPOLOGY)
    return [re.sub(r"^\d+: ", "", line) for line in lines]


@pytest.mark.parametrize(
    "expression",
    [
        f'device.driver == "dra.networking" && {OURS}.type == "vf" && {OURS}.vendor == "15b3"',
        f'device.driver == "dra.networking" && "tier" in {OURS} && {OURS}.tier == "gold"',
        'device.driver == "gpu.example.com" || device.driver == "dra.networking"',
        'device.driver in ["gpu.example.com", "dra.networking"]',
        'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].model == "A100"',
        'device.attributes["networking.example.com"].type == "VF"',
    ],
)
def test_classes_that_are_right_or_of_other_drivers(tmp_path: Path, expression: str) -> None:
    text = f"""
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {{name: c}}
spec: {{selectors: [{{cel: {{expression: '{expression}'}}}}]}}
"""
    assert [line for line in said(tmp_path, text) if not line.startswith("warning")] == []


def test_a_claim_that_is_right_has_no_problem(tmp_path: Path) -> None:
    assert said(tmp_path, CLAIM) == []
