"""A step's config against its plugin's contract: keys, types, enums, ranges, nested values, references.

Called by `schemas` for every step whose plugin has a contract. It complains in the words of the schema, with
the key or value that was probably meant.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from netdra.model import suggestions, texts
from netdra.model.findings import Finding, Path, dotted, quoted
from netdra.model.schema import WRITTEN, CNIPluginSchema
from netdra.rules.contract import Contract, Shape, examine
from netdra.topology import references
from netdra.topology.references import Reference
from netdra.topology.values import ConfigError

COMMON = frozenset({"name", "ipam", "dns", "runtimeConfig", "capabilities", "args", "deviceID"})
"""Keys that every plugin may be given: CNI's own, and the name of the interface (decision D8)."""

_STRING = Shape(text="string", kind="string")
_NEVER_EMPTY = frozenset({"cidr", "mac"})
_LIKE = 0.7
# The names that iproute2, netplan and the kernel have for parameters that have other names here.
_ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("slaves", "members", "ports", "interfaces"), ("links",)),
    **dict.fromkeys(("via", "nexthop"), ("gateway", "gw")),
    **dict.fromkeys(("to", "network", "prefix"), ("destination", "dst")),
    **dict.fromkeys(("link", "parent", "lower"), ("master",)),
    **dict.fromkeys(("vlan", "vid", "tag"), ("id",)),
    **dict.fromkeys(("ip", "ips", "cidr"), ("addresses",)),
    **dict.fromkeys(("hwaddr", "macAddress", "lladdr"), ("mac",)),
}
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def check_config(config: Mapping[str, Any], contract: Contract, supplied: str = "") -> Iterator[Finding]:
    """The errors in a config; references are resolved nowhere, only allowed where a string may stand.

    Args:
        config: as the topology's author wrote it.
        contract: the plugin's.
        supplied: a parameter that netdra will fill in, so its absence is not a mistake.
    """
    prefix = f'CNIPluginSchema "{contract.schema}"'
    given: dict[str, str] = {}
    for key, value in config.items():
        parameter = contract.names.get(key)
        if parameter is None:
            if contract.closed and key not in COMMON:
                yield Finding(
                    f"{prefix} does not accept parameter {quoted(key)}.",
                    guess(key, contract.names),
                    (key,),
                    code="ND1035",
                )
            continue
        if value is None:
            continue  # as if it were not there
        if parameter in given:
            what = f'{prefix} accepts "{given[parameter]}" and "{key}" for the same setting; only one can be set.'
            yield Finding(what, path=(key,), code="ND1036")
        given[parameter] = key
        for finding in _value(value, contract.parameters[parameter], (key,)):
            yield msgspec.structs.replace(finding, what=f"{prefix} {finding.what}")
    for name in contract.required:
        if name not in given and name != supplied:
            yield Finding(f'{prefix} requires parameter "{name}".', code="ND1037")


def guess(word: str, words: Iterable[str]) -> str:
    """`Did you mean …?` for an unknown word, or all known words where none is like it."""
    names = sorted(words)
    meant = (name for name in _ELSEWHERE.get(word, ()) if name in names)
    meant_key = next(meant, "") or suggestions.closest(word, names, _LIKE) or _alike(word, names)
    if meant_key:
        return f'Did you mean "{meant_key}"?'
    return f"Known: {', '.join(names)}." if names else ""


def _alike(word: str, names: list[str]) -> str:
    """The name that has most of a word's words, or ""."""
    if len(word) > suggestions.MAX_WORD:
        return ""
    shared = {name: len(_words(name) & _words(word)) / len(_words(name) | _words(word) | {""}) for name in names}
    best = max(names, key=lambda name: shared[name], default="")
    return best if shared.get(best) else ""


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORDS.findall(name)}


def _value(value: Any, shape: Shape, path: Path) -> Iterator[Finding]:
    if value is None or shape.kind == "any":
        return
    if isinstance(value, str) and "{{" in value:
        yield from _reference(value, shape, path)
        return
    if shape.kind == "either":
        attempts = [list(_value(value, part, path)) for part in shape.parts]
        if all(attempts):
            near = [findings for findings, part in zip(attempts, shape.parts, strict=True) if _is(value, part)]
            yield from near[0] if len(near) == 1 else [_mismatch(value, shape, path)]
            return
    elif not _is(value, shape):
        yield _mismatch(value, shape, path)
        return
    yield from _limits(value, shape, path)
    yield from _written(value, shape, path)
    yield from _inside(value, shape, path)


def _reference(text: str, shape: Shape, path: Path) -> Iterator[Finding]:
    """The errors in a text with references, as far as their fields show what it will be.

    `graph` reports texts that are not references, and references to steps that are not there.
    """
    kinds = {shape.kind, *(part.kind for part in shape.parts if shape.kind == "either")}
    try:
        parts = references.parse(text)
    except ConfigError:
        return
    whole = parts[0] if len(parts) == 1 and isinstance(parts[0], Reference) else None
    if whole is not None and whole.is_list:
        if not _takes(shape, "object" if whole.field == "interfaces" else "string"):
            element = "interfaces" if whole.field == "interfaces" else "strings"
            what = f"expects parameter {_called(path)} to be {shape.text}, but {whole} is a list of {element}."
            hint = f'Use "{{{{ {whole.step}.interfaceName }}}}".' if whole.field == "interfaces" else ""
            yield Finding(what, hint, path, code="ND1038")
        return
    if whole is not None and whole.fact is not None and whole.fact.kind != "text":
        yield from _typed(whole, whole.fact.kind, shape, kinds, path)
    elif "string" not in kinds:
        yield _no_text(text, parts, shape, path)
    else:
        yield from _written_by(text, parts, shape, path)


def _typed(whole: Reference, kind: str, shape: Shape, kinds: Collection[str], path: Path) -> Iterator[Finding]:
    """A reference to a fact of another type than text, which keeps its type; of one of unknown type, nothing."""
    if kind == "any" or kind in kinds or (kind == "integer" and "number" in kinds):
        return
    what = f"expects parameter {_called(path)} to be {shape.text}, but {whole} is {whole.described}."
    hint = "Add text beside it, or refer to a fact that is text." if "string" in kinds else _ADD
    yield Finding(what, hint, path, code="ND1039")


_ADD = "A policy's additionalAttributes can add an attribute of this type to devices."


def _no_text(text: str, parts: Sequence[str | Reference], shape: Shape, path: Path) -> Finding:
    """A text with references where no text may stand."""
    what = f"expects parameter {_called(path)} to be {shape.text}; a reference is always a string."
    hint = f'Use {{name: "{text}"}}.' if "name" in shape.properties else ""
    of_facts = [part for part in parts if isinstance(part, Reference) and part.fact is not None]
    if of_facts and len(parts) == 1:
        what = f"expects parameter {_called(path)} to be {shape.text}, but {of_facts[0]} is {of_facts[0].described}."
        hint = hint or _ADD
    elif of_facts:
        hint = hint or f"Use a single reference, to a fact that is {shape.text}, as the whole value."
    return Finding(what, hint, path, code="ND1040")


def _written_by(text: str, parts: Sequence[str | Reference], shape: Shape, path: Path) -> Iterator[Finding]:
    """A text with references that cannot have the parameter's format or words, with any values of the references."""
    whole = parts[0] if len(parts) == 1 and isinstance(parts[0], Reference) else None
    samples = references.samples(parts)
    sample = samples[0]
    form = WRITTEN.get(shape.format, "")
    if form and not any(texts.fits(example, form) for example in samples):
        what = f"expects parameter {_called(path)} to be {texts.EXPECTED[form]}, found {quoted(text)}"
        what += f", which is {whole.described}." if whole is not None else f", as in {quoted(sample)}."
        lacks = form == "cidr" and any(texts.fits(f"{example}/24", form) for example in samples)
        yield Finding(what, f'Add the prefix length: "{text}/24".' if lacks else "", path, code="ND1041")
    elif shape.enum and len(samples) == 1 and sample not in shape.enum:
        what = f"does not accept {quoted(text)} for parameter {_called(path)}, which has a fixed set of values."
        yield Finding(what, f"Known: {', '.join(map(str, shape.enum))}.", path, code="ND1042")


def _takes(shape: Shape, element: str) -> bool:
    """Whether a list of such elements may stand in a shape's place; objects are interfaces, which have a name."""
    lists = (
        part for part in (shape, *shape.parts) if part.kind == "list" and (part is shape or shape.kind == "either")
    )
    for choice in lists:
        inner = choice.parts[0]
        elements = (inner, *(part for part in inner.parts if inner.kind == "either"))
        kinds = {part.kind for part in elements if element != "object" or _may_be_interface(part)}
        if "any" in kinds or (element in kinds and not (element == "string" and WRITTEN.get(inner.format))):
            return True
    return False


def _may_be_interface(shape: Shape) -> bool:
    return shape.kind != "object" or not shape.properties or "name" in shape.properties


def _is(value: Any, shape: Shape) -> bool:
    match shape.kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "list":
            return isinstance(value, list | tuple)
    return isinstance(value, dict)


def mistyped(schema: CNIPluginSchema) -> Iterator[Finding]:
    """The defaults and the words of a sound schema's parameters that are of another type than the parameter."""
    shapes = examine(schema)[0].parameters
    config = schema.spec.config_parameters
    for part, parameters in (("required", config.required), ("optional", config.optional)):
        for at, parameter in enumerate(parameters):
            shape = shapes[parameter.name]
            given = [("default", parameter.default)] if parameter.default is not None else []
            for field, value in (*given, *(("enum", choice) for choice in parameter.enum)):
                if not _of_type(value, shape):
                    shown = msgspec.json.encode(value).decode()[:80]
                    what = f"{field} {shown} of parameter {quoted(parameter.name)} is not of type {shape.text}"
                    yield Finding(
                        what=f'CNIPluginSchema "{schema.metadata.name}": {what}',
                        path=("spec", "configParameters", part, at, field),
                        code="ND1043",
                    )
                elif field == "default" and (outside := _outside(value, shape)):
                    what = f"default {value} of parameter {quoted(parameter.name)} is {outside}"
                    yield Finding(
                        what=f'CNIPluginSchema "{schema.metadata.name}": {what}',
                        hint="correct one of the two",
                        path=("spec", "configParameters", part, at, field),
                        code="ND1044",
                    )


def _outside(value: Any, shape: Shape) -> str:
    """By which of its bounds a number is not supported, or ""."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return ""
    if shape.minimum is not None and value < shape.minimum:
        return f"less than the minimum, {shape.minimum}"
    return f"more than the maximum, {shape.maximum}" if shape.maximum is not None and value > shape.maximum else ""


def _of_type(value: Any, shape: Shape) -> bool:
    """Whether a value is of a type, and its elements of the types of elements."""
    if shape.kind in {"any", "either"}:
        return shape.kind == "any" or any(_of_type(value, part) for part in shape.parts)
    if not _is(value, shape):
        return False
    inside = value if shape.kind == "list" else value.values() if shape.kind == "map" else ()
    return all(_of_type(entry, shape.parts[0]) for entry in inside)


def _mismatch(value: Any, shape: Shape, path: Path) -> Finding:
    shown = quoted(value) if isinstance(value, str) else msgspec.json.encode(value).decode()[:80]
    hint = ""
    if isinstance(value, bool) and shape.kind == "string":
        hint = "YAML reads on, off, yes and no as booleans: put the value in quotes."
    elif isinstance(value, str) and shape.kind in {"integer", "number"} and value.isascii() and value.isdecimal():
        hint = f"Remove the quotes of {value}."
    elif isinstance(value, str) and shape.kind == "list":
        hint = "Put a list between [ and ]."
    elif isinstance(value, str) and shape.kind == "object" and "name" in shape.properties:
        hint = f"Use {{name: {value}}}."
    return Finding(f"expects parameter {_called(path)} to be {shape.text}, found {shown}.", hint, path, code="ND1045")


def _limits(value: Any, shape: Shape, path: Path) -> Iterator[Finding]:
    called = _called(path)
    if shape.enum and value not in shape.enum:
        shown = quoted(value) if isinstance(value, str) else msgspec.json.encode(value).decode()[:80]
        accepted = [
            choice if isinstance(choice, str) else msgspec.json.encode(choice).decode() for choice in shape.enum
        ]
        hint = f"Remove the quotes of {value}." if value in accepted else guess(str(value), accepted)
        yield Finding(f"does not accept {shown} for parameter {called}.", hint, path, code="ND1046")
    if isinstance(value, int | float) and not isinstance(value, bool):
        if shape.minimum is not None and value < shape.minimum:
            yield Finding(
                f"expects parameter {called} to be at least {shape.minimum}, found {value}.", path=path, code="ND1047"
            )
        if shape.maximum is not None and value > shape.maximum:
            yield Finding(
                f"expects parameter {called} to be at most {shape.maximum}, found {value}.", path=path, code="ND1048"
            )
    if isinstance(value, list | tuple):
        if shape.min_items is not None and len(value) < shape.min_items:
            what = f"expects at least {_items(shape.min_items)} in parameter {called}, found {len(value)}."
            yield Finding(what, path=path, code="ND1049")
        if shape.max_items is not None and len(value) > shape.max_items:
            yield Finding(
                f"expects at most {_items(shape.max_items)} in parameter {called}, found {len(value)}.",
                path=path,
                code="ND1050",
            )


def _written(value: Any, shape: Shape, path: Path) -> Iterator[Finding]:
    """Texts that are not written as the format wants it; the texts of a list have the list's format."""
    form = WRITTEN.get(shape.format, "")
    if not form:
        return
    if isinstance(value, list | tuple):
        for at, element in enumerate(value):
            inner = msgspec.structs.replace(_STRING, format=shape.format)
            if isinstance(element, str) and "{{" in element:
                yield from _reference(element, inner, (*path, at))
            else:
                yield from _written(element, inner, (*path, at))
    elif isinstance(value, str) and not texts.fits(value, form) and (value or form in _NEVER_EMPTY):
        what = f"expects parameter {_called(path)} to be {texts.EXPECTED[form]}, found {quoted(value)}."
        hint = texts.instead(value, form)
        yield Finding(what, f"{hint[:1].upper()}{hint[1:]}." if hint else "", path, code="ND1051")


def _inside(value: Any, shape: Shape, path: Path) -> Iterator[Finding]:
    """The elements of lists and maps, and the values of objects."""
    if shape.kind == "list":
        for at, inner in enumerate(value):
            yield from _value(inner, shape.parts[0], (*path, at))
    elif shape.kind == "map":
        for key, inner in value.items():
            yield from _value(inner, shape.parts[0], (*path, key))
    elif shape.kind == "object":
        for key, inner in value.items():
            if key in shape.properties:
                yield from _value(inner, shape.properties[key], (*path, key))
            elif shape.closed:
                what = f"does not accept parameter {_called((*path, key))}."
                yield Finding(what, guess(key, shape.properties), (*path, key), code="ND1052")


def _called(path: Path) -> str:
    """A parameter as errors call it: `"links[0].name"`."""
    return f'"{dotted(path, "")[1:]}"'


def _items(count: int) -> str:
    return f"{count} item" if count == 1 else f"{count} items"
