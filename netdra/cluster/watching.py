"""Waits for a change of the objects that a story is made of, with the user's kubeconfig and rights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from netdra.cluster.reading import EVENTS, PODS, Scope, is_of
from netdra.kube import resources
from netdra.kube.client import Client, Selection
from netdra.kube.errors import ApiError
from netdra.kube.resources import Resource
from netdra.kube.watch import watch
from netdra.model.errors import UNREADABLE
from netdra.model.pod_address import PodAddress

AT_MOST_SECONDS = 30
"""After this time a watched story is read again, whether a watched object changed or not."""
AT_LEAST_SECONDS = 1.0
_ALL = Selection()


class WatchedKind(NamedTuple):
    """A kind that a story is watched by.

    Attributes:
        selection: the objects that are watched.
        concerns: whether an object, as the API server sends it, may be part of the story.
        version: the version to watch from.
    """

    resource: Resource[Any]
    selection: Selection
    concerns: Callable[[msgspec.Raw], bool] = lambda _: True
    version: str = ""


async def versions(client: Client, scope: Scope) -> Sequence[WatchedKind]:
    """The kinds that a story is watched by, from now on; those without a right are left out."""
    return await begin_watch(client, _watched(scope))


async def begin_watch(client: Client, kinds: Iterable[WatchedKind]) -> Sequence[WatchedKind]:
    """Kinds with the version of now; those without a right are left out."""
    found: list[WatchedKind] = []
    for watched in kinds:
        with suppress(ApiError):
            page = await client.page(watched.resource, watched.selection, limit=1)
            found.append(watched._replace(version=page.metadata.resource_version))
    return found


def _watched(scope: Scope) -> Iterable[WatchedKind]:
    inside = Selection(namespace=scope.namespace)
    of_node = Selection(field_selector=f"spec.nodeName={scope.node}" if scope.node else "")
    yield WatchedKind(resources.RESOURCE_SLICES, of_node)
    yield WatchedKind(resources.TOPOLOGIES, _ALL)
    yield WatchedKind(resources.RESOURCE_CLAIMS, inside)
    if scope.namespace:
        yield WatchedKind(PODS, inside)
        yield WatchedKind(resources.NEUTRON_PORTS, inside)
    if scope.namespace or scope.network:
        yield WatchedKind(resources.POD_ADDRESSES, _ALL, partial(_concerns, scope))
    if scope.network:
        yield WatchedKind(resources.POD_NETWORKS, Selection(field_selector=f"metadata.name={scope.network}"))
    if scope.pod:
        yield WatchedKind(EVENTS, Selection(scope.namespace, f"involvedObject.name={scope.pod}"))


def _concerns(scope: Scope, address: msgspec.Raw) -> bool:
    """Whether a PodAddress may be part of a story: all addresses of the cluster are sent. One that is not read is."""
    try:
        return is_of(scope, msgspec.json.decode(address, type=PodAddress))
    except UNREADABLE:
        return True


async def wait_change(client: Client, since: Sequence[WatchedKind]) -> None:
    """Wait until a watched object changes, or for `AT_MOST_SECONDS`; for `AT_LEAST_SECONDS` in any case.

    Raises:
        ApiError: the API server does not answer.
    """
    tasks = [asyncio.ensure_future(_first(client, watched)) for watched in since]
    try:
        await asyncio.sleep(AT_LEAST_SECONDS)
        if tasks:
            await asyncio.wait(tasks, timeout=AT_MOST_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(AT_MOST_SECONDS)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first(client: Client, watched: WatchedKind) -> None:
    """Wait for the first change of a kind that concerns the story; without the right to watch it, just wait."""
    kind, selection, concerns, version = watched
    idle = AT_MOST_SECONDS + 10.0
    try:
        async with watch(client, kind, selection, version, seconds=AT_MOST_SECONDS, idle_seconds=idle) as events:
            async for event in events:
                if event.type != "BOOKMARK" and concerns(event.object):
                    return
    except ApiError as problem:
        if problem.status.code == HTTPStatus.FORBIDDEN:
            await asyncio.sleep(AT_MOST_SECONDS)
