"""One connection with h2 as the client: windows, limits, deadlines, and breaches of the protocol."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import BytesValue
from h2.connection import H2Connection
from h2.settings import SettingCodes, Settings
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netdra.grpc.calls import GrpcCall, GrpcError, GrpcStatus, streaming, unary
from netdra.grpc.connection import MAX_FRAGMENTS, GrpcLimits
from netdra.grpc.frames import PREFACE, ResetCode
from testbed.waiting import until_async
from tests.unit.grpc.talk import ECHO, METHODS, Client, framed, headers, talking, unknown_frame, waiting

BLOCK = Encoder().encode(headers())
BEGIN = HeadersFrame(1, BLOCK, flags=["END_HEADERS"])
SLOW = "/test.Echo/Wait"


@settings(deadline=None, max_examples=40)
@given(
    size=st.sampled_from((0, 1, 100, 16_379, 70_000, 300_000)),
    window=st.sampled_from((0, 1, 1_000, 65_535, 1 << 20)),
    most=st.sampled_from((16_384, 100_000)),
    step=st.integers(1_000, 200_000),
)
def test_requests_and_answers_of_any_size_pass_windows_of_any_size(
    size: int, window: int, most: int, step: int
) -> None:
    async def story() -> None:
        http2 = H2Connection()
        values = {SettingCodes.INITIAL_WINDOW_SIZE: window, SettingCodes.MAX_FRAME_SIZE: most}
        http2.local_settings, http2.max_inbound_frame_size = Settings(initial_values=values), most
        async with talking(http2=http2) as (client, connection):
            await client.until(lambda: bool(client.http2.remote_settings.max_concurrent_streams == 100))
            client.http2.send_headers(1, headers())
            await _send(client, framed(b"x" * size))
            while not (answer := client.answers.get(1)) or not answer.ended:
                for stream in (None, 1):
                    client.http2.increment_flow_control_window(step, stream)
                await client.flush()
                await client.read()
            assert answer.data == framed(b"x" * size)
            assert (answer.status, connection.calls) == ("0", {})

    asyncio.run(story())


async def _send(client: Client, data: bytes) -> None:
    """Send a request as fast as the server takes it, which answers nothing before it has all."""
    while data:
        size = min(len(data), client.http2.local_flow_control_window(1), client.http2.max_outbound_frame_size)
        if size:
            client.http2.send_data(1, data[:size], end_stream=size == len(data))
            data = data[size:]
            await client.flush()
        else:
            await client.read()


def test_an_answer_waits_while_the_client_lowers_its_window() -> None:
    async def story() -> None:
        async with talking() as (client, _):
            client.http2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 10})
            stream = await client.call(b"x" * 1_000)
            await client.until(lambda: len(client.answers.get(stream, _NOTHING).data) == 10)
            client.http2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
            await client.flush()
            client.http2.increment_flow_control_window(10, stream)  # it is at 0 now, and not at 10
            client.http2.ping(b"12345678")
            await client.flush()
            await client.read()
            assert len(client.answers[stream].data) == 10
            client.http2.increment_flow_control_window(2_000, stream)
            await client.flush()
            assert (await client.answer(stream)).data == framed(b"x" * 1_000)

    asyncio.run(story())


_NOTHING: Any = type("Nothing", (), {"data": b""})


def test_calls_beyond_the_limit_are_refused_and_served_once_others_have_ended() -> None:
    begun: list[GrpcCall] = []

    async def story() -> None:
        done = asyncio.Event()
        methods = {SLOW: waiting(begun, done.wait)}
        async with talking(methods, GrpcLimits(calls=2)) as (client, _):
            first, second, third = [await client.call(b"", path=SLOW) for _ in range(3)]
            assert (await client.answer(third)).reset == ResetCode.REFUSED_STREAM
            assert len(begun) == 2
            done.set()
            assert [(await client.answer(each)).status for each in (first, second)] == ["0", "0"]
            assert (await client.answer(await client.call(b"", path=SLOW))).status == "0"

    asyncio.run(story())


def test_a_call_ends_at_its_deadline_and_its_work_is_cancelled() -> None:
    begun: list[GrpcCall] = []

    async def story() -> None:
        cancelled = asyncio.Event()

        async def forever() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async with talking({SLOW: waiting(begun, forever)}) as (client, _):
            stream = await client.call(b"", path=SLOW, seconds="50m")
            answer = await client.answer(stream)
            assert (answer.status, answer.headers["grpc-message"]) == ("4", "no answer in 0.05 s")
            assert cancelled.is_set()

    asyncio.run(story())


def test_padding_does_not_use_the_window_up() -> None:
    async def story() -> None:
        async with talking() as (client, _):
            await client.until(lambda: 0 in client.answers)  # the server's settings
            client.http2.send_headers(1, headers())
            data = framed(b"x" * 30_000)
            for at in range(0, len(data), 50):
                while client.http2.local_flow_control_window(1) < 400:
                    await client.read()
                client.http2.send_data(1, data[at : at + 50], pad_length=255, end_stream=at + 50 >= len(data))
                await client.flush()
            assert (await client.answer(1)).data == data

    asyncio.run(story())


def test_a_reset_call_is_cancelled_and_leaves_nothing() -> None:
    begun: list[GrpcCall] = []

    async def story() -> None:
        async with talking({SLOW: waiting(begun, asyncio.Event().wait)}) as (client, connection):
            for _ in range(500):
                client.http2.reset_stream(await client.call(b"", path=SLOW))
            client.http2.ping(b"12345678")
            await client.flush()
            await client.read()
            assert connection.calls == {}
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == 1

    asyncio.run(story())


def test_calls_cancelled_by_a_lost_connection_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A program of the node can make thousands of them a second."""
    begun: list[GrpcCall] = []

    async def story() -> None:
        async with talking({SLOW: waiting(begun, asyncio.Event().wait)}) as (client, connection):
            for _ in range(20):
                await client.call(b"", path=SLOW)
            await until_async(lambda: len(begun) == 20, "the calls")
            client.socket.close()
            await until_async(lambda: not connection.calls, "their end")
            assert len(asyncio.all_tasks()) == 1

    with caplog.at_level(logging.INFO):
        asyncio.run(story())
    assert caplog.messages == []


def test_an_unfinished_request_is_stopped_after_its_answer() -> None:
    async def story() -> None:
        async with talking() as (client, _):
            stream = await client.call(b"", path="/test.Other/GrpcCall", ends=False)
            answer = await client.answer(stream)
            assert answer.status == "12"
            await client.until(lambda: client.answers[stream].reset == ResetCode.NO_ERROR)
            await client.send(DataFrame(stream, b"still on its way", flags=["END_STREAM"]).serialize())
            assert (await client.answer(await client.call(b"next"))).status == "0"

    asyncio.run(story())


def test_texts_of_errors_are_coded_for_the_wire() -> None:
    async def refuse(_: BytesValue) -> Message:
        raise GrpcError(GrpcStatus.UNAVAILABLE, "50 % of ü\nare gone")

    async def story() -> None:
        async with talking({SLOW: unary(BytesValue, refuse)}) as (client, _):
            answer = await client.answer(await client.call(b"", path=SLOW))
            assert (answer.status, answer.headers["grpc-message"]) == ("14", "50 %25 of %C3%BC%0Aare gone")

    asyncio.run(story())


def test_a_defect_and_a_malformed_request_have_their_statuses() -> None:
    async def fail(_: BytesValue) -> AsyncGenerator[Message, None]:
        yield BytesValue()
        raise ValueError("secret")

    async def story() -> None:
        async with talking({SLOW: streaming(BytesValue, fail), **METHODS}) as (client, _):
            answer = await client.answer(await client.call(b"", path=SLOW))
            assert (answer.status, answer.headers["grpc-message"]) == ("2", "Internal Server Error")
            client.http2.send_headers(stream := client.http2.get_next_available_stream_id(), headers())
            client.http2.send_data(stream, struct.pack(">?I", False, 3) + b"\xff\xff\xff", end_stream=True)
            await client.flush()
            answer = await client.answer(stream)
            assert answer.status == "3"
            assert answer.headers["grpc-message"] == "the request is not a valid google.protobuf.BytesValue"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("more", "status"), [({":method": "GET"}, "405"), ({"content-type": "text/html"}, "415")], ids=["GET", "text"]
)
def test_requests_of_plain_http_get_its_status(more: dict[str, str], status: str) -> None:
    async def story() -> None:
        async with talking() as (client, _):
            client.http2.send_headers(1, list((dict(headers()) | more).items()), end_stream=True)
            await client.flush()
            assert (await client.answer(1)).headers[":status"] == status

    asyncio.run(story())


ALLOWED: dict[str, list[Frame]] = {
    "unknown": [unknown_frame(7, b"what")],
    "priority": [PriorityFrame(9, depends_on=0, stream_weight=1)],
    "empty_settings": [SettingsFrame(0)],
    "unknown_setting": [SettingsFrame(0, {0xFF: 1})],
    "padding": [BEGIN, DataFrame(1, framed(b"x"), pad_length=9, flags=["PADDED", "END_STREAM"])],
    "trailers": [
        BEGIN,
        DataFrame(1, framed(b"x")),
        HeadersFrame(1, Encoder().encode([("x", "y")]), flags=["END_HEADERS", "END_STREAM"]),
    ],
    "continuation": [
        HeadersFrame(1, BLOCK[:5], flags=["END_STREAM"]),
        ContinuationFrame(1, BLOCK[5:9]),
        ContinuationFrame(1, BLOCK[9:], flags=["END_HEADERS"]),
    ],
    "ended_call": [BEGIN, RstStreamFrame(1, 8), DataFrame(1, b"late"), WindowUpdateFrame(1, 5), RstStreamFrame(1, 8)],
}
BREACHES: dict[str, tuple[ResetCode, list[Frame]]] = {
    "data_of_no_stream": (ResetCode.PROTOCOL_ERROR, [DataFrame(1, b"x")]),
    "reset_of_no_stream": (ResetCode.PROTOCOL_ERROR, [RstStreamFrame(1, 8)]),
    "window_of_no_stream": (ResetCode.PROTOCOL_ERROR, [WindowUpdateFrame(1, 5)]),
    "server_stream": (ResetCode.PROTOCOL_ERROR, [HeadersFrame(2, BLOCK, flags=["END_HEADERS"])]),
    "push": (ResetCode.PROTOCOL_ERROR, [PushPromiseFrame(1, 2, BLOCK, flags=["END_HEADERS"])]),
    "stream_begins_twice": (ResetCode.PROTOCOL_ERROR, [BEGIN, BEGIN]),
    "interrupted_headers": (ResetCode.PROTOCOL_ERROR, [HeadersFrame(1, BLOCK), PingFrame(opaque_data=b"12345678")]),
    "continuation_of_nothing": (ResetCode.PROTOCOL_ERROR, [ContinuationFrame(1, b"x")]),
    "continuation_of_another": (ResetCode.PROTOCOL_ERROR, [HeadersFrame(1, BLOCK), ContinuationFrame(3, b"x")]),
    "endless_headers": (
        ResetCode.ENHANCE_YOUR_CALM,
        [HeadersFrame(1, BLOCK), *[ContinuationFrame(1, b"") for _ in range(MAX_FRAGMENTS)]],
    ),
    "large_headers": (
        ResetCode.COMPRESSION_ERROR,
        [HeadersFrame(1, Encoder().encode([("x", "~" * 3_000)] * 30), flags=["END_HEADERS"])],
    ),
    "no_headers": (ResetCode.COMPRESSION_ERROR, [HeadersFrame(1, b"\xff\xff\xff", flags=["END_HEADERS"])]),
    "cut_headers": (ResetCode.COMPRESSION_ERROR, [HeadersFrame(1, b"\x00\x01", flags=["END_HEADERS"])]),
    "data_after_the_end": (
        ResetCode.STREAM_CLOSED,
        [HeadersFrame(1, BLOCK, flags=["END_HEADERS", "END_STREAM"]), DataFrame(1, b"x")],
    ),
    "more_than_the_window": (ResetCode.FLOW_CONTROL_ERROR, [BEGIN, *[DataFrame(1, b"\x00" * 16_000)] * 5]),
    "window_of_nothing": (ResetCode.FLOW_CONTROL_ERROR, [WindowUpdateFrame(0, 0)]),
    "window_too_large": (ResetCode.FLOW_CONTROL_ERROR, [WindowUpdateFrame(0, 2**31 - 1)]),
    "settings_of_a_stream": (ResetCode.PROTOCOL_ERROR, [_of_stream := SettingsFrame(0, {4: 1})]),
    "large_window_setting": (ResetCode.FLOW_CONTROL_ERROR, [SettingsFrame(0, {4: 2**31})]),
    "small_frames_setting": (ResetCode.PROTOCOL_ERROR, [SettingsFrame(0, {5: 100})]),
}
_of_stream.stream_id = 1


def _bytes(written: list[Frame]) -> bytes:
    return b"".join(frame.serialize() for frame in written)


@pytest.mark.parametrize("written", ALLOWED.values(), ids=ALLOWED)
def test_allowed_frames_leave_the_connection_usable(written: list[Frame]) -> None:
    async def story() -> None:
        async with talking() as (client, _):
            await client.send(_bytes(written))
            client.http2.get_next_available_stream_id()
            client.http2.ping(b"12345678")
            stream = 101
            client.http2.send_headers(stream, headers())
            client.http2.send_data(stream, framed(b"next"), end_stream=True)
            raw = client.http2.data_to_send()
            await client.send(raw)
            data = b""
            while b"next" not in data:
                data += await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client.socket, 1 << 16), 20)

    asyncio.run(story())


@pytest.mark.parametrize(("code", "written"), BREACHES.values(), ids=BREACHES)
def test_a_breach_of_the_protocol_ends_the_connection_with_its_reason(code: ResetCode, written: list[Frame]) -> None:
    begun: list[GrpcCall] = []

    async def story() -> None:
        async with talking({ECHO: waiting(begun, asyncio.Event().wait)}) as (client, connection):
            await client.send(_bytes(written))
            while not client.closed and client.goaway is None:
                await client.read()
            assert client.goaway == code
            assert connection.transport.is_closing()

    asyncio.run(story())


_CONVERSATION = PREFACE + _bytes(
    [
        SettingsFrame(0, {4: 1_000}),
        BEGIN,
        DataFrame(1, framed(b"x" * 50), flags=["END_STREAM"]),
        WindowUpdateFrame(0, 5_000),
        HeadersFrame(3, BLOCK, flags=["END_HEADERS"]),
        DataFrame(3, framed(b"y")[:4]),
        RstStreamFrame(3, 8),
        PingFrame(opaque_data=b"12345678"),
    ]
)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("replace", "insert", "remove")), st.integers(0, len(_CONVERSATION)), st.binary(max_size=9)
        ),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 200),
)
def test_no_bytes_cause_an_exception(edits: list[tuple[str, int, bytes]], size: int) -> None:
    data = bytearray(_CONVERSATION)
    for kind, at, new in edits:
        data[at : at + (0 if kind == "insert" else len(new))] = b"" if kind == "remove" else new

    async def story() -> None:
        http2 = H2Connection()
        http2.initiate_connection = lambda: None  # type: ignore[method-assign]
        async with talking(http2=http2) as (_, connection):
            for at in range(0, len(data), size):
                connection.data_received(bytes(data[at : at + size]))
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert connection.held < 10_000

    asyncio.run(story())
