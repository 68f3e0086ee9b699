"""netdra is the same on all versions of Python that it supports."""

from __future__ import annotations

import ast
from pathlib import Path

import netdra

ROOT = Path(netdra.__file__).parent


def test_nothing_uses_except_star() -> None:
    """Python before 3.11.4, as in Debian 12 and in the image, wraps an exception that is raised in it in a group."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted(ROOT.rglob("*.py"))
        if "except*" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.TryStar)
    ]
    assert found == []
