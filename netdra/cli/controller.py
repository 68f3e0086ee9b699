"""`netdra controller`: DeviceClasses and statuses, as a process of the cluster."""

from __future__ import annotations

import socket
import uuid
from pathlib import PurePosixPath

import click

from netdra.cli import daemons, shared


@click.command(name="controller")
@daemons.cluster_options
@shared.namespace
@click.option(
    "--identity", metavar="NAME", envvar="NETDRA_POD", default="", help="The name of this process in the election."
)
@click.option(
    "--image",
    metavar="REFERENCE",
    envvar="NETDRA_IMAGE",
    default="",
    help="netdra's own image, by which CNIPlugins are installed on nodes; without it, they are not.",
)
@click.option(
    "--cni-folder",
    metavar="DIR",
    default="/opt/cni/bin",
    show_default=True,
    help="The folder of CNI plugins on the nodes, into which CNIPlugins are installed.",
)
def command(options: daemons.Options, namespace: str, identity: str, image: str, cni_folder: str) -> None:
    """Make the DeviceClasses of NetworkTopologies, and keep the status of topologies, policies and plugin schemas.

    CNIPlugins are installed on the nodes, by a DaemonSet for each.

    The plugin schemas that netdra brings along are shown in the cluster, and count as they are brought along.

    Several may run: one is elected by a Lease and works, the others wait.
    """
    from netdra.controller.daemon import Settings
    from netdra.controller.daemon import run as work
    from netdra.controller.metrics import CONTROLLER

    if not PurePosixPath(cni_folder).is_absolute() or ".." in PurePosixPath(cni_folder).parts:
        raise click.BadParameter(f"--cni-folder {cni_folder}: give an absolute path")
    settings = Settings(
        namespace, identity or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}", image=image, cni_folder=cni_folder
    )
    daemons.run("controller", (CONTROLLER,), lambda client, process: work(client, process, settings), options)
