"""`netdra console`: a read-only web page of the cluster, on loopback."""

from __future__ import annotations

import sys

import click

from netdra.cli import daemons, shared

LOOPBACK = "127.0.0.1"


@click.command(name="console")
@daemons.cluster_options
@shared.option(
    "--port", "PORT", "The port on 127.0.0.1; by default a free one.", type=click.IntRange(0, 65535), default=0
)
def command(options: daemons.Options, port: int) -> None:
    """Serve a web page that shows nodes and their devices, networks of pods, and why something does not work.

    The page listens on 127.0.0.1 alone. The URL on stdout opens one session: its token is valid once, and the next URL
    is printed when it is used. In a cluster, reach the page with kubectl port-forward. The cluster is read with your
    rights, or with the pod's service account; nothing is written. Ctrl-C ends it.
    """
    from netdra.cli.console_source import run

    daemons.run("console", (), lambda client, process: run(client, process, (LOOPBACK, port), _announce), options)


def _announce(port: int, token: str) -> None:
    """Print the URL that opens a session."""
    click.echo(f"http://{LOOPBACK}:{port}/enter?token={token}")
    sys.stdout.flush()
