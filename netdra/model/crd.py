"""A kind of netdra as a CustomResourceDefinition: its type's schema, and beside it what only Kubernetes knows.

Called by `netdra crds`, which writes the definitions of `netdra.model.kinds` where the chart takes them from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from netdra.model import openapi
from netdra.model.names import GROUP

VERSION = "v1alpha1"
CATEGORY = "netdra"
"""What `kubectl get` takes for all of netdra's kinds at once."""

Extension = Mapping[str, Any]


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column of `kubectl get`; those with a priority above 0 show with `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0


AGE = Column(name="Age", type="date", path=".metadata.creationTimestamp")


class CustomKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind in its form for Kubernetes.

    Attributes:
        type: the type of its objects; its name is the kind.
        plural: the name in URLs and on the command line.
        short_names: what to type instead.
        columns: what `kubectl get` shows.
        extensions: path in the schema -> the additions there. `a.b` is a property, `[]` a list's items, `*` a map's
            values; nothing is the object itself.
        group: the API group.
        namespaced: whether its objects are in namespaces.
        selectable: paths of fields that lists and watches can be narrowed to (KEP-4358).
        has_subresource: whether the status is written apart from the object.
    """

    type: type
    plural: str
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]
    extensions: Mapping[str, Extension]
    group: str = GROUP
    namespaced: bool = False
    selectable: tuple[str, ...] = ()
    has_subresource: bool = True

    @property
    def name(self) -> str:
        """The name of the CustomResourceDefinition, and of its file."""
        return f"{self.plural}.{self.group}"


def rule(expression: str, message: str) -> Mapping[str, str]:
    """A CEL expression on the value at hand, `self`, and the message when it is broken."""
    return {"rule": expression, "message": message}


def rules(*several: Mapping[str, str]) -> Extension:
    """The rules for the present value."""
    return {"x-kubernetes-validations": [dict(one) for one in several]}


def by(key: str) -> Extension:
    """A list of objects as a map: no two have the same key, and two writers can each own entries of their own."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


def keys_match(pattern: str, what: str) -> Extension:
    """A map whose keys all match."""
    return rules(rule(f"self.all(name, name.matches('{pattern}'))", what))


def manifest(kind: CustomKind) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind, as plain data.

    Raises:
        KeyError: an extension's path leads nowhere in the type.
    """
    schema = openapi.schema_of(kind.type)
    _keep_as_written(schema["properties"].get("spec", {}))
    for path, extension in kind.extensions.items():
        _at(schema, path).update(extension)
    name = kind.type.__name__
    status: dict[str, Any] = {"subresources": {"status": {}}} if kind.has_subresource else {}
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        **status,
        "additionalPrinterColumns": [_column(column) for column in (*kind.columns, AGE)],
    }
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    spec = {
        "group": kind.group,
        "names": {
            "kind": name,
            "listKind": f"{name}List",
            "plural": kind.plural,
            "singular": name.lower(),
            "shortNames": list(kind.short_names),
            "categories": [CATEGORY],
        },
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "versions": [version],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.name} | _annotations(kind.group),
        "spec": spec,
    }


def _annotations(group: str) -> dict[str, Any]:
    """The API server accepts kinds of Kubernetes' own groups only if they state whether the API review is done."""
    if not group.endswith((".k8s.io", ".kubernetes.io")):
        return {}
    return {
        "annotations": {"api-approved.kubernetes.io": "unapproved, a proposal's group, used by netdra as it stands"}
    }


def _column(column: Column) -> dict[str, Any]:
    printed = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return printed | ({"priority": column.priority} if column.priority else {})


def _keep_as_written(schema: openapi.Schema) -> None:
    """Have the server keep objects that an author may write as {}: it adds no defaults, and applies them as a whole.

    Otherwise server-side apply of {} to an object that has fields leaves null, which the server rejects
    (kubernetes/kubernetes#104694).
    """
    may_be_empty = not schema.get("required")
    for name, field in schema.get("properties", {}).items():
        if may_be_empty:
            field.pop("default", None)
        if field.get("type") == "object" and name not in schema.get("required", ()) and not field.get("required"):
            field["x-kubernetes-map-type"] = "atomic"
        _keep_as_written(field)
    for word in {"items", "additionalProperties"} & schema.keys():
        _keep_as_written(schema[word])


def _at(schema: openapi.Schema, path: str) -> openapi.Schema:
    inner = schema
    for part in path.replace("[]", ".[]").split(".") if path else ():
        if part == "[]":
            inner = inner["items"]
        elif part == "*":
            inner = inner["additionalProperties"]
        else:
            inner = inner["properties"][part]
    return inner
