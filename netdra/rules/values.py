"""Values that a step would reject although its plugin's schema accepts them: values that do not go together.

Called by `pod` with the plans of a pod. It asks the same rules as the steps themselves (`netdra.model.texts`), so
that a step which begins has a config that can be carried out. A value with a reference passes, unless the step would
reject it with any value of the reference.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from netdra.model import texts
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding, Path, dotted, quoted
from netdra.model.inventory import DEVICE_FILE
from netdra.model.plan import MAX_RATE_KEYS, MIN_RATE_KEYS, PlannedStep
from netdra.rules import routing
from netdra.rules.networks import host_local

_BOND_NUMBERS = (
    "miimon", "updelay", "downdelay", "peerNotifDelay", "arpInterval", "minLinks", "numPeerNotif", "resendIgmp",
    "packetsPerSlave", "lpInterval",
)  # fmt: skip
_SCOPES = {"global": 0, "link": 253, "host": 254}
_MAIN_TABLE = 254
_MOST = 2**32 - 1
_MOST_SCOPE = 255
_ANY_NUMBERS = frozenset({"sysctl", "ipam", "args", "runtimeConfig", "dns", "capabilities"})
_MOVERS: Mapping[str, tuple[str, ...]] = {
    "host-device": ("device", "pciBusID", "deviceID", "hwaddr", "kernelpath"),
    "sriov": ("pciBusID", "deviceID"),
    "vfio-pci": ("pciBusID", "deviceID"),
}


def check_values(step: PlannedStep, name_of: Callable[[str], str]) -> Iterator[Finding]:
    """The errors in a step's values by themselves.

    Args:
        name_of: gives an interface's name if it is known before anything runs, else "".
    """
    yield from _chosen(step)
    yield from _file(step)
    yield from _runtime(step)
    yield from _addresses(step)
    yield from _ranges(step)
    yield from _bandwidth(step)
    if step.execution == "Builtin":
        yield from _numbers(step.config)
    if step.type == "tuning":
        yield from _sysctls(step)
        yield from _routes(step)
        yield from routing.check(step)
        yield from _ethtool(step)
    elif step.type == "sriov":
        yield from _sriov(step)
    elif step.execution != "Builtin":
        return
    elif step.type == "bond":
        yield from _bond(step, name_of)
    elif step.type == "vrf":
        yield from routing.check_vrf(step, name_of)
    keys = _MOVERS.get(step.type, ())
    stands = step.device is not None or any(step.config.get(key) for key in keys)
    if step.depend_on and keys and step.execution == "Builtin" and not stands:
        what = f"a {step.type} step with dependOn does not get an allocated device, and none is configured"
        hint = "remove dependOn, and add a selector"
        if "pciBusID" in keys and step.type != "host-device":
            hint += ", or set one: pciBusID: '{{ step.pciAddress }}'"
        yield Finding(what, hint, ("config",), code="ND1180")


def _chosen(step: PlannedStep) -> Iterator[Finding]:
    """A step takes one VF, and a pooled device stands for several."""
    if step.device is not None and step.device.is_unchosen:
        what = f'device "{step.device.device}" represents several VFs, and none of them is selected'
        hint = "a node selects one when it prepares the claim; in a hand-written plan, set pciAddress and ifName"
        yield Finding(f"{what} for the step", hint, ("device",), code="ND1181")


def _file(step: PlannedStep) -> Iterator[Finding]:
    """A device file is given by its own step, which gives nothing else and comes after no other."""
    device = step.device
    is_its = step.type == DEVICE_FILE and step.execution == "Builtin"
    if device is not None and device.device_file and not is_its:
        what = (
            f'device "{device.device}" is the file {device.device_file}, which a step of type '
            f"{step.type} does not support"
        )
        yield Finding(
            what, f"use type {DEVICE_FILE} for the step, or request another type of device", ("type",), code="ND1182"
        )
    if not is_its:
        return
    if device is not None and not device.device_file:
        what = f'device "{device.device}" is not a device file'
        yield Finding(what, f'add type == "{DEVICE_FILE}" to the selector', ("selector",), code="ND1183")
    if step.depend_on:
        what = f"a {DEVICE_FILE} step with dependOn does not get an allocated device"
        yield Finding(what, "remove dependOn, and add a selector", ("dependOn",), code="ND1184")
    if step.config.get("ipam"):
        yield Finding("a device file does not have addresses", "remove ipam", ("config", "ipam"), code="ND1185")


def _bandwidth(step: PlannedStep) -> Iterator[Finding]:
    """A VF gets no more of its PF's link than its claim was allocated, nor is it without a limit then."""
    bandwidth = step.device.bandwidth if step.device is not None else 0
    if not bandwidth or step.type != "sriov":
        return
    hint = f"remove it: the VF gets {bandwidth} Mbit/s; or request more bandwidth in the claim"
    for key in (*MIN_RATE_KEYS, *MAX_RATE_KEYS):
        rate = step.config.get(key)
        if not isinstance(rate, int):
            continue
        if rate > bandwidth:
            what = f"{key} {rate} exceeds the {bandwidth} Mbit/s of bandwidth that the claim was allocated"
            yield Finding(what, hint, ("config", key), code="ND1186")
        elif rate == 0 and key in MAX_RATE_KEYS:
            what = f"{key} 0 means unlimited, but the claim was allocated {bandwidth} Mbit/s of bandwidth"
            yield Finding(what, hint, ("config", key), code="ND1187")


class Addresses:
    """The addresses that the steps of a pod put on its interfaces."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[str, str]] = {}

    def check(self, step: PlannedStep) -> Iterator[Finding]:
        """The addresses of a step that are on an interface of the pod already.

        Link-local addresses may be on any number of interfaces, and a later step may name one again.
        """
        linked: set[str] = set()
        for path, text in written_addresses(step):
            try:
                address = ipaddress.ip_interface(text)
            except ValueError:
                continue
            if address.ip.is_link_local:
                # Of IPv6 an interface has each address once, of IPv4 once with each prefix length.
                key = str(address.ip) if address.version == 6 else str(address)
                if key in linked:
                    where = f'"{step.if_name}" by the same step'
                    yield Finding(
                        f"address {address.ip} is already assigned to {where}",
                        "remove one of them",
                        path,
                        code="ND1188",
                    )
                linked.add(key)
                continue
            interface, other = self._owners.setdefault(str(address.ip), (step.if_name, ""))
            if other:
                where = f'"{interface}" by step "{other}"' if other != step.name else f'"{interface}" by the same step'
                hint = (
                    "assign a different address to each interface"
                    if interface != step.if_name
                    else "remove one of them"
                )
                yield Finding(f"address {address.ip} is already assigned to {where}", hint, path, code="ND1189")
            else:
                self._owners[str(address.ip)] = (step.if_name, step.name)


def written_addresses(step: PlannedStep) -> Iterator[tuple[Path, str]]:
    """The addresses that a config has in plain words."""
    given = step.config.get("addresses") if step.type == "tuning" else None
    for at, text in enumerate(given if isinstance(given, list | tuple) else ()):
        if isinstance(text, str):
            yield ("config", "addresses", at), text
    ipam = step.config.get("ipam")
    listed = ipam.get("addresses") if isinstance(ipam, Mapping) and ipam.get("type") == "static" else None
    for at, entry in enumerate(listed if isinstance(listed, list | tuple) else ()):
        if isinstance(entry, Mapping) and isinstance(entry.get("address"), str):
            yield ("config", "ipam", "addresses", at, "address"), entry["address"]


def _addresses(step: PlannedStep) -> Iterator[Finding]:
    """Addresses that no interface can have as its own, and IPv6 addresses with an MTU that takes IPv6 away."""
    mtu = _asked_mtu(step)
    too_small = 0 < mtu < texts.LEAST_MTU_6 and step.if_name != "lo"
    for path, text in written_addresses(step):
        if not texts.fits(text, "cidr"):
            continue  # the schema's check reports it
        if kind := texts.of_no_interface(text, step.if_name):
            what = f"address {quoted(text)} is {kind} and cannot be assigned to an interface"
            yield Finding(what, texts.OWN_ADDRESS, path, code="ND1190")
        elif too_small and ":" in text:
            what = (
                f"address {quoted(text)} cannot be combined with mtu {mtu}: the kernel removes IPv6 "
                f"from an interface whose MTU is below {texts.LEAST_MTU_6}"
            )
            yield Finding(what, f"raise mtu to {texts.LEAST_MTU_6}, or remove IPv6 addresses", path, code="ND1191")


def _ranges(step: PlannedStep) -> Iterator[Finding]:
    """Ranges of host-local that its program refuses (containernetworking/plugins, allocator/range.go)."""
    ipam = step.config.get("ipam")
    own: Mapping[str, Any] = ipam if isinstance(ipam, Mapping) and ipam.get("type") == "host-local" else {}
    for place, written in host_local(own):
        path = ("config", "ipam", *(place if place[0] == "ranges" else ()))
        subnet, bounds = written.get("subnet"), {key: written.get(key) for key in ("rangeStart", "rangeEnd")}
        if not isinstance(subnet, str) or not texts.fits(subnet, "cidr"):
            continue  # the schema's check reports it
        network = ipaddress.ip_network(subnet, strict=False)
        known = {
            key: ipaddress.ip_address(text)
            for key, text in bounds.items()
            if isinstance(text, str) and texts.fits(text, "ip")
        }
        outside = [key for key, address in known.items() if address not in network]
        for key in outside:
            yield Finding(
                f"{key} {known[key]} is not in subnet {network}",
                "use an address of the subnet",
                (*path, key),
                code="ND1192",
            )
        if len(known) > 1 and not outside and int(known["rangeStart"]) > int(known["rangeEnd"]):
            what = f"rangeStart {known['rangeStart']} is greater than rangeEnd {known['rangeEnd']}"
            yield Finding(what, "swap them", (*path, "rangeStart"), code="ND1193")


def _asked_mtu(step: PlannedStep) -> int:
    """The MTU that a built-in step gives its interface, 0 for none; that of a runtime's arguments goes first."""
    given: Any = step.config.get("args")
    given = given.get("cni") if isinstance(given, Mapping) else None
    mtu = given.get("mtu") if step.type == "tuning" and isinstance(given, Mapping) else None
    mtu = step.config.get("mtu") if mtu is None else mtu
    return mtu if isinstance(mtu, int) and step.execution == "Builtin" else 0


def _runtime(step: PlannedStep) -> Iterator[Finding]:
    """The MAC address that runtimes give beside the config."""
    given = step.config.get("runtimeConfig")
    mac = given.get("mac") if isinstance(given, Mapping) else None
    if mac is not None and "{{" not in str(mac) and not (isinstance(mac, str) and texts.fits(mac, "mac")):
        shown = quoted(mac) if isinstance(mac, str) else str(mac)
        what = f"config.runtimeConfig.mac {shown} is not {texts.EXPECTED['mac']}"
        yield Finding(what, "use this format, or remove it", ("config", "runtimeConfig", "mac"), code="ND1194")


def _sysctls(step: PlannedStep) -> Iterator[Finding]:
    given = step.config.get("sysctl")
    for key, value in given.items() if isinstance(given, Mapping) else ():
        try:
            texts.sysctl_path(key, step.if_name)
        except InvalidInputError as problem:
            yield Finding(problem.what, problem.hint, ("config", "sysctl", key), code=problem.code)
        if isinstance(value, str) and not value.strip():
            what = f"sysctl {quoted(key)} has an empty value, which the kernel rejects"
            yield Finding(
                what, 'set its value as text, e.g. "1", or remove it', ("config", "sysctl", key), code="ND1195"
            )


def _routes(step: PlannedStep) -> Iterator[Finding]:
    given = step.config.get("routes")
    places: dict[str, int] = {}
    for at, entry in enumerate(given if isinstance(given, list | tuple) else ()):
        path: Path = ("config", "routes", at)
        if not isinstance(entry, Mapping):
            continue
        one, other = texts.said_twice(entry)
        if one:
            yield Finding(
                f"{one} and {other} are two names of the same field",
                "remove one of them",
                (*path, other),
                code="ND1196",
            )
        else:
            yield from _route(path, entry, places)


def _route(path: Path, entry: Mapping[str, Any], places: dict[str, int]) -> Iterator[Finding]:
    """The errors in one route.

    Args:
        path: its place.
        entry: the route.
        places: where each route before it stands in the list; it is added.
    """
    yield from _scope(path, entry.get("scope"))
    destination = entry.get("destination") or entry.get("dst") or ""
    gateway = entry.get("gateway") or entry.get("gw") or ""
    hops = [hop for _, hop in routing.entries(entry, "nexthops")]
    values = (
        destination,
        gateway,
        entry.get("source") or entry.get("src") or "",
        *(hop.get("gateway") or "" for hop in hops),
    )
    if not all(isinstance(value, str) for value in values) or any("{{" in value for value in values):
        return
    if gateway and hops:
        what = "a route has a gateway or nexthops, not both"
        yield Finding(what, "move the gateway into nexthops", (*path, "nexthops"), code="ND1197")
    elif not destination:
        yield Finding(
            "the route does not have a destination",
            'set destination, e.g. 10.0.0.0/8 or "default"',
            path,
            code="ND1198",
        )
    else:
        yield from _way(path, entry, values, hops, places)


def _scope(path: Path, scope: object) -> Iterator[Finding]:
    is_word = isinstance(scope, str) and scope not in _SCOPES and "{{" not in scope
    if is_word or (isinstance(scope, int) and not 0 <= scope <= _MOST_SCOPE):
        hint = f"use one of {', '.join(_SCOPES)}, or a number from 0 to {_MOST_SCOPE}"
        yield Finding(f"{scope!r:.40} is not a route scope", hint, (*path, "scope"), code="ND1199")


def _way(
    path: Path,
    entry: Mapping[str, Any],
    values: Sequence[str],
    hops: Sequence[Mapping[str, Any]],
    places: dict[str, int],
) -> Iterator[Finding]:
    """The errors in the addresses of a route: its destination, its gateway, its source and its routers."""
    destination, gateway, source, *routers = values
    try:
        network = texts.network(destination, gateway or next(filter(None, routers), ""), source, *routers)
    except ValueError:
        if not all(value == "" or texts.fits(value, "ip") for value in values[1:]):
            return  # the schema's check reports it
        by = f" by {quoted(gateway)}" if gateway else ""
        hint = "destination must be a network such as 10.0.0.0/8, and gateway an address of the same family"
        yield Finding(f"route to {quoted(destination)}{by} is not valid", hint, path, code="ND1200")
        return
    scope = entry.get("scope")
    reach = scope if isinstance(scope, str | int) else None
    faults = (texts.route_fault(network, router, source, reach) for router in (gateway, *routers))
    what, hint = next((fault for fault in faults if fault[0]), ("", ""))
    key = repr((_route_key(network, gateway, source, entry), [sorted(map(str, hop.items())) for hop in hops]))
    if what:
        yield Finding(what, hint, path, code="ND1201")
    elif key in places:
        what = f"the route to {quoted(network)} is the same as routes[{places[key]}]"
        yield Finding(what, "remove one of them, or set different metrics", path, code="ND1202")
    places.setdefault(key, int(path[-1]))


def _route_key(network: str, gateway: str, source: str, entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key by which the kernel distinguishes the routes of one interface."""
    metric = entry.get("metric") if entry.get("metric") is not None else entry.get("priority")
    scope = entry.get("scope")
    if scope is None:
        scope = "global" if gateway else "link"
    key = (network, gateway and texts.ip(gateway), entry.get("table") or _MAIN_TABLE)
    if ":" in network:  # IPv6 routes without a metric get 1024, and their other fields do not count
        return (*key, metric or 1024)
    further = (_SCOPES.get(str(scope), scope), source and texts.ip(source), bool(entry.get("onlink")))
    return (*key, metric or 0, *further, entry.get("mtu") or 0, entry.get("advmss") or 0)


def _numbers(config: Mapping[str, Any]) -> Iterator[Finding]:
    """Numbers that no setting of the kernel can have; sysctls are texts, and IPAM plugins' numbers are not ours."""
    for key, value in config.items():
        if key in _ANY_NUMBERS:
            continue
        for path, leaf in _leaves(value, ("config", key)):
            if isinstance(leaf, int) and not isinstance(leaf, bool) and leaf > _MOST:
                yield Finding(
                    f"{dotted(path[1:], '')[1:]} {leaf} does not fit into 32 bits",
                    f"use at most {_MOST}",
                    path,
                    code="ND1203",
                )


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for at, inner in enumerate(value):
            yield from _leaves(inner, (*path, at))
    else:
        yield path, value


def _ethtool(step: PlannedStep) -> Iterator[Finding]:
    """Values of rings, channels and coalescing: numbers from 0, or yes and no."""
    given = step.config.get("ethtool")
    if not isinstance(given, Mapping):
        return
    for group in ("rings", "channels", "coalesce"):
        settings = given.get(group)
        for key, value in settings.items() if isinstance(settings, Mapping) else ():
            if value is not None and (not isinstance(value, int) or value < 0):
                path = ("config", "ethtool", group, key)
                yield Finding(f"{group} {quoted(key)} must be a number from 0, true or false", path=path, code="ND1204")


def _bond(step: PlannedStep, name_of: Callable[[str], str]) -> Iterator[Finding]:
    links = step.config.get("links")
    if isinstance(links, list | tuple):
        yield from _members(step, links, name_of)
    yield from _of_mode(step.config)
    for key in _BOND_NUMBERS:
        value = step.config.get(key)
        if isinstance(value, str) and not (value.isascii() and value.isdecimal() and len(value) < 10):
            yield Finding(
                f"{key} {quoted(value)} is not a number",
                "remove the quotes of the number",
                ("config", key),
                code="ND1205",
            )
    yield from _arp_targets(step.config.get("arpIpTarget"))


def _members(step: PlannedStep, links: Sequence[Any], name_of: Callable[[str], str]) -> Iterator[Finding]:
    """The errors in the members of a bond, and in the choice of the first one."""
    written = [link.get("name") if isinstance(link, Mapping) else link for link in links]
    for at, entry in enumerate(written):
        if entry is None or entry == "":
            left = [name for name in step.depend_on if not any(f"{{{{ {name}." in str(each) for each in written)]
            hint = f'use "{{{{ {left[0] if left else "step"}.interfaceName }}}}"'
            yield Finding("a member of the bond does not have a name", hint, ("config", "links", at), code="ND1206")
    members = [name_of(entry) if isinstance(entry, str) else "" for entry in written]
    if step.if_name in members:
        at = members.index(step.if_name)
        yield Finding(
            f'"{step.if_name}" is the bond itself', "list its members", ("config", "links", at), code="ND1207"
        )
    primary = step.config.get("primary")
    primary = name_of(primary) if isinstance(primary, str) else ""
    if primary and all(members) and primary not in members:
        hint = f"use one of {', '.join(members)}"
        yield Finding(f'primary "{primary}" is not one of its links', hint, ("config", "primary"), code="ND1208")


def _arp_targets(targets: object) -> Iterator[Finding]:
    listed = targets.split(",") if isinstance(targets, str) else targets if isinstance(targets, list | tuple) else ()
    for entry in listed:
        if not isinstance(entry, str) or not texts.fits(entry.strip(), "ip") or ":" in entry:
            shown = quoted(entry) if isinstance(entry, str) else str(entry)
            what = f"arpIpTarget {shown} is not an IPv4 address"
            yield Finding(
                what, "write the address of a router, e.g. 10.0.0.1", ("config", "arpIpTarget"), code="ND1209"
            )


# bond_opts of drivers/net/bonding/bond_options.c, unsuppmodes: the kernel refuses the option with any value.
_BALANCERS = ("balance-tlb", "balance-alb")
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "lacpRate": ("802.3ad",),
    "primary": ("active-backup", *_BALANCERS),
    "packetsPerSlave": ("balance-rr",),
    "tlbDynamicLb": _BALANCERS,
    "arpInterval": ("balance-rr", "active-backup", "balance-xor", "broadcast"),
    "arpValidate": ("balance-rr", "active-backup", "balance-xor", "broadcast"),
}
_MODES = ("balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", *_BALANCERS)


def _of_mode(config: Mapping[str, Any]) -> Iterator[Finding]:
    """Options of a bond that its mode does not have."""
    given = config.get("mode")
    number = int(given) if isinstance(given, int | str) and str(given) in {"0", "1", "2", "3", "4", "5", "6"} else None
    mode = given if number is None else _MODES[number]
    if mode in _MODES:
        for key, modes in _OPTIONS.items():
            if config.get(key) is not None and mode not in modes:
                what = f"{key} is not supported by mode {mode}"
                yield Finding(what, f"remove it, or set mode to {' or '.join(modes)}", ("config", key), code="ND1210")
    if _is_above_0(config.get("miimon")) and _is_above_0(config.get("arpInterval")):
        yield Finding(
            "miimon and arpInterval must not both be set",
            "set one of the two to 0",
            ("config", "arpInterval"),
            code="ND1211",
        )


def _is_above_0(value: Any) -> bool:
    return str(value).isdecimal() and int(value) > 0


def _sriov(step: PlannedStep) -> Iterator[Finding]:
    config = step.config
    # sriov-cni's LoadConf() (pkg/config/config.go) refuses the two without a vlan, with any values.
    strict = step.execution == "Binary" and config.get("vlan") is None
    for key in ("qos", "vlanQoS", "proto", "vlanProto"):
        value = config.get(key)
        is_set = value is not None if strict else value and value not in ("802.1q", "802.1Q")
        if is_set and not config.get("vlan"):
            yield Finding(f"{key} requires vlan", "set vlan, 1 to 4094", ("config", key), code="ND1212")
    low, high = (
        next((config[key] for key in keys if config.get(key) is not None), None)
        for keys in (MIN_RATE_KEYS, MAX_RATE_KEYS)
    )
    if isinstance(low, int) and isinstance(high, int) and 0 < high < low:
        yield Finding(
            f"minTxRate {low} exceeds maxTxRate {high}",
            "raise maxTxRate; 0 means unlimited",
            ("config",),
            code="ND1213",
        )
