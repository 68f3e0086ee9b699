"""The controller's process: take part in the election, work while it leads, and say whether it is well.

Called by `netdra controller`, which gives it an API client.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass

from netdra.controller.controller import Controller
from netdra.kube.client import Client
from netdra.kube.events import Recorder
from netdra.kube.health import reachable, synced
from netdra.kube.leader import Election, Terms
from netdra.model import names
from netdra.ops.health import Check, Finding
from netdra.ops.process import Process

log = logging.getLogger(__name__)

LEASE = "netdra-controller"
REPORTER = f"{names.DRIVER}/controller"
FLUSH_SECONDS = 2.0


@dataclass(frozen=True)
class Settings:
    """Which controller this is.

    Attributes:
        namespace: where the lease is.
        identity: this process; no other may have it.
    """

    namespace: str
    identity: str


async def run(client: Client, process: Process, settings: Settings, terms: Terms | None = None) -> None:
    """Work whenever this process leads, until cancelled."""
    election = Election(client, settings.namespace, LEASE, settings.identity, terms or Terms())
    process.health.ready("leadership", election.check)
    process.health.ready("api-server", reachable(client))
    process.health.ready("caches", _caches(client, election))
    recorder = Recorder(client, REPORTER, settings.identity)
    telling = asyncio.create_task(recorder.run())
    try:
        await election.run(lambda: Controller(client, recorder, process.in_hand).run())
    finally:
        # After the work has ended, for what it did last is to be told too.
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await recorder.flush()
        telling.cancel()


def _caches(client: Client, election: Election) -> Check:
    """The copies of whoever leads; the others keep none."""
    copies = synced(client)
    return lambda: copies() if election.leads else Finding(ok=True, detail="none, it does not lead")
