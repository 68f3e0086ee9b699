"""`netdra doctor`: the problems of this cluster and this node, and the next steps."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from netdra import __version__
from netdra.cli import shared, terminal
from netdra.cli.shared import option
from netdra.doctor import node_look, node_verdicts
from netdra.doctor.diagnosis import Diagnosis, Unseen, attempt, worst
from netdra.model.errors import InvalidInputError, TemporaryError, with_code
from netdra.model.extras import how_to_install

if TYPE_CHECKING:
    from netdra.doctor.neutron_verdicts import WiredNode
    from netdra.model.pod_network import PodNetwork
    from netdra.neutron.physnets import PhysnetDefault
    from netdra.rules.taken_ranges import TakenRange


@click.command(name="doctor")
@click.option(
    "--only", type=click.Choice(["cluster", "node"]), help="Check only the cluster or only the node; by default both."
)
@shared.cluster("The same as for the daemons; without a kubeconfig, the cluster is not checked.")
@shared.namespace
@shared.name
@option(
    "--node-name",
    "NAME",
    "The node whose ResourceSlices are tried; by default any node.",
    envvar="NODE_NAME",
    default="",
)
@shared.places(node_look.Places, "The node's root filesystem, as mounted here.")
@shared.cloud
@shared.output("table", "json", "yaml")
def command(
    only: str | None,
    cluster: shared.ClusterAccess,
    namespace: str,
    name: str,
    node_name: str,
    places: node_look.Places,
    cloud: shared.CloudAccess,
    output: str,
) -> None:
    """Check the requirements of this cluster and this node, and show how to fix problems.

    Nothing is changed; trials are dry runs. The exit code is 1 if there is an error. Without a kubeconfig, only the
    node is checked, unless the cluster is requested. Objects that this user is not allowed to read are reported.

    With --neutron-clouds, the command logs in to the cloud and compares it with the cluster's nodes. It does not create
    ports.
    """
    defaults = cloud.defaults()
    with_cloud = cloud.neutron_clouds is not None
    if only == "node" and with_cloud:
        raise click.UsageError("--neutron-clouds checks the cluster; omit --only node")
    findings: list[Diagnosis] = []
    if only != "node":
        wanted = only == "cluster" or cluster.is_given
        of_cluster, beside = _cluster(cluster, (namespace, name), node_name, wanted=wanted, with_nodes=with_cloud)
        findings += of_cluster
        findings += _cloud(cloud, defaults, beside) if with_cloud else ()
    if only != "cluster":
        findings += node_verdicts.verdicts(node_look.look(places))
    rows = [(finding.where, finding.level, finding.check, finding.coded, finding.fix) for finding in findings]
    terminal.print_report(findings, output, ("WHERE", "LEVEL", "CHECK", "SEEN", "WHAT TO DO"), rows)
    if worst(findings) == "error":
        sys.exit(1)


class _Beside(NamedTuple):
    """The part of a cluster with which a cloud is compared.

    Attributes:
        nodes: the nodes that publish devices of physical networks.
        networks: the PodNetworks.
        taken: the ranges with which these were compared already.
    """

    nodes: tuple[WiredNode, ...] | Unseen
    networks: tuple[PodNetwork, ...] = ()
    taken: tuple[TakenRange, ...] = ()


def _cluster(
    access: shared.ClusterAccess, where: tuple[str, str], node: str, *, wanted: bool, with_nodes: bool
) -> tuple[list[Diagnosis], _Beside]:
    """The findings on the cluster, with netdra in a namespace and under a name; and the part for the cloud, if wanted.

    If the user has not asked for the cluster, its absence is not an error.
    """
    from netdra.doctor import (
        cluster_verdicts,
        network_verdicts,
        neutron_verdicts,
        process_verdicts,
        scheduling_verdicts,
    )

    try:
        from netdra.doctor import cluster_look, network_look, neutron_look, process_look, scheduling_look
    except ModuleNotFoundError as problem:
        if wanted:
            raise
        why, fix = f"{problem.name} is not installed", how_to_install("cluster")
        return cluster_verdicts.not_looked_at(why, fix), _Beside(Unseen(f"{why}: {fix}"))
    try:
        access.config()
    except InvalidInputError as problem:
        if wanted:
            raise
        why = with_code(problem.what, problem.code)
        return cluster_verdicts.not_looked_at(why), _Beside(Unseen(why))

    async def look() -> tuple[list[Diagnosis], _Beside]:
        async with access.client() as client:
            facts = await cluster_look.look(client, *where, node)
            processes = await process_look.look(client, where[0], facts.components)
            scheduling = await attempt(scheduling_look.look(client))
            ports = await neutron_look.look_at_ports(client, facts.components)
            networks = await network_look.look(client)
            nodes = await neutron_look.look_at_nodes(client) if with_nodes else ()
            now = client.now()
        findings = cluster_verdicts.verdicts(facts, __version__, now)
        findings += process_verdicts.verdicts(processes)
        findings += scheduling_verdicts.verdicts(scheduling)
        findings += network_verdicts.verdicts(networks, now)
        beside = _Beside(nodes, networks.known, () if isinstance(networks.taken, Unseen) else networks.taken)
        return [*findings, *neutron_verdicts.of_ports(ports, *where, now)], beside

    try:
        return shared.run(look())
    except TemporaryError as problem:
        why = with_code(problem.what, problem.code)
        return cluster_verdicts.unreachable(why), _Beside(Unseen(why))


def examine_cluster(access: shared.ClusterAccess, namespace: str, name: str) -> list[Diagnosis]:
    """The findings on a cluster, with netdra in a namespace and under a name. Called by `netdra support-bundle`, too.

    Raises:
        InvalidInputError: the cluster cannot be found.
    """
    return _cluster(access, (namespace, name), "", wanted=True, with_nodes=False)[0]


def _cloud(cloud: shared.CloudAccess, defaults: Mapping[str, PhysnetDefault], beside: _Beside) -> list[Diagnosis]:
    from netdra.doctor import neutron_look, neutron_verdicts, subnet_verdicts
    from netdra.neutron.client import Neutron
    from netdra.neutron.session import Session

    assert cloud.neutron_clouds is not None
    session = Session(cloud.neutron_clouds, cloud.neutron_cloud)

    async def look() -> list[Diagnosis]:
        async with Neutron(session, cloud.allowed) as neutron:
            facts = await neutron_look.look_at_cloud(neutron, defaults)
            findings = neutron_verdicts.of_cloud(facts, beside.nodes)
            return [*findings, *subnet_verdicts.verdicts(beside.networks, facts, beside.taken)]

    return shared.run(look())
