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
from netdra.kube.leader import Election, Terms
from netdra.model import names

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


async def run(client: Client, settings: Settings, terms: Terms | None = None) -> None:
    """Work whenever this process leads, until cancelled."""
    election = Election(client, settings.namespace, LEASE, settings.identity, terms or Terms())
    recorder = Recorder(client, REPORTER, settings.identity)
    telling = asyncio.create_task(recorder.run())
    try:
        await election.run(lambda: Controller(client, recorder).run())
    finally:
        telling.cancel()
        # Not before the work has ended: what it did last is to be told too.
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await recorder.flush()
