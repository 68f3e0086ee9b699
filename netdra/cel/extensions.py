"""The engine's own extensions to CEL, loaded when an expression needs them for the first time.

Called by `netdra.cel.engine`. Each of them is a library with half an engine in it: together 8 MiB of a daemon's memory,
and most selectors only compare attributes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from cel_expr_python import cel

from netdra.cel import functions

# What CEL has by itself (language definition, "Standard Definitions"); selectors have no use for the rest of it.
_MACROS = frozenset({"all", "exists", "exists_one", "filter", "has", "map"})
_FUNCTIONS = frozenset({"contains", "endsWith", "in", "matches", "size", "startsWith"})
_CONVERSIONS = frozenset({"bool", "bytes", "double", "dyn", "int", "string", "type", "uint"})
_SHARED = frozenset({"indexOf", "lastIndexOf"})
"""Ours for lists, an extension's for strings."""


@cache
def _plain() -> frozenset[str]:
    ours = frozenset(name.rpartition(".")[2] for name in functions.names())
    return (_MACROS | _FUNCTIONS | _CONVERSIONS | ours) - _SHARED


def needed(calls: Iterable[str]) -> bool:
    """Whether an expression that calls these functions may need an extension; one that nobody knows may."""
    return not _plain().issuperset(calls)


def load() -> list[cel.CelExtension]:
    """All of them."""
    from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

    return [ext_strings.ExtStrings(2), ext_optional.ExtOptional(), ext_bindings.ExtBindings()]
