"""The users of a topology: the claims that were allocated through its DeviceClasses.

A claim keeps the configuration of its classes from the moment of its allocation, so it names its topology even if
the classes change later. Asked at admission, before a topology is changed, and by the controller for its
status.
"""

from __future__ import annotations

from collections.abc import Mapping

from netdra.model import names
from netdra.model.claim import ClaimState, ClaimUse
from netdra.model.errors import InvalidInputError
from netdra.model.meta import ObjectMeta, OwnerReference
from netdra.topology.classes import parameters


def topologies_of(claim: ClaimUse) -> frozenset[str]:
    """The topologies that a claim has devices of; none as long as it is not allocated."""
    allocation = claim.status.allocation
    topologies: set[str] = set()
    for config in allocation.devices.config if allocation is not None else ():
        if config.source != "FromClass":
            continue
        try:
            meant = parameters(config.opaque, "claim")
        except InvalidInputError:
            continue  # no generated class has such parameters, and Prepare refuses them
        if meant is not None:
            topologies.add(meant.network_topology_ref.name)
    return frozenset(topologies)


def pod_owner(metadata: ObjectMeta) -> OwnerReference | None:
    """The pod that a claim was made for, by a template or for an extended resource; None if pods share it."""
    owners = metadata.owner_references
    return next((owner for owner in owners if (owner.api_version, owner.kind) == ("v1", "Pod")), None)


def is_attached(claim: ClaimState) -> bool:
    """Whether a pod has a claim's network, by the status that its node's driver wrote.

    Where some of the pods that share a claim failed, the status is not ready, but has the interface of the others.
    """
    return any(
        device.network_data is not None
        or any(
            isinstance(condition, Mapping) and (condition.get("type"), condition.get("status")) == ("Ready", "True")
            for condition in device.conditions or ()
        )
        for device in claim.status.devices
        if device.driver == names.DRIVER
    )
