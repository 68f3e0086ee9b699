"""What a text of a plugin's configuration must be: an address, a MAC address, an interface's name, a sysctl, a route.

The one place of these rules: the checks of topologies (`netdra.topology`) and the built-in steps (`netdra.steps`) ask
it, so that what a step would refuse is refused when it is written. Pure.
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
_NO_NAMES = frozenset({"", ".", ".."})

EXPECTED: Mapping[str, str] = {
    "cidr": "an address with its prefix length, as 10.0.0.5/24",
    "ip": "an IP address without a prefix length, as 10.0.0.1",
    "mac": "the MAC address of an interface, as 02:00:00:00:00:01",
    "ifname": f"an interface's name: 1 to {MAX_IF_NAME} bytes without blanks, / and :",
    "pci": "a PCI address, as 0000:3b:00.1",
}
"""The formats of texts, and each in words."""


@lru_cache(maxsize=256)  # a step's parameters are read four times on their way, and this is most of that
def cidr(text: str) -> str:
    """An address with its prefix length, in the kernel's spelling.

    Raises:
        ValueError: it is none, or has no prefix length.
    """
    if "/" not in text:
        raise ValueError(text)
    return ipaddress.ip_interface(text).with_prefixlen


def fits(text: str, form: str) -> bool:
    """Whether a text is of one of the formats of `EXPECTED`."""
    try:
        return _CHECKS[form](text)
    except ValueError:
        return False


def instead(text: str, form: str) -> str:
    """What may be meant by a text that is not of a format, as a hint; "" if nothing is likely."""
    try:
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
    """A route's destination as the kernel takes it; "default" is that of the family of the first router.

    Args:
        destination: an address, a network or "default".
        routers: the gateway and the source address, "" for none.

    Raises:
        ValueError: one is no address, or a router is of an older family than the destination.
    """
    if destination == "default":
        destination = "::/0" if ":" in routers[0] else "0.0.0.0/0"
    parsed = ipaddress.ip_network(destination, strict=False)
    for router in filter(None, routers):
        if ipaddress.ip_address(router).version < parsed.version:
            raise ValueError(router)
    return parsed.with_prefixlen


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
            f"sysctl {key[:200]!r} cannot be set for a pod", hint="only settings below net, such as net.core.somaxconn"
        )
    return "/".join(if_name if part == OWN_INTERFACE else part for part in parts)


def _is_bad(part: str) -> bool:
    return not part or part in {".", ".."} or "/" in part or "\0" in part or not part.isprintable()


def _is_cidr(text: str) -> bool:
    return bool(cidr(text))


def _is_address(text: str) -> bool:
    return bool(ipaddress.ip_address(text))


def _is_mac(text: str) -> bool:
    return _MAC.match(text) is not None and not int(text[:2], 16) & 1 and bool(text.strip("0:"))


def _is_interface(text: str) -> bool:
    size = len(text.encode(errors="replace"))
    return text not in _NO_NAMES and size <= MAX_IF_NAME and not any(sign.isspace() or sign in "/:" for sign in text)


_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "cidr": _is_cidr,
    "ip": _is_address,
    "mac": _is_mac,
    "ifname": _is_interface,
    "pci": lambda text: _PCI.match(text) is not None,
}
