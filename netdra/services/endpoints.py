"""The endpoints of a Service: the addresses of its pods on a PodNetwork, their readiness and ports.

Follows Kubernetes' EndpointSlice controller (k8s.io/endpointslice, 1.37): which pods count, when they are ready, whose
hostname is published, and how ports are found. Only the addresses are others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from netdra.model.errors import sentence
from netdra.model.pod_address import Family, PodAddress
from netdra.model.service import (
    ZONE,
    Endpoint,
    EndpointConditions,
    EndpointPort,
    PodContainer,
    ServedPod,
    Service,
    ServicePort,
    TargetReference,
)

FAMILIES: tuple[Family, ...] = ("IPv4", "IPv6")


_LINK_LOCAL = re.compile(r"169\.254\.|fe[89ab][0-9a-f]:", re.IGNORECASE)


def is_link_local(address: str) -> bool:
    """Whether the API server rejects an EndpointSlice because of this address or subnet.

    It rejects unspecified, loopback and multicast addresses, too (k8s.io/kubernetes/pkg/apis/discovery/validation),
    but no PodNetwork has these.
    """
    return _LINK_LOCAL.match(address) is not None


class EndpointGroup(NamedTuple):
    """The common properties of all endpoints of a slice."""

    family: Family
    ports: tuple[EndpointPort, ...]


class AddressedPod(NamedTuple):
    """A pod with its addresses on the Service's PodNetwork."""

    pod: ServedPod
    addresses: tuple[PodAddress, ...]


def endpoints(service: Service, pods: Iterable[AddressedPod]) -> Mapping[EndpointGroup, list[Endpoint]]:
    """The endpoints of a Service by address family and ports, without link-local addresses.

    A family without endpoints has an empty group, so that a slice shows that the Service is known.
    """
    families = service.spec.ip_families or FAMILIES
    groups: dict[EndpointGroup, list[Endpoint]] = {}
    for pod, addresses in pods:
        if not pod.has_network:
            continue
        ports = tuple(_ports(service, pod))
        for address in addresses if len(addresses) == 1 else sorted(addresses, key=_order):
            if address.family in families and not is_link_local(address.spec.address):
                group = EndpointGroup(address.family, ports)
                groups.setdefault(group, []).append(_endpoint(service, pod, address))
    for family in families:
        if not any(group.family == family for group in groups):
            groups[EndpointGroup(family, ())] = []
    return groups


def unpublishable(service: Service, pods: Iterable[AddressedPod]) -> str:
    """The reason for which addresses of a Service are not published, "" if all can be."""
    addresses = (address.spec.address.partition("/")[0] for _, found in pods for address in found)
    first = next(filter(is_link_local, addresses), "")
    if not first:
        return ""
    what, hint = of_link_local(f"address {first}")
    return sentence(f'Service "{service.metadata.name}": {what}', hint)


def of_link_local(called: str) -> tuple[str, str]:
    """The statement that a link-local address or range cannot be published, and the next step."""
    what = f"{called} is link-local, and Kubernetes rejects link-local addresses in EndpointSlices"
    return what, "use a PodNetwork with another range, e.g. of unique local addresses (fd00::/8)"


def _order(address: PodAddress) -> tuple[object, ...]:
    return address.spec.owner, address.number


def _endpoint(service: Service, pod: ServedPod, address: PodAddress) -> Endpoint:
    is_terminating = pod.metadata.deletion_timestamp is not None
    is_ready = service.spec.publish_not_ready_addresses or (pod.is_ready and not is_terminating)
    has_name = pod.spec.subdomain == service.metadata.name
    return Endpoint(
        addresses=(address.spec.address.partition("/")[0],),
        conditions=EndpointConditions(ready=is_ready, serving=pod.is_ready, terminating=is_terminating),
        hostname=pod.spec.hostname if has_name else "",
        node_name=pod.spec.node_name,
        zone=pod.metadata.labels.get(ZONE, ""),
        target_ref=TargetReference(
            kind="Pod", namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid
        ),
    )


def _ports(service: Service, pod: ServedPod) -> Iterator[EndpointPort]:
    """The ports of the Service that the pod has: a name that none of its containers uses is left out."""
    for port in service.spec.ports:
        number = _number(port, pod)
        if number is not None:
            yield EndpointPort(name=port.name, protocol=port.protocol, port=number, app_protocol=port.app_protocol)


def _number(port: ServicePort, pod: ServedPod) -> int | None:
    if isinstance(port.target_port, int):
        return port.target_port or port.port
    for container in _lasting(pod):
        for own in container.ports:
            if (own.name, own.protocol) == (port.target_port, port.protocol):
                return own.container_port
    return None


def _lasting(pod: ServedPod) -> Iterator[PodContainer]:
    """The containers that run as long as the pod."""
    yield from pod.spec.containers
    yield from (container for container in pod.spec.init_containers if container.restart_policy == "Always")
