"""A file means here what it means to kubectl: scalars without quotes, and texts that netdra writes.

kubectl needs no server for this: it reads an object of a kind that it does not know and prints it as JSON.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

from netdra.model import yaml_text
from testbed import build
from tests import draws

HEAD = "apiVersion: testbed.example/v1\nkind: Any\nmetadata: {name: any}\n"
_LETTERS = "0123456789abcdefoxyznNYTtrueFfalsOo:.-+_~=<T"
_TOKENS = (
    "0x",
    "0b",
    "0o",
    "1e",
    "_",
    "4_4",
    ".4",
    ":",
    "-",
    "+",
    ".",
    "12",
    "08",
    "y",
    "no",
    "on",
    "2026-11-22",
    "null",
    "52:54",
)
_OTHERS = " #'\"{}[],&*!|>%@`äß€\t"
_PLAIN = re.compile(r"(?!--- ?|\.\.\.)[-+]?[\w.~=][\w.~=<+:-]*(?<!:)\Z")
"""Texts that are one scalar in a list to whoever reads YAML."""


def by_kubectl(text: str, folder: Path) -> list[Any]:
    """The list `values` of a document, as kubectl reads it."""
    file = folder / "any.yaml"
    file.write_text(HEAD + text)
    command = (build.program("kubectl"), "label", "--local", "-f", str(file), "a=b", "-o", "json")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: list[Any] = json.loads(done.stdout)["values"]
    return found


def drawn(letters: str, number: int) -> list[str]:
    """Texts of these letters, and of the parts of numbers, times and truth values."""
    chance = random.Random(draws.seed())
    made = {
        "".join(chance.choices(letters, k=chance.randint(1, 8))) if chance.random() < 0.5
        else "".join(chance.choices(_TOKENS, k=chance.randint(1, 4)))
        for _ in range(number)
    }  # fmt: skip
    return sorted(made | {str(chance.randint(-(10**20), 10**20)) for _ in range(50)})


def same(ours: Any, theirs: Any) -> bool:
    """Whether two values are one; JSON prints large numbers with a float's precision."""
    if isinstance(ours, int | float) and not isinstance(ours, bool) and isinstance(theirs, int | float):
        return float(ours) == float(theirs)
    return (type(ours), ours) == (type(theirs), theirs)


def test_unquoted_scalars_are_read_as_kubectl_reads_them(tmp_path: Path) -> None:
    values = [each for each in drawn(_LETTERS, draws.count(3000, 30000)) if _PLAIN.match(each)]
    text = "values:\n" + "".join(f"- {each}\n" for each in values)
    (found,) = yaml_text.load(text, "f")
    theirs = by_kubectl(text, tmp_path)
    assert len(values) > 1000
    compared = zip(values, found["values"], theirs, strict=True)
    assert [each for each in compared if not same(each[1], each[2])] == []


def test_texts_that_are_written_are_the_same_texts_to_kubectl(tmp_path: Path) -> None:
    values = ["", *drawn(_LETTERS + _OTHERS, draws.count(3000, 30000))]
    assert by_kubectl(yaml_text.dump([{"values": values}]), tmp_path) == values
