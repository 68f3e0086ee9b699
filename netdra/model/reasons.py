"""Why a value does not fit a type of the model: all reasons, each with its place and the valid values.

Called where users' objects are read: by `netdra.model.documents` and by the webhook's reviews. Pure. msgspec reports
the first error; here an unknown field is reported with the most similar one, and does not hide other problems.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
import msgspec.inspect as mi

from netdra.model import suggestions
from netdra.model.claim import UNUSED_FIELDS
from netdra.model.findings import Finding, Path
from netdra.model.structure import structure_of

T = TypeVar("T")

MAX_FINDINGS = 20
"""How many reasons are told of one object."""
_SYNONYMS = {"after": "dependOn", "needs": "dependOn", "requires": "dependOn", "depends": "dependOn"}
_PLACE = re.compile(r"(?P<what>.*) - at `(?P<path>[^`]*)`\Z", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`\Z")
_PART = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_NO_MEMBER = re.compile(r"Invalid enum value .*?(?: - at `\$(?P<path>[^`]*)`)?\Z", re.DOTALL)
_STEP = re.compile(r"\.(?P<field>[^.\[]+)|\[(?:\.\.\.|\d+)\]")


def fitted(value: Any, kind: type[T], *, strict: bool = False) -> tuple[T | None, tuple[Finding, ...]]:
    """A plain value as a type of the model, and all errors in it.

    Unknown fields are skipped; a misspelt name is taken for the most similar field, if that is missing. So the result
    may have both an object, which can be checked further, and reasons to reject it.

    Args:
        value: the plain value.
        strict: whether unknown fields are refused in every type, but not below `status`, which is the cluster's.

    Raises:
        RecursionError: it is nested too deeply.
    """
    findings: list[Finding] = []
    mended = _named(value, structure_of(kind), (), findings, strict=strict) if strict else value
    try:
        read = msgspec.convert(mended, kind)
    except msgspec.ValidationError as problem:
        first = problem
    else:
        return read, tuple(findings)
    findings.clear()
    mended = _named(value, structure_of(kind), (), findings, strict=strict)
    wrong_names = len(findings)  # without these fields the rest can be read
    replaced: set[Path] = set()
    while len(findings) < MAX_FINDINGS:
        try:
            read = msgspec.convert(mended, kind)
        except msgspec.ValidationError as problem:
            finding = _finding(problem, kind, mended)
            missing = _MISSING.match(_PLACE.sub(r"\g<what>", str(problem)))
            if missing is None or (*finding.path, missing[1]) not in replaced:
                findings.append(finding)
            if missing is not None or not _without(mended, finding.path):
                break
            replaced.add(finding.path)
            continue
        return (read if len(findings) == wrong_names else None), tuple(findings or (_finding(first, kind, value),))
    return None, tuple(findings or (_finding(first, kind, value),))


def _named(value: Any, info: mi.Type, path: Path, findings: list[Finding], *, strict: bool) -> Any:
    """A copy of a value with the names of its fields fixed; the errors in them is added to `findings`."""
    plain = list(_plain(info))
    if isinstance(value, dict):
        structs = [kind for kind in plain if isinstance(kind, mi.StructType)]
        dicts = [kind for kind in plain if isinstance(kind, mi.DictType)]
        if len(structs) == 1:
            return _fields(value, structs[0], path, findings, strict=strict)
        if len(dicts) == 1:
            entry = dicts[0].value_type
            return {key: _named(inner, entry, (*path, key), findings, strict=strict) for key, inner in value.items()}
    if isinstance(value, list):
        lists = [kind for kind in plain if isinstance(kind, mi.VarTupleType | mi.ListType)]
        if len(lists) == 1:
            entry = lists[0].item_type
            return [_named(inner, entry, (*path, at), findings, strict=strict) for at, inner in enumerate(value)]
    return value


def _fields(
    value: dict[Any, Any], info: mi.StructType, path: Path, findings: list[Finding], *, strict: bool
) -> dict[Any, Any]:
    types = {field.encode_name: field.type for field in info.fields}
    ignored = UNUSED_FIELDS.get(info.cls, frozenset())
    refused = info.forbid_unknown_fields or strict
    mended: dict[Any, Any] = {}
    for key, inner in value.items():
        if key in types:
            within = strict and (*path, key) != ("status",)
            mended[key] = _named(inner, types[key], (*path, key), findings, strict=within)
        elif refused and key not in ignored and len(findings) < MAX_FINDINGS:
            word = key if isinstance(key, str) else str(key)
            there = [name for name in types if name not in value]
            likely = suggestions.closest(word, there) or _SYNONYMS.get(word, "")
            inner_place = "" if likely else _inside(info, word)
            hint = suggestions.hint(word, there or types, "fields:", others=_SYNONYMS)
            hint = f"it is a field of {inner_place}" if inner_place else hint
            quoted = ascii(word[:80])[1:-1]
            findings.append(Finding(f'unknown field "{quoted}"', hint, (*path, word), code="ND1536"))
            if likely in there:
                mended[likely] = _named(inner, types[likely], (*path, word), findings, strict=strict)
    return mended


def _inside(info: mi.StructType, name: str) -> str:
    """The field of a type that has a field of this name, for authors who wrote it one level too high; "" if none."""
    for field in info.fields:
        for kind in _plain(field.type):
            if isinstance(kind, mi.StructType) and any(inner.encode_name == name for inner in kind.fields):
                return field.encode_name
    return ""


def _finding(problem: msgspec.MsgspecError, kind: type, value: Any) -> Finding:
    """The error of msgspec in a value."""
    text, words = str(problem), list(_few(problem, kind))
    place = _PLACE.match(text)
    what, where = (place["what"], place["path"]) if place else (text, "")
    kinds = _KINDS.match(what)
    path = _path(where, value, kinds["found"] if kinds else "") if where.startswith("$") else ()
    unquoted = kinds is not None and kinds["wanted"] == "str" and kinds["found"] in {"bool", "int", "float"}
    what = _in_words(what, _at_path(value, path))
    hint = _QUOTES if unquoted else _fields_of(kind, path) if kinds and "object" in kinds["wanted"] else ""
    if words:
        likely = suggestions.closest(what.removesuffix(_UNSUPPORTED).strip('"'), [word.strip('"') for word in words])
        what = f"{path[-1]} {what}" if path and isinstance(path[-1], str) else what
        listed = ", ".join(words)
        hint = f"use {listed}" if len(words) == 1 else f"supported: {listed}"
        hint = f'did you mean "{likely}"? Supported: {listed}' if likely and len(words) > 1 else hint
    if not path and (missing := _MISSING.match(_PLACE.sub(r"\g<what>", str(problem)))):
        hint = _REQUIRED.get(missing[1], "")
    return Finding(what, hint, path, code="ND1537")


def _path(where: str, value: Any, found: str) -> Path:
    """A path as msgspec writes it. It does not name the value of a map: the first of the wrong type is taken."""
    first, *others = where.split("[...]")
    path = _parts(first)
    for text in others:
        entries, rest = _at_path(value, path), _parts(text)
        wrong = (key for key, entry in _entries(entries) if _is_found(_at_path(entry, rest), found))
        key = next(wrong, None)
        if key is None:
            return path
        path = (*path, key, *rest)
    return path


def _entries(value: Any) -> list[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []


def _parts(text: str) -> Path:
    return tuple(part[1] if part[1] is not None else int(part[2]) for part in _PART.finditer(text))


_TYPES: dict[str, type] = {"array": list, "str": str, "object": dict, "int": int, "float": float, "bool": bool}


def _is_found(value: Any, found: str) -> bool:
    """Whether a value is of the type that msgspec found."""
    return type(value) is _TYPES.get(found, type(None))


def _fields_of(kind: type, path: Path) -> str:
    """The fields of the object that belongs at a path, for authors who wrote something else."""
    where = "".join("[...]" if isinstance(part, int) else f".{part}" for part in path)
    for expected in _at(structure_of(kind), where):
        if isinstance(expected, mi.StructType):
            return f"fields: {suggestions.listed(field.encode_name for field in expected.fields)}"
    return ""


_WORDS = {
    "array": "a list", "str": "text", "object": "an object", "int": "an integer", "float": "a number",
    "bool": "true or false", "null": "nothing",
}  # fmt: skip
_UNSUPPORTED = " is not supported"
_REQUIRED = {
    "apiVersion": "an object begins with apiVersion and kind",
    "metadata": "write metadata: {name: …}",
    "spec": "write spec below metadata, with its fields indented below it",
}
"""What is written where a field of the object itself is missing."""
_QUOTES = "put it in quotes: without them YAML reads y, no, on and digits as something else than text"
_KINDS = re.compile(r"Expected `(?P<wanted>[a-z| ]+)`, got `(?P<found>[a-z]+)`\Z")


_LENGTH = re.compile(r"Expected `(?P<kind>array|object|str)` of length (?P<sign>[<>]=) (?P<bound>\d+)\Z")
_COUNTED = {"array": ("entries", "entry"), "object": ("entries", "entry"), "str": ("characters", "character")}
_BOUND = re.compile(r"Expected `(?:int|float)` (?P<sign>[<>]=) (?P<bound>-?[\d.]+)\Z")
_SIGNS = {">=": "at least", "<=": "at most"}


def _in_words(what: str, value: Any) -> str:
    """The message of msgspec about a value, for users who do not know it."""
    if parts := _LENGTH.match(what):
        length = f", found {len(value)}" if isinstance(value, list | dict | str) else ""
        noun = _COUNTED[parts["kind"]][parts["bound"] == "1"]
        return f"expected {_SIGNS[parts['sign']]} {parts['bound']} {noun}{length}"
    if parts := _BOUND.match(what):
        found = f", found {value}" if isinstance(value, int | float) else ""
        return f"expected {_SIGNS[parts['sign']]} {parts['bound']}{found}"
    if parts := _KINDS.match(what):
        kinds = [entry for entry in parts["wanted"].split(" | ") if entry != "null"] or ["null"]
        wanted = " or ".join(_WORDS.get(entry, entry) for entry in kinds)
        return f"expected {wanted}, found {_WORDS.get(parts['found'], parts['found'])}"
    if parts := _MISSING.match(what):
        return f'the field "{parts[1]}" is missing'
    if what.startswith("Invalid enum value "):
        word = what.removeprefix("Invalid enum value ")
        quoted = f'"{word[1:-1]}"' if word[:1] == word[-1:] == "'" else word
        return f"{quoted}{_UNSUPPORTED}"
    return what


def _at_path(value: Any, path: Path) -> Any:
    """The value at a path; None if absent."""
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _without(value: Any, path: Path) -> bool:
    """Take what is at a path out of a value; whether there was something that can be taken out."""
    if not path:
        return False
    *way, last = path
    for part in way:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return False
    if isinstance(value, dict) and last in value:
        del value[last]
        return True
    return False


def _few(problem: msgspec.MsgspecError, kind: type) -> Iterator[str]:
    """The valid words, where a word is not one of a few."""
    parts = _NO_MEMBER.match(str(problem))
    if parts is not None:
        yield from dict.fromkeys(
            word for member in _at(structure_of(kind), parts["path"] or "") for word in _words(member)
        )


def reason(problem: msgspec.MsgspecError, kind: type) -> str:
    """The error of a reader; where a word is not one of a few, with these.

    Args:
        problem: the exception of msgspec.
        kind: the type that was read.
    """
    words = list(_few(problem, kind))
    return f"{problem}; one of {', '.join(words)}" if words else str(problem)


def _at(whole: mi.Type, path: str) -> list[mi.Type]:
    """The types at a path as msgspec writes it; several where a union leaves it open."""
    types = [whole]
    for step in _STEP.finditer(path):
        types = [inner for kind in types for plain in _plain(kind) for inner in _inner(plain, step["field"])]
    return [plain for kind in types for plain in _plain(kind)]


def _plain(kind: mi.Type) -> Iterator[mi.Type]:
    """A type without what is around it: metadata, and the other members of a union."""
    if isinstance(kind, mi.Metadata):
        yield from _plain(kind.type)
    elif isinstance(kind, mi.UnionType):
        for member in kind.types:
            yield from _plain(member)
    else:
        yield kind


def _inner(kind: mi.Type, field: str | None) -> Iterator[mi.Type]:
    """The inner types of a type: a struct's field, or the elements of the others."""
    if isinstance(kind, mi.StructType):
        yield from (member.type for member in kind.fields if member.encode_name == field)
    elif isinstance(kind, mi.DictType):
        yield kind.value_type
    elif isinstance(kind, mi.VarTupleType | mi.ListType):
        yield kind.item_type


def _words(kind: mi.Type) -> Iterator[str]:
    if isinstance(kind, mi.LiteralType):
        yield from (f'"{value}"' for value in kind.values if value)
