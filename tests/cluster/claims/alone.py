"""A handler of claims without the rest of the daemon: it does not watch pods, and earlier pods have left nothing."""

from __future__ import annotations

from collections.abc import Collection

from netdra.kube.client import Client
from netdra.model.claim import ResourceClaim
from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.handler import Claims
from netdra.node.claims.store import ClaimStore, PodUser
from netdra.node.permits import EVERYTHING
from netdra.node.priority import PriorityGate, Turns
from netdra.node.view import NodeView, SandboxHolder


class Unwatched:
    """A node whose watch has brought no pod."""

    def users(self, claim: ResourceClaim) -> tuple[PodUser, ...]:
        return ()

    async def just_read(self, wanted: ClaimReference) -> ResourceClaim | None:
        return None


async def unexamined(devices: Collection[PlannedDevice]) -> None:
    """Wait for no search: none of the devices was in a pod."""


def handler(
    client: Client,
    node: str,
    view: NodeView,
    holder: SandboxHolder,
    store: ClaimStore,
    files: ClaimFiles,
    turns: Turns | None = None,
) -> Claims:
    """The claims of a node that allows everything."""
    turns = turns or Turns(PriorityGate())
    return Claims(client, node, view, holder, store, files, Unwatched(), EVERYTHING, turns, unexamined)
