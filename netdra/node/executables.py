"""The kernel's requirements to run a file: the machine that it is built for, and its loader or interpreter.

Called by `netdra.node.installer`, so that a plugin that cannot run is refused with the reason, before it is run:
execve(2) fails with ENOENT for a file that exists and whose loader does not. Follows elf(5) and execve(2).
"""

from __future__ import annotations

import os
import platform
import struct
from pathlib import Path
from typing import BinaryIO, Literal

from netdra.model.errors import PermanentError

# e_machine of the ELF header (elf.h), by the machine of uname(2).
MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243, "ppc64le": 21, "s390x": 22, "armv7l": 40, "i686": 3}
_ELF = b"\x7fELF"
_HEAD = 64
_MAX_LINE = 256
"""Bytes of a script's first line that the kernel reads (BINPRM_BUF_SIZE)."""
_MAX_SEGMENTS, _MAX_PATH = 128, 4096
_MAX_PLACE = 1 << 40  # file systems refuse to look beyond their largest file
_INTERPRETER = 3
"""PT_INTERP."""


def check(path: Path) -> None:
    """Refuse a file that this machine cannot run, or that needs a program that is not here.

    Raises:
        PermanentError: it cannot be run here.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD)
        needed = interpreter(file)
    machine = platform.machine()
    if head.startswith(_ELF) and len(head) >= 20 and machine in MACHINES:
        built_for = int.from_bytes(head[18:20], _order(head))
        if built_for != MACHINES[machine]:
            name = next((name for name, number in MACHINES.items() if number == built_for), f"machine {built_for}")
            raise PermanentError(
                f"{path} in the image is for {name}, and this node is {machine}",
                hint="use an image that has this architecture, or choose other nodes",
                code="ND2181",
            )
    if not needed or os.path.exists(needed):  # noqa: PTH110 (whatever is wrong with the path, it is not there)
        return
    if head.startswith(_ELF):
        raise PermanentError(
            f"{path} in the image is linked dynamically, and its loader {needed} is not in netdra's image",
            hint="link it statically (Go: CGO_ENABLED=0); the nodes may lack the loader, too",
            code="ND2182",
        )
    raise PermanentError(
        f"{path} in the image is a script for {needed}, which is not in netdra's image",
        hint="use a program that needs no interpreter",
        code="ND2183",
    )


def interpreter(file: BinaryIO) -> str:
    """The absolute path of the loader that an ELF file names, or of the interpreter of a script; "" for none."""
    file.seek(0)
    head = file.read(_MAX_LINE)
    if head.startswith(b"#!"):
        words = head.partition(b"\n")[0][2:].split(maxsplit=1)
        return _path(words[0]) if words else ""
    if not head.startswith(_ELF):
        return ""
    try:
        return _path(_loader(file, head))
    except struct.error:  # cut off: the kernel refuses it
        return ""


def _loader(file: BinaryIO, head: bytes) -> bytes:
    mark = "<" if _order(head) == "little" else ">"
    is_wide = head[4:5] == b"\2"
    if is_wide:
        start, size, count = *struct.unpack_from(f"{mark}Q", head, 32), *struct.unpack_from(f"{mark}HH", head, 54)
    else:
        start, size, count = *struct.unpack_from(f"{mark}I", head, 28), *struct.unpack_from(f"{mark}HH", head, 42)
    for number in range(min(count, _MAX_SEGMENTS)):
        segment = _read(file, start + number * size, 56 if is_wide else 32)
        if struct.unpack_from(f"{mark}I", segment)[0] == _INTERPRETER:
            place, *_, length = struct.unpack_from(
                f"{mark}QQQQ" if is_wide else f"{mark}IIII", segment, 8 if is_wide else 4
            )
            return _read(file, place, min(length, _MAX_PATH)).partition(b"\0")[0]
    return b""


def _read(file: BinaryIO, place: int, size: int) -> bytes:
    if place > _MAX_PLACE:
        return b""
    file.seek(place)
    return file.read(size)


def _path(text: bytes) -> str:
    """An absolute path; what is relative or cannot be shown is left to the kernel."""
    path = text.decode(errors="replace")
    return path if path.startswith("/") and path.isprintable() else ""


def _order(head: bytes) -> Literal["little", "big"]:
    return "little" if head[5:6] == b"\1" else "big"
