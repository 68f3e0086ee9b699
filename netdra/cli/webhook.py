"""`netdra webhook`: the validating webhook, as a process of the cluster."""

from __future__ import annotations

import socket
from pathlib import Path

import click

from netdra.cli import daemons, shared
from netdra.cli.shared import option


@click.command(name="webhook")
@daemons.cluster_options
@option("--address", "ADDRESS", "The address to listen on.", default="0.0.0.0")  # noqa: S104
@option("--port", "PORT", "The port to listen on.", type=shared.PORT, default=8443)
@shared.namespace
@shared.name
@option("--service", "NAME", "The Service that the API server calls; by default NAME-webhook.")
@option("--host", "NAME", "An additional name or address for the certificate.", "hosts", multiple=True)
@option("--secret", "NAME", "The Secret of the certificate; by default NAME-webhook.")
@option(
    "--certificates",
    "DIR",
    "A directory with tls.crt and tls.key, read again when they change; without it, netdra creates a certificate.",
    type=click.Path(path_type=Path, file_okay=False),
)
@option(
    "--client-ca",
    "FILE",
    "Accept only clients with a certificate of this CA.",
    type=click.Path(path_type=Path, dir_okay=False),
)
@option(
    "--client-name",
    "NAME",
    "A common name of client certificates to accept; by default any.",
    "client_names",
    multiple=True,
)
def command(
    options: daemons.Options,
    address: str,
    port: int,
    namespace: str,
    name: str,
    service: str | None,
    hosts: tuple[str, ...],
    secret: str | None,
    certificates: Path | None,
    client_ca: Path | None,
    client_names: tuple[str, ...],
) -> None:
    """Run the admission webhook: reject invalid topologies, policies, schemas, custom devices and claims.

    It serves AdmissionReviews at /validate, and /healthz and /readyz, over HTTPS. A certificate that netdra creates is
    renewed after two thirds of its 90 days, and written to the webhook configurations.
    """
    from netdra.admission.daemon import WebhookSettings
    from netdra.admission.daemon import run as serve
    from netdra.admission.keeper import configurations
    from netdra.admission.metrics import WEBHOOK
    from netdra.admission.serving import Clients

    if client_names and client_ca is None:
        raise click.UsageError("--client-name restricts certificates of --client-ca; set --client-ca, too")
    hint = "use an address of this machine, or 0.0.0.0 for all"
    with daemons.listening("--address", address, hint):
        socket.getaddrinfo(address or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    service, secret = service or f"{name}-webhook", secret or f"{name}-webhook"
    names = (f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local", *hosts)
    clients = Clients(client_ca, frozenset(client_names))
    settings = WebhookSettings(address, port, names, certificates, clients, namespace, secret, configurations(name))
    daemons.run("webhook", (WEBHOOK,), lambda client, process: serve(client, process, settings), options)
