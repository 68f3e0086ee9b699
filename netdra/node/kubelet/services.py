"""The services that the kubelet calls: to prepare and release claims, for the devices' health, and to register.

Served by `plugin`. Follows k8s.io/kubelet/pkg/apis: `dra` and `dra-health` in both versions that kubelets use, and
`pluginregistration`. Every claim of a call has its own outcome in time, and none of them fails the call. An exception
other than `NetdraError` is a defect: the kubelet's answer is "internal", and the log has the rest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message

from netdra.grpc.calls import Methods, streaming, unary
from netdra.model import names
from netdra.model.errors import NetdraError
from netdra.model.plan import ClaimReference
from netdra.node import metrics
from netdra.node.claims.store import PreparedDevice, base_request
from netdra.node.priority import Turns
from netdra.node.view import DeviceHealth
from netdra.node.wire import kubelet_pb2 as wire
from netdra.ops.logs import about
from netdra.ops.metrics import measured

log = logging.getLogger(__name__)

V1 = "v1.DRAPlugin"
V1BETA1 = "v1beta1.DRAPlugin"
_SERVICES = {V1: "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", V1BETA1: "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"}

INTERNAL = "internal"
_SEE_LOG = "netdra has a defect; see the driver's log on this node"

_SECONDS = {"prepare": metrics.PREPARE_SECONDS, "unprepare": metrics.UNPREPARE_SECONDS}

CLAIM_SECONDS = 40.0
"""The time of one claim, waiting for its turn included: the kubelet gives the whole call 45 seconds, and takes no
claim's outcome after that."""

HEALTH_V1 = "v1.DRAResourceHealth"
HEALTH_VERSIONS = (HEALTH_V1, "v1alpha1.DRAResourceHealth")
RESEND_SECONDS = 10.0
FORGET_SECONDS = 30
_MAX_MESSAGE = 1024

_REGISTRATION = "/pluginregistration.Registration"
_DRA_PLUGIN = "DRAPlugin"

T = TypeVar("T")
Call = Callable[[Any], Awaitable[Message]]

HealthSource = Callable[[], AsyncIterator[Sequence[DeviceHealth]]]
"""Called for each stream: yields the state of all devices at once, and again whenever it changes."""


class ClaimHandler(Protocol):
    """Prepares claims. Both calls are idempotent: the kubelet repeats them, also with two daemons at once."""

    async def prepare(self, claim: ClaimReference) -> tuple[PreparedDevice, ...]:
        """Make a claim of a pod on this node ready; the same claim gets the same answer again.

        Raises:
            NetdraError: it is not ready; the text becomes the pod's event. The kubelet asks again only after a minute
                or so, so transient faults are retried inside, for at most 30 of its 45 seconds.
        """

    async def unprepare(self, claim: ClaimReference) -> None:
        """The last pod that used a claim is gone. A claim that was never prepared, or no longer is, is not an error.

        Raises:
            NetdraError: not all could be undone; the kubelet asks again.
        """


class ClaimServices:
    """Claims from calls of any version; as many are worked on at one time as have a turn."""

    versions = tuple(_SERVICES)
    """The services by the kubelet's names, the preferred one first."""

    def __init__(
        self,
        claims: ClaimHandler,
        changed: Callable[[], None],
        prepared: Callable[[], None],
        turns: Turns,
        note: Callable[[ClaimReference, str, str], None],
    ) -> None:
        """Begin.

        Args:
            claims: prepares them.
            changed: called after each call: the held devices may have changed.
            prepared: called after a claim has been prepared.
            turns: the claims that are worked on.
            note: called with a claim, why it could not be prepared, and the next step alone; with "" once it is
                prepared or released.
        """
        self._claims, self._changed, self._turns, self._note = claims, changed, turns, note
        self._prepared = prepared

    def methods(self) -> Methods:
        """The services as the server takes them."""
        handlers = {}
        for version, name in _SERVICES.items():
            # The messages of v1beta1 have no share ID.
            prepare = self._preparing(with_shares=version == V1)
            handlers[f"/{name}/NodePrepareResources"] = unary(wire.PrepareRequest, prepare)
            handlers[f"/{name}/NodeUnprepareResources"] = unary(wire.UnprepareRequest, self._unprepare)
        return handlers

    def _preparing(self, *, with_shares: bool) -> Call:
        async def prepare(request: wire.PrepareRequest) -> wire.PrepareResponse:
            async def one(claim: ClaimReference) -> wire.PreparedClaim:
                devices, error, hint = await self._outcome("prepare", claim, self._claims.prepare)
                self._note(claim, _SEE_LOG if error == INTERNAL else error, hint)
                if not error:
                    self._prepared()
                listed = [_device(device, with_shares=with_shares) for device in devices or ()]
                return wire.PreparedClaim(devices=listed, error=error)

            # Failed claims, too: without an entry for each, the kubelet reports "skipped 1 ResourceClaims" and not the
            # error (pkg/kubelet/cm/dra/manager.go).
            return wire.PrepareResponse(claims=await _all_at_once(request.claims, one))

        return prepare

    async def _unprepare(self, request: wire.UnprepareRequest) -> wire.UnprepareResponse:
        async def one(claim: ClaimReference) -> wire.UnpreparedClaim:
            _, error, _ = await self._outcome("unprepare", claim, self._claims.unprepare)
            if not error:
                self._note(claim, "", "")
            return wire.UnpreparedClaim(error=error)

        return wire.UnprepareResponse(claims=await _all_at_once(request.claims, one))

    async def _outcome(
        self, what: str, claim: ClaimReference, act: Callable[[ClaimReference], Awaitable[T]]
    ) -> tuple[T | None, str, str]:
        """The outcome of a claim: the result, or the error for the kubelet; and the next step alone.

        Work that has begun continues when the call's time is over or its connection ends, and no other work on the
        claim begins before its end.
        """
        named = f"{claim.namespace}/{claim.name}"

        async def work() -> T:
            with about(claim=named), measured(_SECONDS[what]):
                result = await act(claim)
            self._changed()
            return result

        try:
            async with asyncio.timeout(CLAIM_SECONDS):
                result = await self._turns.run(claim.uid, work)
        except NetdraError as problem:
            log.warning("%s %s (%s): %s", what, named, claim.uid, problem)
            return None, str(problem), problem.hint
        except TimeoutError:
            log.warning("%s %s (%s): not done in %.0f s", what, named, claim.uid, CLAIM_SECONDS)
            return None, f"{what} was not done in {CLAIM_SECONDS:.0f} s; it is tried again", ""
        except Exception:
            log.exception("%s %s (%s)", what, named, claim.uid)
            return None, INTERNAL, ""
        else:
            return result, "", ""


async def _all_at_once(claims: Iterable[wire.Claim], one: Callable[[ClaimReference], Awaitable[T]]) -> dict[str, T]:
    """The outcome of every claim by its uid, all at once."""
    wanted = {claim.uid: ClaimReference(namespace=claim.namespace, name=claim.name, uid=claim.uid) for claim in claims}
    entries: Sequence[T] = await asyncio.gather(*map(one, wanted.values()))
    return dict(zip(wanted, entries, strict=True))


def _device(device: PreparedDevice, *, with_shares: bool) -> wire.Device:
    # Containers name requests, never the alternative that the scheduler chose.
    requests = dict.fromkeys(map(base_request, device.requests))
    return wire.Device(
        request_names=list(requests),
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi_ids,
        share_id=device.share_id or None if with_shares else None,
    )


class HealthService:
    """Streams of the devices' health.

    Each message has all devices. The kubelet forgets a state that is not repeated within the time that the message
    gives.
    """

    def __init__(self, source: HealthSource) -> None:
        self._source = source
        self._closing = asyncio.Event()

    def methods(self) -> Methods:
        """The services as the server takes them."""
        method = streaming(wire.WatchRequest, self._watch)
        return {f"/{name}/NodeWatchResources": method for name in HEALTH_VERSIONS}

    def close(self) -> None:
        """End all streams; a server does not stop while one is open."""
        self._closing.set()

    async def _watch(self, _: wire.WatchRequest) -> AsyncGenerator[wire.WatchResponse, None]:
        latest: tuple[Sequence[DeviceHealth], ...] = ()
        changed = asyncio.Event()

        async def follow() -> None:
            nonlocal latest
            async for healths in self._source():
                latest = (healths,)
                changed.set()

        following = asyncio.create_task(follow())
        closing = asyncio.create_task(self._closing.wait())
        try:
            while not closing.done() and not following.done():
                waking = asyncio.create_task(changed.wait())
                try:
                    await asyncio.wait(
                        (waking, following, closing), timeout=RESEND_SECONDS, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:  # also when the kubelet ends the stream
                    waking.cancel()
                if closing.done():
                    break
                changed.clear()
                for current in latest:
                    yield _health(current, int(time.time()))
            if following.done():
                await following
        finally:
            for task in (following, closing):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await following


def _health(healths: Sequence[DeviceHealth], now: int) -> wire.WatchResponse:
    return wire.WatchResponse(
        devices=[
            wire.DeviceHealth(
                device=wire.DeviceIdentifier(pool_name=health.pool, device_name=health.device),
                health=wire.HEALTHY if health.healthy else wire.UNHEALTHY,
                last_updated_time=now,
                health_check_timeout_seconds=FORGET_SECONDS,
                message=health.message[:_MAX_MESSAGE],
            )
            for health in healths
        ]
    )


class KubeletRegistration:
    """The driver's registration with the kubelet, by the registration socket.

    Attributes:
        registered: whether the kubelet's last answer was that it registered the driver.
        problem: why it did not, "" if it did or has not answered yet.
        times: how often it registered the driver; once more after each restart of the kubelet.
    """

    def __init__(self, endpoint: str, versions: Sequence[str]) -> None:
        """Begin.

        Args:
            endpoint: the path of the DRA service's socket, as the kubelet sees it.
            versions: the services there, by the kubelet's names.
        """
        self.registered, self.problem, self.times = False, "", 0
        self._info = wire.PluginInfo(
            type=_DRA_PLUGIN, name=names.DRIVER, endpoint=endpoint, supported_versions=versions
        )

    def methods(self) -> Methods:
        """The service as the server takes it."""
        return {
            f"{_REGISTRATION}/GetInfo": unary(wire.InfoRequest, self._get_info),
            f"{_REGISTRATION}/NotifyRegistrationStatus": unary(wire.RegistrationStatus, self._notify),
        }

    async def _get_info(self, _: wire.InfoRequest) -> wire.PluginInfo:
        return self._info

    async def _notify(self, status: wire.RegistrationStatus) -> wire.RegistrationStatusResponse:
        self.registered, self.problem = status.plugin_registered, status.error
        if status.plugin_registered:
            self.times += 1
            metrics.REGISTRATIONS.labels("ok").inc()
            log.info("registered with the kubelet as %s", names.DRIVER)
        else:
            metrics.REGISTRATIONS.labels("permanent").inc()
            log.error("the kubelet does not take the driver: %s", status.error)
        return wire.RegistrationStatusResponse()
