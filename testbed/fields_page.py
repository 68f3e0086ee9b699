"""Writes docs/fields.md, every field of netdra's kinds: `python -m testbed.fields_page` prints it.

Called by `make docs`; a test compares the page with the chart's CustomResourceDefinitions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed import yaml

CRDS = Path(__file__).parents[1] / "charts" / "netdra" / "files" / "crds"
_HEAD = """\
# Fields of all kinds

<!-- Written by `make docs` from the CustomResourceDefinitions. Do not edit. -->

Each table lists the fields of a kind with type and meaning; `[]` is a list, `{}` a map. `*` marks a required field.
`kubectl explain` shows the same texts.
"""

Schema = dict[str, Any]


def page() -> str:
    """The page."""
    definitions = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in CRDS.glob("*.yaml")]
    definitions.sort(key=lambda definition: str(definition["spec"]["names"]["kind"]))
    return "\n".join([_HEAD, *(line for definition in definitions for line in _kind(definition))])


def _kind(definition: Schema) -> Iterator[str]:
    spec = definition["spec"]
    names, version = spec["names"], spec["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    short = ", ".join(f"`{name}`" for name in names.get("shortNames", ()))
    yield from (f"## {names['kind']}", "")
    scope = "in a namespace" if spec["scope"] == "Namespaced" else "of the cluster"
    known_as = f"; short name {short}" if short else ""
    yield f"`{spec['group']}/{version['name']}`, an object {scope}{known_as}. {schema['description']}"
    yield from ("", "| field | type | meaning |", "| --- | --- | --- |")
    for name in ("spec", "status"):
        if name in schema["properties"]:
            yield from _rows(name, schema["properties"][name], required=name in schema.get("required", ()))
    yield ""


def _rows(path: str, schema: Schema, *, required: bool) -> Iterator[str]:
    kind, inner, suffix = _type(schema)
    meaning = " ".join(str(schema.get("description", "")).split()).replace("|", "\\|")
    yield f"| `{path}`{'*' if required else ''} | {kind} | {meaning} |"
    needed = inner.get("required", ())
    for name, field in inner.get("properties", {}).items():
        yield from _rows(f"{path}{suffix}.{name}", field, required=name in needed)


def _type(schema: Schema) -> tuple[str, Schema, str]:
    """The name of a type, the schema that has its fields, and the suffix of a path that leads to them."""
    if schema.get("type") == "array":
        kind, inner, suffix = _type(schema["items"])
        return f"[]{kind}", inner, f"[]{suffix}"
    if isinstance(values := schema.get("additionalProperties"), dict):
        kind, inner, suffix = _type(values)
        return f"map of {kind}", inner, f"{{}}{suffix}"
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string", schema, ""
    if "enum" in schema:
        return " \\| ".join(f"`{value}`" for value in schema["enum"] if value != ""), schema, ""
    return str(schema.get("type", "any")), schema, ""


if __name__ == "__main__":
    sys.stdout.write(page())
