"""The least that the writes of a change can cost here: the same objects written by a client that does nothing else.

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
"""The path of each object, and what it becomes."""
_REPORT = "networking.dra.io/v1alpha1/NodeNetwork"
_MARK = "example.com/floor"


def slices(api: Api, pool: str) -> Requests:
    """The slices with devices of all pools whose name ends so, as they are to be written."""
    found = [
        one for one in api.list(SLICE) if one["spec"]["pool"]["name"].endswith(pool) and one["spec"].get("devices")
    ]
    return [(api.path(SLICE, "", one["metadata"]["name"]), json.dumps(_marked(one)).encode()) for one in found]


def reports(api: Api) -> Requests:
    """The nodes' reports, as they are to be written after a change of a policy."""
    return [
        (api.path(_REPORT, "", one["metadata"]["name"], "status"), json.dumps(_followed(one)).encode())
        for one in api.list(_REPORT)
    ]


def write(plane: ControlPlane, bodies: Requests) -> float:
    """Write each object once; the seconds that this takes."""
    return asyncio.run(_write(plane, bodies))


def _marked(one: Object) -> Object:
    metadata = one["metadata"]
    annotations = metadata.get("annotations", {})
    mark = str(int(annotations.get(_MARK, "0")) + 1)
    return {**one, "metadata": {**metadata, "annotations": {**annotations, _MARK: mark}}}


def _followed(one: Object) -> Object:
    first, *others = one["status"]["policies"]
    followed = {**first, "generation": first["generation"] + 1}
    return {**one, "status": {**one["status"], "policies": [followed, *others]}}


async def _write(plane: ControlPlane, bodies: Requests) -> float:
    pair = plane.authority.client("system:admin", ["system:masters"])
    trust = ssl.create_default_context(cafile=plane.authority.own.certificate)
    trust.load_cert_chain(pair.certificate, pair.key)
    connector = aiohttp.TCPConnector(ssl=trust, limit=CONNECTIONS)
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    async with aiohttp.ClientSession(plane.server, connector=connector, headers=headers) as session:
        begun = time.monotonic()

        async def one(path: str, body: bytes) -> None:
            async with session.put(path, data=body) as answer:
                await answer.read()
                answer.raise_for_status()

        await asyncio.gather(*(one(path, body) for path, body in bodies))
        return time.monotonic() - begun
