"""The model's types as structural OpenAPI v3 schemas, the form that CustomResourceDefinitions take.

Called by `netdra.model.crd`. Bounds, enums and defaults come from the types, descriptions from `msgspec.Meta` or from
the `Attributes:` section of the type's docstring, so that `kubectl explain` states what the code states. A field that
without a description is an error: the schema is documentation.

Follows the rules for structural schemas of k8s.io/apiextensions-apiserver: no `$ref`, a type at every level, no union
but of integer and string.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
import msgspec.inspect as mi

from netdra.model.meta import ObjectMeta
from netdra.model.structure import structure_of

Schema = dict[str, Any]
FREE: Schema = {"x-kubernetes-preserve-unknown-fields": True}
_ATTRIBUTE = re.compile(r"(\w+): (.*)")


def schema_of(kind: type) -> Schema:
    """The schema of an object of that type.

    Raises:
        TypeError: the type has a part that a structural schema cannot express, or a field without a description.
    """
    return _schema(structure_of(kind))


def _schema(kind: mi.Type) -> Schema:
    match kind:
        case mi.Metadata():
            # A description at the type serves its elements; a field's own comes from the field.
            return _schema(kind.type) | (kind.extra_json_schema or {})
        case mi.StructType():
            return _object(kind)
        case mi.UnionType():
            return _union(kind)
        case mi.DictType():
            values = {"type": "object", "additionalProperties": _schema(kind.value_type)}
            return values | _bounds(kind, {"min_length": "minProperties", "max_length": "maxProperties"})
        case mi.VarTupleType() | mi.ListType():
            items = {"type": "array", "items": _schema(kind.item_type)}
            return items | _bounds(kind, {"min_length": "minItems", "max_length": "maxItems"})
        case mi.AnyType():
            return dict(FREE)
    return _scalar(kind)


def _scalar(kind: mi.Type) -> Schema:
    match kind:
        case mi.LiteralType():
            return {"type": "string", "enum": list(kind.values)}
        case mi.BoolType():
            return {"type": "boolean"}
        case mi.StrType():
            return {"type": "string"} | _bounds(
                kind, {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"}
            )
        case mi.IntType():
            return {"type": "integer", "format": "int64"} | _bounds(kind, {"ge": "minimum", "le": "maximum"})
    raise TypeError(f"a structural schema does not support {kind}")


def _bounds(kind: mi.Type, names: Mapping[str, str]) -> Schema:
    values = {theirs: getattr(kind, field_name) for field_name, theirs in names.items()}
    return {name: value for name, value in values.items() if value is not None}


def _union(union: mi.UnionType) -> Schema:
    """`X | None` is an optional X, `str | int` is int-or-string; the API server cannot check any other union."""
    members = [member for member in union.types if not isinstance(member, mi.NoneType)]
    if len(members) == 1:
        return _schema(members[0])
    if {type(member) for member in members} == {mi.StrType, mi.IntType}:
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    return dict(FREE)


def _object(struct: mi.StructType) -> Schema:
    summary, described = _documentation(struct.cls)
    properties = {field.encode_name: _property(struct.cls, field, described) for field in struct.fields}
    required = [field.encode_name for field in struct.fields if field.required]
    schema: Schema = {"type": "object", "description": summary, "properties": properties}
    return schema | ({"required": required} if required else {})


def _property(owner: type, field: mi.Field, described: Mapping[str, str]) -> Schema:
    if isinstance(field.type, mi.StructType) and field.type.cls is ObjectMeta:
        return {"type": "object"}
    if field.name not in described and field.name in _TYPE_META:
        return {"type": "string", "description": _TYPE_META[field.name]}
    if field.name not in described:
        raise TypeError(f"{owner.__qualname__}.{field.name}: describe it under Attributes: in the docstring")
    # Absent and empty are equal in the model, so only a default with a value is written into objects.
    default = None if field.default is msgspec.NODEFAULT else msgspec.json.decode(msgspec.json.encode(field.default))
    description = " ".join(filter(None, (described[field.name], _default_text(default))))
    return _schema(field.type) | ({"default": default} if default else {}) | {"description": description}


def _default_text(default: Any) -> str:
    """A scalar default in words, also one that the server does not write into objects; of others the text states it."""
    if default is None or default == "" or isinstance(default, list | dict):
        return ""
    return f"Default: `{default if isinstance(default, str) else json.dumps(default)}`."


# Which version and kind it may be is the server's business.
_TYPE_META = {
    "api_version": "The versioned schema of this object.",
    "kind": "The kind of this object.",
}


@cache
def _documentation(owner: type) -> tuple[str, Mapping[str, str]]:
    """A docstring's text before its `Attributes:` section, and that section by field, with those of the bases."""
    described: dict[str, str] = {}
    for base in reversed(owner.__bases__):
        described |= _documentation(base)[1] if issubclass(base, msgspec.Struct) else {}
    text, _, attributes = (inspect.getdoc(owner) or "").partition("\n\nAttributes:\n")
    name = ""
    for line in inspect.cleandoc(attributes).splitlines():
        if started := _ATTRIBUTE.match(line):
            name = started[1]
            described[name] = started[2]
        else:
            described[name] = f"{described[name]} {line.strip()}"
    return _flowing(text), described


def _flowing(text: str) -> str:
    """Paragraphs whose lines are joined: where they break is the reader's business."""
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in text.split("\n\n"))
