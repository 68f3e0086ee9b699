"""Reads the metrics of nodes' drivers: on the node by the driver's socket, elsewhere through the API server.

Used by `netdra top --traffic`.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from netdra.cli import terminal
from netdra.cli.shared import ClusterAccess
from netdra.kube.client import Client
from netdra.model.errors import NetdraError, PermanentError, TemporaryError

_DRIVERS = {"labelSelector": "app.kubernetes.io/name=netdra,app.kubernetes.io/component=node"}
_TOGETHER = 16
_SECONDS = 10.0


def is_socket(path: Path) -> bool:
    """Whether a socket is at a path."""
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
            f"the driver's socket {path} does not answer: {str(problem) or 'time-out'}", hint="see the driver's log"
        ) from None
    return answer.decode(errors="replace").partition("\r\n\r\n")[2]


async def read_cluster(access: ClusterAccess, namespace: str, nodes: Sequence[str], port: int) -> dict[str, str]:
    """The metrics of the nodes' drivers, by node, through the API server's proxy; others are reported on stderr.

    Only pods of netdra's namespace are read: anyone can give a pod the labels of a driver.

    Raises:
        NetdraError: the API server does not answer, or no driver does.
    """
    import msgspec

    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
    async with access.client() as client:
        listed = msgspec.json.decode(await client.read(path, "pods of netdra's DaemonSet", _DRIVERS))
        drivers = {
            pod["spec"]["nodeName"]: (pod["metadata"]["namespace"], pod["metadata"]["name"])
            for pod in listed["items"]
            if pod["spec"].get("nodeName") and (not nodes or pod["spec"]["nodeName"] in nodes)
        }
        if not drivers:
            raise PermanentError(
                f'namespace "{namespace}" has no pod of netdra\'s DaemonSet',
                hint="check --node and --namespace, and that netdra is installed by its chart",
            )
        turns = asyncio.Semaphore(_TOGETHER)
        answers = await asyncio.gather(*(_read(client, turns, *pod, port) for pod in drivers.values()))
    pages = {node: answer for node, answer in zip(drivers, answers, strict=True) if isinstance(answer, str)}
    refused = {node: answer for node, answer in zip(drivers, answers, strict=True) if not isinstance(answer, str)}
    if not pages:
        raise TemporaryError(
            f"no driver could be read: {next(iter(refused.values()))}",
            hint="set metrics.podMonitor in the chart, so that drivers serve metrics on the nodes' addresses, or run "
            "`kubectl exec` with `netdra top --traffic` in a driver's pod",
        )
    for node, problem in refused.items():
        terminal.tell(f'node "{node}": {problem}')
    return pages


async def _read(client: Client, turns: asyncio.Semaphore, namespace: str, name: str, port: int) -> str | NetdraError:
    path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}:{port}/proxy/metrics"
    async with turns:
        try:
            return (await client.read(path, f'metrics of pod "{namespace}/{name}"')).decode(errors="replace")
        except NetdraError as problem:
            return problem
