"""The addresses of PodNetworks that claims of this node have, and that no PodAddress records: after a restored backup.

Called for the node's report (`netdra.node.publishing`), by which the controller knows that a pod may have them. Also an
address of a pod that was deleted by force is one, until the kubelet has ended the pod. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from netdra.model.node_network import MAX_UNASSIGNED, UnassignedAddress
from netdra.model.pod_address import PodAddress, object_name
from netdra.node.claims.store import PreparedClaim


def unassigned(records: Iterable[PreparedClaim], present: Iterable[PodAddress]) -> tuple[UnassignedAddress, ...]:
    """The addresses of prepared claims without a PodAddress that is theirs, in order.

    Args:
        records: the prepared claims.
        present: the PodAddresses of the node.
    """
    assigned = {(entry.spec.claim.uid, entry.name) for entry in present if entry.spec.claim is not None}
    missing = (
        UnassignedAddress(network=network, address=address, claim=f"{record.claim.namespace}/{record.claim.name}")
        for record in records
        for network, address, name in addresses_of(record)
        if (record.claim.uid, name) not in assigned
    )
    return tuple(sorted(missing, key=lambda entry: (entry.network, entry.address)))[:MAX_UNASSIGNED]


def addresses_of(record: PreparedClaim) -> Iterator[tuple[str, str, str]]:
    """The network, the address and the PodAddress's name of each address that a claim was prepared with."""
    for step in (step for plan in (record.plan.plans if record.plan else ()) for step in plan.steps):
        for address in map(str, step.assigned):
            yield step.pod_network, address, object_name(step.pod_network, address)
