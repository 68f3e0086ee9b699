"""Which hardware each published device is, kept from boot to boot (decision D60).

Devices are called after their netdevs. After a boot with other kernel names, the name of an allocated device may belong
to other hardware. Publishing notes the hardware of each device here; Prepare asks whether it has changed since a claim
was allocated. A device without hardware behind it (a bridge, a veth) is not noted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from netdra.model.errors import UNREADABLE, NetdraError
from netdra.model.identity import PCI, DeviceIdentity
from netdra.model.plan import PlannedDevice
from netdra.ops import files
from netdra.topology.devices import DeviceKey

log = logging.getLogger(__name__)

FILE = "hardware.json"
"""In the state folder of the daemon."""
VERSION = 1
_MOST = 16384
_SECONDS = 2.0


class Hardware(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The hardware that a device's name stands for.

    Attributes:
        pool: the device's pool.
        device: its name.
        now: its identity.
        former: the identity of the hardware that had the name before; None without any.
        since: when `now` was published first, by the API server's clock, in seconds since the epoch.
    """

    pool: str
    device: str
    now: DeviceIdentity
    former: DeviceIdentity | None = None
    since: float = 0.0


class _Content(msgspec.Struct, frozen=True, kw_only=True):
    version: int = VERSION
    devices: tuple[Hardware, ...] = ()


class HardwareTable:
    """The hardware of each device that this node has published. `note` is for one thread at a time."""

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = lambda: 0.0) -> None:
        """Read the table.

        Args:
            path: its file; without one, nothing is kept.
            clock: the time by the API server's clock, in seconds since the epoch: allocations are dated by it, and the
                clock of this machine may be wrong.
        """
        self._path, self._clock = path, clock
        self._devices: dict[DeviceKey, Hardware] = {}
        self._is_written = True
        if path is None:
            return
        try:
            content = msgspec.json.decode(path.read_bytes(), type=_Content)
            self._devices = {(entry.pool, entry.device): entry for entry in content.devices}
        except FileNotFoundError:
            pass
        except (OSError, *UNREADABLE) as problem:
            log.warning("%s cannot be read: %s; changes of hardware before this start are not noticed", path, problem)

    def note(self, devices: Mapping[DeviceKey, PlannedDevice]) -> None:
        """Note the hardware of devices that are about to be published, and write the table if it has changed."""
        clock = self._clock()
        for (pool, name), device in devices.items():
            if device.pooled or not device.key:
                continue
            identity = lasting(device)
            entry = self._devices.get((pool, name))
            if entry is None:
                entry = Hardware(pool=pool, device=name, now=identity)
            elif not entry.now.is_same(identity):
                log.warning('device "%s" of pool "%s" is %s now, not %s', name, pool, identity, entry.now)
                entry = Hardware(pool=pool, device=name, now=identity, former=entry.now, since=clock)
            else:
                known = identity if identity.permanent_mac or not entry.now.permanent_mac else entry.now
                # A time in the future is that of a machine whose clock was ahead.
                entry = msgspec.structs.replace(entry, now=known, since=min(entry.since, clock))
            if entry != self._devices.get((pool, name)):
                self._devices.pop((pool, name), None)
                self._devices[pool, name] = entry
                self._is_written = False
        self._write()

    def of(self, key: DeviceKey) -> Hardware | None:
        """The hardware of a device; None if it was never published, or has no hardware."""
        return self._devices.get(key)

    def _write(self) -> None:
        if self._is_written or self._path is None:
            return
        for key in list(self._devices)[: max(0, len(self._devices) - _MOST)]:
            del self._devices[key]
        try:
            content = msgspec.json.encode(_Content(devices=tuple(self._devices.values())))
            files.replace(self._path, content, _SECONDS)
        except (OSError, NetdraError) as problem:
            log.warning("the hardware of this node's devices is not written, and tried again: %s", problem)
        else:
            self._is_written = True


def lasting(device: PlannedDevice) -> DeviceIdentity:
    """The identity of a device as far as it stays over boots: a VF may have another permanent MAC each time."""
    identity = device.identity or DeviceIdentity(bus=PCI, address=device.pci_address)
    return msgspec.structs.replace(identity, permanent_mac="") if device.type == "vf" else identity
