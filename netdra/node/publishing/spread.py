"""Spread what all nodes do at the same moment, an edit of a policy, over a window that grows with their number.

Used by `netdra.node.publishing.service`. Up to a few hundred nodes an API server takes the writes of all at once; with
thousands, each would wait for the others, and timeouts and retries would come on top. Work of a single node is
never delayed.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random

from netdra.kube.client import Client
from netdra.kube.resources import NODE_NAMES
from netdra.model.errors import NetdraError

log = logging.getLogger(__name__)

AT_ONCE = 500
"""How many nodes may write at the same moment."""
SECONDS_A_NODE = 0.01
"""By how much the window grows with each further node: an API server takes some 15 ms of CPU for a slice."""
MOST_SECONDS = 45.0
COUNTED_SECONDS = 900.0
"""Seconds between two counts of the cluster's nodes."""


def window(nodes: int) -> float:
    """The seconds over which the writes of so many nodes are spread."""
    return min(MOST_SECONDS, max(0, nodes - AT_ONCE) * SECONDS_A_NODE)


def place(node: str) -> float:
    """A node's place in the window, from 0 to below 1: the same each time, so that progress can be foreseen."""
    return int.from_bytes(hashlib.sha256(node.encode()).digest()[:4], "big") / 2**32


class Spread:
    """One node's share of the window."""

    def __init__(self, client: Client, node: str) -> None:
        """Begin without a delay: the nodes are not counted yet."""
        self._client = client
        self._node = node
        self._nodes = 0

    @property
    def delay(self) -> float:
        """The seconds that this node waits before it follows an edit that concerns all nodes."""
        return place(self._node) * window(self._nodes)

    async def run(self) -> None:
        """Count the nodes now and then, until cancelled; while they cannot be counted, the last count holds."""
        while True:
            try:
                self._nodes = await self._client.count(NODE_NAMES)
            except NetdraError as problem:
                log.info("the nodes cannot be counted: %s", problem)
            await asyncio.sleep(COUNTED_SECONDS * (0.5 + random.random()))  # noqa: S311 (no secret)
