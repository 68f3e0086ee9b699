"""Runtimes that break the protocol, fall silent, ask too much or are not there: the plugin leaves and comes again."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from netdra.kube.backoff import Backoff
from netdra.node.nri.plugin import NriSettings, Plugin
from netdra.nri import framing, nri_pb2, ttrpc_pb2
from netdra.nri.connection import MOST_CALLS
from netdra.nri.framing import Code, Frame, FrameKind, encode
from tests.unit.node.nri.peer import PATIENCE, Diary, Peer, listening, pod
from tests.unit.node.nri.scene import Play, Scene


def rubbish_frame(peer: Peer) -> None:
    peer.writer.write(b"\xff" * 64)


def response_on_the_plugins_stream(peer: Peer) -> None:
    peer.send(framing.PLUGIN_STREAM, Frame(1, FrameKind.RESPONSE, b""))


def answer_to_no_call(peer: Peer) -> None:
    peer.accept(99)


def unreadable_answer(peer: Peer) -> None:
    peer.send(framing.RUNTIME_STREAM, Frame(1, FrameKind.RESPONSE, b"\xff"))


def falling_numbers(peer: Peer) -> None:
    for call in (5, 3):
        peer.send(framing.PLUGIN_STREAM, Frame(call, FrameKind.REQUEST, b""))


def oversized_message(peer: Peer) -> None:
    peer.writer.write(framing.frames(framing.PLUGIN_STREAM, struct.pack(">IIBB", 1 << 30, 1, 1, 0)))


def refused_registration(peer: Peer) -> None:
    peer.accept(1, Code.UNKNOWN, "invalid plugin name")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (rubbish_frame, "a frame of 4294967295 bytes"),
        (response_on_the_plugins_stream, "a frame of kind 2"),
        (answer_to_no_call, "a response to call 99, which was never made"),
        (unreadable_answer, "the response to call 1 cannot be read"),
        (falling_numbers, "call 3 came after call 5"),
        (oversized_message, "a message of 1073741824 bytes"),
        (refused_registration, "invalid plugin name"),
        (lambda peer: peer.writer.close(), "the runtime closed the connection"),
    ],
)
def test_a_runtime_that_breaks_the_protocol_is_left_with_the_reason_and_tried_again(
    play: Play, fault: Callable[[Peer], None], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.come()
        await peer.registration()
        fault(peer)
        async with asyncio.timeout(PATIENCE):
            await peer.ended.wait()
        again = await scene.come()
        assert reason in caplog.messages[-1]
        await again.handshake()
        await scene.connected()

    play(act)


def test_the_plugin_disconnects_from_a_silent_runtime_and_reports_the_timeout(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netdra.node.nri.plugin.HANDSHAKE_SECONDS", 0.01)

    async def act(scene: Scene) -> None:
        silent = await scene.come()
        async with asyncio.timeout(PATIENCE):
            await silent.ended.wait()
        await scene.come()
        assert scene.plugin.problem == "no answer within 0.01 s"

    play(act)


def test_a_runtime_that_registers_and_never_lists_its_sandboxes_is_left(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netdra.node.nri.plugin.HANDSHAKE_SECONDS", 0.5)

    async def act(scene: Scene) -> None:
        silent = await scene.come()
        silent.accept((await silent.registration())[0])
        async with asyncio.timeout(PATIENCE):
            await silent.ended.wait()

    play(act)


def test_requests_that_are_open_at_once_are_bounded(play: Play) -> None:
    async def act(scene: Scene) -> None:
        stuck: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        scene.diary.act = lambda _: asyncio.ensure_future(asyncio.shield(stuck))
        peer = await scene.come()
        await peer.handshake()
        about = nri_pb2.PodSandboxRequest(pod=pod("a"))
        asked = [peer.begin("RunPodSandbox", about, seconds=PATIENCE) for _ in range(MOST_CALLS + 1)]
        async with asyncio.timeout(PATIENCE):
            refused = await asked[-1]
        assert refused.status.code == Code.RESOURCE_EXHAUSTED
        assert "256 requests are open already" in refused.status.message
        assert not any(answer.done() for answer in asked[:-1])
        stuck.set_result(None)
        async with asyncio.timeout(PATIENCE):
            answers = await asyncio.gather(*asked[:-1])
        assert {answer.status.code for answer in answers} == {Code.OK}

    play(act)


def test_a_runtime_that_asks_and_never_reads_is_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    request = ttrpc_pb2.Request(method="x" * 1000).SerializeToString()
    flood = b"".join(
        framing.frames(framing.PLUGIN_STREAM, encode(Frame(2 * number + 1, FrameKind.REQUEST, request)))
        for number in range(8000)
    )
    left = asyncio.Event()

    async def deaf(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(flood)
        with suppress(ConnectionError):
            await writer.drain()
        left.set()

    async def main() -> None:
        server = await asyncio.start_unix_server(deaf, tmp_path / "deaf.sock")
        running = asyncio.create_task(Plugin(Diary(), NriSettings(socket=tmp_path / "deaf.sock")).run())
        async with asyncio.timeout(PATIENCE):
            await left.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        server.close()

    asyncio.run(main())
    assert "bytes of answers unread" in caplog.text


def test_garbage_on_an_unused_stream_is_ignored(play: Play) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.come()
        peer.writer.write(framing.frames(0, b"\xff" * 5000) + framing.frames(77, b"\xff" * 5000))
        await peer.handshake()
        await scene.connected()

    play(act)


def test_a_runtime_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        tried = asyncio.Event()

        def chance() -> float:
            tried.set()
            return 0.0

        backoff = Backoff(0.01, 0.01, chance=chance)
        plugin = Plugin(Diary(), NriSettings(socket=tmp_path / "late.sock"), backoff=backoff)
        running = asyncio.create_task(plugin.run())
        async with asyncio.timeout(PATIENCE):
            await tried.wait()
        assert "late.sock: " in plugin.problem
        async with listening(tmp_path / "late.sock") as come:
            await (await come()).handshake()
            async with asyncio.timeout(PATIENCE):
                await plugin.connected.wait()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())
