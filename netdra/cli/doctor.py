"""`netdra doctor`: what this cluster and this node lack, and what to do about it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from netdra import __version__
from netdra.cli import shared, terminal
from netdra.doctor import node_look, node_verdicts
from netdra.doctor.finding import Finding, worst
from netdra.model import documents
from netdra.model.errors import InvalidInputError, TemporaryError

if TYPE_CHECKING:
    from netdra.doctor.cluster_verdicts import Unseen
    from netdra.doctor.neutron_verdicts import WiredNode
    from netdra.neutron.physnets import PhysnetDefault

_FOLDER = click.Path(path_type=Path)


@click.command(name="doctor")
@click.option("--only", type=click.Choice(["cluster", "node"]), help="Look at one of the two; by default at both.")
@click.option(
    "--kubeconfig", metavar="PATH", type=_FOLDER, help="As of the daemons; without any, the cluster is not looked at."
)
@click.option("--context", metavar="NAME", help="The kubeconfig's context.")
@shared.namespace
@shared.name
@click.option(
    "--node-name",
    metavar="NAME",
    envvar="NODE_NAME",
    default="",
    help="Whose ResourceSlices to try; by default any node's.",
)
@click.option(
    "--host-root", metavar="DIR", type=_FOLDER, default="/", show_default=True, help="The node's root, seen from here."
)
@shared.kubelet_root
@shared.nri_socket
@shared.cdi_dir
@shared.cni_path
@shared.neutron_clouds
@shared.neutron_cloud
@shared.neutron_physnets
@click.option("--output", "-o", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
def command(
    only: str | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    name: str,
    node_name: str,
    host_root: Path,
    kubelet_root: Path,
    nri_socket: Path,
    cdi_dir: Path,
    cni_path: tuple[Path, ...],
    neutron_clouds: Path | None,
    neutron_cloud: str,
    neutron_physnets: Path | None,
    output: str,
) -> None:
    """Look at what netdra needs of this cluster and of this node, and say what is missing and how to mend it.

    Nothing is changed: what has to be tried is a dry run. The exit code is 1 if there is an error. Without a cluster
    the node is looked at alone, unless the cluster is asked for; what this user may not see is said.

    With --neutron-clouds it logs in there, and compares the cloud with the cluster's nodes. No port is made.
    """
    defaults = shared.neutron_defaults(neutron_clouds, neutron_cloud, neutron_physnets)
    if only == "node" and neutron_clouds is not None:
        raise click.UsageError("--neutron-clouds is of the cluster: leave out --only node")
    findings: list[Finding] = []
    if only != "node":
        wanted = only == "cluster" or kubeconfig is not None or context is not None
        with_nodes = neutron_clouds is not None
        of_cluster, nodes = _cluster(
            kubeconfig, context, (namespace, name), node_name, wanted=wanted, with_nodes=with_nodes
        )
        findings += of_cluster
        if neutron_clouds is not None:
            findings += _cloud(neutron_clouds, neutron_cloud, defaults, nodes)
    if only != "cluster":
        places = node_look.Places(
            root=host_root, kubelet_root=kubelet_root, nri_socket=nri_socket, cdi_dir=cdi_dir, cni_path=cni_path
        )
        findings += node_verdicts.verdicts(node_look.look(places))
    _show(findings, output)
    if worst(findings) == "error":
        sys.exit(1)


def _cluster(
    kubeconfig: Path | None, context: str | None, where: tuple[str, str], node: str, *, wanted: bool, with_nodes: bool
) -> tuple[list[Finding], tuple[WiredNode, ...] | Unseen]:
    """The findings on the cluster, with netdra in a namespace and under a name; and, if wanted, its wired nodes.

    If the user has not asked for the cluster, its absence is no error.
    """
    from netdra.doctor import cluster_verdicts, neutron_verdicts
    from netdra.doctor.cluster_verdicts import Unseen

    try:
        from netdra.doctor import cluster_look, neutron_look
        from netdra.kube.client import Client
        from netdra.kube.connection import connect, find_config
    except ModuleNotFoundError as problem:
        if wanted:
            raise
        why, fix = f"{problem.name} is not installed", "pip install 'netdra[cluster]'"
        return cluster_verdicts.not_looked_at(why, fix), Unseen(f"{why}: {fix}")
    try:
        config = find_config(kubeconfig, context)
    except InvalidInputError as problem:
        if wanted:
            raise
        return cluster_verdicts.not_looked_at(problem.what), Unseen(problem.what)

    async def look() -> tuple[list[Finding], tuple[WiredNode, ...] | Unseen]:
        async with Client(connect(config)) as client:
            facts = await cluster_look.look(client, *where, node)
            ports = await neutron_look.look_at_ports(client, where[0])
            nodes = await neutron_look.look_at_nodes(client) if with_nodes else ()
        now = datetime.now(UTC)
        findings = cluster_verdicts.verdicts(facts, __version__, now)
        return [*findings, *neutron_verdicts.of_ports(ports, *where, now)], nodes

    try:
        return asyncio.run(look())
    except TemporaryError as problem:
        return cluster_verdicts.unreachable(problem.what), Unseen(problem.what)


def _cloud(
    clouds: Path, name: str, defaults: Mapping[str, PhysnetDefault], nodes: tuple[WiredNode, ...] | Unseen
) -> list[Finding]:
    """The findings on a cloud, for the ports of the nodes' VFs."""
    from netdra.doctor import neutron_look, neutron_verdicts
    from netdra.neutron.client import Neutron
    from netdra.neutron.session import Session

    async def look() -> list[Finding]:
        async with Neutron(Session(clouds, name)) as neutron:
            return neutron_verdicts.of_cloud(await neutron_look.look_at_cloud(neutron, defaults), nodes)

    return asyncio.run(look())


def _show(findings: list[Finding], output: str) -> None:
    plain = [msgspec.to_builtins(finding) for finding in findings]
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(plain), indent=2).decode())
    elif output == "yaml":
        click.echo(documents.to_yaml([plain]), nl=False)
    else:
        rows = [(finding.where, finding.level, finding.check, finding.seen, finding.fix) for finding in findings]
        terminal.print_table(("WHERE", "LEVEL", "CHECK", "SEEN", "WHAT TO DO"), rows)
