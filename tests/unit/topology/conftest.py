"""Topologies for tests: written short, as YAML, or the recorded ones beside this file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from netdra.model import documents
from netdra.model.topology import NetworkTopology

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def topology() -> Callable[..., NetworkTopology]:
    """A topology from its steps in YAML; a step without `dependOn` gets a selector unless it has one."""

    def made(steps: str, name: str = "net") -> NetworkTopology:
        written = yaml.safe_load(steps)
        for step in written:
            if not step.get("dependOn") and step.setdefault("selector", {"cel": "true"}) is None:
                del step["selector"]
        return documents.convert(
            {
                "apiVersion": "networking.dra.io/v1alpha1",
                "kind": "NetworkTopology",
                "metadata": {"name": name},
                "spec": {"steps": written},
            },
            NetworkTopology,
            "test",
        )

    return made


@pytest.fixture(scope="session")
def recorded() -> Callable[[str], NetworkTopology]:
    """One of the topologies in `topologies/`, by name."""

    def read(name: str) -> NetworkTopology:
        (found,) = documents.read((HERE / "topologies" / f"{name}.yaml").read_text(), name)
        assert isinstance(found, NetworkTopology)
        return found

    return read
