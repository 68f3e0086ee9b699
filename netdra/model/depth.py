"""JSON that is nested deeper than a decoder goes, made readable: parts that lie deeper than any kind needs become null.

Used for all objects that any user may write: a claim's opaque parameters may be nested 5,000 levels deep in 10 KiB,
which the API server takes and msgspec does not, so that one claim would keep a whole list from being read.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

MOST = 128
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)

T = TypeVar("T")


def decode(decoder: msgspec.json.Decoder[T], text: bytes | msgspec.Raw) -> T:
    """The value of a text; of a text that is nested too deeply for the decoder, the part that is not below `MOST`.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: the text cannot be read.
    """
    try:
        return decoder.decode(text)
    except RecursionError:
        return decoder.decode(shallow(bytes(text)))


def shallow(text: bytes, most: int = MOST) -> bytes:
    """A JSON document in which every array and object that lies deeper is null.

    Args:
        text: the document.
        most: how many arrays and objects may lie in one another.
    """
    parts: list[bytes] = []
    depth = begin = 0
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark in b"[{":
            depth += 1
            if depth == most + 1:
                parts += (text[begin : token.start()], b"null")
        elif mark in b"]}":
            if depth == most + 1:
                begin = token.end()
            depth -= 1
    return b"".join((*parts, text[begin:])) if depth <= most else b""
