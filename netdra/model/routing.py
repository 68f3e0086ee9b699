"""Policy rules and neighbours as configs write them: what in them the kernel would reject, or take for something else.

Asked by `netdra.rules.values` before anything runs, and by `netdra.steps.routing` for the step. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from netdra.model import texts

ALL_BITS = 0xFFFFFFFF
OWN_TABLES = 1_000_000
"""From here on, tables are those of `sourceRouting`: this and the interface's index, which no other one has."""
FIELDS = ("from", "to", "iif", "oif", "fwmark")
"""What a rule can compare; without any it matches all traffic."""


def network(text: str) -> str:
    """A network in one spelling; "" for all of a family.

    Raises:
        ValueError: it is not a network, or a word such as "default".
    """
    if text == "default":
        raise ValueError(text)
    written = texts.network(text)
    return "" if written.endswith("/0") else written


def mark(given: int | str) -> tuple[int, int]:
    """A mark and its mask, as `0x10/0xff`.

    Raises:
        ValueError: a part is not a number, is 0, or the mark has bits outside the mask.
    """
    first, slash, second = str(given).partition("/")
    value, mask = _integer(first), _integer(second) if slash else ALL_BITS
    if not 0 < value <= ALL_BITS or not 0 < mask <= ALL_BITS or value & ~mask:
        raise ValueError(given)
    return value, mask


def rule_fault(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    """Why a rule is not accepted: the field, the error and the next step, or three "".

    Args:
        entry: the rule, of the right types; values that are not there may be "" or None.
    """
    networks: dict[str, str] = {}
    for name in ("from", "to"):
        text = entry.get(name) or ""
        try:
            networks[name] = text and network(text)
        except ValueError:
            return name, f'{name} "{text[:80]}" is not a network', "write it as 10.0.0.0/24"
    source, destination = networks["from"], networks["to"]
    if source and destination and (":" in source) != (":" in destination):
        what = f"from {source} and to {destination} are of different families"
        return "to", what, "write a rule for each family"
    if not (source or destination or entry.get("iif") or entry.get("oif") or entry.get("fwmark") is not None):
        return "", "the rule matches all traffic", f"set {', '.join(FIELDS[:-1])} or {FIELDS[-1]}"
    if entry.get("fwmark") is not None:
        try:
            mark(entry["fwmark"])
        except ValueError:
            what = f'fwmark "{str(entry["fwmark"])[:40]}" must be a mark above 0 within its mask'
            return "fwmark", what, "write it as 0x10 or 0x10/0xff"
    return "", "", ""


def neighbour_fault(address: str) -> tuple[str, str]:
    """Why an address cannot be a neighbour's: the error and the next step, or two ""."""
    try:
        parsed = ipaddress.ip_address(texts.ip(address))
    except ValueError:
        return f'"{address[:80]}" is not an address without a prefix length', "write it as 10.0.0.5"
    if parsed.is_multicast or parsed.is_unspecified:
        return f'"{address[:80]}" is not the address of a single host', "write the peer's address"
    return "", ""


def _integer(text: str) -> int:
    return int(text, 16 if text.startswith("0x") else 10)
