"""The lab's objects: policies, a topology and a claim, chosen by the kernel's abilities.

The files are under `scenarios/`, a folder each, so they can be read, copied and changed by users. Called by `demo`.
"""

from __future__ import annotations

from importlib import resources
from typing import TypeVar

import msgspec

from netdra.lab.node import Kinds
from netdra.model import documents
from netdra.model.claim import ResourceClaim
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.topology import NetworkTopology

WANTED_KINDS = ("bond", "vlan", "macvlan", "bridge")
_RICHEST = ("bond", "vlan")

T = TypeVar("T")


class Scenario(msgspec.Struct, frozen=True):
    """One story: why it was chosen, and the objects that a platform team and an application's author would write."""

    name: str
    why: str
    policies: tuple[DeviceExposurePolicy, ...]
    topology: NetworkTopology
    claim: ResourceClaim


def choose(kinds: Kinds) -> Scenario:
    """The richest scenario that the kernel supports."""
    missing = [kind for kind in _RICHEST if kind not in kinds.available]
    if not missing:
        return load("bonded-vlans", "the kernel makes bonds and VLANs, so two NICs become a bond with two VLANs on it")
    why = f"the kernel makes no {' and no '.join(missing)}, so a NIC carries a macvlan, and a bridge gives a port"
    return load("macvlan-and-bridge", why)


def load(name: str, why: str) -> Scenario:
    """The scenario of that name."""
    folder = resources.files("netdra.lab") / "scenarios" / name

    def objects(file: str, kind: type[T]) -> tuple[T, ...]:
        read = documents.read((folder / file).read_text(), f"{name}/{file}")
        return tuple(document for document in read if isinstance(document, kind))

    (topology,) = objects("topology.yaml", NetworkTopology)
    (claim,) = objects("claim.yaml", ResourceClaim)
    return Scenario(name, why, objects("policies.yaml", DeviceExposurePolicy), topology, claim)
