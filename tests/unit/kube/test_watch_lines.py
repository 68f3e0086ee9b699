"""A stream of chunks is cut into lines wherever the chunks happen to end."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.kube import watch
from netdra.kube.errors import UnavailableError


def lines_of(chunks: list[bytes]) -> list[bytes]:
    async def source() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def collected() -> list[bytes]:
        return [line async for line in watch.lines(source(), "watch x")]

    return asyncio.run(collected())


@given(st.lists(st.binary(min_size=1, max_size=8).filter(lambda line: line.strip() and b"\n" not in line)), st.data())
def test_lines_are_the_same_however_the_stream_is_chunked(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=10))
    borders = [0, *sorted(places), len(stream)]
    chunks = [stream[begin:end] for begin, end in itertools.pairwise(borders)]

    assert lines_of(chunks) == lines


def test_empty_lines_are_nothing() -> None:
    assert lines_of([b"\n\n{}\n \n"]) == [b"{}"]


def test_a_stream_that_ends_within_a_line_is_cut() -> None:
    with pytest.raises(UnavailableError, match="within an event"):
        lines_of([b'{"type":"ADDED"}\n{"type":"DELE'])


def test_a_line_without_end_is_not_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MAX_LINE", 1000)
    with pytest.raises(UnavailableError, match="more than 1000 bytes"):
        lines_of([b"x" * 600, b"x" * 600, b"x" * 600])
