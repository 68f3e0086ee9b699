"""`netdra registrations`: what is said of this node's devices, by whom, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from netdra.cli import shared, terminal

_COLUMNS = ("PROVIDER", "DEVICE", "SAYS", "BY", "FOR", "PUBLISHED ON")


@click.command(name="registrations")
@click.option("--provider", metavar="NAME", default="", help="Of one provider alone.")
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table", show_default=True)
@shared.registry_socket
@shared.registry_token
def command(provider: str, output: str, socket: Path, token_file: Path | None) -> None:
    """Print what providers say of this node's devices: by its device registry, and by CustomDevices."""
    from google.protobuf.json_format import MessageToDict

    from netdra.registry_client import RegistryClient

    with RegistryClient(provider, str(socket), shared.token(token_file)) as client:
        found = [MessageToDict(each) for each in client.registrations()]
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        terminal.print_table(_COLUMNS, map(_row, found))


def _row(found: Mapping[str, Any]) -> tuple[str, ...]:
    said = [f"{name}={next(iter(value.values()), '')}" for name, value in sorted(found.get("attributes", {}).items())]
    said += [f"{name}={value.get('value', '')}" for name, value in sorted(found.get("capacity", {}).items())]
    outcomes = [
        f"{each['device']}: {each['problem']}" if each.get("problem") else each["device"]
        for each in found.get("outcomes", ())
    ]
    return (
        found.get("provider", ""),
        found.get("device", ""),
        ", ".join((*(["a device"] if found.get("adds") else []), *said)),
        f'CustomDevice "{found["customDevice"]}"' if "customDevice" in found else found.get("owner", ""),
        f"{found['ttlSeconds']}s" if "ttlSeconds" in found else "",
        "; ".join(outcomes) or "no such device yet",
    )
