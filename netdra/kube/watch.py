"""One watch request: the stream of changes after a resourceVersion, as events whose objects are not yet read.

Called by `netdra.kube.reflector`, which decides what each event and each end means. Follows "Efficient detection of
changes" of the Kubernetes API concepts (1.37): one JSON document a line, bookmarks, errors as events.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar

import msgspec

from netdra.kube.client import Client, Selection
from netdra.kube.errors import GoneError, Status, no_answer
from netdra.kube.resources import KubernetesObject, Resource
from netdra.model.depth import decode
from netdra.model.errors import UNREADABLE

T = TypeVar("T", bound=KubernetesObject)

MAX_LINE = 16 * 1024 * 1024


class WatchEvent(msgspec.Struct, frozen=True):
    """`type` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR; the object of an ERROR is a Status."""

    type: str
    object: msgspec.Raw


_event = msgspec.json.Decoder(WatchEvent)


@asynccontextmanager
async def watch(
    client: Client,
    resource: Resource[T],
    selection: Selection,
    version: str,
    *,
    seconds: int,
    idle_seconds: float,
    shared: bool = False,
) -> AsyncIterator[AsyncIterator[WatchEvent]]:
    """The changes after a version, until the server ends the stream in good order; entered when the server agreed.

    Args:
        selection: the objects of the kind.
        version: the resourceVersion after which changes are wanted.
        seconds: after how long the server is to end the stream.
        idle_seconds: how long the stream may bring no byte; bookmarks come about once a minute.
        shared: whether it is one of many watches, whose number depends on the cluster's objects.

    Raises:
        ApiError: GoneError if the version is too old, or an event makes no sense; UnavailableError if the connection
            breaks.
    """
    parameters = selection.parameters() | {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": str(seconds),
    }
    what = f"watch {resource.plural}"
    path = resource.path(selection.namespace)
    async with (
        client.stream(path, what, parameters, idle_seconds=idle_seconds, shared=shared) as chunks,
        aclosing(_events(chunks, what)) as events,
    ):
        yield events


async def _events(chunks: AsyncIterator[bytes], what: str) -> AsyncGenerator[WatchEvent, None]:
    async with aclosing(lines(chunks, what)) as stream:
        async for line in stream:
            try:
                event = decode(_event, line)
            except UNREADABLE as problem:
                raise GoneError(f"API server: {what}: an event cannot be read: {problem}", Status()) from None
            yield event


async def lines(chunks: AsyncIterator[bytes], what: str) -> AsyncGenerator[bytes, None]:
    """Chunks cut again at line ends.

    Raises:
        UnavailableError: the stream ends within a line, or a line is longer than any object can be.
    """
    rest = bytearray()
    async for chunk in chunks:
        begin = 0
        while (end := chunk.find(b"\n", begin)) >= 0:
            line = bytes(rest) + chunk[begin:end]
            rest.clear()
            begin = end + 1
            if line.strip():
                yield line
        rest += chunk[begin:]
        if len(rest) > MAX_LINE:
            raise no_answer(what, ValueError(f"an event of more than {MAX_LINE} bytes"))
    if rest.strip():
        raise no_answer(what, ValueError("the connection closed within an event"))
