"""Frames as h2's own library reads and writes them, however the bytes are split."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hpack import Decoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from hyperframe.frame import Frame as ReferenceFrame
from hypothesis import given
from hypothesis import strategies as st

from netdra.grpc import frames
from netdra.grpc.frames import PREFACE, FrameReader, FrameType, Http2Error, ResetCode, Setting
from tests.unit.grpc.talk import unknown_frame

STREAMS = st.integers(1, frames.LAST_STREAM)
PAYLOADS = st.binary(max_size=300)
FRAMES = st.one_of(
    st.builds(lambda stream, data: DataFrame(stream, data), STREAMS, PAYLOADS),
    st.builds(lambda stream, data: HeadersFrame(stream, data, flags=["END_HEADERS"]), STREAMS, PAYLOADS),
    st.builds(lambda stream: PriorityFrame(stream, depends_on=0, stream_weight=3), STREAMS),
    st.builds(lambda data: PingFrame(opaque_data=data), st.binary(min_size=8, max_size=8)),
    st.builds(unknown_frame, STREAMS, PAYLOADS),
)


@given(st.lists(FRAMES, max_size=8), st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_frames_are_the_same_regardless_of_the_split(written: Sequence[ReferenceFrame], sizes: Sequence[int]) -> None:
    data = PREFACE + b"".join(frame.serialize() for frame in written)
    reader, read, at = FrameReader(), list[frames.Http2Frame](), 0
    while at < len(data):
        size = sizes[len(read) % len(sizes)]
        read += reader.feed(data[at : at + size])
        at += size
    assert [(each.kind, each.stream) for each in read] == [(frame.type, frame.stream_id) for frame in written]
    assert [each.payload for each in read] == [frame.serialize()[9:] for frame in written]


@given(st.binary(max_size=40))
def test_a_frame_without_its_padding_and_priority_is_its_content(data: bytes) -> None:
    padded = DataFrame(1, data, pad_length=7, flags=["PADDED"])
    prior = HeadersFrame(1, data, pad_length=3, depends_on=0, stream_weight=9, flags=["PADDED", "PRIORITY"])
    for frame in (padded, prior, DataFrame(1, data), HeadersFrame(1, data)):
        (read,) = FrameReader().feed(PREFACE + frame.serialize())
        assert frames.content(read) == data


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (frames.settings({Setting.MAX_CONCURRENT_STREAMS: 7}), SettingsFrame(0, {3: 7})),
        (frames.SETTINGS_ACK, SettingsFrame(0, flags=["ACK"])),
        (frames.window_update(5, 99), WindowUpdateFrame(5, 99)),
        (frames.reset(5, ResetCode.CANCEL), RstStreamFrame(5, 8)),
        (frames.goaway(9, ResetCode.FRAME_SIZE_ERROR), GoAwayFrame(0, 9, 6)),
        (
            frames.frame(FrameType.DATA, frames.END_STREAM, 3, b"x" * 70_00),
            DataFrame(3, b"x" * 70_00, flags=["END_STREAM"]),
        ),
        (frames.headers(3, b"x"), HeadersFrame(3, b"x", flags=["END_HEADERS"])),
    ],
)
def test_frames_are_written_as_by_the_reference(written: bytes, expected: ReferenceFrame) -> None:
    assert written == expected.serialize()


@given(st.integers(1, 60_000))
def test_a_header_block_of_any_size_fits_into_its_frames(size: int) -> None:
    block, data = b"x" * size, memoryview(frames.headers(3, b"x" * size, frames.END_STREAM))
    read, flags = b"", set[str]()
    while data:
        frame, length = ReferenceFrame.parse_frame_header(data[:9])
        assert isinstance(frame, ContinuationFrame if read else HeadersFrame)
        assert length <= frames.MAX_PAYLOAD
        read += data[9 : 9 + length]
        flags |= set(frame.flags)
        data = data[9 + length :]
        assert ("END_HEADERS" in frame.flags) == (not data)
    assert (read, flags) == (block, {"END_STREAM", "END_HEADERS"})


@given(st.lists(st.tuples(st.from_regex(r"[a-z-]{1,200}", fullmatch=True), st.text("abc ~\\x7f", max_size=3_000))))
def test_header_fields_are_read_by_the_reference(fields: Sequence[tuple[str, str]]) -> None:
    block = b"".join(frames.literal(name.encode(), value.encode()) for name, value in fields)
    assert [(str(name), str(value)) for name, value in Decoder(1 << 30).decode(block)] == list(fields)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\n", ResetCode.PROTOCOL_ERROR),
        (PREFACE + b"\x00\x40\x01\x00\x00\x00\x00\x00\x01", ResetCode.FRAME_SIZE_ERROR),
    ],
)
def test_foreign_bytes_and_oversized_frames_end_the_connection(data: bytes, code: ResetCode) -> None:
    with pytest.raises(Http2Error) as problem:
        list(FrameReader().feed(data))
    assert problem.value.code is code
