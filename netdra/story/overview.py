"""The story of an object by its kind, and all that is in trouble by its cause. Called by `netdra why`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from netdra.cluster.objects import ClusterState, PlacedPod
from netdra.story.claims import claim_story
from netdra.story.devices import device_story
from netdra.story.networks import network_story
from netdra.story.pods import pod_story
from netdra.story.statement import Statement, Story
from netdra.story.topologies import topology_story

MAX_STORIES = 500
"""How many pods are examined, those first that do not run."""


class CauseOfMany(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A cause, and the objects that it affects.

    Attributes:
        cause: the statement of the first of these objects.
        subjects: the objects, e.g. `Pod default/db-0`.
    """

    cause: Statement
    subjects: tuple[str, ...]


class Overview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The objects in trouble.

    Attributes:
        subject: the part of the cluster, e.g. `Namespace default`.
        pods: how many pods with claims it has.
        examined: how many of these were examined.
        troubles: errors before warnings, those with the most objects first.
        unread: the reasons why something could not be read.
    """

    subject: str
    pods: int
    examined: int
    troubles: tuple[CauseOfMany, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def is_fine(self) -> bool:
        """Whether nothing has an error."""
        return all(trouble.cause.severity != "error" for trouble in self.troubles)


def overview(cluster: ClusterState, subject: str, pods: Iterable[PlacedPod], *, whole: bool) -> Overview:
    """The trouble of some pods; with `whole`, also that of the cluster's topologies and PodNetworks."""
    claimed = sorted((pod for pod in pods if pod.has_claims), key=lambda pod: (not pod.is_waiting, _key(pod)))
    examined = claimed[:MAX_STORIES]
    stories = [(pod_story(cluster, *_key(pod)), _own_names(cluster, pod)) for pod in examined]
    if whole:
        stories += [(topology_story(cluster, entry.name), [entry.name]) for entry in cluster.topologies]
        stories += [(network_story(cluster, entry.name), [entry.name]) for entry in cluster.networks]
    return Overview(
        subject=subject,
        pods=len(claimed),
        examined=len(examined),
        troubles=tuple(_grouped(stories)),
        unread=tuple(cluster.unread.values()),
    )


def _key(pod: PlacedPod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name


def _own_names(cluster: ClusterState, pod: PlacedPod) -> list[str]:
    """The names of a pod, its claims and their devices, the longest first."""
    names = {pod.metadata.name, *(name for _, name in pod.claim_names())}
    claims = filter(None, (cluster.claim(pod.metadata.namespace, name) for name in names))
    allocations = filter(None, (claim.status.allocation for claim in claims))
    names |= {result.device for allocation in allocations for result in allocation.devices.results}
    return sorted(filter(None, names), key=len, reverse=True)


def _grouped(stories: Iterable[tuple[Story, Sequence[str]]]) -> list[CauseOfMany]:
    """Causes that differ in nothing but the names of the objects themselves are one."""
    groups: dict[tuple[str, str, str], list[Story]] = {}
    for story, names in stories:
        if story.cause is not None:
            text = re.sub("|".join(map(re.escape, names)), "", story.cause.text)
            groups.setdefault((story.cause.severity, story.cause.reason, text), []).append(story)
    troubles = [
        CauseOfMany(cause=found[0].cause, subjects=tuple(story.subject for story in found))
        for found in groups.values()
        if found[0].cause is not None
    ]
    return sorted(troubles, key=lambda trouble: (trouble.cause.severity != "error", -len(trouble.subjects)))


def object_story(cluster: ClusterState, kind: str, place: str, name: str) -> Story:
    """The story of an object of one of `KINDS`; `place` is its namespace, or its node, or ""."""
    if kind == "pod":
        return pod_story(cluster, place, name)
    if kind == "claim":
        return claim_story(cluster, place, name)
    if kind == "device":
        return device_story(cluster, place, name)
    return topology_story(cluster, name) if kind == "topology" else network_story(cluster, name)
