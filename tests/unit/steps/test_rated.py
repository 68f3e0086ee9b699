"""Rates of a VF whose claim was allocated bandwidth: that bounds them, and the requested rates count below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.model.neutron_port import PortSettings
from netdra.model.plan import Plan, PlannedDevice, PlannedPort
from netdra.rules.pod import check_plans
from netdra.steps import rated
from netdra.steps.contract import Order
from netdra.steps.rated import Rates
from tests.plans import plan, step

MOST = 100_000
RATES = st.integers(0, MOST)
KINDS = ("sriov", "host-device", "vfio-pci", "rdma", "macvlan")


def vf(bandwidth: object, *, pooled: bool = True) -> PlannedDevice:
    return PlannedDevice(
        request="r",
        pool="p",
        device="nic0-vfs",
        type="vf",
        pci_address="0000:41:10.0",
        share_id="s",
        consumed_capacity={"dra.networking/vfs": "1", "dra.networking/bandwidth": str(bandwidth)},
        pooled=pooled,
    )


def order(
    bandwidth: int, kind: str = "sriov", config: Mapping[str, Any] | None = None, port: PortSettings | None = None
) -> Order:
    return Order(
        topology="t",
        step="vf",
        type=kind,
        if_name="net1",
        network="n",
        config=config or {},
        device=vf(bandwidth),
        port=None if port is None else PlannedPort(port_id="id", settings=port),
    )


def findings(planned: Plan) -> list[str]:
    return [finding.text for finding in check_plans((planned,))]


def asked(least: int | None, most: int | None, keys: tuple[str, str]) -> dict[str, int]:
    return {key: rate for key, rate in zip(keys, (least, most), strict=True) if rate is not None}


@given(
    st.integers(1, MOST),
    st.none() | RATES,
    st.none() | RATES,
    st.sampled_from([("minTxRate", "maxTxRate"), ("min_tx_rate", "max_tx_rate")]),
)
def test_an_accepted_rate_config_gets_the_requested_rates_within_the_allocated_bandwidth(
    bandwidth: int, least: int | None, most: int | None, keys: tuple[str, str]
) -> None:
    config = asked(least, most, keys)
    wrong = findings(plan(step("vf", "sriov", "net1", config, device=vf(bandwidth))))
    if wrong:
        above = [rate for rate in (least, most) if rate is not None and rate > bandwidth]
        assert above or most == 0 or (least and most and least > most), wrong
        return
    rates = rated.wanted(order(bandwidth, config=config))
    assert rates is not None
    assert 0 <= rates.least <= rates.most <= bandwidth
    assert rates.most == (bandwidth if most is None else most)
    assert rates.least == (rates.most if least is None else least)
    assert rates.must == bool(least)


@given(st.integers(1, MOST), RATES, RATES)
def test_the_smaller_of_a_ports_rate_and_the_allocated_one_counts(bandwidth: int, least: int, most: int) -> None:
    rates = rated.wanted(
        order(bandwidth, port=PortSettings(mac="02:00:00:00:00:01", min_tx_rate=least, max_tx_rate=most))
    )
    assert rates == Rates(
        least=min(rate for rate in (least, most, bandwidth) if rate), most=min(most or bandwidth, bandwidth)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_type_attaching_a_vf_gets_the_allocated_rate(kind: str) -> None:
    assert rated.wanted(order(2500, kind)) == Rates(2500, 2500)


@pytest.mark.parametrize(("amount", "rate"), [("0", 0), ("0.3", 1), ("500m", 1), ("1.9", 1), ("25k", 25000)])
def test_a_fraction_of_a_mbit_does_not_become_an_unlimited_rate(amount: str, rate: int) -> None:
    assert vf(amount).bandwidth == rate
    assert vf(amount, pooled=False).bandwidth == 0


def test_a_vf_without_bandwidth_loses_a_former_limit_unless_its_step_sets_one() -> None:
    assert rated.wanted(order(0)) == Rates(0, 0)
    assert rated.wanted(order(0, "vfio-pci", {"maxTxRate": 5})) == Rates(0, 0)
    assert rated.wanted(order(0, config={"maxTxRate": 5})) is None
    assert rated.wanted(order(0, config={"min_tx_rate": 0})) is None
    assert rated.wanted(order(0, port=PortSettings(mac="02:00:00:00:00:01"))) is None


def test_nothing_is_set_for_a_device_that_is_not_pooled_or_a_step_without_one() -> None:
    assert rated.wanted(msgspec.structs.replace(order(5), device=vf(5, pooled=False))) is None
    assert rated.wanted(msgspec.structs.replace(order(5), device=None)) is None


@pytest.mark.parametrize("binary", [False, True])
def test_a_config_above_the_allocation_or_without_limit_is_refused_and_named(binary: bool) -> None:
    keys = ("min_tx_rate", "max_tx_rate") if binary else ("minTxRate", "maxTxRate")
    assert findings(plan(step("vf", "sriov", "net1", asked(101, 102, keys), device=vf(100), binary=binary))) == [
        f'NetworkTopology "t", step "vf": {key} {rate} exceeds the 100 Mbit/s of bandwidth that the claim was '
        "allocated; remove it: the VF gets 100 Mbit/s; or request more bandwidth in the claim (ND1186)"
        for key, rate in zip(keys, (101, 102), strict=True)
    ]
    (text,) = findings(plan(step("vf", "sriov", "net1", {keys[1]: 0}, device=vf(100), binary=binary)))
    assert f"{keys[1]} 0 means unlimited, but the claim was allocated 100 Mbit/s" in text
    assert not findings(plan(step("vf", "sriov", "net1", {keys[1]: 0}, device=vf(0), binary=binary)))


def test_a_device_representing_several_vfs_without_a_selection_is_rejected() -> None:
    unchosen = msgspec.structs.replace(vf(100), pci_address="")
    (text,) = findings(plan(step("vf", "sriov", "net1", device=unchosen)))
    assert 'device "nic0-vfs" represents several VFs, and none of them is selected' in text
    assert "a node selects one when it prepares the claim" in text
