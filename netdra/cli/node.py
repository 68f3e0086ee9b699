"""`netdra node`: the driver of one node, as a process of the cluster."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import click

from netdra.cli import daemons, shared
from netdra.cli.shared import option
from netdra.model import names
from netdra.model.errors import InvalidInputError


def _mode(_context: click.Context, _option: click.Parameter, given: str) -> int:
    try:
        mode = int(given, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o777:
        raise click.BadParameter(f"{given!r}: permissions must be octal, e.g. 0660")
    return mode


def _providers(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    owners: dict[str, str] = {}
    for text in given:
        name, _, owner = text.partition("=")
        kind, _, number = owner.partition(":")
        is_user = owner == "root" or (kind == "uid" and number.isdecimal())
        if not name or not (is_user or owner.startswith("system:serviceaccount:")):
            raise click.BadParameter(
                f"{text!r}: must be NAME=root, NAME=uid:1000 or NAME=system:serviceaccount:NAMESPACE:NAME"
            )
        owners[name] = owner
    return owners


def _folders(_context: click.Context, _option: click.Parameter, given: tuple[Path, ...]) -> tuple[Path, ...]:
    for folder in given:
        if not folder.is_absolute():
            raise click.BadParameter(f"{folder}: must be an absolute path")
    return given


@click.command(name="node")
@daemons.cluster_options
@option("--node-name", "NAME", "The node's name; by default this machine's host name.", envvar="NODE_NAME", default="")
@option("--sysfs-root", "DIR", "The directory that replaces /sys.", default="/sys")
@shared.state_dir
@shared.kubelet_root
@shared.nri_socket
@shared.cdi_dir
@option(
    "--instance",
    "UID",
    "The ID of this process, which differs from that of the process that it replaces.",
    envvar="POD_UID",
    default="",
)
@option("--nri-index", "NN", "Two digits: the index among the NRI plugins.", default="10")
@option("--cni-root", "DIR", "The root of the filesystem for plugins.", type=shared.PATH, default="/")
@shared.cni_path
@option(
    "--registry-socket",
    "PATH",
    "The path of the device registry's socket, e.g. /run/netdra/registry.sock; by default not served.",
    type=shared.PATH,
)
@option("--registry-mode", "MODE", "The permissions of the registry's socket.", default="0660", callback=_mode)
@option("--registry-group", "GROUP", "The group of the registry's socket.", default="")
@click.option(
    "--registry-tokens-only",
    is_flag=True,
    help="Reject registrations without a pod's token for the audience dra.networking.",
)
@option(
    "--registry-provider",
    "NAME=OWNER",
    "The only user who may register as NAME: root (of the node), uid:1000, or system:serviceaccount:NAMESPACE:NAME.",
    "registry_providers",
    multiple=True,
    callback=_providers,
)
@click.option("--no-plugins", is_flag=True, help="Do not run CNI plugins; topologies can only use netdra's own steps.")
@shared.allow_plugin
@option(
    "--allow-host-path",
    "DIR",
    "A directory of the node that a plugin's config may refer to; by default none.",
    "allow_host_paths",
    type=shared.PATH,
    multiple=True,
    callback=_folders,
)
@shared.allow_device_file
@shared.physnet
@option(
    "--pod-network-kind",
    "NAME",
    "The PodNetworkKind of SIG Network's draft by which claims report PodNetworks; by default not reported.",
    default="",
)
@shared.unknown_differences
@option(
    "--traffic-interfaces",
    "N",
    "Export the counters of pods' interfaces as metrics, of N interfaces at most; by default none.",
    type=click.IntRange(0, 100_000),
    default=0,
)
def command(
    options: daemons.Options,
    node_name: str,
    sysfs_root: str,
    physnets: tuple[str, ...],
    no_plugins: bool,
    **settings: Any,
) -> None:
    """Run the DRA driver of this machine.

    The driver publishes network interfaces as devices according to the policies and keeps the devices up to date. It
    prepares claims for the kubelet, and attaches networks to pods through the container runtime before their first
    container is created. Published devices and networks of pods remain when the process ends.
    """
    from netdra.exposure.physnets import read
    from netdra.node.daemon import run as work
    from netdra.node.metrics import NODE, TRAFFIC
    from netdra.node.settings import NodeSettings

    node = node_name or platform.node().lower()
    if not names.is_subdomain(node):
        raise InvalidInputError(
            f'--node-name "{node}" is not a valid node name',
            hint="use lower-case letters, digits, - and ., as in worker-1",
            code="ND4033",
        )
    if not Path(sysfs_root).is_dir():
        hint = "specify the directory that replaces /sys: /sys on this machine, or a recorded tree"
        raise InvalidInputError(f"--sysfs-root {sysfs_root}: directory not found", hint=hint, code="ND4034")
    own = NodeSettings(
        node=node, sysfs_root=sysfs_root, physnets=read(physnets), run_plugins=not no_plugins, **settings
    )
    daemons.run("node", (NODE, TRAFFIC), lambda client, process: work(client, process, own), options)
