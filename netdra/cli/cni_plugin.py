"""`netdra cni-plugin`: install one CNI plugin on this node, keep it there, remove it. Run by the plugin's DaemonSet."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import click

from netdra.cli import terminal
from netdra.cli.shared import PATH, option
from netdra.model.errors import InvalidInputError


@click.group(name="cni-plugin")
def command() -> None:
    """Manage the binaries of CNI plugins on this node."""


def _checked(_context: click.Context, _option: click.Parameter, given: str) -> str:
    plain = given.removeprefix("sha256:")
    if plain and not (len(plain) == 64 and set(plain) <= set("0123456789abcdef")):
        raise InvalidInputError(
            f"{given!r} is not a SHA-256 checksum",
            hint="use 64 hexadecimal digits, as printed by sha256sum",
            code="ND4008",
        )
    return plain


_folder = option(
    "--cni-folder", "DIR", "The directory of CNI plugins on the node.", "folder", type=PATH, default="/opt/cni/bin"
)
_source = option("--source", "FILE", "The binary to install.", type=PATH, required=True)
_digest = option(
    "--digest",
    "SHA256",
    "The required SHA-256 checksum of the binary; not checked if omitted.",
    default="",
    callback=_checked,
)
_ready = option("--ready", "FILE", "A file that exists while the plugin is installed.", type=PATH)


@command.command(name="install", short_help="Install a plugin, and keep it installed.")
@click.argument("name")
@_source
@_digest
@_folder
@_ready
@click.option("--once", is_flag=True, help="Exit after the installation.")
def run_install(name: str, source: Path, digest: str, folder: Path, ready: Path | None, once: bool) -> None:
    """Install a binary as the CNI plugin NAME, and install it again if it is deleted, until SIGTERM.

    Installed binaries are recorded by their SHA-256 in .netdra below --cni-folder. An existing file of this name that
    is not recorded is not replaced. A binary that does not answer VERSION is not installed, and the former one remains.
    """
    from netdra.node.installer import PluginInstallation, PluginKeeper

    stop = _watch_for_stop()
    keeper = PluginKeeper(PluginInstallation(source=source, folder=folder, name=name, digest=digest), ready)
    keeper.check()
    terminal.tell(f'CNI plugin "{name}": installed in {folder}, sha256 {keeper.digest}')
    if not once:
        keeper.run(stop)


@command.command(name="remove", short_help="Remove a plugin that netdra installed.")
@click.argument("name")
@_folder
@_ready
@click.option("--stay", is_flag=True, help="Do not exit before SIGTERM.")
def run_remove(name: str, folder: Path, ready: Path | None, stay: bool) -> None:
    """Remove the CNI plugin NAME if netdra installed it; a file from another source remains."""
    from netdra.node.installer import remove

    stop = _watch_for_stop()
    removed = remove(folder, name)
    terminal.tell(f'CNI plugin "{name}": {"removed from" if removed else "nothing of netdra in"} {folder}')
    if ready is not None:
        ready.write_text("")
    if stay:
        poll = select.poll()
        poll.register(stop, select.POLLIN)
        poll.poll()


@command.command(name="describe", short_help="Describe a binary.")
@click.argument("name")
@_source
@_digest
@option(
    "--schema",
    "FILE",
    "The CNIPluginSchema of the plugin; by default schema.yaml beside the binary, if it exists.",
    "schema_path",
    type=PATH,
)
@option("--report", "FILE", "The file for the packed schema, for a container's termination message.", type=PATH)
def run_describe(name: str, source: Path, digest: str, schema_path: Path | None, report: Path | None) -> None:
    """Print the SHA-256, the versions of CNI and the CNIPluginSchema of the binary of the CNI plugin NAME."""
    from netdra.node.installer import PluginInstallation, describe

    wanted = PluginInstallation(source=source, folder=source.parent, name=name, digest=digest)
    described = describe(wanted, schema_path)
    terminal.print_data(described, "json")
    if report is not None:
        report.write_text(described.as_text())


def _watch_for_stop() -> int:
    """A descriptor that is readable after SIGTERM or SIGINT."""
    stop, end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(end)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    return stop
