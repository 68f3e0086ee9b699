"""What an expression's text says about `device`: its fields, and the domains that it indexes by a literal.

The engine knows `device` as a plain map, so it cannot tell a wrong field, nor that an unknown domain is an empty map
(k8s.io/dynamic-resource-allocation/cel/compile.go). The text is scanned once, when `netdra.cel.engine` compiles it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

FIELDS = ("driver", "attributes", "capacity", "allowMultipleAllocations")
_MAPS = ("attributes", "capacity")

_TOKEN = re.compile(
    r"""(?P<raw>[bB]?[rR][bB]?(?:\"\"\".*?\"\"\"|'''.*?'''|"[^"\n]*"|'[^'\n]*'))
      |(?P<string>[bB]?(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
      |(?P<comment>//[^\n]*)
      |(?P<name>[A-Za-z_]\w*)
      |(?P<other>\S)""",
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """A word of the expression: its kind (`string`, `name`, `other`), its text (a string's content) and its offset."""

    kind: str
    text: str
    offset: int


class Usage(NamedTuple):
    """How an expression uses `device`.

    Attributes:
        attributes: domains that it looks up in `device.attributes`, to be empty maps where a device has none.
        capacity: the same of `device.capacity`.
        unknown: the first use of a field that devices have not.
        binds: how many variables it binds.
        mapped: how often it maps an optional value, each time with what it is called on twice in the tree.
        calls: the functions and macros that it calls, and `?` if it asks for what may not be there.
    """

    attributes: frozenset[str]
    capacity: frozenset[str]
    unknown: Token | None
    binds: int
    mapped: int
    calls: frozenset[str]


def usage(expression: str) -> Usage:
    """Scan an expression. One that breaks CEL's grammar gives some answer; the compiler refuses it later."""
    tokens = list(_tokens(expression))
    domains: dict[str, set[str]] = {field: set() for field in _MAPS}
    tested: dict[str, set[str]] = {field: set() for field in _MAPS}
    unknown = None
    for index, token in enumerate(tokens):
        if token.text != "device" or token.kind != "name" or _text(tokens, index - 1) == ".":
            continue
        after = index + 1
        field = _text(tokens, after + 1)
        if _text(tokens, after) != "." or field == "?":
            continue
        if field not in FIELDS:
            unknown = unknown or tokens[min(after + 1, len(tokens) - 1)]
        elif field in _MAPS:
            domains[field] |= _looked_up(tokens, after + 2)
            if _text(tokens, after + 2) not in {"[", "."}:
                tested[field] |= _tested(tokens, index)
    return Usage(
        attributes=frozenset(domains["attributes"] - tested["attributes"]),
        capacity=frozenset(domains["capacity"] - tested["capacity"]),
        unknown=unknown,
        binds=sum(_text(tokens, index - 2) == "cel" for index, token in enumerate(tokens) if token.text == "bind"),
        mapped=sum(token.kind == "name" and token.text in {"optMap", "optFlatMap"} for token in tokens),
        calls=frozenset(_calls(tokens)),
    )


@lru_cache(maxsize=256)
def place_of_key(expression: str, key: str) -> tuple[int, int]:
    """Line and column of a key that an expression names once, or zeros: the engine does not say where it failed."""
    offsets = [token.offset for token in _tokens(expression) if token.text == key]
    return position(expression, offsets[0]) if len(offsets) == 1 else (0, 0)


def position(expression: str, offset: int) -> tuple[int, int]:
    """Line and column, both from 1, of an offset."""
    before = expression[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def _tokens(expression: str) -> list[Token]:
    tokens = []
    for match in _TOKEN.finditer(expression):
        kind = match.lastgroup or ""
        text = match.group()
        if kind == "comment":
            continue
        if kind in {"raw", "string"}:
            kind, text = "string", _content(text)
        tokens.append(Token(kind, text, match.start()))
    return tokens


def _content(literal: str) -> str:
    opened = literal.lstrip("bBrR")
    marks = 3 if opened[:3] in {'"""', "'''"} else 1
    return opened[marks:-marks]


def _text(tokens: list[Token], index: int) -> str:
    """The text of a token that is no string, or "" beyond the ends."""
    if 0 <= index < len(tokens) and tokens[index].kind != "string":
        return tokens[index].text
    return ""


def _calls(tokens: list[Token]) -> Iterator[str]:
    for index, token in enumerate(tokens):
        called = token.kind == "name" and _text(tokens, index + 1) == "("
        optional = token.kind == "other" and token.text == "?" and _text(tokens, index - 1) in {".", "[", "{", ","}
        if called or optional:
            yield token.text


def _looked_up(tokens: list[Token], index: int) -> set[str]:
    """The literal in `["domain"]` or `[?"domain"]` at the index."""
    if _text(tokens, index) != "[":
        return set()
    index += 2 if _text(tokens, index + 1) == "?" else 1
    literal = tokens[index] if index < len(tokens) else None
    closed = _text(tokens, index + 1) == "]"
    return {literal.text} if literal is not None and literal.kind == "string" and closed else set()


def _tested(tokens: list[Token], index: int) -> set[str]:
    """The literal in `"domain" in device...`: such a domain must stay unknown, or the test would always hold."""
    literal = tokens[index - 2] if index >= 2 else None
    return {literal.text} if literal and literal.kind == "string" and _text(tokens, index - 1) == "in" else set()
