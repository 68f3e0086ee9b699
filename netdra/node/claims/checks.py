"""The reasons to refuse a claim at Prepare that lie in the claim itself, its plans and its pods. Pure; docs/claims.md.

Called by `prepare`. The second pod of a shared claim brings no Prepare (decision D52): there `netdra.chain` finds that
a device is in a pod already. Reasons in the node are in `netdra.slices.exclusion`, reasons in the topology in `bind`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from netdra.model.claim import AllocationResult, DeviceRequestAllocationResult, ResourceClaim
from netdra.model.errors import InvalidInputError, PermanentError, TemporaryError
from netdra.model.findings import Finding, refuse
from netdra.model.plan import Binding, ClaimReference, Plan, PlannedDevice
from netdra.model.topology import MOVING_TYPES
from netdra.node.claims.store import PreparedClaim
from netdra.node.hardware import lasting
from netdra.node.view import NodeView
from netdra.rules import rdma, sysctls
from netdra.rules.claims import check_own_configuration
from netdra.slices.nodes import parse_selector


def named(claim: ResourceClaim | ClaimReference) -> str:
    """The claim as messages call it."""
    metadata = claim if isinstance(claim, ClaimReference) else claim.metadata
    return f'ResourceClaim "{metadata.namespace}/{metadata.name}"'


def check_claim(claim: ResourceClaim, wanted: ClaimReference, node: str) -> None:
    """The claim is the wanted one, is allocated for this node, and its author brings only values of parameters.

    Raises:
        NetdraError: as of `check_identity`, `allocation_of` and `check_config`.
    """
    check_identity(claim, wanted)
    allocation_of(claim, node)
    check_config(claim)


def check_identity(claim: ResourceClaim, wanted: ClaimReference) -> None:
    """The claim is the one that the kubelet means, and not another claim of that name.

    Raises:
        TemporaryError: it is another claim; the kubelet finds that out by itself.
    """
    if claim.metadata.uid != wanted.uid:
        raise TemporaryError(
            f"{named(wanted)}: the pod's claim has uid {wanted.uid}, the claim in the API server has uid "
            f"{claim.metadata.uid}: the claim was deleted and created again",
            hint="delete the pod; its controller creates another pod with the new claim",
            code="ND2153",
        )


def allocation_of(claim: ResourceClaim, node: str) -> AllocationResult:
    """The claim's allocation, which is for this node.

    Raises:
        TemporaryError: the claim is not allocated.
        PermanentError: the allocation is for another node.
    """
    allocation = claim.status.allocation
    if allocation is None:
        raise TemporaryError(f"{named(claim)} is not allocated", hint="wait until the pod is scheduled", code="ND2154")
    if allocation.node_selector is None:
        return allocation
    selector = parse_selector(allocation.node_selector, f"{named(claim)}, allocation")
    pinned = [
        {value for field in term.match_fields if field.key == "metadata.name" for value in field.values}
        for term in selector.node_selector_terms
    ]
    if pinned and all(nodes and node not in nodes for nodes in pinned):
        where = ", ".join(sorted(set().union(*pinned)))
        raise PermanentError(
            f'{named(claim)} is allocated for node {where}, and this is "{node}"',
            hint="a pod with it can only run there; delete the pod, so that it is scheduled again",
            code="ND2155",
        )
    return allocation


def ours(claim: ResourceClaim) -> tuple[DeviceRequestAllocationResult, ...]:
    """The claim's devices of this driver's nodes, in the order of its allocation."""
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return tuple(result for result in results if result.is_attachable)


def check_config(claim: ResourceClaim) -> None:
    """The claim's author brings values of parameters alone.

    Raises:
        InvalidInputError: the claim's author brings other configuration for this driver.
    """
    allocation = claim.status.allocation
    refuse(
        [
            finding
            for config in (allocation.devices.config if allocation is not None else ())
            if config.source == "FromClaim"
            for finding in check_own_configuration(named(claim), config.opaque, config.requests)
        ]
    )


def check_binding(claim: ResourceClaim, binding: Binding) -> None:
    """All that was allocated to the claim is of use to it.

    Raises:
        InvalidInputError: as of `check_steps` and `check_network_shares`, a step shares an RDMA device that the
            node's mode does not allow to be shared, or states a sysctl that no policy allows.
    """
    check_steps(binding)
    refuse(
        [
            Finding(f"{named(claim)}: {each.what}", each.hint, code=each.code)
            for each in (*rdma.check(binding.plans), *sysctls.forbidden(binding.plans))
        ]
    )
    check_network_shares(claim, binding.plans)


def check_steps(binding: Binding) -> None:
    """Every device that the claim owns has a step, so that no pod starts without the device.

    Raises:
        InvalidInputError: a device has no step: neither a topology nor its policy gives one.
    """
    for plain in binding.plain:
        if not plain.admin_access:
            listed = ", ".join(plain.device.supported_cnis)
            why = f"its policy lists {listed}, which need a configuration" if listed else "its policy lists no plugin"
            raise InvalidInputError(
                f'{named(plain.claim)}, request "{plain.device.request}": it is not defined how device '
                f'"{plain.device.device}" is attached: no NetworkTopology, no DeviceParameters, and {why}',
                hint="request a DeviceClass of a NetworkTopology, or one that carries DeviceParameters",
                code="ND2156",
            )


def check_network_shares(claim: ResourceClaim, plans: Sequence[Plan]) -> None:
    """Addresses of a PodNetwork are allocated only to a claim with steps on it (decision D71).

    The scheduler counts them; nothing is prepared for them, and the controller assigns the addresses of the steps.

    Raises:
        InvalidInputError: the claim has no step on a network of which it has a share.
    """
    allocation = claim.status.allocation
    networks = {step.pod_network for plan in plans for step in plan.steps if step.pod_network}
    for result in allocation.devices.results if allocation is not None else ():
        if result.pod_network and result.pod_network not in networks:
            raise InvalidInputError(
                f'{named(claim)}, request "{result.request}" was allocated addresses of PodNetwork '
                f'"{result.pod_network}", but no step of the claim is on that network',
                hint="remove the request, or request a NetworkTopology with a step on the network",
                code="ND2157",
            )


def check_shared(claim: ClaimReference, plans: Sequence[Plan], pods: Sequence[str], ending: Sequence[str] = ()) -> None:
    """A device that moves is in one pod only (decision D52), and so are addresses of a PodNetwork (D68).

    Args:
        claim: the claim.
        plans: its plans; plans of other claims are skipped.
        pods: the pods that have the claim now, as messages call them.
        ending: the pods that have it, too, and are about to end.

    Raises:
        InvalidInputError: several pods have a claim whose devices or addresses cannot be shared.
        TemporaryError: all pods but one are ending.
    """
    if len(pods) < 2 and not ending:
        return
    for plan in plans:
        for step in plan.steps if plan.claim.uid == claim.uid else ():
            if step.device is not None and step.type in MOVING_TYPES:
                what = f'step "{step.name}" ({step.type}) moves device "{step.device.device}" into one pod'
            elif step.pod_network:
                what = (
                    f'step "{step.name}" ({step.type}) has addresses of PodNetwork "{step.pod_network}", which only '
                    "one pod can have"
                )
            else:
                continue
            if len(pods) < 2:
                raise TemporaryError(
                    f"{named(claim)} is still used by pod {', '.join(ending)}, which is ending: {what}",
                    hint="the kubelet tries again; the pod starts when that pod has ended",
                    code="ND2158",
                )
            raise InvalidInputError(
                f"{named(claim)} is shared by pods {', '.join(pods)}, but {what}",
                hint="give each pod a claim of its own: a ResourceClaimTemplate",
                code="ND2159",
            )


def check_pod(claim: ClaimReference, plans: Sequence[Plan], pod: str) -> None:
    """The plans of a claim are for the pod whose name or ordinal is in their configs (decision D63).

    Args:
        claim: the claim.
        plans: its plans.
        pod: the name of the pod that begins.

    Raises:
        InvalidInputError: a plan is another pod's.
    """
    for plan in plans:
        if plan.pod and plan.pod != pod:
            raise InvalidInputError(
                f'{named(claim)} was prepared for pod "{plan.pod}", whose name is in the configuration of '
                f'NetworkTopology "{plan.topology}", and pod "{pod}" has it, too',
                hint="give each pod a claim of its own: a ResourceClaimTemplate",
                code="ND2160",
            )


HARDWARE_SECONDS = 60.0
"""How long after other hardware was published under a name an allocation may still be of the former one: the
scheduler may not have the new slice yet, and its clock may differ from the node's."""


def check_hardware(
    claim: ResourceClaim, devices: Iterable[PlannedDevice], former: PreparedClaim | None, view: NodeView
) -> None:
    """A claim gets the hardware that it was allocated, also after a boot with other kernel names (decision D60).

    Args:
        claim: the claim.
        devices: its devices as they are now.
        former: its record of an earlier boot, which has its hardware.
        view: the node.

    Raises:
        PermanentError: a device's name belongs to other hardware by now.
    """
    had = {(*device.key, device.told.share_id): device.facts for device in former.devices} if former is not None else {}
    for device in devices:
        if device.pooled or device.identity is None:
            continue
        known = had.get((device.pool, device.device, device.share_id))
        entry = view.hardware.of((device.pool, device.device))
        if known is not None:
            was = None if not known.key or lasting(known).is_same(lasting(device)) else lasting(known)
        elif entry is not None and entry.former is not None and _allocated(claim) <= entry.since + HARDWARE_SECONDS:
            was = entry.former
        else:
            was = None
        if was is not None:
            raise PermanentError(
                f'{named(claim)}: device "{device.device}" of pool "{device.pool}" is {device.identity} now; it was '
                f"{was} when the claim was allocated",
                hint="delete the pod, and the claim if it is not the pod's own: the scheduler then allocates a device "
                "as it is now; network interfaces keep their names over boots if udev names them",
                code="ND2161",
            )


def _allocated(claim: ResourceClaim) -> float:
    """When a claim was allocated, in seconds since the epoch: at the latest, as far as the API server has it.

    The scheduler writes the time only with the feature gate DRADeviceBindingConditions (KEP-5007). Without it, a claim
    counts as allocated when it was created.
    """
    allocation = claim.status.allocation
    text = (allocation.allocation_timestamp if allocation is not None else None) or claim.metadata.creation_timestamp
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def changed_topologies(records: Iterable[PreparedClaim], view: NodeView) -> tuple[str, ...]:
    """Topologies that are not what they were when claims were prepared, in words; none while they are not known.

    The prepared plan counts (decision D52): this is a report, and no reason to refuse a pod.
    """
    changes = []
    for record in records if view.ready else ():
        versions = record.plan.topologies if record.plan is not None else {}
        for name, version in versions.items():
            topology = view.topologies.get(name)
            if topology is None:
                what = "was deleted"
            elif not version.is_of(topology):
                what = f"is at generation {topology.metadata.generation}"
            else:
                continue
            changes.append(
                f'{named(record.claim)} was prepared with generation {version.generation} of NetworkTopology "{name}", '
                f"which {what} now"
            )
    return tuple(changes)


def on_host_network(claim: ResourceClaim, pod: str) -> InvalidInputError:
    """The refusal of a pod on the host's network, which has no namespace of its own that a device could go to."""
    return InvalidInputError(
        f'{named(claim)}: pod "{pod}" is on the host\'s network (hostNetwork: true), where no device can be attached',
        hint="remove hostNetwork from the pod, or the claim",
        code="ND2162",
    )
