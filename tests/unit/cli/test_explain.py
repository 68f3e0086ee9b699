"""`netdra explain` prints each policy's verdict on an interface, and their result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from netdra.cli.explain import command
from netdra.model.errors import InvalidInputError
from testbed import yaml

WORKER_1 = Path(__file__).parents[3] / "examples" / "worker-1"
BASE = ["--policies", str(WORKER_1 / "policies"), "--inventory", str(WORKER_1 / "inventory.json")]
TROUBLED = """
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: fails}
spec:
  selector:
    cel: |
      device.attributes["dra.networking"].type == "pf" &&
      device.attributes["dra.networking"].colour == "red"
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: invalid}
spec:
  selector: {cel: 'true && nothing'}
"""


def explain(*arguments: str) -> str:
    done = CliRunner().invoke(command, [*arguments, *BASE])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_an_exposed_interface_is_shown_with_its_devices_and_counters() -> None:
    assert (
        explain("enp3s0f0")
        == """\
enp3s0f0 (0000:03:00.0)
  exposed as enp3s0f0-macvlan, enp3s0f0-passthrough by "pf0-macvlan", "pf0-passthrough"

Policies
  bridge-br-data       expose, priority 150: does not match
                         false: device.attributes["dra.networking"].type == "bridge"; type is "pf"
  exclude-cluster-cni  exclude, priority 1000: does not match
                         false: device.attributes["dra.networking"].ifName in \
["br-int", "ovn-k8s-mp0", "breth0", "ovn-k8s-gw0"]; ifName is "enp3s0f0"
  exclude-management   exclude, priority 1000: does not match
                         false: device.attributes["dra.networking"].ifName == "eno1"; ifName is "enp3s0f0"
  pf0-macvlan          expose, priority 200: matches and is used
  pf0-passthrough      expose, priority 200: matches and is used
  pf0-vfs              expose, priority 200: does not match
                         false: device.attributes["dra.networking"].type == "vf"; type is "pf"
  pf1-passthrough      expose, priority 200: does not match
                         false: device.attributes["dra.networking"].ifName == "enp3s0f1"; ifName is "enp3s0f0"
  pf1-vfs              expose, priority 200: does not match
                         false: device.attributes["dra.networking"].type == "vf"; type is "pf"

Device enp3s0f0-macvlan of pool worker-1/sriov-enp3s0f0, shared, by policy "pf0-macvlan"
  CNI plugins: macvlan
  capacity: macvlans 64 (1 a claim)
  takes: macvlans-capacity 64
  slots: 29 with 32 attributes and capacities

Device enp3s0f0-passthrough of pool worker-1/sriov-enp3s0f0, exclusive, by policy "pf0-passthrough"
  CNI plugins: host-device
  takes: exclusion-slots 9, bandwidth 100000, macvlans-capacity 64
  slots: 28 with 32 attributes and capacities

Counter set enp3s0f0-counters: exclusion-slots 9, bandwidth 100000, macvlans-capacity 64
"""
    )


def test_a_hidden_interface_is_shown_with_the_policy_that_hides_it() -> None:
    text = explain("eno1")
    assert 'hidden: exclude policy "exclude-management" matches it' in text
    assert "exclude-management   exclude, priority 1000: matches and excludes it" in text
    assert "Device" not in text


def test_a_failing_expression_is_shown_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(TROUBLED)
    lines = explain("enp3s0f1", "--policies", str(tmp_path)).splitlines()
    at = next(index for index, line in enumerate(lines) if "fails on it" in line)
    assert [line.strip() for line in lines[at : at + 4]] == [
        "fails                expose, priority 100: fails on it",
        'CEL expression fails on this device at line 2, column 37: Key not found in map : "colour"',
        'device.attributes["dra.networking"].colour == "red"',
        "^",
    ]
    assert lines[at + 3].index("^") == lines[at + 2].index("colour")
    assert any("is invalid" in line for line in lines)
    assert any("at line 1, column 9: undeclared reference to 'nothing'" in line for line in lines)
    assert "Problems" not in lines  # the verdict has said it


def test_a_policy_that_cannot_be_evaluated_is_not_counted_as_unmatched(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(TROUBLED)
    arguments = ["br-data", "--policies", str(tmp_path), "--inventory", str(WORKER_1 / "inventory.json")]
    reason = CliRunner().invoke(command, arguments).stdout.splitlines()[1]
    assert reason == "  hidden: not matched by any policy; 1 policy could not be evaluated"
    (tmp_path / "p.yaml").write_text(TROUBLED.replace(" &&\n", " ||\n"))
    reason = CliRunner().invoke(command, arguments).stdout.splitlines()[1]
    assert reason == "  hidden: not matched by any policy; 2 policies could not be evaluated"


@pytest.mark.parametrize("wanted", ["enp3s0f0v3", "0000:03:00.5"])
def test_an_interface_is_found_by_its_name_or_address(wanted: str) -> None:
    assert explain(wanted).splitlines()[0] == "enp3s0f0v3 (0000:03:00.5)"


def test_an_interface_is_found_by_the_name_of_its_device() -> None:
    assert explain("enp3s0f0-passthrough").splitlines()[0] == "enp3s0f0 (0000:03:00.0)"


def test_explain_prints_the_same_data_as_json_and_yaml() -> None:
    (found,) = json.loads(explain("br-data", "-o", "json"))
    assert list(yaml.safe_load_all(explain("br-data", "-o", "yaml"))) == [found]
    assert found["decision"]["exposed"] == ["br-data"]
    assert found["devices"][0]["attributes"]["dra.networking/supportedCNIs"] == ["bridge"]
    assert "counterSets" not in found


def test_an_unknown_interface_is_an_error_that_names_those_alike() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "netdra", "explain", "enp3s0", *BASE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert 'netdra: node "worker-1" does not have an interface "enp3s0"; did you mean enp3s0f' in done.stderr


def test_an_unknown_interface_that_is_like_none_is_an_error_that_names_some() -> None:
    problem = CliRunner().invoke(command, ["wwan7", *BASE]).exception
    assert isinstance(problem, InvalidInputError)
    there = problem.hint.removeprefix("there are ").removesuffix(" and 8 more")
    assert len(there.split(", ")) == 10


POOLED = """
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: pooled}
spec:
  selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
  exposure: {supportedCNIPlugins: [{name: sriov}], pooledVFs: {lanes: LANES}, capacity: CAPACITY}
"""


def explain_pooled(tmp_path: Path, name: str, lanes: int = 1, capacity: str = "{}") -> str:
    policy = tmp_path / "pooled.yaml"
    policy.write_text(POOLED.replace("LANES", str(lanes)).replace("CAPACITY", capacity))
    arguments = [name, "--policies", str(policy), "--inventory", str(WORKER_1 / "inventory.json")]
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_pooled_vf_is_shown_with_the_devices_that_it_is_one_vf_of(tmp_path: Path) -> None:
    text = explain_pooled(tmp_path, "enp3s0f0v1")
    assert "pooled: one of the 8 VFs of enp3s0f0-vfs; the node selects any of them for a claim" in text
    assert 'Device enp3s0f0-vfs of pool worker-1/sriov-enp3s0f0, pooled VFs, by policy "pooled"' in text
    assert "VFs: 0000:03:00.2, 0000:03:00.3," in text
    many = explain_pooled(tmp_path, "enp3s0f0v1", lanes=4)
    assert "VFs of enp3s0f0-vfs0 … enp3s0f0-vfs3 (4 devices)" in many


def test_a_device_of_pooled_vfs_can_be_asked_for_by_its_name(tmp_path: Path) -> None:
    text = explain_pooled(tmp_path, "enp3s0f0-vfs")
    assert text.startswith('enp3s0f0-vfs\n  exposed as enp3s0f0-vfs by "pooled"\n\nDevice enp3s0f0-vfs')


def test_explain_of_a_vf_prints_the_reason_why_its_pool_is_not_offered(tmp_path: Path) -> None:
    text = explain_pooled(tmp_path, "enp3s0f1v0", capacity='{bandwidth: {value: "100000"}}')
    assert "enp3s0f1-vfs is not offered: its bandwidth of 100000 Mbit/s exceeds the link speed, 25000" in text
