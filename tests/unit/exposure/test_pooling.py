"""VFs that are offered together: which devices come of a PF's VFs, with which parts, and the VFs left out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.exposure import Exposer, check, expose
from netdra.exposure.grouping import HeldVF
from netdra.exposure.pooling import divided
from netdra.model.device import ExposureResult, Features
from netdra.model.inventory import Interface
from netdra.model.policy import DeviceExposurePolicy
from netdra.slices.allocator import Allocation, Allocator
from netdra.slices.exclusion import Holding, Pools
from netdra.slices.pack import layout, pack
from tests.builders import OURS, exclude, exclusive, inventory, policy, shared, sriov
from tests.unit.slices.in_use import InUse
from tests.unit.slices.making import claim, class_of, request

VFS, BANDWIDTH = "dra.networking/vfs", "dra.networking/bandwidth"
ALL = f'{OURS}.type == "vf"'
SEED = {"value": "100000", "requestPolicy": {"default": 12500, "validRange": {"min": 100, "max": 100000, "step": 100}}}


def pooled(name: str, cel: str = ALL, lanes: int = 1, **exposure: Any) -> DeviceExposurePolicy:
    exposure.setdefault("supportedCNIPlugins", [{"name": "sriov"}])
    return policy(name, cel, pooledVFs={"lanes": lanes}, **exposure)


def card(count: int, speed: int = 100000, **changes: Any) -> tuple[Interface, ...]:
    """A PF `eth0` with VFs that have a driver."""
    vfs = sriov("eth0", count)
    return tuple(
        msgspec.structs.replace(each, driver="iavf", numa_node=1, **changes)
        if each.type == "vf"
        else msgspec.structs.replace(each, link_speed=speed, numa_node=1)
        for each in vfs
    )


def parts(result: ExposureResult) -> dict[str, int]:
    return {device.name: int(device.capacity[VFS].value) for device in result.devices if VFS in device.capacity}


def test_the_vfs_of_a_pf_are_one_device_with_their_number_and_the_link() -> None:
    result = expose(inventory(*card(8)), [pooled("vfs", capacity={"bandwidth": SEED})])
    (device,) = result.devices
    assert (device.name, device.shared) == ("eth0-vfs", True)
    assert device.capacity[VFS].value == "8"
    policy_of = device.capacity[VFS].request_policy
    assert policy_of is not None
    assert policy_of.valid_range is not None
    assert (policy_of.default, policy_of.valid_range.min, policy_of.valid_range.max) == ("1", "1", "1")
    assert device.capacity[BANDWIDTH].value == "100000"
    assert device.lane is not None
    assert len(device.lane.vfs) == 8


def test_a_pooled_device_publishes_shared_facts_of_its_vfs_and_no_facts_of_a_single_vf() -> None:
    (device,) = expose(inventory(*card(8)), [pooled("vfs")]).devices
    published = {name.rpartition("/")[2]: value for name, value in device.attributes.items()}
    assert published["type"] == "vf"
    assert published["pfName"] == "eth0"
    assert published["numaNode"] == 1
    assert (published["vfIndex"], published["ifName"], published["mac"], published["pciAddress"]) == (-1, "", "", "")
    single = expose(inventory(*card(8)), [exclusive("vfs", ALL)]).devices[0]
    assert device.attributes.keys() == single.attributes.keys()


def test_the_only_vf_of_a_pf_is_not_named_either() -> None:
    (device,) = expose(inventory(*card(1)), [pooled("vfs")]).devices
    assert device.attributes["dra.networking/pciAddress"] == ""
    assert device.attributes["dra.networking/vfIndex"] == -1


@pytest.mark.parametrize(("lanes", "expected"), [(2, [4, 4]), (3, [3, 3, 2]), (8, [1] * 8), (20, [1] * 8)])
def test_lanes_have_their_parts(lanes: int, expected: list[int]) -> None:
    result = expose(inventory(*card(8)), [pooled("vfs", lanes=lanes, deviceNameSuffix="-a")])
    assert parts(result) == {f"eth0-vfs{number}-a": part for number, part in enumerate(expected)}
    shares = {int(device.capacity[BANDWIDTH].value) for device in result.devices}
    assert shares == {100000 // len(expected)}


def test_the_most_that_a_claim_can_have_is_a_whole_step_of_its_lane() -> None:
    result = expose(inventory(*card(8)), [pooled("vfs", lanes=3, capacity={"bandwidth": SEED})])
    for device in result.devices:
        rule = device.capacity[BANDWIDTH].request_policy
        assert device.capacity[BANDWIDTH].value == "33333"
        assert rule is not None
        assert rule.valid_range is not None
        assert rule.valid_range.max == "33300"


def test_a_lane_with_less_bandwidth_than_the_default_request_is_omitted_and_reported() -> None:
    result = expose(inventory(*card(16)), [pooled("vfs", lanes=16, capacity={"bandwidth": SEED})])
    assert not result.devices
    assert {problem.left_out for problem in result.problems} == {"limit"}
    assert "12500" in result.problems[0].message
    assert "6250" in result.problems[0].message


def test_pooled_vfs_publish_no_bandwidth_without_a_link_speed() -> None:
    (device,) = expose(inventory(*card(8, speed=0)), [pooled("vfs")]).devices
    assert device.capacity.keys() == {VFS}


def test_the_bandwidth_request_of_pooled_vfs_defaults_to_zero() -> None:
    (device,) = expose(inventory(*card(8)), [pooled("vfs")]).devices
    rule = device.capacity[BANDWIDTH].request_policy
    assert rule is not None
    assert rule.default == "0"


def test_excluded_and_host_used_vfs_are_not_pooled_and_host_use_blocks_the_whole_pf() -> None:
    interfaces = list(card(8))
    interfaces[3] = msgspec.structs.replace(interfaces[3], host_use=("bridge-port br0",))
    result = expose(inventory(*interfaces), [pooled("vfs"), exclude("no", f"{OURS}.vfIndex == 5")])
    assert parts(result) == {"eth0-vfs": 6}
    # The whole PF cannot be had meanwhile, as with single VFs.
    whole = expose(
        inventory(*interfaces), [pooled("vfs"), exclusive("pf", f'{OURS}.type == "pf"', deviceNameSuffix="-pf")]
    )
    slots = {name: counters["exclusion-slots"] for name, counters in ((s.name, s.counters) for s in whole.counter_sets)}
    (needed,) = [
        taken["exclusion-slots"] for d in whole.devices if d.name == "eth0-pf" for taken in d.consumes.values()
    ]
    assert needed > max(slots.values())


@pytest.mark.parametrize("broken", [{"driver": ""}, {"no_carrier": True}], ids=["no driver", "no carrier"])
def test_a_vf_that_cannot_work_makes_the_device_smaller(broken: dict[str, Any]) -> None:
    interfaces = list(card(8))
    interfaces[2] = msgspec.structs.replace(interfaces[2], **broken)
    assert parts(expose(inventory(*interfaces), [pooled("vfs")])) == {"eth0-vfs": 7}


def test_vfs_without_drivers_are_offered_where_none_has_one() -> None:
    interfaces = [msgspec.structs.replace(each, driver="") for each in card(8)]
    assert parts(expose(inventory(*interfaces), [pooled("vfs")])) == {"eth0-vfs": 8}


def test_a_pf_without_a_carrier_taints_the_device_and_takes_none_of_its_vfs() -> None:
    interfaces = [msgspec.structs.replace(each, no_carrier=True) for each in card(8)]
    (device,) = expose(inventory(*interfaces), [pooled("vfs")]).devices
    assert [taint.key for taint in device.taints] == ["dra.networking/link-down"]
    assert device.capacity[VFS].value == "8"


def test_an_interface_that_is_not_a_vf_is_not_pooled_and_the_verdict_explains_it() -> None:
    result = expose(inventory(*card(2)), [pooled("vfs", "true")])
    assert parts(result) == {"eth0-vfs": 2}
    (verdict,) = next(decision for decision in result.decisions if decision.if_name == "eth0").verdicts
    assert verdict.outcome == "overruled"
    assert "pooledVFs" in verdict.detail


def test_a_vf_is_pooled_or_a_device_of_its_own_by_the_policies_priority() -> None:
    single = exclusive("single", f"{OURS}.vfIndex == 0", deviceNameSuffix="-own")
    result = expose(inventory(*card(4)), [pooled("vfs"), single])
    assert parts(result) == {"eth0-vfs": 3}
    assert "eth0v0-own" in {device.name for device in result.devices}
    raised = msgspec.structs.replace(pooled("vfs"), spec=msgspec.structs.replace(pooled("vfs").spec, priority=500))
    result = expose(inventory(*card(4)), [raised, single])
    assert parts(result) == {"eth0-vfs": 4}
    assert [device.name for device in result.devices] == ["eth0-vfs"]
    verdicts = {v.policy: v for d in result.decisions if d.device_name == "eth0v0" for v in d.verdicts}
    assert (verdicts["single"].outcome, verdicts["single"].by) == ("outranked", "vfs")


def test_the_decision_of_a_pooled_vf_names_its_pooled_device() -> None:
    result = expose(inventory(*card(2)), [pooled("vfs")])
    decisions = {decision.device_name: decision for decision in result.decisions}
    assert decisions["eth0v1"].pooled == ("eth0-vfs",)
    assert decisions["eth0v1"].hidden is None
    assert decisions["eth0v1"].exposed == ()
    assert decisions["eth0-vfs"].exposed == ("eth0-vfs",)


def test_without_consumable_capacity_nothing_is_pooled() -> None:
    result = expose(inventory(*card(2)), [pooled("vfs")], features=Features(consumable_capacity=False))
    assert not result.devices
    assert {problem.left_out for problem in result.problems} == {"feature-gate"}


@pytest.mark.parametrize(
    ("exposure", "said"),
    [
        ({"allowMultipleAllocations": True}, "allowMultipleAllocations"),
        ({"exclusionGroup": "a"}, "exclusionGroup"),
        ({"capacity": {"seats": {"value": 4}}}, 'capacity "seats"'),
        ({"capacity": {"vfs": {"value": 4}}}, 'capacity "vfs"'),
        (
            {"capacity": {"bandwidth": {"value": 4, "requestPolicy": {"validRange": {"min": 1}}}}},
            "default is required",
        ),
        ({"supportedCNIPlugins": [{"name": "sriov", "exclusive": True}, {"name": "macvlan"}]}, "supportedCNIPlugins"),
        (
            {
                "supportedCNIPlugins": [{"name": "sriov", "consumePerAllocation": {"bandwidth": 1}}],
                "capacity": {"bandwidth": {"value": 4}},
            },
            "consumePerAllocation",
        ),
    ],
)
def test_settings_that_conflict_with_pooled_vfs_are_rejected(exposure: dict[str, Any], said: str) -> None:
    assert any(said in error.text_at_path for error in check(pooled("vfs", **exposure)))


# What claims have.


def held(result_of: Exposer, interfaces: tuple[Interface, ...], vfs: dict[str, str]) -> ExposureResult:
    entries = [HeldVF(identity, device) for identity, device in vfs.items()]
    parts_of = result_of.pools(inventory(*interfaces), held_vfs=entries)
    (result,) = parts_of.values()
    return result


def test_a_vf_used_by_a_claim_counts_even_if_the_policy_no_longer_matches_it() -> None:
    interfaces = card(4)
    exposer = Exposer([pooled("vfs", f'{ALL} && {OURS}.driver == "iavf"')])
    away = (*interfaces[:-1], msgspec.structs.replace(interfaces[-1], if_name="", driver="vfio-pci"))
    assert parts(held(exposer, away, {})) == {"eth0-vfs": 3}
    assert parts(held(exposer, away, {interfaces[-1].identity: "eth0-vfs"})) == {"eth0-vfs": 4}


def test_a_single_vf_that_a_claim_has_is_not_pooled_and_a_pooled_one_is_not_offered_alone() -> None:
    interfaces = card(4)
    vf2 = interfaces[3].identity
    assert parts(held(Exposer([pooled("vfs")]), interfaces, {vf2: "eth0v2"})) == {"eth0-vfs": 3}
    singles = held(Exposer([exclusive("vfs", ALL), pooled("other", "false")]), interfaces, {vf2: "eth0-vfs"})
    assert {device.name for device in singles.devices} == {"eth0v0", "eth0v1", "eth0v3"}


def test_a_vf_in_trouble_is_nobodys() -> None:
    interfaces = card(4)
    assert parts(held(Exposer([pooled("vfs")]), interfaces, {interfaces[3].identity: ""})) == {"eth0-vfs": 3}


@given(st.integers(0, 40), st.lists(st.integers(0, 6), min_size=1, max_size=9))
def test_parts_are_all_vfs_and_never_less_than_claims_have(total: int, allocated: list[int]) -> None:
    made = divided(total, allocated)
    assert sum(made) == max(total, sum(allocated)) or sum(made) == total
    assert all(part >= had for part, had in zip(made, allocated, strict=True))
    if sum(allocated) <= total:
        assert sum(made) == total
        free = [part for part, had in zip(made, allocated, strict=True) if part > had]
        assert not free or max(free) - min(free) <= max(1, total)
    else:
        assert made == [max(part, had) for part, had in zip(made, allocated, strict=True)]


def test_pooled_vfs_and_the_whole_pf_exclude_each_other() -> None:
    result = expose(
        inventory(*card(4)),
        [
            pooled("vfs", lanes=2),
            exclusive("pf", f'{OURS}.type == "pf"'),
            shared("mac", f'{OURS}.type == "pf"', capacity="seats", deviceNameSuffix="-mac"),
        ],
    )
    pools = Pools(layout(result, node="node", features=Features()).slices)
    pool = result.devices[0].pool
    whole = Holding(key=(pool, "eth0"), holder="a")
    share = Holding(key=(pool, "eth0-vfs1"), holder="b", share_id="s", consumed={VFS: "1", BANDWIDTH: "0"})
    seat = Holding(key=(pool, "eth0-mac"), holder="c", share_id="t", consumed={"dra.networking/seats": "1"})
    assert pools.conflict(share, InUse([whole]))
    assert pools.conflict(whole, InUse([share]))
    assert not pools.conflict(seat, InUse([share]))
    assert not pools.conflict(share, InUse([seat]))
    other = msgspec.structs.replace(share, key=(pool, "eth0-vfs0"), holder="d")
    assert not pools.conflict(share, InUse([other]))


def test_pooled_vfs_come_before_the_whole_pf_and_a_claim_that_either_would_do_for_gets_one_of_them() -> None:
    whole = exclusive("pfs", f'{OURS}.type == "pf"', "host-device")
    shared_vfs = pooled("vfs", lanes=2, supportedCNIPlugins=[{"name": "sriov"}, {"name": "host-device"}])
    result = expose(inventory(*card(4)), [whole, shared_vfs])
    assert [device.name for device in result.devices] == ["eth0-vfs0", "eth0-vfs1", "eth0"]
    either = class_of("either", f'{OURS}.supportedCNIs.contains(",host-device,")')
    allocation = Allocator(pack(result, node="n1"), [either]).allocate(claim("c", request("r", of="either")))
    assert isinstance(allocation, Allocation)
    status = allocation.claims[0].status.allocation
    assert status is not None
    assert [one.device for one in status.devices.results] == ["eth0-vfs0"]


def test_other_vfs_beside_pooled_ones_keep_their_part_of_the_link() -> None:
    result = expose(
        inventory(*card(4)), [pooled("most", f"{ALL} && {OURS}.vfIndex > 0"), exclusive("one", f"{OURS}.vfIndex == 0")]
    )
    lent = {device.name: int(device.capacity[BANDWIDTH].value) for device in result.devices}
    assert lent == {"eth0v0": 25000, "eth0-vfs": 75000}


def test_vfs_of_a_pf_that_is_not_known_are_pooled_without_a_link() -> None:
    lonely = tuple(each for each in card(3) if each.type == "vf")
    (device,) = expose(inventory(*lonely), [pooled("vfs")]).devices
    assert device.capacity.keys() == {VFS}


def reason(interfaces: list[Interface], number: int, vfs: dict[str, str] | None = None) -> str:
    result = held(Exposer([pooled("vfs")]), tuple(interfaces), vfs or {})
    return next(each.reason for each in result.decisions if each.device_name == f"eth0v{number}")


def test_a_vf_that_is_not_pooled_reports_the_reason() -> None:
    interfaces = list(card(4))
    interfaces[1] = msgspec.structs.replace(interfaces[1], driver="")
    interfaces[2] = msgspec.structs.replace(interfaces[2], no_carrier=True)
    had = {interfaces[3].identity: "eth0v2", interfaces[4].identity: ""}
    assert reason(interfaces, 0).startswith("hidden: it does not have a driver")
    assert reason(interfaces, 1).startswith("hidden: it does not have a carrier")
    assert reason(interfaces, 2, had) == 'hidden: a claim uses it as device "eth0v2"'
    assert reason(interfaces, 3, had).startswith("hidden: the network of an earlier pod could not be undone")


def test_a_vf_that_lost_its_driver_is_not_offered_while_all_others_are_in_pods() -> None:
    interfaces = list(card(3))
    interfaces[3] = msgspec.structs.replace(interfaces[3], driver="")
    taken = {each.identity: "eth0-vfs" for each in interfaces[1:3]}
    assert parts(held(Exposer([pooled("vfs")]), tuple(interfaces), taken)) == {"eth0-vfs": 2}


def test_a_claimed_pooled_vf_is_not_a_device_after_the_last_pooling_policy_is_deleted() -> None:
    interfaces = card(3)
    singles = held(Exposer([exclusive("vfs", ALL)]), interfaces, {interfaces[3].identity: "eth0-vfs"})
    assert {device.name for device in singles.devices} == {"eth0v0", "eth0v1"}
