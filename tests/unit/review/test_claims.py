"""Guesses at the DeviceClass that a claim means."""

from __future__ import annotations

import pytest

from netdra.model import documents
from netdra.model.claim import ResourceClaim
from netdra.model.topology import NetworkTopology
from netdra.review.objects import review
from netdra.review.world import World
from netdra.topology.classes import known_classes


def topology(name: str) -> NetworkTopology:
    steps = [{"name": "lan", "type": "macvlan", "selector": {"cel": "true"}}]
    value = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "NetworkTopology", "metadata": {"name": name}}
    return documents.convert(value | {"spec": {"steps": steps}}, NetworkTopology, "test")


def claim(class_name: str) -> ResourceClaim:
    requests = [{"name": "lan", "exactly": {"deviceClassName": class_name}}]
    value = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}
    return documents.convert(value | {"spec": {"devices": {"requests": requests}}}, ResourceClaim, "test")


@pytest.mark.parametrize(
    ("made", "named", "meant"),
    [
        ("prod-data", "data-lan", "prod-data-lan"),  # kustomize's namePrefix
        ("data", "prod-data-lan", "data-lan"),
        ("data", "data-lam", "data-lan"),
        ("data", "lan", ""),
        ("data", "gpu.example.com", ""),
    ],
)
def test_an_unknown_class_is_compared_with_those_of_topologies(made: str, named: str, meant: str) -> None:
    topologies = {made: topology(made)}
    found = review(claim(named), World(topologies=topologies, classes=known_classes(topologies.values(), ())))
    assert found.errors == ()
    assert [warning.hint for warning in found.warnings] == ([f'did you mean "{meant}"?'] if meant else [])
