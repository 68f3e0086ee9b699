"""The parts of a device's configuration that its pod can keep: the words of policies and steps, and their rules.

A device that moves into a pod loses its addresses and routes (`netdra.steps.moving`); it gets them back on the node
afterwards. With `keep`, the pod has them meanwhile (`netdra.steps.keeping`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec

Keep = Literal["addresses", "routes", "rules", "neighbours", "mtu"]
KeepList = Annotated[tuple[Keep, ...], msgspec.Meta(max_length=5)]
KEEPING_TYPES = ("host-device", "rdma", "sriov")
"""The types of steps that can: netdra itself must carry them out, and they move the device's netdev."""
ADDRESSING = frozenset({"address", "route"})
"""The uses by the host (`netdra.kernel.host_use`) that a device has merely because it is configured."""
_NEEDS: tuple[tuple[Keep, Keep, str], ...] = (
    ("routes", "addresses", "a route needs an address to be reached from"),
    ("rules", "routes", "rules choose among routes"),
)


def faults(keep: Sequence[Keep]) -> Iterator[tuple[str, str]]:
    """The errors in a list by itself, each with the next step."""
    for at, word in enumerate(keep):
        if word in keep[:at]:
            yield f'"{word}" occurs twice', "remove one of them"
    for word, needed, why in _NEEDS:
        if word in keep and needed not in keep:
            yield f'"{word}" without "{needed}": {why}', f"add {needed}, or remove {word}"
