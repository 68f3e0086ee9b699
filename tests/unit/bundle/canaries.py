"""Objects of a type with a canary in every text, against the type's rules, too."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

DEPTH = 12


def filled(kind: Any, text: Callable[[], str], depth: int = DEPTH) -> Any:
    """A value of a type: each text in it is one of a function, also keys, and values that the type leaves open."""
    origin, inner = get_origin(kind), get_args(kind)
    if not depth:
        return None
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _structure(kind, text, depth)
    if kind is Any or kind is object:
        return {text(): [text(), {"name": text(), "matchLabels": {text(): text()}}], "message": text()}
    if origin is Literal or kind is str:
        return text()
    if origin is None:
        return None if kind is type(None) else kind() if kind in (int, float, bool) else text()
    return _container(origin, inner, text, depth)


@cache
def _unchecked(kind: type[msgspec.Struct]) -> Any:
    """A type whose values are not checked when they are made."""
    make: Any = type(kind)
    return make(kind.__name__, (kind,), {"__post_init__": lambda _: None, "__annotations__": {}})


@cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in msgspec.structs.fields(kind)}


def _structure(kind: type[msgspec.Struct], text: Callable[[], str], depth: int) -> Any:
    return _unchecked(kind)(**{name: filled(hint, text, depth - 1) for name, hint in _hints(kind).items()})


def _container(origin: Any, inner: tuple[Any, ...], text: Callable[[], str], depth: int) -> Any:
    name = getattr(origin, "__name__", str(origin))
    if name in ("Mapping", "dict"):
        return {text(): filled(inner[1], text, depth)}
    if name in ("tuple", "list", "Sequence", "frozenset", "set"):
        return tuple(filled(entry, text, depth) for entry in inner if entry is not Ellipsis)
    known = [entry for entry in inner if entry is not type(None)]
    return filled(known[0], text, depth)  # a union, or Annotated


def in_turn(texts: list[str]) -> Callable[[], str]:
    """A function that returns the texts, one after the other, and again from the first."""
    return itertools.cycle(texts).__next__
