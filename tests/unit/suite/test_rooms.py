"""Every module of netdra states something of its own, and each of its names stands for one thing."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import netdra

ROOT = Path(netdra.__file__).parent
_WORD = re.compile(r"[A-Za-z_]\w*")
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.name not in {"__init__.py", "__main__.py"})


@dataclass(frozen=True)
class Facts:
    """A module's properties, without its syntax tree, which takes long to make.

    Attributes:
        forwards: whether it only hands on others' objects: imports, and other names for its imports.
        names: those that its statements give, each time.
        called: the names that a decorator has registered.
    """

    forwards: bool
    names: tuple[str, ...]
    called: frozenset[str]


@cache
def facts(source: str) -> Facts:
    """A module's properties."""
    tree = ast.parse(source)
    called = (name for node in tree.body if getattr(node, "decorator_list", ()) for name in _names(node))
    return Facts(_forwards(tree), tuple(name for node in tree.body for name in _names(node)), frozenset(called))


def _forwards(tree: ast.Module) -> bool:
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    return all(_hands_on(node, imported) for node in tree.body)


def _hands_on(node: ast.stmt, imported: set[str]) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ):
        return True
    if not isinstance(node, ast.Assign):
        return False
    names = {target.id for target in node.targets if isinstance(target, ast.Name)}
    value = node.value
    while isinstance(value, ast.Attribute):
        value = value.value
    return names == {"__all__"} or (isinstance(value, ast.Name) and value.id in imported)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_only_forwards(path: Path) -> None:
    assert not facts(path.read_text(encoding="utf-8")).forwards, (
        "its users can import what it hands on from where it is"
    )


def taken_twice(source: str) -> list[str]:
    """Names of a module that are assigned a second time, so that the first object is hidden."""
    return [name for name, times in Counter(facts(source).names).items() if times > 1]


def _names(node: ast.stmt) -> list[str]:
    """The names that a statement gives."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_name_is_given_twice(path: Path) -> None:
    assert taken_twice(path.read_text(encoding="utf-8")) == []


def test_every_module_level_name_is_used_somewhere() -> None:
    """A command of click's is called by its name on the command line, all else by its name in a module."""
    words = Counter(word for path in ROOT.rglob("*.py") for word in _WORD.findall(path.read_text(encoding="utf-8")))
    alone = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in MODULES
        if not path.name.endswith("_pb2.py")
        for module in (facts(path.read_text(encoding="utf-8")),)
        for name in module.names
        if words[name] == 1 and name not in module.called and name != "__getattr__"  # Python calls it (PEP 562)
    }
    assert alone == set()


def test_a_name_that_is_given_twice_is_seen() -> None:
    assert taken_twice("A = 1\nB: int = 2\nA = 3\ndef B(): pass\n") == ["A", "B"]


@pytest.mark.parametrize(
    ("source", "only_forwards"),
    [
        ('"""Doc."""\nfrom a import b\n__all__ = ["b"]\n', True),
        ("import a\nb = a.b.c\n", True),
        ("from a import b\nc = b()\n", False),
        ("from a import b\ndef c(): return b()\n", False),
    ],
)
def test_modules_that_only_forward_names_are_recognized(source: str, only_forwards: bool) -> None:
    assert facts(source).forwards is only_forwards
