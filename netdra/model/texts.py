"""The formats of texts in a plugin's configuration: an address, a MAC address, an interface's name, a sysctl, a route.

The one place of these rules: the checks of topologies (`netdra.topology`) and the built-in steps (`netdra.steps`) ask
it, so that a text that a step would reject is rejected when it is written. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from netdra.model.errors import InvalidInputError
from netdra.model.names import MAX_IF_NAME

MAC_PATTERN = r"^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$"
OWN_INTERFACE = "IFNAME"
"""What stands for the step's interface in the path of a sysctl."""

_MAC = re.compile(MAC_PATTERN.rstrip("$") + r"\Z")
_PCI = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-1][0-9a-fA-F]\.[0-7]\Z")
_PREFIX = re.compile(r"/(0|[1-9][0-9]{0,2})\Z")
_ZONE = re.compile(r"%[^/]*")
_NO_NAMES = frozenset({"", ".", ".."})
_OF_NO_INTERFACE: Mapping[str, tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]] = {
    "unspecified": (ipaddress.ip_network("0.0.0.0/32"), ipaddress.ip_network("::/128")),
    "multicast": (ipaddress.ip_network("224.0.0.0/4"), ipaddress.ip_network("ff00::/8")),
    "the limited broadcast address": (ipaddress.ip_network("255.255.255.255/32"),),
}
_LOOPBACK_6 = ipaddress.ip_address("::1")
_BEYOND_ROUTERS = 254
"""RT_SCOPE_HOST, of include/uapi/linux/rtnetlink.h."""

EXPECTED: Mapping[str, str] = {
    "cidr": "an address with its prefix length, as 10.0.0.5/24",
    "ip": "an IP address without a prefix length, as 10.0.0.1",
    "mac": "the MAC address of an interface, as 02:00:00:00:00:01",
    "ifname": f"an interface's name: 1 to {MAX_IF_NAME} bytes without blanks, / and :",
    "pci": "a PCI address, as 0000:3b:00.1",
}
"""The formats of texts, and each in words."""


OWN_ADDRESS = "write an address of the interface's own, as 10.0.0.5/24"
LEAST_MTU_6 = 1280
"""IPV6_MIN_MTU: below it the kernel removes IPv6 from an interface."""
ROUTE_NAMES = (("destination", "dst"), ("gateway", "gw"), ("source", "src"))
"""netdra's name of a route's field, and CNI's."""


@lru_cache(maxsize=256)  # a step's parameters are read four times on their way, and this is most of that
def cidr(text: str) -> str:
    """An address with its prefix length, in one spelling of the many that it may have.

    As Go's net.ParseCIDR, which CNI plugins use, it takes no zone and no netmask.

    Raises:
        ValueError: it is not an address, or has no prefix length.
    """
    if "%" in text or _PREFIX.search(text) is None:
        raise ValueError(text)
    return ipaddress.ip_interface(text).with_prefixlen


@lru_cache(maxsize=256)
def ip(text: str) -> str:
    """An address without a prefix length, in one spelling of the many that it may have.

    Raises:
        ValueError: it is not an address, or has a zone.
    """
    if "%" in text:
        raise ValueError(text)
    return str(ipaddress.ip_address(text))


@lru_cache(maxsize=256)
def of_no_interface(text: str, if_name: str = "") -> str:
    """Why no interface can have an address as its own, in a word; "" if one can.

    The kernel refuses some of these addresses and skips others. It takes IPv4 multicast and 255.255.255.255, by
    which no host is reached.

    Args:
        text: the address, with a prefix length or without.
        if_name: the interface's name: `lo` alone can have ::1.

    Raises:
        ValueError: it is not an address.
    """
    address = ipaddress.ip_interface(text).ip
    if address == _LOOPBACK_6 and if_name != "lo":
        return "the loopback address"
    return next((what for what, parts in _OF_NO_INTERFACE.items() if any(address in part for part in parts)), "")


def fits(text: str, form: str) -> bool:
    """Whether a text is of one of the formats of `EXPECTED`."""
    try:
        return _CHECKS[form](text)
    except ValueError:
        return False


def instead(text: str, form: str) -> str:
    """The likely intention of a text that does not have a format, as a hint; "" if none is likely."""
    try:
        if form in {"cidr", "ip"}:
            text = _ZONE.sub("", text)
        if form == "cidr" and "/" in text:
            return f"write {ipaddress.ip_interface(text).with_prefixlen}"
        if form == "cidr":
            address = ipaddress.ip_address(text)
            return f"write {address}/{24 if address.version == 4 else 64}, with the prefix length of its network"
        if form == "ip":
            return f"write {ipaddress.ip_interface(text).ip}"
    except ValueError:
        return ""
    if form == "mac" and (bare := re.sub(r"[-.:]", "", text)).isalnum() and len(bare) == 12:
        written = ":".join(bare[at : at + 2] for at in range(0, 12, 2)).lower()
        if written != text.lower() and _is_mac(written):
            return f"write {written}"
        if _MAC.match(text):
            return "it is zero or a group's: the second digit of an interface's is even"
    return ""


def network(destination: str, *routers: str) -> str:
    """A route's destination in one spelling; "default" is that of the family of the first router.

    Args:
        destination: an address, a network or "default".
        routers: the gateway and the source address, "" for none.

    Raises:
        ValueError: one is not an address, or a router is of an older family than the destination.
    """
    if destination == "default":
        destination = "::/0" if ":" in routers[0] else "0.0.0.0/0"
    if "%" in destination or ("/" in destination and _PREFIX.search(destination) is None):
        raise ValueError(destination)
    parsed = ipaddress.ip_network(destination, strict=False)
    for router in filter(None, routers):
        if ipaddress.ip_address(ip(router)).version < parsed.version:
            raise ValueError(router)
    return parsed.with_prefixlen


def route_fault(destination: str, gateway: str, source: str, scope: int | str | None) -> tuple[str, str]:
    """Why the kernel rejects a route whose texts are addresses each: the error and the next step, or two "".

    Args:
        destination: as `network` gives it.
        gateway: the router's address, "" for none.
        source: the source address, "" for none.
        scope: the scope's name or number; None lets it follow from the gateway.
    """
    if gateway and (kind := of_no_interface(gateway)):
        return f'gateway "{gateway[:80]}" is {kind}', "use the router's address, or leave gateway out"
    if ":" in destination:
        return "", ""
    if ":" in source:
        return (
            f'source "{source[:80]}" is of another family than destination "{destination}"',
            "write an IPv4 address of the interface, or leave source out",
        )
    if gateway and scope in {"host", _BEYOND_ROUTERS}:
        return f'scope {scope} does not go with gateway "{gateway[:80]}"', "remove one of them"
    return "", ""


def said_twice(fields: Mapping[str, object]) -> tuple[str, str]:
    """The two names of one field of a route that are both there, or two ""."""
    return next((pair for pair in ROUTE_NAMES if all(fields.get(name) for name in pair)), ("", ""))


def sysctl_path(key: str, if_name: str) -> str:
    """A setting's path below /proc/sys; IFNAME in it stands for the step's interface.

    As in sysctl.d(5), the first separator decides: after a first dot, dots separate and a slash stands for a dot in an
    interface's name; after a first slash it is the other way round.

    Raises:
        InvalidInputError: the key is not one of the network's, or would lead elsewhere.
    """
    slash, dot = key.find("/"), key.find(".")
    slashes = slash >= 0 and (dot < 0 or slash < dot)
    parts = key.split("/") if slashes else [part.replace("/", ".") for part in key.split(".")]
    if len(parts) < 3 or parts[0] != "net" or any(_is_bad(part) for part in parts):
        raise InvalidInputError(
            f"sysctl {key[:200]!r} cannot be set for a pod",
            hint="only settings below net, such as net.core.somaxconn",
            code="ND1540",
        )
    return "/".join(if_name if part == OWN_INTERFACE else part for part in parts)


def _is_bad(part: str) -> bool:
    return not part or part in {".", ".."} or "/" in part or "\0" in part or not part.isprintable()


def _is_mac(text: str) -> bool:
    return _MAC.match(text) is not None and not int(text[:2], 16) & 1 and bool(text.strip("0:"))


def _is_interface(text: str) -> bool:
    size = len(text.encode(errors="replace"))
    return text not in _NO_NAMES and size <= MAX_IF_NAME and not any(sign.isspace() or sign in "/:" for sign in text)


_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "cidr": lambda text: bool(cidr(text)),
    "ip": lambda text: bool(ip(text)),
    "mac": _is_mac,
    "ifname": _is_interface,
    "pci": lambda text: _PCI.match(text) is not None,
}
