"""A fresh cluster of one node for an image, of the sources or of a release; netdra is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from testbed.node import Node
from testbed.site import Site, opened, settings
from tests.cluster.conftest import StartControlPlane
from tests.cluster.pods.conftest import logs_shown


@contextmanager
def fresh_site(
    config: pytest.Config, start_control_plane: StartControlPlane, folder: Path, archive: Path
) -> Iterator[tuple[Site, Node]]:
    """The cluster, and its node; the node's logs are shown with a test that fails."""
    socket = folder / "proxy"
    plane = start_control_plane(settings(socket))
    with (
        closing(plane.client()) as api,
        Node("node-1", folder=folder / "node") as node,
        logs_shown(config, node),
        opened(plane, api, node, socket, archive) as site,
    ):
        yield site, node
