"""Text to typed objects: YAML and JSON documents of the kinds that netdra knows, with errors that name the place.

Used by everything that reads files or stdin. It opens nothing itself: text in, objects out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from netdra.model import claim_rules, metadata_rules, names, suggestions, yaml_text
from netdra.model.claim import DeviceClass, ResourceClaim, ResourceClaimTemplate
from netdra.model.cni_plugin import CNIPlugin
from netdra.model.custom_device import CustomDevice
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding
from netdra.model.inventory import INVENTORY_VERSION, Inventory
from netdra.model.neutron_port import NeutronPort
from netdra.model.node_network import NodeNetwork
from netdra.model.plan import Plan
from netdra.model.pod_address import PodAddress
from netdra.model.pod_network import PodNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.reasons import fitted, reason
from netdra.model.resource import ResourceSlice
from netdra.model.rollout import CustomDeviceRollout, DeviceExposurePolicyRollout, NetworkTopologyUsage
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology

Document = (
    DeviceExposurePolicy
    | NetworkTopology
    | CNIPluginSchema
    | CustomDevice
    | CNIPlugin
    | NodeNetwork
    | NeutronPort
    | PodNetwork
    | PodAddress
    | NetworkTopologyUsage
    | DeviceExposurePolicyRollout
    | CustomDeviceRollout
    | ResourceSlice
    | ResourceClaim
    | ResourceClaimTemplate
    | DeviceClass
)
KINDS: dict[str, type[Document]] = {
    kind.__name__: kind
    for kind in (
        DeviceExposurePolicy,
        NetworkTopology,
        CNIPluginSchema,
        CustomDevice,
        CNIPlugin,
        NodeNetwork,
        NeutronPort,
        PodNetwork,
        PodAddress,
        NetworkTopologyUsage,
        DeviceExposurePolicyRollout,
        CustomDeviceRollout,
        ResourceSlice,
        ResourceClaim,
        ResourceClaimTemplate,
        DeviceClass,
    )
}
WRITTEN_BY_DRIVERS = frozenset({ResourceSlice.__name__})
"""Kinds that files hold only as a cluster printed them, maybe one of a newer version."""
MAX_QUOTED = 80
RECORD = "record one with: netdra capture FILE"
OBJECT = "an object begins with apiVersion and kind"
PLAN = "make one with: netdra render TOPOLOGY --claim CLAIM --output plan"
NAME_RULE = "a name is a DNS subdomain: up to 253 of a-z, 0-9, - and ., letters or digits at both ends"

_OPAQUE = {
    "ParameterValues": "write it in a claim's spec.devices.config, in opaque.parameters",
    "DeviceParameters": "write it in a DeviceClass's spec.config, in opaque.parameters",
}
"""Kinds that stand only inside other objects, and where."""

T = TypeVar("T")


def read(text: str, origin: str, *, strict: bool = True) -> Iterator[Document]:
    """The objects in a YAML (or JSON) text with one or more documents; `List` kinds are opened, empty ones skipped.

    Args:
        text: what a file holds.
        origin: where it is from, for errors.
        strict: as in `examine`; and whether a key may stand only once in a mapping.

    Raises:
        InvalidInputError: the text is not YAML, or a document is of no known kind or breaks its schema.
    """
    for value, place in values(text, origin, strict=strict):
        yield decode(value, place, strict=strict)


def values(text: str, origin: str, *, strict: bool = True) -> Iterator[tuple[Any, str]]:
    """The plain objects in a text, of any kind, each with where it stands; as `read` otherwise.

    Raises:
        InvalidInputError: the text is not YAML.
    """
    if (items := yaml_text.load_items(text, origin, strict=strict)) is not None:
        yield from ((item, f"{origin}, document 1") for item in items)
        return
    for number, value in enumerate(yaml_text.load(text, origin, strict=strict), 1):
        place = f"{origin}, document {number}"
        for item in _items(value, place):
            yield item, place


def decode(value: Any, origin: str, *, strict: bool = True) -> Document:
    """One object of a known kind.

    Raises:
        InvalidInputError: it is of another kind, or breaks its schema; the text names the path inside it.
    """
    document, findings = examine(value, origin, strict=strict)
    if document is None or findings:
        raise InvalidInputError("\n".join(f"{origin}: {finding.text_at_path}" for finding in findings), code="ND1511")
    return document


def examine(value: Any, origin: str, *, strict: bool = True) -> tuple[Document | None, tuple[Finding, ...]]:
    """One object of a known kind, and all errors in its fields.

    Both are returned where names of fields are wrong: the object as it was probably intended, for further errors.

    Args:
        origin: where it is from, for errors.
        strict: whether it is of a file, of which all is refused that the API server would refuse when it is applied;
            of an object that has passed the API server, only what cannot be read.

    Raises:
        InvalidInputError: it is of no kind that is known.
    """
    if not isinstance(value, dict):
        raise InvalidInputError(f"{origin}: expected an object, found {_called(value)}", hint=OBJECT, code="ND1512")
    if finding := unknown_kind(value):
        raise InvalidInputError(f"{origin}: {finding.what}", hint=finding.hint, path=finding.path, code=finding.code)
    kind = value["kind"]
    try:
        document, found = fitted(value, KINDS[kind], strict=strict and kind not in WRITTEN_BY_DRIVERS)
    except RecursionError:
        return None, (Finding(f'{kind} "{_name(value)}": nested too deeply', code="ND1513"),)
    findings = [
        msgspec.structs.replace(
            finding,
            what=f"{subject(value, kind, finding.path)}: {finding.what}",
            path=finding.path or _missing(finding.what),
        )
        for finding in found
    ]
    if document is not None and not isinstance(document, NetworkTopology):  # a topology has stricter rules of its own
        name = document.metadata.name
        if not (names.is_subdomain(name) or (not name and document.metadata.generate_name)):
            what = f'{kind} "{_name(value)}": no object can have this name'
            findings.append(Finding(what, NAME_RULE, ("metadata", "name"), code="ND1514"))
            return None, tuple(findings)
    if strict and document is not None:
        findings += [
            msgspec.structs.replace(finding, what=f"{subject(value, kind, ())}: {finding.what}")
            for finding in _rejected(value, document)
        ]
    return document, tuple(findings)


def _missing(what: str) -> tuple[str, ...]:
    """The place of a field of the object itself that is missing."""
    field = what.removeprefix('the field "').removesuffix('" is missing')
    return (field,) if field in {"apiVersion", "metadata", "spec"} else ()


def _rejected(value: dict[str, Any], document: Document) -> Iterator[Finding]:
    """The API server's rules for an object of a file, beyond the types of its fields."""
    if "apiVersion" not in value:
        yield Finding(
            'the field "apiVersion" is missing',
            f"write apiVersion: {document.api_version}",
            ("apiVersion",),
            code="ND1515",
        )
    if document.kind in WRITTEN_BY_DRIVERS:
        return
    yield from metadata_rules.findings(document.metadata)
    if isinstance(document, ResourceClaim | ResourceClaimTemplate | DeviceClass):
        yield from claim_rules.findings(document)


def unknown_kind(value: dict[str, Any]) -> Finding | None:
    """The error of an object whose kind is missing or unknown; None if `decode` knows the kind."""
    kind = value.get("kind")
    if kind is None:
        return Finding(
            'the field "kind" is missing', f"known kinds: {suggestions.listed(KINDS)}", ("kind",), code="ND1516"
        )
    if isinstance(kind, str) and kind in KINDS:
        return None
    quoted = ascii(kind)[:MAX_QUOTED] if isinstance(kind, str) else f"of type {type(kind).__name__}"
    if isinstance(kind, str) and kind in _OPAQUE:
        return Finding(f"kind {quoted} is not an object", _OPAQUE[kind], ("kind",), code="ND1517")
    hint = suggestions.hint(kind if isinstance(kind, str) else "", KINDS, "known kinds:")
    return Finding(f"kind {quoted} is not known here", hint, ("kind",), code="ND1518")


def subject(value: Mapping[str, Any], kind: str, path: Sequence[str | int]) -> str:
    """How the object, or the step of it that a path leads to, is called in messages."""
    subject = f'{kind} "{_name(value)}"'
    if kind != NetworkTopology.__name__ or tuple(path[:2]) != ("spec", "steps") or len(path) < 3:
        return subject
    step: Any = value
    for part in path[:3]:  # which may lead through a field whose name is wrong
        if isinstance(step, list) and isinstance(part, int) and part < len(step):
            step = step[part]
        else:
            step = step.get(part) if isinstance(step, dict) else None
    named = step.get("name") if isinstance(step, dict) else None
    if isinstance(named, str):
        return f'{subject}, step "{named[:MAX_QUOTED]}"'
    return subject


def convert(value: Any, kind: type[T], origin: str) -> T:
    """A plain value as a type of the model.

    Raises:
        InvalidInputError: it does not fit; the text names the path.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as problem:
        raise InvalidInputError(f"{origin}: {reason(problem, kind)}", code="ND1519") from None
    except RecursionError:
        raise InvalidInputError(f"{origin}: nested too deeply", code="ND1520") from None


def fit(value: Any, kind: type[T], origin: str) -> T:
    """A part of an object as a type of the model, as `convert`, in words for the object's author.

    Raises:
        InvalidInputError: it does not fit; the text has the first reason, and the error its place in the value.
    """
    try:
        read, findings = fitted(value, kind)
    except RecursionError:
        raise InvalidInputError(f"{origin}: nested too deeply", code="ND1521") from None
    if read is None or findings:
        first = findings[0]
        is_named = bool(first.path) and first.what.startswith(("unknown field ", f"{first.path[-1]} "))
        shown = first.path[:-1] if is_named else first.path
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in shown).removeprefix(".")
        where = f"{origin}, {place}" if place else origin
        raise InvalidInputError(f"{where}: {first.what}", hint=first.hint, path=first.path, code=first.code)
    return read


def is_inventory(value: object) -> bool:
    """Whether a plain value is an inventory: it has interfaces, and no kind."""
    return isinstance(value, dict) and "interfaces" in value and "kind" not in value


def inventory_of(value: object, origin: str) -> Inventory:
    """A plain value as a node's inventory.

    Raises:
        InvalidInputError: it breaks the schema, or is of another version of the format.
    """
    try:
        converted = convert(value, Inventory, f"{origin}: inventory")
    except InvalidInputError as problem:
        raise InvalidInputError(problem.what, hint=RECORD, code=problem.code) from None
    if converted.api_version != INVENTORY_VERSION:
        raise InvalidInputError(
            f'{origin}: inventory of version "{converted.api_version}", expected "{INVENTORY_VERSION}"',
            hint="capture it with this version of netdra",
            code="ND1524",
        )
    return converted


def examine_inventory(value: Any) -> tuple[Finding, ...]:
    """The errors in a plain value as a node's inventory, unknown fields included."""
    inventory, findings = fitted(value, Inventory, strict=True)
    if inventory is not None and inventory.api_version != INVENTORY_VERSION:
        what = f'version "{inventory.api_version}" is not supported'
        hint = f"use {INVENTORY_VERSION}: capture it with this version of netdra"
        findings = (*findings, Finding(what, hint, ("apiVersion",), code="ND1525"))
    return tuple(msgspec.structs.replace(finding, what=f"inventory: {finding.what}") for finding in findings)


def plans(text: str, origin: str) -> list[Plan]:
    """Plans as they are printed in JSON or YAML, one or several a document; a NetworkTopology is not a plan.

    Raises:
        InvalidInputError: it is neither, or breaks the schema.
    """
    converted: list[Plan] = []
    try:
        for value in yaml_text.load(text, origin):
            listed = value.get("plans") if isinstance(value, dict) and "plans" in value else value
            for entry in listed if isinstance(listed, list) else [] if listed is None else [listed]:
                converted.append(convert(entry, Plan, f"{origin}: plan {len(converted) + 1}"))
    except InvalidInputError as problem:
        raise InvalidInputError(problem.what, hint=problem.hint or PLAN, code=problem.code) from None
    if not converted:
        raise InvalidInputError(f"{origin}: no plan", hint=PLAN, code="ND1526")
    return converted


def plain(value: Any) -> Any:
    """An object of the model as dicts, lists and scalars, as it is written to JSON or YAML."""
    return msgspec.to_builtins(value, str_keys=True)


def to_yaml(values: Any) -> str:
    """One object, or a list of them as several documents, as YAML in the model's field order, its kind first."""
    documents = values if isinstance(values, list | tuple) else [values]
    return yaml_text.dump(_kind_first(plain(value)) for value in documents)


def _kind_first(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: value[key] for key in ("apiVersion", "kind") if key in value} | value


def _called(value: Any) -> str:
    """How a value that is not an object is called in a message."""
    return {str: "a text", list: "a list", type(None): "nothing"}.get(type(value), ascii(value)[:MAX_QUOTED])


def list_items(value: Any) -> list[Any] | None:
    """The items of a `List` kind, or None for any other value.

    Raises:
        InvalidInputError: it is a list by its kind, and its items are not a list.
    """
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or not kind.endswith("List"):
        return None
    items = value.get("items")
    if items is None:
        return []
    if not isinstance(items, list):
        found = {dict: "an object", str: "text", bool: "true or false"}.get(type(items), "a number")
        what = f"kind {ascii(kind)[:MAX_QUOTED]}: expected a list of items, found {found}"
        raise InvalidInputError(what, hint="items of a list begin with dashes", code="ND1527")
    return items


def _items(value: Any, origin: str) -> Iterator[Any]:
    if value is None:
        return
    try:
        items = list_items(value)
    except InvalidInputError as problem:
        raise InvalidInputError(f"{origin}: {problem.what}", hint=problem.hint, code=problem.code) from None
    yield from [value] if items is None else items


def _name(value: Mapping[str, Any]) -> str:
    metadata = value.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return name[:MAX_QUOTED] if isinstance(name, str) else ""
