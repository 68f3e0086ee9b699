"""Warnings of claims and topologies that kube-scheduler may leave Pending although devices are free (decision D56).

Called by the reviews of topologies and claims. The webhook keeps no slices: the devices are those that nodes report
(`netdra.review.offers`), with facts of their policies, and the estimate is that of `netdra simulate` and
`netdra doctor` (`netdra.slices.allocator.worst_case`). Additions of registries and CustomDevices to devices, capacities
and counters are not in the reports: a selector that asks for them matches nothing here, so that nothing is warned of.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from netdra.exposure.foresight import referenced_attributes
from netdra.model import names
from netdra.model.claim import (
    DeviceClaim,
    DeviceClass,
    DeviceSelector,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    device_claim,
)
from netdra.model.findings import Finding
from netdra.model.meta import ObjectMeta
from netdra.model.policy import DeviceExposurePolicy, Exposure
from netdra.model.resource import Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.review.offers import NodeOffer, Offers, SimilarDevices
from netdra.rules import forecasts, rdma
from netdra.rules.devices import possible_devices
from netdra.slices.allocator import Allocator
from netdra.slices.allocator.worst_case import MOST_VISITS, at_most
from netdra.slices.pack import encode_attribute
from netdra.topology.classes import device_classes, plain_claim
from netdra.topology.selectors import choices, is_about_driver, is_for

Policies = Mapping[str, DeviceExposurePolicy]
"""Policies by name."""
Classes = Mapping[str, DeviceClass]
"""DeviceClasses by name."""
_SHOWN = 3


def asked_by_topology(topology: NetworkTopology) -> frozenset[str]:
    """The attributes that a topology's DeviceClasses and steps may ask for, by qualified name."""
    selectors = _asked(step.selector.cel for step in topology.spec.steps if step.selector is not None)
    return selectors | forecasts.asked(topology) | rdma.asked(topology)


def asked_by_claim(claim: ResourceClaim | ResourceClaimTemplate, classes: Classes) -> frozenset[str]:
    """The attributes that the selectors and constraints of a claim may ask for, by qualified name."""
    wanted, _ = device_claim(claim)
    constraints = (
        attribute
        for constraint in wanted.constraints
        for attribute in (constraint.match_attribute, constraint.distinct_attribute)
        if attribute
    )
    used = _used(wanted, classes)
    return _asked(selector.cel.expression for selector in used if selector.cel is not None) | frozenset(constraints)


def concerns(claim: ResourceClaim | ResourceClaimTemplate, classes: Classes) -> bool:
    """Whether a claim is for the driver's devices, and a user has written it: nothing shows warnings of a pod's own."""
    wanted, _ = device_claim(claim)
    if isinstance(claim, ResourceClaim) and claim.metadata.owner_references:
        return False
    named = {choice.device_class_name for request in wanted.requests for choice in choices(request)}
    return is_for(wanted, {name for name in named if is_about_driver(_selectors(classes.get(name)))})


def may_be_long(claim: ResourceClaim | ResourceClaimTemplate, devices: int) -> bool:
    """Whether a claim may have a finding here, with any selectors, if a node has at most so many devices."""
    wanted, _ = device_claim(claim)
    counts = [
        [0 if choice.allocation_mode == "All" else choice.count or 1 for choice in choices(request)]
        for request in wanted.requests
    ]
    is_counted = any(count > 1 for alternatives in counts for count in alternatives)
    return bool(devices) and (is_counted or at_most(counts, devices) > MOST_VISITS)


def of_topology(
    topology: NetworkTopology, policies: Policies, offers: Offers, in_time: Callable[[], bool] = lambda: True
) -> Iterator[Finding]:
    """The warnings of a sound topology: a claim asks for one device of each of its root steps."""
    named = f'NetworkTopology "{topology.name}"'
    return _findings(named, plain_claim(topology), device_classes(topology), policies, offers, in_time)


def of_claim(
    claim: ResourceClaim | ResourceClaimTemplate,
    classes: Classes,
    policies: Policies,
    offers: Offers,
    in_time: Callable[[], bool] = lambda: True,
) -> Iterator[Finding]:
    """The warnings of a claim, or of the claims that are made from a template; `in_time` is as for `Allocator.foresee`.

    The warnings decide nothing, so what is not found in time is not warned of.
    """
    wanted, _ = device_claim(claim)
    # Capacities are not reported: each device counts as large enough.
    requests = tuple(
        replace(
            request,
            exactly=request.exactly and replace(request.exactly, capacity=None),
            first_available=tuple(replace(choice, capacity=None) for choice in request.first_available),
        )
        for request in wanted.requests
    )
    bare = ResourceClaim(metadata=claim.metadata, spec=ResourceClaimSpec(devices=replace(wanted, requests=requests)))
    return _findings(f'{claim.kind} "{claim.metadata.name}"', bare, classes.values(), policies, offers, in_time)


def of_facts(
    topology: NetworkTopology,
    schemas: Sequence[CNIPluginSchema],
    policies: Policies,
    offers: Offers,
    in_time: Callable[[], bool] = lambda: True,
) -> Iterator[Finding]:
    """The warnings of a sound topology whose steps refer to facts of devices, for the devices that nodes report."""
    if not forecasts.asked(topology):
        return
    slices = [_slice(number, offer, policies, lists=False) for number, offer in enumerate(offers.nodes)]
    reported = {str(number): offer.node for number, offer in enumerate(offers.nodes)}
    yield from forecasts.of_topology(topology, possible_devices(slices, reported), schemas, in_time=in_time)


def of_rdma_modes(topology: NetworkTopology, policies: Policies, offers: Offers) -> Iterator[tuple[Finding, bool]]:
    """The steps of a sound topology that share an RDMA device, for the devices that nodes report (`rdma.modes`)."""
    if not rdma.asked(topology) or not offers.nodes:
        return
    slices = [_slice(number, offer, policies, lists=False) for number, offer in enumerate(offers.nodes)]
    reported = {str(number): offer.node for number, offer in enumerate(offers.nodes)}
    yield from rdma.modes(topology, possible_devices(slices, reported), are_all=offers.are_all)


def _findings(
    named: str,
    claim: ResourceClaim,
    classes: Iterable[DeviceClass],
    policies: Policies,
    offers: Offers,
    in_time: Callable[[], bool],
) -> Iterator[Finding]:
    """The findings, each with its next step as another one: the API server passes short warnings on for certain."""
    if not offers.nodes:
        return
    by_name = {device_class.metadata.name: device_class for device_class in classes}
    # The controller writes the classes of topologies for lists where nodes publish lists.
    lists = any(
        "includes(" in selector.cel.expression for selector in _used(claim.spec.devices, by_name) if selector.cel
    )
    slices = [_slice(number, offer, policies, lists=lists) for number, offer in enumerate(offers.nodes)]
    outlook = Allocator(slices, by_name.values()).foresee(claim, in_time=in_time)
    if not offers.are_all:
        outlook = replace(outlook, shortages=())
    node = offers.nodes[int(outlook.node)].node if outlook.node else ""
    requests = [request.name for request in claim.spec.devices.requests]
    listed = ", ".join(requests) if len(requests) <= _SHOWN else f"{requests[0]} … {requests[-1]}"
    whole = replace(outlook, shortages=())
    for finding in whole.findings(f"{named}, requests {listed}", f"node {node}" if node else "a node"):
        yield Finding(finding.what, code=finding.code)
        yield Finding(f"{named}: {finding.hint}", code=finding.code)
    yield from replace(outlook, node="").findings(named)


def _slice(number: int, offer: NodeOffer, policies: Policies, *, lists: bool) -> ResourceSlice:
    """A node's devices as one slice. Their order and their pools decide nothing about the length of a search."""
    node = str(number)
    devices = [
        device for similar in offer.devices for device in [_device(similar, policies, lists=lists)] * similar.count
    ]
    return ResourceSlice(
        metadata=ObjectMeta(name=node),
        spec=ResourceSliceSpec(
            driver=names.DRIVER,
            pool=ResourcePool(name=node, generation=1, resource_slice_count=1),
            node_name=node,
            devices=tuple(replace(device, name=f"{node}-{at}") for at, device in enumerate(devices)),
        ),
    )


def _device(similar: SimilarDevices, policies: Policies, *, lists: bool) -> Device:
    policy = policies.get(similar.policy)
    exposure = (policy.spec.exposure if policy is not None else None) or Exposure()
    attributes = {
        **similar.facts,
        **{names.qualified(name): value for name, value in exposure.additional_attributes.items()},
        names.qualified(names.SUPPORTED_CNIS): tuple(plugin.name for plugin in exposure.supported_cni_plugins),
    }
    return Device(
        name="",
        attributes={name: encode_attribute(value, lists=lists) for name, value in attributes.items()},
        allow_multiple_allocations=similar.pools_vfs or exposure.allow_multiple_allocations,
    )


def _asked(expressions: Iterable[str]) -> frozenset[str]:
    return referenced_attributes(expressions, published=True)


def _used(wanted: DeviceClaim, classes: Classes) -> Iterator[DeviceSelector]:
    """The selectors of a claim's requests and of their classes."""
    for request in wanted.requests:
        for choice in choices(request):
            yield from choice.selectors
            yield from _selectors(classes.get(choice.device_class_name))


def _selectors(device_class: DeviceClass | None) -> tuple[DeviceSelector, ...]:
    return device_class.spec.selectors if device_class is not None else ()
