"""A folder whose path is short enough for a socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """A driver's state folder."""
    with TemporaryDirectory(prefix="registry-") as path:
        yield Path(path)
