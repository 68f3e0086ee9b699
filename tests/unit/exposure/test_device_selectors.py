"""Selectors on facts that some devices lack are reported: facts of single VFs, and facts that a policy leaves out."""

from __future__ import annotations

import msgspec
import pytest

from netdra.cel import compile_selector, device_variables
from netdra.exposure import expose
from netdra.exposure.device_selectors import left_out_fact, single_vf
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
def test_a_selector_of_a_single_vf_is_reported_as_never_matching_pooled_vfs(expression: str) -> None:
    assert 'never selects devices of pooledVFs (policy "pooled")' in single_vf(expression, POOLING)
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


def test_a_policy_without_exposure_yields_no_single_vf_warning() -> None:
    guard = msgspec.structs.replace(POOLING[0], spec=msgspec.structs.replace(POOLING[0].spec, exposure=None))
    assert single_vf(f"{OURS}.vfIndex == 3", [guard]) == ""


FEW = [exclusive("few", ALL, facts=["vendor"]), exclusive("all", "true", emptyFacts=False)]


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        (f'{ALL} && {OURS}.driver == "mlx5_core"', "driver"),
        (f'{OURS}.vendor == "15b3" && {OURS}.numaNode == 0', "numaNode"),
        (f'{OURS}.vendor == "15b3"', ""),
        (f'{ALL} && {OURS}.pfName == "eth0" && {OURS}.ifName != ""', ""),
        (f'"numaNode" in {OURS} && {OURS}.numaNode == 0', ""),
        (f"has({OURS}.numaNode) && {OURS}.numaNode == 0", ""),
        ('device.attributes["example.com"].driver == "x"', ""),
    ],
)
def test_a_selector_that_reads_a_fact_omitted_by_a_policy_is_reported_with_the_policy(
    expression: str, name: str
) -> None:
    found = left_out_fact(expression, FEW)
    if not name:
        assert found is None
        return
    assert found is not None
    assert found[0].startswith(f'reads {name}, which devices of policy "few" do not have')
    assert f'"{name}" in {OURS}' in found[1]
    assert left_out_fact(expression, FEW[1:]) is None
