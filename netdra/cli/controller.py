"""`netdra controller`: DeviceClasses and statuses, as a process of the cluster."""

from __future__ import annotations

import socket
import uuid

import click

from netdra.cli import daemons, shared


@click.command(name="controller")
@daemons.cluster_options
@shared.namespace
@click.option(
    "--identity", metavar="NAME", envvar="NETDRA_POD", default="", help="The name of this process in the election."
)
def command(options: daemons.Options, namespace: str, identity: str) -> None:
    """Make the DeviceClasses of NetworkTopologies, and keep the status of topologies, policies and plugin schemas.

    The plugin schemas that netdra brings along are shown in the cluster, and count as they are brought along.

    Several may run: one is elected by a Lease and works, the others wait.
    """
    from netdra.controller.daemon import Settings
    from netdra.controller.daemon import run as work
    from netdra.controller.metrics import CONTROLLER

    settings = Settings(namespace, identity or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}")
    daemons.run("controller", (CONTROLLER,), lambda client, process: work(client, process, settings), options)
