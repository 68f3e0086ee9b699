"""A compiled expression as a tree, macros expanded: what `netdra.cel.bounds` works out its cost from.

The engine hands out what it compiled as a `cel.expr.CheckedExpr` in protobuf's wire format
(cel-spec/proto/cel/expr/checked.proto, syntax.proto), and nothing else. Of that only the expression is read, by a dozen
lines, for protobuf itself is no dependency of commands without a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_ANY_VALUE, _CHECKED_EXPRESSION = 2, 4


class Literal(NamedTuple):
    """A constant: the text of a string, None for any other; and how many bytes it has."""

    text: str | None
    size: int


class Name(NamedTuple):
    """A variable or a type."""

    name: str


class Field(NamedTuple):
    """`operand.field`, or `has(operand.field)` where it only tests."""

    operand: Node
    name: str
    tests: bool


class Call(NamedTuple):
    """A function or operator; what it is called on is the first argument."""

    function: str
    arguments: tuple[Node, ...]


class Collection(NamedTuple):
    """A list, or a map or message with keys and values in turn."""

    parts: tuple[Node, ...]


class Loop(NamedTuple):
    """A comprehension (cel-spec, "Macros"): a macro over a list or a map, or `cel.bind`."""

    variables: tuple[str, ...]
    over: Node
    result_name: str
    start: Node
    step: Node
    result: Node


Node = Literal | Name | Field | Call | Collection | Loop


def read(serialized: bytes) -> Node:
    """The tree of an expression as the engine serializes it.

    Raises:
        ValueError: it is no such thing.
    """
    try:
        checked = _one(_one(serialized, _ANY_VALUE), _CHECKED_EXPRESSION)
        return _node(checked)
    except (IndexError, KeyError, UnicodeDecodeError) as problem:
        raise ValueError(f"no checked expression: {problem!r}") from None


def _node(message: bytes) -> Node:
    for number, value in _fields(message):
        if isinstance(value, bytes) and number in _KINDS:
            return _KINDS[number](value)
    raise KeyError("expression")


def _literal(message: bytes) -> Node:
    for number, value in _fields(message):
        if isinstance(value, bytes):
            return Literal(value.decode() if number == 6 else None, len(value))
    return Literal(None, 0)


def _name(message: bytes) -> Node:
    return Name(_text(message, 1))


def _field(message: bytes) -> Node:
    return Field(
        _node(_one(message, 1)),
        _text(message, 2),
        tests=any(number == 3 and value for number, value in _fields(message)),
    )


def _call(message: bytes) -> Node:
    target = [_node(value) for number, value in _fields(message) if number == 1 and isinstance(value, bytes)]
    given = [_node(value) for number, value in _fields(message) if number == 3 and isinstance(value, bytes)]
    return Call(_text(message, 2), (*target, *given))


def _list(message: bytes) -> Node:
    return Collection(
        tuple(_node(value) for number, value in _fields(message) if number == 1 and isinstance(value, bytes))
    )


def _struct(message: bytes) -> Node:
    parts: list[Node] = []
    for number, entry in _fields(message):
        if number == 2 and isinstance(entry, bytes):
            parts += [_node(each) for kind, each in _fields(entry) if kind in {3, 4} and isinstance(each, bytes)]
    return Collection(tuple(parts))


def _loop(message: bytes) -> Node:
    variables = tuple(text for text in (_text(message, 1), _text(message, 8)) if text)
    over, start, step, result = (_node(_one(message, number)) for number in (2, 4, 6, 7))
    return Loop(variables, over, _text(message, 3), start, step, result)


_KINDS = {3: _literal, 4: _name, 5: _field, 6: _call, 7: _list, 8: _struct, 9: _loop}


def _one(message: bytes, wanted: int) -> bytes:
    """The submessage of a number; KeyError if there is none."""
    for number, value in _fields(message):
        if number == wanted and isinstance(value, bytes):
            return value
    raise KeyError(wanted)


def _text(message: bytes, wanted: int) -> str:
    """The string of a number, "" if there is none."""
    try:
        return _one(message, wanted).decode()
    except KeyError:
        return ""


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Numbers and values of a message; of fixed width, which only numbers have, 0."""
    place, end = 0, len(message)
    while place < end:
        tag, place = _varint(message, place)
        kind = tag & 7
        if kind == _VARINT:
            value, place = _varint(message, place)
            yield tag >> 3, value
        elif kind == _BYTES:
            length, place = _varint(message, place)
            yield tag >> 3, message[place : place + length]
            place += length
        elif kind in {_FIXED64, _FIXED32}:
            place += 8 if kind == _FIXED64 else 4
            yield tag >> 3, 0
        else:
            raise ValueError(f"no checked expression: wire type {kind}")


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return value, place
        shift += 7
