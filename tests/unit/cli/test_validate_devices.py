"""`netdra validate` compares facts with the devices of an inventory, also beside other drivers' slices."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from netdra.cli.main import cli
from testbed import yaml

RAILS = Path(__file__).parents[3] / "examples" / "rails"
WARNING = 'step "rail" of NetworkTopology "rails" would make interface "rail0" twice in the pod'


def slice_of(driver: str) -> dict[str, object]:
    pool = {"name": "gpu-1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": "gpu-1", "pool": pool, "devices": [{"name": "gpu-0"}]}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "gpus"}, "spec": spec}


@pytest.mark.parametrize(("driver", "warns"), [("gpu.example.com", True), ("dra.networking", False)])
def test_only_slices_of_netdra_replace_the_devices_of_an_inventory(driver: str, warns: bool, tmp_path: Path) -> None:
    policies = [*yaml.safe_load_all((RAILS / "policies.yaml").read_text())]
    for policy in policies:
        policy["spec"]["exposure"]["additionalAttributes"] = policies[0]["spec"]["exposure"]["additionalAttributes"]
    file = tmp_path / "input.yaml"
    template = next(yaml.safe_load_all((RAILS / "job.yaml").read_text()))
    del template["spec"]["spec"]["devices"]["constraints"]
    file.write_text(yaml.safe_dump_all([*policies, slice_of(driver), template]))
    others = (RAILS / name for name in ("topology.yaml", "inventory.yaml"))
    done = CliRunner().invoke(cli, ["validate", str(file), *map(str, others)])
    assert done.exit_code == 0
    assert (WARNING in done.stdout) is warns, done.output
