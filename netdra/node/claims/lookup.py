"""A claim and its pods from the API server, patiently: the kubelet asks again only after a minute.

Called by `prepare`. Faults that pass are waited out inside the call, which the kubelet gives 45 seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from netdra.kube.backoff import Backoff
from netdra.kube.client import Client
from netdra.kube.errors import ApiError, NotFoundError
from netdra.kube.resources import RESOURCE_CLAIMS, Resource
from netdra.model.claim import ResourceClaim
from netdra.model.errors import PermanentError, TemporaryError
from netdra.model.meta import ObjectMeta
from netdra.model.plan import ClaimReference
from netdra.model.resource import Wire
from netdra.node.claims.checks import named

log = logging.getLogger(__name__)

T = TypeVar("T")

WatchedPods = Callable[[str, str, str], bool | None]
"""Namespace, name and uid of a pod -> whether it is on the host's network, None if the pod is not known."""

JustRead = Callable[[ClaimReference], Awaitable[ResourceClaim | None]]
"""A claim as it has just been read for one of its pods, None if it was not."""


class _PodSpec(Wire, frozen=True):
    host_network: bool = False


class _Pod(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: _PodSpec = _PodSpec()


_PODS = Resource("v1", "pods", _Pod, namespaced=True)


async def patiently(attempt: Callable[[], Awaitable[T]], seconds: float) -> T:
    """What an attempt yields, repeated while it fails for a reason that may pass.

    Args:
        attempt: what to do.
        seconds: for how long to go on; what the last attempt takes is not counted.

    Raises:
        NetdraError: of the last attempt, or of one that failed for good.
    """
    backoff, clock = Backoff(), asyncio.get_running_loop().time
    deadline = clock() + seconds
    while True:
        try:
            return await attempt()
        except TemporaryError as problem:
            wait = backoff.next(problem.retry_after if isinstance(problem, ApiError) else 0.0)
            if clock() + wait > deadline:
                raise
            log.info("tried again in %.1f s: %s", wait, problem.what)
            await asyncio.sleep(wait)


async def get_claim(client: Client, wanted: ClaimReference) -> ResourceClaim:
    """The claim as the API server has it now.

    Raises:
        ApiError: it is not to be had.
        PermanentError: there is none.
    """
    try:
        return await client.get(RESOURCE_CLAIMS, wanted.name, wanted.namespace)
    except NotFoundError:
        raise PermanentError(
            f"{named(wanted)} is not there any more", hint="delete the pod; its controller makes another one"
        ) from None


def unwatched(_namespace: str, _name: str, _uid: str) -> bool | None:
    """What is known of a pod by those who watch none."""
    return None


async def unread(_claim: ClaimReference) -> ResourceClaim | None:
    """What is known of a claim by those who read none."""
    return None


async def pods_of(
    client: Client, claim: ResourceClaim, on_host_network: WatchedPods = unwatched
) -> tuple[tuple[str, bool], ...]:
    """The pods that a claim is reserved for: each one's name, and whether it is on the host's network.

    A pod that is gone or was replaced has no say. One that is watched is not asked for: its network never changes.

    Raises:
        ApiError: one is not to be had.
    """
    found = []
    for user in claim.status.reserved_for:
        if user.resource != "pods" or user.api_group:
            continue
        known = on_host_network(claim.metadata.namespace, user.name, user.uid)
        if known is not None:
            found.append((user.name, known))
            continue
        try:
            pod = await client.get(_PODS, user.name, claim.metadata.namespace)
        except NotFoundError:
            continue
        if pod.metadata.uid == user.uid:
            found.append((user.name, pod.spec.host_network))
    return tuple(found)
