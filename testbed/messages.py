"""Collects the texts of netdra's code that people read: errors, hints, events, conditions, log lines and CLI help.

Called by `testbed.messages_page`, which writes docs/messages.md, and by `testbed.prose`, which checks the texts. A text
is a string with at least two words that is not a docstring; the docstring of a command is its help. A text is located
by file and function, so that an unrelated edit of a file does not change the page.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "netdra"

Kind = Literal["error", "hint", "event", "condition", "log", "help", "metric", "text"]

_KINDS: dict[str, Kind] = {
    "Finding": "error",
    "about": "error",
    "sentence": "error",
    "fail": "error",
    "BadParameter": "error",
    "UsageError": "error",
    "ClickException": "error",
    "Desired": "condition",
    "Condition": "condition",
    "Verdict": "condition",
    "debug": "log",
    "info": "log",
    "warning": "log",
    "error": "log",
    "exception": "log",
    "critical": "log",
    "option": "help",
    "argument": "help",
    "command": "help",
    "group": "help",
    "Counter": "metric",
    "Gauge": "metric",
    "Histogram": "metric",
    "Family": "metric",
}
HINT_PLACES = {"Finding": 1, "sentence": 1, "_Remark": 1, "wrong": 2}
"""The functions of which an argument is a hint, and its place."""
HINTS = {"hint", "next_step"}
"""The names of variables and arguments that are hints."""
_EVENT_MODULES = re.compile(r"(^|/)(events|reports|announce|writing)\.py$")
_NOT_FOR_PEOPLE = ("cni/types/", "node/wire/", "drawing/")
_PROSE = re.compile(r"[A-Za-z]{2,}[,;:]? [A-Za-z(\"'{]|\} [a-z]{2,}|[a-z]{2,} \{")
_COMMANDS = {"command", "group"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, order=True)
class Message:
    """A text that people read.

    Attributes:
        path: the file, from netdra/.
        function: the class and function that contains the text, "" at the top of the module.
        kind: how the text reaches the reader; "text" where it is a part of several kinds.
        text: the text, with `{name}` where a value is inserted.
    """

    path: str
    function: str
    kind: Kind
    text: str


@cache
def messages() -> tuple[Message, ...]:
    """Each text of the package, by file, in the order of the code."""
    found: list[Message] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(_NOT_FOR_PEOPLE):
            found += Reader(name).read(ast.parse(path.read_text(encoding="utf-8")))
    return tuple(dict.fromkeys(found))


class Reader:
    """Reads the texts of one module."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._default: Kind = "event" if _EVENT_MODULES.search(path) else "text"

    def read(self, module: ast.Module) -> Iterator[Message]:
        """The texts of the module, in the order of the code."""
        yield from self._below(module, "", self._default)

    def _below(self, node: ast.AST, function: str, kind: Kind) -> Iterator[Message]:
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not (name == "annotation" or _is_docstring(child)):
                    yield from self._node(child, function, kind)

    def _node(self, node: ast.AST, function: str, kind: Kind) -> Iterator[Message]:
        if isinstance(node, (ast.ClassDef, *_FUNCTIONS)):
            inner = f"{function}.{node.name}" if function else node.name
            yield from self._command_help(node, inner)
            yield from self._below(node, inner, self._default)
        elif (text := text_of(node)) is not None:
            if _PROSE.search(text):
                yield Message(self._path, function, kind, text)
            yield from self._inserted(node, function, kind)
        elif isinstance(node, ast.Call) and (place := HINT_PLACES.get(_called(node))) is not None:
            for at, child in enumerate([node.func, *node.args, *node.keywords]):
                yield from self._node(child, function, "hint" if at == place + 1 else _kind(node, kind))
        else:
            yield from self._below(node, function, _kind(node, kind))

    def _inserted(self, node: ast.AST, function: str, kind: Kind) -> Iterator[Message]:
        """Texts inside the values that an f-string inserts."""
        for value in node.values if isinstance(node, ast.JoinedStr) else ():
            if isinstance(value, ast.FormattedValue):
                yield from self._node(value.value, function, kind)

    def _command_help(self, node: ast.AST, function: str) -> Iterator[Message]:
        if isinstance(node, _FUNCTIONS) and any(_called(each) in _COMMANDS for each in node.decorator_list):
            documentation = (ast.get_docstring(node) or "").partition("\f")[0]
            for paragraph in filter(None, map(_on_one_line, documentation.split("\n\n"))):
                yield Message(self._path, function, "help", paragraph)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _kind(node: ast.AST, outer: Kind) -> Kind:
    """The kind of the texts below a node."""
    if isinstance(node, ast.keyword):
        return "hint" if node.arg in HINTS else "help" if node.arg == "help" and outer == "text" else outer
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    if any(isinstance(target, ast.Name) and target.id in HINTS for target in targets):
        return "hint"
    name = _called(node) if isinstance(node, ast.Call) else ""
    return "error" if name.endswith("Error") else _KINDS.get(name, outer)


def _called(node: ast.AST) -> str:
    """The last name of a called function or of a decorator."""
    function = node.func if isinstance(node, ast.Call) else node
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def text_of(node: ast.AST) -> str | None:
    """A string or an f-string as it is read, `None` for any other node."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _on_one_line(node.value)
    if isinstance(node, ast.JoinedStr):
        return _on_one_line("".join(map(_part, node.values)))
    return None


def _part(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return f"{{{_name(node.value)}}}" if isinstance(node, ast.FormattedValue) else ""


def _name(node: ast.expr) -> str:
    """A short name of an inserted value: its last name, `…` for a longer expression."""
    if isinstance(node, ast.Attribute):
        return node.attr.strip("_")
    if isinstance(node, ast.Name):
        return node.id.strip("_")
    if isinstance(node, ast.Call) and node.args and not isinstance(node.args[0], ast.GeneratorExp):
        return _name(node.args[0])
    return "…"


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
