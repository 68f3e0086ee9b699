"""The values that claims give to a topology: declared by its author, checked, and put into its steps (decision D32).

A claim's author is trusted with nothing but the choice among values that the topology's author allowed. So each value
is typed and bounded, is written in one way, and never holds a text that could be read as a reference. `misplaced` and
the plugins' schemas (`confine`) state where parameters may stand. Called when a topology or a claim is written
(`graph`, `claims`) and again when a claim is bound (`bind`). Pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from netdra.model import names, suggestions
from netdra.model.claim import OpaqueDeviceConfiguration
from netdra.model.documents import fit
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding, Path, quoted
from netdra.model.meta import ObjectMeta
from netdra.model.topology import VALUES_KIND, DeclaredParameter, NetworkTopology, ParameterValues

DEVICE_KEYS = ("master", "device", "deviceID", "hwaddr", "kernelpath", "pciBusID")
"""Fields that name the device in the configuration of a CNI plugin."""
MAX_LENGTH = 253
MOST_ITEMS = 64
DEFAULT_ITEMS = 16

_NAME = re.compile(r"[a-z][A-Za-z0-9]{0,62}\Z")
_CHOICE = re.compile(r"[!-z|~](?:[ -z|~]*[!-z|~])?\Z")
_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}\Z")
_PREFIX = re.compile(r"/(0|[1-9][0-9]{0,2})\Z")
_INTEGERS = range(-(2**63), 2**63)
_ADDRESSES = frozenset({"cidr", "ip", "subnet"})
_NEVER = frozenset({"name", "dev", "deviceid", "runtimeconfig", "capabilities", "args", "type"})
"""Keys, in small letters, that no claim decides: which program runs, on which interface, and what runtimes give."""

_EXPECTED: Mapping[str, str] = {
    "cidr": "an address with its prefix length, as 10.0.0.5/24",
    "ip": "an address without a prefix length, as 10.0.0.1",
    "subnet": "a network, as 10.0.0.0/24",
    "mac": "the MAC address of one interface, as 02:00:00:00:00:01",
}
# RFC 5737 and RFC 3849: for examples, so that no real address is taken for a default.
_EXAMPLES: Mapping[str, str] = {
    "cidr": "192.0.2.5/24",
    "ip": "192.0.2.5",
    "subnet": "192.0.2.0/24",
    "mac": "02:00:00:00:00:01",
}


def examine(topology: NetworkTopology) -> Iterator[Finding]:
    """The errors in a topology's declarations."""
    seen: set[str] = set()
    for at, parameter in enumerate(topology.spec.parameters):
        path: Path = ("spec", "parameters", at)
        shown = f'NetworkTopology "{topology.name}", parameter {quoted(parameter.name)}'
        if _NAME.match(parameter.name) is None:
            hint = "use at most 63 letters and digits, the first a lower-case letter"
            yield Finding(what=f"{shown}: the name is not valid", hint=hint, path=(*path, "name"), code="ND1313")
        if parameter.name in seen:
            yield Finding(what=f"{shown}: the name appears twice", path=(*path, "name"), code="ND1314")
        seen.add(parameter.name)
        wrong = [*_declaration(parameter)]
        yield from (
            Finding(what=f"{shown}: {what}", hint=hint, path=(*path, key), code="ND1315") for key, what, hint in wrong
        )
        if parameter.default is not None and not wrong:
            try:
                checked(parameter, parameter.default)
            except InvalidInputError as problem:
                yield Finding(
                    what=f"{shown}: the default {problem.what}",
                    hint=problem.hint,
                    path=(*path, "default"),
                    code=problem.code,
                )


def undeclared(field: str, declared: Iterable[str], path: Path) -> str:
    """The next step for a reference to a parameter that the topology does not declare."""
    hint = suggestions.hint(field, declared, "its parameters are") or "declare it in spec.parameters"
    if str(path[0]) in DEVICE_KEYS:
        hint = "remove it: a claim must not set a device or an interface"
    elif misplaced(path):
        hint = "write the value: a claim must not set it"
    return hint


def misplaced(path: Path) -> str:
    """Why no parameter may stand at a place of a step's config, or ""."""
    first = str(path[0]).casefold()
    if first in _NEVER or str(path[-1]).casefold() == "type":
        return "a claim decides neither which plugin runs nor on which interface or device"
    return ""


def checked(parameter: DeclaredParameter, value: Any) -> Any:
    """A value as it is put into configs.

    Raises:
        InvalidInputError: it is not of the parameter's type, or out of its bounds; the text begins with the value.
    """
    match parameter.type:
        case "boolean":
            if not isinstance(value, bool):
                raise InvalidInputError(f"{_shown(value)} is neither true nor false", code="ND1316")
            return value
        case "integer":
            return _integer(parameter, value)
        case "[]string":
            return _list(parameter, value)
    return _text(parameter, value)


def examples(parameter: DeclaredParameter) -> tuple[Any, ...]:
    """Values that a claim may give, those at the bounds among them; a config that suits them suits all others."""
    match parameter.type:
        case "boolean":
            return (True, False)
        case "integer":
            return tuple(dict.fromkeys((parameter.minimum, parameter.maximum)))
        case "[]string":
            texts = _texts(parameter)
            least, most = parameter.min_items or 0, _most(parameter)
            return tuple([texts[at % len(texts)] for at in range(count)] for count in dict.fromkeys((least, most)))
    return _texts(parameter)


def complete(topology: str, declared: Sequence[DeclaredParameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """The value of each of a topology's parameters: what a claim gives, else the default.

    Raises:
        InvalidInputError: one is not declared, does not fit, or is missing.
    """
    by_name = {parameter.name: parameter for parameter in declared}
    for name, value in given.items():
        if name not in by_name:
            there = suggestions.hint(name, by_name, "its parameters are") or "the topology has no parameters"
            raise InvalidInputError(
                f'NetworkTopology "{topology}" has no parameter {quoted(name)}', hint=there, code="ND1317"
            )
        try:
            checked(by_name[name], value)
        except InvalidInputError as problem:
            what = f'parameter "{name}" of NetworkTopology "{topology}": {problem.what}'
            raise InvalidInputError(what, hint=problem.hint, code=problem.code) from None
    missing = [name for name, parameter in by_name.items() if name not in given and parameter.default is None]
    if missing:
        raise InvalidInputError(
            f'NetworkTopology "{topology}" needs a value for its parameter{"s" * (len(missing) > 1)} '
            f"{', '.join(missing)}",
            hint=f"give it in the claim's spec.devices.config, as {VALUES_KIND} for driver {names.DRIVER}",
            code="ND1318",
        )
    return {name: checked(parameter, given.get(name, parameter.default)) for name, parameter in by_name.items()}


def defaults(declared: Iterable[DeclaredParameter]) -> dict[str, Any]:
    """The defaults of the parameters that have one."""
    return {entry.name: checked(entry, entry.default) for entry in declared if entry.default is not None}


def values_of(opaque: OpaqueDeviceConfiguration | None, origin: str) -> ParameterValues | None:
    """The values of parameters in a claim's opaque configuration; None if it is another driver's or something else.

    Raises:
        InvalidInputError: it is of that kind, and not to be understood.
    """
    if opaque is None or opaque.driver != names.DRIVER or not isinstance(opaque.parameters, dict):
        return None
    if opaque.parameters.get("kind") != VALUES_KIND:
        return None
    return fit(opaque.parameters, ParameterValues, f"{origin}: {VALUES_KIND}")


def covers(requests: Sequence[str], named: Iterable[str]) -> bool:
    """Whether a configuration, which is for `requests` (for all, if that is empty), is for a request in `named`.

    A request is named `main`, or `main/alternative`.
    """
    return not requests or any(name in requests or name.split("/", 1)[0] in requests for name in named)


def together(configs: Iterable[ParameterValues], ordinal: int | None) -> dict[str, Any]:
    """The values of several configurations of one claim for one topology.

    Args:
        configs: the configurations.
        ordinal: the pod's in its StatefulSet; None outside of one.

    Raises:
        InvalidInputError: a value is given twice, or none exists for the pod.
    """
    values: dict[str, Any] = {}
    for entry in configs:
        for name in (*entry.values, *entry.per_pod):
            if name in values:
                raise InvalidInputError(
                    f"parameter {quoted(name)} is given twice", hint="remove one of the values", code="ND1319"
                )
            values[name] = None
        values |= {**entry.values, **{name: _of_pod(name, every, ordinal) for name, every in entry.per_pod.items()}}
    return values


def ordinal_of(metadata: ObjectMeta) -> int | None:
    """The ordinal of the StatefulSet's pod that owns a claim, by the pod's name; None if no such pod owns it."""
    owners = [owner_reference for owner_reference in metadata.owner_references if owner_reference.controller]
    if [(owner.api_version, owner.kind) for owner in owners] != [("v1", "Pod")]:
        return None
    return ordinal_in(owners[0].name)


def ordinal_in(pod: str) -> int | None:
    """The ordinal at the end of a StatefulSet pod's name; None if the name has none."""
    _, _, last = pod.rpartition("-")
    return int(last) if last.isascii() and last.isdecimal() and len(last) < 10 and str(int(last)) == last else None


def _of_pod(name: str, values: Sequence[Any], ordinal: int | None) -> Any:
    if ordinal is None:
        raise InvalidInputError(
            (
                f"perPod gives parameter {quoted(name)} by the pods' ordinals, but the claim does not "
                "belong to a pod of a StatefulSet"
            ),
            hint="use a ResourceClaimTemplate in a StatefulSet, or give the value in values",
            code="ND1320",
        )
    if ordinal >= len(values):
        raise InvalidInputError(
            f"perPod has {len(values)} values of parameter {quoted(name)}, and the pod's ordinal is {ordinal}",
            hint="add values, the first is that of pod 0; or have fewer replicas",
            code="ND1321",
        )
    return values[ordinal]


def _declaration(parameter: DeclaredParameter) -> Iterator[tuple[str, str, str]]:
    """The errors of one declaration, each with the field, the error, and the next step."""
    kind, form = parameter.type, parameter.format
    is_text, is_list, is_number = "string" in kind, kind == "[]string", kind == "integer"
    for field, value, suits in (
        ("format", form, is_text),
        ("enum", parameter.enum, is_text),
        ("within", parameter.within, form in _ADDRESSES),
        ("minimum", parameter.minimum, is_number),
        ("maximum", parameter.maximum, is_number),
        ("minItems", parameter.min_items, is_list),
        ("maxItems", parameter.max_items, is_list),
    ):
        if value not in (None, "", ()) and not suits:
            yield field, f"{field} does not go with {f'format {form}' if form else f'type {kind}'}", "remove it"
    if is_text:
        yield from _text_declaration(parameter)
    least, most = parameter.minimum, parameter.maximum
    if is_number and (least is None or most is None):
        yield "type", "is a number without bounds", "give it a minimum and a maximum"
    elif is_number and not (least in _INTEGERS and most in _INTEGERS and least <= most):  # type: ignore[operator]
        yield "minimum", f"nothing is between {least} and {most}", ""
    if is_list and not 0 <= (parameter.min_items or 0) <= _most(parameter) <= MOST_ITEMS:
        yield "maxItems", f"a list has from minItems, at least 0, to maxItems, at most {MOST_ITEMS}, values", ""


def _text_declaration(parameter: DeclaredParameter) -> Iterator[tuple[str, str, str]]:
    if bool(parameter.format) == bool(parameter.enum):
        what = "has both a format and an enum" if parameter.format else "is a text without a format or an enum"
        yield "type", what, f"give it a format ({', '.join(_EXPECTED)}) or an enum of all its values"
    for choice in parameter.enum:
        if len(choice) > MAX_LENGTH or _CHOICE.match(choice) is None:
            hint = f"use 1 to {MAX_LENGTH} printable ASCII signs without braces"
            yield "enum", f"{quoted(choice)} is not a valid value", hint
    for network in parameter.within:
        if _network(network) is None:
            yield "within", f"{quoted(network)} is not a network", f"write {_EXPECTED['subnet']}"


def _integer(parameter: DeclaredParameter, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        is_quoted = isinstance(value, str) and value.removeprefix("-").isdecimal()
        hint = "remove its quotes" if is_quoted else ""
        raise InvalidInputError(f"{_shown(value)} is not an integer", hint=hint, code="ND1322")
    assert parameter.minimum is not None
    assert parameter.maximum is not None
    if not parameter.minimum <= value <= parameter.maximum:
        raise InvalidInputError(
            f"{_shown(value)} is not from {parameter.minimum} to {parameter.maximum}", code="ND1323"
        )
    return value


def _list(parameter: DeclaredParameter, value: Any) -> list[str]:
    if not isinstance(value, list | tuple):
        raise InvalidInputError(f"{_shown(value)} is not a list", code="ND1324")
    least, most = parameter.min_items or 0, _most(parameter)
    if not least <= len(value) <= most:
        raise InvalidInputError(f"a list of {len(value)} has not from {least} to {most} values", code="ND1325")
    return [_text(parameter, inner) for inner in value]


def _most(parameter: DeclaredParameter) -> int:
    return DEFAULT_ITEMS if parameter.max_items is None else parameter.max_items


def _text(parameter: DeclaredParameter, value: Any) -> str:
    if not isinstance(value, str):
        fit = f"one of {', '.join(parameter.enum)}" if parameter.enum else _EXPECTED[parameter.format]
        hint = "put it in quotes" if str(value) in parameter.enum else f"write {fit}"
        raise InvalidInputError(f"{_shown(value)} is not text", hint=hint, code="ND1326")
    if parameter.enum:
        if value not in parameter.enum:
            raise InvalidInputError(f"{quoted(value)} is not one of {', '.join(parameter.enum)}", code="ND1327")
        return value
    form = parameter.format
    written = _written(value, form) if len(value) <= MAX_LENGTH else ""
    if not written:
        raise InvalidInputError(f"{quoted(value)} is not {_EXPECTED[form]}", code="ND1328")
    if parameter.within and not any(_lies_in(written, network) for network in parameter.within):
        raise InvalidInputError(f"{quoted(value)} does not lie within {' or '.join(parameter.within)}", code="ND1329")
    return written


def _written(value: str, form: str) -> str:
    """A text of a format in one way of writing it, or "" if it is not of the format."""
    if form == "mac":
        text = value.lower()
        fits = _MAC.match(text) is not None and not int(text[:2], 16) & 1 and bool(text.strip("0:"))
        return text if fits else ""
    if form == "subnet":
        network = _network(value)
        return "" if network is None else str(network)
    if "%" in value or (form == "cidr") != (_PREFIX.search(value) is not None):
        return ""
    try:
        interface = ipaddress.ip_interface(value)
    except ValueError:
        return ""
    address = interface.ip
    if address.is_multicast or address.is_unspecified or address.is_loopback or value == "255.255.255.255":
        return ""
    return interface.with_prefixlen if form == "cidr" else str(address)


def _network(value: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    if "%" in value or _PREFIX.search(value) is None:
        return None
    try:
        return ipaddress.ip_network(value)
    except ValueError:
        return None


def _lies_in(value: str, network: str) -> bool:
    """Whether an address, with its whole prefix where it has one, is part of a network."""
    outer, inner = ipaddress.ip_network(network), ipaddress.ip_interface(value).network
    return outer.version == inner.version and inner.subnet_of(outer)  # type: ignore[arg-type]


def _texts(parameter: DeclaredParameter) -> tuple[str, ...]:
    form = parameter.format
    return parameter.enum or tuple(_within(network, form) for network in parameter.within) or (_EXAMPLES[form],)


def _within(network: str, form: str) -> str:
    """An example of an address or a subnet of a network."""
    outer = ipaddress.ip_network(network)
    if form == "subnet":
        return str(outer)
    address = outer[min(5, outer.num_addresses - 1)]
    return f"{address}/{outer.prefixlen}" if form == "cidr" else str(address)


def _shown(value: Any) -> str:
    """A value of a claim for an error; a nested value may be nested without end."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, int) and not isinstance(value, bool) and value not in _INTEGERS:
        return "a number of more than 64 bits"
    return msgspec.json.encode(value).decode()
