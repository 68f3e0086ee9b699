"""The DRA service in both versions that kubelets speak, over one `ClaimHandler`.

Started by `plugin`. Follows k8s.io/kubelet/pkg/apis/dra v1 and v1beta1: every claim of a call has its own outcome, and
none of them fails the call. What is no `NetdraError` is a defect: the kubelet is told "internal", the log the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message

from netdra.model.errors import NetdraError
from netdra.model.plan import ClaimReference
from netdra.node.claims.prepared import base_request
from netdra.node.kubelet.handler import ClaimHandler, PreparedDevice
from netdra.node.kubelet.server import Methods, unary
from netdra.node.wire import kubelet_pb2 as wire

log = logging.getLogger(__name__)

V1 = "v1.DRAPlugin"
V1BETA1 = "v1beta1.DRAPlugin"
_SERVICES = {V1: "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", V1BETA1: "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"}

INTERNAL = "internal"

MAX_SIDE_BY_SIDE = 8
CLAIM_SECONDS = 40.0
"""What one claim may take, waiting for its turn included: the kubelet gives the whole call 45 seconds, and after that
hears of none of its claims."""

T = TypeVar("T")
Call = Callable[[Any], Awaitable[Message]]


class ClaimServices:
    """Claims from calls of any version; at most `MAX_SIDE_BY_SIDE` are worked on at one time."""

    def __init__(self, handler: ClaimHandler) -> None:
        self._handler = handler
        self._free = asyncio.Semaphore(MAX_SIDE_BY_SIDE)

    @property
    def versions(self) -> tuple[str, ...]:
        """What the kubelet calls the services, the one to prefer first."""
        return tuple(_SERVICES)

    def methods(self) -> Methods:
        """The services as the server takes them."""
        found = {}
        for version, name in _SERVICES.items():
            prepare = self._preparing(with_shares=version == V1)
            found[f"/{name}/NodePrepareResources"] = unary(wire.PrepareRequest, wire.PrepareResponse, prepare)
            found[f"/{name}/NodeUnprepareResources"] = unary(
                wire.UnprepareRequest, wire.UnprepareResponse, self._unprepare
            )
        return found

    def _preparing(self, *, with_shares: bool) -> Call:
        async def prepare(request: wire.PrepareRequest) -> wire.PrepareResponse:
            async def one(claim: ClaimReference) -> wire.PreparedClaim:
                devices, error = await self._outcome("prepare", claim, self._handler.prepare)
                told = [_told(each, with_shares=with_shares) for each in devices or ()]
                return wire.PreparedClaim(devices=told, error=error)

            return wire.PrepareResponse(claims=await _each(request.claims, one))

        return prepare

    async def _unprepare(self, request: wire.UnprepareRequest) -> wire.UnprepareResponse:
        async def one(claim: ClaimReference) -> wire.UnpreparedClaim:
            _, error = await self._outcome("unprepare", claim, self._handler.unprepare)
            return wire.UnpreparedClaim(error=error)

        return wire.UnprepareResponse(claims=await _each(request.claims, one))

    async def _outcome(
        self, what: str, claim: ClaimReference, act: Callable[[ClaimReference], Awaitable[T]]
    ) -> tuple[T | None, str]:
        """What became of a claim: the result, or what the kubelet is told instead."""
        named = f"{claim.namespace}/{claim.name} ({claim.uid})"
        try:
            async with asyncio.timeout(CLAIM_SECONDS), self._free:
                return await act(claim), ""
        except NetdraError as problem:
            log.warning("%s %s: %s", what, named, problem)
            return None, str(problem)
        except TimeoutError:
            log.warning("%s %s: not done in %.0f s", what, named, CLAIM_SECONDS)
            return None, f"{what} was not done in {CLAIM_SECONDS:.0f} s; it is tried again"
        except Exception:
            log.exception("%s %s", what, named)
            return None, INTERNAL


async def _each(claims: Iterable[wire.Claim], one: Callable[[ClaimReference], Awaitable[T]]) -> dict[str, T]:
    """The outcome of every claim by its uid, all at once."""
    wanted = {each.uid: ClaimReference(namespace=each.namespace, name=each.name, uid=each.uid) for each in claims}
    found: Sequence[T] = await asyncio.gather(*map(one, wanted.values()))
    return dict(zip(wanted, found, strict=True))


def _told(device: PreparedDevice, *, with_shares: bool) -> wire.Device:
    # Containers name requests, never the alternative that the scheduler chose.
    requests = dict.fromkeys(map(base_request, device.requests))
    return wire.Device(
        request_names=list(requests),
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi_ids,
        share_id=device.share_id or None if with_shares else None,
    )
