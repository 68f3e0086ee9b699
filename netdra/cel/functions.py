"""The functions that Kubernetes adds to CEL (k8s.io/apiserver/pkg/cel/library), declared to the engine.

Overloads are concrete: at run time the engine finds none with dynamic parameters. An exception of a function becomes
a CEL error. Used by `netdra.cel.engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from cel_expr_python import cel

from netdra.cel import patterns, values
from netdra.model.errors import InvalidInputError

_T = cel.Type
_SCALARS = (_T.STRING, _T.INT, _T.BOOL, _T.DOUBLE, _T.BYTES)
_MAX_INCLUDES = 48


def declarations() -> list[cel.FunctionDecl]:
    """All functions, to be given to the engine's environment."""
    table: dict[str, list[cel.Overload]] = {}
    for name, result, parameters, member, body in _rows():
        overloads = table.setdefault(name, [])
        identity = f"netdra_{name.replace('.', '_')}_{len(overloads)}"
        overloads.append(cel.Overload(identity, result, list(parameters), member, body))
    return [cel.FunctionDecl(name, overloads) for name, overloads in table.items()]


def names() -> frozenset[str]:
    """The names of all functions."""
    return frozenset(row[0] for row in _rows())


Row = tuple[str, Any, tuple[Any, ...], bool, Callable[..., Any]]


def _rows() -> Iterator[Row]:
    for table in (_quantities, _versions, _lists, _texts):
        yield from table()


def _quantities() -> Iterator[Row]:
    value = _T.BYTES
    yield "quantity", value, (_T.STRING,), False, values.of_quantity
    yield "isQuantity", _T.BOOL, (_T.STRING,), False, _holds(values.of_quantity)
    yield "sign", _T.INT, (value,), True, lambda own: _sign(values.decimal(own))
    yield "isInteger", _T.BOOL, (value,), True, values.is_integer
    yield "asInteger", _T.INT, (value,), True, values.as_integer
    yield "asApproximateFloat", _T.DOUBLE, (value,), True, lambda own: float(values.decimal(own))
    for other in (value, _T.INT):
        yield "add", value, (value, other), True, values.add
        yield "sub", value, (value, other), True, values.subtract
    yield "compareTo", _T.INT, (value, value), True, values.compare
    yield "isGreaterThan", _T.BOOL, (value, value), True, lambda own, other: values.compare(own, other) > 0
    yield "isLessThan", _T.BOOL, (value, value), True, lambda own, other: values.compare(own, other) < 0


def _versions() -> Iterator[Row]:
    value = _T.BYTES
    yield "semver", value, (_T.STRING,), False, values.of_version
    yield "semver", value, (_T.STRING, _T.BOOL), False, _version
    yield "isSemver", _T.BOOL, (_T.STRING,), False, _holds(values.of_version)
    yield "isSemver", _T.BOOL, (_T.STRING, _T.BOOL), False, _holds(_version)
    for index, part in enumerate(("major", "minor", "patch")):
        yield part, _T.INT, (value,), True, lambda own, index=index: values.semver_parts(own)[index]


def _lists() -> Iterator[Row]:
    for scalar in _SCALARS:
        yield "includes", _T.BOOL, (_T.LIST, scalar), True, _includes
        yield "includes", _T.BOOL, (scalar, scalar), True, _same
        yield "indexOf", _T.INT, (_T.LIST, scalar), True, _index_of
        yield "lastIndexOf", _T.INT, (_T.LIST, scalar), True, _last_index_of
    yield "isSorted", _T.BOOL, (_T.LIST,), True, lambda own: all(a <= b for a, b in pairwise(own))
    yield "sum", _T.DYN, (_T.LIST,), True, sum
    yield "min", _T.DYN, (_T.LIST,), True, min
    yield "max", _T.DYN, (_T.LIST,), True, max
    both = (_T.LIST, _T.LIST)
    yield "sets.contains", _T.BOOL, both, False, lambda own, other: _covers(own, other)
    yield "sets.equivalent", _T.BOOL, both, False, lambda own, other: _covers(own, other) and _covers(other, own)
    yield "sets.intersects", _T.BOOL, both, False, lambda own, other: any(_index_of(own, one) >= 0 for one in other)


def _texts() -> Iterator[Row]:
    text = _T.STRING
    yield "find", text, (text, text), True, patterns.find
    yield "findAll", _T.LIST, (text, text), True, patterns.find_all
    yield "findAll", _T.LIST, (text, text, _T.INT), True, patterns.find_all


def _holds(parse: Callable[..., object]) -> Callable[..., bool]:
    def holds(*arguments: object) -> bool:
        try:
            parse(*arguments)
        except InvalidInputError:
            return False
        return True

    return holds


def _version(text: str, normalize: bool) -> bytes:
    return values.normalized_version(text) if normalize else values.of_version(text)


def _sign(number: Any) -> int:
    return int(number > 0) - int(number < 0)


def _same(left: object, right: object) -> bool:
    """Equal as CEL has it: numbers by value, and a boolean is not a number."""
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def _includes(own: Sequence[object], wanted: object) -> bool:
    if len(own) > _MAX_INCLUDES:
        raise ValueError(f"includes() supports lists of at most {_MAX_INCLUDES} elements, not {len(own)}")
    return _index_of(own, wanted) >= 0


def _index_of(own: Sequence[object], wanted: object) -> int:
    return next((index for index, one in enumerate(own) if _same(one, wanted)), -1)


def _last_index_of(own: Sequence[object], wanted: object) -> int:
    behind = _index_of(own[::-1], wanted)
    return len(own) - 1 - behind if behind >= 0 else -1


def _covers(own: Sequence[object], other: Sequence[object]) -> bool:
    return all(_index_of(own, one) >= 0 for one in other)
