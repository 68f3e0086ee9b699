"""The topologies of the graph's tests, for the rules' tests."""

from __future__ import annotations

from tests.unit.topology.conftest import recorded, topology

__all__ = ["recorded", "topology"]
