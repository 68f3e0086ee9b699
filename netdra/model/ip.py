"""IP addresses and subnets in texts that others write, in the notation of the API server (isIP, isCIDR in CEL).

Called by the types of `netdra.model` when an object is read, and by `netdra.networks`. Zones, netmasks and addresses of
IPv4 within IPv6 are rejected: two notations of one address would count as two addresses.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_REMEMBERED = 8192
"""How many texts are parsed once alone: a network's routers, name servers and routes are in each of its addresses."""


@lru_cache(maxsize=_REMEMBERED)
def address(text: str) -> Address:
    """An address without a prefix length.

    Raises:
        ValueError: the text is not one.
    """
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f'"{text}" is not an IP address') from None
    if isinstance(parsed, ipaddress.IPv6Address) and (parsed.scope_id is not None or parsed.ipv4_mapped is not None):
        raise ValueError(f'"{text}" is not an IP address')
    return parsed


def is_address(text: str) -> bool:
    """Whether a text is an address without a prefix length."""
    try:
        address(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=_REMEMBERED)
def with_prefix(text: str) -> tuple[Address, int]:
    """An address with the prefix length of its subnet, e.g. `10.77.0.5/16`.

    Raises:
        ValueError: the text is not one.
    """
    plain, slash, prefix = text.partition("/")
    parsed = address(plain)
    is_length = slash and prefix.isascii() and prefix.isdecimal() and prefix == str(int(prefix))
    if not is_length or int(prefix) > parsed.max_prefixlen:
        raise ValueError(f'"{text}" is not an IP address with a prefix length')
    return parsed, int(prefix)


@lru_cache(maxsize=_REMEMBERED)
def subnet(text: str) -> Network:
    """A subnet, e.g. `10.77.0.0/16`.

    Raises:
        ValueError: the text is not a subnet, or is an address within a subnet.
    """
    parsed, length = with_prefix(text)
    try:
        return ipaddress.ip_network(f"{parsed}/{length}")
    except ValueError:
        raise ValueError(f'"{text}" is not a subnet') from None
