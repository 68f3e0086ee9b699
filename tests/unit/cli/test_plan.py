"""`netdra plan` prints slices to stdout and problems to stderr; only unreadable input is an error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from netdra.cli.plan import command
from netdra.model import documents
from netdra.model.resource import ResourceSlice
from testbed import yaml
from testbed.waiting import waiting

WORKER_1 = Path(__file__).parents[3] / "examples" / "worker-1"
INVENTORY = str(WORKER_1 / "inventory.json")
BROKEN = """
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: broken}
spec:
  selector: {cel: 'true &&'}
"""


def plan(*arguments: str, policies: Path = WORKER_1 / "policies") -> Result:
    return CliRunner().invoke(command, ["--policies", str(policies), "--inventory", INVENTORY, *arguments])


def whole_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "netdra", "plan", *arguments]
    with waiting("netdra plan"):
        return subprocess.run(command, capture_output=True, text=True, check=False)


def test_yaml_is_the_slices_themselves() -> None:
    done = plan()
    assert done.exit_code == 0
    assert done.stderr == ""
    assert list(yaml.safe_load_all(done.stdout)) == list(yaml.safe_load_all((WORKER_1 / "slices.yaml").read_text()))


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_printed_slices_can_be_read_back(output: str) -> None:
    read = list(documents.read(plan("--output", output).stdout, "stdout"))
    assert len(read) == 5
    assert all(isinstance(each, ResourceSlice) for each in read)


def test_json_is_one_list() -> None:
    found = json.loads(plan("-o", "json").stdout)
    assert (found["apiVersion"], found["kind"], len(found["items"])) == ("v1", "List", 5)


def test_the_table_has_a_line_for_each_device() -> None:
    lines = plan("-o", "table").stdout.splitlines()
    assert lines[0].split()[:3] == ["POOL", "DEVICE", "KIND"]
    assert lines[-1] == "3 pools, 16 devices, 5 slices"
    assert len(lines) == 18
    row = next(line for line in lines if "enp3s0f0-macvlan" in line)
    expected = "enp3s0f0-macvlan shared macvlan macvlans 64 (1 a claim) macvlans-capacity 64 29 pf0-macvlan"
    assert " ".join(row.split()) == f"worker-1/sriov-enp3s0f0 {expected}"


def test_the_nodes_name_can_be_given() -> None:
    pools = {part["spec"]["pool"]["name"] for part in yaml.safe_load_all(plan("--node", "n7").stdout)}
    assert pools == {"n7/bridge-br-data", "n7/sriov-enp3s0f0", "n7/sriov-enp3s0f1"}


def test_gates_change_the_encoding() -> None:
    done = plan("--feature", "DRAListTypeAttributes=true", "--feature", "DRAPartitionableDevices=false")
    devices = [device for part in yaml.safe_load_all(done.stdout) for device in part["spec"]["devices"]]
    assert all("consumesCounters" not in device for device in devices)
    assert devices[0]["attributes"]["supportedCNIs"] == {"strings": ["bridge"]}
    assert "gate DRAPartitionableDevices" in done.stderr


def test_an_unusable_policy_is_reported_and_the_others_are_used(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(BROKEN)
    done = plan("--policies", str(tmp_path))
    assert done.exit_code == 0
    assert 'netdra: policy "broken": CEL expression does not compile at line 1' in done.stderr
    assert len(list(yaml.safe_load_all(done.stdout))) == 5


def test_a_misspelled_plugin_name_is_reported_with_a_suggestion(tmp_path: Path) -> None:
    misspelt = BROKEN.replace("true &&", "true") + "  exposure: {supportedCNIPlugins: [{name: maclvan}]}\n"
    (tmp_path / "a.yaml").write_text(misspelt)
    done = plan(policies=tmp_path)
    assert done.exit_code == 0
    assert 'netdra: policy "broken": no CNIPluginSchema describes plugin "maclvan"' in done.stderr
    assert 'did you mean "macvlan"?' in done.stderr


def test_a_policy_that_fails_alike_on_many_interfaces_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(BROKEN.replace("true &&", 'device.attributes["example.com"].speed > 5'))
    done = plan(policies=tmp_path)
    assert done.exit_code == 0
    first, _, _, others, nothing, _ = done.stderr.splitlines()
    assert nothing == "netdra: no devices are offered:"
    assert first.startswith('netdra: policy "broken": br-data is not matched: CEL expression fails on this device at')
    assert (
        others
        == 'netdra: policy "broken": the same problem as br-int, eno1, ovn-k8s-mp0, enp3s0f0, enp3s0f0v0 and 12 more'
    )


def test_policies_come_from_several_files_and_other_kinds_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "slices.yml").write_text((WORKER_1 / "slices.yaml").read_text())
    (tmp_path / "notes.txt").write_text("{")
    one = WORKER_1 / "policies" / "40-bridge-br-data.yaml"
    done = plan("--policies", str(tmp_path), policies=one)
    assert [part["spec"]["pool"]["name"] for part in yaml.safe_load_all(done.stdout)] == ["worker-1/bridge-br-data"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policies", "nowhere.yaml", "--inventory", INVENTORY], "nowhere.yaml: No such file or directory"),
        (
            ["--policies", INVENTORY, "--inventory", INVENTORY],
            "DeviceExposurePolicy not found; the input contains inventory",
        ),
        (["--policies", str(WORKER_1 / "slices.yaml"), "--inventory", INVENTORY], "DeviceExposurePolicy not found"),
        (
            ["--policies", str(WORKER_1 / "policies"), "--inventory", str(WORKER_1 / "slices.yaml")],
            "slices.yaml: inventory not found",
        ),
        (
            ["--policies", str(WORKER_1 / "policies"), "--inventory", INVENTORY, "--node", "N!"],
            "is not a valid node name",
        ),
        (
            ["--policies", str(WORKER_1 / "policies"), "--inventory", INVENTORY, "--feature", "X=true"],
            "is not valid",
        ),
        (["--policies", str(WORKER_1 / "policies"), "--inventory", INVENTORY, "--output", "xml"], "xml"),
    ],
)
def test_bad_input_is_an_error_and_exit_code_2(arguments: list[str], message: str) -> None:
    done = whole_process(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert "Traceback" not in done.stderr
