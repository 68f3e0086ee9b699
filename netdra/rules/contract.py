"""A CNIPluginSchema compiled to a `Contract`, by which configs and graphs are checked.

`compile_schema` refuses schemas that contradict themselves, so that the checks (`config`, `flow`) can
rely on them. Called with netdra's own schemas by `shipped`, with the cluster's by the webhook and `netdra validate`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from netdra.model.documents import convert
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding, Path, quoted, refuse
from netdra.model.schema import CNIPluginSchema, Format, Parameter, PluginInput, PluginOutput, Property

MAX_DEPTH = 8

Kind = Literal["string", "integer", "number", "boolean", "object", "any", "list", "map", "either"]
_SCALARS: dict[str, Kind] = {
    "string": "string",
    "integer": "integer",
    "int": "integer",
    "number": "number",
    "boolean": "boolean",
    "bool": "boolean",
    "object": "object",
    "any": "any",
}
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The values that are valid: a compiled property.

    Attributes:
        text: the type as it is written.
        kind: how the value is built; `either` has its alternatives in `parts`, `list` and `map` their element there.
        properties: an object's values; `closed` rejects others.
        format: the kind of name that a text, or each text of a list, is; among alternatives it is for those that are
            texts.
    """

    text: str
    kind: Kind
    parts: tuple[Shape, ...] = ()
    properties: Mapping[str, Shape] = {}
    closed: bool = False
    format: Format = ""
    enum: tuple[Any, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    min_items: int | None = None
    max_items: int | None = None


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin's contract; only `compile_schema` makes one.

    Attributes:
        schema: the CNIPluginSchema's name, for errors.
        cni_type: the plugin's name.
        plugin: the key by which its steps are looked up (`netdra.model.topology.Step.plugin`).
        parameters: the config's keys and their values' shapes, without aliases.
        names: every key that is accepted, aliases included, and the parameter that it stands for.
        required: the parameters that must be there.
        closed: whether other keys are rejected.
        defaults: the values that the plugin takes for missing keys.
        input: what it needs from the results before it.
        output: what it makes.
    """

    schema: str
    cni_type: str
    plugin: str
    parameters: Mapping[str, Shape]
    names: Mapping[str, str]
    required: tuple[str, ...]
    closed: bool
    defaults: Mapping[str, Any]
    input: PluginInput
    output: PluginOutput


def compile_schema(schema: CNIPluginSchema) -> Contract:
    """A schema's contract.

    Raises:
        InvalidInputError: the schema contradicts itself; the text states everything that is wrong with it.
    """
    contract, findings = examine(schema)
    refuse(findings)
    return contract


def examine(schema: CNIPluginSchema) -> tuple[Contract, tuple[Finding, ...]]:
    """A schema's contract, and all that is wrong with the schema; with any finding, the contract is not to be used."""
    spec = schema.spec
    shapes: dict[str, Shape] = {}
    names: dict[str, str] = {}
    findings: list[Finding] = []
    for place, parameter in _parameters(schema):
        path: Path = ("spec", "configParameters", *place)
        findings += [
            _about(schema, f"{quoted(key)} {problem}", path)
            for key in (parameter.name, *parameter.aliases)
            if (problem := _unfit_key(key, names))
        ]
        names |= dict.fromkeys((parameter.name, *parameter.aliases), parameter.name)
        try:
            shapes[parameter.name] = _shape(parameter, parameter.name, 0)
        except InvalidInputError as problem:
            findings.append(_about(schema, problem.what, path))
    limits = spec.input.prev_result.interfaces
    if limits.max_items is not None and limits.max_items < limits.min_items:
        path = ("spec", "input", "prevResult", "interfaces")
        findings.append(_about(schema, f"minItems {limits.min_items} is more than maxItems {limits.max_items}", path))
    contract = Contract(
        schema=schema.metadata.name,
        cni_type=spec.cni_type,
        plugin=spec.plugin,
        parameters=shapes,
        names=names,
        required=tuple(parameter.name for parameter in spec.config_parameters.required),
        closed=not spec.config_parameters.additional_parameters,
        defaults={
            parameter.name: parameter.default for _, parameter in _parameters(schema) if parameter.default is not None
        },
        input=spec.input,
        output=spec.output,
    )
    return contract, tuple(findings)


def _about(schema: CNIPluginSchema, what: str, path: Path) -> Finding:
    return Finding(what=f'CNIPluginSchema "{schema.metadata.name}": {what}', path=path, code="ND1068")


def _parameters(schema: CNIPluginSchema) -> Iterator[tuple[Path, Parameter]]:
    parameters = schema.spec.config_parameters
    yield from ((("required", at), parameter) for at, parameter in enumerate(parameters.required))
    yield from ((("optional", at), parameter) for at, parameter in enumerate(parameters.optional))


def _unfit_key(key: str, names: Mapping[str, str]) -> str:
    if _NAME.match(key) is None:
        return "is not a configuration key"
    return "appears twice" if key in names else ""


def _shape(value: Property, where: str, depth: int) -> Shape:
    """A property compiled.

    Raises:
        InvalidInputError: its type is unknown, or its other fields do not go with it.
    """
    if depth > MAX_DEPTH:
        raise InvalidInputError(f"{where}: properties are nested deeper than {MAX_DEPTH}", code="ND1069")
    built = _typed(value.type, value, where, depth)
    shape = msgspec.structs.replace(
        built,
        format=value.format,
        enum=value.enum,
        minimum=value.minimum,
        maximum=value.maximum,
        min_items=value.min_items,
        max_items=value.max_items,
    )
    _check(shape, value, where)
    return shape


def _typed(text: str, value: Property, where: str, depth: int) -> Shape:
    """The shape of a type's text alone, with `items` and `properties` for its innermost part."""
    if depth > MAX_DEPTH:
        raise InvalidInputError(f"{where}: types are nested deeper than {MAX_DEPTH}", code="ND1070")
    text = text.strip()
    alternatives = _alternatives(text)
    if len(alternatives) > 1:
        parts = [_typed(part, value, where, depth + 1) for part in alternatives]
        return Shape(text=text, kind="either", parts=tuple(parts))
    if text.startswith("(") and text.endswith(")"):
        if "(" in text[1:]:
            raise InvalidInputError(
                f"{where}: type {quoted(text)}: parentheses are only allowed around alternatives", code="ND1071"
            )
        return _typed(text[1:-1], value, where, depth + 1)
    for prefix, kind in (("[]", "list"), ("map[string]", "map")):
        if text.startswith(prefix) and not text.removeprefix(prefix)[:1].isspace():
            return Shape(text=text, kind=kind, parts=(_element(text.removeprefix(prefix), value, where, depth),))  # type: ignore[arg-type]
    if text not in _SCALARS:
        raise InvalidInputError(
            f"{where}: type {quoted(text)} is unknown; types: {', '.join(sorted(_SCALARS))}, and []… "
            "and map[string]… of them, and alternatives such as [](string | object)",
            code="ND1072",
        )
    if text != "object":
        return Shape(text=text, kind=_SCALARS[text])
    properties = {
        key: _shape(_nested(inner, f"{where}.{key}"), f"{where}.{key}", depth + 1)
        for key, inner in value.properties.items()
    }
    return Shape(
        text=text,
        kind="object",
        properties=properties,
        closed=bool(properties) and not value.additional_properties,
    )


def _alternatives(text: str) -> list[str]:
    """The parts of a type's text between each `|` outside of parentheses."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        if sign == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def _element(text: str, value: Property, where: str, depth: int) -> Shape:
    """The shape of a list's or map's elements: `items` if there are any, else the fields of the whole."""
    inner = Property(properties=value.properties, additional_properties=value.additional_properties)
    if value.items is not None:
        inner = _nested(value.items, f"{where}.items")
    if inner.type not in {"", text}:
        raise InvalidInputError(
            f"{where}.items: type {quoted(inner.type)} does not match the type of the list, {quoted(text)}",
            code="ND1073",
        )
    return _shape(msgspec.structs.replace(inner, type=text), where, depth + 1)


def _nested(value: Any, where: str) -> Property:
    return convert(value, Property, where)


_SUITED: dict[str, tuple[Kind, ...]] = {
    "minimum": ("integer", "number"),
    "maximum": ("integer", "number"),
    "min_items": ("list",),
    "max_items": ("list",),
}


def _texts(shape: Shape) -> bool:
    """Whether a shape is texts or lists of them; objects beside them do not matter, which have formats of their own."""
    if shape.kind == "either":
        others = [part for part in shape.parts if part.kind != "object"]
        return bool(others) and all(map(_texts, others))
    return _texts(shape.parts[0]) if shape.kind == "list" else shape.kind == "string"


def _check(shape: Shape, value: Property, where: str) -> None:
    """Refuse limits that belong to another type, or that no value can meet."""
    kinds = {part.kind for part in shape.parts} if shape.kind == "either" else {shape.kind}
    for field, suited in _SUITED.items():
        if getattr(shape, field) is not None and not kinds.intersection(suited):
            raise InvalidInputError(
                f"{where}: type {quoted(value.type)} does not support {field.replace('_i', 'I')}", code="ND1074"
            )
    if shape.format and not _texts(shape):
        raise InvalidInputError(f"{where}: type {quoted(value.type)} does not support format", code="ND1075")
    for least, most in ((shape.minimum, shape.maximum), (shape.min_items, shape.max_items)):
        if least is not None and most is not None and least > most:
            raise InvalidInputError(f"{where}: the minimum {least} is more than the maximum {most}", code="ND1076")
    if value.default is not None and shape.enum and value.default not in shape.enum:
        raise InvalidInputError(f"{where}: the default is not one of the enum's values", code="ND1077")
