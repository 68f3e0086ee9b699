"""`netdra networks`: takes a cluster from another IPAM plugin to PodNetworks while pods run."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING

import click

from netdra.cli import shared, terminal

if TYPE_CHECKING:
    from netdra.controller.imports import LeasePlan, LeaseSource
    from netdra.kube.client import Client

_CLUSTER = shared.cluster("The kubeconfig file; by default kubectl's.")
_APPLY = click.option("--apply", "is_applied", is_flag=True, help="Write the PodAddresses; by default a dry run.")
_TEXTS = {
    "new": ("to import", "imported"),
    "changed": ("to update", "updated"),
    "imported": ("already imported", "already imported"),
    "ended": ("to release", "released"),
    "conflict": ("in conflict", "in conflict"),
}
"""By state, the text before and after it is written."""


@click.group(name="networks")
def command() -> None:
    """Import the addresses that pods have of other IPAM plugins into PodNetworks."""


@command.command(name="import")
@click.argument("network")
@_CLUSTER
@shared.option(
    "--pool", "NAMESPACE/NAME", "Import only this IPPool of whereabouts; repeatable.", "pools", multiple=True
)
@shared.option(
    "--host-local",
    "DIR",
    "Import the leases of this folder of host-local, or of a copy of it, instead: of one network, e.g. "
    "/var/lib/cni/networks/storage-net.",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
)
@shared.option("--node", "NAME", "The node of the folder of host-local.", default="")
@_APPLY
@shared.output("table", "json", "yaml")
def import_leases(
    network: str,
    cluster: shared.ClusterAccess,
    pools: tuple[str, ...],
    folder: Path | None,
    node: str,
    is_applied: bool,
    output: str,
) -> None:
    """Keep PodNetwork NETWORK from assigning addresses that other IPAM plugins have assigned.

    Reads the IPPools and reservations of whereabouts in the cluster, or one folder of host-local. Each lease within the
    ranges becomes a PodAddress, and netdra does not assign the address. PodAddresses whose lease has ended are
    released. Run the command again after pods were created again with netdra: a second run changes nothing but these.

    Without --apply, nothing is written. The exit code is 1 if an address of a lease is also assigned by netdra, or
    imported from elsewhere.
    """
    from netdra.controller.imports import HostLocal, Whereabouts, plan

    if (folder is None) != (not node):
        raise click.UsageError("--host-local and --node require each other")
    if folder is not None and pools:
        raise click.UsageError("--pool is for whereabouts; omit it with --host-local")
    source: LeaseSource = HostLocal(folder, node) if folder is not None else Whereabouts(pools)
    _run(cluster, lambda client: plan(client, network, source), output, is_applied=is_applied)


@command.command()
@click.argument("network")
@_CLUSTER
@_APPLY
@shared.output("table", "json", "yaml")
def release(network: str, cluster: shared.ClusterAccess, is_applied: bool, output: str) -> None:
    """Release all addresses of PodNetwork NETWORK that were imported from other IPAM plugins.

    Run it when the other plugin was removed from the cluster. netdra may assign the addresses at once, so no pod may
    have one of them. Without --apply, nothing is written.
    """
    from netdra.controller.imports import plan_release

    _run(cluster, lambda client: plan_release(client, network), output, is_applied=is_applied)


def _run(
    cluster: shared.ClusterAccess,
    make: Callable[[Client], Coroutine[None, None, LeasePlan]],
    output: str,
    *,
    is_applied: bool,
) -> None:
    from netdra.controller.imports import LeasePlan, write

    async def work() -> LeasePlan:
        async with cluster.client() as client:
            found = await make(client)
            if not is_applied:
                return found
            total = sum(change.is_write for change in found.changes)
            with terminal.progress("Writing", total, "PodAddresses") as advance:
                return LeasePlan(await write(client, found.changes, advance), found.outside)

    done = asyncio.run(work())
    shown = [change.shown for change in done.changes]
    if output == "table":
        rows = [
            (entry.address, entry.plugin, entry.pool, entry.pod or entry.container[:12], entry.node, text, entry.detail)
            for entry in shown
            for text in (_TEXTS[entry.state][is_applied],)
        ]
        terminal.print_table(("ADDRESS", "PLUGIN", "POOL", "POD", "NODE", "STATE", "DETAIL"), rows)
    else:
        terminal.print_data(shown, output)
    sys.stdout.flush()  # before the messages on stderr, if both go to one log
    counts = Counter(str(entry.state) for entry in shown)
    _tell(counts, done.outside, is_applied=is_applied)
    if counts["conflict"]:
        sys.exit(1)


def _tell(counts: Counter[str], outside: int, *, is_applied: bool) -> None:
    parts = [f"{counts[state]} {texts[is_applied]}" for state, texts in _TEXTS.items() if counts[state]]
    if outside:
        parts.append(f"{outside} outside the ranges")
    terminal.tell(f"leases: {', '.join(parts) or 'none'}")
    if counts["conflict"]:
        terminal.tell("two pods may have an address that is in conflict; delete one of the two pods")
    if not is_applied and (counts["new"] or counts["changed"] or counts["ended"]):
        terminal.tell("dry run: nothing was written; repeat the command with --apply")
