"""Writes statuses, and tells users by events what is new in them. Used by `netdra.controller.controller`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from netdra.controller import metrics
from netdra.controller.notices import notices
from netdra.kube.client import Client
from netdra.kube.events import ObjectReference, Recorder
from netdra.kube.resources import Resource
from netdra.model import documents
from netdra.model.meta import Condition, ObjectMeta

MANAGER = "netdra-controller"


class Status(Protocol):
    """Whatever has conditions."""

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What holds and what does not."""


class WithStatus(Protocol):
    """Whatever has metadata and a status."""

    @property
    def metadata(self) -> ObjectMeta:
        """Its name and what hangs on it."""

    @property
    def status(self) -> Any:
        """What was said of it last, or None."""


async def say(client: Client, recorder: Recorder, resource: Resource[Any], about: WithStatus, status: Status) -> None:
    """Write a status, unless it stands there already, and tell what is new in it.

    Raises:
        ApiError: it cannot be written just now; nothing is told.
    """
    if status == about.status:
        return
    wanted = {
        "apiVersion": resource.group_version,
        "kind": resource.type.__name__,
        "metadata": {"name": about.metadata.name, "uid": about.metadata.uid},
        "status": documents.plain(status),
    }
    await client.apply(resource, wanted, manager=MANAGER, subresource="status")
    metrics.STATUS_WRITES.labels(resource.plural).inc()
    before: Sequence[Condition] = () if about.status is None else about.status.conditions
    for told in notices(reference(resource, about), before, status.conditions):
        recorder.emit(told)


def reference(resource: Resource[Any], about: WithStatus) -> ObjectReference:
    """An object as events name it."""
    metadata = about.metadata
    return ObjectReference(
        api_version=resource.group_version, kind=resource.type.__name__, name=metadata.name, uid=metadata.uid
    )
