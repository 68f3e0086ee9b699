"""Numbers of a step's config that exclude each other are found at every boundary."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netdra.rules.values import check_values
from tests.plans import step

RATES = st.integers(0, 4) | st.none()


@given(RATES, RATES, st.sampled_from(["minTxRate", "min_tx_rate"]), st.sampled_from(["maxTxRate", "max_tx_rate"]))
@example(2, 1, "minTxRate", "maxTxRate")
def test_a_minimum_rate_above_the_maximum_is_found_and_a_maximum_of_0_is_no_limit(
    low: int | None, high: int | None, low_key: str, high_key: str
) -> None:
    config = {low_key: low, high_key: high}
    findings = list(check_values(step("vf", "sriov", "net1", config), str))
    is_wrong = low is not None and high is not None and high != 0 and low > high
    assert [f"minTxRate {low} exceeds maxTxRate {high}" in finding.what for finding in findings] == [True] * is_wrong


@pytest.mark.parametrize(
    "route",
    [
        {"destination": "10.9.0.0/16", "gateway": "{{ a.ips[0].address }}"},
        {"destination": "{{ params.net }}", "gateway": "10.1.0.1"},
        {"destination": "10.9.0.0/16", "gateway": "10.1.0.1", "source": "{{ params.source }}"},
    ],
    ids=str,
)
def test_a_route_with_a_reference_is_not_judged(route: dict[str, str]) -> None:
    assert list(check_values(step("t", "tuning", "net1", {"routes": [route]}), str)) == []
