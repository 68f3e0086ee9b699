"""The one reader of an expression's text: its words, and where they stand.

`netdra.cel.engine` asks which functions and macros an expression uses before it compiles it, `netdra.cel.syntax` makes
a tree of the words, and errors take places from them. Words and their forms are those of the CEL language definition
(cel-spec, doc/langdef.md, Syntax).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

_WORD = re.compile(
    r"""(?P<passed>\s+|//[^\n]*)
      |(?P<string>[bB]?[rR][bB]?(?:\"\"\".*?\"\"\"|'''.*?'''|"[^"\n]*"|'[^'\n]*')
        |[bB]?(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
      |(?P<quoted>`[^`\n]*`)
      |(?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:\d*\.)?\d+(?:[eE][+-]?\d+)?[uU]?)
      |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<operator>&&|\|\||[<>=!]=|[-+*/%<>!?:.,()\[\]{}])
      |(?P<broken>.)""",
    re.VERBOSE | re.DOTALL,
)
FIELDS = ("driver", "attributes", "capacity", "allowMultipleAllocations")
"""Of `device`; the engine knows it as a plain map, so it cannot find a wrong one."""
_OPENING = frozenset({".", "[", "{", ","})


class Token(NamedTuple):
    """A word: its kind (the name of a group of the pattern above), its text, and where it starts and ends."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def symbol(self) -> str:
        """The text of a name, a number or an operator; "" for a string."""
        return "" if self.kind in {"string", "quoted"} else self.text


class Usage(NamedTuple):
    """The elements of an expression that matter before it is compiled.

    Attributes:
        unknown: the first use of a field that devices have not.
        binds: how many variables it binds.
        mapped: how often it maps an optional value, whose receiver is then in the tree twice.
        calls: the functions and macros that it calls, and `?` if it reads an optional field.
    """

    unknown: Token | None
    binds: int
    mapped: int
    calls: frozenset[str]


def tokens(expression: str) -> list[Token]:
    """The words of an expression, without spaces and comments; what breaks the grammar is a word of kind `broken`."""
    return [
        Token(match.lastgroup or "", match.group(), match.start(), match.end())
        for match in _WORD.finditer(expression)
        if match.lastgroup != "passed"
    ]


def usage(expression: str) -> Usage:
    """The usage of an expression's words; arbitrary if it breaks CEL's grammar, which the compiler rejects."""
    words = tokens(expression)
    symbols = ["", "", *(word.symbol for word in words)]
    return Usage(
        unknown=next((word for index, word in enumerate(words) if _is_unknown_field(symbols, index + 2)), None),
        binds=sum(pair == ("cel", "bind") for pair in zip(symbols, symbols[2:], strict=False)),
        mapped=sum(symbol in {"optMap", "optFlatMap"} for symbol in symbols),
        calls=frozenset(_calls(symbols)),
    )


@lru_cache(maxsize=256)
def place_of_key(expression: str, key: str) -> tuple[int, int]:
    """Line and column of a key that an expression names once, or zeros: the engine does not state where it failed."""
    starts = [token.start for token in tokens(expression) if _content(token) == key]
    return position(expression, starts[0]) if len(starts) == 1 else (0, 0)


def position(expression: str, offset: int) -> tuple[int, int]:
    """Line and column, both from 1, of an offset."""
    before = expression[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def _content(token: Token) -> str:
    """The text between a string's or a name's quotes, as it is written."""
    if token.kind == "quoted":
        return token.text.strip("`")
    if token.kind != "string":
        return token.text
    opened = token.text.lstrip("bBrR")
    marks = 3 if opened[:3] in {'"""', "'''"} else 1
    return opened[marks:-marks]


def _is_unknown_field(symbols: list[str], index: int) -> bool:
    of_device = symbols[index - 2 : index] == ["device", "."] and symbols[index - 3] != "."
    return of_device and symbols[index] not in {*FIELDS, "?"}


def _calls(symbols: list[str]) -> Iterator[str]:
    for before, symbol, after in zip(symbols, symbols[1:], [*symbols[2:], ""], strict=False):
        is_name = symbol[:1].isalpha() or symbol[:1] == "_"
        if (is_name and after == "(") or (symbol == "?" and before in _OPENING):
            yield symbol
