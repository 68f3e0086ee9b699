"""A client of the webhook's port can neither keep it from the API server, nor fill its memory, nor learn names."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import trustme

from netdra.admission import server as webhook_server
from netdra.admission.copy import Copy
from netdra.admission.messages import AdmissionRequest, Kind
from netdra.admission.requests import verdict_on as judge
from netdra.admission.server import LIMITS, NO_CERTIFICATE, PATH, Webhook
from netdra.admission.serving import ANYBODY, Clients, context
from netdra.admission.workers import Workers
from netdra.kube.client import Client
from netdra.model.claim import ResourceClaim
from netdra.model.topology import NetworkTopology
from netdra.ops.bounded import BoundedServer
from netdra.ops.process import Process
from netdra.review.world import World
from netdra.rules.limits import is_claim_within
from netdra.topology.classes import device_classes
from testbed.pace import within
from testbed.process import Ports
from testbed.waiting import until_async
from tests.builders import exclusive

Request = Callable[..., AdmissionRequest]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
SERVER, OTHER = "127.0.0.1", "127.0.0.2"
"""Where the API server is, and somebody else."""
PATIENCE_SECONDS = 30.0
SHORT = 0.3


class Scene:
    """A webhook that listens, and its clients."""

    def __init__(self, door: BoundedServer, port: int, trust: ssl.SSLContext, stack: AsyncExitStack) -> None:
        self.door, self.port, self._trust, self._stack = door, port, trust, stack

    async def connect(self, source: str = SERVER, trust: ssl.SSLContext | None = None) -> Streams:
        reader, writer = await asyncio.open_connection(
            SERVER, self.port, ssl=trust or self._trust, server_hostname="webhook", local_addr=(source, 0)
        )
        self._stack.push_async_callback(closed, writer)
        return reader, writer

    async def asked(self, body: bytes, source: str = SERVER, trust: ssl.SSLContext | None = None) -> tuple[int, bytes]:
        """The answer to a review: the status, and the body."""
        reader, writer = await self.connect(source, trust)
        writer.write(post(len(body)) + body)
        return await answer(reader)


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(OSError):
        writer.close()
        await writer.wait_closed()


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length")
        )
        return int(head.split()[1]), await reader.readexactly(length)


async def ended(streams: Streams) -> bool:
    """Whether the webhook breaks a connection off."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        try:
            await streams[0].read()
        except (ConnectionError, ssl.SSLError):
            return True
        return True


def post(length: int) -> bytes:
    return f"POST {PATH} HTTP/1.1\r\nHost: webhook\r\nContent-Length: {length}\r\n\r\n".encode()


def review(request: AdmissionRequest) -> bytes:
    return json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": msgspec.json.decode(msgspec.json.encode(request)),
        }
    ).encode()


@asynccontextmanager
async def listening(clients: Clients = ANYBODY, users: tuple[str, ...] = (), reviews: int = 1) -> AsyncIterator[Scene]:
    """A webhook with a copy of the cluster that is complete."""
    copy = Copy(cast(Client, None))
    for store in copy._stores:
        store.version = "1"
    copy._cluster = World()

    async def with_users(topology: str) -> World:
        return World(users=users)

    copy.with_users = with_users  # type: ignore[method-assign]
    authority, tls = trustme.CA(), context(clients)
    authority.issue_cert("webhook").configure_cert(tls)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    async with AsyncExitStack() as stack:
        ports = Ports(SERVER)
        stack.callback(ports.close)
        pool = await stack.enter_async_context(Workers(reviews, seconds=PATIENCE_SECONDS))
        server, port = Webhook(copy, pool, Process("test"), clients), ports.take()
        door = await stack.enter_async_context(server.serving(SERVER, port, tls))
        yield Scene(door, port, trust, stack)


def run(scene: Callable[[Scene], Awaitable[None]], **settings: Any) -> None:
    async def play() -> None:
        async with listening(**settings) as listened:
            await scene(listened)

    asyncio.run(play())


@pytest.fixture(autouse=True)
def silence(caplog: pytest.LogCaptureFixture) -> Any:
    """Nothing that a client does is an error of the webhook's."""
    yield
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_a_review_is_answered_and_the_next_one_on_the_same_connection(request_of: Request) -> None:
    async def scene(webhook: Scene) -> None:
        reader, writer = await webhook.connect()
        for expression, allowed in (("true", True), ("device.driver ==", False)):
            body = review(request_of(exclusive("p", expression)))
            writer.write(post(len(body)) + body)
            status, answered = await answer(reader)
            assert (status, json.loads(answered)["response"]["allowed"]) == (200, allowed)
        assert webhook.door.held == 0

    run(scene)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /validate HTTP/1.1\r\nHost:",
        post(100) + b"{",
        b"POST /elsewhere HTTP/1.1\r\nHost: webhook\r\nContent-Length: 9\r\n\r\n{",
    ],
    ids=["nothing", "half a head", "half a body", "half a body for nobody"],
)
def test_a_client_without_a_complete_request_in_time_is_disconnected(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_server, "LIMITS", LIMITS._replace(request=SHORT, idle=SHORT))

    async def scene(webhook: Scene) -> None:
        streams = await webhook.connect()
        streams[1].write(sent)
        with within(2.0, "the end of the connection", after=SHORT):
            assert await ended(streams)
        await until_async(lambda: webhook.door.connections == {}, "the webhook to forget the connection")
        assert webhook.door.held == 0

    run(scene, reviews=0)


@pytest.mark.parametrize("sent", [b"\0" * 100, b"GET / HTTP/9\r\n\r\n", post(0)[:-2] + b"Content-Length: x\r\n\r\n"])
def test_invalid_http_is_answered_with_400_and_is_not_a_webhook_error(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(webhook: Scene) -> None:
        streams = await webhook.connect()
        streams[1].write(sent)
        assert (await answer(streams[0]))[0] == 400
        assert await ended(streams)

    run(scene, reviews=0)
    assert not caplog.records


def test_a_client_without_a_timely_tls_handshake_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_server, "LIMITS", LIMITS._replace(tls=SHORT))

    async def scene(webhook: Scene) -> None:
        streams = await asyncio.open_connection(SERVER, webhook.port)
        assert await ended(streams)
        streams[1].close()
        await until_async(lambda: webhook.door.connections == {}, "the webhook to forget the connection")

    run(scene, reviews=0)


def test_a_slow_trickle_is_cut_off_like_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_server, "LIMITS", LIMITS._replace(request=SHORT))

    async def scene(webhook: Scene) -> None:
        streams = await webhook.connect()
        streams[1].write(post(10_000))
        with within(2.0, "the end of the connection", after=SHORT):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while webhook.door.connections:
                    streams[1].write(b" ")
                    await asyncio.sleep(0.01)

    run(scene, reviews=0)


def test_a_flood_of_connections_takes_them_from_itself(request_of: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_server, "LIMITS", LIMITS._replace(connections=8))

    async def scene(webhook: Scene) -> None:
        own = await webhook.connect()
        flood = [await webhook.connect(OTHER) for _ in range(30)]
        assert len(webhook.door.connections) <= 8
        assert await ended(flood[0])
        body = review(request_of(exclusive("p", "true")))
        own[1].write(post(len(body)) + body)
        assert (await answer(own[0]))[0] == 200
        assert (await webhook.asked(body))[0] == 200

    run(scene)


def test_a_flood_without_handshakes_takes_connections_from_itself(
    request_of: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_server, "LIMITS", LIMITS._replace(connections=8))

    async def scene(webhook: Scene) -> None:
        own = await webhook.connect()
        flood = [await asyncio.open_connection(SERVER, webhook.port, local_addr=(OTHER, 0)) for _ in range(30)]
        assert await ended(flood[0])
        assert len(webhook.door.connections) <= 8
        body = review(request_of(exclusive("p", "true")))
        own[1].write(post(len(body)) + body)
        assert (await answer(own[0]))[0] == 200
        for streams in flood:
            await closed(streams[1])
        await until_async(lambda: len(webhook.door.connections) == 1, "the flood to be gone")
        assert set(webhook.door._peers) == {SERVER}

    run(scene)


def test_held_bodies_are_dropped_before_they_exceed_the_memory_limit(
    request_of: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_server, "LIMITS", LIMITS._replace(held=256 * 1024))

    async def scene(webhook: Scene) -> None:
        own = await webhook.connect()
        body = review(request_of(exclusive("p", "true")))
        own[1].write(post(len(body)) + body[:-1])
        held = [await webhook.connect(OTHER) for _ in range(20)]
        for _, writer in held:
            writer.write(post(1024 * 1024) + b" " * 60_000)
        assert await ended(held[0])
        assert webhook.door.held <= 256 * 1024
        own[1].write(body[-1:])
        assert (await answer(own[0]))[0] == 200

    run(scene)


def test_a_body_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async def scene(webhook: Scene) -> None:
        status, _ = await webhook.asked(b" " * (9 * 1024 * 1024))
        assert status == 413

    run(scene, reviews=0)


def test_with_a_client_ca_only_the_api_server_is_answered(request_of: Request, tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    body = review(request_of(exclusive("p", "true")))

    def showing(ca: trustme.CA, name: str) -> Callable[[ssl.SSLContext], None]:
        return ca.issue_cert(common_name=name).configure_cert

    async def scene(webhook: Scene) -> None:
        def trust(show: Callable[[ssl.SSLContext], None]) -> ssl.SSLContext:
            made = ssl.create_default_context()
            made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
            show(made)
            return made

        assert (await webhook.asked(body, trust=trust(showing(authority, "kube-apiserver"))))[0] == 200
        for nobody in (trust(lambda _: None), trust(showing(authority, "kubelet"))):
            assert await webhook.asked(body, trust=nobody) == (403, NO_CERTIFICATE.encode())
            reader, writer = await webhook.connect(trust=nobody)
            writer.write(post(8 * 1024 * 1024) + b"{")  # not waited for
            assert (await answer(reader))[0] == 403
            reader, writer = await webhook.connect(trust=nobody)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: webhook\r\n\r\n")
            assert (await answer(reader))[0] == 200
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await webhook.asked(body, trust=trust(showing(stranger, "kube-apiserver")))

    run(scene, clients=Clients(tmp_path / "ca.crt", frozenset({"kube-apiserver"})))


def test_a_client_without_authentication_gets_no_names_of_claims(
    request_of: Request, topology: Callable[..., NetworkTopology], tmp_path: Path
) -> None:
    old, new = (topology("net", f"- {{name: {name}, type: sriov}}") for name in "ab")

    async def scene(webhook: Scene) -> None:
        _, answered = await webhook.asked(review(request_of(new, old)))
        message = json.loads(answered)["response"]["status"]["message"]
        assert "by 2 ResourceClaims of attached pods, including steps that are only in its status" in message
        assert "secret" not in message

    run(scene, users=("team/secret-a", "team/secret-b"))


def huge(count: int) -> dict[str, Any]:
    """A claim of many requests and many configurations, each for all of them."""
    requests = [{"name": f"r{at}", "exactly": {"deviceClassName": "c"}} for at in range(count)]
    opaque = {"driver": "other", "parameters": {}}
    devices = {"requests": requests, "config": [{"opaque": opaque} for _ in range(count)]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "huge", "namespace": "default"},
        "spec": {"devices": devices},
    }


def cpu_of(work: Callable[[], Any]) -> float:
    """The least CPU time of three calls: a collection of garbage of the whole process may fall into one."""

    def once() -> float:
        begun = time.process_time()
        work()
        return time.process_time() - begun

    return min(once() for _ in range(3))


def test_the_cost_of_reviewing_a_huge_claim_is_proportional_to_reading_it(
    topology: Callable[..., NetworkTopology],
) -> None:
    given = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "ParameterValues", "values": {}}
    own = {"requests": ["nobody"], "opaque": {"driver": "dra.networking", "parameters": given}}
    kind = Kind("resource.k8s.io", "v1", "ResourceClaim")
    net = topology("net", "- {name: r0, type: sriov}")
    cluster = World(topologies={"net": net}, classes={"c": device_classes(net)[0]})
    for count in (500, 8000):  # a cost of the square is a minute with the second
        claim = huge(count)
        claim["spec"]["devices"]["config"] = [own] * count
        body = msgspec.Raw(msgspec.json.encode(claim))
        asked = AdmissionRequest(uid="u", kind=kind, operation="CREATE", object=body)
        read = cpu_of(lambda body=body: msgspec.json.decode(body, type=ResourceClaim))  # type: ignore[misc]
        assert cpu_of(lambda asked=asked: judge(asked, cluster)) < 10 * read + 0.05  # type: ignore[misc]


def test_a_claim_with_up_to_32_requests_and_configs_is_within_limits() -> None:
    for count, expected in ((32, True), (33, False)):
        claim = msgspec.convert(huge(count), ResourceClaim)
        assert is_claim_within(claim.spec.devices) is expected


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "made-up", ""])
def test_a_bad_content_encoding_is_a_bad_request(encoding: str) -> None:
    async def scene(webhook: Scene) -> None:
        for how in (
            b"Content-Length: 20\r\n\r\n" + b"\x1f\x8b" + b"\0" * 18,
            b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        ):
            streams = await webhook.connect()
            head = f"POST {PATH} HTTP/1.1\r\nHost: webhook\r\nContent-Encoding: {encoding}\r\n"
            streams[1].write(head.encode() + how)
            assert (await answer(streams[0]))[0] == 400

    run(scene, reviews=0)
