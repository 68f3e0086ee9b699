"""The webhook's HTTP side: AdmissionReviews in, verdicts out, and its health.

Run by `netdra.admission.daemon`. Claims are reviewed at once in this process, because every pod may bring some, and so
are classes, which have no expressions to compile; the other kinds, which only administrators write, go to the workers.
So does a claim that has been let through, if the scheduler's search for it may be long: its author is warned.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import cast

import msgspec
from msgspec.structs import replace

from netdra.admission import messages, metrics, pods
from netdra.admission.copy import Copy
from netdra.admission.messages import ALLOWED, AdmissionRequest, Verdict
from netdra.admission.requests import (
    CLAIMS,
    CLASS,
    POLICY,
    is_of_another,
    is_reshaped,
    narrowed,
    owned_class,
    policies_of,
    read_claim,
    verdict_on,
)
from netdra.admission.serving import Clients
from netdra.admission.turns import ClientTurns, NoTurnError
from netdra.admission.workers import Workers, busy, unchecked
from netdra.kube.errors import ApiError
from netdra.model.custom_device import CustomDevice
from netdra.model.errors import UNREADABLE, InvalidInputError, with_code
from netdra.model.pod_network import PodNetwork
from netdra.model.topology import NetworkTopology
from netdra.ops.bounded import BoundedServer, Certificate, ConnectionLimits
from netdra.ops.http import Answer, HTTPRequest, listening, plain
from netdra.ops.metrics import Values, measured
from netdra.ops.process import Process
from netdra.ops.server import PROBES, probed
from netdra.review import claims, searches
from netdra.review.world import NOTHING, World
from netdra.workers import defects

log = logging.getLogger(__name__)

PATH = "/validate"
MAX_BODY = 8 * 1024 * 1024
"""An object as it is and as it will be; the API server takes requests of up to 3 MiB."""
GRACE_SECONDS = 10.0
LIMITS = ConnectionLimits(
    connections=256,
    idle=120.0,  # the API server closes its idle connections after 90 s
    request=5.0,
    tls=5.0,
    write=10.0,
    held=32 * 1024 * 1024,
    spares_answered=True,
)
"""Any host that can route a packet to the port can connect: a flood from one address ends its own connections."""
NO_CERTIFICATE = "a client certificate of the API server is required (--client-ca)"
FORESEEING_SECONDS = 1.0
"""How long a claim waits for warnings of the scheduler's search; the API server waits 2 s in all (`timeoutSeconds`)."""
MAX_LOOKUPS = 4
"""For how many workloads at a time claims are read."""
PODS_SECONDS = 0.7
"""How long a workload waits for warnings; the API server waits 1 s in all (`timeoutSeconds`)."""
MAX_LISTS = 64
"""How many changed topologies wait for the list of claims, which they share."""
_OF_CLAIMS = "claims "
"""Before the address of a client whose claim is searched for: these never go to all workers at once."""

# The API server asks about few kinds; other clients could name any.
_KINDS, _OPERATIONS = Values(16), Values(4)


class Webhook:
    """Answers requests."""

    def __init__(self, copy: Copy, workers: Workers, process: Process, clients: Clients) -> None:
        self._copy = copy
        self._workers = workers
        self._process = process
        self._clients = clients
        self._asking: set[asyncio.Task[Verdict]] = set()
        self._turns, self._lists, self._lookups = ClientTurns(1), ClientTurns(MAX_LISTS), ClientTurns(MAX_LOOKUPS)

    @asynccontextmanager
    async def serving(self, address: str, port: int, tls: ssl.SSLContext) -> AsyncIterator[BoundedServer]:
        """Answer requests while entered.

        Raises:
            OSError: the address cannot be listened on.
        """
        async with listening(
            (address, port),
            self._respond,
            LIMITS,
            posts=(PATH,),
            max_body=MAX_BODY,
            grace=GRACE_SECONDS,
            tls=tls,
            trusts=self._trusts,
            count_end=lambda reason: metrics.CONNECTIONS_ENDED.labels(reason).inc(),
        ) as server:
            yield server

    async def verdict(self, request: AdmissionRequest, address: str, *, trusted: bool) -> Verdict:
        """The verdict on one request of a client, which is trusted if its certificate is the API server's."""
        client, size = "" if trusted else address, len(request.object) + len(request.old_object)
        if request.kind.kind in pods.KINDS:
            return await self._of_pods(request, client, size)
        try:
            if request.kind.kind in CLAIMS:
                verdict = await self._of_claim(request, client, size)
                more = await self._foreseen(request, client) if verdict.allowed else ()
                return replace(verdict, warnings=(*verdict.warnings, *more))
            if request.kind.kind == CLASS:
                return await self._of_class(request, client, size)
            if client and self._is_guess(request):
                what = f'NetworkTopology "{request.name}": its uid is not that of the stored object; try again'
                return Verdict((with_code(what, "ND3098"),))
            cluster = await self._with_lists(request, client, size)
            async with self._workers.turns.turn(client, size):
                return await self._by_worker(request, cluster, trusted=trusted)
        except ApiError as problem:
            unknown = f'{request.kind.kind} "{request.name}": cannot determine its users; try again: {problem}'
            return Verdict((with_code(unknown, "ND3099"),))
        except NoTurnError:
            # Claims and classes are admitted if the webhook has no time, as if it were down. The controller's classes
            # are not: no other check binds it to its topologies.
            is_free = request.kind.kind in {*CLAIMS, CLASS} and owned_class(request) is None
            return ALLOWED if is_free else busy(request)

    def _is_guess(self, request: AdmissionRequest) -> bool:
        """Whether a client without a certificate asks for the users of a topology that it cannot read.

        Each client of the port can name a topology, but the API server sends the stored one, with its uid.
        """
        if request.kind.kind != NetworkTopology.__name__ or not is_reshaped(request):
            return False
        return is_of_another(request, self._copy.topologies.objects.get(request.name))

    async def _here(self, request: AdmissionRequest, cluster: World, client: str, size: int) -> Verdict:
        """A review in this process.

        Raises:
            NoTurnError: too many others wait.
        """
        async with self._turns.turn(client, size):
            try:
                verdict = verdict_on(request, cluster)
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001 (any defect, and it is reported)
                defect = defects.of(error)
                log.error("%s", defect.report)
                verdict = unchecked(request, defect.place)
            await asyncio.sleep(0)  # connections that have something to read come before the next turn
            return verdict

    async def _of_class(self, request: AdmissionRequest, client: str, size: int) -> Verdict:
        verdict = await self._here(request, self._copy.cluster, client, size)
        device_class = owned_class(request)
        if not verdict.allowed or device_class is None:
            return verdict
        async with self._lookups.turn(client, size):
            try:
                found = await self._copy.unlike(device_class)
            except ApiError as problem:
                what = f'DeviceClass "{request.name}": cannot read its NetworkTopology; try again: {problem}'
                return Verdict((with_code(what, "ND3100"),))
        return Verdict(tuple(finding.text for finding in found), verdict.warnings)

    async def _with_lists(self, request: AdmissionRequest, client: str, size: int) -> World:
        """The cluster, with the users of a topology that is about to get other steps, or ranges near a PodNetwork's.

        Raises:
            ApiError: the API server did not answer.
            NoTurnError: too many others wait.
        """
        if request.kind.kind == PodNetwork.__name__ and not request.too_deep and not client:
            return await self._with_taken(request, size)
        if request.kind.kind != NetworkTopology.__name__ or not is_reshaped(request):
            return self._copy.cluster
        async with self._lists.turn(client, size):
            cluster = await self._copy.with_users(request.name)
        # A client that only reaches the port must not learn the claims' names.
        return replace(cluster, users=tuple("" for _ in cluster.users)) if client else cluster

    async def _with_taken(self, request: AdmissionRequest, size: int) -> World:
        cluster = self._copy.cluster
        with suppress(*UNREADABLE):
            network = msgspec.json.decode(request.object, type=PodNetwork)
            async with self._lists.turn("", size):
                return replace(cluster, taken=await self._copy.read_taken(network))
        return cluster

    async def _by_worker(self, request: AdmissionRequest, cluster: World, *, trusted: bool) -> Verdict:
        """A review in a worker, with the part of the cluster that it needs; the client has its turn."""
        if request.kind.kind == NetworkTopology.__name__ and not request.too_deep:
            with suppress(*UNREADABLE):
                asked = searches.asked_by_topology(msgspec.json.decode(request.object, type=NetworkTopology))
                cluster = replace(cluster, offers=await self._copy.nodes.offers(asked, named=trusted))
        if request.kind.kind == POLICY:
            if request.operation not in {"CREATE", "UPDATE", "DELETE"}:
                return ALLOWED
            _, new = policies_of(request)
            cluster = await self._copy.with_reports(new, trusted=trusted)
        if request.kind.kind == CustomDevice.__name__ and trusted:
            with suppress(*UNREADABLE):
                device = msgspec.json.decode(request.object, type=CustomDevice)
                cluster = replace(cluster, nowhere=self._copy.nodes.nowhere(device))
        return await self._workers.review(request, narrowed(request, cluster, self._copy.index))

    async def _of_claim(self, request: AdmissionRequest, client: str, size: int) -> Verdict:
        cluster = self._copy.cluster
        verdict = await self._here(request, cluster, client, size)
        # A claim that is refused even without other objects is refused for its own content.
        if verdict.allowed or not verdict_on(request, NOTHING).allowed:
            return verdict
        # Else another object may have been put right a moment ago, and the copy be behind.
        asked: frozenset[str] = frozenset()
        try:
            while more := claims.decisive(read_claim(request), cluster) - asked:
                asked |= more
                confirmed = await self._copy.confirm(asked)
                if confirmed is cluster:
                    break
                cluster = confirmed
                verdict = await self._here(request, cluster, client, size)
                if verdict.allowed:
                    break
        except ApiError as problem:
            log.warning('%s "%s" is admitted without a check: %s', request.kind.kind, request.name, problem)
            return ALLOWED
        return verdict

    async def _foreseen(self, request: AdmissionRequest, client: str) -> tuple[str, ...]:
        """Warnings of the scheduler's search for a claim; none if a worker does not find them in time."""
        cluster, nodes = self._copy.cluster, self._copy.nodes
        try:
            claim = read_claim(request)
        except UNREADABLE:
            return ()
        if request.operation != "CREATE" or not searches.concerns(claim, cluster.classes):
            return ()
        if not searches.may_be_long(claim, await nodes.most_devices()):
            return ()
        asked = searches.asked_by_claim(claim, cluster.classes)
        asking = asyncio.create_task(self._search(request, asked, client))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        # The worker continues: it would be replaced if the question were cancelled.
        await asyncio.wait({asking}, timeout=FORESEEING_SECONDS)
        return asking.result().warnings if asking.done() else ()

    async def _search(self, request: AdmissionRequest, asked: frozenset[str], client: str) -> Verdict:
        """The worker's verdict on the search for a claim, by these attributes; none where workers are busy."""
        try:
            async with self._workers.turns.turn(f"{_OF_CLAIMS}{client}", len(request.object)):
                offers = await self._copy.nodes.offers(asked, named=not client)
                narrow = narrowed(request, replace(self._copy.cluster, offers=offers), self._copy.index)
                return await self._workers.review(request, narrow)
        except NoTurnError:
            return ALLOWED

    async def _of_pods(self, request: AdmissionRequest, client: str, size: int) -> Verdict:
        """The warnings for a workload; none where anything stands in the way, or takes long."""
        try:
            async with asyncio.timeout(PODS_SECONDS):
                workload = pods.read(request)
                if workload is None:
                    return ALLOWED
                # Any client that reaches the port can name a namespace: only the API server learns what is there.
                there = None
                if not client:
                    async with self._lookups.turn(client, size):
                        there = await self._copy.claims(request.namespace, pods.named(workload))
                async with self._turns.turn(client, size):
                    return Verdict(warnings=pods.warnings(workload, there, self._copy.cluster, trusted=not client))
        except (TimeoutError, ApiError, InvalidInputError, NoTurnError, *UNREADABLE) as problem:
            log.debug("%s %s/%s is not checked: %s", request.kind.kind, request.namespace, request.name, problem)
            return ALLOWED

    def _trusts(self, certificate: Certificate | None) -> bool:
        names = self._clients.names
        return bool(certificate) and (not names or not names.isdisjoint(_common_names(certificate or {})))

    async def _respond(self, http: HTTPRequest) -> Answer | None:
        if http.path in PROBES:
            return probed(self._process.health, http)
        if http.path != PATH:
            return None
        if self._clients.identified and not http.trusted:
            return plain(HTTPStatus.FORBIDDEN, NO_CERTIFICATE)  # its body is not read at all
        try:
            request = messages.read(await http.body())
        except UNREADABLE as problem:
            metrics.REQUESTS.labels("", "", "malformed").inc()
            return plain(
                HTTPStatus.BAD_REQUEST, f"the request is not an AdmissionReview of admission.k8s.io/v1: {problem}"
            )
        labels = _KINDS(request.kind.kind), _OPERATIONS(request.operation)
        if not self._copy.synced:
            metrics.REQUESTS.labels(*labels, "unready").inc()
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "netdra's webhook is starting; try again")
        with self._process.in_hand(), measured(metrics.REQUEST_SECONDS, labels[0]):
            verdict = await self.verdict(request, http.peer, trusted=http.trusted)
        metrics.REQUESTS.labels(*labels, "allowed" if verdict.allowed else "refused").inc()
        if not verdict.allowed:
            log.info('refused %s "%s": %s', request.kind.kind, request.name, "; ".join(verdict.errors))
        return Answer(HTTPStatus.OK, messages.answer(request.uid, verdict), "application/json")


def _common_names(certificate: Certificate) -> Iterator[str]:
    for part in cast(tuple[tuple[tuple[str, str], ...], ...], certificate.get("subject", ())):
        for key, value in part:
            if key == "commonName":
                yield value
