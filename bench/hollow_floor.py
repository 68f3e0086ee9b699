"""The least that the writes of a change can cost here: the same slices written by a client that does nothing else.

Measured by `bench.hollow` in the same run, on the same API server and beside the same controller. Requests are made
before the clock starts; what comes back is not inspected.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Sequence

import aiohttp

from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import SLICE

CONNECTIONS = 32
Requests = Sequence[tuple[str, bytes]]
"""The name of each slice, and what it becomes."""
_PATH = "/apis/resource.k8s.io/v1/resourceslices"
_MARK = "example.com/floor"


def requests(api: Api, pool: str) -> Requests:
    """The slices with devices of all pools whose name ends so, as they are to be written."""
    found = [
        one for one in api.list(SLICE) if one["spec"]["pool"]["name"].endswith(pool) and one["spec"].get("devices")
    ]
    return [(one["metadata"]["name"], json.dumps(_marked(one)).encode()) for one in found]


def write(plane: ControlPlane, bodies: Requests) -> float:
    """Write each slice once; the seconds that this takes."""
    return asyncio.run(_write(plane, bodies))


def _marked(one: Object) -> Object:
    metadata = one["metadata"]
    return {**one, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), _MARK: "written"}}}


async def _write(plane: ControlPlane, bodies: Requests) -> float:
    pair = plane.authority.client("system:admin", ["system:masters"])
    trust = ssl.create_default_context(cafile=plane.authority.own.certificate)
    trust.load_cert_chain(pair.certificate, pair.key)
    connector = aiohttp.TCPConnector(ssl=trust, limit=CONNECTIONS)
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    async with aiohttp.ClientSession(plane.server, connector=connector, headers=headers) as session:
        begun = time.monotonic()

        async def one(name: str, body: bytes) -> None:
            async with session.put(f"{_PATH}/{name}", data=body) as answer:
                await answer.read()
                answer.raise_for_status()

        await asyncio.gather(*(one(name, body) for name, body in bodies))
        return time.monotonic() - begun
