"""The minimum time of a burst of writes: the same slices, sent by a client that does nothing else.

Called by `bench.publishing`, beside whose bursts it stands: the API server's and etcd's part of them, on the same
machine and seen by the same kind of watch. Connections are there before, requests are ready as bytes, answers are not
decoded.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from bench.slices import Watched, watched
from testbed.access import ADMIN, ADMIN_GROUPS
from testbed.api import Object
from testbed.control_plane import ControlPlane
from testbed.objects import SLICE

AT_ONCE = 12
_DRIVER = "floor.bench"
_PATH = "/apis/resource.k8s.io/v1/resourceslices"
_TIMEOUT = 30.0

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def floor(plane: ControlPlane, slices: Sequence[Object], rounds: int) -> list[tuple[float, float]]:
    """Milliseconds until a watcher has seen all slices come, and until it has seen all of them go.

    Args:
        plane: the control plane.
        slices: what a driver published.
        rounds: how often.
    """
    with watched(plane, _DRIVER) as seen:
        return asyncio.run(_rounds(plane, [_as_new(one) for one in slices], seen, rounds))


async def _rounds(
    plane: ControlPlane, bodies: Sequence[bytes], seen: Watched, rounds: int
) -> list[tuple[float, float]]:
    pair = plane.authority.client(ADMIN, ADMIN_GROUPS)
    context = ssl.create_default_context(cafile=plane.authority.own.certificate)
    context.load_cert_chain(pair.certificate, pair.key)
    address = urlsplit(plane.server)
    connections = [await asyncio.open_connection(address.hostname, address.port, ssl=context) for _ in range(AT_ONCE)]
    found = []
    for _ in range(rounds):
        posts = [_request("POST", f"{_PATH}?fieldManager=bench", body) for body in bodies]
        answers, there = await _timed(connections, posts, seen, len(bodies))
        paths = [f"{_PATH}/{json.loads(answer)['metadata']['name']}" for answer in answers]
        _, gone = await _timed(connections, [_request("DELETE", path) for path in paths], seen, 0)
        found.append((there, gone))
    for _, writer in connections:
        writer.close()
    return found


async def _timed(
    connections: Sequence[Connection], requests: Sequence[bytes], seen: Watched, count: int
) -> tuple[list[bytes], float]:
    """The answers, and the milliseconds until a watcher has seen so many slices."""
    await asyncio.sleep(1.0)
    left, answers = iter(requests), list[bytes]()

    async def send(connection: Connection) -> None:
        answers.extend([await _answer(connection, request) for request in left])

    started = time.perf_counter()
    await asyncio.gather(*map(send, connections))
    moment = await asyncio.to_thread(seen.wait_count, count, _TIMEOUT)
    if moment is None:
        raise TimeoutError(f"a watcher did not see {count} slices within {_TIMEOUT:g} s")
    return answers, (moment - started) * 1000


async def _answer(connection: Connection, request: bytes) -> bytes:
    reader, writer = connection
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    status, lines = head.split(" ")[1], head.lower().split("\r\n")
    lengths = [int(line.partition(":")[2]) for line in lines if line.startswith("content-length:")]
    body = await reader.readexactly(lengths[0]) if lengths else await _chunks(reader)
    if not status.startswith("2"):
        raise ConnectionError(f"{status}: {body[:200].decode(errors='replace')}")
    return body


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    """A body whose length the server did not know before."""
    body = bytearray()
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return bytes(body)


def _request(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAccept: application/json\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _as_new(one: Object) -> bytes:
    """A published slice as a new one of another driver."""
    metadata = one["metadata"]
    kept = {key: metadata[key] for key in ("annotations", "ownerReferences") if key in metadata}
    kept["generateName"] = f"{metadata['name']}-"
    spec = {**one["spec"], "driver": _DRIVER}
    version, _, kind = SLICE.rpartition("/")
    return json.dumps({"apiVersion": version, "kind": kind, "metadata": kept, "spec": spec}).encode()
