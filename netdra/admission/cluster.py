"""The cluster that a verdict goes by: the other objects that matter for the object that is written.

Made by `netdra.admission.copy`, read by the reviews. A worker gets only the part that the review of the object needs
(`narrowed`): it decodes that part for each object, and a cluster may have a thousand topologies. The verdict is the
same as with the whole cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from netdra.admission.messages import AdmissionRequest
from netdra.admission.offers import Offers
from netdra.cel.vocabulary import Added
from netdra.exposure.foresight import InterfaceReports
from netdra.model.claim import DeviceClass, ResourceClaim, ResourceClaimTemplate
from netdra.model.custom_device import CustomDevice
from netdra.model.errors import UNREADABLE, InvalidInputError
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.rules.limits import is_claim_within
from netdra.rules.networks import ranges
from netdra.rules.schemas import plugins
from netdra.topology.classes import parameters
from netdra.topology.selectors import choices, device_claim

Topologies = Mapping[str, NetworkTopology]
_topology = msgspec.json.Decoder(NetworkTopology)
_schema = msgspec.json.Decoder(CNIPluginSchema)
_claim = msgspec.json.Decoder(ResourceClaim)
_template = msgspec.json.Decoder(ResourceClaimTemplate)


class Cluster(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cluster's objects by name, as they were just before the write.

    Attributes:
        classes: the DeviceClasses that are there, and those that the controller will make of the topologies.
        users: of the topology that is written: the claims that pods are attached with.
        waiting: how many other claims are allocated through its classes.
        reported: the nodes' reports, as far as the policy that is written or deleted asks for attributes.
        nowhere: why the CustomDevice that is written is applied on no node now; "" if it is, or that is unknown.
        added: the names that policies and CustomDevices add to devices, which selectors may use.
        offers: the devices that nodes report, by the attributes that the topology or claim that is written asks for.
    """

    topologies: Mapping[str, NetworkTopology] = {}
    schemas: Mapping[str, CNIPluginSchema] = {}
    policies: Mapping[str, DeviceExposurePolicy] = {}
    custom_devices: Mapping[str, CustomDevice] = {}
    classes: Mapping[str, DeviceClass] = {}
    users: tuple[str, ...] = ()
    waiting: int = 0
    nowhere: str = ""
    added: Added = Added()
    reported: InterfaceReports = InterfaceReports()
    offers: Offers = Offers()


NOTHING = Cluster()
"""A cluster without other objects."""


def topologies_of_class(device_class: DeviceClass) -> frozenset[str]:
    """The topologies of a class; none if the class is not ours."""
    named: set[str] = set()
    for config in device_class.spec.config:
        try:
            meant = parameters(config.opaque, "DeviceClass")
        except InvalidInputError:
            continue
        if meant is not None:
            named.add(meant.network_topology_ref.name)
    return frozenset(named)


def read_claim(request: AdmissionRequest) -> ResourceClaim | ResourceClaimTemplate:
    """The claim, or the template, that is written.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: it cannot be read, or is larger than the API server takes.
    """
    claim = (_template if request.kind.kind == ResourceClaimTemplate.__name__ else _claim).decode(request.object)
    if not is_claim_within(device_claim(claim)[0]):
        raise msgspec.ValidationError("more than the API server takes")
    return claim


def narrowed(request: AdmissionRequest, cluster: Cluster) -> Cluster:
    """The part of the cluster that the review of an object needs; none if the object cannot be read: it is refused."""
    narrow = _KINDS.get(request.kind.kind)
    try:
        return NOTHING if narrow is None or request.too_deep else narrow(request, cluster)
    except UNREADABLE:
        return NOTHING


def _of_topology(request: AdmissionRequest, cluster: Cluster) -> Cluster:
    new = _topology.decode(request.object)
    begin = f"{new.name}-"
    classes = {name: device_class for name, device_class in cluster.classes.items() if name.startswith(begin)}
    beside = _clashing(new, cluster.topologies)
    return Cluster(
        topologies=beside,
        schemas=cluster.schemas,
        policies=_offering(cluster),
        classes=classes,
        users=cluster.users,
        waiting=cluster.waiting,
        added=cluster.added,
        offers=cluster.offers,
    )


def _of_claim(request: AdmissionRequest, cluster: Cluster) -> Cluster:
    wanted, _ = device_claim(read_claim(request))
    named = {choice.device_class_name for asked in wanted.requests for choice in choices(asked)}
    classes = {name: cluster.classes[name] for name in named if name in cluster.classes}
    meant = {name for device_class in classes.values() for name in topologies_of_class(device_class)}
    topologies = {name: cluster.topologies[name] for name in meant if name in cluster.topologies}
    return Cluster(topologies=topologies, classes=classes, policies=_offering(cluster), offers=cluster.offers)


def _offering(cluster: Cluster) -> dict[str, DeviceExposurePolicy]:
    """The policies whose devices nodes report, and those that pool VFs."""
    named = {device.policy for offer in cluster.offers.nodes for device in offer.devices}
    return {
        name: policy
        for name, policy in cluster.policies.items()
        if name in named or (policy.spec.exposure is not None and policy.spec.exposure.pooled_vfs is not None)
    }


def _of_schema(request: AdmissionRequest, cluster: Cluster) -> Cluster:
    plugin = _schema.decode(request.object).spec.plugin
    using = {name: topology for name, topology in cluster.topologies.items() if plugin in plugins(topology.spec.steps)}
    schemas = {name: schema for name, schema in cluster.schemas.items() if schema.spec.plugin == plugin}
    return Cluster(topologies=using, schemas=schemas)


def _of_policy(_: AdmissionRequest, cluster: Cluster) -> Cluster:
    return Cluster(policies=cluster.policies, added=cluster.added, reported=cluster.reported)


def _of_custom_device(_: AdmissionRequest, cluster: Cluster) -> Cluster:
    return Cluster(custom_devices=cluster.custom_devices, nowhere=cluster.nowhere)


def _clashing(new: NetworkTopology, topologies: Topologies) -> dict[str, NetworkTopology]:
    """The topologies that may share a DeviceClass's or an extended resource's name, or addresses, with a new one.

    A class is named `<topology>-<step>`, so if two topologies share a class's name, one's name begins the other's.
    """
    begin, resources = f"{new.name}-", {step.extended_resource_name for step in new.spec.steps} - {""}
    handed = [*ranges(new)]
    return {
        name: topology
        for name, topology in topologies.items()
        if name.startswith(begin)
        or new.name.startswith(f"{name}-")
        or (resources and any(step.extended_resource_name in resources for step in topology.spec.steps))
        or (handed and any(own.clashes(other) for other in ranges(topology) for own in handed))
    }


_KINDS: Mapping[str, Callable[[AdmissionRequest, Cluster], Cluster]] = {
    "NetworkTopology": _of_topology,
    "CNIPluginSchema": _of_schema,
    "DeviceExposurePolicy": _of_policy,
    "CustomDevice": _of_custom_device,
    "ResourceClaim": _of_claim,
    "ResourceClaimTemplate": _of_claim,
}
