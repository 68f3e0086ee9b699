"""How netdra knows its ports in Neutron again, and how operators recognise them. Pure.

A port's identity is its `device_owner`, its `device_id` (the claim's uid) and the beginning of its description, which
names the cluster and the NeutronPort. Names, the rest of the description and tags are for people and their tools:
nothing is decided by them. Ports of former versions have the NeutronPort's name as their own name.
"""

from __future__ import annotations

import re

import msgspec

OWNER = "netdra:vf"
"""The `device_owner` of ports that netdra makes or uses."""
MAX_FIELD = 255
"""The longest name, description and tag that Neutron stores."""
_BEGINNING = "netdra cluster="
_MARK = re.compile(r"netdra cluster=(?P<cluster>[^\s;]+) port=(?P<port>[^\s;]+)(; .*)?", re.DOTALL)
_UNSAFE = re.compile(r"[,\s\x00-\x1f\x7f]+")
"""Queries separate tags by commas; Neutron itself takes such a tag, and nobody can filter by it."""


class Mark(msgspec.Struct, frozen=True):
    """The maker of a port: the uid of the cluster, and the name of the NeutronPort."""

    cluster: str
    port: str


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """The texts of a port for people.

    Attributes:
        name: the port's name; without it, the NeutronPort's.
        text: the rest of its description.
        tags: its tags, in order.
    """

    name: str = ""
    text: str = ""
    tags: tuple[str, ...] = ()


def description(mark: Mark, text: str = "") -> str:
    """The description of a port.

    Args:
        mark: who made it.
        text: what people read after that; cut where it is too long.
    """
    beginning = f"{_BEGINNING}{mark.cluster} port={mark.port}"
    return f"{beginning}; {text}"[:MAX_FIELD] if text else beginning


def mark_of(owner: str, described: str, name: str) -> Mark | None:
    """The maker of a port; None for a port that is not netdra's.

    Args:
        owner: its `device_owner`.
        described: its description, of this version's form or of the former one's, which has the cluster alone.
    """
    if owner != OWNER:
        return None
    if match := _MARK.fullmatch(described):
        return Mark(match["cluster"], match["port"])
    cluster = described.removeprefix(_BEGINNING)
    return Mark(cluster, name) if cluster and cluster != described and not re.search(r"[\s;]", cluster) else None


def label(
    *, cluster: str, namespace: str, claim: str, pod: str, step: str, node: str, topology: str, device: str
) -> Label:
    """The texts of the port of a claim's VF for people.

    Args:
        cluster: the cluster's name, or its uid.
        namespace, claim: the claim's.
        pod: the pod that the claim was made for; "" for a claim that pods share.
        step: the root step of the topology.
        node: the Kubernetes node of the VF.
        device: the VF's device in ResourceSlices.
    """
    words = [*([f"pod {pod}"] if pod else []), f"namespace {namespace}", f"node {node}", f"claim {claim}"]
    tags = {"cluster": cluster, "namespace": namespace, "claim": claim, "pod": pod, "node": node, "topology": topology}
    return Label(
        name=f"{namespace}/{pod or claim}/{step}"[:MAX_FIELD],
        text=", ".join([*words, f"device {device}"]),
        tags=tuple(sorted(("netdra", *(_tag(f"netdra:{kind}={text}") for kind, text in tags.items() if text)))),
    )


def is_own_tag(tag: str) -> bool:
    """Whether a tag is one that netdra sets; all others are operators'."""
    return tag == "netdra" or tag.startswith("netdra:")


def _tag(text: str) -> str:
    return _UNSAFE.sub("_", text)[:MAX_FIELD]
