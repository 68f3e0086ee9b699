"""The users of devices, and the free devices: by device, node, class and PF. Pure.

Printed by `netdra get` and `netdra top`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal

import msgspec

from netdra.cluster.objects import ClusterState, DeviceId, DeviceInSlice
from netdra.model import quantity
from netdra.model.claim import DeviceClaim, DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec
from netdra.model.errors import InvalidInputError
from netdra.model.meta import ObjectMeta
from netdra.model.names import BANDWIDTH, DRIVER, network_of, network_of_class, qualified
from netdra.model.resource import Device, DeviceCapacity, QuantityText
from netdra.slices.allocator import Allocator, claim_key
from netdra.slices.allocator.alike import grouped, matching
from netdra.slices.allocator.pools import Candidate
from netdra.slices.allocator.wishes import SelectorCache, Selectors, UnallocatableError, task
from netdra.story.nodes import scheduler_nodes


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A device, or an interface that is hidden.

    Attributes:
        state: `free`, `allocated`, `tainted`, or `hidden`.
        claims: the claims that have it, as `<namespace>/<name>`.
        pods: the pods of these claims.
        interface: its name in the first pod.
        reason: why it is hidden or tainted.
    """

    node: str
    device: str
    type: str
    state: str
    pool: str = ""
    pf: str = ""
    claims: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    interface: str = ""
    addresses: tuple[str, ...] = ()
    reason: str = ""


def device_uses(cluster: ClusterState, nodes: Sequence[str] = ()) -> Iterator[DeviceUse]:
    """Each published device, then hidden interfaces, node by node.

    Args:
        cluster: the objects.
        nodes: the nodes to list; all if none is named.
    """
    published = sorted(cluster.devices.values(), key=lambda found: (found.node, found.pool, found.device.name))
    by_node: dict[str, list[DeviceUse]] = {}
    for found in published:
        by_node.setdefault(found.node, []).append(_device_use(cluster, found))
    for report in cluster.node_networks:
        by_node.setdefault(report.name, []).extend(_hidden(cluster, report.name))
    for node in sorted(by_node):
        if not nodes or node in nodes:
            yield from by_node[node]


def _device_use(cluster: ClusterState, found: DeviceInSlice) -> DeviceUse:
    holders = cluster.holders.get((found.pool, found.device.name), ())
    taint = next((f"{taint.key}:{taint.effect}" for taint in found.device.blocking_taints), "")
    statuses = [
        status
        for claim in holders
        for status in claim.status.devices
        if (status.driver, status.pool, status.device) == (DRIVER, found.pool, found.device.name)
    ]
    networks = [status.network_data for status in statuses if status.network_data is not None]
    return DeviceUse(
        node=found.node,
        device=found.device.name,
        type=str(found.attribute("type") or ""),
        state="allocated" if holders else "tainted" if taint else "free",
        pool=found.pool,
        pf=_pf(found),
        claims=tuple(map(claim_key, holders)),
        pods=tuple(entry.name for claim in holders for entry in claim.status.reserved_for),
        interface=networks[0].interface_name if networks else "",
        addresses=tuple(address for network in networks for address in network.ips),
        reason=taint,
    )


def _pf(found: DeviceInSlice) -> str:
    """The PF of a VF, the interface of any other device."""
    return str(found.attribute("pfName") or found.attribute("ifName") or "")


def _hidden(cluster: ClusterState, node: str) -> Iterator[DeviceUse]:
    report = cluster.report(node)
    for group in report.status.interfaces if report is not None and report.status is not None else ():
        for name in () if group.devices or group.pools_vfs else group.names:
            yield DeviceUse(node=node, device=name, type=group.type, state="hidden", reason=group.reason)


class UseCount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The devices of a node or a PF, counted.

    Attributes:
        name: the node, or the PF as `<node>/<interface>`.
        devices, allocated, free, tainted: the number of devices. A shared device is allocated if a claim has a share,
            and free as well while another claim can get one.
        bandwidth: the bandwidth of the links in Mbit/s, 0 if unknown.
        allocated_bandwidth: the part of it that claims have.
    """

    name: str
    devices: int
    allocated: int
    free: int
    tainted: int
    bandwidth: int = 0
    allocated_bandwidth: int = 0


def node_uses(cluster: ClusterState, nodes: Sequence[str] = ()) -> list[UseCount]:
    """The allocated and free devices of each node with devices; `nodes` limits them, none means all."""
    return _uses(cluster, nodes, lambda found: found.node)


def pf_uses(cluster: ClusterState, nodes: Sequence[str] = ()) -> list[UseCount]:
    """The use of each PF, and of each device that is of none."""
    return _uses(cluster, nodes, lambda found: f"{found.node}/{_pf(found)}")


def _uses(cluster: ClusterState, nodes: Sequence[str], name: Callable[[DeviceInSlice], str]) -> list[UseCount]:
    groups: dict[str, list[DeviceInSlice]] = {}
    for found in cluster.devices.values():
        if not nodes or found.node in nodes:
            groups.setdefault(name(found), []).append(found)
    return [_use(cluster, called, groups[called]) for called in sorted(groups)]


def _use(cluster: ClusterState, name: str, devices: Sequence[DeviceInSlice]) -> UseCount:
    held = [found for found in devices if _id(found) in cluster.holders]
    tainted = [found for found in devices if found.device.blocking_taints and _id(found) not in cluster.holders]
    links: dict[tuple[str, str], int] = {}
    for found in devices:
        links[found.node, _pf(found)] = max(links.get((found.node, _pf(found)), 0), _link(cluster, found))
    return UseCount(
        name=name,
        devices=len(devices),
        allocated=len(held),
        free=sum(_has_room(cluster, _id(found), found.device) for found in devices),
        tainted=len(tainted),
        bandwidth=sum(links.values()),
        allocated_bandwidth=int(sum(_consumed(cluster, found) for found in held)),
    )


def _id(found: DeviceInSlice) -> DeviceId:
    return found.pool, found.device.name


def _has_room(cluster: ClusterState, key: DeviceId, device: Device) -> bool:
    """Whether another claim can get a device, or a share of the default size."""
    if device.blocking_taints:
        return False
    if key not in cluster.holders:
        return True
    if not device.allow_multiple_allocations:
        return False
    shares = [*_shares(cluster, key)]
    return all(
        sum(_amounts(shares, name), _share(capacity)) <= quantity.parse(capacity.value)
        for name, capacity in device.capacity.items()
    )


def _share(capacity: DeviceCapacity) -> Decimal:
    """The amount that a claim gets if it does not request one: all of it without a policy (KEP-5075)."""
    policy = capacity.request_policy
    return quantity.parse(policy.default if policy is not None and policy.default else capacity.value)


def _shares(cluster: ClusterState, key: DeviceId) -> Iterator[Mapping[str, QuantityText]]:
    """The consumption of a shared device by claims, by capacity."""
    for claim in cluster.holders.get(key, ()):
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            if (result.pool, result.device) == key:
                yield result.consumed_capacity


def _amounts(shares: Iterable[Mapping[str, QuantityText]], name: str) -> Iterator[Decimal]:
    """The consumption of a capacity by shares; its name is written with the driver's domain or without."""
    short = name.removeprefix(f"{DRIVER}/")
    for share in shares:
        if amount := share.get(qualified(short)) or share.get(short):
            yield quantity.parse(amount)


def _link(cluster: ClusterState, found: DeviceInSlice) -> int:
    """The speed of a device's link; that of a VF is its PF's, which its pool's counter has."""
    speed = found.attribute("linkSpeed")
    own = speed if isinstance(speed, int) and speed > 0 else 0
    return max(own, cluster.pool_bandwidth.get(found.pool, 0))


def _consumed(cluster: ClusterState, found: DeviceInSlice) -> Decimal:
    """The bandwidth that claims have of a device: their shares, or all of an exclusive device."""
    capacity = found.device.capacity.get(qualified(BANDWIDTH)) or found.device.capacity.get(BANDWIDTH)
    if not found.device.allow_multiple_allocations:
        if capacity is not None:
            return quantity.parse(capacity.value)
        return Decimal(_link(cluster, found)) if found.attribute("type") != "vf" else Decimal(0)
    return sum(_amounts(_shares(cluster, _id(found)), BANDWIDTH), Decimal(0))


class ClassUse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The devices that match a DeviceClass.

    Attributes:
        problem: why the class cannot be evaluated, "" if it can.
    """

    device_class: str
    devices: int = 0
    allocated: int = 0
    free: int = 0
    tainted: int = 0
    nodes: int = 0
    problem: str = ""


def class_uses(cluster: ClusterState, names: Iterable[str] = (), nodes: Sequence[str] = ()) -> Iterator[ClassUse]:
    """The use of DeviceClasses: of those named, else of those whose devices are netdra's."""
    classes = cluster.known.classes
    wanted = list(names) or sorted(
        name for name in classes if cluster.known.is_ours(_claim_for(name).spec.devices) and not network_of_class(name)
    )
    nodes_by_name = scheduler_nodes(cluster)
    allocator = Allocator(
        cluster.tainted_slices, classes.values(), nodes=nodes_by_name.values(), version=cluster.version
    )
    selectors = SelectorCache()
    candidates = _candidates(allocator, nodes or allocator.nodes)
    asked: dict[str, Selectors] = {}
    problems: dict[str, str] = {}
    for name in wanted:
        if network := network_of_class(name):
            problems[name] = f"it is for the addresses of a PodNetwork: kubectl get pnet {network}"
            continue
        try:
            ((wish,),) = task(_claim_for(name), classes, selectors, frozenset()).requests
            asked[name] = wish.selectors
        except (UnallocatableError, InvalidInputError) as error:
            problems[name] = str(error)
    groups = grouped(asked.values(), candidates)
    for name in wanted:
        if name in problems:
            yield ClassUse(device_class=name, problem=problems[name])
        else:
            yield _evaluated(cluster, name, asked[name], groups)


def class_shares(cluster: ClusterState, name: str) -> dict[str, tuple[int, int]]:
    """By node, how many devices match a DeviceClass, and how many of these claims have; none if it has a problem."""
    classes, selectors = cluster.known.classes, SelectorCache()
    allocator = Allocator(cluster.tainted_slices, classes.values(), nodes=scheduler_nodes(cluster).values())
    candidates = _candidates(allocator, allocator.nodes)
    try:
        ((wish,),) = task(_claim_for(name), classes, selectors, frozenset()).requests
        found = [*matching(wish.selectors, grouped([wish.selectors], candidates))]
    except (UnallocatableError, InvalidInputError):
        return {}
    shares: dict[str, tuple[int, int]] = {}
    for entry in found:
        node = entry.slice.node_name or ""
        devices, allocated = shares.get(node, (0, 0))
        shares[node] = devices + 1, allocated + (entry.key[1:] in cluster.holders)
    return shares


def _candidates(allocator: Allocator, nodes: Iterable[str]) -> list[Candidate]:
    return [
        candidate
        for node in nodes
        for pool in allocator.pools(node)
        if pool.key[0] == DRIVER and not network_of(pool.key[1])
        for candidate in pool.candidates
    ]


def _evaluated(
    cluster: ClusterState, name: str, selectors: Selectors, groups: Iterable[Sequence[Candidate]]
) -> ClassUse:
    try:
        return _class_use(cluster, name, [*matching(selectors, groups)])
    except InvalidInputError as problem:
        return ClassUse(device_class=name, problem=str(problem))


def _claim_for(name: str) -> ResourceClaim:
    request = DeviceRequest(name="all", exactly=ExactDeviceRequest(device_class_name=name))
    return ResourceClaim(
        metadata=ObjectMeta(name="all", namespace="default"),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=(request,))),
    )


def _class_use(cluster: ClusterState, name: str, candidates: Sequence[Candidate]) -> ClassUse:
    held = [entry for entry in candidates if entry.key[1:] in cluster.holders]
    tainted = [entry for entry in candidates if entry.taints and entry.key[1:] not in cluster.holders]
    return ClassUse(
        device_class=name,
        devices=len(candidates),
        allocated=len(held),
        free=sum(_has_room(cluster, entry.key[1:], entry.device) for entry in candidates),
        tainted=len(tainted),
        nodes=len({entry.slice.node_name for entry in candidates}),
    )
