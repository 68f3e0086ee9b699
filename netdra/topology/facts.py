"""The facts that steps can refer to beside results and parameters: of the allocated device, the node and the pod.

A fact has a type, so a config is checked before a device is allocated (decision D63). `references` parses them by this
table, `graph` and the plugins' schemas check where they stand, and `surroundings` has their values at binding. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from netdra.model import names
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Path, quoted
from netdra.model.node_network import DEFAULTS
from netdra.model.suggestions import closest

MAX_LENGTH = 253
"""Characters of a fact's text: those of the name of a pod or a node."""

Kind = Literal["text", "integer", "boolean", "any"]
"""The type of a fact; "any" of an attribute that only policies and providers know."""

DEVICE, NODE, POD = "device", "node", "pod"
ROOTS = (DEVICE, NODE, POD)

_ANY = ("1", "a", "192.0.2.1", "192.0.2.1/24", "2001:db8::1", "2001:db8::1/64", "02:00:00:00:00:01")
_OF_LABELS = ("1", "a", "192.0.2.1")
_NEVER = frozenset({"type", "deviceid", "runtimeconfig", "args", "capabilities"})
_TEXT = re.compile(r"[!-z|~](?:[ -z|~]*[!-z|~])?\Z")
_INTEGERS = range(-(2**63), 2**63)


class Fact(msgspec.Struct, frozen=True):
    """One fact: what its value is in words, its type, and texts that a value may have, for checks of formats."""

    described: str
    kind: Kind = "text"
    samples: tuple[str, ...] = _ANY


_PLAIN: Mapping[tuple[str, str], Fact] = {
    (DEVICE, "ifName"): Fact("an interface's name", samples=("eth1",)),
    (DEVICE, "name"): Fact("the name of a published device", samples=("eth1",)),
    (NODE, "name"): Fact("the name of a node", samples=("node-1", "192.0.2.1")),
    (POD, "name"): Fact("the name of a pod", samples=("app-0",)),
    (POD, "namespace"): Fact("the name of a namespace", samples=("app",)),
    (POD, "ordinal"): Fact("the ordinal of a StatefulSet's pod, an integer", "integer", ("1", "0")),
}
ATTRIBUTE = (DEVICE, "attributes")
"""The step and the field of a reference to an attribute of the device."""
_KEYED = {ATTRIBUTE, (NODE, "labels")}
WRITTEN = (
    "device.ifName", "device.name", "device.attributes.<name>", "node.name", 'node.labels["<key>"]',
    "pod.name", "pod.namespace", "pod.ordinal",
)  # fmt: skip
"""All facts as they are written."""

_KNOWN: Mapping[str, Fact] = {
    "mac": Fact("a MAC address", samples=("02:00:00:00:00:01",)),
    "pciAddress": Fact("a PCI address", samples=("0000:00:00.0",)),
    "ifName": _PLAIN[DEVICE, "ifName"],
}


def of(root: str, field: str, key: str = "") -> Fact | None:
    """A fact by its place in this table; None if no such fact exists.

    Args:
        root: `device`, `node` or `pod`.
        field: the word after the first point.
        key: the attribute's name or the label's key, "" for other facts.
    """
    if not key:
        return _PLAIN.get((root, field))
    if (root, field) == ATTRIBUTE:
        return _attribute(key)
    return Fact("the text of a label", samples=_OF_LABELS) if (root, field) == (NODE, "labels") else None


def is_keyed(root: str, field: str) -> bool:
    """Whether a fact needs an attribute's name or a label's key."""
    return (root, field) in _KEYED


def is_key(root: str, key: str) -> bool:
    """Whether a text can be the name of an attribute, or the key of a node's label."""
    if root == NODE:
        return names.is_label_key(key)
    domain, slash, name = key.rpartition("/")
    return names.is_identifier(name) and (not slash or names.is_subdomain(domain))


def written(root: str, key: str = "") -> str:
    """The fact of a root that needs a key, as it is written: with the key, or with a placeholder."""
    if not is_key(root, key):
        return next(text for text in WRITTEN if text.startswith(f"{root}.") and "<" in text)
    if root == NODE:
        return f'node.labels["{key}"]'
    return f"device.attributes.{key}" if names.is_identifier(key) else f'device.attributes["{key}"]'


def near(root: str, field: str, key: str = "") -> str:
    """A hint for an unknown word of a root, and the key after it: the most similar fact, or all facts."""
    own = sorted(entry for place, entry in (*_PLAIN, *_KEYED) if place == root)
    if root == DEVICE and names.qualified(field) in DEFAULTS:
        return f'did you mean "{{{{ device.attributes.{field} }}}}"?'
    meant = closest(field, own)
    if meant:
        shown = written(root, key) if is_keyed(root, meant) else f"{root}.{meant}"
        return f'did you mean "{{{{ {shown} }}}}"?'
    if root != POD and is_key(root, field):
        return f'did you mean "{{{{ {written(root, field)} }}}}"?'
    return f"write one of {', '.join(of_root(root))}"


def of_root(root: str) -> tuple[str, ...]:
    """The facts of a root, as they are written."""
    return tuple(text for text in WRITTEN if text.startswith(f"{root}."))


def misplaced(path: Path) -> str:
    """Why no fact may stand at a place of a step's config, or ""."""
    if str(path[0]).casefold() in _NEVER or str(path[-1]).casefold() == "type":
        return "neither a device, a node nor a pod decides which plugin runs, nor on which device"
    return ""


def checked(value: Any) -> str | int | bool:
    """A value as it is put into configs.

    No text is read as a reference, as several lines, or as a path: it has no braces, and a slash only before the prefix
    length of an address.

    Raises:
        InvalidInputError: it is empty, a list, or holds what no fact may; the text begins with the value.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if value not in _INTEGERS:
            raise InvalidInputError("a number of more than 64 bits cannot stand in a config", code="ND1271")
        return value
    if not isinstance(value, str):
        raise InvalidInputError(
            "a list cannot stand in a config", hint="refer to an attribute with one value", code="ND1272"
        )
    if not value:
        raise InvalidInputError('the value is empty: ""', code="ND1273")
    if len(value) > MAX_LENGTH:
        raise InvalidInputError(f"{quoted(value)} has more than {MAX_LENGTH} characters", code="ND1274")
    if _TEXT.match(value) is None:
        raise InvalidInputError(
            f"{quoted(value)} has a character that is not allowed",
            hint="use printable ASCII characters without braces",
            code="ND1275",
        )
    if "\\" in value or ".." in value or ("/" in value and not _is_network(value)):
        raise InvalidInputError(
            f"{quoted(value)} could be read as a path",
            hint='use a value without "\\" and "..", and "/" only in an address with its prefix length',
            code="ND1276",
        )
    return value


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return False
    return "%" not in text


def _attribute(key: str) -> Fact:
    name = names.qualified(key)
    own = name.removeprefix(f"{names.DRIVER}/")
    if own in _KNOWN:
        return _KNOWN[own]
    value = DEFAULTS.get(name)
    if isinstance(value, bool):
        return Fact("true or false", "boolean", ("true",))
    if isinstance(value, int):
        return Fact("an integer", "integer", ("1", "0"))
    return Fact("a text" if isinstance(value, str) else "an attribute's value", "text" if value is not None else "any")
