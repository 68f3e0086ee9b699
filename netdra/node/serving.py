"""The kubelet's services as a part of the daemon: served whenever they can be, and tried again when they cannot.

Run by `netdra.node.daemon`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

from netdra.kube.backoff import Backoff
from netdra.model.errors import TemporaryError
from netdra.model.plan import ClaimReference
from netdra.node import metrics
from netdra.node.kubelet.handler import ClaimHandler, PreparedDevice
from netdra.node.kubelet.health import DeviceHealth
from netdra.node.kubelet.plugin import serving
from netdra.node.kubelet.registration import Registration
from netdra.node.kubelet.sockets import Sockets
from netdra.node.publishing.service import Publishing
from netdra.ops.logs import about
from netdra.ops.metrics import measured

log = logging.getLogger(__name__)


class KubeletService:
    """Serves the kubelet.

    Attributes:
        problem: why the kubelet has not registered the driver, "" while it has.
    """

    def __init__(self, wanted: Sockets, claims: ClaimHandler, publishing: Publishing) -> None:
        self._wanted, self._handler, self._publishing = wanted, _Noted(claims, publishing), publishing
        self._registration: Registration | None = None
        self._trouble = ""

    @property
    def registered(self) -> bool:
        """Whether the kubelet has the driver registered."""
        return self._registration is not None and self._registration.registered

    @property
    def problem(self) -> str:
        """Why it has not, for people; "" while it has."""
        if self.registered:
            return ""
        said = self._registration.problem if self._registration is not None else self._trouble
        return said or "the kubelet has not registered the driver yet"

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            PermanentError: the sockets can never be made here.
        """
        backoff = Backoff()
        while True:
            try:
                async with serving(self._wanted, self._handler, self._health) as self._registration:
                    await asyncio.Event().wait()
            except TemporaryError as problem:
                self._trouble = problem.what
                log.warning("%s", problem)
            finally:
                self._registration = None
            await asyncio.sleep(backoff.next())

    async def _health(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        """All devices as the kubelet is told of them; one that is no longer published is told as gone, once."""
        known: dict[tuple[str, str], DeviceHealth] = {}
        async for changes in self._publishing.health.changes():
            for each in changes:
                known[each.pool, each.device] = DeviceHealth(
                    pool=each.pool,
                    device=each.device,
                    state="healthy" if each.healthy else "unhealthy",
                    message=each.message,
                )
            yield tuple(known.values())
            known = {key: each for key, each in known.items() if key in self._publishing.devices}


class _Noted:
    """A handler whose claims are measured, and whose devices the publishing half learns of at once."""

    def __init__(self, claims: ClaimHandler, publishing: Publishing) -> None:
        self._claims, self._publishing = claims, publishing

    async def prepare(self, claim: ClaimReference) -> tuple[PreparedDevice, ...]:
        with about(claim=_named(claim)), measured(metrics.PREPARE_SECONDS):
            prepared = await self._claims.prepare(claim)
        self._publishing.look_again()
        return prepared

    async def unprepare(self, claim: ClaimReference) -> None:
        with about(claim=_named(claim)), measured(metrics.UNPREPARE_SECONDS):
            await self._claims.unprepare(claim)
        self._publishing.look_again()


def _named(claim: ClaimReference) -> str:
    return f"{claim.namespace}/{claim.name}"
