"""`netdra console`: a read-only web page of the cluster, on loopback."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from netdra.cli import daemons, shared
from netdra.model.errors import InvalidInputError

if TYPE_CHECKING:
    from netdra.console.access import SignOn

LOOPBACK = "127.0.0.1"
MIN_PASSWORD = 20


@click.command(name="console")
@daemons.cluster_options
@shared.option(
    "--port", "PORT", "The port on 127.0.0.1; by default a free one.", type=click.IntRange(0, 65535), default=0
)
@shared.option(
    "--only-namespace",
    "NAME",
    "Read pods, claims and events of this namespace alone; may be given several times.",
    "namespaces",
    multiple=True,
)
@shared.option(
    "--sign-on-password-file",
    "FILE",
    "The password by which a proxy that signs users on proves itself; pages are read with the rights of its users.",
    "password",
    type=shared.PATH,
)
@shared.namespace
@shared.option(
    "--metrics-port",
    "PORT",
    "The drivers' port for metrics, from which the traffic of pods is read.",
    type=shared.PORT,
    default=8490,
)
@shared.option("--sign-on-origin", "URL", "Where browsers open the proxy, e.g. https://console.example.com.", "origin")
def command(
    options: daemons.Options,
    port: int,
    namespaces: tuple[str, ...],
    password: Path | None,
    namespace: str,
    metrics_port: int,
    origin: str | None,
) -> None:
    """Serve a web page that shows nodes and their devices, networks of pods, and why something does not work.

    The page listens on 127.0.0.1 alone. The URL on stdout opens one session: its token is valid once, and the next URL
    is printed when it is used. In a cluster, reach the page with kubectl port-forward. The cluster is read with your
    rights, or with the pod's service account; nothing is written. Ctrl-C ends it.

    With --sign-on-password-file, no URL opens a session: a proxy in the same pod signs users on, and this account
    impersonates them.
    """
    from netdra.console.live_cluster import run
    from netdra.console.traffic import DriverPlace

    drivers = DriverPlace(namespace, metrics_port)
    sign_on = _sign_on(password, origin)
    daemons.run(
        "console",
        (),
        lambda client, process: run(client, process, (LOOPBACK, port), _announce, namespaces, sign_on, drivers),
        options,
    )


def _sign_on(path: Path | None, origin: str | None) -> SignOn | None:
    """The proxy that signs users on.

    Raises:
        click.UsageError: one of the options is missing.
        InvalidInputError: the file or the URL cannot be used.
    """
    from netdra.console.access import SignOn

    if path is None and origin is None:
        return None
    if path is None or origin is None:
        raise click.UsageError("specify --sign-on-password-file and --sign-on-origin together")
    if not re.match(r"https?://[a-z0-9.:\[\]-]+\Z", origin):
        what = f'--sign-on-origin "{origin}" is not the scheme and the host of a URL'
        raise InvalidInputError(what, hint="e.g. https://console.example.com", code="ND4009")
    try:
        password = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidInputError(f"{path}: {problem}", code="ND4010") from None
    if len(password) < MIN_PASSWORD:
        what = f"{path}: the password has {len(password)} characters; {MIN_PASSWORD} are required"
        raise InvalidInputError(what, hint="generate it: openssl rand -hex 32", code="ND4011")
    return SignOn(password, origin)


def _announce(port: int, token: str) -> None:
    """Print the URL that opens a session, or where the proxy finds the console."""
    click.echo(f"http://{LOOPBACK}:{port}" + (f"/enter?token={token}" if token else ""))
    sys.stdout.flush()
