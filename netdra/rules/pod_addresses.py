"""The addresses that an allocated claim should have, and why an interface gets none of a PodNetwork. Pure.

Called by the controller, which assigns addresses by these rules, and by `netdra.story.networks`, which names the cause
where a claim has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from netdra.model import names
from netdra.model.claim import ResourceClaim
from netdra.model.findings import Finding
from netdra.model.pod_address import AddressOwner, PodAddress
from netdra.model.pod_network import REQUIRED, PodNetwork
from netdra.model.topology import NetworkTopology
from netdra.model.watched_claim import WatchedClaim
from netdra.networks import shares
from netdra.networks.errors import AddressHeldError, NoPodNetworkError, NotAllowedError, RequestMissingError
from netdra.topology import address_request
from netdra.topology.bind import addressed_steps
from netdra.topology.users import pod_owner

_EXTENDED = "extended-resources"
"""The name in its pod of a claim that the scheduler made for extended resources: there is one."""


class WantedAddresses(NamedTuple):
    """A step that is to have addresses: whose it is, of which PodNetwork, and the addresses that the claim requests.

    Attributes:
        group: the group of nodes of whose ranges the claim has a share; None without a share.
    """

    owner: AddressOwner
    network: str
    requested: tuple[str, ...]
    group: str | None = None


def wanted(claim: ResourceClaim, topologies: Mapping[str, NetworkTopology]) -> tuple[WantedAddresses, ...]:
    """The addresses that an allocated claim should have.

    Raises:
        NetdraError: the claim does not fit its topology; its node reports that to the pod.
    """
    metadata, pod = claim.metadata, pod_owner(claim.metadata)
    name = metadata.annotations.get(names.POD_CLAIM_NAME, _EXTENDED) if pod is not None else metadata.name
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    groups = {result.pod_network: names.group_of(result.pool) for result in results if result.pod_network}
    return tuple(
        WantedAddresses(
            AddressOwner(
                namespace=metadata.namespace,
                pod=pod.name if pod is not None else "",
                claim=name,
                topology=topology,
                step=step.name,
                index=index,
            ),
            step.pod_network,
            address_request.requested(step),
            groups.get(step.pod_network),
        )
        for topology, step, index in addressed_steps(claim, topologies)
    )


def check_usable(name: str, network: PodNetwork | None, findings: Sequence[Finding]) -> None:
    """Check that a network exists and that its spec can be used.

    Args:
        findings: the errors in its spec.

    Raises:
        NoPodNetworkError: it does not exist, or its spec cannot be used.
    """
    if network is None:
        raise NoPodNetworkError(f'PodNetwork "{name}" does not exist', hint="create it", code="ND1114")
    if findings:
        called = f'PodNetwork "{name}"'
        text = "; ".join(finding.text.removeprefix(f"{called}: ") for finding in findings)
        raise NoPodNetworkError(f"{called} cannot be used: {text}", hint="correct its spec", code="ND1115")


def check_allowed(network: PodNetwork, namespace: str) -> None:
    """Check that a network is for the claims of a namespace.

    Raises:
        NotAllowedError: it is not.
    """
    if not network.spec.allows(namespace):
        raise NotAllowedError(
            f'PodNetwork "{network.name}" is not for namespace "{namespace}"',
            hint=f'an administrator can add "{namespace}" to its spec.namespaces: {", ".join(network.spec.namespaces)}',
            code="ND1116",
        )


def requested(claim: ResourceClaim | WatchedClaim) -> Counter[str]:
    """For how many steps a claim has shares of the addresses of each PodNetwork."""
    steps = Counter[str]()
    for result in claim.status.allocation.devices.results if claim.status.allocation is not None else ():
        if result.pod_network:
            steps[result.pod_network] += shares.steps_of(result.consumed_capacity)
    return steps


def check_new(network: PodNetwork, claim: ResourceClaim | WatchedClaim, steps: int) -> None:
    """Check that a claim may get addresses of a network that it does not have yet.

    Args:
        steps: how many steps the claim has on the network.

    Raises:
        NoPodNetworkError: the network is being deleted.
        RequestMissingError: it requires that the claim requests its addresses.
    """
    if network.metadata.deletion_timestamp:
        raise deleting(network.name)
    shared = requested(claim)[network.name]
    if network.spec.requests == REQUIRED and shared < steps:
        raise RequestMissingError(
            f'PodNetwork "{network.name}" requires that a claim requests its addresses: this one requests those of '
            f"{shared} of {steps} steps",
            hint=f"create the claim again with a request of DeviceClass {names.network_class(network.name)}: "
            "netdra render --template prints it",
            code="ND1117",
        )


def deleting(name: str) -> NoPodNetworkError:
    """The reason why no address of a network is assigned that is being deleted."""
    return NoPodNetworkError(
        f'PodNetwork "{name}" is being deleted',
        hint="use another PodNetwork, or create it again after its deletion",
        code="ND1118",
    )


def held(address: PodAddress, *, is_over: bool) -> AddressHeldError:
    """The reason why an owner's address is not assigned to its claim: a former pod may have it.

    Args:
        is_over: whether no claim has a right to it any more.
    """
    spec = address.spec
    if is_over or spec.claim is None:
        reason = f'Node "{spec.node_name}" has not reported yet that the former pod no longer has it'
        hint = "it is assigned once the node has reported; if its machine is off for good, delete the Node"
    else:
        reason = f'ResourceClaim "{spec.owner.namespace}/{spec.claim.name}" still exists'
        hint = "it is assigned after this claim is deleted"
    return AddressHeldError(f'PodAddress "{address.name}" cannot be assigned: {reason}', hint=hint, code="ND1119")
