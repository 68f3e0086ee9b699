"""Each use of cryptography is on the page about FIPS 140, and no algorithm that is not approved protects anything."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "fips.md"
PROTECTING = frozenset({"ssl", "hmac", "cryptography"})
NOT_APPROVED = frozenset({"md5", "sha1", "blake2b", "blake2s", "new"})


@dataclass(frozen=True)
class Module:
    """A module of netdra.

    Attributes:
        path: of the file, from the checkout.
        imported: the first part of each imported module's name.
        unapproved: the lines that call an algorithm which is not approved, without `usedforsecurity=False`.
    """

    path: str
    imported: frozenset[str]
    unapproved: tuple[int, ...]


@cache
def modules() -> tuple[Module, ...]:
    """Each module of netdra; without its syntax tree, which the garbage collector would inspect again and again."""
    return tuple(map(module, sorted((ROOT / "netdra").rglob("*.py"))))


def module(path: Path) -> Module:
    tree = ast.parse(path.read_bytes())
    return Module(str(path.relative_to(ROOT)), frozenset(imported(tree)), tuple(unapproved(tree)))


def unapproved(tree: ast.Module) -> Iterator[int]:
    """The lines that call an algorithm which is not approved, without `usedforsecurity=False`."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "hashlib"
            and node.func.attr in NOT_APPROVED
            and not any(each.arg == "usedforsecurity" for each in node.keywords)
        ):
            yield node.lineno


def imported(tree: ast.Module) -> set[str]:
    """The first part of each module's name that is imported."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


def test_each_module_that_protects_by_cryptography_is_on_the_page() -> None:
    named = tuple(re.findall(r"`(netdra/[\w/.]+)`", PAGE.read_text(encoding="utf-8")))
    using = {module.path for module in modules() if module.imported & PROTECTING}
    assert len(using) > 8
    assert sorted(path for path in using if not path.startswith(named)) == []


def test_each_path_on_the_page_uses_cryptography() -> None:
    named = re.findall(r"`(netdra/[\w/.]+)`", PAGE.read_text(encoding="utf-8"))
    using = {module.path for module in modules() if module.imported & (PROTECTING | {"hashlib", "secrets"})}
    assert [name for name in named if not any(path.startswith(name) for path in using)] == []


def test_algorithms_that_are_not_approved_are_not_used_for_security() -> None:
    """Python of a distribution in FIPS mode rejects them without `usedforsecurity=False`."""
    wrong = [f"{module.path}:{line}" for module in modules() for line in module.unapproved]
    assert wrong == []
