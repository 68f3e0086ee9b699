"""Frames arrive whole however the socket splits them, and rubbish ends in a reason, in bounded memory."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.nri import framing
from netdra.nri.framing import MOST_DATA, Demux, Frame, FrameKind, ProtocolError, Reader, encode

MUX_HEADER = struct.Struct(">II")
TTRPC_HEADER = struct.Struct(">IIBB")

frames = st.lists(
    st.builds(
        Frame,
        call=st.integers(0, (1 << 31) - 1).map(lambda number: 2 * number + 1),
        kind=st.just(FrameKind.REQUEST),
        data=st.one_of(st.binary(max_size=20), st.integers(0, 9000).map(lambda size: b"x" * size)),
    ),
    max_size=5,
)
cuts = st.lists(st.integers(0, 30000), max_size=8)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


@given(mine=frames, others=frames, cuts=cuts, data=st.data())
def test_two_streams_survive_any_interleaving_and_any_split(
    mine: list[Frame], others: list[Frame], cuts: list[int], data: st.DataObject
) -> None:
    waiting = {framing.PLUGIN_STREAM: list(mine), framing.RUNTIME_STREAM: list(others)}
    sent = b""
    while any(waiting.values()):
        stream = data.draw(st.sampled_from([stream for stream, left in waiting.items() if left]))
        sent += framing.frames(stream, encode(waiting[stream].pop(0)))
    demux, readers = Demux(), {stream: Reader(FrameKind.REQUEST) for stream in waiting}
    found: dict[int, list[Frame]] = {stream: [] for stream in waiting}
    for piece in pieces(sent, cuts):
        for stream, payload in demux.feed(piece):
            found[stream] += readers[stream].feed(payload)
    assert found == {framing.PLUGIN_STREAM: mine, framing.RUNTIME_STREAM: others}


@given(st.integers(0, 20000))
def test_no_frame_that_is_sent_has_more_than_the_runtime_can_read_at_once(size: int) -> None:
    sent = framing.frames(framing.RUNTIME_STREAM, bytes(size))
    sizes = []
    while sent:
        stream, length = MUX_HEADER.unpack_from(sent)
        assert stream == framing.RUNTIME_STREAM
        sizes.append(length)
        sent = sent[MUX_HEADER.size + length :]
    assert sum(sizes) == size
    assert all(0 < length <= 4096 for length in sizes)


@given(rubbish=st.binary(max_size=200), cuts=cuts)
def test_rubbish_is_read_or_refused_and_nothing_else(rubbish: bytes, cuts: list[int]) -> None:
    demux, reader = Demux(), Reader(FrameKind.REQUEST)
    with suppress(ProtocolError):
        for piece in pieces(rubbish, cuts):
            for _, payload in demux.feed(piece):
                for frame in reader.feed(payload):
                    assert frame.call % 2 == 1


def test_the_longest_frame_of_the_runtime_is_taken_and_a_longer_one_is_not() -> None:
    longest = framing.MOST_RECEIVED
    demux = Demux()
    assert demux.feed(MUX_HEADER.pack(1, longest) + b"x") == [(1, b"x")]
    with pytest.raises(ProtocolError, match=f"a frame of {longest + 1} bytes for stream 7"):
        Demux().feed(MUX_HEADER.pack(7, longest + 1))


def test_a_frame_without_payload_is_nothing() -> None:
    assert Demux().feed(MUX_HEADER.pack(1, 0) + MUX_HEADER.pack(2, 1) + b"a") == [(2, b"a")]


def test_the_longest_message_is_taken_and_a_longer_one_is_refused_before_it_is_kept() -> None:
    longest = Frame(1, FrameKind.REQUEST, bytes(MOST_DATA))
    assert Reader(FrameKind.REQUEST).feed(encode(longest)) == [longest]
    with pytest.raises(ProtocolError, match=f"a message of {MOST_DATA + 1} bytes in call 3"):
        Reader(FrameKind.REQUEST).feed(TTRPC_HEADER.pack(MOST_DATA + 1, 3, 1, 0))
    with pytest.raises(ProtocolError, match="are the most"):
        encode(Frame(1, FrameKind.REQUEST, bytes(MOST_DATA + 1)))


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (TTRPC_HEADER.pack(0, 1, 2, 0), "a frame of kind 2 in call 1, where only kind 1 belongs"),
        (TTRPC_HEADER.pack(0, 1, 3, 0), "a frame of kind 3"),
        (TTRPC_HEADER.pack(0, 2, 1, 0), "call 2 has an even number"),
    ],
)
def test_a_frame_that_is_not_a_request_is_rejected_with_the_reason(header: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        Reader(FrameKind.REQUEST).feed(header)
