"""Each public module, class and function of netdra has a docstring with more than the words of its name.

ruff requires docstrings, too (`D`), and does not read them. A name is public if neither it nor its class begins with an
underscore.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import netdra

ROOT = Path(netdra.__file__).parent
MODULES = sorted(path for path in ROOT.rglob("*.py") if not path.name.endswith("_pb2.py"))
EMPTY = frozenset(
    {
        *("a", "all", "an", "and", "are", "as", "at", "be", "by", "each", "for", "from", "if", "in", "is", "it", "its"),
        *("of", "on", "one", "or", "s", "that", "the", "this", "to", "whether", "with"),
    }
)
"""Words that add nothing to a name."""
ENDINGS = ("ing", "es", "ed", "s")

Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def words(text: str) -> frozenset[str]:
    """The words of a name or a text, in lower case and without their endings."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).replace("_", " ")
    return frozenset(_stem(word) for word in re.findall("[a-z]+", apart.lower()) if word not in EMPTY)


def _stem(word: str) -> str:
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    ending = next((ending for ending in ENDINGS if word.endswith(ending) and len(word) > len(ending) + 2), "")
    return word.removesuffix(ending)


def public(node: ast.AST, path: str) -> Iterator[tuple[str, Documented]]:
    """The public classes and functions below a node, with their paths."""
    for below in ast.iter_child_nodes(node):
        if isinstance(below, Documented) and not below.name.startswith("_"):
            yield f"{path}.{below.name}", below
            if isinstance(below, ast.ClassDef):
                yield from public(below, f"{path}.{below.name}")


def repeating(source: str) -> list[str]:
    """The paths of public names without a docstring, or with one that adds no word to the name."""
    module = ast.parse(source)
    found = [] if ast.get_docstring(module) or not module.body else ["the module"]
    for path, node in public(module, ""):
        if not words(ast.get_docstring(node) or "") - words(node.name):
            found.append(path.removeprefix("."))
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_public_docstring_adds_to_its_name(module: Path) -> None:
    assert not repeating(module.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("docstring", "adds"),
    [
        ("", False),
        ("The story of a pod.", False),
        ("Its stories.", False),
        ("A pod's story, in its order.", True),
        ("None if the pod is unread.", True),
    ],
)
def test_the_words_of_a_name_add_nothing(docstring: str, adds: bool) -> None:
    source = f'"""A module."""\n\n\ndef pod_story() -> None:\n    """{docstring}"""\n'
    assert repeating(source) == ([] if adds else ["pod_story"])


def test_members_of_public_classes_are_public_and_private_ones_are_not() -> None:
    source = (
        '"""A module."""\n\n\nclass Pod:\n    """One sandbox."""\n\n    def wait(self): ...\n    def _end(self): ...\n'
    )
    assert repeating(source) == ["Pod.wait"]
