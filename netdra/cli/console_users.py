"""The rights of a user of the console whom a proxy has signed on, as the API server decides.

Used by `netdra.cli.console_source`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import NamedTuple

from netdra.console.troubles import TroubleKind
from netdra.doctor.cluster_look import MAY_I, Review
from netdra.kube import resources
from netdra.kube.client import Client

MAX_NAMESPACES = 64
"""Namespaces with pods in trouble whose rights are checked."""
RESOURCES: Mapping[TroubleKind, tuple[str, str]] = {
    "netdra": ("", "nodes"),
    "nodes": ("networking.dra.io", "nodenetworks"),
    "devices": ("resource.k8s.io", "resourceslices"),
    "pods": ("", "pods"),
    "topologies": ("networking.dra.io", "networktopologies"),
    "policies": ("networking.dra.io", "deviceexposurepolicies"),
    "networks": ("networking.dra.io", "podnetworks"),
    "plugins": ("networking.dra.io", "cniplugins"),
}
"""By kind of trouble, the group and the plural of the objects that a user must be allowed to list."""


class UserRights(NamedTuple):
    """The kinds that a user may list in the whole cluster, and the namespaces whose pods the user may list."""

    kinds: frozenset[TroubleKind]
    namespaces: frozenset[str]


async def user_rights(client: Client, namespaces: Collection[str]) -> UserRights:
    """The rights of the client's user.

    Args:
        client: acts as the user.
        namespaces: those that are checked if the user may not list all pods.

    Raises:
        ApiError: the API server does not answer.
    """
    kinds = [*RESOURCES]
    allowed = await asyncio.gather(*(_may_list(client, *RESOURCES[kind]) for kind in kinds))
    found = frozenset(kind for kind, is_allowed in zip(kinds, allowed, strict=True) if is_allowed)
    if "pods" in found:
        return UserRights(found, frozenset())
    return UserRights(found, await allowed_namespaces(client, namespaces))


async def allowed_namespaces(client: Client, namespaces: Collection[str]) -> frozenset[str]:
    """Of `MAX_NAMESPACES` namespaces at most, those whose pods the client's user may list.

    Raises:
        ApiError: the API server does not answer.
    """
    places = sorted(namespaces)[:MAX_NAMESPACES]
    allowed = await asyncio.gather(*(_may_list(client, "", resources.SERVED_PODS.plural, place) for place in places))
    return frozenset(place for place, is_allowed in zip(places, allowed, strict=True) if is_allowed)


async def _may_list(client: Client, group: str, plural: str, namespace: str = "") -> bool:
    attributes = {"verb": "list", "group": group, "resource": plural, "namespace": namespace}
    answer = await client.create(MAY_I, Review(spec={"resourceAttributes": attributes}))
    return bool(answer.status.get("allowed", False))
