"""What is kept of a claim while a pod of this node names it: enough to prepare and bind it. Pure.

Used by `netdra.node.pods.tracker`, which may keep hundreds of claims, of other drivers too.
"""

from __future__ import annotations

import msgspec

from netdra.model import names
from netdra.model.claim import AllocationResult, DeviceAllocationResult, ResourceClaim, ResourceClaimSpec
from netdra.model.meta import ObjectMeta
from netdra.node.claims.prepared import POD_CLAIM_NAME
from netdra.topology.bind import EXTENDED_RESOURCE_CLAIM

_ANNOTATIONS = (EXTENDED_RESOURCE_CLAIM, POD_CLAIM_NAME)


def needed(claim: ResourceClaim) -> ResourceClaim:
    """A claim without what preparing and binding it do not need: its wishes, and all that is other drivers'."""
    metadata = claim.metadata
    marked = {name: value for name, value in metadata.annotations.items() if name in _ANNOTATIONS}
    allocation = claim.status.allocation
    devices = DeviceAllocationResult() if allocation is None else allocation.devices
    results = tuple(each for each in devices.results if each.driver == names.DRIVER)
    config = tuple(each for each in devices.config if each.opaque and each.opaque.driver == names.DRIVER)
    ours = DeviceAllocationResult(results=results, config=config if results else ())
    selector = allocation.node_selector if allocation is not None and results else None
    return ResourceClaim(
        metadata=ObjectMeta(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            annotations=marked,
            owner_references=metadata.owner_references if EXTENDED_RESOURCE_CLAIM in marked else (),
        ),
        spec=ResourceClaimSpec(),
        status=msgspec.structs.replace(
            claim.status,
            allocation=None if allocation is None else AllocationResult(devices=ours, node_selector=selector),
            devices=(),
        ),
    )


def is_ours(claim: ResourceClaim) -> bool:
    """Whether a claim that was kept has devices of ours."""
    return claim.status.allocation is not None and bool(claim.status.allocation.devices.results)


def is_for(claim: ResourceClaim, uid: str) -> bool:
    """Whether a claim is reserved for a pod."""
    return any(each.uid == uid for each in claim.status.reserved_for)
