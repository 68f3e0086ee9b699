"""A name stands for one thing in the whole of netdra, and a function that does something is named by a verb."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import netdra

ROOT = Path(netdra.__file__).parent
SOURCES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in sorted(ROOT.rglob("*.py"))
    if not path.name.endswith("_pb2.py")
}

SHARED_NAMES: frozenset[str] = frozenset()
"""Public classes of several modules that are the field's word in each; at most five."""

PROTOCOLS = frozenset({"buffer_updated", "connection_lost", "connection_made", "data_received", "eof_received"})
"""Names that asyncio gives to the handlers of a protocol's events."""
_CHANGES = frozenset(
    {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}
)
"""Methods that change an object; they count at arguments, not at lists that a function makes itself."""
_OF_FILES = frozenset({"chmod", "listen", "mkdir", "rmdir", "touch", "unlink", "write_bytes", "write_text"})
_OF_SYSTEM = frozenset(
    {
        *("fcntl.flock", "os.chmod", "os.fchmod", "os.ftruncate", "os.kill", "os.link", "os.makedirs", "os.mkdir"),
        *("os.open", "os.posix_spawn", "os.remove", "os.rename", "os.replace", "os.rmdir", "os.symlink", "os.unlink"),
        *("os.write", "socket.socket"),
    }
)
_VERBS = frozenset({"become", "bring", "cut", "embed", "exceed", "feed", "need", "proceed", "put", "read", "succeed"})
_PARTICIPLE = re.compile(
    r"(\w{2,}ed|\w{3,}ing|begun|bound|built|chosen|done|drawn|found|given|gone|held|hung|kept|known|left|lost|"
    r"made|meant|met|moved|seen|sent|shown|stood|stuck|taken|told|undone|unknown|written)"
)

_TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
_VAGUE = re.compile(
    r"_(anybody|everybody|had|means|meant|mended|nobody|said|say|says|somebody|standing|stands|tell|tells|told|what|"
    r"whatever|whichever|who|whoever|whom)(?=_|$)"
)


@cache
def public_classes(source: str) -> list[str]:
    """The public classes of a module."""
    return [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name[0] != "_"]


def participles(source: str) -> Iterator[str]:
    """Functions and methods that act and are named by a participle, or by an event as `pod_changed` is.

    `on_change` names a handler of an event.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and acts(node) and is_participle(node.name):
            yield node.name


def acts(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function does something: it returns nothing, waits, or changes something; not a context (its state)."""
    if any(ast.unparse(entry).endswith("contextmanager") for entry in function.decorator_list):
        return False
    returns = function.returns
    is_command = isinstance(returns, ast.Constant) and returns.value is None
    return is_command or isinstance(function, ast.AsyncFunctionDef) or any(changes(function))


def changes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[bool]:
    """For each expression, whether it changes an argument or a file. An object may remember a value (`self._made`)."""
    given = function.args
    names = {entry.arg for entry in (*given.posonlyargs, *given.args, *given.kwonlyargs)} - {"self", "cls"}
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute | ast.Subscript):
            yield isinstance(node.ctx, ast.Store | ast.Del) and owner(node) in names
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of_argument = node.func.attr in _CHANGES and owner(node.func.value) in names
            yield of_argument or node.func.attr in _OF_FILES or ast.unparse(node.func) in _OF_SYSTEM


def owner(node: ast.expr) -> str:
    """The name at the begin of an expression such as `a.b[c]`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def is_participle(name: str) -> bool:
    """Whether a function's name begins with a participle, or is an event's."""
    first, *others = name.strip("_").split("_")
    if name in PROTOCOLS or first == "on":
        return False
    is_event = bool(others) and others[-1] in {"changed", "gone", "moved"} and first not in {"note", "wait"}
    return is_event or (first not in _VERBS and _PARTICIPLE.fullmatch(first) is not None)


def shared_names() -> dict[str, list[str]]:
    """The names that several public classes have, with their modules."""
    modules = defaultdict(list)
    for path, source in SOURCES.items():
        for name in public_classes(source):
            modules[name].append(path)
    return {name: paths for name, paths in modules.items() if len(paths) > 1}


def vague_names(source: str) -> list[str]:
    """The names of tests with a relative clause on a pronoun, or with a vague verb."""
    return [name for name in _TEST.findall(source) if _VAGUE.search(name)]


def test_no_two_public_classes_have_one_name() -> None:
    assert {name: paths for name, paths in shared_names().items() if name not in SHARED_NAMES} == {}


def test_the_names_that_are_shared_are_few_and_none_is_listed_in_vain() -> None:
    assert len(SHARED_NAMES) <= 5
    assert shared_names().keys() >= SHARED_NAMES


def test_a_command_is_named_by_a_verb() -> None:
    assert [f"{path}: {name}" for path, source in SOURCES.items() for name in participles(source)] == []


@pytest.mark.parametrize(
    ("definition", "seen"),
    [
        ("def attached(self) -> None: ...", ["attached"]),
        ("async def _detaching(self) -> None: ...", ["_detaching"]),
        ("def given_up(self) -> None: ...", ["given_up"]),
        ("def _pod_changed(self) -> None: ...", ["_pod_changed"]),
        ("def attached(self) -> int: ...", []),
        ("def attach(self) -> None: ...", []),
        ("def read(self) -> None: ...", []),
        ("def check_shared(self) -> None: ...", []),
        ("def _on_pod_changed(self) -> None: ...", []),
        ("def connection_made(self) -> None: ...", []),
        ("async def _attached(self) -> int: ...", ["_attached"]),
        ("async def _attach(self) -> int: ...", []),
        ("def _opened(self, path) -> int: return os.open(path, 0)", ["_opened"]),
        ("def _noted(self, entries) -> int: entries.append(1)", ["_noted"]),
        ("def _noted(self, entry) -> int: entry.state[0] = 1", ["_noted"]),
        ("def _removed(self) -> bool: self.path.unlink()", ["_removed"]),
        ("def _known(self, key) -> int: self._made[key] = 1", []),
        ("def _listed(self) -> list[int]: found.append(1)", []),
        ("def _note(self, entries) -> int: entries.append(1)", []),
        ("@contextmanager\n    def opened(self, path) -> int: os.open(path, 0)", []),
        ("async def wait_gone(self) -> int: ...", []),
        ("@asynccontextmanager\n    async def serving(self) -> int: ...", []),
    ],
)
def test_a_participle_is_recognized(definition: str, seen: list[str]) -> None:
    assert list(participles(f"class A:\n    {definition}\n")) == seen


def test_a_public_class_is_recognized() -> None:
    assert public_classes("class A: ...\nclass _B: ...\ndef f():\n    class C: ...\n") == ["A"]


def test_tests_are_named_in_plain_english() -> None:
    tests = Path(__file__).parents[2]
    found = {str(path.relative_to(tests)): vague_names(path.read_text("utf-8")) for path in tests.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}


def test_a_vague_test_name_is_recognized() -> None:
    source = "def test_what_fails() -> None: ...\nclass A:\n    async def test_it_is_told() -> None: ...\n"
    assert vague_names(source + "def test_whatsoever_is_toldless() -> None: ...\n") == [
        "test_what_fails",
        "test_it_is_told",
    ]
