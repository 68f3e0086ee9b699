"""`netdra capture`: this machine's interfaces in one JSON file, for `--inventory` elsewhere or for a bug report."""

from __future__ import annotations

from pathlib import Path

import click

from netdra.cli import inputs, shared
from netdra.cli.discover import report
from netdra.discovery.capture import anonymize, to_text
from netdra.discovery.scan import scan, scan_recorded
from netdra.model.errors import InvalidInputError
from netdra.model.inventory import InventoryNode


@click.command(name="capture")
@click.argument("file", metavar="FILE|-")
@click.option(
    "--anonymize", "anonymous", is_flag=True, help="Replace addresses, names, labels and aliases by made-up ones."
)
@shared.sysfs
@shared.option(
    "--node",
    "NAME",
    "The node's name in Kubernetes; by default this machine's host name, or \"recorded\" with --sysfs.",
    "node_name",
)
@inputs.uplink_option
@inputs.host_use_option
def command(
    file: str,
    anonymous: bool,
    root: str | None,
    node_name: str | None,
    uplinks: tuple[str, ...],
    used: tuple[str, ...],
) -> None:
    """Write the inventory of all network interfaces to FILE ("-" is standard output).

    With --anonymize, the file contains made-up MAC and IP addresses, aliases, labels, node name, and names of
    interfaces other than those of the kernel and systemd. Equal values remain equal, and relations are kept. PCI
    addresses, IDs, drivers and numbers are not changed.
    """
    if node_name is not None:
        inputs.check_node(node_name)
    node = None if node_name is None else InventoryNode(name=node_name)
    inventory = inputs.with_uses(scan(node) if root is None else scan_recorded(root, node), uplinks, used)
    if anonymous:
        inventory = anonymize(inventory)
    report(inventory)
    text = to_text(inventory)
    if file == "-":
        click.echo(text, nl=False)
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as problem:
        hint = 'the directory of FILE must exist; "-" is standard output'
        raise InvalidInputError(f"{file}: {problem.strerror}", hint=hint, code="ND4002") from None
