"""Why a selector is false: the part of it, and the device's values."""

from __future__ import annotations

import pytest

from netdra.cel import Version, compile_selector, device_variables
from netdra.cel.reasons import MAX_SHOWN, why_false
from netdra.model.inventory import AttributeValue

DRIVER = "dra.networking"
DEVICE: dict[str, AttributeValue] = {
    "dra.networking/type": "vf",
    "dra.networking/mtu": 1500,
    "ifName": "x",
    "example.com/firmware": Version("1.2.3"),
    "dra.networking/supportedCNIs": ("sriov", "host-device"),
}
A = 'device.attributes["dra.networking"]'
REASONS = {
    f'{A}.type == "VF" && true': f'{A}.type == "VF"; type is "vf"',
    f'true && {A}.type == "vf" &&  {A}.mtu\n> 9000': f"{A}.mtu > 9000; mtu is 1500",
    f'(device.driver == "{DRIVER}" && ({A}.mtu > 9000 || false))': f"{A}.mtu > 9000 || false; mtu is 1500",
    f"has({A}.numaNode) && {A}.numaNode == 0": f"has({A}.numaNode); numaNode is not set",
    f'!({A}.type in ["vf", "pf"])': f'!({A}.type in ["vf", "pf"]); type is "vf"',
    f'{A}.type == "pf" || {A}.ifName == "y"': f'{A}.type == "pf" || {A}.ifName == "y"; ifName is "x"; type is "vf"',
    f'{A}.nope == 1 && {A}.type == "pf"': f'{A}.type == "pf"; type is "vf"',
    'device.driver == "other"': 'device.driver == "other"',
    'device.attributes["example.com"].firmware.isLessThan(semver("1.0.0"))': (
        'device.attributes["example.com"].firmware.isLessThan(semver("1.0.0")); firmware is semver("1.2.3")'
    ),
    f'{A}.supportedCNIs.includes("macvlan")': (
        f'{A}.supportedCNIs.includes("macvlan"); supportedCNIs is ["sriov", "host-device"]'
    ),
}
NO_REASON = [f'{A}.type == "vf"', f"{A}.nope == 1", "1 +", "nothing", ""]


@pytest.mark.parametrize("expression", REASONS)
def test_the_false_part_is_named_with_the_devices_values(expression: str) -> None:
    assert not compile_selector(expression).matches(device_variables(DRIVER, DEVICE))
    assert why_false(expression, DRIVER, DEVICE) == REASONS[expression]


@pytest.mark.parametrize("expression", NO_REASON)
def test_a_true_or_unanswerable_selector_has_no_reason(expression: str) -> None:
    assert why_false(expression, DRIVER, DEVICE) == ""


def test_long_values_are_cut() -> None:
    reason = why_false(f'{A}.ifName == "{"y" * 300}"', DRIVER, {"ifName": "z" * 300})
    assert len(reason) < 2 * MAX_SHOWN + len("; ifName is ") + 1
    assert reason.count("…") == 2
