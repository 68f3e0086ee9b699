"""The bounded walk over a step's `config`, through which all code reads it.

A config is any JSON that a user writes. It may be nested without end, share its parts so that a kilobyte of YAML
becomes a gigabyte, or carry bytes that no kernel name may have. The walk visits at most `MAX_VALUES` values,
`MAX_DEPTH` deep, and states where it stopped. Used by `references` and `netdra.rules`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from netdra.model.errors import InvalidInputError
from netdra.model.findings import Path, dotted, quoted

MAX_DEPTH = 32
MAX_VALUES = 10_000
MAX_KEY = 256
MAX_CHARACTERS = 256 * 1024

# Tab and line ends are text; the other controls are in no name, address or sysctl. Surrogates are not Unicode text.
_FORBIDDEN = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]"
_INTEGERS = range(-(2**63), 2**64)


class ConfigError(InvalidInputError):
    """A config holds something that no plugin can be given."""


class _Budget:
    """The rest of a walk's limits."""

    __slots__ = ("characters", "values")

    def __init__(self) -> None:
        self.values = MAX_VALUES
        self.characters = MAX_CHARACTERS

    def take(self, path: Path, characters: int = 0) -> None:
        self.values -= 1
        self.characters -= characters
        if self.values < 0:
            raise ConfigError(f"{dotted(path)}: the config has more than {MAX_VALUES} values", code="ND1381")
        if self.characters < 0:
            raise ConfigError(
                f"{dotted(path)}: the config has more than {MAX_CHARACTERS} characters of text", code="ND1382"
            )


def copy(value: Any, visit: Callable[[Path, str], Any]) -> Any:
    """A copy of a config in which every string value is what `visit` makes of it; keys stay.

    Raises:
        ConfigError: the config breaks a limit or holds a value that is not JSON; also what `visit` raises.
    """
    return _copy(value, (), visit, _Budget())


def strings(value: Any) -> list[tuple[Path, str]]:
    """All string values of a config and where they are, in order.

    Raises:
        ConfigError: as `copy`.
    """
    texts: list[tuple[Path, str]] = []
    copy(value, lambda path, text: texts.append((path, text)))
    return texts


def _copy(value: Any, path: Path, visit: Callable[[Path, str], Any], budget: _Budget) -> Any:
    if isinstance(value, str):
        budget.take(path, len(value))
        return visit(path, _text(value, path))
    budget.take(path)
    if isinstance(value, dict | list | tuple) and len(path) >= MAX_DEPTH:
        raise ConfigError(f"{dotted(path)}: nested deeper than {MAX_DEPTH} levels", code="ND1383")
    if isinstance(value, dict):
        return {
            (name := _key(key, path, budget)): _copy(item, (*path, name), visit, budget) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_copy(item, (*path, index), visit, budget) for index, item in enumerate(value)]
    return _number(value, path)


def _key(key: Any, path: Path, budget: _Budget) -> str:
    if not isinstance(key, str):
        raise ConfigError(f"{dotted(path)}: a key is {type(key).__name__}, not text", code="ND1384")
    if len(key) > MAX_KEY:
        raise ConfigError(f"{dotted(path)}: key {quoted(key)} has more than {MAX_KEY} characters", code="ND1385")
    budget.characters -= len(key)
    if "{{" in key:
        raise ConfigError(
            f"{dotted(path)}: key {quoted(key)} holds a reference",
            hint="references are resolved in values only",
            code="ND1386",
        )
    return _text(key, path)


def _text(text: str, path: Path) -> str:
    if not text.isprintable() and (forbidden := re.search(_FORBIDDEN, text)) is not None:
        raise ConfigError(
            f"{dotted(path)}: {quoted(text)} holds the character U+{ord(forbidden.group()):04X}",
            hint="remove the control character",
            code="ND1387",
        )
    return text


def _number(value: Any, path: Path) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if value not in _INTEGERS:
            raise ConfigError(f"{dotted(path)}: the integer does not fit into 64 bits", code="ND1388")
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    is_number = isinstance(value, float)
    raise ConfigError(
        f"{dotted(path)}: {value if is_number else f'a {type(value).__name__}'} is not a JSON value",
        hint="write a finite number, or put it in quotes as text" if is_number else "",
        code="ND1389",
    )
