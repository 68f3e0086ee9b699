"""The addresses that claims of this node have and no PodAddress assigns to them, and the released ones that have left.

Called for the node's report (`netdra.node.publishing`). By it the controller knows that a pod may have an address:
after a restored backup, or when a pod was deleted by force and the kubelet has not ended it. A released address goes to
another pod only after this report: its PodAddress has no claim then, but names this node. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from netdra.model.meta import order
from netdra.model.node_network import MAX_UNASSIGNED, AddressReport, UnassignedAddress
from netdra.model.pod_address import PodAddress, object_name
from netdra.node.claims.store import PreparedClaim


def report(records: Iterable[PreparedClaim], present: Collection[PodAddress]) -> AddressReport:
    """The addresses of prepared claims without a PodAddress that is theirs, and the released ones that it considers.

    Args:
        records: the prepared claims, read after `present`.
        present: the PodAddresses of the node.
    """
    assigned = {(entry.spec.claim.uid, entry.name) for entry in present if entry.spec.claim is not None}
    missing = sorted(
        (
            UnassignedAddress(network=network, address=address, claim=f"{record.claim.namespace}/{record.claim.name}")
            for record in records
            for network, address, name in addresses_of(record)
            if (record.claim.uid, name) not in assigned
        ),
        key=lambda entry: (entry.network, entry.address),
    )
    released = (order(entry.metadata.resource_version) for entry in present if entry.spec.claim is None)
    # For addresses beyond the limit, no reader could know that they are still in pods.
    version = max(released, default=0) if len(missing) <= MAX_UNASSIGNED else 0
    return AddressReport(tuple(missing[:MAX_UNASSIGNED]), version)


def addresses_of(record: PreparedClaim) -> Iterator[tuple[str, str, str]]:
    """The network, the address and the PodAddress's name of each address that a claim was prepared with."""
    for step in (step for plan in (record.plan.plans if record.plan else ()) for step in plan.steps):
        for address in map(str, step.assigned):
            yield step.pod_network, address, object_name(step.pod_network, address)
