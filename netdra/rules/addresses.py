"""Addresses and routes of a topology's steps that do not work as written. Pure.

IPAM plugins accept many of these mistakes and configure a network that reaches no host, or fail when the first pod
starts. References to parameters and steps are skipped. Called by admission and `netdra validate`. Values that are not
addresses are found by the plugins' schemas (`netdra.rules.config`), and ranges that overlap by `netdra.rules.networks`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from netdra.model import suggestions
from netdra.model.findings import Finding, Path, about
from netdra.model.kept import KEEPING_TYPES
from netdra.model.topology import BUILTIN_TYPES, NetworkTopology
from netdra.rules.networks import host_local
from netdra.rules.routing import entries

IPAM_PLUGINS = ("dhcp", "host-local", "network", "slaac", "static", "whereabouts")
"""Those that are known; a type that is almost one of them is a mistake."""
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_POINT_TO_POINT = 2
"""Addresses of a network in which none is the network's own, or everybody's (RFC 3021)."""


class _Remark(NamedTuple):
    what: str
    hint: str
    path: Path
    decided_by_values: bool = True
    """Whether other addresses would do; else the author of the topology must change it."""


class _Placed(NamedTuple):
    """A range of addresses as numbers and as a text, and where it is written."""

    version: int
    first: int
    last: int
    shown: str
    path: Path


def unwise(topology: NetworkTopology, *, of_values: bool = False) -> Iterator[Finding]:
    """The addresses and routes of a topology's steps that are unlikely to work as meant.

    Args:
        topology: the topology, as it is written or with the values of a claim.
        of_values: only those with which other values would work.
    """
    for at, step in enumerate(topology.spec.steps):
        for path in () if step.default_route else _first_defaults(step.config):
            what = "the default route comes before that of eth0: the pod reaches the cluster's services through it"
            hint = "set a metric, so that eth0 stays the first choice, or set defaultRoute: true"
            yield _finding(topology, at, _Remark(what, hint, path))
        ipam = step.config.get("ipam")
        if not isinstance(ipam, Mapping) or not isinstance(kind := ipam.get("type"), str):
            continue
        meant = "" if kind in IPAM_PLUGINS else suggestions.closest(kind, IPAM_PLUGINS)
        remarks = [*_OF_TYPE.get(kind, _nothing)(ipam), *_dns(ipam)]
        if meant:
            remarks.append(_Remark(f'IPAM plugin "{kind}" is unknown', f'did you mean "{meant}"?', ("type",)))
        for remark in remarks:
            if remark.decided_by_values or not of_values:
                yield _finding(topology, at, remark._replace(path=("ipam", *remark.path)))


def _finding(topology: NetworkTopology, at: int, remark: _Remark) -> Finding:
    """A remark on the config of a step."""
    path = ("spec", "steps", at, "config", *remark.path)
    return about(topology.name, topology.spec.steps[at].name, remark.what, hint=remark.hint, path=path, code="ND1001")


def unreached(topology: NetworkTopology, *, may_keep: bool) -> Iterator[Finding]:
    """Routes of `tuning` whose gateway is in no network of the pod, where the topology shows all of its addresses.

    Args:
        may_keep: whether a policy may let devices keep the addresses that they have on the node.
    """
    reached = None if may_keep and _can_keep(topology) else _reached(topology)
    for at, step in enumerate(topology.spec.steps if reached else ()):
        for place, route in entries(step.config, "routes") if step.type == "tuning" else ():
            key = "gateway" if "gateway" in route else "gw"
            gateway = _address(route.get(key))
            if gateway is None or gateway.is_link_local or route.get("onlink"):
                continue
            same = [network for network in reached or () if network.version == gateway.version]
            if same and not any(gateway in network for network in same):
                yield _finding(topology, at, _outside("gateway", gateway, same, ("routes", place, key)))


def _can_keep(topology: NetworkTopology) -> bool:
    """Whether a policy's `keep` applies to a step: not to one with `keep` or `ipam`, nor to a member of a bond."""
    steps = topology.spec.steps
    members = {name for step in steps if step.type == "bond" for name in step.depend_on}
    roots = (step for step in steps if step.is_root and step.name not in members)
    return any(step.type in KEEPING_TYPES and step.keep is None and "ipam" not in step.config for step in roots)


def _reached(topology: NetworkTopology) -> list[_Network] | None:
    """The networks that the steps put the pod into; None if other programs or values decide that."""
    networks: list[_Network] = []
    for step in topology.spec.steps:
        ipam = step.config.get("ipam", {"type": "static"})
        is_static = isinstance(ipam, Mapping) and ipam.get("type") == "static"
        if step.plugin not in BUILTIN_TYPES or not is_static or step.neutron is not None or step.keep:
            return None
        given = step.config.get("addresses") if step.type == "tuning" else None
        texts = [
            *(given if isinstance(given, list | tuple) else ()),
            *(entry.get("address") for _, entry in entries(ipam, "addresses")),
        ]
        texts += [
            route.get("destination", route.get("dst"))
            for _, route in entries(step.config, "routes")
            if not (route.get("gateway") or route.get("gw") or route.get("nexthops"))
        ]
        for text in texts:
            network, _ = _network(text)
            if network is None and text != "default":
                return None
            networks += [network] if network is not None else []
    return networks


def default_routes(topology: NetworkTopology) -> Iterator[Finding]:
    """Default routes that IPAM or a plugin would bring before that of `eth0`, and that the author did not request.

    A route with a metric of its own, or in another table, is a request, as `defaultRoute: true` is, and as one among
    the step's own `routes` is (`unwise` warns of that).
    """
    for at, step in enumerate(topology.spec.steps):
        ipam = step.config.get("ipam")
        places = [("ipam", *path) for path in _first_defaults(ipam)] if isinstance(ipam, Mapping) else []
        if step.config.get("isDefaultGateway") is True:
            places.append(("isDefaultGateway",))
        for path in () if step.default_route else places:
            what = "a second default route replaces that of eth0, so the pod cannot reach the cluster's services"
            hint = "list the networks behind this interface, or set a metric, or set defaultRoute: true"
            yield _finding(topology, at, _Remark(what, hint, path))


def _first_defaults(config: Mapping[str, Any]) -> Iterator[Path]:
    """Where the routes of a config are default routes that come before that of `eth0`."""
    for at, entry in entries(config, "routes"):
        if _is_first_default(entry):
            yield ("routes", at, "destination" if "destination" in entry else "dst")


def _is_first_default(route: Mapping[str, Any]) -> bool:
    destination = route.get("destination", route.get("dst"))
    network, _ = _network(destination)
    is_default = destination == "default" or (network is not None and not network.prefixlen)
    return is_default and not any(route.get(key) for key in ("metric", "priority", "table"))


def _nothing(_: Mapping[str, Any]) -> Iterator[_Remark]:
    return iter(())


def _static(ipam: Mapping[str, Any]) -> Iterator[_Remark]:
    listed = ipam.get("addresses")
    if not listed:
        yield _Remark("ipam static does not contain an address", "add one to addresses", ("addresses",))
        return
    networks: list[_Network] = []
    is_whole = isinstance(listed, Sequence) and not isinstance(listed, str)
    for at, entry in enumerate(listed if is_whole else ()):
        place = ("addresses", at)
        interface = _interface(entry.get("address")) if isinstance(entry, Mapping) else None
        if interface is None:
            is_whole = False  # a parameter, or reported by the schema
            continue
        networks.append(interface.network)
        yield from _of_nobody(interface, (*place, "address"))
        gateway = _address(entry.get("gateway"))
        if gateway is None:
            continue
        if gateway == interface.ip:
            yield _Remark(f"gateway {gateway} is the address itself", "use the router's address", (*place, "gateway"))
        elif gateway not in interface.network:
            yield _outside("gateway", gateway, [interface.network], (*place, "gateway"))
        elif not ipam.get("routes"):
            what = f"gateway {gateway} has no effect without routes"
            hint = "add routes: the networks behind it, as [{dst: 10.0.0.0/8}]"
            yield _Remark(what, hint, (*place, "gateway"), decided_by_values=False)
    yield from _routes(ipam, networks if is_whole else [])


def _host_local(ipam: Mapping[str, Any]) -> Iterator[_Remark]:
    if not ipam.get("subnet") and not ipam.get("ranges"):
        yield _Remark("ipam host-local does not have a range", "set subnet, or ranges", ())
        return
    networks: list[_Network] = []
    ranges: list[_Placed] = []
    is_whole = True
    for path, entry in host_local(ipam):
        place = path if path[0] == "ranges" else ()
        network, host = _network(entry.get("subnet"))
        if not entry.get("subnet"):
            start = str(entry.get("rangeStart"))
            subnet, _ = _network(f"{start}/{64 if ':' in start else 24}")
            yield _Remark("the range does not have a subnet", f"set subnet, e.g. {subnet or '10.0.0.0/24'}", place)
        if network is None:
            is_whole = False
            continue
        networks.append(network)
        first, last = _address(entry.get("rangeStart")) or network[0], _address(entry.get("rangeEnd")) or network[-1]
        if first.version == last.version:
            ranges.append(_Placed(first.version, int(first), int(last), f"{first} to {last}", (*place, "subnet")))
        if host:
            what = f"subnet {entry['subnet']} is a host address instead of a network, and host-local rejects it"
            yield _Remark(what, f"use the network {network}", (*place, "subnet"))
        gateway = _address(entry.get("gateway"))
        if gateway is not None and gateway not in network:
            yield _outside("gateway", gateway, [network], (*place, "gateway"))
    yield from _overlapping(ranges)
    yield from _routes(ipam, networks if is_whole else [])


def _overlapping(ranges: Sequence[_Placed]) -> Iterator[_Remark]:
    """The ranges of a step that have an address of one before them, in the order of their addresses."""
    last: _Placed | None = None
    for entry in sorted(ranges):
        if last is not None and entry.version == last.version and entry.first <= last.last:
            what = f"range {entry.shown} overlaps with {last.shown}, and host-local rejects both"
            yield _Remark(what, "list each address in only one range", entry.path)
        if last is None or (entry.version, entry.last) > (last.version, last.last):
            last = entry


def _no_network(text: str) -> _Remark:
    hint = "write a network, e.g. 10.0.0.0/24"
    if _address(text.rpartition("-")[2]) is not None:
        hint = f"write {text}/24, with the prefix length of the network"
    return _Remark(f'range "{text}" is not a network', hint, ("range",))


def _whereabouts(ipam: Mapping[str, Any]) -> Iterator[_Remark]:
    if not ipam.get("range") and not ipam.get("ipRanges"):
        yield _Remark("ipam whereabouts does not have a range", "set range, e.g. 10.0.0.0/24", ())
        return
    text = ipam.get("range")
    if not isinstance(text, str) or "{{" in text:
        return
    # `first-last/prefix` is a range of it as well.
    network, _ = _network(text.rpartition("-")[2])
    if network is None:
        yield _no_network(text)
        return
    for key in ("range_start", "range_end", "gateway"):
        address = _address(ipam.get(key))
        if address is not None and address not in network:
            yield _outside(key, address, [network], (key,))
    excluded = ipam.get("exclude")
    for at, entry in enumerate(excluded if isinstance(excluded, list | tuple) else ()):
        left_out, _ = _network(entry)
        if left_out is None or left_out.version != network.version:
            continue
        if not left_out.overlaps(network):
            what = f"exclude {left_out} is not part of range {network}"
            yield _Remark(what, "remove it, or correct one of them", ("exclude", at))
        elif network.subnet_of(left_out):  # type: ignore[arg-type]
            what = f"exclude {left_out} does not leave any address of range {network}"
            yield _Remark(what, "exclude a smaller part of it", ("exclude", at))
    yield from _routes(ipam, [network])


_OF_TYPE = {"static": _static, "host-local": _host_local, "whereabouts": _whereabouts}


def _of_nobody(interface: ipaddress.IPv4Interface | ipaddress.IPv6Interface, path: Path) -> Iterator[_Remark]:
    """An address that is a network's, a broadcast address, or never leaves a host."""
    network = interface.network
    if interface.ip.is_loopback:
        yield _Remark(
            f"address {interface} cannot be reached from outside the pod",
            "use an address of the connected network",
            path,
        )
    elif interface.version == 4 and network.num_addresses > _POINT_TO_POINT:
        names = {network.network_address: "network", network.broadcast_address: "broadcast"}
        if name := names.get(interface.ip):
            yield _Remark(
                f"address {interface} is the {name} address of {network}", "use an address between them", path
            )


def _routes(ipam: Mapping[str, Any], networks: Sequence[_Network]) -> Iterator[_Remark]:
    """Routes that the kernel refuses.

    Args:
        networks: those that the pod has an address in; none if they are not all known.
    """
    for at, entry in entries(ipam, "routes"):
        network, host = _network(entry.get("dst"))
        gateway = _address(entry.get("gw"))
        if network is not None and host:
            what = f"route {entry['dst']} is a host address instead of a network"
            yield _Remark(what, f"use the network {network}", ("routes", at, "dst"))
        if gateway is not None and networks and not any(gateway in each for each in networks):
            yield _outside("gw", gateway, networks, ("routes", at, "gw"))


def _outside(name: str, address: _Address, networks: Sequence[_Network], path: Path) -> _Remark:
    listed = suggestions.listed(map(str, networks))
    reached = ", so it cannot be reached" if name in {"gateway", "gw"} else ""
    return _Remark(f"{name} {address} is not in {listed}{reached}", "use an address of it", path)


def _dns(ipam: Mapping[str, Any]) -> Iterator[_Remark]:
    dns = ipam.get("dns")
    servers = dns.get("nameservers") if isinstance(dns, Mapping) else None
    for at, text in enumerate(servers if isinstance(servers, list | tuple) else ()):
        if isinstance(text, str) and "{{" not in text and _address(text) is None:
            path = ("dns", "nameservers", at)
            yield _Remark(f'nameserver "{text}" is not an address', "use an address, e.g. 10.0.0.53", path)


def _interface(text: object) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface | None:
    try:
        return ipaddress.ip_interface(text) if isinstance(text, str) and "/" in text else None
    except ValueError:
        return None


def _address(text: object) -> _Address | None:
    try:
        return ipaddress.ip_address(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _network(text: object) -> tuple[_Network | None, bool]:
    """A network, and whether it is written with bits of a host; None if it is not valid."""
    try:
        network = ipaddress.ip_network(text, strict=False) if isinstance(text, str) and "/" in text else None
    except ValueError:
        return None, False
    written = _address(text.partition("/")[0]) if isinstance(text, str) else None
    return network, network is not None and written != network.network_address
