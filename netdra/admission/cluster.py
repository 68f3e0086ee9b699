"""What a verdict stands on: the object that is written, and the other objects of the cluster that bear on it.

Made by `netdra.admission.copy`, narrowed by `netdra.admission.narrow` before it goes to a worker, read by the reviews.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from netdra.cel.vocabulary import Added
from netdra.exposure.foresight import Reported
from netdra.model.claim import DeviceClass
from netdra.model.custom_device import CustomDevice
from netdra.model.errors import InvalidInputError
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.topology.classes import parameters


class Cluster(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cluster's objects by name, as they were just before the write.

    Attributes:
        classes: the DeviceClasses that are there, and those that the controller will make of the topologies.
        users: of the topology that is written: the claims that pods are attached with.
        waiting: how many others are allocated through its classes.
        reported: what nodes report, as far as the policy that is written or deleted asks for it.
        added: the names that policies and CustomDevices add to devices, for what selectors may ask for.
    """

    topologies: Mapping[str, NetworkTopology] = {}
    schemas: Mapping[str, CNIPluginSchema] = {}
    policies: Mapping[str, DeviceExposurePolicy] = {}
    custom_devices: Mapping[str, CustomDevice] = {}
    classes: Mapping[str, DeviceClass] = {}
    users: tuple[str, ...] = ()
    waiting: int = 0
    added: Added = Added()
    reported: Reported = Reported()


def topologies_of_class(found: DeviceClass) -> frozenset[str]:
    """The topologies that a class brings; none if it is not one of ours."""
    named: set[str] = set()
    for config in found.spec.config:
        try:
            meant = parameters(config.opaque, "DeviceClass")
        except InvalidInputError:
            continue
        if meant is not None:
            named.add(meant.network_topology_ref.name)
    return frozenset(named)
