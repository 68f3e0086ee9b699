"""The initramfs that turns the host's root into the guest's: busybox, a handful of kernel modules and `init`.

Written by `testbed.vm.machine` before each boot. The format is the kernel's "newc" cpio archive
(Documentation/driver-api/early-userspace/buffer-format.rst), uncompressed: unpacking costs more under emulation.
"""

from __future__ import annotations

import lzma
import stat
from collections.abc import Iterator
from pathlib import Path

from testbed.vm.ingredients import Ingredients, run

# The modules to mount the root, and those that the tests need; other ones are loaded from the root.
MODULES = (
    *("9pnet_virtio", "9p", "overlay", "virtio_net", "virtio_blk", "ext4"),
    *("igb", "igbvf", "vfio-pci", "rdma_rxe", "openvswitch"),
    *("bonding", "8021q", "macvlan", "ipvlan", "dummy", "veth", "bridge", "vxlan"),
)
_INIT = Path(__file__).with_name("init.sh")
_FOLDERS = ("dev", "proc", "host", "extras", "memory", "guest")


def write(target: Path, ingredients: Ingredients) -> None:
    """Write the archive to `target`.

    Raises:
        IngredientError: the kernel has no module of one of those names.
    """
    modules = [(f"module-{order:02}.ko", body) for order, body in enumerate(_modules(ingredients))]
    files = [("init", _INIT.read_bytes()), ("busybox", ingredients.busybox.read_bytes()), *modules]
    with target.open("wb") as archive:
        for folder in _FOLDERS:
            archive.write(_entry(folder, stat.S_IFDIR | 0o755, b""))
        for name, body in files:
            archive.write(_entry(name, stat.S_IFREG | 0o755, body))
        archive.write(_entry("TRAILER!!!", 0, b""))


def _modules(ingredients: Ingredients) -> Iterator[bytes]:
    """The modules with all that they need, in an order in which each can be inserted.

    They are uncompressed here, where it takes a tenth of a second; the guest would need three.
    """
    kernel = ingredients.kernel
    modprobe = (str(ingredients.modprobe), "--config", "/dev/null", "--dirname", str(kernel.root))
    listed = run(*modprobe, "--set-version", kernel.release, "--show-depends", "--all", *MODULES)
    for line in dict.fromkeys(listed.splitlines()):
        verb, path = line.split()[:2]
        if verb == "insmod":
            body = Path(path).read_bytes()
            yield lzma.decompress(body) if path.endswith(".xz") else body


def _entry(name: str, mode: int, body: bytes) -> bytes:
    encoded = name.encode() + b"\0"
    # inode, mode, uid, gid, nlink, mtime, size, device and node numbers, length of the name, no checksum
    fields = (0, mode, 0, 0, 1, 0, len(body), 0, 0, 0, 0, len(encoded), 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + encoded
    return _padded(head) + _padded(body)


def _padded(part: bytes) -> bytes:
    return part + b"\0" * (-len(part) % 4)
