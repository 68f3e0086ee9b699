"""The controller's process: take part in the election, work while it leads, and say whether it is well.

Called by `netdra controller`, which gives it an API client.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from netdra.controller.controller import Controller
from netdra.kube.client import Client
from netdra.kube.leader import Election, Terms

log = logging.getLogger(__name__)

LEASE = "netdra-controller"


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
    await election.run(lambda: Controller(client).run())
