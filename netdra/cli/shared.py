"""Options that several commands have, in the same words and with the same defaults."""

from __future__ import annotations

from pathlib import Path

import click

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
