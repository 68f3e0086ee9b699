"""Random devices of one node, in pools of every kind: devices that policies expose, and devices that no policy would.

Half of the pools are made by exposure from policies that are drawn, and from interfaces with their upper devices; the
others are written by hand, with counters, capacities, taints and faults that the scheduler must cope with from any
driver.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from netdra.exposure import expose
from netdra.model import documents
from netdra.model.policy import DeviceExposurePolicy
from netdra.slices.pack import pack
from tests import builders
from tests.stacks import MASTERS, Stack, Truth, Upper, Way

Object = dict[str, Any]
DRIVER = "dra.networking"
OTHER_DRIVER = "other.example"
CAPACITIES = (f"{DRIVER}/bandwidth", f"{DRIVER}/slots", "slots", "bandwidth")
PERSONAS = ("macvlan", "ipvlan", "macvtap")

Pair = frozenset[tuple[str, str]]
Pool = tuple[str, list[Object], dict[str, dict[str, int]]]


@dataclass
class Devices:
    """Slices, and pairs of devices, as (pool, device), of which only one may be in use at a time."""

    node: str
    slices: list[Object] = field(default_factory=list)
    exclusive: set[Pair] = field(default_factory=set)


def draw_devices(source: random.Random, name: str, node: str) -> Devices:
    """The devices of a node; the names of its pools begin with `name`."""
    devices = Devices(node)
    for letter in "abc"[: source.randint(1, 3)]:
        choice = source.random()
        if choice < 0.3:
            _expose(source, devices, f"{name}-{letter}")
        elif choice < 0.5:
            _stack(source, devices, f"{name}-{letter}")
        else:
            _write(source, devices, f"{name}-{letter}")
    return devices


def _expose(source: random.Random, devices: Devices, name: str) -> None:
    """A NIC with VFs under random policies (decisions D2 to D5), through exposure and packing."""
    interfaces = builders.sriov("eth0", source.choice((0, 1, 2, 4)), speed=source.choice((0, 25_000)))
    policies = {policy.name: policy for policy in _policies(source)}
    result = expose(builders.inventory(*interfaces, node=name), policies.values())
    assert all("its bandwidth" in each.message for each in result.problems), result.problems
    devices.slices += [documents.plain(each) for each in pack(result, node=devices.node)]
    groups = {each: policy.spec.exposure.exclusion_group for each, policy in policies.items() if policy.spec.exposure}
    physical = interfaces[0].identity
    for one in result.devices:
        for two in result.devices:
            same = one.interface == two.interface
            apart = same and (not one.shared or "" != groups[one.policy] == groups[two.policy])
            above = one.interface == physical and not one.shared
            if one.name != two.name and (apart or above):
                devices.exclusive.add(_pair(one.pool, one.name, two.name))


def _stack(source: random.Random, devices: Devices, name: str) -> None:
    """NICs with VLANs, macvlans, bonds and bridges on them, each offered in some way (decision D24)."""
    pfs = {f"eth{number}": source.choice((0, 1, 2)) for number in range(source.choice((1, 1, 2)))}
    uppers: list[Upper] = []
    ports: set[str] = set()
    for number in range(source.randint(1, 3)):
        there = Stack(pfs, tuple(uppers)).names
        kind = source.choice(("vlan", "macvlan", *MASTERS))
        free = [each for each in there if each not in ports] if kind in MASTERS else list(there)
        if free:
            on = source.sample(free, min(len(free), source.choice((1, 2)) if kind in MASTERS else 1))
            ports |= set(on) if kind in MASTERS else set()
            uppers.append(Upper(kind, f"{kind}{number}", tuple(sorted(on))))
    names = Stack(pfs, tuple(uppers)).names
    ways = {each: tuple(_way(source) for _ in range(source.choice((0, 1, 1, 2)))) for each in names}
    excluded = frozenset(source.sample(names, 1)) if source.random() < 0.3 else frozenset()
    stack = Stack(pfs, tuple(uppers), ways, excluded, node=name)
    result = stack.exposed()
    devices.slices += [documents.plain(each) for each in pack(result, node=devices.node)]
    truth = Truth(stack, result.devices)
    for one, two in combinations(result.devices, 2):
        if not truth.allows([one, two]):
            devices.exclusive.add(frozenset({(one.pool, one.name), (two.pool, two.name)}))


def _way(source: random.Random) -> Way:
    return Way(source.choice(("shared", "exclusive", "both")), source.choice(("", "rx")))


def _policies(source: random.Random) -> list[DeviceExposurePolicy]:
    physical = builders.named("eth0")
    found = [builders.exclusive("vf", f'{builders.OURS}.type == "vf"', "sriov")]
    if source.random() < 0.7:
        found.append(builders.exclusive("pass", physical))
    for plugin in source.sample(PERSONAS, source.randint(0, 3)):
        group = source.choice(("", "rx", "rx", "tx"))
        plugins: list[Object] = [{"name": plugin}]
        if source.random() < 0.2:
            plugins.append({"name": "host-device", "exclusive": True})
        capacity = {source.choice(("slots", "bandwidth")): _capacity(source, policy=True)}
        found.append(
            builders.policy(
                plugin,
                physical if source.random() < 0.8 else f'{builders.OURS}.type in ["vf", "pf"]',
                deviceNameSuffix=f"-{plugin}",
                allowMultipleAllocations=True,
                capacity=capacity,
                allowBandwidthOvercommit=capacity.get("bandwidth", {}).get("value") == "4Gi" or source.random() < 0.5,
                supportedCNIPlugins=plugins,
                exclusionGroup=group,
            )
        )
    return found


def _write(source: random.Random, node: Devices, pool: str) -> None:
    kind: Callable[[random.Random, Devices, str], Pool] = source.choice((_nic, _pooled, _counted, _plain))
    driver, devices, counters = kind(source, node, pool)
    chunks = [devices]
    if len(devices) > 2 and source.random() < 0.4:
        cut = source.randint(1, len(devices) - 1)
        chunks = [devices[:cut], devices[cut:]]
    if devices and source.random() < 0.05:
        chunks.append([dict(devices[0])])  # a device that is published twice makes the pool invalid
    count = len(chunks) + (1 if counters else 0)
    if source.random() < 0.05:
        count += 1  # a slice that never comes leaves the pool incomplete
    here = {"nodeName": node.node}
    if source.random() < 0.05:
        old = [_slice(f"{pool}-old", driver, pool, 0, 1, here, devices=[_device(source, "old", "vf", {})])]
        node.slices += old  # of a generation that counts no more
    if counters:
        sets = [{"name": name, "counters": _amounts(amounts)} for name, amounts in counters.items()]
        node.slices.append(_slice(f"{pool}-z", driver, pool, 1, count, here, sharedCounters=sets))
    place = source.choice(
        (here, here, here, here, {"nodeSelector": _selector(node.node)}, {"perDeviceNodeSelection": True})
    )
    # Names that sort against the order of creation, for slices go by name.
    for index, chunk in enumerate(chunks):
        placed = (
            [_placed(source, device, node.node) for device in chunk] if "perDeviceNodeSelection" in place else chunk
        )
        node.slices.append(_slice(f"{pool}-{9 - index}", driver, pool, 1, count, place, devices=placed))


def _slice(name: str, driver: str, pool: str, generation: int, count: int, place: Object, **content: Any) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
            **place,
            **content,
        },
    }


def _placed(source: random.Random, device: Object, node: str) -> Object:
    """A device that states itself which node it is for: mostly this one."""
    choice = source.random()
    if choice < 0.3:
        return device | {"nodeSelector": _selector(node)}
    return device | {"nodeName": node if choice < 0.8 else "elsewhere"}


def _selector(node: str) -> Object:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}


def _nic(source: random.Random, node: Devices, pool: str) -> Pool:
    """A PF with passthrough, shared personas of which some exclude each other, and VFs (decisions D2 and D3)."""
    vfs = source.choice((0, 1, 2, 4))
    personas = source.sample(PERSONAS, source.randint(0, 3))
    groups = {name: source.randint(0, 1) for name in personas}
    counters = {"exclusion-slots": vfs + 1} | {f"{name}-capacity": 64 for name in personas}
    if source.random() < 0.5:
        counters["bandwidth"] = 25 * max(vfs, 1)
    devices: list[Object] = []
    if source.random() < 0.8:
        devices.append(_device(source, "eth0", "pf", counters))
    for name in personas:
        drawn = {f"{other}-capacity": 64 for other in personas if groups[other] == groups[name]}
        devices.append(_share(source, _device(source, f"eth0-{name}", name, drawn)))
    for number in range(vfs):
        share = {"exclusion-slots": 1} | ({"bandwidth": 25} if "bandwidth" in counters else {})
        devices.append(_device(source, f"eth0v{number}", "vf", share))
    names = [each["name"] for each in devices]
    node.exclusive |= {_pair(pool, "eth0", name) for name in names if "eth0" in names and name != "eth0"}
    node.exclusive |= {
        _pair(pool, f"eth0-{one}", f"eth0-{two}")
        for one in personas
        for two in personas
        if one < two and groups[one] == groups[two]
    }
    source.shuffle(devices)
    return DRIVER, devices, {"eth0-counters": counters}


def _pooled(source: random.Random, node: Devices, pool: str) -> Pool:
    """A PF whose VFs are a few pooled devices, each with a part of the VFs and of the bandwidth, and the PF itself."""
    lanes, vfs = source.choice((1, 1, 2, 3)), source.choice((1, 2, 4))
    slots = lanes * vfs + 1
    devices: list[Object] = []
    for number in range(lanes):
        lane = _device(source, f"eth0-{number}", "vf", {"exclusion-slots": vfs})
        one = {"default": "1", "validRange": {"min": "1", "max": "1"}}
        rate = {"default": source.choice(("2", "4")), "validRange": {"min": "2", "max": "10", "step": "2"}}
        capacity: Object = {f"{DRIVER}/slots": {"value": str(vfs), "requestPolicy": one}}
        if source.random() < 0.8:
            capacity[CAPACITIES[0]] = {"value": "10", "requestPolicy": rate}
        devices.append(lane | {"allowMultipleAllocations": True, "capacity": capacity})
    node.exclusive |= {_pair(pool, "eth0", lane["name"]) for lane in devices}
    devices.append(_device(source, "eth0", "pf", {"exclusion-slots": slots}))
    source.shuffle(devices)
    return DRIVER, devices, {"eth0-counters": {"exclusion-slots": slots}}


def _counted(source: random.Random, node: Devices, pool: str) -> Pool:
    """Devices that draw any amounts from one or two counter sets."""
    sets = {name: {"x": source.randint(1, 4), "y": source.randint(1, 4)} for name in ("s1", "s2")}
    devices = []
    for number in range(source.randint(2, 6)):
        device = _device(source, f"d{number}", source.choice(("vf", "nic")), {})
        device["consumesCounters"] = [
            {"counterSet": name, "counters": _amounts({counter: source.randint(0, 2) for counter in ("x", "y")})}
            for name in source.sample(sorted(sets), source.randint(1, 2))
        ]
        devices.append(_share(source, device) if source.random() < 0.4 else device)
    if source.random() < 0.05:
        devices[0]["consumesCounters"] = [{"counterSet": "s3", "counters": _amounts({"x": 1})}]
    return source.choice((DRIVER, OTHER_DRIVER)), devices, sets


def _plain(source: random.Random, node: Devices, pool: str) -> Pool:
    """Devices without counters, some shared."""
    devices = [_device(source, f"d{number}", source.choice(("nic", "vf", "macvlan")), {}) for number in range(5)]
    devices = devices[: source.randint(1, 5)]
    return (
        source.choice((DRIVER, OTHER_DRIVER)),
        [_share(source, device) if source.random() < 0.4 else device for device in devices],
        {},
    )


def _device(source: random.Random, name: str, kind: str, draws: Mapping[str, int]) -> Object:
    attributes: Object = {
        f"{DRIVER}/type": {"string": "pf" if kind in PERSONAS else kind},
        f"{DRIVER}/supportedCNIs": {"string": f",{kind},"},
        f"{DRIVER}/numaNode": {"int": source.randint(0, 1)},
        f"{DRIVER}/rdma": {"bool": source.random() < 0.5},
        f"{DRIVER}/firmware": {"version": source.choice(("1.0.0", "2.0.0", "2.0.0+b1", "1.6.0-rc.1"))},
        # A name without domain has the driver's; a value of another type never matches.
        "port": source.choice(({"string": "p1"}, {"string": "p2"}, {"int": 1})),
    }
    if source.random() < 0.04:
        del attributes[source.choice(sorted(attributes))]
    device: Object = {"name": name, "attributes": attributes}
    if draws:
        device["consumesCounters"] = [{"counterSet": "eth0-counters", "counters": _amounts(draws)}]
    if source.random() < 0.3:
        device["capacity"] = {CAPACITIES[0]: {"value": source.choice(("5", "10", "25"))}}
    if source.random() < 0.12:
        effect = source.choice(("NoSchedule", "NoExecute", "None"))
        device["taints"] = [{"key": "example.com/down", "value": source.choice(("a", "b")), "effect": effect}]
    return device


def _share(source: random.Random, device: Object) -> Object:
    names = source.sample(CAPACITIES[:2], source.randint(1, 2)) if source.random() < 0.9 else [CAPACITIES[2]]
    if source.random() < 0.05:
        names = list(CAPACITIES[1:3])  # a driver's mistake
    capacity = {name: _capacity(source) for name in names}
    return device | {"allowMultipleAllocations": True, "capacity": capacity}


def _capacity(source: random.Random, *, policy: bool = False) -> Object:
    """A capacity of a shared device; `policy` reports that it must have one."""
    value = source.choice(("4", "10", "25", "4Gi"))
    policies: list[Object] = [
        {"default": "1"},
        {"default": "2", "validValues": ["1", "2", "4"]},
        {"default": "2", "validRange": {"min": "1"}},
        {"default": "2", "validRange": {"min": "1", "max": "3"}},
        {"default": "3", "validRange": {"min": "1", "step": "2"}},
        {"default": "1500m", "validRange": {"min": "500m", "max": "3500m", "step": "500m"}},
    ]
    if value == "4Gi":
        policies.append({"default": "1Gi", "validRange": {"min": "512Mi", "step": "512Mi"}})
    if not policy and source.random() < 0.15:
        return {"value": value}
    return {"value": value, "requestPolicy": source.choice(policies)}


def _pair(pool: str, one: str, two: str) -> Pair:
    return frozenset({(pool, one), (pool, two)})


def _amounts(amounts: Mapping[str, int]) -> Object:
    return {name: {"value": str(amount)} for name, amount in amounts.items()}
