"""`netdra get`: the network interfaces and devices of nodes, and which claim and pod uses which."""

from __future__ import annotations

import click

from netdra.cli import shared, terminal
from netdra.cli.shared import ClusterAccess
from netdra.cluster.objects import ClusterState
from netdra.story.usage import DeviceUse, device_uses

_COLUMNS = ("NODE", "DEVICE", "TYPE", "PF", "STATE", "CLAIM", "POD", "IN POD", "ADDRESSES", "REASON")


@click.command(name="get")
@shared.nodes
@click.option("--used", is_flag=True, help="Only allocated devices.")
@shared.cluster()
@shared.output("table", "json", "yaml")
def command(nodes: tuple[str, ...], used: bool, cluster: ClusterAccess, output: str) -> None:
    """List the network devices of nodes, and which claim and pod uses each; then interfaces that are hidden, and why.

    Read from ResourceSlices, ResourceClaims and NodeNetworks, with your rights; kinds that you cannot read are reported
    on stderr. Nothing is written.
    """
    found = shared.run(read_cluster(cluster, nodes))
    uses = [use for use in device_uses(found, nodes) if use.claims or not used]
    terminal.print_report(uses, output, _COLUMNS, map(_row, uses))


async def read_cluster(access: ClusterAccess, nodes: tuple[str, ...]) -> ClusterState:
    """The objects of a cluster; what cannot be read is reported on stderr.

    Raises:
        ApiError: the API server does not answer.
    """
    from netdra.cluster import reading

    async with access.client() as client:
        scope = reading.Scope(node=nodes[0] if len(nodes) == 1 else "")
        found = await reading.read(client, scope)
    for kind in ("resourceslices", "resourceclaims", "nodenetworks", "deviceclasses"):
        if kind in found.unread:
            terminal.tell(found.unread[kind])
    return found


def _row(use: DeviceUse) -> tuple[str, ...]:
    return (
        *(use.node, use.device, use.type, use.pf if use.pf != use.device else "", use.state),
        *(", ".join(use.claims), ", ".join(use.pods), use.interface, ", ".join(use.addresses), use.reason),
    )
