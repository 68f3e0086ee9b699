"""The maximum cost of an expression, computed from its tree before the first evaluation (decision D30).

Called by `netdra.cel.engine` for each expression that it compiles. Every value is known by how long and how large it
can be, every function by the size of its result and by its cost. Every function has an entry here, so an expression
without a bound is not evaluated. The bounds are of the order of the real cost and never below it, which
`tests/unit/cel/test_bounds.py` measures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from netdra.cel import patterns
from netdra.cel.tree import Call, Entries, Fold, Items, Literal, Name, Node, Select

MAX_WORK = 200_000
"""Units of about 50 ns: 10 ms for one device, and a hundred times what a selector takes that compares attributes."""
MAX_SIZE = 1024 * 1024
"""Bytes of one value that comes up on the way."""
MAX_ROUNDS = 10_000
"""The engine's own end of loops, which counts all of an evaluation."""


class Longest(NamedTuple):
    """How long attributes can be: characters of a text, values of a list, characters of each of these; and how many.

    A device that is published has shorter ones; the kernel's are longer here and there (`ipv4`, joined).
    """

    text: int = 256
    values: int = 48
    value: int = 64
    names: int = 64


PLAIN = Longest()
"""What every expression is bounded for; on a device with longer attributes it is looked at once more."""

_ENTRY = 64
"""Bytes of a value beside its text."""
_ROUND = 20
_CALL = 2
_OF_PYTHON = 60
"""Units of a function of `netdra.cel.functions`, and of each value that is turned into one of Python's."""
_MAP_SIZE = 128 * 1024
_MOST_TEXTS = 16
_DEVICE = "device"
_PLAIN_FIELDS = frozenset({"driver", "allowMultipleAllocations"})
_TIME_ZONE = re.compile(r"[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}|[+-]?\d\d:\d\d")


class UnboundedError(ValueError):
    """An expression may take too much, or it cannot be known how much."""


class Size(NamedTuple):
    """How large a value can be.

    Attributes:
        length: characters, or elements.
        bytes: all of it, elements included.
        texts: what it can be, if it is known to be one of a few strings; empty if not.
        items: the elements, where it may be a text as well as a list; -1 where `length` is right for both.
        element: the largest of a list's elements or a map's values, None for other values.
        key: the largest of a map's keys, None for other values.
    """

    length: int
    bytes: int
    texts: frozenset[str] = frozenset()
    items: int = -1
    element: Size | None = None
    key: Size | None = None


_SCALAR: Final = Size(1, _ENTRY)
_NUMBER_TEXT: Final = Size(64, _ENTRY + 64)
_QUANTITY: Final = Size(512, _ENTRY + 512)


def _is(node: Node, name: str) -> bool:
    return isinstance(node, Name) and node.name == name


def _written(node: Literal) -> Size:
    """A constant."""
    texts = frozenset({node.value}) if isinstance(node.value, str) else frozenset[str]()
    value = node.value.encode() if isinstance(node.value, str) else node.value
    size = len(value) if isinstance(value, bytes) else _ENTRY
    return Size(1 + size, _ENTRY + size, texts)


def check(tree: Node, longest: Longest = PLAIN) -> None:
    """Make sure that an expression is bounded.

    Args:
        tree: the expression.
        longest: how long the attributes are that it is asked of.

    Raises:
        UnboundedError: the cost is too high, or a part cannot be bounded.
    """
    bounds = _Bounds(longest)
    bounds.of(tree)
    bounds.within()


class _Bounds:
    """The way through one tree: names in scope, and the work so far."""

    def __init__(self, longest: Longest) -> None:
        word = _of_characters(longest.text)
        one = _of_characters(longest.value)
        size = max(word.bytes, longest.values * one.bytes)
        value = Size(longest.text, size, items=longest.values, element=one)
        domain = Size(longest.names, _MAP_SIZE, element=value, key=word)
        self._word = word
        domains = Size(longest.names, _MAP_SIZE, element=domain, key=word)
        self._scope: dict[str, Size | None] = {_DEVICE: Size(4, _MAP_SIZE, element=domains, key=word)}
        self.work = 0

    def within(self) -> None:
        """Refuse what is past the limit."""
        if self.work > MAX_WORK:
            raise UnboundedError(f"may take {_times(self.work)} the time limit of an expression for one device")

    def of(self, node: Node) -> Size:
        """How large the value of a node can be; what it takes is added to the work."""
        self.work += _CALL
        match node:
            case Literal():
                return _written(node)
            case Name():
                size = self._scope.get(node.name, _SCALAR)
                if size is None:
                    raise UnboundedError("uses the result of a loop inside the loop")
                return size
            case Select():
                size = _part(self.of(node.operand))
                plain = _is(node.operand, _DEVICE) and node.field in _PLAIN_FIELDS
                return _SCALAR if node.test else self._word if plain else size
            case Items() | Entries():
                parts = [self.of(part) for part in node.items]
                return Size(
                    len(parts), _ENTRY + sum(part.bytes for part in parts), element=_larger(*parts) if parts else None
                )
            case Call():
                return self._called(node)
            case Fold():
                return self._looped(node)

    def _called(self, node: Call) -> Size:
        name = node.function
        given = [self.of(argument) for argument in node.given]
        if name in _ELEMENT:
            return _part(given[0])
        cost = _FUNCTIONS.get(name)
        if cost is None:
            raise UnboundedError(f"calls {name}(), whose cost is not bounded")
        size, work = cost(given)
        self.work += work
        if size.bytes > MAX_SIZE:
            raise UnboundedError(
                f"may create a value of {_times(size.bytes, MAX_SIZE)} the size limit, with {_shown(name)}"
            )
        return size

    def _looped(self, node: Fold) -> Size:
        start = self.of(node.start)
        _, step, result = node.parts
        if node.is_binding:  # its "loop" makes no round
            return self._bound(result, {node.result_name: start})
        over = self.of(node.range)
        rounds = min(_items(over), MAX_ROUNDS)
        before, self.work = self.work, 0
        variables = dict.fromkeys(node.variables, over.key or _part(over))
        if len(node.variables) > 1:
            variables[node.variables[1]] = _part(over)
        added = self._bound(step, {**variables, node.result_name: None}, collecting=node.result_name)
        self.work = before + rounds * (self.work + _ROUND)
        final = Size(start.length + rounds * added.length, start.bytes + rounds * added.bytes, element=added.element)
        if final.bytes > MAX_SIZE:
            raise UnboundedError(f"may create a value of {_times(final.bytes, MAX_SIZE)} the size limit, with a loop")
        return self._bound(result, {node.result_name: final})

    def _bound(self, node: Node, names: dict[str, Size | None] | dict[str, Size], collecting: str = "") -> Size:
        """A node with further names in scope: its size, or by how much it makes the result of a loop larger."""
        outer = {name: self._scope.get(name, _SCALAR) for name in names}
        self._scope.update(names)
        try:
            return self._growth(node, collecting) if collecting else self.of(node)
        finally:
            self._scope.update(outer)

    def _growth(self, step: Node, result: str) -> Size:
        """By how much a round makes the result larger; it is only ever added to, tested, or left as it is."""
        nothing = Size(0, 0)
        if _is(step, result):
            return nothing
        if not isinstance(step, Call) or step.function not in {"_+_", "_?_:_", "_&&_", "_||_"}:
            self.of(step)
            return nothing
        first, *others = step.given
        if step.function == "_?_:_":
            self.of(first)
            grown = [self._growth(other, result) for other in others]
            return _larger(*grown)
        if not _is(first, result):
            self.of(step)
            return nothing
        (other,) = others
        added = self.of(other)
        return added if step.function == "_+_" else nothing


Given = Sequence[Size]
Cost = Callable[[Given], tuple[Size, int]]
"""Sizes of the arguments -> that of the result, and the work."""
_ELEMENT = frozenset({"_[_]", "_[?_]", "_?._"})


def _copied(*sizes: Size) -> int:
    """Inspecting values once, or copying them."""
    return sum(size.bytes for size in sizes) // 32


def _part(whole: Size) -> Size:
    """An element of a list, or a value of a map."""
    return whole.element or Size(whole.bytes, whole.bytes)


def _of_characters(length: int) -> Size:
    return Size(length, _ENTRY + 4 * length)


def _items(size: Size) -> int:
    return size.items if size.items >= 0 else size.length


def _text(size: Size) -> Size:
    """A value that is a text, if it is anything that the function takes."""
    return size._replace(bytes=min(size.bytes, _ENTRY + 4 * size.length), items=-1, element=None, key=None)


def _larger(*sizes: Size) -> Size:
    """A bound that holds for each of several values."""
    first, *others = sizes
    for other in others:
        both = first.texts | other.texts if first.texts and other.texts else frozenset[str]()
        first = Size(
            max(first.length, other.length),
            max(first.bytes, other.bytes),
            both if len(both) <= _MOST_TEXTS else frozenset(),
            max(_items(first), _items(other)),
            _larger(first.element, other.element)
            if first.element and other.element
            else first.element or other.element,
            _larger(first.key, other.key) if first.key and other.key else None,
        )
    return first


def _testing(_: Given) -> tuple[Size, int]:
    return _SCALAR, 0


def _passing(given: Given) -> tuple[Size, int]:
    return (given[0] if len(given) == 1 else _larger(*given)) if given else _SCALAR, 0


def _choosing(given: Given) -> tuple[Size, int]:
    return _larger(*given[1:]), 0


def _comparing(given: Given) -> tuple[Size, int]:
    return _SCALAR, min(size.bytes for size in given) // 32


def _reading(given: Given) -> tuple[Size, int]:
    return _SCALAR, _copied(*given)


def _adding(given: Given) -> tuple[Size, int]:
    left, right = given
    texts = frozenset(one + other for one in left.texts for other in right.texts)
    size = Size(
        left.length + right.length,
        left.bytes + right.bytes,
        texts if len(texts) <= _MOST_TEXTS else frozenset(),
        _items(left) + _items(right),
        _larger(left, right).element,
    )
    return size, _copied(left, right)


def _finding_in(given: Given) -> tuple[Size, int]:
    wanted, among = given
    return _SCALAR, _items(among) * 3 + min(_copied(among), _items(among) * (1 + _copied(wanted)))


def _containing(given: Given) -> tuple[Size, int]:
    own, wanted = map(_text, given)
    return _SCALAR, _copied(own, wanted) + own.bytes * wanted.bytes // 256


def _locating(given: Given) -> tuple[Size, int]:
    """`indexOf`: of strings, a character at a time; of lists, by Python."""
    return _SCALAR, given[0].length * 20 + _python(*given) + _containing(given[:2])[1]


def _converting(given: Given) -> tuple[Size, int]:
    return Size(max(given[0].length, 64), max(given[0].bytes * 4, _NUMBER_TEXT.bytes)), _copied(given[0]) + _CALL


def _timing(given: Given) -> tuple[Size, int]:
    """A part of a time. The engine opens the file of a time zone's name, wherever that leads, so it must be a name."""
    for zone in given[1:]:
        if not zone.texts or not all(map(_TIME_ZONE.fullmatch, zone.texts)):
            raise UnboundedError('requires a time zone such as "Europe/Berlin" or "+01:00"')
    return _SCALAR, 2_000 if len(given) > 1 else _CALL


def _matching(given: Given) -> tuple[Size, int]:
    text, pattern = map(_text, given[:2])
    return _SCALAR, _program(text, pattern)


def _program(text: Size, pattern: Size) -> int:
    """Compiling a pattern, which the engine does each time, and going through a text with it."""
    if not pattern.texts:
        raise UnboundedError("has a regular expression that is not a string literal")
    try:
        size = max(map(patterns.size, pattern.texts))
    except ValueError as problem:
        raise UnboundedError(f"has a {problem}") from None
    return 200 + 12 * size + text.bytes // 8 + text.length * size // 8


def _finding(given: Given) -> tuple[Size, int]:
    text = _text(given[0])
    return Size(text.length, text.bytes), _program(text, given[1]) + _OF_PYTHON


def _finding_all(given: Given) -> tuple[Size, int]:
    text = _text(given[0])
    size = Size(text.length + 1, text.bytes + (text.length + 1) * _ENTRY, element=Size(text.length, text.bytes))
    return size, _program(text, given[1]) + _OF_PYTHON + (text.length + 1) * 80


def _replacing(given: Given) -> tuple[Size, int]:
    own, new = _text(given[0]), _text(given[2])
    size = Size(own.length + (own.length + 1) * new.length, own.bytes + (own.length + 1) * (new.bytes - _ENTRY))
    return size, own.length * 3 + _copied(own, size) + _containing(given[:2])[1]


def _joining(given: Given) -> tuple[Size, int]:
    own, between = given[0], _text(given[1]) if len(given) > 1 else _SCALAR
    items = _items(own)
    size = Size(own.bytes + items * between.length, own.bytes + items * between.bytes)
    return size, items * 3 + _copied(size)


def _splitting(given: Given) -> tuple[Size, int]:
    own = _text(given[0])
    size = Size(own.length + 1, own.bytes + (own.length + 1) * _ENTRY, element=Size(own.length, own.bytes))
    return size, own.length * 4 + _copied(size) + _containing(given[:2])[1]


def _rewriting(given: Given) -> tuple[Size, int]:
    own = _text(given[0])
    return Size(own.length * 6 + 2, own.bytes * 6 + 2), own.length * 2 + _copied(own)


def _cutting(given: Given) -> tuple[Size, int]:
    own = _text(given[0])
    return Size(own.length, own.bytes), own.length // 8 + _copied(own)


def _formatting(given: Given) -> tuple[Size, int]:
    """`format`: a clause shows one value, with a precision that is written down."""
    pattern, values = given
    if not pattern.texts:
        raise UnboundedError("calls format() on a value that is not a string literal")
    digits = max(sum(int(number[:9]) for number in re.findall(r"\d+", text)) for text in pattern.texts)
    size = pattern.bytes + 4 * values.bytes + digits + 64 * _items(values)
    return Size(size, size), 8 * pattern.length + 20 * _items(values) + size // 8


def _python(*given: Size) -> int:
    """Handing values to Python; a list goes element by element."""
    return _OF_PYTHON + sum(_items(size) * 20 * (size.element is not None) + _copied(size) for size in given)


def _by_python(size: Size) -> Cost:
    return lambda given: (size, _python(*given) + sum(one.length for one in given))


def _summing(given: Given) -> tuple[Size, int]:
    """`sum`, `min`, `max`: an element, or a number."""
    return _part(given[0]), _python(*given)


def _version(given: Given) -> tuple[Size, int]:
    own = given[0]
    return Size(own.length + 1, own.bytes + 1), _python(*given) + own.length


def _comparing_sets(given: Given) -> tuple[Size, int]:
    own, other = given
    pairs = _items(own) * _items(other)
    compared = min(own.bytes * _items(other), other.bytes * _items(own))
    return _SCALAR, _python(own, other) + pairs * 8 + compared // 32


_FUNCTIONS: Final[dict[str, Cost]] = (
    dict.fromkeys(("_&&_", "_||_", "!_", "@not_strictly_false", "__not_strictly_false__"), _testing)
    | dict.fromkeys(("_-_", "_*_", "_/_", "_%_", "-_", "hasValue", "optional.none"), _testing)
    | dict.fromkeys(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"), _comparing)
    | dict.fromkeys(("dyn", "optional.of", "optional.ofNonZeroValue", "value", "or", "orValue"), _passing)
    | dict.fromkeys(("size",), _reading)
    | dict.fromkeys(("startsWith", "endsWith"), _comparing)
    | dict.fromkeys(("int", "uint", "double", "bool", "timestamp", "duration", "type"), _reading)
    | dict.fromkeys(("string", "bytes"), _converting)
    | dict.fromkeys(("@in", "_in_", "in"), _finding_in)
    | dict.fromkeys(("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear"), _timing)
    | dict.fromkeys(("getHours", "getMinutes", "getSeconds", "getMilliseconds"), _timing)
    | dict.fromkeys(("lowerAscii", "upperAscii", "strings.quote"), _rewriting)
    | dict.fromkeys(("charAt", "substring", "trim"), _cutting)
    | dict.fromkeys(("indexOf", "lastIndexOf"), _locating)
    | dict.fromkeys(("quantity", "add", "sub"), _by_python(_QUANTITY))
    | dict.fromkeys(("isQuantity", "isInteger", "asInteger", "asApproximateFloat"), _by_python(_SCALAR))
    | dict.fromkeys(("sign", "compareTo", "isGreaterThan", "isLessThan"), _by_python(_SCALAR))
    | dict.fromkeys(("isSemver", "major", "minor", "patch", "includes", "isSorted"), _by_python(_SCALAR))
    | dict.fromkeys(("sets.contains", "sets.equivalent", "sets.intersects"), _comparing_sets)
    | dict.fromkeys(("sum", "min", "max"), _summing)
    | {
        "_?_:_": _choosing,
        "_+_": _adding,
        "contains": _containing,
        "matches": _matching,
        "find": _finding,
        "findAll": _finding_all,
        "replace": _replacing,
        "join": _joining,
        "split": _splitting,
        "format": _formatting,
        "semver": _version,
    }
)


def _times(amount: int, limit: int = MAX_WORK) -> str:
    factor = amount / limit
    return (
        f"{factor:.1f} times" if factor < 10 else f"{round(factor)} times" if factor < 10**6 else "over a million times"
    )


def _shown(name: str) -> str:
    """A function as its author writes it: `_+_` is `+`."""
    return name.strip("_@").replace("_", " ") if not name[0].isalpha() else f"{name}()"
