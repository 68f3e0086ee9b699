"""Claims that are not allocated because a PodNetwork has no address for them. Pure.

Called by `placement` where the allocator finds no device. The free addresses of a network are the capacity of a device
that netdra's controller publishes (decision D71).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netdra.cluster.objects import ClusterState
from netdra.model import names
from netdra.model.claim import ResourceClaim
from netdra.networks import shares
from netdra.story.statement import Statement, wrong
from netdra.topology.selectors import choices

_NEXT = "delete claims that have addresses (kubectl get podaddresses), or add a range to the PodNetwork"


def shortages(cluster: ClusterState, about: str, claims: Sequence[ResourceClaim]) -> Iterator[Statement]:
    """The PodNetworks that have too few addresses for requests of the claims.

    Args:
        about: the object that waits.
        claims: those of it.
    """
    for claim in claims:
        for request in claim.spec.devices.requests if claim.status.allocation is None else ():
            for choice in choices(request):
                network = names.network_of_class(choice.device_class_name)
                amounts = choice.capacity.requests if choice.capacity is not None else {}
                wanted = max(shares.steps_of(amounts), 1) * max(choice.count, 1)
                left = _left(cluster, network) if network else wanted
                if left < wanted:
                    has = "no free address" if not left else f"free addresses for {left} steps of {wanted}"
                    text = f'PodNetwork "{network}" has {has} for request "{request.name}" of ResourceClaim '
                    text += f'"{claim.metadata.name}"'
                    yield wrong(about, text, _NEXT, reason="NoFreeAddress", code="ND5001")


def _left(cluster: ClusterState, network: str) -> int:
    """For how many steps a network has free addresses, in the group of nodes that has most."""
    consumed: dict[str, int] = {}
    for claim in cluster.claims:
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            if result.pod_network == network:
                consumed[result.pool] = consumed.get(result.pool, 0) + shares.steps_of(result.consumed_capacity)
    capacities = {
        one.spec.pool.name: shares.steps_of({name: amount.value for name, amount in device.capacity.items()})
        for one in cluster.slices
        if one.spec.driver == names.DRIVER and names.network_of(one.spec.pool.name) == network
        for device in one.spec.devices
    }
    return max((amount - consumed.get(pool, 0) for pool, amount in capacities.items()), default=0)
