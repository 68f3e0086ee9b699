"""The errors in PodNetworks, and with the steps that use them. Pure.

Called by the webhook, by `netdra validate`, and by the controller, which assigns no address of a network that is wrong.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping

from netdra.model import ip, suggestions
from netdra.model.findings import Finding, Path, about
from netdra.model.ip import Network
from netdra.model.pod_address import family_of
from netdra.model.pod_network import AddressRange, PodNetwork
from netdra.model.topology import NetworkTopology
from netdra.networks.ranges import Span, address_of, bounds, exclusion, hosts, network_of, servers, shown, usable
from netdra.rules.networks import tags


def check(network: PodNetwork) -> tuple[Finding, ...]:
    """The errors in a PodNetwork by itself; no address of it is assigned."""
    findings = [
        Finding(
            f'PodNetwork "{network.name}": {finding.what}', finding.hint, ("spec", *finding.path), code=finding.code
        )
        for finding in _of_spec(network)
    ]
    return tuple(findings)


def overlaps(networks: Iterable[PodNetwork]) -> Iterator[tuple[str, Finding]]:
    """Ranges that two PodNetworks have, each later one once: on one wire, two pods would have one address.

    Yields:
        the name of the later network, and a warning for its author.
    """
    known: list[tuple[PodNetwork, int, Span]] = []
    for network in networks:
        if check(network):
            continue
        for at, entry in enumerate(network.spec.ranges):
            span, version = bounds(entry), network_of(entry.cidr).version
            other = next(
                (
                    owner
                    for owner, of, taken in known
                    if owner is not network and of == version and taken.first <= span.last and span.first <= taken.last
                    if _may_be_one_wire(owner, network)
                ),
                None,
            )
            if other is not None:
                what = f'PodNetwork "{network.name}": range {entry.cidr} overlaps with PodNetwork "{other.name}"'
                hint = (
                    "on one wire two pods will have one address; divide the range, or set the vlan or physnet of both"
                )
                yield network.name, Finding(what, hint, ("spec", "ranges", at), code="ND1120")
            known.append((network, version, span))


def check_steps(topology: NetworkTopology, networks: Mapping[str, PodNetwork]) -> Iterator[Finding]:
    """Steps that use a PodNetwork on another VLAN than its own."""
    steps = {step.name: step for step in topology.spec.steps}
    for at, step in enumerate(topology.spec.steps):
        network = networks.get(step.network)
        if network is None or network.spec.vlan is None:
            continue
        given = [*tags(step, steps, 0)]
        if given != [network.spec.vlan] and None not in given:
            several = f"{len(given)} VLAN tags ({', '.join(map(str, given))})"
            shown_tags = f"VLAN {given[0]}" if len(given) == 1 else several if given else "no VLAN"
            what = f'the step uses {shown_tags}, but PodNetwork "{network.name}" is VLAN {network.spec.vlan}'
            hint = "set this VLAN once, in the step or in one before it, or correct spec.vlan of the PodNetwork"
            yield about(topology.name, step.name, what, hint=hint, path=("spec", "steps", at, "network"), code="ND1121")


def missing(topology: NetworkTopology, networks: Collection[str], where: str = "") -> Iterator[Finding]:
    """Steps with addresses of a PodNetwork that does not exist; for warnings, for it may be created later.

    Args:
        topology: as administrators wrote it.
        networks: the names of the PodNetworks.
        where: the place of these networks, as messages name it; "" if they are all that the cluster has.
    """
    for at, step in enumerate(topology.spec.steps):
        if step.pod_network and step.pod_network not in networks:
            what, hint = absent(step.pod_network, networks, where)
            yield about(topology.name, step.name, what, hint=hint, path=("spec", "steps", at, "network"), code="ND1122")


def absent(network: str, networks: Collection[str], where: str) -> tuple[str, str]:
    """The statement that a PodNetwork does not exist, and the next step; arguments as of `missing`."""
    what = f'PodNetwork "{network}" is not{where}' if where else f'PodNetwork "{network}" does not exist'
    if near := suggestions.closest(network, networks):
        return what, f'did you mean "{near}"?'
    if where:
        return what, "add its file, unless it already exists in the cluster"
    return what, "create it: until then it assigns no addresses"


def _of_spec(network: PodNetwork) -> Iterator[Finding]:
    subnets: list[tuple[Network, Span]] = []
    for at, entry in enumerate(network.spec.ranges):
        path: Path = ("ranges", at)
        try:
            subnet = network_of(entry.cidr)
        except ValueError:
            yield Finding(f'"{entry.cidr}" is not a subnet', _subnet_hint(entry.cidr), (*path, "cidr"), code="ND1123")
            continue
        found = [*_of_special(subnet, path)] or [*_of_range(entry, subnet, path)]
        yield from found
        if not found:
            span = bounds(entry)
            yield from _twice(entry, subnet, span, subnets, path)
            subnets.append((subnet, span))
    yield from _of_routes(network)
    yield from (
        Finding(
            f'"{server}" is not an IP address',
            _address_hint(server),
            ("dns", at),
            code="ND1125",
        )
        for at, server in enumerate(network.spec.dns)
        if not ip.is_address(server)
    )
    if len(subnets) == len(network.spec.ranges):
        yield from _of_reservations(network, subnets)


SPECIAL: Mapping[str, str] = {
    "0.0.0.0/8": "addresses of this host (RFC 791)",
    "127.0.0.0/8": "loopback addresses",
    "169.254.0.0/16": "link-local addresses",
    "224.0.0.0/4": "multicast addresses",
    "255.255.255.255/32": "the broadcast address",
    "::/127": "the unspecified and the loopback address",
    "::ffff:0:0/96": "addresses of IPv4",
    "fe80::/10": "link-local addresses",
    "ff00::/8": "multicast addresses",
}
"""Addresses that no pod can have on a network (IANA's special-purpose address registries)."""
_SPECIAL = {ipaddress.ip_network(text): text for text in SPECIAL}


def _of_special(subnet: Network, path: Path) -> Iterator[Finding]:
    """A range that includes addresses which no pod can have."""
    for special, text in _SPECIAL.items():
        if subnet.version == special.version and subnet.overlaps(special):
            what = f"range {subnet} includes {SPECIAL[text]}: {text}"
            yield Finding(
                what, "choose a subnet of the network that the devices are on", (*path, "cidr"), code="ND1126"
            )
            return


def _of_range(entry: AddressRange, subnet: Network, path: Path) -> Iterator[Finding]:
    wrong = [
        Finding(what, hint, (*path, field), code="ND1127")
        for field, text in (("first", entry.first), ("last", entry.last), ("gateway", entry.gateway))
        for what, hint in _bound(field, text, subnet)
    ]
    yield from wrong
    for at, text in enumerate(entry.exclude):
        try:
            span = exclusion(text, subnet)
        except ValueError:
            hint = "write an address, a subnet, or the first and last address: 10.77.1.1-10.77.1.9"
            yield Finding(f'exclude "{text}" is not part of {entry.cidr}', hint, (*path, "exclude", at), code="ND1128")
            continue
        if span.last < int(subnet[0]) or span.first > int(subnet[-1]):
            yield Finding(
                f'exclude "{text}" is not part of {entry.cidr}', "remove it", (*path, "exclude", at), code="ND1129"
            )
    try:
        left = usable(entry)
    except ValueError:
        return  # reported above
    if wrong:
        return
    if entry.first and entry.last and bounds(entry).size <= 0:
        what = f"first {entry.first} is behind last {entry.last}"
        yield Finding(what, "exchange them", (*path, "first"), code="ND1130")
    elif not left:
        what = f"range {entry.cidr} has no address that can be assigned"
        yield Finding(what, "choose a larger subnet, or exclude less", path, code="ND1131")


def _bound(field: str, text: str, subnet: Network) -> Iterator[tuple[str, str]]:
    """The errors in one address of a range, with the next step."""
    if not text:
        return
    inside = hosts(subnet)
    hint = f"write an address from {shown(inside.first, subnet.version)} to {shown(inside.last, subnet.version)}"
    try:
        address = address_of(text, subnet)
    except ValueError:
        yield f'{field} "{text}" is not an address of {subnet}', hint
        return
    if field == "gateway" and address.is_link_local:
        return  # routers of IPv6 are link-local, as a rule
    if address not in subnet:
        yield f"{field} {text} is outside {subnet}", hint
    elif not inside.first <= int(address) <= inside.last:
        kind = "network" if int(address) == int(subnet.network_address) else "broadcast"
        yield f"{field} {text} is the {kind} address of {subnet}", hint


def _twice(
    entry: AddressRange, subnet: Network, span: Span, known: Iterable[tuple[Network, Span]], path: Path
) -> Iterator[Finding]:
    """A range that overlaps with an earlier one of the network."""
    for other, taken in known:
        if other.version == subnet.version and taken.first <= span.last and span.first <= taken.last:
            low, high = (
                shown(number, subnet.version) for number in (max(taken.first, span.first), min(taken.last, span.last))
            )
            what = f"range {entry.cidr} has {low} to {high} in common with range {other}"
            yield Finding(what, "divide the range by first and last", path, code="ND1132")
            return


def _of_routes(network: PodNetwork) -> Iterator[Finding]:
    versions = {family_of(entry.cidr) for entry in network.spec.ranges}
    routers = {family_of(entry.gateway) for entry in network.spec.ranges if entry.gateway}
    for at, route in enumerate(network.spec.routes):
        path: Path = ("routes", at)
        try:
            destination = network_of(route.destination)
        except ValueError:
            hint = _subnet_hint(route.destination)
            yield Finding(
                f'destination "{route.destination}" is not a subnet', hint, (*path, "destination"), code="ND1133"
            )
            continue
        family = family_of(route.destination)
        if route.gateway and (not ip.is_address(route.gateway) or family_of(route.gateway) != family):
            hint = f"write an address of {family}"
            yield Finding(
                f'gateway "{route.gateway}" is not an address of {family}', hint, (*path, "gateway"), code="ND1134"
            )
        elif route.gateway and not _reaches(network, route.gateway):
            hint = "write the address of a router in one of the ranges' subnets"
            yield Finding(f"gateway {route.gateway} is outside all ranges", hint, (*path, "gateway"), code="ND1135")
        elif family not in versions:
            yield Finding(
                f"route to {destination} is of {family}, and no range is",
                f"add a range of {family}",
                path,
                code="ND1136",
            )
        elif not route.gateway and family not in routers:
            what = f"route to {destination} has no gateway, and no range has one"
            yield Finding(what, "set the route's gateway, or that of the range", path, code="ND1137")


def _reaches(network: PodNetwork, gateway: str) -> bool:
    """Whether a router is on one of the subnets, as far as these can be read."""
    router = ip.address(gateway)
    for entry in network.spec.ranges:
        try:
            if router in network_of(entry.cidr):
                return True
        except ValueError:
            return True  # reported already
    return router.is_link_local


def _of_reservations(network: PodNetwork, subnets: Iterable[tuple[Network, Span]]) -> Iterator[Finding]:
    spans = {
        (network_of(entry.cidr).version, span.first): span for entry in network.spec.ranges for span in usable(entry)
    }
    others = {ip.address(text): text for text in servers(network) if ip.is_address(text)}
    for at, reservation in enumerate(network.spec.reservations):
        path: Path = ("reservations", at, "address")
        if not ip.is_address(reservation.address):
            what = f'reservation "{reservation.address}" is not an IP address'
            yield Finding(what, _address_hint(reservation.address), path, code="ND1138")
            continue
        address = ip.address(reservation.address)
        if not any(
            version == address.version and span.first <= int(address) <= span.last
            for (version, _), span in spans.items()
        ):
            listed = ", ".join(str(subnet) for subnet, _ in subnets)
            what = f"reservation {reservation.address} is not an address that a range assigns"
            yield Finding(what, f"choose one of {listed} that is not excluded", path, code="ND1139")
        elif address in others:
            what = f"reservation {reservation.address} is the address of a router or a name server of the network"
            yield Finding(what, "choose another address", path, code="ND1140")


def unusable(network: PodNetwork) -> Iterator[Finding]:
    """Reservations for pods and claims that may not use the network; for warnings."""
    for at, reservation in enumerate(network.spec.reservations):
        if not network.spec.allows(reservation.namespace):
            what = (
                f'PodNetwork "{network.name}": reservation {reservation.address} is for namespace '
                f'"{reservation.namespace}", which is not in namespaces'
            )
            yield Finding(
                what, "add it to namespaces, or change the reservation", ("spec", "reservations", at), code="ND1141"
            )


def _subnet_hint(text: str) -> str:
    hint = "write a subnet, e.g. 10.77.0.0/16"
    try:
        network = ipaddress.ip_network(text, strict=False)
        hint = (
            f"write the subnet {network}"
            if "/" in text
            else f"write {text}/{24 if network.version == 4 else 64}, with its prefix length"
        )
    except ValueError:
        pass
    return hint


def _address_hint(text: str) -> str:
    address = text.partition("/")[0]
    hint = "write an address, e.g. 10.77.1.5"
    if ip.is_address(address):
        hint = f"write {address}, without a prefix length"
    return hint


def _may_be_one_wire(one: PodNetwork, other: PodNetwork) -> bool:
    """Whether nothing reports that two networks are on different wires."""
    pairs = ((one.spec.vlan, other.spec.vlan), (one.spec.physnet, other.spec.physnet))
    return all(not first or not second or first == second for first, second in pairs)
