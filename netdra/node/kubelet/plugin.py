"""The kubelet plugin as one thing that is started and stopped: the DRA and health services first, then registration.

Called by the node daemon. Stopping takes the registration away first, so that the kubelet brings no new claims, and
then lets those end that have begun.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from netdra.model.errors import PermanentError
from netdra.node.kubelet.handler import ClaimHandler
from netdra.node.kubelet.health import VERSIONS as HEALTH_VERSIONS
from netdra.node.kubelet.health import HealthService, HealthSource
from netdra.node.kubelet.registration import Registration
from netdra.node.kubelet.server import Methods, Server
from netdra.node.kubelet.services import ClaimServices
from netdra.node.kubelet.sockets import Sockets, taking

log = logging.getLogger(__name__)

GRACE_SECONDS = 10.0


@asynccontextmanager
async def serving(
    wanted: Sockets, handler: ClaimHandler, health: HealthSource | None = None, *, grace: float = GRACE_SECONDS
) -> AsyncIterator[Registration]:
    """Serve the kubelet while the context is open.

    Args:
        wanted: the sockets.
        handler: who prepares claims.
        health: who knows the devices' health; without one the kubelet is offered no such service.
        grace: seconds that calls have to end when the context is left.

    Yields:
        What the kubelet says of the registration, for readiness.

    Raises:
        NetdraError: the sockets cannot be made.
    """
    claims = ClaimServices(handler)
    told = HealthService(health) if health is not None else None
    versions = (*claims.versions, *(HEALTH_VERSIONS if told is not None else ()))
    registration = Registration(str(wanted.dra), versions)
    methods = {**claims.methods(), **(told.methods() if told is not None else {})}
    with taking(wanted):
        dra = await _started(wanted.dra, methods)
        try:
            registrar = await _started(wanted.registration, registration.methods())
        except BaseException:
            await dra.stop(0)
            raise
    log.info("serving the kubelet on %s", wanted.dra)
    try:
        yield registration
    finally:
        # The kubelet takes the socket's removal for the end of the registration.
        wanted.registration.unlink(missing_ok=True)
        await registrar.stop(0)
        if told is not None:
            told.close()
        await dra.stop(grace)
        wanted.dra.unlink(missing_ok=True)
        log.info("no longer serving the kubelet")


async def _started(path: Path, methods: Methods) -> Server:
    server = Server(methods)
    try:
        await server.start(path)
    except OSError as problem:
        raise PermanentError(
            f"{path} cannot be served: {problem.strerror or problem}", hint="is its folder writable?"
        ) from None
    return server
