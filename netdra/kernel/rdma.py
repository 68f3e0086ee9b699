"""RDMA devices: their netdevs and PCI devices (sysfs), and moving one between namespaces (netlink).

Follows rdma(8) and include/uapi/rdma/rdma_netlink.h. Discovery reads, the rdma step moves.
"""

from __future__ import annotations

from netdra.kernel.errors import KernelMissingError
from netdra.kernel.netlink import NETLINK_RDMA, Socket, attribute, attributes, to_text, to_u8, to_u32, u32
from netdra.kernel.sysfs import Sysfs, printable

NETNS_MODES = ("exclusive", "shared")
_NLDEV = 5 << 10
_GET, _SET, _SYS_GET = (_NLDEV | command for command in (1, 2, 6))
_DEVICE_INDEX, _DEVICE_NAME, _NETNS_MODE, _NETNS_FD = 1, 2, 66, 68


def devices(sysfs: Sysfs) -> dict[str, tuple[str, str]]:
    """RDMA devices by name, each with its PCI address and the netdev that it is bound to; "" where sysfs has none.

    A device over PCI shows its parent as a link; a device in software (rxe, siw) names its netdev in a file.
    """
    by_name: dict[str, tuple[str, str]] = {}
    for name in sysfs.listing("class/infiniband"):
        folder = f"class/infiniband/{name}"
        parent = sysfs.text(f"{folder}/parent") or _first_netdev(sysfs, folder)
        device = sysfs.link_name(f"{folder}/device")
        by_name[printable(name)] = (device if isinstance(device, str) else "", parent)
    return by_name


def netns_mode(sock: Socket) -> str:
    """The system's mode: "shared" (every namespace sees all RDMA devices) or "exclusive" (a device is in one).

    Raises:
        KernelError: the kernel refused.
    """
    replies = sock.request(_SYS_GET, b"", doing="cannot read the RDMA namespace mode")
    mode = attributes(replies[0]).get(_NETNS_MODE) if replies else None
    return NETNS_MODES[1 if mode is None or to_u8(mode) else 0]


def index_of(sock: Socket, name: str) -> int:
    """The index of the RDMA device of that name in the socket's namespace.

    Raises:
        KernelMissingError: none exists.
        KernelError: the kernel refused.
    """
    for body in sock.dump(_GET, b"", doing="cannot list RDMA devices"):
        fields = attributes(body)
        if to_text(fields.get(_DEVICE_NAME, b"")) == name:
            return to_u32(fields[_DEVICE_INDEX])
    raise KernelMissingError(19, f'cannot find RDMA device "{name}"')


def move(sock: Socket, name: str, netns_fd: int) -> None:
    """Move an RDMA device into a namespace; only in mode "exclusive", and before its netdev.

    Raises:
        KernelMissingError: no such device in the socket's namespace exists.
        KernelError: the mode is "shared", the device is in use, or the kernel refused.
    """
    body = attribute(_DEVICE_INDEX, u32(index_of(sock, name))) + attribute(_NETNS_FD, u32(netns_fd))
    sock.request(_SET, body, doing=f'cannot move RDMA device "{name}"')


def open_socket() -> Socket:
    """A NETLINK_RDMA socket in the calling thread's namespace.

    Raises:
        KernelError: this kernel has no RDMA.
    """
    return Socket(NETLINK_RDMA)


def _first_netdev(sysfs: Sysfs, folder: str) -> str:
    for port in sysfs.listing(f"{folder}/ports"):
        name = sysfs.text(f"{folder}/ports/{port}/gid_attrs/ndevs/0")
        if name:
            return name
    return ""
