"""Which device files are given to pods: what the operator allows, by the devices that every machine has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.kernel.device_files import DeviceFiles, glob_error
from netdra.model.registration import path_error


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("", "not an absolute path below /dev"),
        ("fpga0", "not an absolute path below /dev"),
        ("/dev", "not an absolute path below /dev"),
        ("/etc/passwd", "not an absolute path below /dev"),
        ("//dev/fpga0", "not an absolute path below /dev"),
        ("/dev/", "has an empty part"),
        ("/dev//fpga0", "has an empty part"),
        ("/dev/../etc/passwd", 'or ".."'),
        ("/dev/./fpga0", 'or ".."'),
        ("/dev/fpga 0", "has a character other than"),
        ("/dev/fpga\n0", "has a character other than"),
        ("/dev/fpga\0", "has a character other than"),
        ("/dev/fpgä", "has a character other than"),
        ("/dev/" + "x" * 60, "longer than the 64 characters"),
    ],
)
def test_a_path_that_breaks_a_rule_is_refused_with_it(path: str, rule: str) -> None:
    assert rule in path_error(path)
    file = DeviceFiles(["/dev/*", path]).look(path)
    assert (file.number, file.missing, rule in file.problem) == (None, False, True)


@given(st.text(max_size=80) | st.text("/.dev*", max_size=20))
def test_any_path_yields_either_a_device_number_or_a_problem(path: str) -> None:
    file = DeviceFiles(["/dev/*", "/dev/*/*"]).look(path)
    assert (file.number is None) is bool(file.problem)
    assert not path_error(path) or file.number is None


def test_nothing_is_allowed_by_default_and_the_refusal_names_the_option() -> None:
    file = DeviceFiles().look("/dev/zero")
    assert file.text == (
        "device file /dev/zero is not allowed on this node, which does not allow any; to allow it: "
        "netdra node --allow-device-file GLOB, chart value node.allowDeviceFiles"
    )


def test_an_allowed_existing_device_file_yields_its_major_and_minor_number() -> None:
    assert DeviceFiles(["/dev/zer?"]).look("/dev/zero").number == (1, 5)


def test_a_star_in_an_allowed_path_does_not_match_a_slash() -> None:
    assert "is not allowed" in DeviceFiles(["/dev/*"]).look("/dev/net/tun").problem


def test_a_device_file_that_does_not_exist_is_marked_missing() -> None:
    file = DeviceFiles(["/dev/*", "/dev/*/*"]).look("/dev/netdra-nothing")
    assert (file.number, file.missing) == (None, True)
    assert DeviceFiles(["/dev/*/*"]).look("/dev/zero/x").missing


@pytest.mark.parametrize("glob", ["/dev/fpga*", "/dev/*/x", "/dev/[a-c]0"])
def test_a_pattern_is_a_path_below_dev(glob: str) -> None:
    assert glob_error(glob) == ""


@pytest.mark.parametrize("glob", ["", "*", "/*", "dev/x", "/dev", "/dev/", "/dev/../etc/*", "/etc/*", "/dev//x"])
def test_another_pattern_is_refused(glob: str) -> None:
    assert glob_error(glob)
