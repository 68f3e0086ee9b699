"""The words that an anonymous bundle may contain: those of netdra, of Kubernetes, of CNI and of the kernel.

`KnownWords.texts` are for sentences that netdra and Kubernetes write; `KnownWords.names` also for names and values, so
it has no word by which people call their things.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import netdra
from netdra.model.inventory import ATTRIBUTES, TYPES

_WORD = re.compile(r"[A-Za-z]+")
_LITERAL = re.compile(r"Literal\[(.*?)\]", re.DOTALL)
_QUOTED = re.compile(r'"([^"]*)"')

_NAMES, _SENTENCES = (Path(__file__).with_name(f"{name}.txt") for name in ("names", "sentences"))


class KnownWords(NamedTuple):
    """The words that stay.

    Attributes:
        texts: in sentences.
        names: everywhere.
    """

    texts: frozenset[str]
    names: frozenset[str]


@cache
def known_words() -> KnownWords:
    """The words of netdra's own sources, and the lists of this module."""
    root = Path(netdra.__file__).parent
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py"))}
    words = {word for text in sources.values() for word in _WORD.findall(text)}
    names = {word for word in words if word != word.lower()} | set(_WORD.findall(_NAMES.read_text("utf-8")))
    for path, text in sources.items():
        if path.parent.name in ("model", "steps"):
            names.update(word for found in _LITERAL.findall(text) for word in _WORD.findall(_quoted(found)))
    names.update(word for attribute in ATTRIBUTES for word in _WORD.findall(attribute.name))
    names.update(word for kind in TYPES for word in _WORD.findall(kind))
    return KnownWords(frozenset(words | names | set(_WORD.findall(_SENTENCES.read_text("utf-8")))), frozenset(names))


def _quoted(text: str) -> str:
    return " ".join(_QUOTED.findall(text))
