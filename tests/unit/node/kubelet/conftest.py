"""A kubelet's folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture
def root() -> Iterator[Path]:
    """A kubelet's root folder, by a path short enough for sockets."""
    with TemporaryDirectory(prefix="kubelet-") as folder:
        (Path(folder) / "plugins_registry").mkdir()
        yield Path(folder)
