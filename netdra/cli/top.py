"""`netdra top`: how many devices, and how much bandwidth, are allocated and free by node, DeviceClass and PF."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import click

from netdra.cli import shared, terminal
from netdra.cli.get import read_cluster
from netdra.cli.shared import ClusterAccess
from netdra.story.usage import ClassUse, UseCount, class_uses, node_uses, pf_uses

_COUNTS = ("DEVICES", "ALLOCATED", "FREE", "TAINTED")
_BANDWIDTH = ("MBIT/S", "ALLOCATED MBIT/S")
BY = ("node", "class", "pf")


@click.command(name="top")
@click.option("--by", type=click.Choice(BY), multiple=True, help="One of the tables; may be given several times.")
@shared.option("--node", "NAME", "Only this node; may be given several times.", "nodes", multiple=True)
@click.option("--watch", "-w", is_flag=True, help="Show a dashboard of trouble, nodes and networks until you quit.")
@shared.cluster("The kubeconfig file; by default kubectl's.")
@shared.output("table", "json", "yaml")
def command(by: tuple[str, ...], nodes: tuple[str, ...], watch: bool, cluster: ClusterAccess, output: str) -> None:
    """Show how many network devices are allocated and free, by node, by DeviceClass and by PF, with their bandwidth.

    A shared device counts as allocated if a claim consumes a part of it. Tainted devices are not free. The bandwidth of
    a PF is that of its link. The cluster is read with your rights; nothing is written.

    With --watch, a dashboard shows what is wrong now, with the next step, the nodes, and the addresses of PodNetworks.
    Its last line shows the keys.
    """
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
