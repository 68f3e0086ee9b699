"""Topologies for tests: written short, as YAML, or those of the documents."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from netdra.model import documents
from netdra.model.topology import NetworkTopology
from tests import builders
from tests.documents import TOPOLOGIES


@pytest.fixture(scope="session")
def topology() -> Callable[..., NetworkTopology]:
    """See `tests.builders`."""
    return builders.topology


@pytest.fixture(scope="session")
def recorded() -> Callable[[str], NetworkTopology]:
    """One of the documents' topologies, by name."""

    def read(name: str) -> NetworkTopology:
        (found,) = documents.read((TOPOLOGIES / f"{name}.yaml").read_text(), name)
        assert isinstance(found, NetworkTopology)
        return found

    return read
