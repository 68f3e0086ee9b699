"""The addresses of a PodNetwork as a device that claims share, so that the scheduler knows a full network. Pure.

A claim that has a request of the network's DeviceClass consumes the capacity `addresses` of the device (decision D71).
`netdra.controller.addresses.shares` counts and writes; command-line tools use the same device without a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from netdra.model import names, quantity
from netdra.model.claim import (
    CapacityRequirements,
    CELDeviceSelector,
    DeviceClass,
    DeviceClassSpec,
    DeviceRequest,
    DeviceSelector,
    DeviceToleration,
    ExactDeviceRequest,
)
from netdra.model.inventory import ATTRIBUTES, Interface, attributes
from netdra.model.meta import LabelSelector, ObjectMeta, OwnerReference
from netdra.model.pod_address import Family, family_of
from netdra.model.pod_network import PodNetwork
from netdra.model.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
    QuantityText,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from netdra.networks.ranges import group_of, usable

TYPE = "podnetwork"
"""The `type` of the device."""
MOST = 1_000_000_000
"""The largest capacity that is published: a /64 has more addresses than claims can ever request."""
PROBE = "probe"
"""The network in the slice of a dry run."""
_MAX_TEXT = 64
_EXACT = 8
"""Up to so many available steps, the capacity is exact."""


class RangeGroup(NamedTuple):
    """The ranges for the same nodes, and the unit that a step consumes there.

    Attributes:
        key: a short word for the nodes; "" for all of them.
        selector: the nodes; None for all.
        ranges: by family, the places of the ranges in the spec.
    """

    key: str
    selector: LabelSelector | None
    ranges: Mapping[Family, tuple[int, ...]]


class Available(NamedTuple):
    """How many more steps can get addresses, and how many are allocated shares already."""

    consumed: int
    left: int


def groups(network: PodNetwork) -> tuple[RangeGroup, ...]:
    """The groups of nodes for which a network has addresses of all of its families.

    A family that a group has no range of comes from the ranges for all nodes.
    """
    families = dict.fromkeys(family_of(entry.cidr) for entry in network.spec.ranges)
    own: dict[str, dict[Family, tuple[int, ...]]] = {}
    selectors: dict[str, LabelSelector | None] = {}
    for at, entry in enumerate(network.spec.ranges):
        key, family = group_of(entry), family_of(entry.cidr)
        selectors[key] = entry.node_selector if key else None
        ranges = own.setdefault(key, {})
        ranges[family] = (*ranges.get(family, ()), at)
    common = own.get("", {})
    merged = {key: {**common, **ranges} for key, ranges in own.items()}
    return tuple(
        RangeGroup(key, selectors[key], ranges) for key, ranges in merged.items() if ranges.keys() == families.keys()
    )


def available(
    group: RangeGroup, free: Mapping[int, int], awaited: Mapping[int, int], consumed: int, promised: int
) -> Available:
    """The rest of a group's ranges for further claims.

    Args:
        group: the ranges.
        free: how many addresses of each range are free.
        awaited: how many addresses of each range are not free, but go to claims that wait for their allocation.
        consumed: the steps of all claims that were allocated shares.
        promised: those of them that have no addresses yet.
    """
    left = (
        max(0, sum(free[at] for at in ranges) - promised) + sum(awaited.get(at, 0) for at in ranges)
        for ranges in group.ranges.values()
    )
    return Available(consumed, min(MOST, *left))


def capacity(now: Available, published: int | None) -> int:
    """The capacity to publish: the present one, as long as it is safe and leaves enough; otherwise a new one.

    With many addresses left, an eighth is withheld: claims without a share then take addresses without a write for
    each. With few left it is exact.

    Args:
        now: what is available.
        published: the present capacity; None without one.
    """
    exact = now.consumed + now.left
    if published is not None and published <= exact:
        offered = published - now.consumed
        if offered == now.left or (now.left > _EXACT and 2 * offered >= now.left):
            return published
    withheld = now.left // _EXACT if now.left > _EXACT else 0
    return exact - withheld


def device_class(network: PodNetwork) -> DeviceClass:
    """The DeviceClass by which claims request addresses of a network."""
    published = f'device.attributes["{names.DRIVER}"].{names.POD_NETWORK}'
    cel = f'device.driver == "{names.DRIVER}" && has({published}) && {published} == "{_text(network.name)}"'
    return DeviceClass(
        metadata=ObjectMeta(name=names.network_class(network.name), owner_references=(_owner(network),)),
        spec=DeviceClassSpec(selectors=(DeviceSelector(cel=CELDeviceSelector(expression=cel)),)),
    )


def request(network: str, steps: int) -> DeviceRequest:
    """The request of a claim for the addresses of some steps on a network."""
    amount = CapacityRequirements(requests={names.qualified(names.ADDRESSES): str(steps)}) if steps > 1 else None
    toleration = DeviceToleration(key=names.OF_NETWORK, operator="Exists")
    exactly = ExactDeviceRequest(
        device_class_name=names.network_class(network), tolerations=(toleration,), capacity=amount
    )
    return DeviceRequest(name=names.label(f"{network}-{names.ADDRESSES}"), exactly=exactly)


def device_classes(networks: Iterable[PodNetwork]) -> Iterator[DeviceClass]:
    """The DeviceClass of each PodNetwork whose name leaves room for the names of shares."""
    return (device_class(network) for network in networks if names.has_shares(network.name))


def slice_name(network: PodNetwork, group: RangeGroup) -> str:
    """The name of the ResourceSlice of a group's addresses: that of its pool."""
    return names.network_pool(network.name, group.key).replace("/", "-")


def resource_slice(network: PodNetwork, group: RangeGroup, amount: int) -> ResourceSlice:
    """The ResourceSlice of a group's addresses. Without any, it has no device: a capacity of 0 has no least request."""
    pool = names.network_pool(network.name, group.key)
    return ResourceSlice(
        metadata=ObjectMeta(name=slice_name(network, group), owner_references=(_owner(network),)),
        spec=ResourceSliceSpec(
            driver=names.DRIVER,
            pool=ResourcePool(name=pool, generation=1, resource_slice_count=1),
            all_nodes=group.selector is None,
            node_selector=None if group.selector is None else node_selector(group.selector),
            devices=(_device(network.name, amount),) if amount > 0 else (),
        ),
    )


def probe() -> ResourceSlice:
    """A slice by whose dry run an API server shows whether it supports the devices."""
    pool = ResourcePool(name=names.network_pool(PROBE), generation=1, resource_slice_count=1)
    return ResourceSlice(
        metadata=ObjectMeta(generate_name="netdra-probe-"),
        spec=ResourceSliceSpec(driver=names.DRIVER, pool=pool, all_nodes=True, devices=(_device(PROBE, 1),)),
    )


def untouched(network: PodNetwork) -> Iterator[ResourceSlice]:
    """The slices of a valid network without assigned addresses.

    Raises:
        ValueError: a text of the ranges is not an address.
    """
    reserved = len(network.spec.reservations)
    for group in groups(network) if names.has_shares(network.name) else ():
        sizes = {at: sum(span.size for span in usable(entry, network)) for at, entry in enumerate(network.spec.ranges)}
        left = available(group, sizes, {}, 0, 0).left
        yield resource_slice(network, group, min(max(left - reserved, 0), MOST))


def steps_of(amounts: Mapping[str, QuantityText]) -> int:
    """How many steps' addresses an amount of capacity is for; 0 without one."""
    amount = amounts.get(names.qualified(names.ADDRESSES), amounts.get(names.ADDRESSES, 0))
    return int(quantity.parse(amount))


def node_selector(selector: LabelSelector) -> dict[str, Any]:
    """A selector of labels as a v1.NodeSelector of one term."""
    labels = ({"key": key, "operator": "In", "values": [value]} for key, value in sorted(selector.match_labels.items()))
    others = (
        {"key": each.key, "operator": each.operator} | ({"values": [*each.values]} if each.values else {})
        for each in selector.match_expressions
    )
    return {"nodeSelectorTerms": [{"matchExpressions": [*labels, *others]}]}


def _device(network: str, amount: int) -> Device:
    policy = CapacityRequestPolicy(default="1", valid_range=CapacityRequestPolicyRange(min="1"))
    own = {names.POD_NETWORK: _text(network), names.SUPPORTED_CNIS: ""}
    published = {**_NEUTRAL, **{names.qualified(name): DeviceAttribute(string=text) for name, text in own.items()}}
    return Device(
        name=names.ADDRESSES,
        attributes=published,
        capacity={
            names.qualified(names.ADDRESSES): DeviceCapacity(value=str(amount), request_policy=policy),
        },
        allow_multiple_allocations=True,
        taints=(DeviceTaint(key=names.OF_NETWORK, effect="NoSchedule"),),
    )


def _neutral() -> Iterator[tuple[str, DeviceAttribute]]:
    """Every attribute that all devices of the driver have: a selector that reads a missing one ends an allocation."""
    values = attributes(Interface(type=TYPE))
    for name in (field.name for field in ATTRIBUTES if field.reach == "always"):
        value = values[name]
        if isinstance(value, bool):
            yield name, DeviceAttribute(bool_=value)
        elif isinstance(value, int):
            yield name, DeviceAttribute(int_=value)
        else:
            yield name, DeviceAttribute(string=str(value or ""))


_NEUTRAL: Mapping[str, DeviceAttribute] = dict(_neutral())


def _text(network: str) -> str:
    """A network's name as an attribute's value."""
    return names.subdomain(network, limit=_MAX_TEXT)


def _owner(network: PodNetwork) -> OwnerReference:
    return OwnerReference(
        api_version=network.api_version,
        kind=network.kind,
        name=network.name,
        uid=network.metadata.uid,
        controller=True,
    )
