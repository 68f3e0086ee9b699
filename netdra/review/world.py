"""The world that a review goes by: the other objects that matter for the object that is reviewed.

Made by the webhook of its copy of the cluster (`netdra.admission.copy`), and by the commands of objects that they read
once (`world_of`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from netdra.cel.vocabulary import Added
from netdra.exposure.foresight import InterfaceReports
from netdra.exposure.ranks import Rivals
from netdra.model.claim import DeviceClass
from netdra.model.custom_device import CustomDevice
from netdra.model.errors import InvalidInputError
from netdra.model.pod_network import PodNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.networks import shares
from netdra.review.offers import Offers
from netdra.rules import contract
from netdra.rules.classes import check_class
from netdra.rules.taken_ranges import TakenRange
from netdra.topology.classes import known_classes, parameters
from netdra.vocabulary import added


class World(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Objects by name: a cluster's, as they were just before a write, or those of files.

    Attributes:
        classes: the DeviceClasses that are there, and those that the controller will make of the topologies.
        users: of the topology that is written: the claims that pods are attached with.
        waiting: how many other claims are allocated through its classes.
        reported: the nodes' reports, as far as the policy that is written or deleted asks for attributes.
        nowhere: why the CustomDevice that is written is applied on no node now; "" if it is, or that is unknown.
        added: the names that policies and CustomDevices add to devices, which selectors may use.
        offers: the devices that nodes report, by the attributes that the topology or claim that is written asks for.
        rivals: of the policy that is written: the others of its rank; None if `policies` has all of them.
        pod_networks: the PodNetworks, of a topology or claim that is written those that it names.
        taken: of the PodNetwork that is written, the ranges that are used for something else.
        offline: whether the objects are on their way to an API server, all of them: its own rules are applied here, the
            expressions of claims and classes are compiled, and an error in another object is reported of that object.
            `schemas` are those without errors.
        is_stored: whether the objects are stored already, so that nodes use them as they are: the names that their
            selectors read are not judged, because others may add these names later (decision D23).
        where: the name of the objects in messages, e.g. "these files"; "" if they are all that the cluster has.
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
    rivals: Rivals | None = None
    pod_networks: Mapping[str, PodNetwork] = {}
    taken: tuple[TakenRange, ...] = ()
    offline: bool = False
    is_stored: bool = False
    where: str = ""


NOTHING = World()
"""A world without other objects."""


def world_of(values: Iterable[Any], **rest: Any) -> World:
    """The world of objects that were read. Schemas and classes with errors describe nothing.

    Args:
        values: objects of any kind.
        rest: further attributes.
    """
    by_kind: dict[type, dict[str, Any]] = {kind: {} for kind in _KINDS}
    for value in values:
        if type(value) in by_kind:
            by_kind[type(value)][value.metadata.name] = value
    topologies, policies, devices, networks, schemas, classes = by_kind.values()
    usable = [device_class for device_class in classes.values() if not check_class(device_class)]
    return World(
        topologies=topologies,
        policies=policies,
        custom_devices=devices,
        pod_networks=networks,
        schemas={name: schema for name, schema in schemas.items() if not contract.examine(schema)[1]},
        classes=known_classes(topologies.values(), [*shares.device_classes(networks.values()), *usable]),
        added=added(policies.values(), devices.values()),
        **rest,
    )


_KINDS = (NetworkTopology, DeviceExposurePolicy, CustomDevice, PodNetwork, CNIPluginSchema, DeviceClass)


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
