"""The counters of RDMA ports, in sysfs.

Follows the kernel's Documentation/ABI/stable/sysfs-class-infiniband: `counters` are those of InfiniBand's performance
management, `hw_counters` those of the driver. Data is counted in words of four bytes there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from netdra.kernel.sysfs import Sysfs

_ROOT = "class/infiniband"
_FOLDERS = ("counters", "hw_counters")
_WORDS = frozenset({"port_rcv_data", "port_xmit_data"})
_NO_COUNTERS = frozenset({"lifespan"})
MOST_COUNTERS = 128
"""How many counters of a port are read; drivers have 20 to 60."""


class PortCounter(NamedTuple):
    """A counter of a port; data is in bytes."""

    port: str
    name: str
    value: int


def of_device(sysfs: Sysfs, device: str) -> tuple[PortCounter, ...]:
    """The counters of an RDMA device's ports; none if the device is not visible here or its driver has none."""
    return tuple(
        counter for port in sysfs.listing(f"{_ROOT}/{device}/ports") for counter in _of_port(sysfs, device, port)
    )


def _of_port(sysfs: Sysfs, device: str, port: str) -> Iterator[PortCounter]:
    seen: set[str] = set()
    for folder in _FOLDERS:
        path = f"{_ROOT}/{device}/ports/{port}/{folder}"
        for name in sysfs.listing(path):
            if name in _NO_COUNTERS or name in seen or len(seen) >= MOST_COUNTERS:
                continue
            text = sysfs.text(f"{path}/{name}")
            if text.isascii() and text.isdecimal():
                seen.add(name)
                yield PortCounter(port, name, int(text) * 4 if name in _WORDS else int(text))
