"""`netdra top`: how many devices, and how much bandwidth, are allocated and free by node, DeviceClass and PF.

With `--traffic`, what the interfaces of pods carry just now.
"""

from __future__ import annotations

import asyncio
import platform
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click

from netdra.cli import shared, terminal
from netdra.cli.get import read_cluster
from netdra.cli.shared import ClusterAccess
from netdra.story import traffic
from netdra.story.traffic import InterfaceTraffic, TrafficReading
from netdra.story.usage import ClassUse, UseCount, class_uses, node_uses, pf_uses

_COUNTS = ("DEVICES", "ALLOCATED", "FREE", "TAINTED")
_BANDWIDTH = ("MBIT/S", "ALLOCATED MBIT/S")
BY = ("node", "class", "pf")
_TRAFFIC = ("NODE", "NAMESPACE", "POD", "INTERFACE", "DEVICE", "NETWORK")
_RATES = ("RX B/S", "TX B/S", "OF BANDWIDTH", "DROPS/S", "ERRORS/S")
_CLEAR = "\x1b[H\x1b[J"


@click.command(name="top")
@click.option("--by", type=click.Choice(BY), multiple=True, help="One of the tables; may be given several times.")
@shared.nodes
@click.option("--traffic", "is_traffic", is_flag=True, help="The traffic of pods' interfaces, the busiest first.")
@shared.option(
    "--every",
    "SECONDS",
    "With --traffic: the time between two readings.",
    type=click.FloatRange(0.1, 3600),
    default=2.0,
)
@click.option("--watch", "-w", is_flag=True, help="Show a dashboard until you quit; with --traffic: its history.")
@shared.option(
    "--socket",
    "PATH",
    "With --traffic: the driver's health socket on this machine; if it does not exist, the cluster is read.",
    type=shared.PATH,
    default="/run/netdra/health.sock",
)
@shared.option("--port", "PORT", "With --traffic: the drivers' port for metrics.", type=shared.PORT, default=8490)
@shared.namespace
@shared.cluster()
@shared.output("table", "json", "yaml")
def command(
    by: tuple[str, ...],
    nodes: tuple[str, ...],
    is_traffic: bool,
    every: float,
    watch: bool,
    socket: Path,
    port: int,
    namespace: str,
    cluster: ClusterAccess,
    output: str,
) -> None:
    """Show how many network devices are allocated and free, by node, by DeviceClass and by PF, with their bandwidth.

    A shared device counts as allocated if a claim consumes a part of it, and as free while another claim can get a
    part. Tainted devices are not free. The bandwidth of a PF is that of its link. The cluster is read with your rights;
    nothing is written.

    With --watch, a dashboard shows what is wrong now, with the next step, the nodes, and the addresses of PodNetworks.
    Its last line shows the keys.

    With --traffic, the counters of pods' interfaces are read twice from the drivers (chart value node.traffic.enabled):
    in a driver's pod from that driver, elsewhere from all drivers through the API server, which requires
    metrics.podMonitor and the right to get pods/proxy.
    """
    if is_traffic:
        shared.run(_show_traffic(_TrafficSource(cluster, namespace, nodes, socket, port), every, output, watch=watch))
        return
    if watch:
        _watch(cluster, is_plain=not by and not nodes and output == "table")
        return
    found = shared.run(read_cluster(cluster, nodes))
    tables = by or BY
    data: dict[str, Sequence[UseCount] | Sequence[ClassUse]] = {}
    if "node" in tables:
        data["nodes"] = node_uses(found, nodes)
    if "class" in tables:
        data["classes"] = [*class_uses(found, nodes=nodes)]
    if "pf" in tables:
        data["pfs"] = pf_uses(found, nodes)
    if output != "table":
        terminal.print_data(data, output)
        return
    for number, rows in enumerate(data.values()):
        if number:
            click.echo()
        _print(rows, ("NODE", "CLASS", "PF")[BY.index(tables[number]) if by else number])


def _watch(access: ClusterAccess, *, is_plain: bool) -> None:
    """Show the dashboard.

    Raises:
        click.UsageError: it has options that it ignores, or this is not a terminal.
    """
    if not is_plain:
        raise click.UsageError("--watch does not take --by, --node and --output")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("--watch requires a terminal; omit it to print tables")
    from netdra.cli.top_watch import run

    async def show() -> None:
        async with access.client() as client:
            await run(client)

    shared.run(show())


def _print(rows: Iterable[UseCount | ClassUse], first: str) -> None:
    more = ("NODES", "PROBLEM") if first == "CLASS" else _BANDWIDTH
    right = {*_COUNTS, *_BANDWIDTH, "NODES"}
    terminal.print_table((first, *_COUNTS, *more), map(_row, rows), right)


def _row(use: UseCount | ClassUse) -> tuple[str, ...]:
    counts = tuple(map(str, (use.devices, use.allocated, use.free, use.tainted)))
    if isinstance(use, ClassUse):
        return (use.device_class, *counts, str(use.nodes), use.problem)
    return (use.name, *counts, str(use.bandwidth or ""), str(use.allocated_bandwidth or ""))


class _TrafficSource:
    """Where the counters of pods' interfaces are read."""

    def __init__(self, cluster: ClusterAccess, namespace: str, nodes: Sequence[str], socket: Path, port: int) -> None:
        self._cluster, self._namespace, self._nodes, self._socket, self._port = cluster, namespace, nodes, socket, port

    async def read(self) -> TrafficReading:
        """All counters, now.

        Raises:
            NetdraError: no driver answers, or none exports counters.
        """
        from netdra.cluster import driver_pages  # it requires the packages of the daemons

        if driver_pages.is_socket(self._socket):
            return traffic.read(time.monotonic(), {platform.node(): await driver_pages.read_local(self._socket)})
        return traffic.read(time.monotonic(), await self._read_cluster())

    async def _read_cluster(self) -> Mapping[str, str]:
        """The pages of the nodes' drivers; those that cannot be read are reported on stderr."""
        from netdra.cluster import driver_pages

        async with self._cluster.client() as client:
            drivers = await driver_pages.list_drivers(client, self._namespace)
            wanted = {node: pod for node, pod in drivers.items() if not self._nodes or node in self._nodes}
            found = await driver_pages.read_drivers(client, self._namespace, wanted, self._port)
        for node, problem in found.refused.items():
            terminal.tell(f'node "{node}": {problem}')
        return found.pages


async def _show_traffic(source: _TrafficSource, every: float, output: str, *, watch: bool) -> None:
    """Print the rates between two readings; with `watch` again and again, until interrupted."""
    readings = [await source.read()]
    while True:
        await asyncio.sleep(every)
        readings = [*readings[-traffic.HISTORY :], await source.read()]
        rows = traffic.rates(readings)
        if output != "table":
            terminal.print_data(rows, output)
        else:
            if watch and sys.stdout.isatty():
                click.echo(_CLEAR, nl=False)
            _print_traffic(rows, with_history=watch)
        if not watch:
            return


def _print_traffic(rows: Sequence[InterfaceTraffic], *, with_history: bool) -> None:
    if not rows:
        terminal.tell("no interface of a pod is counted (chart value node.traffic.enabled, --traffic-interfaces)")
        return
    columns = (*_TRAFFIC, *_RATES, *(("HISTORY",) if with_history else ()))
    terminal.print_table(columns, (_traffic_row(row, with_history=with_history) for row in rows), set(_RATES))


def _traffic_row(row: InterfaceTraffic, *, with_history: bool) -> tuple[str, ...]:
    share = "" if row.share is None else f"{row.share:.0%}"
    rates = (
        f"{row.receive_bytes:,.0f}",
        f"{row.transmit_bytes:,.0f}",
        share,
        f"{row.drops:,.0f}",
        f"{row.errors:,.0f}",
    )
    names = (row.node, row.namespace, row.pod, row.interface, row.device, row.network)
    return (*names, *rates, *((row.sparkline,) if with_history else ()))
