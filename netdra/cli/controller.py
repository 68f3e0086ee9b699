"""`netdra controller`: DeviceClasses and statuses, as a process of the cluster."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import click

from netdra.cli import daemons, shared
from netdra.cli.shared import option, seconds

if TYPE_CHECKING:
    from netdra.controller.neutron.ports import NeutronSettings


@click.command(name="controller")
@daemons.cluster_options
@shared.namespace
@option("--identity", "NAME", "The name of this process in the election.", envvar="NETDRA_POD", default="")
@option(
    "--image",
    "REFERENCE",
    "The image of netdra, which installs CNIPlugins on nodes; without it, CNIPlugins are not installed.",
    envvar="NETDRA_IMAGE",
    default="",
)
@option(
    "--image-pull-secret",
    "NAME",
    "A pull secret for the image of netdra, in netdra's namespace; repeatable.",
    "pull_secrets",
    multiple=True,
)
@option(
    "--cni-folder",
    "DIR",
    "The directory of CNI plugins on the nodes, where CNIPlugins are installed.",
    default="/opt/cni/bin",
)
@shared.allow_plugin
@click.option(
    "--services",
    help="Write EndpointSlices for Services of PodNetworks, with the pods' addresses on these.",
    is_flag=True,
)
@option(
    "--health-node-percent",
    "N",
    "The percentage of a node's devices that may be tainted for their health at one time; 0: none.",
    type=click.IntRange(0, 100),
    default=50,
)
@option(
    "--health-cluster-percent",
    "N",
    "The percentage of the cluster's devices that may be tainted for their health at one time; 0: none.",
    type=click.IntRange(0, 100),
    default=10,
)
@shared.cloud
@option(
    "--neutron-cluster-name",
    "NAME",
    "The cluster's name in tags of its ports in Neutron; by default its UID.",
    default="",
)
@seconds(
    "--neutron-check-interval",
    "The interval between searches for orphaned ports of the cluster in Neutron.",
    1.0,
    None,
    600.0,
)
@seconds(
    "--neutron-poll-interval",
    "The minimum interval between comparisons of revision numbers in Neutron; longer if the server is slow.",
    1.0,
    None,
    10.0,
)
@seconds("--neutron-timeout", "The timeout of a request to Keystone or Neutron.", 1.0, None, 15.0)
@option(
    "--neutron-requests-per-second",
    "NUMBER",
    "The maximum number of new requests to Neutron per second; 0 for no limit.",
    type=click.FloatRange(min=0.0),
    default=20.0,
)
def command(
    options: daemons.Options,
    namespace: str,
    identity: str,
    image: str,
    pull_secrets: tuple[str, ...],
    cni_folder: str,
    allow_plugins: tuple[str, ...],
    services: bool,
    health_node_percent: int,
    health_cluster_percent: int,
    cloud: shared.CloudAccess,
    neutron_cluster_name: str,
    neutron_check_interval: float,
    **pace: float,
) -> None:
    """Maintain DeviceClasses and the status of netdra's objects.

    The controller installs CNIPlugins on the nodes with one DaemonSet each, creates Neutron ports for VFs whose
    topology requests them, and publishes the built-in plugin schemas in the cluster.

    Several replicas can run: one is elected with a Lease, and the others wait.
    """
    from netdra.controller.daemon import ControllerSettings
    from netdra.controller.daemon import run as work
    from netdra.controller.metrics import CONTROLLER
    from netdra.health.rules import HealthCap

    if not PurePosixPath(cni_folder).is_absolute() or ".." in PurePosixPath(cni_folder).parts:
        raise click.BadParameter(f"--cni-folder {cni_folder}: must be an absolute path")
    settings = ControllerSettings(
        namespace,
        identity or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}",
        image=image,
        pull_secrets=pull_secrets,
        cni_folder=cni_folder,
        allow_plugins=frozenset(allow_plugins),
        services=services,
        health=HealthCap(node=health_node_percent, cluster=health_cluster_percent),
        neutron=_cloud(cloud, neutron_check_interval, neutron_cluster_name, pace),
    )
    daemons.run("controller", (CONTROLLER,), lambda client, process: work(client, process, settings), options)


def _cloud(
    cloud: shared.CloudAccess, interval: float, cluster_name: str, pace: Mapping[str, float]
) -> NeutronSettings | None:
    """The cloud of the options, as far as it can be known now: its file is read again at each login.

    Raises:
        click.UsageError, CloudsError: as `CloudAccess.defaults`.
    """
    defaults = cloud.defaults()
    if cloud.neutron_clouds is None:
        return None
    from netdra.controller.neutron.ports import NeutronSettings

    return NeutronSettings(
        cloud.neutron_clouds,
        cloud.neutron_cloud,
        defaults,
        interval,
        cloud.allowed,
        cluster_name,
        poll_seconds=pace["neutron_poll_interval"],
        timeout_seconds=pace["neutron_timeout"],
        requests_per_second=pace["neutron_requests_per_second"],
    )
