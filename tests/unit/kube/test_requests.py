"""Connections to a server of our own: kept, refused, cut, slow, and larger than any buffer."""

from __future__ import annotations

import asyncio
import gc
import ssl
import tracemalloc
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from netdra.kube.client import Client
from netdra.kube.errors import UnavailableError
from netdra.kube.events import EVENTS
from netdra.kube.transport import MAX_UNREAD, MAX_UNSENT, Transport
from testbed.certificates import Authority, new_authority
from testbed.waiting import until_async

Answer = Callable[["Server", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
NEVER = 3600.0


@dataclass
class Server:
    """What a server saw.

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
async def serving(authority: Authority, answer: Answer) -> AsyncIterator[tuple[Server, httpx2.AsyncClient]]:
    """A server, and a client that trusts it."""
    pair = authority.server("server", ["localhost", "127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server = Server(answer)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    server.url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening, connected(server.url, authority.own.certificate) as client:
        yield server, client


@asynccontextmanager
async def connected(url: str, trusted: Path | None) -> AsyncIterator[httpx2.AsyncClient]:
    transport = Transport(ssl.create_default_context(cafile=trusted), (), 60.0)
    async with httpx2.AsyncClient(base_url=url, transport=transport, trust_env=False) as client:
        yield client


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


def test_a_connection_is_used_again_and_by_one_request_at_a_time(authority: Authority) -> None:
    async def story() -> None:
        async with serving(authority, of_bytes(b"{}")) as (server, client):
            for number in range(3):
                answer = await client.post("/", content=b"%d" % number)
                assert answer.content == b"{}"
            assert server.connections == 1
            await asyncio.gather(*(client.post("/", content=b"x") for _ in range(4)))
            assert server.connections == 4
            assert server.bodies == [b"0", b"1", b"2", *[b"x"] * 4]

    asyncio.run(story())


def test_connections_that_are_kept_take_little_memory(authority: Authority) -> None:
    more = 8

    async def story() -> int:
        async with serving(authority, of_bytes(b"{}")) as (server, client):
            await client.get("/")
            tracemalloc.start()
            try:
                await asyncio.gather(*(client.get("/") for _ in range(more + 1)))
                taken, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert server.connections == more + 1
            return taken

    # The server's end of each is here too.
    assert asyncio.run(story()) / more / 2 < 100 * 1024


def test_what_is_larger_than_the_buffers_arrives_whole_in_both_directions(authority: Authority) -> None:
    body, question = bytes(range(256)) * (MAX_UNREAD // 32), bytes(range(256)) * (MAX_UNSENT // 16)

    async def story() -> None:
        async with serving(authority, of_bytes(body)) as (server, client):
            async with client.stream("POST", "/", content=question) as answer:
                read = bytearray()
                async for chunk in answer.aiter_bytes():
                    read += chunk
                    await asyncio.sleep(0.001)  # slower than the server
            assert bytes(read) == body
            assert server.bodies == [question]
            assert (await client.get("/")).content == body
            assert server.connections == 1

    asyncio.run(story())


@pytest.mark.parametrize("answer", [_cut, _cut_within])
def test_a_connection_that_is_cut_is_an_error_and_the_next_request_has_another_one(
    authority: Authority, answer: Answer
) -> None:
    async def story() -> None:
        async with serving(authority, answer) as (server, client):
            with pytest.raises(httpx2.RemoteProtocolError):
                await client.get("/")
            server.answer = of_bytes(b"{}")
            assert (await client.get("/")).content == b"{}"
            assert server.connections == 2

    asyncio.run(story())


def test_a_connection_that_the_server_closes_while_it_is_idle_is_not_used_again(authority: Authority) -> None:
    async def answer_once(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await of_bytes(b"{}")(server, reader, writer)
        writer.close()
        await writer.wait_closed()
        closed.set()

    closed = asyncio.Event()

    async def story() -> None:
        async with serving(authority, answer_once) as (server, client):
            for number in range(1, 4):
                closed.clear()
                assert (await client.get("/")).content == b"{}"
                await closed.wait()
                await heard_of_the_end(client)
                assert server.connections == number

    asyncio.run(story())


async def heard_of_the_end(client: httpx2.AsyncClient) -> None:
    """Wait until the client knows that none of its connections is of use any more."""
    transport = client._transport
    assert isinstance(transport, Transport)
    await until_async(
        lambda: all(each.has_expired() for each in transport._pool.connections), "the client to hear of the end"
    )


def test_a_server_that_is_silent_is_given_up(authority: Authority) -> None:
    async def story() -> None:
        async with serving(authority, _silent) as (_, client):
            with pytest.raises(httpx2.ReadTimeout):
                await client.get("/", timeout=httpx2.Timeout(NEVER, read=0.05))

    asyncio.run(story())


def test_nobody_who_listens_and_nobody_whom_we_trust_are_errors(authority: Authority) -> None:
    async def story() -> None:
        async with serving(authority, of_bytes(b"{}")) as (server, client):
            async with connected(server.url, None) as distrustful:
                with pytest.raises(httpx2.ConnectError, match="certificate"):
                    await distrustful.get("/")
            assert (await client.get("/")).status_code == 200
        async with connected(server.url, authority.own.certificate) as late:
            with pytest.raises(httpx2.ConnectError):
                await late.get("/")

    asyncio.run(story())


def test_a_client_that_is_closed_leaves_no_socket_behind(authority: Authority) -> None:
    async def story() -> None:
        listening = await asyncio.start_server(Server(of_bytes(b"{}")).serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with connected(url, authority.own.certificate) as client, listening:
            assert (await client.get("/")).content == b"{}"

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(story())
        gc.collect()
    assert [str(one.message) for one in told] == []


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
        lines = {line.partition(":")[0].lower(): line.partition(": ")[2] for line in server.heads[1][1:]}
        assert lines["content-type"] == "application/merge-patch+json"
        assert lines["accept"] == "application/json"
        assert lines["host"] == server.url.removeprefix("https://")
        assert server.bodies[1] == b'{"note":1}'

    asyncio.run(story())


def test_no_answer_is_what_the_client_calls_unavailable(authority: Authority) -> None:
    async def story() -> None:
        async with serving(authority, _cut) as (_, http):
            with pytest.raises(UnavailableError, match="without sending a response"):
                await Client(http).get(EVENTS, "c", "ns")

    asyncio.run(story())
