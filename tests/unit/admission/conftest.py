"""Requests as the API server sends them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from netdra.admission.messages import NOTHING, AdmissionRequest, Kind
from netdra.model import documents
from netdra.model.topology import NetworkTopology
from testbed import yaml
from tests import builders
from tests.documents import GRAPH

_NUMBERS = itertools.count()

Request = Callable[..., AdmissionRequest]


@pytest.fixture(scope="session")
def request_of() -> Request:
    """A request to write an object: CREATE, or UPDATE where there is an old one."""

    def made(new: Any, old: Any = None) -> AdmissionRequest:
        plain, before = documents.plain(new), documents.plain(old) if old is not None else None
        group, _, version = plain["apiVersion"].rpartition("/")
        return AdmissionRequest(
            uid=f"uid-{next(_NUMBERS)}",
            kind=Kind(group, version, plain["kind"]),
            operation="CREATE" if old is None else "UPDATE",
            name=plain["metadata"].get("name", ""),
            object=msgspec.Raw(msgspec.json.encode(plain)),
            old_object=msgspec.Raw(msgspec.json.encode(before)) if before is not None else NOTHING,
        )

    return made


@pytest.fixture(scope="session")
def recorded() -> Callable[[str], Any]:
    """A topology or claim of the documents, as plain data."""

    def read(name: str) -> Any:
        return yaml.safe_load((GRAPH / name).read_text())

    return read


@pytest.fixture(scope="session")
def topology() -> Callable[..., NetworkTopology]:
    """A topology by its name and its steps in YAML."""
    return lambda name, steps, **metadata: builders.topology(steps, name, **metadata)
