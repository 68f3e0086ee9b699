"""The NeutronPorts that a claim should have, and their statuses. Pure.

`netdra.controller.neutron.ports` compares them with the present objects, asks Neutron, and writes the differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from netdra.controller.status import Desired, conditions
from netdra.model import names
from netdra.model.claim import ClaimUse, ResourceClaim, selected_node
from netdra.model.errors import InvalidInputError
from netdra.model.meta import ObjectMeta, OwnerReference
from netdra.model.neutron_port import (
    BOUND,
    CURRENT,
    ENFORCED,
    FINALIZER,
    MAX_ADDRESSES,
    MAX_ROUTES,
    NeutronPort,
    NeutronPortSpec,
    NeutronPortStatus,
    PortOwner,
    PortRoute,
    PortSettings,
    name_of,
)
from netdra.model.plan import PlannedStep
from netdra.model.resource import API_VERSION, ResourceSlice
from netdra.model.topology import NetworkTopology
from netdra.neutron import marks
from netdra.neutron.answers import NeutronNetwork, Port, VfSettings
from netdra.neutron.errors import CloudsError, NeutronError, NeutronRefusedError
from netdra.neutron.marks import Label
from netdra.topology.bind import bind
from netdra.topology.devices import DeviceKey, from_slices, physnets
from netdra.topology.surroundings import ELSEWHERE
from netdra.topology.users import pod_owner


class AllocatedNode(msgspec.Struct, frozen=True):
    """The node that a claim was allocated on: its name, the host name of its NIC switch agent, and its slices."""

    name: str
    host: str
    slices: tuple[ResourceSlice, ...]


def node_of(claim: ResourceClaim) -> str:
    """The node that a claim was allocated on; "" if it is not allocated, or on no single node."""
    return selected_node(claim.status.allocation.node_selector) if claim.status.allocation is not None else ""


def wanted(
    claim: ResourceClaim, topologies: Mapping[str, NetworkTopology], node: AllocatedNode
) -> tuple[NeutronPort, ...]:
    """The ports of an allocated claim.

    Args:
        topologies: by name.
        node: the node of its devices.

    Raises:
        InvalidInputError: a device that is to have a port is of no physical network, or is not a VF.
        NetdraError: the claim does not fit its topology; its node reports that to the pod.
    """
    binding = bind([claim], topologies, from_slices(node.slices), place=ELSEWHERE)
    wired = physnets(node.slices)
    return tuple(
        _port(claim, plan.topology, step, wired, node)
        for plan in binding.plans
        for step in plan.steps
        if step.neutron is not None and step.device is not None
    )


def _port(
    claim: ResourceClaim, topology: str, step: PlannedStep, wired: Mapping[DeviceKey, Any], node: AllocatedNode
) -> NeutronPort:
    device, request = step.device, step.neutron
    assert device is not None
    assert request is not None
    physnet = wired.get((device.pool, device.device))
    if not isinstance(physnet, str) or not (device.pci_address or device.pooled):
        lacks = "pciAddress" if isinstance(physnet, str) else names.PHYSNET
        raise InvalidInputError(
            f'ResourceClaim "{claim.metadata.namespace}/{claim.metadata.name}": device '
            f'"{device.device}" of pool "{device.pool}" does not have {lacks}, which a Neutron port '
            "requires",
            hint=f'select devices that have it: "{names.PHYSNET}" in device.attributes["{names.DRIVER}"]',
            code="ND3031",
        )
    metadata = claim.metadata
    owner = OwnerReference(api_version=API_VERSION, kind="ResourceClaim", name=metadata.name, uid=metadata.uid)
    return NeutronPort(
        api_version="networking.dra.io/v1alpha1",
        kind="NeutronPort",
        metadata=ObjectMeta(
            name=name_of(metadata.uid, device.pool, device.device, device.share_id),
            namespace=metadata.namespace,
            finalizers=(FINALIZER,),
            owner_references=(owner,),
        ),
        spec=NeutronPortSpec(
            claim=PortOwner(name=metadata.name, uid=metadata.uid),
            request=device.request,
            pool=device.pool,
            device=device.device,
            share_id=device.share_id,
            node_name=node.name,
            topology=topology,
            step=step.name,
            physnet=physnet,
            pci_address=device.pci_address,
            host=node.host,
            network=request.network,
            subnet=request.subnet,
            security_groups=request.security_groups,
            qos_policy=request.qos_policy,
            fixed_ips=request.fixed_ips,
            port=request.port,
        ),
    )


def pod_of(claim: ClaimUse | None) -> OwnerReference | None:
    """The pod that a claim was made for, by a template or for an extended resource; None if pods share it."""
    return pod_owner(claim.metadata) if claim is not None else None


def label(port: NeutronPort, claim: ClaimUse | None, cluster: str) -> Label:
    """The labels of a port for operators of the cloud.

    A claim that a template or an extended resource made has one pod, which owns it. Pods that share a claim come and
    go, so none of them is named.

    Args:
        claim: the port's, as far as it is there.
        cluster: the cluster's name, or its uid.
    """
    spec, pod = port.spec, pod_of(claim)
    return marks.label(
        cluster=cluster,
        namespace=port.metadata.namespace,
        claim=spec.claim.name,
        pod=pod.name if pod is not None else "",
        step=spec.step,
        node=spec.node_name,
        topology=spec.topology,
        device=spec.device,
    )


def check_choice(port: NeutronPort, slices: Sequence[ResourceSlice]) -> None:
    """Reject a VF that cannot be one of a claim's allocated pooled VFs, as far as slices show.

    Only the driver of the port's node can have written it (own-neutron-ports.yaml of the chart), and the port is bound
    on that node's host only. Pooled VFs have no addresses in slices; all other functions of the node have.

    Args:
        slices: of the port's node.

    Raises:
        NeutronRefusedError: the device is not pooled any more, or the address is that of another device.
    """
    spec = port.spec
    devices = from_slices(slices)
    pooled = devices.get((spec.pool, spec.device))
    if pooled is None or not pooled.pooled:
        raise NeutronRefusedError(
            f'device "{spec.device}" of pool "{spec.pool}" is not a device of pooled VFs of node {spec.node_name}',
            hint="netdra retries; delete the pod and its claim if a policy no longer offers the device",
            code="ND3032",
        )
    for device in devices.values():
        if device.pci_address == port.pci_address and (device.type != "vf" or device.pool != spec.pool):
            raise NeutronRefusedError(
                f'{port.pci_address} is device "{device.device}" of pool "{device.pool}", not one of '
                f'the VFs of device "{spec.device}" of pool "{spec.pool}"',
                hint=f"see the log of netdra node on node {spec.node_name}",
                code="ND3033",
            )


def is_outdated(port: NeutronPort, wished: NeutronPort, claim: ResourceClaim) -> bool:
    """Whether a NeutronPort must be created again because the desired one has changed.

    The settings of a port that was bound may be in its node's record of the claim, which is never read again. So such a
    port stays as long as the claim is allocated the same device for the same step, even if the topology has changed.
    A node takes no port of another step, so one of an earlier allocation is nowhere. The VF that
    the node chooses among pooled VFs does not matter here: one port is bound to any of them.

    Args:
        wished: the one of the same name that the claim should have.
        claim: the claim, as it is now.
    """
    if port.spec == wished.spec:
        return False
    key = (names.DRIVER, port.spec.pool, port.spec.device, port.spec.share_id)
    if any((entry.driver, entry.pool, entry.device, entry.share_id or "") == key for entry in claim.status.devices):
        return False  # a pod has it
    was_bound = port.status is not None and port.status.settings is not None
    return not was_bound or _allotted(port.spec) != _allotted(wished.spec)


def _allotted(spec: NeutronPortSpec) -> tuple[str, ...]:
    """The fields of a port that a claim's allocation defines."""
    return spec.request, spec.topology, spec.step, spec.node_name, spec.pci_address


def bound(
    port: NeutronPort, answer: Port, network: NeutronNetwork, vf_settings: VfSettings, now: datetime
) -> NeutronPortStatus:
    """The status of a port that Neutron has bound.

    Args:
        now: the time, with its zone.
    """
    text = f"port {answer.id} is bound on host {answer.host}"
    if network.physnet is None:
        # Neutron itself binds ports of any physical network that the host's agent has.
        text += (
            f"; the user is not allowed to read whether network {network.name or network.id} belongs to "
            f"{port.spec.physnet}"
        )
    desired = [Desired(BOUND, holds=True, reason="Bound", message=text), *_unenforced(port, vf_settings)]
    return replace(
        _about(port),
        port_id=answer.id,
        network_id=network.id,
        network_name=network.name,
        settings=port_settings(vf_settings),
        conditions=conditions(desired, _conditions(port), port.metadata.generation, now),
        next_step="",
    )


def failed(port: NeutronPort, problem: NeutronError | CloudsError, now: datetime) -> NeutronPortStatus:
    """The status of a port that is not as it should be; its former facts stay."""
    desired = [Desired(BOUND, holds=False, reason=problem.reason, message=str(problem))]
    return replace(
        _about(port),
        conditions=conditions(desired, _conditions(port), port.metadata.generation, now),
        next_step=problem.hint,
    )


def changed(
    port: NeutronPort, what: str, now: datetime, elsewhere: str = "", vf_settings: VfSettings | None = None
) -> NeutronPortStatus:
    """The status of a bound port after Neutron was asked again: whether its VF still has the port's settings.

    A running pod's VF is left as it is: another MAC address or VLAN under it would be worse than the old one.

    Args:
        what: the differences; "" for none.
        now: the time, with its zone.
        elsewhere: why a new port would not be in this port's network; "" if it would.
        vf_settings: what a VF would get of the port now, if that could be read.
    """
    anew = {CURRENT} if vf_settings is None else {CURRENT, ENFORCED}
    others = (condition for condition in _conditions(port) if condition.type not in anew)
    text = f"{what}: the VF keeps its current settings; a pod with a new claim gets the new settings of the port"
    texts = [*([text] if what else []), *([elsewhere] if elsewhere else [])]
    desired = [Desired(CURRENT, holds=False, reason="ChangedInNeutron", message="\n".join(texts))] if texts else []
    desired += _unenforced(port, vf_settings) if vf_settings is not None else []
    return replace(
        _about(port), conditions=(*others, *conditions(desired, _conditions(port), port.metadata.generation, now))
    )


def _unenforced(port: NeutronPort, vf_settings: VfSettings) -> list[Desired]:
    """The condition of a port that has something which no VF can be set up for."""
    groups = ["security groups"] if port.spec.security_groups else []
    parts = [*groups, *vf_settings.unenforced]
    text = f"{'; '.join(parts)} are not enforced: a VF does not support them"
    return [Desired(ENFORCED, holds=False, reason="NotEnforced", message=text)] if parts else []


def reason_of(port: NeutronPort) -> str:
    """A port's state, as one word."""
    if port.metadata.deletion_timestamp:
        return "Deleting"
    if not port.pci_address:
        return "NoVF"
    condition = port.bound
    return "Pending" if condition is None else condition.reason


def is_bound(port: NeutronPort) -> bool:
    """Whether nothing is left to do for a port."""
    condition = port.bound
    return condition is not None and condition.status == "True"


def _about(port: NeutronPort) -> NeutronPortStatus:
    return port.status or NeutronPortStatus()


def _conditions(port: NeutronPort) -> tuple[Any, ...]:
    return port.status.conditions if port.status is not None else ()


def port_settings(vf_settings: VfSettings) -> PortSettings:
    """The settings of a VF from a port, in the form of the status."""
    return PortSettings(
        mac=vf_settings.mac,
        vlan=vf_settings.vlan,
        mtu=vf_settings.mtu,
        addresses=vf_settings.addresses[:MAX_ADDRESSES],
        gateways=vf_settings.gateways[:MAX_ADDRESSES],
        routes=tuple(PortRoute(destination=route.destination, gateway=route.nexthop) for route in vf_settings.routes)[
            :MAX_ROUTES
        ],
        dns=vf_settings.dns[:MAX_ADDRESSES],
        spoofchk=vf_settings.spoofchk,
        trust=vf_settings.trust,
        link_state="disable" if vf_settings.link_state == "disable" else "auto",
        min_tx_rate=vf_settings.min_tx_rate,
        max_tx_rate=vf_settings.max_tx_rate,
    )
