"""The network namespaces of a node and of a pod."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kernel.conftest import Machine, new_machine


@pytest.fixture
def machine() -> Iterator[Machine]:
    """The node's network namespace."""
    yield from new_machine()


@pytest.fixture
def other() -> Iterator[Machine]:
    """A pod's network namespace."""
    yield from new_machine()
