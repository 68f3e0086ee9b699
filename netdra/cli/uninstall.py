"""`netdra uninstall`: before netdra leaves a cluster, and after. The chart runs both as hooks of `helm uninstall`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from netdra.cli import shared, terminal

if TYPE_CHECKING:
    from netdra.controller.uninstall import Holders
    from netdra.kube.client import Client

T = TypeVar("T")

_FORCED = """\
Forced: netdra is removed although it is in use.
- Pods with its devices keep their networks, but cannot end: they stay Terminating until netdra is installed again.
- Their networks are not checked or repaired, and new pods do not get networks.
- To delete such a pod without netdra: drain its node, delete by force the pods that stay Terminating, and reboot it.
  The reboot removes network interfaces. Files of plugins on disk (leases of IPAM plugins) remain.
- The binaries of CNIPlugins stay on the nodes, without any maintenance.
- Ports of VFs stay in Neutron: openstack port list --device-owner netdra:vf"""
_REFUSED = """\
Delete the pods that use the claims, unused claims, and CNIPlugins. The condition of a NeutronPort that is
being deleted shows why it waits for Neutron. Then uninstall again.
To uninstall although they exist: helm upgrade RELEASE CHART --reuse-values --set uninstall.force=true"""
_RUNNING = """\
netdra is running. Nothing is removed, because running processes need these objects.
Delete netdra's DaemonSet and Deployments first, e.g. with helm uninstall. A pod on an unreachable node remains until
the node is back or deleted; if the machine is off, kubectl delete pod --force. Then run this command again."""

_CLUSTER = shared.cluster("As of the daemons: the way to the cluster.")


@click.group(name="uninstall")
def command() -> None:
    """Prepare the removal of netdra from a cluster."""


@command.command()
@_CLUSTER
@click.option("--force", is_flag=True, help="Print the consequences for pods that use devices, and succeed.")
@shared.output("table", "line", "json", "yaml")
def check(cluster: shared.ClusterAccess, force: bool, output: str) -> None:
    """Show the objects that still require netdra: ResourceClaims with its devices, CNIPlugins, and ports in Neutron.

    Without netdra, pods with such claims cannot end, and installed plugins would stay on the nodes. Nothing is changed.
    The exit code is 1 if there are such objects, and 0 without them or with --force. --output=line prints them and the
    next step as one line, for logs that escape line breaks, as Helm's does.
    """
    from netdra.controller.uninstall import holders

    holders_left = _ask(cluster, holders)
    is_free = not (holders_left.count or holders_left.plugins or holders_left.neutron_ports)
    if output == "line" and not is_free:
        click.echo(line_of(holders_left, force=force))
        sys.exit(0 if force else 1)
    _show(holders_left, output)
    if is_free:
        terminal.tell(
            "no ResourceClaim uses a device of netdra, no CNIPlugin is installed, and Neutron has no port of netdra"
        )
        return
    terminal.tell(_FORCED if force else _REFUSED)
    if not force:
        sys.exit(1)


@command.command()
@_CLUSTER
@shared.namespace
@shared.name
@shared.seconds(
    "--wait", "Wait so long for netdra's pods to end and its lease to expire.", 0, None, 120.0, name="wait_seconds"
)
@shared.output("table", "json", "yaml")
def clean(cluster: shared.ClusterAccess, namespace: str, name: str, wait_seconds: float, output: str) -> None:
    """Remove the objects that netdra's processes created, after the processes have ended.

    These are DeviceClasses of topologies, schemas of older versions, NodeNetworks, netdra's ResourceSlices, DaemonSets
    of CNIPlugins, the controller's lease, the webhook's Secret, and finalizers of topologies, CNIPlugins and
    NeutronPorts. Objects that users created remain: policies, topologies, claims, and the CustomResourceDefinitions. A
    second run removes nothing.

    While netdra is running in any namespace, nothing is removed and the exit code is 1. netdra is running if its
    DaemonSet or a Deployment exists, one of their pods has not ended, or its lease is renewed.
    """
    from netdra.controller.uninstall import Installation, Removed, RunningProcess, wait_until_gone
    from netdra.controller.uninstall import clean as removing

    async def work(client: Client) -> tuple[tuple[RunningProcess, ...], list[Removed]]:
        processes = await wait_until_gone(client, wait_seconds)
        if processes:
            return processes, []
        return (), [removed async for removed in removing(client, Installation(namespace, name))]

    processes, removed = _ask(cluster, work)
    if processes:
        terminal.tell(_RUNNING)
        for process in processes:
            terminal.tell(f"{process.kind} {process.name} {process.state}")
        sys.exit(1)
    terminal.print_report(removed, output, ("REMOVED", "NAME"), [(item.kind, item.name) for item in removed])


def _ask(cluster: shared.ClusterAccess, work: Callable[[Client], Awaitable[T]]) -> T:
    async def ask() -> T:
        async with cluster.client() as client:
            return await work(client)

    return shared.run(ask())


def line_of(left: Holders, *, force: bool) -> str:
    """The objects that still require netdra, and the next step, as one line without quotation marks."""
    claims = [
        f"ResourceClaim {entry.claim} (pods: {', '.join(entry.pods) or 'none'}; devices: {', '.join(entry.devices)})"
        for entry in left.claims
    ]
    more = [f"{left.count - len(claims)} more ResourceClaims"] if left.count > len(claims) else []
    plugins = [f"CNIPlugin {name}" for name in left.plugins]
    ports = [f"NeutronPort {name}" for name in left.neutron_ports]
    listed = "; ".join([*claims, *more, *plugins, *ports])
    lines = (line.removeprefix("- ") for line in (_FORCED if force else _REFUSED).splitlines())
    return f"netdra is still needed by {listed}. {' '.join(lines)}"


def _show(left: Holders, output: str) -> None:
    if output not in {"table", "line"}:
        terminal.print_data(left, output)
        return
    rows = [(claim.claim, ", ".join(claim.pods) or "-", ", ".join(claim.devices)) for claim in left.claims]
    if rows:
        terminal.print_table(("CLAIM", "PODS", "DEVICES"), rows)
    if left.count > len(rows):
        click.echo(f"... and {left.count - len(rows)} more")
    if left.plugins:
        terminal.print_table(("CNIPLUGIN",), [(name,) for name in left.plugins])
    if left.neutron_ports:
        terminal.print_table(("NEUTRONPORT",), [(name,) for name in left.neutron_ports])
    sys.stdout.flush()  # before the messages on stderr, if both go to one log
