"""Calls and streams of the kubelet that end early, late, or not as they should; and a driver that ends under them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from h2.connection import H2Connection
from h2.events import ConnectionTerminated
from hyperframe.frame import PingFrame

from netdra.node.kubelet import plugin, services
from netdra.node.kubelet.plugin import sockets
from netdra.node.view import DeviceHealth
from netdra.node.wire import kubelet_pb2 as wire
from testbed.pace import within
from tests.unit.node.kubelet.caller import (
    V1,
    WITHIN,
    Handler,
    call,
    calling,
    claims_of,
    failing,
    prepare,
    run,
    serving,
    watching,
)

PING = PingFrame(opaque_data=b"12345678").serialize()


def test_a_call_that_has_begun_is_let_end_when_the_daemon_stops(root: Path) -> None:
    async def test() -> None:
        handler = Handler(meet=asyncio.Barrier(2))
        paths = sockets(root)
        async with calling(paths.dra) as channel:
            async with serving(paths, handler):
                begun = asyncio.create_task(prepare(channel, "fine"))
                await handler.until_asked(1)
                ending = asyncio.create_task(later(handler))
            await ending
            assert (await begun).claims["uid-0"].error == ""

    run(test)


def test_a_request_that_is_too_large_is_refused_before_it_is_read_and_the_next_one_is_answered(root: Path) -> None:
    async def test() -> None:
        paths = sockets(root)
        async with serving(paths, Handler()), calling(paths.dra) as channel:
            size = 60 * 1024 * 1024
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await prepare(channel, "x" * size)
            assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "more than the 4194304 that are taken" in (failure.value.details() or "")
            assert (await prepare(channel, "fine")).claims["uid-0"].error == ""

    run(test)


def test_the_daemon_answers_other_calls_while_a_client_sends_oversized_requests(root: Path) -> None:
    async def test() -> None:
        paths = sockets(root)
        async with serving(paths, Handler()), calling(paths.dra) as hostile, calling(paths.dra) as kubelet:
            sending = [asyncio.create_task(prepare(hostile, "x" * 16 * 1024 * 1024)) for _ in range(3)]
            # The hostile client takes its time of the same process.
            with within(2.0, "a call beside large ones"):
                assert (await prepare(kubelet, "fine")).claims["uid-0"].error == ""
            refused = await asyncio.gather(*sending, return_exceptions=True)
            assert all(isinstance(each, grpc.aio.AioRpcError) for each in refused)

    run(test)


def test_a_failed_prepare_is_noted_and_a_successful_prepare_or_unprepare_clears_the_note(root: Path) -> None:
    async def test() -> None:
        handler, paths = Handler(), sockets(root)
        async with serving(paths, handler), calling(paths.dra) as kubelet:
            for name in ("wrong", "defect", "fine"):
                await prepare(kubelet, name)
            for name in ("wrong", "fine"):
                request = wire.UnprepareRequest(claims=claims_of(name))
                await call(kubelet, f"{V1}/NodeUnprepareResources", request, wire.UnprepareResponse)
        assert handler.noted == [
            ("wrong", "the claim is wrong; mend it"),
            ("defect", "netdra has a defect; see the driver's log on this node"),
            ("fine", ""),
            ("fine", ""),
        ]

    run(test)


def test_a_client_is_asked_to_close_its_connection_and_can_write_until_it_does(root: Path) -> None:
    """Its answers are not read any more if a write of it fails, e.g. that of an acknowledgement."""

    async def test() -> None:
        paths, http2 = sockets(root), H2Connection()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(serving(paths, Handler()))
            reader, writer = await asyncio.open_unix_connection(str(paths.dra))
            http2.initiate_connection()
            writer.write(http2.data_to_send())
            ended = asyncio.create_task(stack.pop_all().aclose())
            while not any(
                isinstance(event, ConnectionTerminated) for event in http2.receive_data(await reader.read(99))
            ):
                assert not reader.at_eof()
            writer.write(PING)
            await writer.drain()
            assert await reader.readexactly(len(PING))
            assert not ended.done()
            writer.close()
            await ended

    run(test)


async def later(handler: Handler) -> None:
    """Let the call that waits end, well after the daemon has begun to stop."""
    await asyncio.sleep(0.5)
    assert handler.meet is not None
    await handler.meet.wait()


def test_a_stream_that_is_open_ends_when_the_daemon_stops(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "GRACE_SECONDS", 2 * WITHIN)

    async def source() -> AsyncIterator[Sequence[DeviceHealth]]:
        yield (DeviceHealth(pool="p", device="d", healthy=True),)
        await asyncio.Event().wait()

    async def test() -> None:
        paths = sockets(root)
        async with calling(paths.dra) as channel:
            # A stream that nobody ends would hold the daemon for the whole grace, which is longer than the test.
            async with serving(paths, Handler(), source):
                stream = watching(channel)
                assert (await stream.read()).devices[0].health == wire.HEALTHY
            assert await stream.read() == grpc.aio.EOF

    run(test)


def test_unknown_methods_and_malformed_requests_are_rejected_and_the_next_call_succeeds(root: Path) -> None:
    async def test() -> None:
        handler = Handler()
        paths = sockets(root)
        async with serving(paths, handler), calling(paths.dra) as channel:

            async def send(method: str, request: bytes) -> Any:
                invoke: Any = channel.unary_unary(method)
                return await invoke(request)

            with failing(grpc.StatusCode.UNIMPLEMENTED, "Method not found"):
                await send("/v1.Other/Call", b"")
            with failing(grpc.StatusCode.INVALID_ARGUMENT, "the request is not a valid kubelet.PrepareRequest"):
                await send(f"{V1}/NodePrepareResources", b"no message")
            assert handler.asked == []
            # Far more than HTTP/2 lets pass before it has been read.
            assert (await prepare(channel, "long-" * 200_000)).claims["uid-0"].error == ""

    run(test)


def test_a_cancelled_call_continues_and_the_next_call_for_its_claim_waits_for_its_end(root: Path) -> None:
    async def test() -> None:
        handler = Handler(meet=asyncio.Barrier(2))
        paths = sockets(root)
        async with serving(paths, handler), calling(paths.dra) as channel:
            given_up = asyncio.create_task(prepare(channel, "fine"))
            await handler.until_asked(1)
            given_up.cancel()
            again = asyncio.create_task(prepare(channel, "fine"))
            await asyncio.sleep(0.3)
            assert len(handler.asked) == 1
            assert not handler.cancelled.is_set()
            assert handler.meet is not None
            await handler.meet.wait()  # the first call's work ends here
            handler.meet = None
            assert (await again).claims["uid-0"].error == ""
            assert len(handler.asked) == 2

    run(test)


def test_a_defect_in_a_stream_ends_it_and_only_the_log_contains_the_details(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def source() -> AsyncIterator[Sequence[DeviceHealth]]:
        yield (DeviceHealth(pool="p", device="d", healthy=True),)
        raise ZeroDivisionError("a secret detail")

    async def test() -> None:
        paths = sockets(root)
        async with serving(paths, Handler(), source), calling(paths.dra) as channel:
            with failing(grpc.StatusCode.UNKNOWN, "Internal Server Error"):
                async for _ in watching(channel):
                    pass

    run(test)
    assert "a secret detail" in caplog.text


def test_the_health_of_thousands_of_devices_is_one_message(root: Path) -> None:
    devices = [DeviceHealth(pool="p", device=f"device-{number}", healthy=True) for number in range(20_000)]

    async def source() -> AsyncIterator[Sequence[DeviceHealth]]:
        yield devices
        await asyncio.Event().wait()

    async def test() -> None:
        paths = sockets(root)
        async with serving(paths, Handler(), source), calling(paths.dra) as channel:
            # Far more than HTTP/2 lets pass before the other end has read it.
            told = await watching(channel).read()
            assert [each.device.device_name for each in told.devices] == [each.device for each in devices]

    run(test)


def test_a_driver_that_ends_takes_no_more_calls_and_waits_for_those_that_it_has(root: Path) -> None:
    async def source() -> AsyncIterator[Sequence[DeviceHealth]]:
        yield ()
        await asyncio.Event().wait()

    async def test() -> None:
        handler = Handler(meet=asyncio.Barrier(2))
        paths = sockets(root)
        async with calling(paths.dra) as channel:

            async def ending(stream: Any) -> None:
                while await stream.read() != grpc.aio.EOF:
                    pass
                assert handler.meet is not None
                with failing(grpc.StatusCode.UNAVAILABLE, "the driver is ending"):
                    await prepare(channel, "another")
                await handler.meet.wait()

            async with serving(paths, handler, source):
                begun = asyncio.create_task(prepare(channel, "fine"))
                await handler.until_asked(1)
                stream = watching(channel)
                await stream.read()
                late = asyncio.create_task(ending(stream))
            await late
            assert (await begun).claims["uid-0"].error == ""
            assert handler.asked == ["prepare ns/fine uid-0"]

    run(test)


def test_a_call_that_does_not_end_in_time_is_broken_off_with_the_daemon(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "GRACE_SECONDS", 0.2)

    async def test() -> None:
        handler = Handler(meet=asyncio.Barrier(2))
        paths = sockets(root)
        async with calling(paths.dra) as channel:
            async with serving(paths, handler):
                begun = asyncio.create_task(prepare(channel, "fine"))
                await handler.until_asked(1)
            with pytest.raises(grpc.aio.AioRpcError) as broken:
                await begun
            assert broken.value.code() == grpc.StatusCode.UNAVAILABLE
            assert handler.meet is not None
            assert handler.meet.n_waiting == 1  # the work itself ends with the process, or before

    run(test)


@pytest.mark.parametrize("version", services.HEALTH_VERSIONS)
def test_device_health_is_sent_at_once_periodically_and_on_each_change(
    root: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = services.RESEND_SECONDS

    async def test() -> None:
        turn = asyncio.Event()

        async def source() -> AsyncIterator[Sequence[DeviceHealth]]:
            yield (DeviceHealth(pool="p", device="d", healthy=True),)
            await turn.wait()
            yield (DeviceHealth(pool="p", device="d", healthy=False, message="x" * 2000),)
            await asyncio.Event().wait()

        paths = sockets(root)
        async with serving(paths, Handler(), source), calling(paths.dra) as channel:
            stream = watching(channel, version)
            found = []
            async for message in stream:
                (device,) = message.devices
                found.append(device.health)
                assert (device.device.pool_name, device.device.device_name) == ("p", "d")
                assert device.health_check_timeout_seconds >= 3 * usual
                if len(found) == 2:
                    turn.set()
                if device.health == wire.UNHEALTHY:
                    assert len(device.message) == 1024
                    break
            assert found[:2] == [wire.HEALTHY, wire.HEALTHY]
            # The stream is still open here: leaving must end it and not wait for it.

    monkeypatch.setattr(services, "RESEND_SECONDS", 0.05)
    run(test)
