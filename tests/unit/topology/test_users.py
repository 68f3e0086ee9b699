"""Claims use the topologies of the classes that they were allocated through, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from netdra.model import documents
from netdra.model.claim import ClaimState, ClaimUse
from netdra.topology.users import is_attached, topologies_of


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


def test_topologies_named_by_claim_authors_or_for_other_drivers_are_ignored() -> None:
    assert not topologies_of(claim("a", config({"name": "x"}, source="FromClaim")))
    assert not topologies_of(claim("a", config({"name": "x"}, driver="gpu.example.com")))
    assert not topologies_of(claim("a", config(7)))


def test_a_claim_that_is_not_allocated_uses_nothing() -> None:
    assert not topologies_of(documents.convert({"metadata": {"name": "a"}}, ClaimUse, "test"))


@pytest.mark.parametrize(
    ("devices", "attached"),
    [
        ([], False),
        ([("dra.networking", "True", None)], True),
        ([("dra.networking", "False", None)], False),
        ([("gpu.example.com", "True", None)], False),
        ([("dra.networking", "False", None), ("dra.networking", "True", None)], True),
        # Pods share the claim: one of them failed, and the other one has its interface.
        ([("dra.networking", "False", {"interfaceName": "net1"})], True),
    ],
)
def test_a_claim_is_attached_when_a_pod_has_a_device_of_it(devices: list[Any], attached: bool) -> None:
    said = [
        {
            "driver": driver,
            "pool": "p",
            "device": f"d{at}",
            "conditions": [{"type": "Ready", "status": ready}],
            **({"networkData": data} if data else {}),
        }
        for at, (driver, ready, data) in enumerate(devices)
    ]
    claim = documents.convert({"metadata": {"name": "a"}, "status": {"devices": said}}, ClaimState, "test")
    assert is_attached(claim) is attached
