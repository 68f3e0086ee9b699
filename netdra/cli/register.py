"""`netdra register`: state something of a device to the device registry of this node, or take it back."""

from __future__ import annotations

import re
from pathlib import Path

import click

from netdra.cli import shared
from netdra.model.errors import InvalidInputError

_NUMBER = re.compile(r"-?\d+\Z")


@click.command(name="register")
@click.argument("device", required=False, default="")
@click.option("--provider", metavar="NAME", required=True, help="The provider: the domain of the names, e.g. bctl.")
@click.option(
    "--attribute",
    "attributes",
    metavar="NAME=VALUE",
    multiple=True,
    help='true and false are booleans, digits an integer, everything else text; "x" in quotes is text, too.',
)
@click.option("--capacity", "amounts", metavar="NAME=QUANTITY", multiple=True, help="E.g. bandwidth=4096.")
@click.option(
    "--ttl",
    metavar="TIME",
    default="5m",
    show_default=True,
    help="The lifetime of the registration: 90s, 10m, 12h, 7d.",
)
@click.option(
    "--add", is_flag=True, help="DEVICE is an interface that is not listed otherwise: register it as a new device."
)
@click.option(
    "--file", "file", metavar="PATH", default="", help="With --add: the device is this file, and DEVICE is its name."
)
@click.option(
    "--remove", is_flag=True, help="Remove the registration of DEVICE, or of all devices if DEVICE is omitted."
)
@shared.registry_socket
@shared.registry_token
def command(
    device: str,
    provider: str,
    attributes: tuple[str, ...],
    amounts: tuple[str, ...],
    ttl: str,
    add: bool,
    file: str,
    remove: bool,
    socket: Path,
    token_file: Path | None,
) -> None:
    """Register attributes of DEVICE, a device or an interface of this node, for publication as PROVIDER/NAME.

    The registration is valid for the time of --ttl, also after a restart of the node. A later registration replaces it.
    """
    from netdra.registry_client import RegistryClient

    texts = dict(_pair("--attribute", attribute) for attribute in attributes)
    capacity = dict(_pair("--capacity", amount) for amount in amounts)
    if remove and (texts or capacity or add or file):
        raise click.UsageError(
            "--remove removes all attributes; it cannot be combined with --attribute, --capacity, --add or --file"
        )
    if file and not add:
        raise click.UsageError("--file registers a new device; it requires --add")
    if not device and not remove:
        raise click.UsageError("Missing argument 'DEVICE'.")
    with RegistryClient(provider, str(socket), shared.token(token_file)) as client:
        if remove:
            message = client.deregister(device)
        else:
            values = {name: _value(text) for name, text in texts.items()}
            message = client.register(device, values, capacity, ttl=shared.duration("--ttl", ttl), adds=add, file=file)
    if message:
        click.echo(message, err=True)


def _pair(option: str, given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals or not name:
        raise InvalidInputError(f'{option} "{given}" is not valid', hint="use NAME=VALUE", code="ND4043")
    return name, value


def _value(text: str) -> bool | int | str:
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.match(text):
        number = int(text)
        if not -(2**63) <= number < 2**63:
            raise InvalidInputError(
                f"{text} is not a 64-bit integer", hint="put it into quotes to use it as text", code="ND4044"
            )
        return number
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
