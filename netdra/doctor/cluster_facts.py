"""What is looked at in a cluster, as values. Filled by `cluster_look`, judged by `cluster_verdicts`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from netdra.model.device import Features

PART_LABEL, VERSION_LABEL = "app.kubernetes.io/component", "app.kubernetes.io/version"
NETDRA_PODS = "app.kubernetes.io/part-of=netdra"
"""What says of pods that they are netdra's, which process they run, and of which version they are."""


class Unseen(msgspec.Struct, frozen=True):
    """What could not be looked at, and why."""

    why: str


class Definition(msgspec.Struct, frozen=True):
    """A CustomResourceDefinition: whether it is there, served, and what of netdra's schema it lacks."""

    name: str
    there: bool = False
    established: bool = False
    differs: tuple[str, ...] = ()


class WebhookFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The webhook as the API server sees it.

    Attributes:
        configurations: name -> when the newest authority that it trusts ends; None if it trusts none.
        missing: configurations that are not there.
        answer: what became of an object that the webhook refuses: asked, unasked, or the error of asking.
    """

    configurations: Mapping[str, datetime | None] = {}
    missing: tuple[str, ...] = ()
    answer: str = "asked"


class KubernetesNode(msgspec.Struct, frozen=True):
    """A node's kubelet and container runtime."""

    name: str
    kubelet: str
    runtime: str


class Component(msgspec.Struct, frozen=True):
    """A pod of netdra's: its name, its part and its version, "" where labels do not say."""

    pod: str
    part: str
    version: str


class Reported(msgspec.Struct, frozen=True):
    """A node's NodeNetwork: how many problems it tells of, and the policies that it follows in an older form."""

    node: str
    problems: int = 0
    behind: tuple[str, ...] = ()


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster. Each part is what was seen, or why it was not.

    Attributes:
        server: the API server's version, `v1.37.1`.
        dra: the versions of resource.k8s.io that it serves, the preferred one first.
        features: what it keeps of a slice.
        definitions: netdra's kinds.
        webhook: see there.
        lacking: process -> the rights that it does not have.
        nodes: all nodes.
        components: netdra's pods.
        reports: what nodes say of themselves.
    """

    server: str
    namespace: str = "netdra"
    dra: tuple[str, ...] | Unseen = ()
    features: Features | Unseen = Unseen("not asked")
    definitions: tuple[Definition, ...] | Unseen = ()
    webhook: WebhookFacts | Unseen = Unseen("not asked")
    lacking: Mapping[str, tuple[str, ...]] | Unseen = {}
    nodes: tuple[KubernetesNode, ...] | Unseen = ()
    components: tuple[Component, ...] | Unseen = ()
    reports: tuple[Reported, ...] | Unseen = ()
