"""A range of a PodNetwork as spans of numbers: the addresses that can be assigned, and the errors in the range.

Nothing is enumerated: a /64 takes as long as a /24. Called by `free` and by `netdra.rules.pod_networks`.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from netdra.model import ip
from netdra.model.ip import Address, Network
from netdra.model.pod_network import AddressRange, PodNetwork

_POINT_TO_POINT = 2
"""Addresses of a subnet in which every address can be a host's (RFC 3021, RFC 6164)."""


_DIGEST = 8
"""Characters by which groups of nodes are told apart."""


class Span(NamedTuple):
    """The addresses from the first to the last, both included, as numbers."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """How many there are."""
        return self.last - self.first + 1


def network_of(text: str) -> Network:
    """A subnet.

    Raises:
        ValueError: the text is not a subnet, has no prefix length, or is an address within a subnet.
    """
    return ip.subnet(text)


def address_of(text: str, network: Network) -> Address:
    """An address of a subnet's family.

    Raises:
        ValueError: the text is not an address, or of the other family.
    """
    address = ip.address(text)
    if address.version != network.version:
        raise ValueError(text)
    return address


def exclusion(text: str, network: Network) -> Span:
    """An address, a subnet, or two addresses with a dash between, of a subnet's family.

    Raises:
        ValueError: the text is in another form, or the first address is behind the last.
    """
    if "/" in text:
        excluded = network_of(text)
        if excluded.version != network.version:
            raise ValueError(text)
        return Span(int(excluded[0]), int(excluded[-1]))
    first, dash, last = text.partition("-")
    low = int(address_of(first.strip(), network))
    high = int(address_of(last.strip(), network)) if dash else low
    if low > high:
        raise ValueError(text)
    return Span(low, high)


def hosts(network: Network) -> Span:
    """The addresses of a subnet that a host can have: no network, broadcast or subnet-router anycast address."""
    first, last = int(network.network_address), int(network.broadcast_address)
    if network.num_addresses <= _POINT_TO_POINT:
        return Span(first, last)
    return Span(first + 1, last - (network.version == 4))


def addresses_of(network: Network) -> range:
    """All addresses of a subnet as numbers."""
    return range(int(network.network_address), int(network.broadcast_address) + 1)


def bounds(entry: AddressRange) -> Span:
    """The addresses from the first to the last of a range, exclusions included; empty if none exist.

    Raises:
        ValueError: the subnet or a bound is not an address.
    """
    network = network_of(entry.cidr)
    inside = hosts(network)
    first = int(address_of(entry.first, network)) if entry.first else inside.first
    last = int(address_of(entry.last, network)) if entry.last else inside.last
    return Span(max(first, inside.first), min(last, inside.last))


def usable(entry: AddressRange, network: PodNetwork | None = None) -> tuple[Span, ...]:
    """The addresses of a range that can be assigned, in order.

    Args:
        entry: the range.
        network: its PodNetwork, whose routers and name servers are not assigned either.

    Raises:
        ValueError: a text is not an address.
    """
    subnet = network_of(entry.cidr)
    excluded = [exclusion(text, subnet) for text in entry.exclude]
    others = servers(network) if network is not None else ()
    for text in filter(None, (entry.gateway, *others)):
        address = ip.address(text)
        if address.version == subnet.version:
            excluded.append(Span(int(address), int(address)))
    return tuple(without(bounds(entry), excluded))


def servers(network: PodNetwork) -> Iterator[str]:
    """The addresses of a network's routers and name servers, which pods cannot have."""
    spec = network.spec
    yield from (entry.gateway for entry in spec.ranges if entry.gateway)
    yield from (route.gateway for route in spec.routes if route.gateway)
    yield from spec.dns


def without(whole: Span, excluded: Iterable[Span]) -> Iterator[Span]:
    """The remaining parts of a span, in order."""
    first = whole.first
    for low, high in sorted(excluded):
        if low > first and first <= whole.last:
            yield Span(first, min(low - 1, whole.last))
        first = max(first, high + 1)
    if first <= whole.last:
        yield Span(first, whole.last)


def shown(number: int, version: int) -> str:
    """A number as an address."""
    return str(ipaddress.IPv4Address(number) if version == 4 else ipaddress.IPv6Address(number))


def group_of(entry: AddressRange) -> str:
    """The group of nodes that a range is for, as a short word; "" for all nodes."""
    selector = entry.node_selector
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return ""
    return hashlib.sha256(msgspec.json.encode(selector, order="sorted")).hexdigest()[:_DIGEST]
