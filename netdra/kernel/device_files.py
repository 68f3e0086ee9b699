"""Whether a device file may be given to pods: those that the node's operator allows, without those never given.

Asked by `netdra.node.registry` for files that a provider registers, by `netdra.node.publishing` from time to time, and
again by the `device-file` step when a pod begins. A pod is given the device by the numbers that were inspected, so that
no other file can take its place afterwards. Numbers are those of Documentation/admin-guide/devices.txt.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from netdra.kernel.sysfs import Sysfs
from netdra.model.registration import DEVICES, DeviceFile, path_error

_MEMORY = 1
_HARMLESS = frozenset({3, 5, 7, 8, 9})
"""The memory devices null, zero, full, random, urandom. The others are the machine's memory, ports and log."""
_NEVER = frozenset({(10, 144), (10, 227), (10, 231), (10, 236)})
"""Firmware's memory (nvram), machine checks (mcelog), memory as it sleeps (snapshot), all disks (mapper/control)."""
_NEVER_MAJORS = frozenset({21, 90, 162, 202})
"""Disks and flash as character devices (sg, mtd, raw), and the registers of CPUs (msr)."""
_NEVER_SUBSYSTEMS = frozenset({"nvme", "nvme-generic", "scsi_generic", "bsg", "msr", "raw"})
"""The same for devices without fixed numbers: they give the whole disk, or the whole CPU."""
_ALLOW = "to allow it: netdra node --allow-device-file GLOB, chart value node.allowDeviceFiles"


def glob_error(glob: str) -> str:
    """The errors in a pattern of device files; "" if nothing is. A `*` stands for signs other than a slash."""
    parts = glob.split("/")
    if parts[:2] != ["", DEVICES.strip("/")] or len(parts) < 3:
        return f"is not absolute and below {DEVICES}"
    return 'has an empty part, "." or ".."' if any(part in ("", ".", "..") for part in parts[2:]) else ""


def number_of(path: str) -> tuple[int, int] | None:
    """The numbers of the character device at a path now, whether pods may have it or not; None if none exists."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    return (os.major(status.st_rdev), os.minor(status.st_rdev)) if stat.S_ISCHR(status.st_mode) else None


class DeviceFiles:
    """The files that a node's operator allows; nothing without a pattern."""

    def __init__(self, allowed: Sequence[str] = (), sysfs: Sysfs | None = None) -> None:
        """Remember the patterns; nothing is inspected yet.

        Args:
            allowed: patterns of absolute paths, e.g. /dev/fpga*.
            sysfs: where /sys is.
        """
        self._allowed = tuple(allowed)
        self._sysfs = sysfs or Sysfs()

    def look(self, path: str) -> DeviceFile:
        """Inspect a file now: its numbers, or why it is not given."""
        wrong = path_error(path)
        if wrong:
            return DeviceFile(problem=f"device file {wrong}", hint="use the path of a character device")
        if not self._allows(path):
            return DeviceFile(problem=f"device file {path} is not allowed on this node{self._shown()}", hint=_ALLOW)
        real = os.path.realpath(path)
        led = f" leads to {real}, which" if real != path else ""
        if led and (path_error(real) or not self._allows(real)):
            return DeviceFile(
                problem=f"device file {path}{led} is not allowed on this node{self._shown()}", hint=_ALLOW
            )
        try:
            # The target may be another link by now, which is then not a character device.
            seen = os.lstat(real)
        except (FileNotFoundError, NotADirectoryError):
            return DeviceFile(
                problem=f"device file {path} does not exist", hint="netdra offers it once it exists", missing=True
            )
        except OSError as problem:
            return DeviceFile(problem=f"device file {path} cannot be read: {problem.strerror}", hint="fix the path")
        if not stat.S_ISCHR(seen.st_mode):
            return DeviceFile(
                problem=f"device file {path}{led} is {_kind(seen.st_mode)}; only character devices are supported",
                hint="register the device's character device",
            )
        number = os.major(seen.st_rdev), os.minor(seen.st_rdev)
        if self._never(*number):
            return DeviceFile(
                problem=f"device file {path}{led} is device {number[0]}:{number[1]}, which pods never get, "
                "because it opens the node's memory, processors or disks",
                hint="register another device",
            )
        return DeviceFile(number=number)

    def _allows(self, path: str) -> bool:
        parts = path.split("/")
        return any(
            len(parts) == len(glob) and all(map(fnmatchcase, parts, glob))
            for glob in (allowed.split("/") for allowed in self._allowed)
        )

    def _shown(self) -> str:
        return f", which allows {', '.join(self._allowed)}" if self._allowed else ", which does not allow any"

    def _never(self, major: int, minor: int) -> bool:
        if major == _MEMORY:
            return minor not in _HARMLESS
        if major in _NEVER_MAJORS or (major, minor) in _NEVER:
            return True
        subsystem = self._sysfs.link_name(f"dev/char/{major}:{minor}/subsystem")
        return subsystem in _NEVER_SUBSYSTEMS


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISBLK, "a block device"), (stat.S_ISDIR, "a folder"), (stat.S_ISREG, "a plain file"))
    return next((name for matches, name in kinds if matches(mode)), "not a device")
