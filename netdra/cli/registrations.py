"""`netdra registrations`: the providers' registrations of this node's devices, and their outcomes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from netdra.cli import shared, terminal

_COLUMNS = ("PROVIDER", "DEVICE", "SAYS", "BY", "FOR", "PUBLISHED ON")


@click.command(name="registrations")
@click.option("--provider", metavar="NAME", default="", help="Print only registrations of this provider.")
@shared.output("table", "json")
@shared.registry_socket
@shared.registry_token
def command(provider: str, output: str, socket: Path, token_file: Path | None) -> None:
    """Print the registrations of this node's devices: from its device registry, and from CustomDevices."""
    from google.protobuf.json_format import MessageToDict

    from netdra.registry_client import RegistryClient

    with RegistryClient(provider, str(socket), shared.token(token_file)) as client:
        listed = [MessageToDict(registration) for registration in client.registrations()]
    if output == "json":
        click.echo(json.dumps(listed, indent=2))
    else:
        terminal.print_table(_COLUMNS, map(_row, listed))


def _row(registration: Mapping[str, Any]) -> tuple[str, ...]:
    facts = [
        f"{name}={next(iter(value.values()), '')}" for name, value in sorted(registration.get("attributes", {}).items())
    ]
    facts += [f"{name}={value.get('value', '')}" for name, value in sorted(registration.get("capacity", {}).items())]
    outcomes = [
        f"{outcome['device']}: {outcome['problem']}" if outcome.get("problem") else outcome["device"]
        for outcome in registration.get("outcomes", ())
    ]
    return (
        registration.get("provider", ""),
        registration.get("device", ""),
        ", ".join((*_added(registration), *facts)),
        f'CustomDevice "{registration["customDevice"]}"'
        if "customDevice" in registration
        else registration.get("owner", ""),
        f"{registration['ttlSeconds']}s" if "ttlSeconds" in registration else "",
        "; ".join(outcomes) or registration.get("deviceFileProblem", "") or "device not found yet",
    )


def _added(registration: Mapping[str, Any]) -> tuple[str, ...]:
    file = registration.get("deviceFile", "")
    return (f"the file {file}" if file else "a device",) if registration.get("adds") else ()
