"""Connections of programs that mean no good: what they state costs pods and others little, and the daemon no memory."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from h2.connection import H2Connection
from h2.events import PingAckReceived
from hyperframe.frame import Frame, SettingsFrame

from netdra.grpc.connection import Connection
from netdra.node.priority import MOST_SECONDS, PriorityGate
from netdra.node.registry.connections import CALLS, ReadingTurns
from testbed.pace import measured
from testbed.waiting import until_async
from tests.unit.node.kubelet.caller import run
from tests.unit.node.registry.scene import Scene, another_connection, serving

LONGEST_SECONDS = 0.05
"""Of processor time: what the loop does between two looks at what else has come."""
ACCIDENTS = 5
"""Looks that may come later: a virtual machine that stands still counts as processor time."""


def _pings(count: int) -> bytes:
    connection = H2Connection()
    connection.initiate_connection()
    for _ in range(count):
        connection.ping(b"12345678")
    return connection.data_to_send()


async def _say(path: Path, text: bytes) -> None:
    """Send the bytes, and read the answers until the connection is closed."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(text)
    try:
        with suppress(OSError):
            while await reader.read(1 << 16):
                pass
    finally:
        writer.close()


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_flood_of_frames_lets_all_else_have_its_turn(folder: Path) -> None:
    async def story() -> None:
        async with serving(folder) as scene:
            flood = [asyncio.create_task(_say(scene.path, _pings(5_000))) for _ in range(10)]
            turns: list[float] = []
            with measured() as pace:
                ends = time.monotonic() + 2
                while time.monotonic() < ends:
                    begun = time.thread_time()
                    await asyncio.sleep(0)
                    turns.append(time.thread_time() - begun)
            assert sorted(turns)[-ACCIDENTS:][0] < LONGEST_SECONDS * pace.slowness, sorted(turns)[-ACCIDENTS:]
            assert (await asyncio.wait_for(scene.register(), 20)).success
            await _end(flood)

    run(story)


def test_nothing_is_worked_on_while_a_pod_waits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[float] = []
    original = Connection.data_received

    def received(connection: Connection, data: bytes) -> None:
        pieces.append(time.monotonic())
        original(connection, data)

    monkeypatch.setattr(Connection, "data_received", received)

    async def story() -> None:
        async with serving(folder) as scene:
            flood = [asyncio.create_task(_say(scene.path, _pings(20_000))) for _ in range(4)]
            await until_async(lambda: pieces, "the first piece")
            with scene.node.gate.in_hand():
                begun = time.monotonic()
                await asyncio.sleep(MOST_SECONDS / 2)
                # However long the sleep was: after that time a pod is not waited for any more.
                held = [piece for piece in pieces if begun < piece < begun + MOST_SECONDS]
            # A turn that was being waited for may have had the gate's word just before.
            assert len(held) <= 1
            await until_async(lambda: len(pieces) > 1, "the next piece")
            await _end(flood)

    run(story)


def test_a_client_that_does_not_read_answers_is_not_read_further(folder: Path) -> None:
    """A ping is answered at once: the answers of one who reads none would be kept without an end."""
    text = _pings(300_000)

    async def said(scene: Scene) -> int:
        with socket.socket(socket.AF_UNIX) as opened:
            opened.setblocking(False)
            opened.connect(str(scene.path))
            sent, stuck = 0, 0
            while sent < len(text) and stuck < 200:
                try:
                    sent += opened.send(text[sent : sent + (1 << 16)])
                    stuck = 0
                except BlockingIOError:
                    stuck += 1
                    await asyncio.sleep(0.005)
            assert (await scene.register()).success
            return sent

    async def story() -> None:
        async with serving(folder) as scene:
            assert await said(scene) < len(text) // 2

    run(story)


def test_all_pings_are_answered_in_order_regardless_of_the_split(folder: Path) -> None:
    """Pieces end anywhere in a frame; the last answer is to the last ping."""
    client = H2Connection()
    client.initiate_connection()
    for number in range(3_000):
        client.ping(number.to_bytes(8, "big"))

    async def story() -> None:
        async with serving(folder) as scene:
            reader, writer = await asyncio.open_unix_connection(str(scene.path))
            writer.write(client.data_to_send())
            answered: list[int] = []
            while len(answered) < 3_000:
                events = client.receive_data(await asyncio.wait_for(reader.read(1 << 16), 20))
                answered += [
                    int.from_bytes(event.ping_data or b"", "big")
                    for event in events
                    if isinstance(event, PingAckReceived)
                ]
            assert answered == list(range(3_000))
            writer.close()

    run(story)


def test_the_first_frame_on_a_connection_states_the_limit_of_concurrent_calls(folder: Path) -> None:
    """A client that took it at more, until a second word came, would lose the connection with all its calls."""

    async def story() -> None:
        async with serving(folder) as scene:
            reader, writer = await asyncio.open_unix_connection(str(scene.path))
            header = await asyncio.wait_for(reader.readexactly(9), 20)
            settings, _ = Frame.parse_frame_header(memoryview(header))
            settings.parse_body(memoryview(await reader.readexactly(int.from_bytes(header[:3], "big"))))
            assert isinstance(settings, SettingsFrame)
            assert settings.settings[SettingsFrame.MAX_CONCURRENT_STREAMS] == CALLS
            writer.close()

    run(story)


def test_ended_connections_with_many_calls_log_no_warnings(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with serving(folder) as scene:
            for _ in range(3):
                calls = [asyncio.create_task(scene.register(device=f"eth{at}")) for at in range(90)]
                await asyncio.sleep(0.02)
                for call in calls:
                    call.cancel()
                await asyncio.gather(*calls, return_exceptions=True)
            for _ in range(5):
                with socket.socket(socket.AF_UNIX) as opened:
                    opened.connect(str(scene.path))
                    opened.send(_pings(100))
            await asyncio.sleep(0.2)
            # The calls' own connection may just be closed for having had too many at a time.
            async with another_connection(scene) as other:
                assert (await other.register()).success

    with caplog.at_level(logging.WARNING):
        run(story)
    assert caplog.messages == []


def test_answers_to_a_closed_connection_are_dropped_without_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio logs a warning for each write but the first few."""

    async def story() -> None:
        near, far = socket.socketpair()
        transport, _ = await asyncio.get_running_loop().create_unix_connection(asyncio.Protocol, sock=near)
        connection = Connection({})
        connection.connection_made(transport)
        transport.abort()
        for _ in range(CALLS):
            connection.write(b"answer")
        far.close()

    with caplog.at_level(logging.WARNING):
        run(story)
    assert caplog.messages == []


def test_turns_are_half_of_the_time_at_most() -> None:
    async def story() -> float:
        turns = ReadingTurns(PriorityGate())
        spent = 0.0

        def piece() -> None:
            nonlocal spent
            begun = time.monotonic()
            while time.monotonic() < begun + 0.001:
                pass
            spent += time.monotonic() - begun
            turns.add(piece)

        begun = time.monotonic()
        turns.add(piece)
        await asyncio.sleep(2)
        turns.end()
        return spent / (time.monotonic() - begun)

    assert 0.1 < asyncio.run(story()) < 0.6
