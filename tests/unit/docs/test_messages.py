"""The page of messages is that of the code; messages are found wherever the code has them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from testbed.messages import Message, Reader, messages
from testbed.messages_page import page

PAGE = Path(__file__).parents[3] / "docs" / "messages.md"


def test_the_page_is_that_of_the_code() -> None:
    """After a change of a message: `make docs`."""
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize(
    ("code", "function", "kind", "text"),
    [
        ('def f(x):\n    raise OtherError(f"{x.name} is not a socket")', "f", "error", "{name} is not a socket"),
        ('def f():\n    raise OtherError("x", hint="remove the file")', "f", "hint", "remove the file"),
        ('def f():\n    return Finding("x is wrong", "remove the file")', "f", "hint", "remove the file"),
        ('def f():\n    return Finding("x is wrong", "remove the file")', "f", "error", "x is wrong"),
        ('def f():\n    hint = "remove the file"', "f", "hint", "remove the file"),
        ('def f(x):\n    return wrong(x, "x is wrong", "remove the file")', "f", "hint", "remove the file"),
        ('def f(x):\n    log.warning("%s is late", x)', "f", "log", "%s is late"),
        ('class A:\n    def f(self):\n        return "not found" " here"', "A.f", "text", "not found here"),
        ("def f(x):\n    return f\"step {x} {'is unknown' if x else ''}\"", "f", "text", "is unknown"),
        ('TEXT = "must be a string"', "", "text", "must be a string"),
        ('@click.command()\ndef f():\n    """Print the\n    slices."""', "f", "help", "Print the slices."),
        ('@option("--x", help="Read the cluster.")\ndef f(): ...', "f", "help", "Read the cluster."),
    ],
)
def test_a_text_is_found_with_its_place_and_kind(code: str, function: str, kind: str, text: str) -> None:
    found = [(each.function, each.kind, each.text) for each in Reader("cli/x.py").read(ast.parse(code))]
    assert (function, kind, text) in found


def test_docstrings_and_names_are_not_messages() -> None:
    code = (
        '"""A module of texts."""\nclass A:\n    """A class of it."""\n    x: int\n    """A field of it."""\nY = "name"'
    )
    assert list(Reader("cli/x.py").read(ast.parse(code))) == []


def test_events_have_their_kind() -> None:
    (found,) = Reader("node/sandboxes/events.py").read(ast.parse('def f():\n    return "the pod has no network"'))
    assert found == Message("node/sandboxes/events.py", "f", "event", "the pod has no network")


def test_the_package_has_messages_of_each_kind() -> None:
    assert {each.kind for each in messages()} >= {"error", "hint", "event", "condition", "log", "help", "text"}
