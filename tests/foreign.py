"""Bytes of others with mistakes in them, and a parser's allowed outcomes: an answer or its own error, in time.

The bytes are valid messages with mistakes, since bytes from chance alone are refused at the first. In `make test` each
parser has a second; `make explore` draws again and gives each `NETDRA_FUZZ_SECONDS` (60).
"""

from __future__ import annotations

import os
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests import draws

SECONDS = float(os.environ.get("NETDRA_FUZZ_SECONDS", "60")) if draws.ANEW else 1.0
LIMIT = SECONDS * 3 + 300
"""Seconds after which a test of one parser is ended."""
SLOWEST_SECONDS = 0.5
"""CPU time of one message; the slowest sound one takes a hundredth. A virtual machine that stood still counts too."""
TRIES = 3
MOST_MEMORY = 64 * 1024 * 1024


class Parser(NamedTuple):
    """A parser of foreign bytes.

    Attributes:
        parse: the parser.
        refuses: what it raises for bytes that it does not take.
        sound: messages that it takes.
        words: what mistakes are made of, beside bytes from chance.
        found: messages that it once failed on.
    """

    parse: Callable[[bytes], object]
    refuses: tuple[type[Exception], ...]
    sound: tuple[bytes, ...]
    words: tuple[bytes, ...]
    found: tuple[bytes, ...] = ()


def changed(chance: random.Random, sound: bytes, words: tuple[bytes, ...]) -> bytes:
    """A message with a few mistakes."""
    data = bytearray(sound)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at, end = sorted((chance.randint(0, len(data)), chance.randint(0, len(data))))
        end = min(end, at + chance.choice((1, 4, 64)))
        match chance.randrange(7):
            case 0:
                data[at:end] = chance.randbytes(end - at)
            case 1:
                del data[at:end]
            case 2:
                data[at:at] = data[at:end] * chance.choice((1, 2, 100))
            case 3:
                data[at:end] = chance.choice(words)
            case 4:
                data[at:at] = chance.choice(words)
            case 5:
                del data[at:]
            case 6 if data:
                data[min(at, len(data) - 1)] ^= 1 << chance.randrange(8)
    return bytes(data)


def drawn(name: str, parser: Parser) -> Iterator[bytes]:
    """The earlier failures, and then messages with mistakes for as long as a parser has."""
    chance = random.Random(f"{draws.seed()} {name}")
    yield from parser.found
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        yield changed(chance, chance.choice(parser.sound), parser.words)


def outcome(parser: Parser, data: bytes) -> str:
    """The error of a parser on bytes, or ""."""
    for _ in range(TRIES):
        begun = time.thread_time()
        try:
            parser.parse(data)
        except parser.refuses:
            pass
        except Exception as problem:  # noqa: BLE001 (whichever it is, it is what the test looks for)
            return f"raises {type(problem).__name__}: {problem}"
        seconds = time.thread_time() - begun
        if seconds <= SLOWEST_SECONDS:
            return ""
    return f"takes {seconds:.2f} s"


def wrong(name: str, parser: Parser) -> str:
    """The first message of all drawn for a parser that it neither takes nor refuses as it should, or ""."""
    for data in drawn(name, parser):
        if problem := outcome(parser, data):
            return f"{name}: {problem}\nNETDRA_SEED={draws.seed()}; {data!r}"
    return ""


def memory(name: str, parser: Parser) -> int:
    """The most bytes that a parser has at once, of messages that are each read and forgotten."""
    chance = random.Random(f"{draws.seed()} memory of {name}")
    tracemalloc.start()
    try:
        messages = [changed(chance, chance.choice(parser.sound), parser.words) for _ in range(draws.count(50, 2_000))]
        for data in (*parser.found, *messages):
            outcome(parser, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
