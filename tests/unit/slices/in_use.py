"""Devices in use, as a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from netdra.slices.exclusion import DeviceKey, Holding


class InUse(NamedTuple):
    """The uses of devices by others."""

    holdings: Sequence[Holding] = ()

    def of(self, key: DeviceKey) -> Sequence[Holding]:
        """The uses of a device."""
        return [holding for holding in self.holdings if holding.key == key]

    def has(self, key: DeviceKey) -> bool:
        """Whether a device is in use."""
        return bool(self.of(key))
