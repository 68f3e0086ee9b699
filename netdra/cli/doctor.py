"""`netdra doctor`: what this cluster and this node lack, and what to do about it."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from netdra import __version__
from netdra.cli import shared, terminal
from netdra.doctor import node_look, node_verdicts
from netdra.doctor.finding import Finding, worst
from netdra.model import documents
from netdra.model.errors import InvalidInputError, TemporaryError

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
    output: str,
) -> None:
    """Look at what netdra needs of this cluster and of this node, and say what is missing and how to mend it.

    Nothing is changed: what has to be tried is a dry run. The exit code is 1 if there is an error. Without a cluster
    the node is looked at alone, unless the cluster is asked for; what this user may not see is said.
    """
    findings: list[Finding] = []
    if only != "node":
        wanted = only == "cluster" or kubeconfig is not None or context is not None
        findings += _cluster(kubeconfig, context, (namespace, name), node_name, wanted=wanted)
    if only != "cluster":
        places = node_look.Places(
            root=host_root, kubelet_root=kubelet_root, nri_socket=nri_socket, cdi_dir=cdi_dir, cni_path=cni_path
        )
        findings += node_verdicts.verdicts(node_look.look(places))
    _show(findings, output)
    if worst(findings) == "error":
        sys.exit(1)


def _cluster(
    kubeconfig: Path | None, context: str | None, where: tuple[str, str], node: str, *, wanted: bool
) -> list[Finding]:
    """What the cluster lacks, with netdra in a namespace and under a name.

    Where the user has not asked for it, that there is none is no error.
    """
    from netdra.doctor import cluster_verdicts

    try:
        from netdra.doctor import cluster_look
        from netdra.kube.client import Client
        from netdra.kube.connection import connect, find_config
    except ModuleNotFoundError as problem:
        if wanted:
            raise
        return cluster_verdicts.not_looked_at(f"{problem.name} is not installed: pip install 'netdra[cluster]'")
    try:
        config = find_config(kubeconfig, context)
    except InvalidInputError as problem:
        if wanted:
            raise
        return cluster_verdicts.not_looked_at(problem.what)

    async def look() -> list[Finding]:
        async with Client(connect(config)) as client:
            facts = await cluster_look.look(client, *where, node)
        return cluster_verdicts.verdicts(facts, __version__, datetime.now(UTC))

    try:
        return asyncio.run(look())
    except TemporaryError as problem:
        return cluster_verdicts.unreachable(problem.what)


def _show(findings: list[Finding], output: str) -> None:
    plain = [msgspec.to_builtins(each) for each in findings]
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(plain), indent=2).decode())
    elif output == "yaml":
        click.echo(documents.to_yaml([plain]), nl=False)
    else:
        rows = [(each.where, each.level, each.check, each.seen, each.fix) for each in findings]
        terminal.print_table(("WHERE", "LEVEL", "CHECK", "SEEN", "WHAT TO DO"), rows)
