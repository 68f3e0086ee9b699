"""Topologies for tests: written short, as YAML, or the recorded ones beside this file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from netdra.model import documents
from netdra.model.topology import NetworkTopology
from tests import builders

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def topology() -> Callable[..., NetworkTopology]:
    """See `tests.builders`."""
    return builders.topology


@pytest.fixture(scope="session")
def recorded() -> Callable[[str], NetworkTopology]:
    """One of the topologies in `topologies/`, by name."""

    def read(name: str) -> NetworkTopology:
        (found,) = documents.read((HERE / "topologies" / f"{name}.yaml").read_text(), name)
        assert isinstance(found, NetworkTopology)
        return found

    return read
