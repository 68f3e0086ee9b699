"""Options that several commands have, in the same words and with the same defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from netdra.model.errors import InvalidInputError

if TYPE_CHECKING:
    from netdra.neutron.physnets import PhysnetDefault

_FOLDER = click.Path(path_type=Path)


def seconds(_context: click.Context, _option: click.Parameter, given: float) -> float:
    """The value as it is, unless it is NaN, which no range of numbers refuses."""
    if math.isnan(given):
        raise click.BadParameter(f"{given} is no number of seconds.")
    return given


namespace = click.option(
    "--namespace",
    metavar="NAME",
    envvar="NETDRA_NAMESPACE",
    default="netdra",
    show_default=True,
    help="netdra's namespace.",
)

name = click.option(
    "--name",
    metavar="NAME",
    envvar="NETDRA_NAME",
    default="netdra",
    show_default=True,
    help="What netdra's objects are called: the release's name.",
)

kubelet_root = click.option(
    "--kubelet-root",
    metavar="DIR",
    type=_FOLDER,
    default="/var/lib/kubelet",
    show_default=True,
    help="The kubelet's folder.",
)

nri_socket = click.option(
    "--nri-socket",
    metavar="PATH",
    type=_FOLDER,
    default="/var/run/nri/nri.sock",
    show_default=True,
    help="The runtime's NRI.",
)

registry_socket = click.option(
    "--socket",
    metavar="PATH",
    type=_FOLDER,
    envvar="NETDRA_REGISTRY_SOCKET",
    default="/run/netdra/registry.sock",
    show_default=True,
    help="The node's device registry.",
)

registry_token = click.option(
    "--token-file",
    metavar="PATH",
    type=_FOLDER,
    help="A pod's token, projected for the audience dra.networking.",
)


def token(path: Path | None) -> str:
    """A token from its file, "" without one.

    Raises:
        InvalidInputError: the file cannot be read.
    """
    try:
        return path.read_text().strip() if path is not None else ""
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidInputError(f"--token-file {path}: {problem}", hint="name the file of a projected token") from None


physnet = click.option(
    "--physnet",
    "physnets",
    metavar="PHYSNET=NIC,...",
    multiple=True,
    help="NICs that are wired to a physical network, by name or PCI address; may be given several times.",
)


def _device_files(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    if not given:
        return given
    from netdra.kernel.device_files import glob_error

    for glob in given:
        if wrong := glob_error(glob):
            raise click.BadParameter(f"{glob!r} {wrong}: write it as /dev/fpga*")
    return given


allow_device_file = click.option(
    "--allow-device-file",
    "allow_device_files",
    metavar="GLOB",
    multiple=True,
    callback=_device_files,
    help="Device files that providers may register and pods be given, e.g. /dev/fpga*; by default none.",
)

cdi_dir = click.option(
    "--cdi-dir",
    metavar="DIR",
    type=_FOLDER,
    default="/var/run/cdi",
    show_default=True,
    help="Where CDI files are written.",
)

cni_path = click.option(
    "--cni-path",
    metavar="DIR",
    type=_FOLDER,
    multiple=True,
    default=["/opt/cni/bin"],
    show_default=True,
    help="CNI plugins' folders.",
)

neutron_clouds = click.option(
    "--neutron-clouds",
    metavar="FILE",
    type=_FOLDER,
    help="A clouds.yaml: who logs in to the cloud whose Neutron has ports for VFs; without it, none is asked.",
)

neutron_cloud = click.option(
    "--neutron-cloud", metavar="NAME", default="", help="Which cloud of the file; the only one without the option."
)

neutron_physnets = click.option(
    "--neutron-physnets",
    metavar="FILE",
    type=_FOLDER,
    help="The networks that VFs get ports of where their topology names none: 'physnet2: {network: blue}'.",
)


def neutron_defaults(clouds: Path | None, cloud: str, physnets: Path | None) -> Mapping[str, PhysnetDefault]:
    """Check the options of a cloud as far as that is possible now: clouds.yaml is read again at each login.

    Returns:
        By physical network, the network of ports whose step names none.

    Raises:
        click.UsageError: an option makes no sense without another one.
        CloudsError: a file cannot be used.
    """
    if clouds is None:
        if cloud or physnets is not None:
            raise click.UsageError("--neutron-cloud and --neutron-physnets need --neutron-clouds: name a clouds.yaml")
        return {}
    from netdra.neutron import clouds as files
    from netdra.neutron import physnets as defaults

    files.read(clouds, cloud)
    return defaults.read(physnets) if physnets is not None else {}
