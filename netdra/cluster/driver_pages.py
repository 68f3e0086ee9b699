"""Reads the metrics of nodes' drivers: on the node by the driver's socket, elsewhere through the API server.

Used by `netdra top --traffic` and the console.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from netdra.kube.client import Client
from netdra.model.errors import NetdraError, PermanentError, TemporaryError

_DRIVERS = {"labelSelector": "app.kubernetes.io/name=netdra,app.kubernetes.io/component=node"}
_TOGETHER = 16
_SECONDS = 10.0


def is_socket(path: Path) -> bool:
    """Whether a unix socket is at a path; False also if the path cannot be read."""
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


async def read_local(path: Path) -> str:
    """The metrics of the driver whose socket that is.

    Raises:
        PermanentError: it does not answer.
    """
    try:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
                answer = await reader.read(-1)
            finally:
                writer.close()
    except (OSError, TimeoutError) as problem:
        raise PermanentError(
            f"the driver's socket {path} does not answer: {str(problem) or 'time-out'}",
            hint="see the driver's log",
            code="ND4057",
        ) from None
    return answer.decode(errors="replace").partition("\r\n\r\n")[2]


class DriverPages(NamedTuple):
    """The metrics of drivers, and why those of others could not be read, by node."""

    pages: Mapping[str, str]
    refused: Mapping[str, NetdraError]


async def list_drivers(client: Client, namespace: str, node: str = "", limit: int = 0) -> dict[str, str]:
    """The pods of netdra's DaemonSet by node; only pods of netdra's namespace: anyone can give a pod a driver's labels.

    Args:
        namespace: netdra's.
        node: only this node; "" for all.
        limit: how many pods at most; 0 for all.

    Raises:
        ApiError: the API server does not answer.
    """
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
    only = {"fieldSelector": f"spec.nodeName={node}"} if node else {}
    most = {"limit": str(limit)} if limit else {}
    answer = await client.read(path, "pods of netdra's DaemonSet", {**_DRIVERS, **only, **most})
    pods = msgspec.json.decode(answer)["items"]
    return {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")}


async def read_drivers(client: Client, namespace: str, drivers: Mapping[str, str], port: int) -> DriverPages:
    """The metrics of drivers through the API server's proxy.

    Args:
        namespace: netdra's.
        drivers: their pods, by node.
        port: their port for metrics.

    Raises:
        NetdraError: none could be read.
    """
    if not drivers:
        raise PermanentError(
            f'namespace "{namespace}" has no pod of netdra\'s DaemonSet',
            hint="check --node and --namespace, and that netdra is installed by its chart",
            code="ND4058",
        )
    turns = asyncio.Semaphore(_TOGETHER)
    answers = await asyncio.gather(*(_read(client, turns, namespace, pod, port) for pod in drivers.values()))
    found = dict(zip(drivers, answers, strict=True))
    pages = {node: answer for node, answer in found.items() if isinstance(answer, str)}
    refused = {node: answer for node, answer in found.items() if not isinstance(answer, str)}
    if not pages:
        raise TemporaryError(
            f"no driver could be read: {next(iter(refused.values()))}",
            hint="set metrics.podMonitor in the chart, so that drivers serve metrics on the nodes' addresses, or run "
            "`kubectl exec` with `netdra top --traffic` in a driver's pod",
            code="ND4059",
        ) from next(iter(refused.values()))
    return DriverPages(pages, refused)


async def _read(client: Client, turns: asyncio.Semaphore, namespace: str, name: str, port: int) -> str | NetdraError:
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name)}:{port}/proxy/metrics"
    async with turns:
        try:
            return (await client.read(path, f'metrics of pod "{namespace}/{name}"')).decode(errors="replace")
        except NetdraError as problem:
            return problem
