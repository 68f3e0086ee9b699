"""The kinds of value that expressions deal with, and which of them functions and operators take.

Read by `netdra.cel.analysis`. A kind that is not known is the empty tuple, and agrees with all. Only what fails, or is
false, on every device counts as a disagreement: CEL compares numbers of all types by value, and attributes are dynamic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from netdra.cel.vocabulary import Kinds

UNKNOWN: Kinds = ()
BOOL: Kinds = ("bool",)
TEXT: Kinds = ("string",)
WHOLE: Kinds = ("int",)
LIST: Kinds = ("list",)
OPTIONAL: Kinds = ("optional",)
QUANTITY: Kinds = ("quantity",)
VERSION: Kinds = ("version",)
NUMBERS: Kinds = ("int", "uint", "double")
SCALARS: Kinds = ("bool", *NUMBERS, "string", "bytes")

_WORDS = {
    "bool": "a bool",
    "int": "an int",
    "uint": "an unsigned int",
    "double": "a double",
    "string": "a string",
    "bytes": "bytes",
    "quantity": "a quantity",
    "version": "a version",
    "list": "a list",
    "map": "a map",
    "optional": "an optional value",
}
EQUALITY = {"_==_": "never true", "_!=_": "always true"}
ORDER = frozenset({"_<_", "_<=_", "_>_", "_>=_"})
LOGIC = frozenset({"_&&_", "_||_", "!_"})
ARITHMETIC: Mapping[str, Kinds] = {
    "_+_": (*NUMBERS, "string", "bytes", "list"),
    "_-_": NUMBERS,
    "_*_": NUMBERS,
    "_/_": NUMBERS,
    "_%_": NUMBERS,
    "-_": NUMBERS,
}
_ORDERED: Kinds = (*NUMBERS, "bool", "string", "bytes")


class Signature(NamedTuple):
    """The types of a function: its receiver (or first argument), its other arguments, and its result."""

    receiver: Kinds
    arguments: Kinds
    result: Kinds


_COMPARED: Kinds = ("quantity", "version")
SIGNATURES: Mapping[str, Signature] = {
    **dict.fromkeys(("startsWith", "endsWith", "contains", "matches"), Signature(TEXT, TEXT, BOOL)),
    **dict.fromkeys(("lowerAscii", "upperAscii", "trim", "strings.quote", "find"), Signature(TEXT, TEXT, TEXT)),
    **dict.fromkeys(("charAt", "substring", "replace", "format"), Signature(TEXT, UNKNOWN, TEXT)),
    **dict.fromkeys(("split", "findAll"), Signature(TEXT, UNKNOWN, LIST)),
    "join": Signature(LIST, TEXT, TEXT),
    "isSorted": Signature(LIST, UNKNOWN, BOOL),
    **dict.fromkeys(("sum", "min", "max"), Signature(LIST, UNKNOWN, UNKNOWN)),
    "includes": Signature((*SCALARS, "list"), UNKNOWN, BOOL),
    **dict.fromkeys(("indexOf", "lastIndexOf"), Signature((*TEXT, *LIST), UNKNOWN, WHOLE)),
    "size": Signature(("string", "bytes", "list", "map"), UNKNOWN, WHOLE),
    **dict.fromkeys(("isGreaterThan", "isLessThan"), Signature(_COMPARED, _COMPARED, BOOL)),
    "compareTo": Signature(_COMPARED, _COMPARED, WHOLE),
    **dict.fromkeys(("add", "sub"), Signature(QUANTITY, (*QUANTITY, *WHOLE), QUANTITY)),
    **dict.fromkeys(("sign", "asInteger"), Signature(QUANTITY, UNKNOWN, WHOLE)),
    "isInteger": Signature(QUANTITY, UNKNOWN, BOOL),
    "asApproximateFloat": Signature(QUANTITY, UNKNOWN, ("double",)),
    **dict.fromkeys(("major", "minor", "patch"), Signature(VERSION, UNKNOWN, WHOLE)),
    **dict.fromkeys(("orValue", "value", "or", "hasValue"), Signature(OPTIONAL, UNKNOWN, UNKNOWN)),
    "quantity": Signature(TEXT, UNKNOWN, QUANTITY),
    "semver": Signature(TEXT, UNKNOWN, VERSION),
    **dict.fromkeys(("isQuantity", "isSemver"), Signature(TEXT, UNKNOWN, BOOL)),
    "string": Signature(UNKNOWN, UNKNOWN, TEXT),
    "int": Signature(UNKNOWN, UNKNOWN, WHOLE),
    "uint": Signature(UNKNOWN, UNKNOWN, ("uint",)),
    "double": Signature(UNKNOWN, UNKNOWN, ("double",)),
    "bool": Signature(UNKNOWN, UNKNOWN, BOOL),
}


def agree(left: Kinds, right: Kinds) -> bool:
    """Whether a value of one kind can equal one of the other."""
    if not left or not right:
        return True
    return bool(set(left) & set(right)) or (_is_number(left) and _is_number(right))


def fits(kinds: Kinds, taken: Kinds) -> bool:
    """Whether a value can be of a kind that is taken."""
    return not kinds or not taken or bool(set(kinds) & set(taken))


def ordered(left: Kinds, right: Kinds) -> bool:
    """Whether two values can be asked which is the greater one."""
    return agree(left, right) and fits(left, _ORDERED) and fits(right, _ORDERED)


def word(kinds: Kinds) -> str:
    """A kind with its article, for messages."""
    return " or ".join(_WORDS.get(kind, kind) for kind in kinds)


def joined(several: Iterable[Kinds]) -> Kinds:
    """The kinds that one of several values can have; unknown if one of them is."""
    sets = list(several)
    return tuple(dict.fromkeys(kind for kinds in sets for kind in kinds)) if all(sets) else UNKNOWN


def _is_number(kinds: Kinds) -> bool:
    return any(kind in NUMBERS for kind in kinds)
