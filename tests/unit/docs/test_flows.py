"""The page of the flows names existing files and functions, and all existing queues."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "flows.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(netdra/[\w/]+\.py)(?::([\w.]+))?`", PAGE)))


def has(path: Path, dotted: str) -> bool:
    """Whether a module defines a function or class, or a class a method."""
    body: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    for name in dotted.split("."):
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        met = next((node for node in body if isinstance(node, kinds) and node.name == name), None)
        if met is None:
            return False
        body = met.body
    return True


@pytest.mark.parametrize(("path", "dotted"), NAMED, ids=lambda value: str(value))
def test_every_file_and_definition_named_on_the_page_exists(path: str, dotted: str) -> None:
    assert (ROOT / path).is_file()
    assert not dotted or has(ROOT / path, dotted)


def test_the_page_has_every_queue() -> None:
    made = {
        name
        for path in (ROOT / "netdra").rglob("*.py")
        for name in re.findall(r'WorkQueue(?:\[\w+\])?\(\s*"([\w-]+)"', path.read_text(encoding="utf-8"))
    }
    assert made == set(re.findall(r"^\| `([\w-]+)` \|", PAGE, re.MULTILINE))


def test_each_of_the_thirteen_flows_is_there() -> None:
    assert len(re.findall(r"^\| what \| where \| by \| bound \|$", PAGE, re.MULTILINE)) == 13
    assert len(NAMED) > 40
