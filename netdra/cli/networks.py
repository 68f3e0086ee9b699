"""`netdra networks`: imports leases of other IPAM plugins into PodNetworks, and releases kept addresses."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from netdra.cli import shared, terminal

if TYPE_CHECKING:
    from netdra.controller.addresses.imports import LeasePlan, LeaseSource
    from netdra.kube.client import Client
    from netdra.networks.kept import KeptRelease, KeptSelection

_CLUSTER = shared.cluster()
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
    """Import the addresses that pods have of other IPAM plugins into PodNetworks, and release kept addresses."""


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
    from netdra.controller.addresses.imports import HostLocal, Whereabouts, plan

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
    from netdra.controller.addresses.imports import plan_release

    _run(cluster, lambda client: plan_release(client, network), output, is_applied=is_applied)


_KEPT = {
    "kept": "to release",
    "released": "released",
    "held": "held by its node",
    "quarantine": "in quarantine",
    "changed": "changed meanwhile",
}
"""By state, the text of a kept address."""


@command.command(name="release-kept")
@click.argument("networks", nargs=-1, metavar="[NETWORK]...")
@click.option("--all", "is_all", is_flag=True, help="Release addresses of all PodNetworks.")
@shared.option("--namespace", "NAME", "Only addresses of owners in this namespace.", default="")
@shared.option(
    "--owner",
    "PATTERN",
    "Only addresses that are kept for these pods, or for claims that were not created for a pod, e.g. 'postgres-*'.",
    default="",
)
@shared.option(
    "--older-than", "TIME", "Only addresses that have been kept for so long: 90s, 10m, 12h, 7d.", default="0s"
)
@_CLUSTER
@click.option("--apply", "is_applied", is_flag=True, help="Delete the PodAddresses; by default a dry run.")
@shared.output("table", "json", "yaml")
def release_kept(
    networks: tuple[str, ...],
    is_all: bool,
    namespace: str,
    owner: str,
    older_than: str,
    cluster: shared.ClusterAccess,
    is_applied: bool,
    output: str,
) -> None:
    """Release addresses of PodNetworks NETWORK that are kept without a claim, before their keepSeconds are over.

    netdra keeps the addresses of StatefulSet replicas, and of claims that were not created for a pod, for the next
    claim of the same owner. After this command, any claim can get them. Addresses that a claim has, that a node has not
    reported as free of its former pod, or that are in quarantine, are not released. Neither are imported leases, and
    addresses that another machine uses.

    Without --apply, nothing is written. The command uses your rights: the verbs list, delete and release on
    PodAddresses, and list on PodNetworks. The exit code is 4 if --apply could not release all selected addresses yet.
    """
    from netdra.networks.kept import KeptSelection

    if bool(networks) == is_all:
        raise click.UsageError("name the PodNetworks, or use --all")
    selection = KeptSelection(networks, namespace, owner, shared.duration("--older-than", older_than))
    done = shared.run(_release_kept(cluster, selection, is_applied=is_applied))
    shown = [entry.shown for entry in done]
    rows = [
        (entry.network, entry.address, entry.namespace, entry.owner, entry.kept_since, _KEPT[entry.state], entry.detail)
        for entry in shown
    ]
    columns = ("NETWORK", "ADDRESS", "NAMESPACE", "OWNER", "KEPT SINCE", "STATE", "DETAIL")
    terminal.print_report(shown, output, columns, rows)
    sys.stdout.flush()
    counts = Counter(str(entry.state) for entry in shown)
    parts = [f"{counts[state]} {text}" for state, text in _KEPT.items() if counts[state]]
    terminal.tell(f"kept addresses: {', '.join(parts) or 'none'}")
    if counts["kept"]:
        terminal.tell("dry run: nothing was written; repeat the command with --apply")
    if is_applied and any(entry.is_left for entry in done):
        sys.exit(4)


async def _release_kept(
    cluster: shared.ClusterAccess, selection: KeptSelection, *, is_applied: bool
) -> list[KeptRelease]:
    from netdra.controller.addresses.kept import plan, write

    async with cluster.client() as client:
        planned = await plan(client, selection, datetime.now(UTC))
        if not is_applied:
            return planned
        total = sum(entry.is_write for entry in planned)
        with terminal.progress("Releasing", total, "PodAddresses") as advance:
            return await write(client, planned, advance)


def _run(
    cluster: shared.ClusterAccess,
    make: Callable[[Client], Coroutine[None, None, LeasePlan]],
    output: str,
    *,
    is_applied: bool,
) -> None:
    from netdra.controller.addresses.imports import LeasePlan, write

    async def work() -> LeasePlan:
        async with cluster.client() as client:
            found = await make(client)
            if not is_applied:
                return found
            total = sum(change.is_write for change in found.changes)
            with terminal.progress("Writing", total, "PodAddresses") as advance:
                return LeasePlan(await write(client, found.changes, advance), found.outside)

    done = shared.run(work())
    shown = [change.shown for change in done.changes]
    rows = [
        (entry.address, entry.plugin, entry.pool, entry.pod or entry.container[:12], entry.node, text, entry.detail)
        for entry in shown
        for text in (_TEXTS[entry.state][is_applied],)
    ]
    columns = ("ADDRESS", "PLUGIN", "POOL", "POD", "NODE", "STATE", "DETAIL")
    terminal.print_report(shown, output, columns, rows)
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
