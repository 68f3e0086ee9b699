"""The report of one boot of the machine to the next one on the pods that it left, in a file on the disk."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.hardware.real.worker import FOLDER

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_FILE = FOLDER / "left.json"


class Left(msgspec.Struct, frozen=True):
    """Pods of a node that is started again.

    Attributes:
        boot_id: of the boot that they began in.
        namespace: theirs.
        sandboxes: pod -> its sandbox.
        containers: pod -> its container.
        devices: pod -> what its claim, of the same name, has.
    """

    boot_id: str
    namespace: str
    sandboxes: dict[str, str]
    containers: dict[str, str]
    devices: dict[str, list[str]]


def boot_id() -> str:
    """This boot's id."""
    return BOOT_ID.read_text().strip()


def leave(left: Left) -> None:
    """Write the report for the next boot."""
    _FILE.write_bytes(msgspec.json.encode(left))


def found() -> Left:
    """The report of the boot before.

    Raises:
        FileNotFoundError: this is the first boot.
    """
    return msgspec.json.decode(_FILE.read_bytes(), type=Left)
