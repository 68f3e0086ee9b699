"""Valid but probably unintended settings of a policy are reported, and usual ones are not."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from netdra.exposure import expose
from netdra.exposure.check import check
from netdra.exposure.ranks import RankIndex
from netdra.exposure.unwise import misspelt_plugins, of_lanes, warnings
from netdra.model.policy import DeviceExposurePolicy
from netdra.rules import shipped
from tests import draws
from tests.builders import OURS, exclude, exclusive, inventory, policy, sriov

MACVLAN = [{"name": "macvlan"}]


def of(capacity: dict[str, Any], *plugins: dict[str, Any], **exposure: Any) -> DeviceExposurePolicy:
    given: dict[str, Any] = {"allowMultipleAllocations": True, "supportedCNIPlugins": list(plugins) or MACVLAN}
    return policy("p", "true", capacity=capacity, **(given | exposure))


def told(made: DeviceExposurePolicy, *others: DeviceExposurePolicy) -> list[str]:
    assert check(made) == ()
    return [finding.text_at_path for finding in warnings(made, RankIndex(others).of(made))]


def some(value: Any, default: Any = "1", **rule: Any) -> dict[str, Any]:
    return {"value": str(value), "requestPolicy": {"default": str(default), **rule}}


def span(least: Any, most: Any = None, step: Any = None) -> dict[str, Any]:
    given = {"min": least, "max": most, "step": step}
    return {"validRange": {name: str(each) for name, each in given.items() if each is not None}}


@pytest.mark.parametrize("name", ["host-device", "sriov", "vfio-pci", "rdma"])
def test_a_shared_device_with_a_plugin_that_moves_it_into_the_pod_is_reported(name: str) -> None:
    (text,) = told(of({"seats": some(4)}, {"name": name}))
    assert text.startswith(f'plugin "{name}" moves the device into the pod')
    hint = "set exclusive: true, and remove allowMultipleAllocations"
    assert text.endswith(f"{hint} [spec.exposure.supportedCNIPlugins[0]] (ND1472)")
    (text,) = told(of({"seats": some(4)}, {"name": name}, {"name": "macvlan"}))
    assert text.endswith("; set exclusive: true [spec.exposure.supportedCNIPlugins[0]] (ND1472)")
    assert told(of({"seats": some(4)}, {"name": "macvlan"}, {"name": name, "exclusive": True})) == []


@pytest.mark.parametrize(
    ("capacity", "said"),
    [
        (
            {"a": some(10, 3, validValues=["3", "6"])},
            "1 of 10 can never be allocated: no sum of possible requests exceeds 9",
        ),
        ({"a": some(5, 3, **span(3, 4))}, "1 of 5 can never be allocated"),
        ({"a": some(65, 2, **span(2, 64, 2))}, "1 of 65 can never be allocated"),
        (
            {"a": some(64, 1, **span(1, 4, 1)), "b": some(10, 1, **span(1, 4, 1))},
            "24 of 64 can never be allocated: 10 claims consume all of b [spec.exposure.capacity.a]",
        ),
        (
            {"a": some("1M", "1k", **span("1k", "1k")), "b": some(10, 1, **span(1))},
            "990000 of 1000000 can never be allocated",
        ),
    ],
)
def test_capacity_that_can_never_be_fully_allocated_is_reported(capacity: dict[str, Any], said: str) -> None:
    (text,) = told(of(capacity))
    assert said in text


@pytest.mark.parametrize(
    "capacity",
    [
        {"a": some(64, 1, **span(1, 4, 1))},
        {"a": some(64)},
        {"a": some(10, 3, **span(3, 4))},
        {"a": some(10, 5, validValues=["5", "10"])},
        {"a": some(64, 1, **span(1, 4, 1)), "bandwidth": some(100_000, 100, **span(100, 100_000, 100))},
        {"a": some(64), "b": some(10)},
    ],
)
def test_capacity_that_can_be_fully_allocated_is_not_reported(capacity: dict[str, Any]) -> None:
    assert told(of(capacity)) == []


def test_missing_plugins_and_an_allowed_host_uplink_are_reported() -> None:
    assert [text.rsplit(" ", 2)[1:] for text in told(policy("p", "true", allowHostUplink=True))] == [
        ["[spec.exposure.supportedCNIPlugins]", "(ND1461)"],
        ["[spec.exposure.allowHostUplink]", "(ND1463)"],
    ]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("maclvan", "macvlan"),
        ("sriof", "sriov"),
        ("mac-vlan", "macvlan"),
        ("macvlan", ""),
        ("cilium-cni", ""),
        ("a", ""),
    ],
)
def test_a_plugin_name_similar_to_a_known_plugin_is_reported(name: str, meant: str) -> None:
    place = "[spec.exposure.supportedCNIPlugins[0]]"
    said = f'no CNIPluginSchema describes plugin "{name}"; did you mean "{meant}"? {place} (ND1471)'
    made = of({}, {"name": name})
    found = [finding.text_at_path for finding in misspelt_plugins(made, shipped.types())]
    assert found == ([said] if meant else [])
    assert list(misspelt_plugins(made, {*shipped.types(), name})) == []


def test_a_policy_with_the_same_rank_as_another_policy_is_reported() -> None:
    (text,) = told(exclusive("p", "true "), exclusive("a", "true"), exclusive("b", "false"), exclude("c", "true"))
    same = 'the policy has the same selector, priority and suffix as "a"'
    assert (
        text == f'{same}, so only "a" is used; give it another selector, priority or deviceNameSuffix [spec] (ND1476)'
    )


def test_capacity_reported_as_unreachable_is_reached_by_no_combination_of_claims() -> None:
    source = random.Random(draws.seed())
    for _ in range(draws.count(200, 5_000)):
        least, step = source.randint(1, 4), source.randint(1, 3)
        most = least + step * source.randint(0, 2)
        default = source.choice(range(least, most + 1, step))
        value = source.randint(most, 12)
        made = of({"a": some(value, default, **span(least, most, step))})
        reached = {0}
        for _ in range(value):
            sums = itertools.product(reached, range(least, most + 1, step))
            reached |= {total for total in (have + more for have, more in sums) if total <= value}
        if told(made):
            assert max(reached) < value


def pooling(cel: str, lanes: int = 1, **capacity: Any) -> DeviceExposurePolicy:
    plugins = [{"name": "sriov"}]
    return policy("p", cel, pooledVFs={"lanes": lanes}, supportedCNIPlugins=plugins, capacity=capacity)


VF = f'{OURS}.type == "vf"'


@pytest.mark.parametrize("asked", ['pciAddress == "0000:03:00.2"', "vfIndex == 3", 'ifName=="p0v0"'])
def test_a_pooling_policy_that_selects_a_single_vf_is_reported(asked: str) -> None:
    (text,) = told(pooling(f"{VF} && {OURS}.{asked}"))
    assert text.startswith("the selector selects a VF by ")
    assert told(pooling(f"{VF} && {OURS}.vfIndex >= 4")) == []
    assert told(exclusive("p", f"{VF} && {OURS}.{asked}", "sriov")) == []


def test_lanes_with_too_little_bandwidth_for_one_claim_are_reported() -> None:
    (text,) = told(pooling(VF, 16, bandwidth=some(100_000, 12_500)))
    assert "a PF has VFs for 16 lanes, each has 6250 of 100000, less than the default of 12500" in text
    assert told(pooling(VF, 8, bandwidth=some(100_000, 12_500))) == []


def test_vfs_left_unused_for_lack_of_bandwidth_are_reported() -> None:
    seed = some(100_000, 12_500)
    assert list(of_lanes(expose(inventory(*sriov("eth0", 8)), [pooling(VF, bandwidth=seed)]))) == []
    (text,) = of_lanes(expose(inventory(*sriov("eth0", 64)), [pooling(VF, bandwidth=seed)]))
    assert "8 claims with the default of 12500 Mbit/s" in text
    assert "56 of its 64 VFs remain unused" in text


def test_several_lanes_with_a_single_vf_each_are_reported() -> None:
    (text,) = of_lanes(expose(inventory(*sriov("eth0", 4)), [pooling(VF, 9)]))
    assert "eth0-vfs0 … eth0-vfs3 are as many devices as VFs (4)" in text
    assert list(of_lanes(expose(inventory(*sriov("eth0", 4)), [pooling(VF, 3)]))) == []
    assert list(of_lanes(expose(inventory(*sriov("eth0", 1)), [pooling(VF, 1)]))) == []


def test_plugin_names_that_exceed_a_string_attribute_are_reported() -> None:
    several = ["macvlan", "ipvlan", "vlan", "host-device", "bandwidth", "tuning", "bridge"]
    (text,) = told(policy("p", "true", supportedCNIPlugins=[{"name": each} for each in [*several, "portmap", "sriov"]]))
    assert "the names have 71 bytes as text, but an attribute supports 64" in text
    assert "DRAListTypeAttributes" in text
    assert told(policy("p", "true", supportedCNIPlugins=[{"name": each} for each in several])) == []
