"""A selector that asks for a single VF selects no device of pooled VFs, and is told so; any other is not."""

from __future__ import annotations

import msgspec
import pytest

from netdra.cel import compile_selector, device_variables
from netdra.exposure import expose
from netdra.exposure.pooled_selectors import single_vf
from netdra.model import names
from tests.builders import OURS, exclusive, inventory, sriov
from tests.unit.exposure.test_pooling import ALL, pooled

POOLING = [pooled("pooled", ALL)]


@pytest.mark.parametrize(
    "expression",
    [
        f"{ALL} && {OURS}.vfIndex == 3",
        f"{OURS}.vfIndex >= 0",
        f'{ALL} && {OURS}.pfName == "eth0" && {OURS}.pciAddress == "0000:03:00.2"',
        f'{ALL} && {OURS}.mac.startsWith("04:3f")',
        f'{ALL} && ({OURS}.ifName == "eth0v0")',
    ],
)
def test_a_selector_of_a_single_vf_is_told(expression: str) -> None:
    assert 'never selects the devices of pooledVFs (policy "pooled")' in single_vf(expression, POOLING)
    assert single_vf(expression, [exclusive("vfs", ALL)]) == ""
    (device,) = expose(inventory(*sriov("eth0", 4)), POOLING).devices
    assert not compile_selector(expression).matches(device_variables(names.DRIVER, dict(device.attributes)))


@pytest.mark.parametrize(
    "expression",
    [
        ALL,
        f"{ALL} && {OURS}.numaNode == 0",
        f'{ALL} && {OURS}.pfName == "eth0"',
        f"{OURS}.vfIndex == -1",
        f'{ALL} && {OURS}.ifName != "eth0v3"',
        f'{OURS}.ifName == "eth0"',
        f'{OURS}.type == "pf" || {OURS}.vfIndex == 3',
    ],
)
def test_any_other_selector_is_not(expression: str) -> None:
    assert single_vf(expression, POOLING) == ""


def test_a_policy_without_exposure_is_no_reason() -> None:
    guard = msgspec.structs.replace(POOLING[0], spec=msgspec.structs.replace(POOLING[0].spec, exposure=None))
    assert single_vf(f"{OURS}.vfIndex == 3", [guard]) == ""
