"""On a recorded tree, commands report unknown facts, keep them, and accept the option that defines them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from netdra.cli.main import main
from netdra.discovery.capture import to_text
from netdra.model import documents
from testbed import yaml
from tests import builders
from tests.builders import OURS, read_inventory

Run = Callable[..., tuple[int, str, str]]
UNKNOWN = ("host_uplink",)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run a command on policies and a recorded tree; its exit code, stdout and stderr."""
    pf = builders.pf("enp3s0f0", vfs=1, unreadable=UNKNOWN)
    bond = builders.pf("enp4s0f0", bus=4, unreadable=UNKNOWN, master="bond0", upper_devices=("bond0",))
    upper = builders.pf("bond0", bus=0, type="bond", pci_address="", lower_devices=("enp4s0f0",), unreadable=UNKNOWN)
    inventory = builders.inventory(pf, builders.vf(pf, 0, unreadable=UNKNOWN), bond, upper)
    (tmp_path / "tree.json").write_text(to_text(inventory))
    (tmp_path / "known.json").write_text(to_text(builders.inventory(*builders.sriov("enp3s0f0", 1))))
    policies = [builders.exclusive("vfs", f'{OURS}.type == "vf"'), builders.exclusive("pfs", f'{OURS}.type == "pf"')]
    (tmp_path / "policies.yaml").write_text(documents.to_yaml(policies))

    def ran(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        shared = ["--policies", "policies.yaml"]
        monkeypatch.setattr(sys, "argv", ["netdra", *arguments, *shared, "--inventory", "tree.json"])
        if "known.json" in arguments:
            monkeypatch.setattr(sys, "argv", ["netdra", *arguments, *shared])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return ran


def offered(out: str) -> set[str]:
    slices = [each for each in yaml.safe_load_all(out) if each]
    return {device["name"] for each in slices for device in each["spec"].get("devices", ())}


def test_a_plan_without_devices_reports_the_reason_and_the_option_that_lifts_it(run: Run) -> None:
    code, out, err = run("plan")
    assert (code, offered(out)) == (0, set())
    assert (
        "netdra: 3 matched interfaces are not offered, because the interfaces with traffic of the node are unknown; "
        "set them with --uplink NAME, or --uplink none\n"
    ) in err
    assert "netdra: no devices are offered:\n  3 interfaces: it is unknown whether it carries the node's traffic" in err
    assert "1 interface: not matched by any policy" in err


def test_a_plan_without_interfaces_reports_their_absence(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tree.json").write_text(to_text(builders.inventory()))
    assert run("plan")[2] == "netdra: no devices are offered: the inventory does not contain interfaces\n"


def test_explain_reports_node_traffic_as_unknown_and_not_as_present(run: Run) -> None:
    _, out, _ = run("explain", "enp3s0f0")
    assert "hidden: it is unknown whether it carries the node's traffic, and no matching policy" in out
    assert "set them with --uplink NAME, or --uplink none" in out
    assert "hidden: it carries the node's traffic, and" not in out


def test_none_lifts_it(run: Run) -> None:
    code, out, err = run("plan", "--uplink", "none")
    assert (code, err) == (0, "")
    assert offered(out) == {"enp3s0f0", "enp3s0f0v0"}


def test_a_named_uplink_and_the_interfaces_below_it_are_not_offered(run: Run) -> None:
    _, out, err = run("plan", "--uplink", "bond0")
    assert offered(out) == {"enp3s0f0", "enp3s0f0v0"}
    assert err == ""
    _, out, _ = run("explain", "enp4s0f0", "--uplink", "bond0")
    assert "hidden: it carries the node's traffic, and no matching policy sets allowHostUplink" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--uplink", "bond1"], '"worker-1" does not have this interface; did you mean bond0?'),
        (["--uplink", "x"], 'use an interface of the node, or "none"'),
        (["--uplink", "bond0", "--uplink", "none"], '"none" cannot be combined with names'),
        (["--uplink", "none", "--inventory", "known.json"], "omit --uplink"),
    ],
)
def test_invalid_uplink_options_are_rejected(run: Run, arguments: list[str], said: str) -> None:
    code, out, err = run("plan", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_a_capture_keeps_the_uplink_of_the_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "sys" / "class" / "net" / "eth0").mkdir(parents=True)
    command = ["netdra", "capture", "-", "--sysfs", str(tmp_path / "sys"), "--uplink", "eth0"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit):
        main()
    (interface,) = read_inventory(capsys.readouterr().out).interfaces
    assert interface.host_uplink
    assert "host_uplink" not in interface.unreadable


def test_unknown_host_use_is_reported_and_set_by_the_host_use_option(run: Run, tmp_path: Path) -> None:
    tree = read_inventory((tmp_path / "tree.json").read_text())
    unread = [replace(each, unreadable=("host_use",)) for each in tree.interfaces]
    (tmp_path / "tree.json").write_text(to_text(replace(tree, interfaces=tuple(unread))))
    code, out, err = run("plan")
    assert (code, offered(out)) == (0, set())
    assert (
        "netdra: 2 matched interfaces are not offered, because the interfaces that the host uses are unknown; "
        "set them with --host-use NAME, or --host-use none\n"
    ) in err
    _, out, _ = run("explain", "enp3s0f0")
    assert "hidden: it is unknown whether the host uses it, and no matching policy" in out
    assert "set them with --host-use NAME, or --host-use none" in out
    assert offered(run("plan", "--host-use", "none")[1]) == {"enp3s0f0", "enp3s0f0v0"}, "the tree tells of the bond"
    assert offered(run("plan", "--host-use", "enp3s0f0")[1]) == {"enp3s0f0v0"}
    assert "did you mean bond0?" in run("plan", "--host-use", "bond1")[2]
