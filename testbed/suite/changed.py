"""Which unit tests a change can break: those that import a changed module, however indirectly. For `make quick`.

A page or a chart's file is read by modules that name it, or a folder above it. If Python does not show the imports, the
dependency is on everything: of a test that starts programs, and on any other file that is not a module.
"""

from __future__ import annotations

import ast
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

_ROOTS = ("bench", "image", "netdra", "release", "testbed", "tests")
_FOR_PEOPLE = ("charts/", "docs/", "examples/")
_UNIT = "tests/unit/"
# Files that no unit test reads.
_READ_BY_NOBODY = (".gitignore", "CHANGELOG.md", "LICENSE", ".ci/")


class ChangeError(Exception):
    """The changed files cannot be determined; the text has git's reason."""


def files(since: str = "") -> list[str]:
    """The files that differ from a commit; without one, from the last commit or, if none does, what that one changed.

    Raises:
        ChangeError: git knows no such commit.
    """
    if since:
        return [*_git("diff", "--name-only", since), *_untracked()]
    changed = [*_git("diff", "--name-only", "HEAD"), *_untracked()]
    return changed or _git("diff", "--name-only", "HEAD~1", "HEAD")


def unit_tests(changed: Sequence[str]) -> list[str]:
    """The unit tests that a change of these files can break; `tests/unit` where that is all of them."""
    left = [name for name in changed if not name.startswith(_READ_BY_NOBODY)]
    read = [name for name in left if name.startswith(_FOR_PEOPLE) or name.endswith(".md")]
    modules = [name for name in left if name not in read]
    if any(not name.endswith(".py") or not name.startswith(_ROOTS) for name in modules):
        return [_UNIT.rstrip("/")]
    reached = _reached([*modules, *_readers(read)])
    found = {name for name in reached if name.startswith(_UNIT) and Path(name).name.startswith("test_")}
    if modules:
        found |= {str(path) for path in Path(_UNIT).rglob("test_*.py") if "subprocess" in path.read_text()}
    return sorted(name for name in found if Path(name).exists())


def _reached(left: list[str]) -> set[str]:
    """These files, and those that import them, however indirectly."""
    importing = dependents()
    reached: set[str] = set()
    while left:
        name = left.pop()
        if name not in reached:
            reached.add(name)
            left += importing.get(name, ())
    return reached


def _readers(names: Sequence[str]) -> Iterator[str]:
    """The modules, without the product's, that name one of these files or a folder above it."""
    parts = {part for name in names for part in Path(name).parts} - {"netdra"}
    suffixes = tuple({f"*{Path(name).suffix}" for name in names})
    for root in _ROOTS if names else ():
        for path in Path(root).rglob("*.py") if root != "netdra" else ():
            if any(text.endswith(suffixes) or not parts.isdisjoint(text.split("/")) for text in _texts(path)):
                yield str(path)


def _texts(path: Path) -> Iterator[str]:
    """The texts in a module, without whole sentences such as its docstrings."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            yield node.value


def elsewhere(changed: Sequence[str]) -> list[str]:
    """The changed tests that are not unit tests."""
    return [
        name
        for name in changed
        if name.startswith("tests/")
        and not name.startswith(_UNIT)
        and Path(name).name.startswith("test_")
        and Path(name).exists()
    ]


def dependents() -> Mapping[str, set[str]]:
    """File -> the files that import it."""
    found: dict[str, set[str]] = defaultdict(set)
    for root in _ROOTS:
        for path in Path(root).rglob("*.py"):
            for imported in (*_imported(path), *_conftests(path)):
                found[imported].add(str(path))
    return found


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from _files(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from _files((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))


def _files(modules: Iterable[str]) -> Iterator[str]:
    """The files of modules that are ours, with the packages that they are in, which are imported before."""
    for module in modules:
        parts = module.split(".")
        if parts[0] in _ROOTS:
            for length in range(1, len(parts) + 1):
                base = "/".join(parts[:length])
                yield from (name for name in (f"{base}.py", f"{base}/__init__.py") if Path(name).exists())


def _conftests(path: Path) -> Iterator[str]:
    if path.parts[0] == "tests":
        yield from (str(name) for folder in path.parents if (name := folder / "conftest.py").exists())


def _untracked() -> list[str]:
    return _git("ls-files", "--others", "--exclude-standard")


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(("git", *arguments), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ChangeError(f"'git {' '.join(arguments)}' failed: {done.stderr.strip()}")
    return done.stdout.splitlines()
