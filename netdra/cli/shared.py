"""Options that several commands have, in the same words and with the same defaults."""

from __future__ import annotations

from pathlib import Path

import click

from netdra.model.errors import InvalidInputError

_FOLDER = click.Path(path_type=Path)

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
