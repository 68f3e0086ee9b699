"""Reads the scheduler's inputs, and the requests to it, through the API server. Writes nothing.

Called by `netdra doctor`. Of each kind one page is read: a large cluster's slices are hundreds of megabytes, and most
of its nodes are alike.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from netdra.cluster.reading import PODS
from netdra.doctor.scheduling_verdicts import SchedulingFacts
from netdra.kube import answers
from netdra.kube.client import PAGE, Client, Selection
from netdra.kube.features import scheduler_version
from netdra.kube.resources import (
    CLAIM_TEMPLATES,
    DEVICE_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    TOPOLOGIES,
    KubernetesObject,
    Resource,
)

_EVERY = Selection()

T = TypeVar("T", bound=KubernetesObject)


async def look(client: Client) -> SchedulingFacts:
    """The facts.

    Raises:
        ApiError: the API server refuses, or does not answer.
    """
    waiting = Selection(field_selector="status.phase=Pending,spec.nodeName=")
    slices, classes, topologies, templates, claims, pods = await asyncio.gather(
        _page(client, RESOURCE_SLICES),
        _page(client, DEVICE_CLASSES),
        _page(client, TOPOLOGIES),
        _page(client, CLAIM_TEMPLATES),
        _page(client, RESOURCE_CLAIMS),
        _page(client, PODS, waiting),
    )
    return SchedulingFacts(
        slices=slices[0],
        classes=classes[0],
        topologies=topologies[0],
        templates=templates[0],
        claims=claims[0],
        pods=pods[0],
        version=await scheduler_version(client),
        is_part=any(is_part for _, is_part in (slices, classes, topologies, templates, claims, pods)),
    )


async def _page(client: Client, resource: Resource[T], selection: Selection = _EVERY) -> tuple[tuple[T, ...], bool]:
    """The first objects of a kind, and whether there are more."""
    page = await client.page(resource, selection, limit=PAGE)
    return tuple(answers.one(resource, item) for item in page.items or ()), bool(page.metadata.continue_)
