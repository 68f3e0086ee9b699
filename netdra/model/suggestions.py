"""Names in sentences: what may be meant by a word that is unknown ("did you mean"), and lists that stay short. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

MAX_WORD = 253
"""Longer words than a name may be are not compared: it takes long, and nobody means a name by them."""
LISTED = 10


def closest(word: str, words: Iterable[str], cutoff: float = 0.65) -> str:
    """The most similar of some words, without regard to case and separators; "" if none is similar.

    Words that differ in their numbers alone are different things: `net1`, `net2`.
    """
    if len(word) > MAX_WORD:
        return ""
    flat_word = _flat(word)
    flat = {_flat(entry): entry for entry in words if _digits(entry) == _digits(word)}
    close = difflib.get_close_matches(flat_word, flat, n=1, cutoff=cutoff)
    return flat[close[0]] if close else ""


def alike(word: str, words: Iterable[str]) -> str:
    """The only one of some words that is similar to a word, numbers included; "" if none or several are."""
    flat = {_flat(entry): entry for entry in words}
    close = difflib.get_close_matches(_flat(word), flat, n=2, cutoff=0.65) if len(word) <= MAX_WORD else []
    return flat[close[0]] if len(close) == 1 else ""


def hint(word: str, words: Iterable[str], there_are: str = "known:", *, others: Mapping[str, str] | None = None) -> str:
    """`did you mean "…"?` for an unknown word, or the known ones where none is similar.

    Args:
        word: what was written.
        words: what there is.
        there_are: the beginning of the list of known words.
        others: words that people use for some of the known ones.
    """
    names = list(dict.fromkeys(words))
    synonym = (others or {}).get(_flat(word), "")
    if nearest := closest(word, names) or (synonym if synonym in names else ""):
        return f'did you mean "{nearest}"?'
    return f"{there_are} {listed(names)}" if names else ""


def listed(names: Iterable[str], limit: int = LISTED) -> str:
    """The first of several names, and how many more there are: `a, b, c and 5 more`."""
    once = list(dict.fromkeys(names))
    more = len(once) - limit
    return ", ".join(once[:limit]) + (f" and {more} more" if more > 0 else "")


def _flat(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "") or word


def _digits(word: str) -> str:
    return "".join(filter(str.isdigit, word))
