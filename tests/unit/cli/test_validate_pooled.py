"""`netdra validate` warns about selectors that never select pooled VFs, where they stand."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from netdra.cli.validate import command

POLICY = """
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: pooled}
spec:
  selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
  exposure: {supportedCNIPlugins: [{name: sriov}], pooledVFs: {lanes: 1}}
"""
OBJECTS = """
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: third}
spec:
  steps:
    - {name: vf0, type: sriov, selector: {cel: 'device.attributes["dra.networking"].vfIndex == 3'}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: fourth}
spec:
  selectors:
    - cel: {expression: 'device.driver == "dra.networking" && device.attributes["dra.networking"].vfIndex == 4'}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: fifth, namespace: team}
spec:
  devices:
    requests:
      - name: vf
        exactly:
          deviceClassName: fourth
          selectors:
            - cel: {expression: 'device.attributes["dra.networking"].vfIndex == 5'}
"""


def validate(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "all.yaml").write_text(text)
    done = CliRunner().invoke(command, [str(tmp_path)])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_selectors_of_a_topology_a_class_and_a_claim_are_warned_of(tmp_path: Path) -> None:
    lines = validate(tmp_path, f"{POLICY}---{OBJECTS}")
    assert [line.rpartition(" [")[2] for line in lines] == [
        "spec.steps[0].selector.cel] (ND1253)",
        "spec.selectors[0].cel.expression] (ND1236)",
        "spec.devices.requests[0].exactly.selectors[0].cel.expression] (ND1236)",
    ]
    assert all('never selects devices of pooledVFs (policy "pooled")' in line for line in lines)


def test_without_pooled_vfs_no_warning_is_printed(tmp_path: Path) -> None:
    assert validate(tmp_path, OBJECTS) == []
