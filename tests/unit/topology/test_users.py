"""Claims use the topologies of the classes that they were allocated through, and no others."""

from __future__ import annotations

from typing import Any

from netdra.model import documents
from netdra.model.claim import ClaimUse
from netdra.topology.users import topologies_of, users


def claim(name: str, *config: dict[str, Any]) -> ClaimUse:
    devices = {"results": [{"request": "a", "driver": "d", "pool": "p", "device": "x"}], "config": list(config)}
    value = {"metadata": {"name": name, "namespace": "ns"}, "status": {"allocation": {"devices": devices}}}
    return documents.convert(value, ClaimUse, "test")


def config(topology: Any, source: str = "FromClass", driver: str = "dra.networking") -> dict[str, Any]:
    return {
        "source": source,
        "opaque": {"driver": driver, "parameters": {"networkTopologyRef": topology, "step": "vf0"}},
    }


def test_configuration_of_classes_counts() -> None:
    both = claim("a", config({"name": "x"}), config({"name": "y"}))
    assert topologies_of(both) == {"x", "y"}


def test_what_authors_or_other_drivers_wrote_does_not_count() -> None:
    assert not topologies_of(claim("a", config({"name": "x"}, source="FromClaim")))
    assert not topologies_of(claim("a", config({"name": "x"}, driver="gpu.example.com")))
    assert not topologies_of(claim("a", config(7)))


def test_a_claim_that_is_not_allocated_uses_nothing() -> None:
    assert not topologies_of(documents.convert({"metadata": {"name": "a"}}, ClaimUse, "test"))


def test_users_are_named_by_topology_and_in_order() -> None:
    one, two = claim("b", config({"name": "x"})), claim("a", config({"name": "x"}), config({"name": "y"}))
    assert users([one, two]) == {"x": ("ns/a", "ns/b"), "y": ("ns/a",)}
