"""The story of an object by its kind: called by `netdra why` and by the console. Pure."""

from __future__ import annotations

from netdra.cluster.objects import ClusterState
from netdra.story.claims import claim_story
from netdra.story.devices import device_story
from netdra.story.networks import network_story
from netdra.story.pods import pod_story
from netdra.story.statement import Story
from netdra.story.topologies import topology_story


def object_story(cluster: ClusterState, kind: str, place: str, name: str) -> Story:
    """The story of an object of one of `KINDS`; `place` is its namespace, or its node, or ""."""
    if kind == "pod":
        return pod_story(cluster, place, name)
    if kind == "claim":
        return claim_story(cluster, place, name)
    if kind == "device":
        return device_story(cluster, place, name)
    return topology_story(cluster, name) if kind == "topology" else network_story(cluster, name)
