"""Why a value does not fit a type of the model, as msgspec says it, with what it leaves out: the values that fit.

Called where users' objects are read: by `netdra.model.documents` and by the webhook's reviews. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import msgspec
import msgspec.inspect as mi

_NO_MEMBER = re.compile(r"Invalid enum value .*?(?: - at `\$(?P<path>[^`]*)`)?\Z", re.DOTALL)
_STEP = re.compile(r"\.(?P<field>[^.\[]+)|\[(?:\.\.\.|\d+)\]")


def reason(problem: msgspec.MsgspecError, kind: type) -> str:
    """What a reader objects to; where a word is none of a few, these too.

    Args:
        problem: what msgspec raised.
        kind: the type that was read.
    """
    found = _NO_MEMBER.match(str(problem))
    if found is None:
        return str(problem)
    words = dict.fromkeys(word for each in _at(_info(kind), found["path"] or "") for word in _words(each))
    return f"{problem}; one of {', '.join(words)}" if words else str(problem)


@cache
def _info(kind: type) -> mi.Type:
    return mi.type_info(kind)


def _at(found: mi.Type, path: str) -> list[mi.Type]:
    """The types at a path as msgspec writes it; several where a union leaves it open."""
    types = [found]
    for step in _STEP.finditer(path):
        types = [inner for each in types for plain in _plain(each) for inner in _inner(plain, step["field"])]
    return [plain for each in types for plain in _plain(each)]


def _plain(found: mi.Type) -> Iterator[mi.Type]:
    """A type without what is around it: metadata, and the other members of a union."""
    if isinstance(found, mi.Metadata):
        yield from _plain(found.type)
    elif isinstance(found, mi.UnionType):
        for member in found.types:
            yield from _plain(member)
    else:
        yield found


def _inner(found: mi.Type, field: str | None) -> Iterator[mi.Type]:
    """What is in a type: a struct's field, or the elements of the others."""
    if isinstance(found, mi.StructType):
        yield from (each.type for each in found.fields if each.encode_name == field)
    elif isinstance(found, mi.DictType):
        yield found.value_type
    elif isinstance(found, mi.VarTupleType | mi.ListType):
        yield found.item_type


def _words(found: mi.Type) -> Iterator[str]:
    if isinstance(found, mi.LiteralType):
        yield from (f'"{value}"' for value in found.values if value)
