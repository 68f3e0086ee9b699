"""A NIC's upper devices share its pool and its counters: an exclusion in the kernel applies everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.exposure import Exposer, expose
from netdra.model.device import ExposedDevice, ExposureResult, Features
from netdra.model.inventory import Interface
from netdra.slices.pack import layout
from tests.builders import OURS, exclude, exclusive, inventory, named, pf, shared, sriov, vf
from tests.stacks import MASTERS, Stack, Truth, Upper, Way

SHARED, WHOLE = Way("shared"), Way("exclusive")
WAYS = st.builds(Way, st.sampled_from(["shared", "exclusive", "both"]), st.sampled_from(["", "", "rx", "tx"]))


@st.composite
def stacks(draw: st.DrawFn) -> Stack:
    pfs = {f"ens{number}": draw(st.integers(0, 2)) for number in range(1, draw(st.integers(1, 2)) + 1)}
    uppers: list[Upper] = []
    ports: set[str] = set()
    for number in range(draw(st.integers(0, 4))):
        there = Stack(pfs, tuple(uppers)).names
        kind = draw(st.sampled_from(["vlan", "macvlan", "vxlan", *MASTERS]))
        free = [name for name in there if name not in ports] if kind in MASTERS else there
        if not free:
            continue
        most = 3 if kind in MASTERS else 1
        on = draw(st.lists(st.sampled_from(free), min_size=1, max_size=most, unique=True))
        ports |= set(on) if kind in MASTERS else set()
        uppers.append(Upper(kind, f"{kind[:4]}{number}", tuple(sorted(on))))
    names = Stack(pfs, tuple(uppers)).names
    ways = {name: tuple(draw(st.lists(WAYS, max_size=2))) for name in names}
    excluded = draw(st.frozensets(st.sampled_from(names), max_size=1))
    return Stack(pfs, tuple(uppers), ways, excluded)


def affordable(devices: Iterable[ExposedDevice], result: ExposureResult) -> bool:
    """Whether counters add up, as the scheduler counts: within a pool."""
    taken: Counter[tuple[str, str, str]] = Counter()
    for device in devices:
        for name, counters in device.consumes.items():
            for counter, amount in counters.items():
                taken[device.pool, name, counter] += amount
    totals = {
        (each.pool, each.name, counter): value
        for each in result.counter_sets
        for counter, value in each.counters.items()
    }
    return all(amount <= totals[key] for key, amount in taken.items())


def together(result: ExposureResult, *names: str) -> bool:
    found = [device for device in result.devices if device.name in names]
    assert len(found) == len(names), [device.name for device in result.devices]
    return affordable(found, result)


def pools(result: ExposureResult) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for device in result.devices:
        found.setdefault(device.pool.rpartition("/")[2], set()).add(device.name)
    return found


@settings(max_examples=200)
@given(stack=stacks(), data=st.data())
def test_stacked_devices_can_be_allocated_together_exactly_if_not_mutually_exclusive(
    stack: Stack, data: st.DataObject
) -> None:
    result = stack.exposed()
    truth = Truth(stack, result.devices)
    subsets: list[Sequence[ExposedDevice]] = [*combinations(result.devices, 1), *combinations(result.devices, 2)]
    if result.devices:
        some = st.lists(st.sampled_from(result.devices), unique_by=lambda device: device.name)
        subsets += data.draw(st.lists(some, max_size=20))
    wrong = [[device.name for device in each] for each in subsets if truth.allows(each) != affordable(each, result)]
    assert wrong == []
    assert layout(result, node=stack.node).problems == ()
    assert all("is on top of it and of other NICs" in each.message for each in result.problems)


@settings(max_examples=60)
@given(stack=stacks())
def test_without_counters_nothing_is_published_that_excludes_each_other(stack: Stack) -> None:
    result = expose(stack.inventory(), stack.policies(), features=Features(partitionable_devices=False))
    truth = Truth(stack, result.devices)
    assert all(truth.allows(each) for each in combinations(result.devices, 2))


def test_a_macvlan_persona_on_a_vlan_and_the_passthrough_of_its_nic_exclude_each_other() -> None:
    stack = Stack({"ens1": 0}, (Upper("vlan", "ens1.7", ("ens1",)),), {"ens1": (WHOLE,), "ens1.7": (SHARED, SHARED)})
    result = stack.exposed()
    whole, first, second = (device.name for device in result.devices)
    assert pools(result) == {"sriov-ens1": {whole, first, second}}
    assert together(result, first, second)
    assert not together(result, whole, first)
    assert not together(result, whole, second)


def test_two_vlans_of_a_nic_can_be_allocated_together_even_if_each_is_whole() -> None:
    vlans = tuple(Upper("vlan", f"ens1.{number}", ("ens1",)) for number in (7, 8))
    result = Stack({"ens1": 0}, vlans, {"ens1": (SHARED,), "ens1.7": (WHOLE,), "ens1.8": (WHOLE,)}).exposed()
    assert together(result, *(device.name for device in result.devices))


def test_a_bond_over_two_vfs_excludes_either_vf_and_the_pf() -> None:
    bond = Upper("bond", "bond0", ("ens1v0", "ens1v1"))
    result = Stack({"ens1": 2}, (bond,), {"ens1v0": (WHOLE,), "ens1v1": (WHOLE,), "bond0": (SHARED,)}).exposed()
    one, other, over = (device.name for device in result.devices)
    assert list(pools(result)) == ["sriov-ens1"]
    assert together(result, one, other)
    assert not together(result, one, over)
    assert not together(result, other, over)


def test_a_bond_over_two_nics_uses_its_own_pool_and_blocks_whole_allocation_of_both() -> None:
    bond = Upper("bond", "bond0", ("ens1", "ens2"))
    vlan = Upper("vlan", "bond0.7", ("bond0",))
    ways = {"ens1": (WHOLE,), "ens2": (WHOLE, SHARED), "bond0": (SHARED,), "bond0.7": (SHARED,)}
    result = Stack({"ens1": 0, "ens2": 0}, (bond, vlan), ways).exposed()
    assert {name: len(devices) for name, devices in pools(result).items()} == {"bond-bond0": 2, "sriov-ens2": 1}
    assert [each.message for each in result.problems] == [
        f"{name} is not offered: bond0 is on top of it and of other NICs, but counters only work within one pool"
        for name in ("ens1-p-0-0", "ens2-p-1-0")
    ]
    unused = Stack({"ens1": 0, "ens2": 0}, (bond, vlan), {"ens1": (WHOLE,), "ens2": (WHOLE,)}).exposed()
    assert len(unused.devices) == 2, "with nothing of the bond offered, its members may be, as the policies say"


def test_cables_of_pods_that_come_and_go_on_a_bridge_change_neither_its_pool_nor_anything_in_it() -> None:
    policies = [shared("bridges", f'{OURS}.type == "bridge"'), exclusive("vfs", f'{OURS}.type == "vf"')]
    parent = pf("ens1", vfs=1, master="br0", upper_devices=("br0",))
    nic = (parent, vf(parent, 0))
    bridge = Interface(if_name="br0", type="bridge", lower_devices=("ens1",))
    exposer = Exposer(policies)
    before = exposer.pools(inventory(*nic, bridge))
    cable = Interface(if_name="veth1", type="veth", master="br0", upper_devices=("br0",))
    with_pod = msgspec.structs.replace(bridge, lower_devices=("ens1", "veth1"))
    after = exposer.pools(inventory(*nic, with_pod, cable))
    assert list(before) == ["worker-1/sriov-ens1"]
    assert after["worker-1/sriov-ens1"] is before["worker-1/sriov-ens1"]
    assert {device.name for device in before["worker-1/sriov-ens1"].devices} == {"br0", "ens1v0"}


def test_a_bridge_with_only_veth_ports_keeps_its_own_pool() -> None:
    bridge = Interface(if_name="br0", type="bridge", lower_devices=("veth1",))
    cable = Interface(if_name="veth1", type="veth", master="br0", upper_devices=("br0",))
    exposer = Exposer([shared("bridges", f'{OURS}.type == "bridge"')])
    for interfaces in ((bridge, cable), (msgspec.structs.replace(bridge, lower_devices=()),), (bridge, cable)):
        result = exposer.expose(inventory(*interfaces))
        assert pools(result) == {"bridge-br0": {"br0"}}


def test_a_device_in_use_stays_in_its_pool_when_its_lower_devices_change() -> None:
    policies = [shared("bridges", f'{OURS}.type == "bridge"'), exclusive("whole", named("ens1"), allowHostUse=True)]
    exposer = Exposer(policies)
    alone = Interface(if_name="br0", type="bridge")
    joined = msgspec.structs.replace(alone, lower_devices=("ens1",))
    port = pf("ens1", master="br0", upper_devices=("br0",))
    assert list(exposer.pools(inventory(pf("ens1"), alone))) == ["worker-1/bridge-br0", "worker-1/sriov-ens1"]
    held = exposer.pools(inventory(port, joined), pinned={"br0": "worker-1/bridge-br0"})
    assert [device.name for device in held["worker-1/bridge-br0"].devices] == ["br0"]
    assert held["worker-1/sriov-ens1"].devices == (), "the bridge is in use in another pool, so its port is kept"
    back = exposer.pools(inventory(pf("ens1"), alone), pinned={"br0": "worker-1/sriov-ens1"})
    assert {device.name for device in back["worker-1/sriov-ens1"].devices} == {"br0", "ens1"}
    assert "worker-1/bridge-br0" not in back


def test_a_vlan_inside_a_pod_blocks_whole_allocation_of_its_nic() -> None:
    """The host does not see its lower device then; it is published as before, which does not show the lower device."""
    policies = [exclusive("vlans", f'{OURS}.type == "vlan"'), exclusive("whole", named("ens1"))]
    away = Interface(if_name="ens1.7", type="vlan")
    found = Exposer(policies).pools(inventory(pf("ens1"), away), pinned={"ens1.7": "worker-1/sriov-ens1"})
    devices = found["worker-1/sriov-ens1"].devices
    assert len(devices) == 2
    assert not affordable(devices, found["worker-1/sriov-ens1"])


def test_an_exclude_for_a_vf_protects_it_from_its_pfs_passthrough() -> None:
    policies = [exclusive("whole", f'{OURS}.type == "pf"'), exclude("mine", f"{OURS}.vfIndex == 1")]
    result = expose(inventory(*sriov("ens1", 2)), policies)
    assert not together(result, "ens1")
    assert together(expose(inventory(*sriov("ens1", 2)), policies[:1]), "ens1")


def test_two_ports_of_one_function_with_vfs_exclude_each_others_passthrough() -> None:
    first = pf("ib0", vfs=2)
    second = pf("ib1", vfs=2, dev_port=1)
    vfs = [vf(first, index) for index in range(2)]
    policies = [
        exclusive("whole", f'{OURS}.type == "pf"', deviceNameSuffix="-whole"),
        shared("shares", f'{OURS}.type == "pf"'),
        exclusive("vfs", f'{OURS}.type == "vf"', "sriov"),
    ]
    result = expose(inventory(first, second, *vfs), policies)
    assert pools(result) == {"sriov-ib0": {"ib0", "ib0-whole", "ib1", "ib1-whole", "ib0v0", "ib0v1"}}
    assert not together(result, "ib0-whole", "ib1-whole")
    assert not together(result, "ib1-whole", "ib0v0")
    assert not together(result, "ib1-whole", "ib1")
    assert together(result, "ib0", "ib1", "ib0v0", "ib0v1")
    assert together(result, "ib0", "ib1-whole")
    without = expose(inventory(*(msgspec.structs.replace(each, num_vfs=0) for each in (first, second))), policies)
    assert together(without, "ib0-whole", "ib1-whole"), "without VFs each port is moved by itself"


def test_exceeding_the_counters_of_a_set_omits_the_whole_device_below_the_stack() -> None:
    vlans = tuple(Upper("vlan", f"vlan{number}", ("ens1v0",)) for number in range(20))
    ways = {"ens1v0": (WHOLE,)} | {each.name: (SHARED, SHARED) for each in vlans}
    result = Stack({"ens1": 1}, vlans, ways).exposed()
    (problem,) = result.problems
    assert problem.message.startswith(
        "ens1v0-p-1-0 is not offered: the interfaces on top of it require more counters than the 32"
    )
    assert len(result.devices) == 40
    assert affordable(result.devices, result)
