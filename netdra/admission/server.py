"""The webhook's HTTP side: AdmissionReviews in, verdicts out, and its health.

Run by `netdra.admission.daemon`. Claims are reviewed at once in this process, because every pod may bring some, and so
are classes, which have no expressions to compile; the other kinds, which only administrators write, go to the workers.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from traceback import clear_frames
from typing import NamedTuple

import msgspec
from aiohttp import web
from aiohttp.http import HttpProcessingError
from msgspec.structs import replace

from netdra.admission import claims, messages, metrics
from netdra.admission.cluster import NOTHING, narrowed
from netdra.admission.copy import Copy
from netdra.admission.door import Door
from netdra.admission.messages import ALLOWED, AdmissionRequest, Verdict
from netdra.admission.review import CLAIMS, CLASS, POLICY, is_reshaped, policies_of, review
from netdra.admission.serving import Clients
from netdra.admission.workers import Workers
from netdra.kube.errors import ApiError
from netdra.model.custom_device import CustomDevice
from netdra.model.errors import UNREADABLE
from netdra.model.topology import NetworkTopology
from netdra.ops.metrics import Values, measured
from netdra.ops.process import Process
from netdra.ops.server import PROBES, probed

log = logging.getLogger(__name__)

PATH = "/validate"
MAX_BODY = 8 * 1024 * 1024
"""An object as it is and as it will be; the API server takes requests of up to 3 MiB."""
GRACE_SECONDS = 10.0
NO_CERTIFICATE = "who asks must show the API server's client certificate (--client-ca)"

# The API server asks about few kinds; other clients could name any.
_KINDS, _OPERATIONS = Values(16), Values(4)


class Asker(NamedTuple):
    """A client that asks: its address, and whether its certificate is the API server's."""

    address: str
    trusted: bool


ASKER = web.RequestKey("asker", Asker)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers requests."""

    def __init__(self, copy: Copy, workers: Workers, process: Process, clients: Clients) -> None:
        self._copy = copy
        self._workers = workers
        self._process = process
        self._clients = clients

    async def start(self, address: str, port: int, tls: ssl.SSLContext) -> web.AppRunner:
        """Listen; the caller must clean the runner up.

        Raises:
            OSError: the address cannot be listened on.
        """

        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._guarded(request, handler)

        app = web.Application(client_max_size=MAX_BODY, middlewares=[guarded])
        app.router.add_post(PATH, self._validate)
        for path in PROBES:
            app.router.add_get(path, self._probed)
        runner = web.AppRunner(app, access_log=None, logger=_of_aiohttp(), shutdown_timeout=GRACE_SECONDS)
        await runner.setup()
        self._door = Door(runner, address, port, tls, self._clients.names)
        try:
            await self._door.start()
        except OSError:
            await runner.cleanup()
            raise
        return runner

    async def verdict(self, request: AdmissionRequest, asker: Asker) -> Verdict:
        """The verdict on one request."""
        if request.kind.kind in CLAIMS:
            return await self._of_claim(request)
        cluster = self._copy.cluster
        if request.kind.kind == CLASS:
            return review(request, cluster)
        if request.kind.kind == NetworkTopology.__name__ and is_reshaped(request):
            try:
                cluster = await self._copy.with_users(request.name)
            except ApiError as problem:
                what = f'NetworkTopology "{request.name}": its users are unknown; try again: {problem}'
                return Verdict((what,))
            if not asker.trusted:  # a client that only reaches the port must not learn the claims' names
                cluster = replace(cluster, users=tuple("" for _ in cluster.users))
        if request.kind.kind == POLICY:
            if request.operation not in {"CREATE", "UPDATE", "DELETE"}:
                return ALLOWED
            _, new = policies_of(request)
            cluster = await self._copy.with_reports(new, trusted=asker.trusted)
        if request.kind.kind == CustomDevice.__name__ and asker.trusted:
            with suppress(*UNREADABLE):
                device = msgspec.json.decode(request.object, type=CustomDevice)
                cluster = replace(cluster, nowhere=self._copy.nodes.nowhere(device))
        turn = "" if asker.trusted else asker.address
        return await self._workers.review(request, narrowed(request, cluster), turn)

    async def _of_claim(self, request: AdmissionRequest) -> Verdict:
        cluster = self._copy.cluster
        verdict = review(request, cluster)
        # A claim that is refused even without other objects is refused for its own content.
        if verdict.allowed or not review(request, NOTHING).allowed:
            return verdict
        # Else another object may have been put right a moment ago, and the copy be behind.
        asked: frozenset[str] = frozenset()
        try:
            while more := claims.decisive(request, cluster) - asked:
                asked |= more
                confirmed = await self._copy.confirmed(asked)
                if confirmed is cluster:
                    break
                cluster = confirmed
                verdict = review(request, cluster)
                if verdict.allowed:
                    break
        except ApiError as problem:
            log.warning('%s "%s" is let through: %s', request.kind.kind, request.name, problem)
            return ALLOWED
        return verdict

    async def _guarded(self, http: web.Request, handler: Handler) -> web.StreamResponse:
        """Read a request while its time runs; a review for a client that may not ask is not read at all."""
        connection = self._door.of(http)
        if connection is None:
            raise ConnectionResetError("the connection was broken off")
        http[ASKER] = Asker(connection.address, connection.trusted)
        try:
            if http.path == PATH and http.method == "POST":
                if self._clients.identified and not connection.trusted:
                    refused = web.Response(status=HTTPStatus.FORBIDDEN, text=NO_CERTIFICATE)
                    refused.force_close()
                    return refused
                await _read(http)
            connection.read()
            return await handler(http)
        finally:
            connection.answered()

    async def _validate(self, http: web.Request) -> web.Response:
        try:
            request = messages.read(await http.read())
        except UNREADABLE as problem:
            metrics.REQUESTS.labels("", "", "malformed").inc()
            return web.Response(
                status=HTTPStatus.BAD_REQUEST, text=f"no AdmissionReview of admission.k8s.io/v1: {problem}"
            )
        labels = _KINDS(request.kind.kind), _OPERATIONS(request.operation)
        if not self._copy.synced:
            metrics.REQUESTS.labels(*labels, "unready").inc()
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text="netdra's webhook is starting; try again")
        with self._process.in_hand(), measured(metrics.REQUEST_SECONDS, labels[0]):
            verdict = await self.verdict(request, http[ASKER])
        metrics.REQUESTS.labels(*labels, "allowed" if verdict.allowed else "refused").inc()
        if not verdict.allowed:
            log.info('refused %s "%s": %s', request.kind.kind, request.name, "; ".join(verdict.errors))
        return web.Response(body=messages.answer(request.uid, verdict), content_type="application/json")

    async def _probed(self, http: web.Request) -> web.Response:
        answer = probed(self._process.health, http.path, http.query_string)
        return web.Response(body=answer.body, status=answer.status, headers={"Content-Type": answer.content_type})


async def _read(http: web.Request) -> None:
    """Read the whole request. The memory of a cut-off request is freed at once, and not by the next GC."""
    try:
        await http.read()
    except Exception as problem:
        clear_frames(problem.__traceback__)
        raise


def _of_aiohttp() -> logging.Logger:
    """The logger for aiohttp's requests: a client's fault is no error of the webhook's."""
    chosen = logging.getLogger(f"{__name__}.http")
    chosen.filters = [
        lambda record: not isinstance((record.exc_info or (None, None))[1], HttpProcessingError | OSError)
    ]
    return chosen
