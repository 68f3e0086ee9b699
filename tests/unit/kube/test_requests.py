"""Connections to a server of our own: kept, refused, cut, slow, and larger than any buffer."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import os
import socket
import ssl
import tracemalloc
import warnings
from asyncio import sslproto
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from netdra.kube import connection as connections
from netdra.kube.client import Client
from netdra.kube.connection import (
    MAX_REQUESTS,
    MAX_SHARED_STREAMS,
    MAX_STREAMS,
    TLS_BUFFER,
    ApiConnection,
    connect,
    reason,
)
from netdra.kube.errors import RefusedError, UnavailableError
from netdra.kube.events import EVENTS
from netdra.kube.kubeconfig import ApiServer, Config, User
from netdra.kube.metrics import KUBE
from testbed.certificates import Authority, new_authority
from testbed.waiting import until_async

Answer = Callable[["Server", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
LARGE = 8 * 1024 * 1024


@dataclass
class Server:
    """A server's record of its clients.

    Attributes:
        url: where it is.
        connections: how many were made.
        heads: of the requests, each with its lines.
        bodies: of the requests.
    """

    answer: Answer
    url: str = ""
    connections: int = 0
    heads: list[list[str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(asyncio.IncompleteReadError, OSError):
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                lengths = [line.split(":")[1] for line in head if line.lower().startswith("content-length:")]
                self.heads.append(head)
                self.bodies.append(await reader.readexactly(int(lengths[0]) if lengths else 0))
                await self.answer(self, reader, writer)
        writer.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"))


@asynccontextmanager
async def serving(authority: Authority, answer: Answer) -> AsyncIterator[tuple[Server, ApiConnection]]:
    """A server, and a connection that trusts it."""
    pair = authority.server("server", ["localhost", "127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server = Server(answer)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    server.url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening, connected(server.url, authority.own.certificate) as connection:
        yield server, connection


@asynccontextmanager
async def connected(url: str, trusted: Path | None) -> AsyncIterator[ApiConnection]:
    cluster = ApiServer(server=url, certificate_authority=str(trusted or ""))
    connection = connect(Config(cluster=cluster, user=User(token="secret-token"), context="test"))
    try:
        yield connection
    finally:
        await connection.close()


async def asked(connection: ApiConnection, method: str = "GET", body: bytes | None = None) -> bytes:
    async with connection.ask(method, "/", body) as answer:
        return await answer.read()


def of_bytes(body: bytes) -> Answer:
    """Answers with a body, and keeps the connection."""

    async def answer(_: Server, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()

    return answer


async def _cut(_: Server, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _cut_within(_: Server, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nfew")
    writer.close()


async def _silent(_: Server, reader: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    await reader.read()


def test_an_open_stream_takes_little_memory(authority: Authority) -> None:
    streams = 20

    async def stream(_: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        await reader.read()

    async def story() -> int:
        async with serving(authority, stream) as (_, connection), contextlib.AsyncExitStack() as opened:
            for _ in range(streams):
                await opened.enter_async_context(connection.ask("GET", "/?watch", idle_seconds=60.0))
            tls = tracemalloc.Filter(inclusive=True, filename_pattern=sslproto.__file__)
            return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([tls]).traces)

    tracemalloc.start()
    try:
        taken = asyncio.run(story())
    finally:
        tracemalloc.stop()
    # The server's ends are in this process too.
    assert taken / (2 * streams) < 1.25 * TLS_BUFFER


def test_a_connection_is_used_again_and_by_one_request_at_a_time(authority: Authority) -> None:
    async def story() -> None:
        async with serving(authority, of_bytes(b"{}")) as (server, connection):
            for number in range(3):
                assert await asked(connection, "POST", b"%d" % number) == b"{}"
            assert server.connections == 1
            await asyncio.gather(*(asked(connection, "POST", b"x") for _ in range(4)))
            assert server.connections == 4
            assert server.bodies == [b"0", b"1", b"2", *[b"x"] * 4]

    asyncio.run(story())


def test_a_burst_takes_turns_on_few_connections_and_streams_keep_none_of_it_waiting(authority: Authority) -> None:
    async def answer_or_stream(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if "?watch" in server.heads[-1][0]:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
            await reader.read()
        await of_bytes(b"{}")(server, reader, writer)

    async def story() -> None:
        async with serving(authority, answer_or_stream) as (server, connection), contextlib.AsyncExitStack() as opened:
            for _ in range(2 * MAX_REQUESTS):
                await opened.enter_async_context(connection.ask("GET", "/?watch", idle_seconds=60.0))
            streams = server.connections
            assert streams == 2 * MAX_REQUESTS
            async with asyncio.timeout(30):
                await asyncio.gather(*(asked(connection, "PUT", b"x" * 5000) for _ in range(200)))
            assert server.connections - streams == MAX_REQUESTS

    asyncio.run(story())


def counted(name: str) -> float:
    """The value of a metric."""
    return KUBE.registry.get_sample_value(name) or 0.0


def test_streams_of_many_objects_leave_some_to_the_others_and_no_stream_waits_for_ever(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STREAM_SECONDS", 0.2)

    async def stream(_: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        await reader.read()

    async def story() -> None:
        before, refused = counted("netdra_api_streams"), counted("netdra_api_stream_refusals_total")
        async with serving(authority, stream) as (_, connection), contextlib.AsyncExitStack() as opened:
            client = Client(connection)

            def one(*, shared: bool) -> contextlib.AbstractAsyncContextManager[object]:
                return client.stream("/", "watch pods", {}, idle_seconds=60.0, shared=shared)

            first = await contextlib.AsyncExitStack().__aenter__()
            await first.enter_async_context(one(shared=True))
            for _ in range(MAX_SHARED_STREAMS - 1):
                await opened.enter_async_context(one(shared=True))
            with pytest.raises(UnavailableError, match=rf"watch pods: {MAX_SHARED_STREAMS} watches are open"):
                await opened.enter_async_context(one(shared=True))
            for _ in range(MAX_STREAMS - MAX_SHARED_STREAMS):
                await opened.enter_async_context(one(shared=False))
            with pytest.raises(UnavailableError, match=rf"watch pods: {MAX_STREAMS} watches are open"):
                await opened.enter_async_context(one(shared=False))
            assert counted("netdra_api_streams") - before == MAX_STREAMS
            assert counted("netdra_api_stream_refusals_total") - refused == 2
            await first.aclose()
            await opened.enter_async_context(one(shared=True))
        assert counted("netdra_api_streams") == before

    asyncio.run(story())


def to_server(url: str) -> int:
    """How many sockets of this process are connected to a server."""
    port = urlsplit(url).port
    number = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError), socket.socket(fileno=os.dup(int(entry.name))) as copied:
            number += copied.family == socket.AF_INET and copied.getpeername()[1] == port
    return number


@pytest.mark.parametrize("how", ["left", "cancelled within", "cancelled before"])
def test_a_stream_that_is_left_has_no_socket_once_the_connection_is_closed(authority: Authority, how: str) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def endless(_: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        if how != "cancelled before":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nfew")
        await reader.read()

    async def read(connection: ApiConnection) -> None:
        async with connection.ask("GET", "/?watch", idle_seconds=60.0) as answer:
            await answer.content.readexactly(3)
            answered.set()
            if how == "cancelled within":
                await asyncio.Event().wait()

    async def story() -> None:
        async with serving(authority, endless) as (server, connection):
            reading = asyncio.create_task(read(connection))
            await (asked if how == "cancelled before" else answered).wait()
            if how != "left":
                reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await connection.close()
            assert to_server(server.url) == 0

    asyncio.run(story())


def test_bodies_larger_than_the_buffers_are_transferred_completely_in_both_directions(authority: Authority) -> None:
    body, question = bytes(range(256)) * (LARGE // 256), bytes(range(255)) * (LARGE // 1024)

    async def story() -> None:
        async with serving(authority, of_bytes(body)) as (server, connection):
            async with connection.ask("POST", "/", question) as answer:
                read = bytearray()
                async for chunk in answer.content.iter_any():
                    read += chunk
                    await asyncio.sleep(0.001)  # slower than the server
            assert bytes(read) == body
            assert server.bodies == [question]
            assert await asked(connection) == body
            assert server.connections == 1

    asyncio.run(story())


def test_a_large_list_may_come_packed(authority: Authority) -> None:
    body = b'{"items": [' + b'{"metadata": {"name": "n"}}, ' * 2_000_000 + b"{}]}"
    packed = gzip.compress(body, 1)

    async def answer(_: Server, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed)
        await writer.drain()

    async def story() -> None:
        async with serving(authority, answer) as (server, connection):
            assert await asked(connection) == body
            assert "Accept-Encoding: gzip" in server.heads[0]

    asyncio.run(story())


@pytest.mark.parametrize("answer", [_cut, _cut_within])
def test_a_connection_that_is_cut_is_an_error_and_the_next_request_has_another_one(
    authority: Authority, answer: Answer
) -> None:
    async def story() -> None:
        async with serving(authority, of_bytes(b"{}")) as (server, connection):
            for number, method in enumerate(("GET", "PUT", "POST", "DELETE"), start=1):
                server.answer = of_bytes(b"{}")
                assert await asked(connection) == b"{}"
                server.answer, before = answer, len(server.heads)
                with pytest.raises(aiohttp.ClientError) as told:
                    await asked(connection, method)
                assert ("closed before the response was complete") in reason(told.value) or "without sending" in reason(
                    told.value
                )
                assert len(server.heads) == before + 1, "it was asked twice"
                assert server.connections == number

    asyncio.run(story())


def test_a_connection_that_the_server_closes_while_it_is_idle_is_not_used_again(authority: Authority) -> None:
    async def answer_once(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await of_bytes(b"{}")(server, reader, writer)
        writer.close()
        await writer.wait_closed()
        closed.set()

    closed = asyncio.Event()

    async def story() -> None:
        async with serving(authority, answer_once) as (server, connection):
            for number in range(1, 4):
                closed.clear()
                assert await asked(connection, "POST", b"x") == b"{}"
                await closed.wait()
                await until_async(lambda: not sockets(), "the client to hear of the end")
                assert server.connections == number

    asyncio.run(story())


def sockets() -> set[str]:
    """The TCP connections of this process that are open at this end, by the kernel's numbers (proc_pid_net(5))."""
    own = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            own.add(str(each.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[3] != "0A" and row[9] in own}


def test_a_request_to_a_silent_server_times_out(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 0.05)

    async def story() -> None:
        async with serving(authority, _silent) as (_, connection):
            for method, body in (("GET", None), ("PUT", b"x" * 1000)):
                with pytest.raises(aiohttp.ClientError) as told:
                    await asked(connection, method, body)
                assert reason(told.value) == "the server did not answer in time"
            with pytest.raises(aiohttp.ClientError) as told:
                async with connection.ask("GET", "/", idle_seconds=0.05):
                    pass
            assert reason(told.value) == "the server did not answer in time"

    asyncio.run(story())


def test_a_server_that_never_completes_the_tls_handshake_times_out(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECT_SECONDS", 0.1)

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def story() -> None:
        listening = await asyncio.start_server(take, "127.0.0.1", 0)
        url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with connected(url, authority.own.certificate) as connection:
            with pytest.raises(aiohttp.ClientError) as told:
                await asked(connection)
            assert reason(told.value) == "the server did not answer in time"
        await until_async(lambda: not sockets(), "all sockets to be closed")
        listening.close()

    asyncio.run(story())


def test_a_slow_name_resolution_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECT_SECONDS", 0.1)

    async def story() -> None:
        async def slowly(*_: object, **__: object) -> None:
            await asyncio.sleep(60)

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", slowly)
        async with connected("https://kubernetes.example", None) as connection:
            with pytest.raises(aiohttp.ClientError) as told:
                await asked(connection)
            assert reason(told.value) == "the server did not answer in time"

    asyncio.run(story())


def test_a_server_that_does_not_read_the_request_times_out(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [each for each in connections._SOCKET_OPTIONS if each[1] != socket.TCP_USER_TIMEOUT]
    monkeypatch.setattr(connections, "_SOCKET_OPTIONS", (*options, (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000)))
    over = asyncio.Event()

    async def story() -> None:
        async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            await over.wait()
            writer.transport.abort()

        listening = await asyncio.start_server(take, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with connected(url, None) as connection, asyncio.timeout(30):
            with pytest.raises(aiohttp.ClientError) as told:
                await asked(connection, "PUT", b"x" * 4 * LARGE)
            assert "timed out" in reason(told.value)
        over.set()
        await until_async(lambda: not sockets(), "all sockets to be closed")
        listening.close()

    asyncio.run(story())


def test_a_peer_that_vanishes_is_noticed_by_tcp(authority: Authority) -> None:
    async def story() -> None:
        async with serving(authority, of_bytes(b"x" * LARGE)) as (_, connection), connection.ask("GET", "/") as answer:
            assert answer.connection is not None
            assert answer.connection.transport is not None
            made = answer.connection.transport.get_extra_info("socket")
            assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1

    asyncio.run(story())


def test_idle_connections_are_closed_and_reopened_on_demand(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "KEEP_IDLE_SECONDS", 0.2)

    async def story() -> None:
        async with serving(authority, of_bytes(b"{}")) as (_, connection):
            await asyncio.gather(*(asked(connection) for _ in range(4)))
            assert sockets()
            await until_async(lambda: not sockets(), "idle connections to be closed")
            assert await asked(connection) == b"{}"

    asyncio.run(story())


def test_requests_that_are_cancelled_at_any_moment_leave_no_socket(authority: Authority) -> None:
    async def slowly(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.003)
        await of_bytes(b"x" * 100_000)(server, reader, writer)

    async def story() -> None:
        async with serving(authority, slowly) as (_, connection):
            for number in range(60):
                tasks = [asyncio.create_task(asked(connection, "PUT", b"x" * 50_000)) for _ in range(3)]
                await asyncio.sleep(number * 0.0003)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            async with asyncio.timeout(30):
                assert len(await asked(connection)) == 100_000
            assert len(sockets()) <= 2 * (MAX_REQUESTS + 3)
        await until_async(lambda: not sockets(), "all sockets to be closed")

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(story())
        gc.collect()
    assert [str(one.message) for one in told] == []


def test_a_refused_connection_and_an_untrusted_certificate_are_errors(authority: Authority) -> None:
    async def story() -> None:
        async with serving(authority, of_bytes(b"{}")) as (server, connection):
            async with connected(server.url, None) as distrustful:
                with pytest.raises(aiohttp.ClientError) as told:
                    await asked(distrustful)
                assert "the server's certificate is not valid" in reason(told.value)
                assert "0x" not in reason(told.value)
            assert await asked(connection) == b"{}"
        async with connected(server.url, authority.own.certificate) as late:
            with pytest.raises(aiohttp.ClientError) as told:
                await asked(late)
            assert "refused" in reason(told.value).lower() or "connect" in reason(told.value).lower()

    asyncio.run(story())


def test_malformed_and_unexpected_responses_are_errors(authority: Authority) -> None:
    def of(data: bytes) -> Answer:
        async def answer(_: Server, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(data)
            writer.close()

        return answer

    async def story() -> None:
        async with serving(authority, of(b"SSH-2.0-OpenSSH_9.9\r\n")) as (server, connection):
            client = Client(connection)
            head = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n"
            for data in (
                b"SSH-2.0-OpenSSH_9.9\r\n",
                head + b"Content-Encoding: gzip\r\n\r\nnot so gz",
                head + b"A: " + b"x" * 100_000 + b"\r\n\r\n{        }",
                head + b"A: b\r\n" * 10_000 + b"\r\n{        }",
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfew\r\n",
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}",
                b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}",
            ):
                server.answer = of(data)
                with pytest.raises(UnavailableError, match="get events"):
                    await client.get(EVENTS, "c", "ns")
                with pytest.raises(UnavailableError, match="watch events"):
                    async with client.stream("/", "watch events", {}, idle_seconds=10.0) as chunks:
                        pytest.fail(f"{[chunk async for chunk in chunks]} of {data!r}")
            server.answer = of(b"HTTP/1.1 302 Found\r\nLocation: https://login\r\nContent-Length: 5\r\n\r\nlogin")
            with pytest.raises(RefusedError, match="302 login"):
                await client.get(EVENTS, "c", "ns")
            server.answer = of(
                b"HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nContent-Length: 4\r\nContent-Type: text/plain\r\n\r\nbusy"
            )
            with pytest.raises(UnavailableError, match="429 busy") as told:
                await client.get(EVENTS, "c", "ns")
            assert told.value.retry_after == 7

    asyncio.run(story())


def test_a_client_that_is_closed_leaves_no_socket_behind(authority: Authority) -> None:
    async def story() -> None:
        async with serving(authority, of_bytes(b"{}")) as (_, connection):
            await asyncio.gather(*(asked(connection) for _ in range(3)))

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(story())
        gc.collect()
    assert [str(one.message) for one in told] == []
    assert not sockets()


def test_paths_and_parameters_reach_the_server_behind_a_prefix(authority: Authority) -> None:
    async def story() -> None:
        async with (
            serving(authority, of_bytes(b'{"metadata": {"name": "c"}}')) as (server, _),
            connected(f"{server.url}/clusters/c-1/", authority.own.certificate) as http,
        ):
            client = Client(http)
            await client.get(EVENTS, "a b", "ns")
            await client.merge(EVENTS, "c", {"note": 1}, "ns")
        base = "/clusters/c-1/apis/events.k8s.io/v1/namespaces/ns/events"
        assert server.heads[0][0] == f"GET {base}/a%20b HTTP/1.1"
        assert server.heads[1][0] == f"PATCH {base}/c?fieldManager=netdra HTTP/1.1"
        assert sum(line.lower().startswith("accept:") for line in server.heads[1]) == 1
        assert "Authorization: Bearer secret-token" in server.heads[0]
        lines = {line.partition(":")[0].lower(): line.partition(": ")[2] for line in server.heads[1][1:]}
        assert lines["content-type"] == "application/merge-patch+json"
        assert lines["accept"] == "application/json"
        assert lines["host"] == server.url.removeprefix("https://")
        assert server.bodies[1] == b'{"note":1}'

    asyncio.run(story())


def test_a_connection_closed_without_a_response_raises_unavailable_error(authority: Authority) -> None:
    async def story() -> None:
        async with serving(authority, _cut) as (_, http):
            with pytest.raises(UnavailableError, match="without sending a response"):
                await Client(http).get(EVENTS, "c", "ns")

    asyncio.run(story())
