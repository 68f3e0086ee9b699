"""The counters mean exclusion, neither more nor less, for any mix of personas on a PF and its VFs.

`Drawn` is a NIC as a test draws it; `allowed` states in words of networking which devices may be in use together;
`affordable` adds up counters as the scheduler does. The two must agree on every set of devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.exposure import expose
from netdra.model.device import ExposedDevice, ExposureResult
from netdra.model.inventory import Interface
from netdra.model.policy import DeviceExposurePolicy
from tests.builders import OURS, inventory, named, pf, policy, sriov, vf

PF = "ens1"
MAX_SUBSETS = 60


class Way(NamedTuple):
    """A way in which an interface is offered: by one policy."""

    kind: str
    group: str = ""
    capacities: tuple[str, ...] = ("ports",)


class Drawn(NamedTuple):
    """How a PF and its VFs are offered, and which VFs the host uses."""

    pf: tuple[Way, ...]
    vf: tuple[Way, ...]
    exposed_vfs: tuple[int, ...]
    vfs: int
    in_host_use: tuple[int, ...]
    speed: int


WAYS = st.builds(
    Way,
    st.sampled_from(["shared", "exclusive", "both"]),
    st.sampled_from(["", "", "rx-handler", "other"]),
    st.sampled_from([("ports",), ("slots",), ("ports", "slots"), ("example.org/ports",)]),
)


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    vfs = draw(st.integers(0, 3))
    some = st.lists(st.sampled_from(range(vfs)), unique=True) if vfs else st.just([])
    return Drawn(
        pf=tuple(draw(st.lists(WAYS, max_size=3))),
        vf=tuple(draw(st.lists(WAYS, max_size=3))),
        exposed_vfs=tuple(draw(some)),
        vfs=vfs,
        in_host_use=tuple(draw(some)),
        speed=draw(st.sampled_from([0, 1, 25_000, 100_000])),
    )


def policy_of(way: Way, name: str, cel: str) -> DeviceExposurePolicy:
    exposure: dict[str, Any] = {"deviceNameSuffix": f"-{name}", "exclusionGroup": way.group}
    plugins = {"shared": [False], "exclusive": [True], "both": [False, True]}[way.kind]
    exposure["supportedCNIPlugins"] = [{"name": f"p{index}", "exclusive": each} for index, each in enumerate(plugins)]
    if way.kind != "exclusive":
        exposure["allowMultipleAllocations"] = True
        exposure["capacity"] = {each: {"value": 8, "requestPolicy": {"default": 1}} for each in way.capacities}
    return policy(name, cel, **exposure)


def exposed(nic: Drawn) -> ExposureResult:
    parent = pf(PF, vfs=nic.vfs, speed=nic.speed)
    vfs = [vf(parent, index, master="br0" if index in nic.in_host_use else "") for index in range(nic.vfs)]
    wanted = " || ".join(f"{OURS}.vfIndex == {index}" for index in nic.exposed_vfs) or "false"
    policies = [policy_of(way, f"pf{index}", named(PF)) for index, way in enumerate(nic.pf)]
    policies += [policy_of(way, f"vf{index}", wanted) for index, way in enumerate(nic.vf)]
    result = expose(inventory(parent, *vfs), policies)
    assert result.problems == ()
    return result


def group_of(device: ExposedDevice, nic: Drawn) -> str:
    ways = nic.pf if device.policy.startswith("pf") else nic.vf
    return ways[int(device.policy[2:])].group


def is_pf(device: ExposedDevice) -> bool:
    return device.attributes["dra.networking/type"] == "pf"


def get_along(one: ExposedDevice, other: ExposedDevice, nic: Drawn) -> bool:
    if one.interface == other.interface:
        apart = group_of(one, nic) and group_of(one, nic) == group_of(other, nic)
        return one.shared and other.shared and not apart
    if is_pf(one) == is_pf(other):
        return True
    whole = one if is_pf(one) else other
    return whole.shared


def allowed(devices: Sequence[ExposedDevice], nic: Drawn) -> bool:
    if nic.in_host_use and any(is_pf(device) and not device.shared for device in devices):
        return False
    return all(get_along(one, other, nic) for one, other in combinations(devices, 2))


def affordable(devices: Iterable[ExposedDevice], result: ExposureResult) -> bool:
    taken: Counter[tuple[str, str]] = Counter()
    for device in devices:
        for name, counters in device.consumes.items():
            for counter, amount in counters.items():
                taken[name, counter] += amount
    totals = {(each.name, counter): value for each in result.counter_sets for counter, value in each.counters.items()}
    return all(amount <= totals[key] for key, amount in taken.items())


def disagreements(result: ExposureResult, nic: Drawn, subsets: Iterable[Sequence[ExposedDevice]]) -> list[list[str]]:
    return [
        [device.name for device in subset] for subset in subsets if allowed(subset, nic) != affordable(subset, result)
    ]


def greatest(devices: Sequence[ExposedDevice], nic: Drawn) -> list[ExposedDevice]:
    """As many devices in use at once as there can be, taking them in the order given."""
    found: list[ExposedDevice] = []
    for device in devices:
        if allowed([*found, device], nic):
            found.append(device)
    return found


@settings(max_examples=120)
@given(nic=drawn(), data=st.data())
def test_devices_can_be_allocated_together_exactly_if_they_do_not_exclude_each_other(
    nic: Drawn, data: st.DataObject
) -> None:
    result = exposed(nic)
    subsets: list[Sequence[ExposedDevice]] = [*combinations(result.devices, 1), *combinations(result.devices, 2)]
    if result.devices:
        some = st.lists(st.sampled_from(result.devices), unique_by=lambda device: device.name)
        subsets += data.draw(st.lists(some, max_size=MAX_SUBSETS))
        subsets.append(greatest(data.draw(st.permutations(result.devices)), nic))
    assert disagreements(result, nic, subsets) == []


def test_forty_personas_that_share_and_one_that_does_not() -> None:
    ways = (*(Way("shared", capacities=("ports", "slots")) for _ in range(40)), Way("exclusive"))
    nic = Drawn(pf=ways, vf=(Way("exclusive"),), exposed_vfs=(0, 1), vfs=2, in_host_use=(), speed=25_000)
    result = exposed(nic)
    assert len(result.devices) == 43
    assert disagreements(result, nic, combinations(result.devices, 2)) == []
    shared = [device for device in result.devices if device.shared]
    assert affordable([*shared, *(device for device in result.devices if not is_pf(device))], result)


def test_a_vf_in_host_use_blocks_passthrough_and_nothing_else() -> None:
    nic = Drawn(
        pf=(Way("exclusive"), Way("shared")),
        vf=(Way("exclusive"),),
        exposed_vfs=(0, 1, 2),
        vfs=3,
        in_host_use=(2,),
        speed=25_000,
    )
    result = exposed(nic)
    whole = next(device for device in result.devices if is_pf(device) and not device.shared)
    assert whole.consumes["ens1-counters"]["exclusion-slots"] == 4
    assert result.counter_sets[0].counters["exclusion-slots"] == 3
    assert not affordable([whole], result)
    assert affordable([device for device in result.devices if device is not whole], result)


def test_vfs_that_nothing_is_known_of_count() -> None:
    parent = pf(PF, vfs=8)
    result = expose(inventory(parent, vf(parent, 5)), [policy_of(Way("exclusive"), "p", "true")])
    assert result.counter_sets[0].counters == {"exclusion-slots": 9, "bandwidth": 100_000}
    by_name = {device.name: device.consumes["ens1-counters"] for device in result.devices}
    assert by_name == {
        "ens1-p": {"exclusion-slots": 9, "bandwidth": 100_000},
        "ens1v5-p": {"exclusion-slots": 1, "bandwidth": 12_500},
    }


def test_two_exclusive_personas_of_one_interface_exclude_each_other() -> None:
    bridge = Interface(if_name="br0", type="bridge")
    result = expose(inventory(bridge), [policy_of(Way("exclusive"), name, "true") for name in ("a", "b")])
    assert [each.counters for each in result.counter_sets] == [{"exclusion-slots": 1}]
    assert [device.consumes for device in result.devices] == [{"br0-counters": {"exclusion-slots": 1}}] * 2


LENDERS = st.lists(
    st.tuples(
        st.sampled_from(["pf", "vf"]),
        st.sampled_from(["shared", "exclusive"]),
        st.sampled_from(["", "", "group"]),
        st.sampled_from([None, 1, 999, 5000, 9999, 10_000]),
    ),
    max_size=5,
)


@given(LENDERS, st.integers(0, 3), st.data())
def test_devices_allocated_together_never_exceed_the_bandwidth_of_the_link(
    ways: list[tuple[str, str, str, int | None]], vfs: int, data: st.DataObject
) -> None:
    policies = []
    for number, (kind, use, group, value) in enumerate(ways):
        capacity: dict[str, Any] = {} if value is None else {"bandwidth": {"value": value}}
        several = use == "shared"
        if several:
            capacity = {name: {**each, "requestPolicy": {"default": 0}} for name, each in capacity.items()}
            capacity["ports"] = {"value": 8, "requestPolicy": {"default": 1}}
        more: dict[str, Any] = {
            "deviceNameSuffix": f"-{number}",
            "exclusionGroup": group,
            "allowMultipleAllocations": several,
        }
        policies.append(policy(f"p{number}", f'{OURS}.type == "{kind}"', capacity=capacity, **more))
    result = expose(inventory(*sriov("ens1", vfs, speed=10_000)), policies)
    assert result.problems == ()
    held: list[ExposedDevice] = []
    for device in data.draw(st.permutations(result.devices)):
        held += [device] if affordable([*held, device], result) else []
    had = (device.capacity.get("dra.networking/bandwidth") for device in held)
    assert sum(int(amount.value) for amount in had if amount) <= 10_000
