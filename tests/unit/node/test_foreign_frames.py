"""After any bytes over the sockets of the kubelet and of providers, the next valid call is answered.

None of them is logged as an error, since every client with access could fill the log with it. The bytes are valid
HTTP/2 connections with gRPC calls in them, and mistakes.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from google.protobuf.message import Message
from h2.config import H2Configuration
from h2.connection import H2Connection

from netdra.node.kubelet.plugin import sockets
from netdra.node.registry.service import SERVICE
from netdra.node.wire import kubelet_pb2, registry_pb2
from tests import draws, foreign
from tests.unit.node.kubelet.caller import V1, WITHIN, Handler, calling, prepare, run
from tests.unit.node.kubelet.caller import serving as serving_kubelet
from tests.unit.node.registry.scene import serving as serving_providers

SECONDS = min(foreign.SECONDS, WITHIN / 2)
BETWEEN = 25
"""After so many connections, a sound call is made."""
WORDS = (
    b"\0\0\0\4\0\0\0\0\0", b"\0\0\4\3\0\0\0\0\1\0\0\0\x08", b"\0\0\4\x08\0\0\0\0\0\xff\xff\xff\xff", b"\xff\xff\xff",
    b"\0\0\0\7", b"\x80\0\0\0\1", b"\x01\0\0\0\4", b"\0\xff\xff\xff\xff", b"\0\0\x08\6\0\0\0\0\0\0\0\0\0\0\0\0\0",
)  # fmt: skip


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    with TemporaryDirectory(prefix="frames-") as path:
        (Path(path) / "plugins_registry").mkdir()
        yield Path(path)


def connection(path: str, *requests: Message) -> bytes:
    """A client's side of a connection: its preface, its settings, and one call for each request."""
    client = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    client.initiate_connection()
    for number, request in enumerate(requests):
        stream, body = 2 * number + 1, request.SerializeToString()
        head = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost"}
        head |= {"te": "trailers", "content-type": "application/grpc", "grpc-timeout": "5S"}
        client.send_headers(stream, list(head.items()))
        client.send_data(stream, b"\0" + len(body).to_bytes(4, "big") + body, end_stream=True)
    return client.data_to_send()


async def send(path: Path, data: bytes) -> None:
    """One connection; the server may answer, wait for more, or close it."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        with suppress(OSError, TimeoutError):
            writer.write(data)
            await writer.drain()
            async with asyncio.timeout(0.02):
                while await reader.read(65536):
                    pass
    finally:
        writer.close()


async def attack(name: str, path: Path, sound: tuple[bytes, ...], call: Callable[[], Awaitable[None]]) -> None:
    chance = random.Random(f"{draws.seed()} {name}")
    defects: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: defects.append(context))
    end, count = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        data = foreign.changed(chance, chance.choice(sound), WORDS)
        await send(path, data)
        count += 1
        if count % BETWEEN == 0:
            await call()
        assert defects == [], f"NETDRA_SEED={draws.seed()}; {data!r}"
    await call()


def test_the_kubelets_socket(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    claims = [kubelet_pb2.Claim(namespace="ns", name="fine", uid="uid-0")]
    prepares = connection(f"{V1}/NodePrepareResources", *[kubelet_pb2.PrepareRequest(claims=claims)] * 2)
    watches = connection("/v1.DRAResourceHealth/NodeWatchResources", kubelet_pb2.WatchRequest())

    async def test() -> None:
        paths = sockets(folder)
        async with serving_kubelet(paths, Handler()), calling(paths.dra) as channel:

            async def call() -> None:
                assert (await prepare(channel, "fine")).claims["uid-0"].error == ""

            await attack("kubelet", paths.dra, (prepares, watches), call)

    run(test)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_the_socket_of_providers(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    attributes = {"rdma": registry_pb2.DeviceAttribute(bool=True)}
    request = registry_pb2.RegisterAttributesRequest(device="eth7", provider="bctl", attributes=attributes)
    registers = connection(f"{SERVICE}/RegisterAttributes", *[request] * 3)
    lists = connection(f"{SERVICE}/ListRegistrations", registry_pb2.ListRegistrationsRequest())

    async def test() -> None:
        async with serving_providers(folder) as scene:

            async def call() -> None:
                assert (await scene.register()).success

            await attack("registry", scene.path, (registers, lists), call)

    run(test)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
