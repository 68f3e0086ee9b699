"""The syntax tree of a compiled expression, read from the bytes in which the engine hands it out.

The engine's Python interface shows no tree, but serializes it as `cel.expr.CheckedExpr` (cel-spec, proto/cel/expr:
checked.proto, syntax.proto). Macros are expanded in it: `has` is a presence test, loops and `cel.bind` are folds. Only
the fields that `netdra.cel.analysis` and `netdra.cel.bounds` ask for are read, without protobuf, which neither commands
nor the webhook need otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

Wire = list[tuple[int, int | bytes]]
"""A message: its fields by number, in order; numbers as they travel, the rest as bytes."""


class Literal(NamedTuple):
    """A constant; its kind is one of those in `netdra.cel.analysis`, its value a Python one."""

    at: int
    kind: str
    value: object


class Name(NamedTuple):
    """A variable."""

    at: int
    name: str


class Select(NamedTuple):
    """`operand.field`, or, where it is a test, `has(operand.field)`."""

    at: int
    operand: Node
    field: str
    test: bool


class Call(NamedTuple):
    """A function or operator: `_==_`, `_[_]`, `size`. The target is what stands before the dot."""

    at: int
    function: str
    target: Node | None
    arguments: tuple[Node, ...]

    @property
    def given(self) -> tuple[Node, ...]:
        """The receiver, if there is one, and the arguments."""
        return self.arguments if self.target is None else (self.target, *self.arguments)


class Items(NamedTuple):
    """A list that is written out."""

    at: int
    items: tuple[Node, ...]


class Entries(NamedTuple):
    """A map that is written out: the expressions in it, keys and values in turn."""

    at: int
    items: tuple[Node, ...]


class Fold(NamedTuple):
    """A loop over the range, or a variable that is bound (then the range is an empty list).

    Attributes:
        variables: of the loop: one, or two.
        result_name: the variable that holds what was found so far, first `start`.
        parts: the condition for going on, the step, and the result, in which both variables are known.
    """

    at: int
    variables: tuple[str, ...]
    range: Node
    result_name: str
    start: Node
    parts: tuple[Node, ...]

    @property
    def is_binding(self) -> bool:
        """Whether it is `cel.bind`, `optMap` or `optFlatMap`."""
        return isinstance(self.range, Items) and not self.range.items

    @property
    def may_stop(self) -> bool:
        """Whether it is a loop that ends as soon as its result is known: `all` or `exists`."""
        return not (self.is_binding or isinstance(self.parts[0], Literal))


Node = Literal | Name | Select | Call | Items | Entries | Fold

_LOOKUPS = frozenset({"_[_]", "_[?_]"})
_ANY_VALUE, _EXPRESSION, _SOURCE, _POSITIONS = 2, 4, 5, 4
_ID = 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_CONSTANTS = {1: "null", 2: "bool", 3: "int", 4: "uint", 5: "double", 6: "string", 7: "bytes"}
_SIGN = 1 << 63


def read(serialized: bytes) -> Node:
    """The tree of an expression.

    Args:
        serialized: what the engine's `Expression.serialize` gives.

    Raises:
        ValueError: these are other bytes.
    """
    try:
        checked = _fields(_last(_fields(serialized), _ANY_VALUE))
        places: dict[int, int] = {}
        for entry in _all(_fields(_last(checked, _SOURCE)), _POSITIONS):
            pair = dict(_fields(entry))
            places[_integer(pair.get(1, 0))] = _integer(pair.get(2, 0))
        return _Reader(places).node(_last(checked, _EXPRESSION))
    except (IndexError, KeyError, TypeError, struct.error, UnicodeDecodeError) as problem:
        raise ValueError("not a serialized CEL expression") from problem


def parts(node: Node) -> tuple[Node, ...]:
    """The nodes directly below a node, in the order in which they are evaluated."""
    match node:
        case Select(operand=operand):
            return (operand,)
        case Call():
            return node.given
        case Items(items=items) | Entries(items=items):
            return items
        case Fold():
            return (node.range, node.start, *node.parts)
    return ()


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it."""
    yield node
    for part in parts(node):
        yield from walk(part)


def domains(node: Node, field: str) -> frozenset[str]:
    """The domains that an expression looks up in `device.attributes` or `device.capacity` by a literal.

    Without those that it tests for (`"domain" in device.attributes`): they must stay unknown where a device has
    nothing of them, or the test would always hold.
    """
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for part in walk(node):
        if isinstance(part, Call) and part.function in {*_LOOKUPS, "@in"} and len(part.given) == 2:
            tested = part.function == "@in"
            key, holder = part.given if tested else part.given[::-1]
            if _is_of_device(holder, field) and isinstance(key, Literal) and isinstance(key.value, str):
                found[tested].add(key.value)
    return frozenset(found[False] - found[True])


def attributes(node: Node) -> frozenset[tuple[str, str]] | None:
    """The attributes that an expression's answer depends on, each as its domain and name; None if it may be all.

    It depends on those alone that it reads or tests for by literals. The driver, the capacities and whether the device
    is shared are not attributes: the answer may depend on all of them.
    """
    if any(isinstance(part, Fold) and "device" in (*part.variables, part.result_name) for part in walk(node)):
        return None
    found: set[tuple[str, str]] = set()
    left = [node]
    while left:
        part = left.pop()
        if isinstance(part, Name) and part.name == "device":
            return None
        if isinstance(part, Select) and part.operand == Name(part.operand.at, "device") and part.field != "attributes":
            continue
        key = _attribute(part)
        if key is None:
            left += parts(part)
        else:
            found.add(key)
    return frozenset(found)


class Needs(NamedTuple):
    """An attribute, by its qualified name, that must have one of some values; `kinds` are the classes of these."""

    name: str
    values: frozenset[object]
    kinds: frozenset[type]


class NeedsAll(NamedTuple):
    """Conditions of which none may be false."""

    parts: tuple[Condition, ...]


class NeedsOne(NamedTuple):
    """Conditions of which not all may be false."""

    parts: tuple[Condition, ...]


Condition = Needs | NeedsAll | NeedsOne


def condition(node: Node) -> Condition | None:
    """A necessary condition on attributes: if it does not hold, the whole expression is false; None if none is known.

    Of `a && b`, CEL needs one part that is false, also where the other has no answer (language definition, "Logical
    Operators"); of `a || b` both. Values are texts and whole numbers: those of other kinds are left to the engine.
    """
    if not isinstance(node, Call) or node.target is not None:
        return None
    if node.function in {"_&&_", "_||_"}:
        found = [condition(part) for part in node.arguments]
        known = tuple(part for part in found if part is not None)
        if node.function == "_&&_":
            return NeedsAll(known) if known else None
        return NeedsOne(known) if len(known) == len(found) else None
    return _comparison(node) if node.function in {"_==_", "@in"} and len(node.arguments) == 2 else None


def _comparison(node: Call) -> Needs | None:
    """The condition of a comparison of an attribute with values that are written out."""
    left, right = node.arguments
    if node.function == "_==_" and isinstance(left, Literal):
        left, right = right, left
    wanted = right.items if node.function == "@in" and isinstance(right, Items) else (right,)
    is_read = not left.test if isinstance(left, Select) else isinstance(left, Call) and left.function == "_[_]"
    key = _attribute(left) if is_read else None
    values = frozenset(each.value for each in wanted if isinstance(each, Literal) and each.kind in {"string", "int"})
    if key is None or not values or len(values) != len({*wanted}):
        return None
    return Needs("/".join(key), values, frozenset(map(type, values)))


def _attribute(node: Node) -> tuple[str, str] | None:
    """The domain and name of the attribute that a node reads or tests for by literals; None of any other node."""
    if isinstance(node, Select):
        domain = _domain(node.operand)
        return None if domain is None else (domain, node.field)
    if isinstance(node, Call) and node.function in {*_LOOKUPS, "_?._", "@in"} and len(node.given) == 2:
        key, holder = node.given if node.function == "@in" else node.given[::-1]
        domain = _domain(holder)
        if domain is not None and isinstance(key, Literal) and isinstance(key.value, str):
            return domain, key.value
    return None


def _domain(node: Node) -> str | None:
    """The domain of a node that is `device.attributes["domain"]`; None of any other node."""
    if isinstance(node, Call) and node.function in _LOOKUPS and len(node.given) == 2:
        holder, key = node.given
        if _is_of_device(holder, "attributes") and isinstance(key, Literal) and isinstance(key.value, str):
            return key.value
    return None


def _is_of_device(node: Node, field: str) -> bool:
    """Whether a node is `device.field`."""
    operand = node.operand if isinstance(node, Select) and node.field == field else None
    return isinstance(operand, Name) and operand.name == "device"


def binds_after_a_loop(node: Node) -> bool:
    """Whether a variable may be bound after `all` or `exists`, beside it or in the next round of a loop around both.

    cel-cpp, as cel-expr-python 0.1 has it, leaves what a loop that stopped early had in the variable's place.
    """
    return _flow(node)[2]


def _flow(node: Node) -> tuple[bool, bool, bool]:
    """Of a part: whether a loop in it may stop early, whether it binds a variable, and whether one comes after one."""
    if isinstance(node, Fold) and node.is_binding:
        value, _, _, result = (_flow(part) for part in (node.start, *node.parts))
        return value[0] or result[0], True, value[2] or result[2]
    flows = [_flow(part) for part in parts(node)]
    if isinstance(node, Fold):
        stops, binds = any(flow[0] for flow in flows), any(flow[1] for flow in flows)
        return stops or node.may_stop, binds, (stops and binds) or any(flow[2] for flow in flows)
    stops = binds = wrong = False
    for flow in flows:
        wrong = wrong or flow[2] or (stops and flow[1])
        stops, binds = stops or flow[0], binds or flow[1]
    return stops, binds, wrong


class _Reader:
    """Messages to nodes; positions are kept beside the tree, by the nodes' numbers."""

    def __init__(self, places: dict[int, int]) -> None:
        self._places = places

    def node(self, data: bytes) -> Node:
        message = _fields(data)
        at = self._places.get(_integer(dict(message).get(_ID, 0)), 0)
        ((kind, fields),) = ((field, _fields(content)) for field, content in message if isinstance(content, bytes))
        match kind:
            case 3:
                return _literal(at, fields)
            case 4:
                return Name(at, _text(fields, 1))
            case 5:
                return Select(at, self.node(_last(fields, 1)), _text(fields, 2), bool(dict(fields).get(3)))
            case 6:
                target = next((self.node(content) for content in _all(fields, 1)), None)
                return Call(at, _text(fields, 2), target, self._nodes(fields, 3))
            case 7:
                return Items(at, self._nodes(fields, 1))
            case 8:
                parts = [part for entry in _all(fields, 2) for part in self._entry(_fields(entry))]
                return Entries(at, tuple(parts))
            case 9:
                return self._fold(at, fields)
        raise KeyError(kind)

    def _nodes(self, fields: Wire, number: int) -> tuple[Node, ...]:
        return tuple(self.node(content) for content in _all(fields, number))

    def _entry(self, fields: Wire) -> Iterator[Node]:
        return (self.node(content) for number in (3, 4) for content in _all(fields, number))

    def _fold(self, at: int, fields: Wire) -> Fold:
        variables = tuple(name for name in (_text(fields, 1), _text(fields, 8)) if name)
        condition, step, result = (self.node(_last(fields, number)) for number in (5, 6, 7))
        return Fold(
            at,
            variables,
            self.node(_last(fields, 2)),
            _text(fields, 3),
            self.node(_last(fields, 4)),
            (condition, step, result),
        )


def _literal(at: int, fields: Wire) -> Literal:
    ((number, content),) = fields
    kind = _CONSTANTS.get(number, "")
    value: object = content
    if kind == "bool":
        value = bool(content)
    elif kind == "int" and isinstance(content, int):
        value = content - 2 * _SIGN if content >= _SIGN else content
    elif kind == "double" and isinstance(content, bytes):
        (value,) = struct.unpack("<d", content)
    elif kind == "string" and isinstance(content, bytes):
        value = content.decode()
    return Literal(at, kind, value)


def _fields(data: bytes) -> Wire:
    """A message's fields (protobuf encoding)."""
    wire: Wire = []
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            wire.append((number, value))
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(kind, 0)
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif not size:
            raise KeyError(kind)
        wire.append((number, data[at : at + size]))
        at += size
    return wire


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _all(fields: Wire, number: int) -> Iterator[bytes]:
    return (content for field, content in fields if field == number and isinstance(content, bytes))


def _last(fields: Wire, number: int) -> bytes:
    return [*_all(fields, number)][-1]


def _text(fields: Wire, number: int) -> str:
    return next((content.decode() for content in _all(fields, number)), "")


def _integer(content: int | bytes) -> int:
    if isinstance(content, bytes):
        raise KeyError(content)
    return content
