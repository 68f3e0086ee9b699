"""Errors of an expression: in itself, or on one device. Both show the place if the engine reports it."""

from __future__ import annotations

import re

from netdra.cel import source
from netdra.model.errors import InvalidInputError, NetdraError

_MISSING_KEY = re.compile(r'Key not found in map : "(.*)"\Z')


class CelCompileError(InvalidInputError):
    """An expression that does not compile: where, and why.

    Attributes:
        expression: its text.
        line: from 1; 0 for the whole expression.
        column: from 1, in characters; 0 for the whole expression.
        message: the error at this place.
    """

    def __init__(self, expression: str, line: int, column: int, message: str) -> None:
        self.expression, self.line, self.column, self.message = expression, line, column, message
        place = f" at line {line}, column {column}" if line else ""
        advice = _advice(expression, line, column, message)
        what = f"{message}; {advice}" if advice else message
        super().__init__(
            f"CEL expression does not compile{place}: {what}\n{marked(expression, line, column)}", code="ND1571"
        )


class CelEvaluationError(NetdraError):
    """An expression that has no answer for one device.

    Attributes:
        expression: its text.
        message: why.
        line: of the missing key, from 1; 0 where it is something else or its place cannot be determined.
        column: of the missing key, from 1, in characters; 0 as for the line.
        missing: the key that is asked for and not there, "" where it is something else.
    """

    def __init__(self, expression: str, message: str) -> None:
        missing = _MISSING_KEY.match(message)
        self.line, self.column = source.place_of_key(expression, missing.group(1)) if missing else (0, 0)
        self.expression, self.message = expression, message
        self.missing: str = missing.group(1) if missing else ""
        place = f" at line {self.line}, column {self.column}" if self.line else ""
        shown = marked(expression, self.line, self.column)
        super().__init__(f"CEL expression fails on this device{place}: {message}\n{shown}", code="ND1572")


_UNDECLARED = re.compile(r"undeclared reference to '([A-Za-z_]\w*)'")
_UNKNOWN_SIGN = re.compile(r"token recognition error at: '(.)")
_METHODS = {
    name.lower(): name for name in ("startsWith", "endsWith", "contains", "matches", "compareTo", "isGreaterThan")
}


def _advice(expression: str, line: int, column: int, message: str) -> str:
    """The next step after a mistake that many make; "" after others."""
    lines = expression.splitlines()
    before = lines[line - 1][: max(0, column - 1)].rstrip() if 0 < line <= len(lines) else ""
    if name := _UNDECLARED.search(message):
        word = name[1]
        meant = _METHODS.get(word.lower(), "")
        if meant and meant != word:
            return f'did you mean "{meant}"?'
        if before.endswith(("==", "!=")):
            return f'put a text in quotes: "{word}"'
        if word in {"attributes", "capacity", "driver"}:
            return f"did you mean device.{word}?"
        return f'an attribute is written device.attributes["<domain>"].{word}' if not before.endswith(".") else ""
    if sign := _UNKNOWN_SIGN.search(message):
        return {
            "=": "compare with ==",
            '"': "close the quotes",
            "'": "close the quotes",
            "&": "write &&",
            "|": "write ||",
        }.get(sign[1], "")
    return ""


def marked(expression: str, line: int, column: int) -> str:
    """The expression, or its line in question with a mark under the column; zeros mean all of it."""
    lines = expression.splitlines() or [""]
    if not line or line > len(lines):
        return "\n".join(f"  {line[:200]}" for line in lines[:10])
    start = max(0, column - 100)
    return f"  {lines[line - 1][start : start + 200]}\n  {' ' * (column - 1 - start)}^"
