"""A plain object against its kind's CustomResourceDefinition: values that the API server refuses by the schema alone.

Called by `netdra validate`. Pure. Types and fields are `netdra.model.reasons`' business, and the CEL rules of a schema
are those of the kind's own check. Patterns are RE2's: they know ASCII alone, and `$` is the end of the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from netdra.model import crd, kinds, names, quantity
from netdra.model.findings import Finding, Path
from netdra.model.openapi import Schema
from netdra.model.reasons import MAX_FINDINGS

_MAX_QUOTED = 80
_PLUGIN = re.compile(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?\Z")
_LENGTHS: tuple[tuple[str, str, type[str | list[Any] | dict[Any, Any]], str], ...] = (
    ("minLength", "maxLength", str, "characters"),
    ("minItems", "maxItems", list, "entries"),
    ("minProperties", "maxProperties", dict, "entries"),
)


def findings(value: Any) -> list[Finding]:
    """The errors in an object by its kind's schema; nothing if the kind is not netdra's own."""
    schema = _schema(str(value.get("kind"))) if isinstance(value, dict) else None
    if schema is None:
        return []
    found: list[Finding] = []
    for part in ("metadata", "spec"):
        for finding in _findings(value.get(part), schema["properties"].get(part, {}), (part,)):
            if len(found) < MAX_FINDINGS:
                found.append(finding)
    return [*found, *_of_plugin(value), *_of_pod_network(value)]


def _of_plugin(value: dict[str, Any]) -> Iterator[Finding]:
    """The CEL rules in the definition of CNIPlugins."""
    spec, metadata = value.get("spec"), value.get("metadata")
    if value["kind"] != kinds.CNI_PLUGIN.type.__name__ or not isinstance(spec, dict) or not isinstance(metadata, dict):
        return
    name = metadata.get("name")
    if isinstance(name, str) and not _PLUGIN.match(name):
        rule = "the object's name is the plugin's: up to 52 of a-z, 0-9 and -, letters or digits at both ends"
        yield Finding(f"{_text(name)} is not a valid plugin name", rule, ("metadata", "name"), code="ND1506")
    for field in ("binaryPath", "schemaPath"):
        path = spec.get(field)
        if isinstance(path, str) and not {".", ".."}.isdisjoint(path.split("/")):
            yield Finding(
                f"{_text(path)} has . or .. in it", f"write {field} without them", ("spec", field), code="ND1507"
            )


def _of_pod_network(value: dict[str, Any]) -> Iterator[Finding]:
    """The CEL rule on the names of PodNetworks, as far as all objects' names follow it."""
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if value["kind"] != kinds.POD_NETWORK.type.__name__ or not isinstance(name, str):
        return
    if "." in name or len(name) > names.MAX_LABEL:
        rule = f"the object's name is the network's, as steps write it: at most {names.MAX_LABEL} of a-z, 0-9 and -"
        yield Finding(f"{_text(name)} is not a valid name of a PodNetwork", rule, ("metadata", "name"), code="ND1508")


_SENTENCE = re.compile(r"(?<!e\.g)\. ")
_ENDS = "letters or digits at both ends"
_RULES: Mapping[str, str] = {
    kinds.LABEL["pattern"]: f"a DNS label: up to 63 of a-z, 0-9 and -, {_ENDS}",
    kinds.SUBDOMAIN["pattern"]: f"a DNS subdomain: a-z, 0-9, - and ., {_ENDS}",
    kinds.PLUGIN_NAME["pattern"]: "a plugin's name, e.g. macvlan: letters, digits, -, _ and ., no path",
    kinds.PCI_ADDRESS["pattern"]: "a PCI address, e.g. 0000:3b:00.1",
    kinds.PARAMETER_NAME["pattern"]: "letters, digits, -, _ and .",
    kinds.IMAGE[
        "pattern"
    ]: "an image, e.g. registry.example.com/ovs-cni:v1.2.0: no scheme, no blanks, lower-case paths, "
    "a digest of 64 hexadecimal digits",
    kinds.BINARY_PATH["pattern"]: "an absolute path of a file, e.g. /usr/bin/ovs",
    kinds.SCHEMA_PATH["pattern"]: "an absolute path of a file, e.g. /usr/share/ovs/schema.yaml",
    kinds.DIGEST["pattern"]: "64 hexadecimal digits in lower case, with or without sha256: before them",
    kinds.NODES["pattern"]: "a number from 1, without quotes, or a percentage from 1% to 100%",
    f"^{quantity.PATTERN}$": "a quantity, e.g. 64, 10Gi or 500m",
}
"""What the patterns of the definitions ask for; RE2's syntax helps no author."""
_MUST = "must be"
"""Before a rule in words, which needs no hint."""


@cache
def _schema(name: str) -> Schema | None:
    """The schema of a kind of netdra; each takes some milliseconds, and most inputs have few kinds."""
    for kind in kinds.KINDS:
        if kind.type.__name__ == name:
            schema: Schema = crd.manifest(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            return schema
    return None


def _findings(value: Any, schema: Schema, path: Path) -> Iterator[Finding]:
    if value is None:
        return
    what = _broken(value, schema)
    if what:
        is_clear = _MUST in what
        yield Finding(what, "" if is_clear else _described(path[-1], schema), path, code="ND1509")
    if isinstance(value, dict):
        inner = schema.get("properties", {})
        others = schema.get("additionalProperties", {})
        for key, entry in value.items():
            yield from _findings(entry, inner.get(key, others), (*path, key))
    elif isinstance(value, list):
        yield from _repeated(value, schema, path)
        for at, entry in enumerate(value):
            yield from _findings(entry, schema.get("items", {}), (*path, at))


def _broken(value: Any, schema: Schema) -> str:
    """The first rule for one value that it breaks, or ""."""
    quoted = _text(value)
    if isinstance(value, str) and not _matches(schema.get("pattern", ""), value):
        rule = _RULES.get(schema["pattern"])
        return f"{quoted} {_MUST} {rule}" if rule else f"{quoted} does not match {schema['pattern']}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{quoted} is not supported; supported: {', '.join(map(_text, schema['enum']))}"
    if isinstance(value, int | float) and not isinstance(value, bool) and (what := _out_of_range(value, schema)):
        return f"{quoted} {what}"
    for least, most, kind, unit in _LENGTHS:
        if isinstance(value, kind):
            if len(value) < schema.get(least, 0):
                return f"{len(value)} {unit}; at least {schema[least]} are required"
            if len(value) > schema.get(most, len(value)):
                return f"{len(value)} {unit}; at most {schema[most]} are supported"
    return ""


def _out_of_range(value: float, schema: Schema) -> str:
    if schema.get("type") == "integer" and isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "does not fit into 64 bits"
    if value < schema.get("minimum", value):
        return f"is less than the minimum, {schema['minimum']}"
    return f"is more than the maximum, {schema['maximum']}" if value > schema.get("maximum", value) else ""


def _described(field: str | int, schema: Schema) -> str:
    """The purpose of a field: the first sentence of its description."""
    description = schema.get("description", "")
    return f"{field}: {_SENTENCE.split(description)[0].removesuffix('.')}" if description else ""


def _matches(pattern: str, value: str) -> bool:
    whole = f"{pattern[:-1]}\\Z" if pattern.endswith("$") else pattern
    return re.search(whole, value, re.ASCII) is not None


def _repeated(value: list[Any], schema: Schema, path: Path) -> Iterator[Finding]:
    """Entries of a set, or keys of a list that is a map, that are there twice."""
    keys = schema.get("x-kubernetes-list-map-keys")
    if keys is None and schema.get("x-kubernetes-list-type") != "set":
        return
    seen: set[str] = set()
    for at, entry in enumerate(value):
        key_values = [entry.get(key) for key in keys] if keys and isinstance(entry, dict) else entry
        text = json.dumps(key_values, sort_keys=True)
        if text in seen:
            place = (*path, at, keys[0]) if keys else (*path, at)
            yield Finding(
                f"{_text(key_values[0] if keys else key_values)} is listed twice",
                "remove one of them",
                place,
                code="ND1510",
            )
        seen.add(text)


def _text(value: Any) -> str:
    return f'"{ascii(value[:_MAX_QUOTED])[1:-1]}"' if isinstance(value, str) else ascii(value)[:_MAX_QUOTED]
