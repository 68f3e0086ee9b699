"""The webhook's process: the copy, the workers, the certificate and the server, started together and ended together.

Called by `netdra webhook`, which gives it an API client.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

from netdra.admission import serving
from netdra.admission.copy import Copy
from netdra.admission.keeper import Keeper
from netdra.admission.server import Webhook
from netdra.admission.serving import Mounted
from netdra.admission.workers import Workers
from netdra.kube.client import Client
from netdra.ops.health import met
from netdra.ops.process import Process, spare_what_is_loaded

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WebhookSettings:
    """How the webhook serves.

    Attributes:
        address, port: where to listen.
        hosts: the names by which the API server calls it.
        folder: a mounted certificate; without it netdra makes one.
        clients: the clients that may ask.
        namespace, secret: where the certificate that netdra makes is stored.
        configurations: the webhook configurations that are to trust that certificate.
    """

    address: str
    port: int
    hosts: tuple[str, ...]
    folder: Path | None = None
    clients: serving.Clients = serving.ANYBODY
    namespace: str = "netdra"
    secret: str = "netdra-webhook"  # noqa: S105 (the name of the Secret)
    configurations: tuple[str, ...] = ("netdra", "netdra-claims")


async def run(client: Client, process: Process, settings: WebhookSettings) -> None:
    """Serve until cancelled.

    Raises:
        InvalidInputError: the mounted certificate or the authority of clients cannot be used.
        OSError: the address cannot be listened on.
    """
    tls = serving.context(settings.clients)
    keeper: Keeper | Mounted
    if settings.folder is not None:
        keeper = Mounted(settings.folder, tls, client.now)
        keeper.load()
    else:
        keeper = Keeper(client, settings.namespace, settings.secret, settings.hosts, settings.configurations, tls)
    copy = Copy(client)
    process.health.ready("caches", met(lambda: copy.synced, "the cache of the cluster's objects is not complete"))
    process.health.ready("certificate", lambda: keeper.check(client.now()))
    async with Workers() as workers:
        server = Webhook(copy, workers, process, settings.clients)
        async with server.serving(settings.address, settings.port, tls):
            log.info("listening on %s port %d", settings.address, settings.port)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(copy.run())
                tasks.create_task(keeper.run())
                await copy.wait_synced()
                spare_what_is_loaded()
