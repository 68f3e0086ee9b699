"""`netdra node`: the driver of one node, as a process of the cluster."""

from __future__ import annotations

import platform
from pathlib import Path

import click

from netdra.cli import daemons, shared
from netdra.model import names
from netdra.model.errors import InvalidInputError

_FOLDER = click.Path(path_type=Path)


@click.command(name="node")
@daemons.cluster_options
@click.option(
    "--node-name", metavar="NAME", envvar="NODE_NAME", default="", help="The node's name; without it, this machine's."
)
@click.option("--sysfs-root", metavar="DIR", default="/sys", show_default=True, help="The folder that stands for /sys.")
@click.option(
    "--state-dir",
    metavar="DIR",
    type=_FOLDER,
    default="/var/lib/netdra",
    show_default=True,
    help="What outlives a restart.",
)
@shared.kubelet_root
@shared.nri_socket
@shared.cdi_dir
@click.option(
    "--instance",
    metavar="UID",
    envvar="POD_UID",
    default="",
    help="What tells it from the daemon that it takes over from.",
)
@click.option(
    "--nri-index", metavar="NN", default="10", show_default=True, help="Two digits: its place among the NRI plugins."
)
@click.option(
    "--cni-root",
    metavar="DIR",
    type=_FOLDER,
    default="/",
    show_default=True,
    help="The root of the file system that plugins see.",
)
@shared.cni_path
@click.option(
    "--registry-socket",
    metavar="PATH",
    type=_FOLDER,
    help="Serve the device registry there, e.g. /run/netdra/registry.sock; by default nowhere.",
)
@click.option(
    "--registry-mode", metavar="MODE", default="0660", show_default=True, help="The registry socket's permissions."
)
@click.option("--registry-group", metavar="GROUP", default="", help="The group that the registry's socket belongs to.")
@click.option(
    "--registry-tokens-only", is_flag=True, help="Refuse who registers without a pod's token for dra.networking."
)
@click.option(
    "--registry-provider",
    "registry_providers",
    metavar="NAME=OWNER",
    multiple=True,
    help="Who alone may register as NAME: uid:1000, or system:serviceaccount:NAMESPACE:NAME.",
)
@click.option(
    "--allow-plugin",
    "allow_plugins",
    metavar="TYPE",
    multiple=True,
    help="A CNI plugin that topologies may run, or * for all; by default those with a CNIPluginSchema.",
)
@click.option(
    "--allow-host-path",
    "allow_host_paths",
    metavar="DIR",
    type=_FOLDER,
    multiple=True,
    help="A folder of the node that a plugin's config may name; by default none.",
)
@shared.allow_device_file
@shared.physnet
def command(
    options: daemons.Options,
    node_name: str,
    sysfs_root: str,
    state_dir: Path,
    kubelet_root: Path,
    nri_socket: Path,
    cdi_dir: Path,
    instance: str,
    nri_index: str,
    cni_root: Path,
    cni_path: tuple[Path, ...],
    registry_socket: Path | None,
    registry_mode: str,
    registry_group: str,
    registry_tokens_only: bool,
    registry_providers: tuple[str, ...],
    allow_plugins: tuple[str, ...],
    allow_host_paths: tuple[Path, ...],
    allow_device_files: tuple[str, ...],
    physnets: tuple[str, ...],
) -> None:
    """Be the DRA driver of this machine.

    Its network interfaces are published as devices, as the policies say, and kept current. Claims of its pods are
    prepared for the kubelet, and each pod is given its networks by way of the container runtime before its first
    container is created. What is published stays when the process ends, and so do the pods' networks.
    """
    from netdra.exposure.physnets import read
    from netdra.node.daemon import run as work
    from netdra.node.metrics import NODE
    from netdra.node.settings import Settings

    node = node_name or platform.node().lower()
    if not names.is_subdomain(node):
        raise InvalidInputError(f'--node-name "{node}" is no node name', hint="a node's name is a DNS subdomain")
    if not Path(sysfs_root).is_dir():
        hint = "name the folder that stands for /sys: of this machine /sys, or a recorded tree"
        raise InvalidInputError(f"--sysfs-root {sysfs_root}: no such folder", hint=hint)
    settings = Settings(
        node=node,
        sysfs_root=sysfs_root,
        state_dir=state_dir,
        kubelet_root=kubelet_root,
        nri_socket=nri_socket,
        cdi_dir=cdi_dir,
        instance=instance,
        nri_index=nri_index,
        cni_root=cni_root,
        cni_path=cni_path,
        registry_socket=registry_socket,
        registry_mode=_mode(registry_mode),
        registry_group=registry_group,
        registry_tokens_only=registry_tokens_only,
        registry_providers=dict(map(_provider, registry_providers)),
        allow_plugins=_plugins(allow_plugins),
        allow_host_paths=_folders(allow_host_paths),
        allow_device_files=allow_device_files,
        physnets=read(physnets),
    )
    daemons.run("node", (NODE,), lambda client, process: work(client, process, settings), options)


def _mode(given: str) -> int:
    try:
        mode = int(given, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o777:
        raise click.BadParameter(f"--registry-mode {given!r}: give permissions in octal, e.g. 0660")
    return mode


def _provider(given: str) -> tuple[str, str]:
    name, _, owner = given.partition("=")
    kind, _, number = owner.partition(":")
    if not name or not ((kind == "uid" and number.isdecimal()) or owner.startswith("system:serviceaccount:")):
        raise click.BadParameter(
            f"--registry-provider {given!r}: write NAME=uid:1000 or NAME=system:serviceaccount:NAMESPACE:NAME"
        )
    return name, owner


def _plugins(given: tuple[str, ...]) -> tuple[str, ...]:
    from netdra.topology.step_check import is_plugin_name

    wrong = next((name for name in given if name != "*" and not is_plugin_name(name)), None)
    if wrong is not None:
        raise click.BadParameter(f"{wrong!r} is no CNI plugin's name: give the name of its file, or *")
    return given


def _folders(given: tuple[Path, ...]) -> tuple[Path, ...]:
    wrong = next((folder for folder in given if not folder.is_absolute()), None)
    if wrong is not None:
        raise click.BadParameter(f"--allow-host-path {wrong}: give an absolute path")
    return given
