"""`netdra discover` and `netdra capture` on recorded trees, and their answers to bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from netdra.model.inventory import ATTRIBUTES
from testbed import yaml
from testbed.waiting import waiting
from tests.builders import read_inventory
from tests.trees import sriov_machine


def netdra(*arguments: str) -> subprocess.CompletedProcess[str]:
    with waiting(f"netdra {arguments[0]}"):
        return subprocess.run((sys.executable, "-m", "netdra", *arguments), capture_output=True, text=True, check=False)


def test_json_is_a_list_of_attributes_by_name(tmp_path: Path) -> None:
    done = netdra("discover", "--sysfs", str(sriov_machine(tmp_path)), "--output", "json")
    assert done.returncode == 0
    found = {each["pciAddress"] or each["ifName"]: each for each in json.loads(done.stdout)}
    names = {each.name.removeprefix("dra.networking/") for each in ATTRIBUTES}
    relations = {
        "master",
        "lowerDevices",
        "upperDevices",
        "deviceName",
        "totalVFs",
        "pfPciAddress",
        "devPort",
        "vlanId",
    }
    assert set(found["0000:41:10.2"]) == (names | relations) - {"eswitchMode"}, "not in sysfs"
    ens1 = found["0000:41:00.0"]
    assert names - set(ens1) == {"hostUplink", "hostUse", "ipv4", "ipv6", "altName", "eswitchMode"}, "not in sysfs"
    assert (ens1["type"], ens1["numVFs"], ens1["resource.kubernetes.io/pcieRoot"]) == ("pf", 4, "pci0000:40")
    assert found["br0"]["lowerDevices"] == ["ens1v0"]


def test_discover_prints_the_same_data_as_yaml_and_json(tmp_path: Path) -> None:
    root = str(sriov_machine(tmp_path))
    as_json, as_yaml = (netdra("discover", "--sysfs", root, "-o", each).stdout for each in ("json", "yaml"))
    assert yaml.safe_load(as_yaml) == json.loads(as_json)


def test_the_table_has_a_line_for_each_interface_also_without_netdev(tmp_path: Path) -> None:
    done = netdra("discover", "--sysfs", str(sriov_machine(tmp_path)))
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert set(lines) == {
        "INTERFACE",
        "ens1",
        "ens1v0",
        "(ens1v1)",
        "(ens1v2)",
        "renamed0",
        "ens2",
        "ens2.7",
        "br0",
        "bond0",
        "lo",
    }
    assert "vfio-pci" in lines["(ens1v1)"]
    assert "VF 3 of ens1" in lines["renamed0"]
    assert "4/7 VFs" in lines["ens1"]


def test_unreadable_attributes_are_reported_on_stderr(tmp_path: Path) -> None:
    tree = sriov_machine(tmp_path)
    tree.write("class/net/ens1", mtu="many")
    done = netdra("discover", "--sysfs", str(tree), "-o", "json")
    assert "netdra: could not be read (once): mtu: EINVAL\n" in done.stderr
    assert next(each for each in json.loads(done.stdout) if each["ifName"] == "ens1").get("mtu") is None


def test_a_capture_is_a_file_that_is_an_inventory(tmp_path: Path) -> None:
    tree = sriov_machine(tmp_path / "sys")
    file = tmp_path / "capture.json"
    assert netdra("capture", str(file), "--sysfs", str(tree), "--node", "worker-1").returncode == 0
    inventory = read_inventory(file.read_text())
    assert inventory.node.name == "worker-1"
    assert len(inventory.interfaces) == 10
    anonymous = netdra("capture", "-", "--anonymize", "--sysfs", str(tree), "--node", "worker-1").stdout
    assert "worker-1" not in anonymous
    assert "52:54:00" in file.read_text()
    assert "52:54:00" not in anonymous


def test_bad_input_is_an_error_with_code_2_and_no_traceback(tmp_path: Path) -> None:
    for arguments in (
        ("discover", "--sysfs", str(tmp_path / "absent")),
        ("discover", "--sysfs", str(tmp_path), "--watch"),
        ("discover", "--output", "xml"),
        ("capture", str(tmp_path / "no" / "folder.json"), "--sysfs", str(sriov_machine(tmp_path / "sys"))),
        ("capture", "-", "--node", "Not A Name"),
        ("capture",),
    ):
        done = netdra(*arguments)
        assert done.returncode == 2, arguments
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        assert done.stderr.strip()
