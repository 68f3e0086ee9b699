"""RDMA devices: their netdevs and PCI devices (sysfs), their names, users and settings, and moving one (netlink).

Follows rdma(8) and include/uapi/rdma/rdma_netlink.h. Discovery reads, the rdma step moves.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import msgspec

from netdra.kernel.errors import KernelError, KernelMissingError
from netdra.kernel.netlink import (
    NETLINK_RDMA,
    Socket,
    attribute,
    attribute_list,
    attributes,
    text,
    to_text,
    to_u8,
    to_u32,
    u32,
)
from netdra.kernel.sysfs import Sysfs, printable

NETNS_MODES = ("exclusive", "shared")
_NLDEV = 5 << 10
_GET, _SET, _SYS_GET, _RESOURCES_GET = (_NLDEV | command for command in (1, 2, 6, 9))
_DEVICE_INDEX, _DEVICE_NAME, _NETNS_MODE, _NETNS_FD = 1, 2, 66, 68
_NODE_GUID, _ADAPTIVE = 6, 84
_SUMMARY, _SUMMARY_ENTRY, _SUMMARY_NAME, _SUMMARY_CURRENT = 15, 16, 17, 18


class RdmaDevice(msgspec.Struct, frozen=True, kw_only=True):
    """An RDMA device of a namespace.

    Attributes:
        index: its number, which it keeps under any name and in any namespace, until its driver removes it.
        name: its name, which no other device of the machine has at a time.
        node_guid: the GUID of its node, a 64 bit number.
        adaptive: whether completion queues moderate their interrupts by themselves; None if the kernel has no setting.
    """

    index: int
    name: str
    node_guid: int = 0
    adaptive: bool | None = None


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


class GidTable(NamedTuple):
    """The table of a RoCE port's GIDs: the addresses under which peers reach the port.

    The kernel enters each address of the port's netdev and of all links that stand on it, in any namespace, once for
    each version of RoCE (drivers/infiniband/core/roce_gid_mgmt.c). When the table is full, further addresses are not
    entered, and RDMA is not possible with them.

    Attributes:
        entries: how many the port has.
        versions: for how many versions of RoCE the port enters an address: 2 for v1 and v2, else 1.
    """

    entries: int = 0
    versions: int = 0


_NO_TABLE = GidTable()
_FIRST = 8  # entries; the port's own link has one for each version at the beginning of the table
_BOTH = 2


def gid_table(sysfs: Sysfs, name: str) -> GidTable:
    """The GID table of an RDMA device's first port; (0, 0) for a port that is not RoCE.

    If no entry can be read, both versions are assumed: most NICs have both.
    """
    folder = f"class/infiniband/{name}/ports/1"
    if sysfs.text(f"{folder}/link_layer") != "Ethernet":
        return _NO_TABLE
    entries = sum(entry.isdecimal() for entry in sysfs.listing(f"{folder}/gids"))
    types = {sysfs.text(f"{folder}/gid_attrs/types/{entry}") for entry in range(min(entries, _FIRST))} - {""}
    return GidTable(entries, min(len(types), _BOTH) or _BOTH) if entries else _NO_TABLE


def system_mode() -> str:
    """The machine's mode, as `netns_mode`; "" where it cannot be read, or the kernel has no RDMA."""
    try:
        with open_socket() as sock:
            return netns_mode(sock)
    except KernelError:
        return ""


def netns_mode(sock: Socket) -> str:
    """The system's mode: "shared" (every namespace sees all RDMA devices) or "exclusive" (a device is in one).

    Raises:
        KernelError: the kernel refused.
    """
    replies = sock.request(_SYS_GET, b"", doing="cannot read the RDMA namespace mode")
    mode = attributes(replies[0]).get(_NETNS_MODE) if replies else None
    return NETNS_MODES[1 if mode is None or to_u8(mode) else 0]


def dump(sock: Socket) -> list[RdmaDevice]:
    """The RDMA devices of the socket's namespace; in mode "shared" all of the machine.

    Raises:
        KernelError: the kernel refused.
    """
    return [_parse(attributes(body)) for body in sock.dump(_GET, b"", doing="cannot list RDMA devices")]


def resources(sock: Socket, device: RdmaDevice) -> dict[str, int]:
    """How many objects of each kind a device has: "qp", "cq", "mr", "pd", "cm_id", "ctx", "srq", as rdma(8) names them.

    Objects of processes, and of the kernel's own users. A context ("ctx") is a process that has the device open.

    Raises:
        KernelMissingError: the device is not in the socket's namespace.
        KernelError: the kernel refused.
    """
    body = attribute(_DEVICE_INDEX, u32(device.index))
    replies = sock.request(_RESOURCES_GET, body, doing=f'cannot read the resources of RDMA device "{device.name}"')
    listed = attributes(replies[0]).get(_SUMMARY, b"") if replies else b""
    entries = (attributes(data) for kind, data in attribute_list(listed) if kind == _SUMMARY_ENTRY)
    return {
        to_text(entry[_SUMMARY_NAME]): int.from_bytes(entry[_SUMMARY_CURRENT], sys.byteorder)
        for entry in entries
        if _SUMMARY_NAME in entry and _SUMMARY_CURRENT in entry
    }


def rename(sock: Socket, device: RdmaDevice, name: str) -> None:
    """Give a device another name.

    Raises:
        KernelExistsError: another device of the machine has it.
        KernelError: the kernel refused.
    """
    body = attribute(_DEVICE_INDEX, u32(device.index)) + attribute(_DEVICE_NAME, text(name))
    sock.request(_SET, body, doing=f'cannot rename RDMA device "{device.name}" to "{name}"')


def set_adaptive(sock: Socket, device: RdmaDevice, *, on: bool) -> None:
    """Switch the adaptive moderation of a device's completion queues.

    Raises:
        KernelError: the driver has none, or the kernel refused.
    """
    body = attribute(_DEVICE_INDEX, u32(device.index)) + attribute(_ADAPTIVE, bytes([on]))
    sock.request(_SET, body, doing=f'cannot set adaptive moderation of RDMA device "{device.name}"')


def index_of(sock: Socket, name: str) -> int:
    """The index of the RDMA device of that name in the socket's namespace.

    Raises:
        KernelMissingError: none exists.
        KernelError: the kernel refused.
    """
    for device in dump(sock):
        if device.name == name:
            return device.index
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


def _parse(fields: dict[int, bytes]) -> RdmaDevice:
    adaptive = fields.get(_ADAPTIVE)
    return RdmaDevice(
        index=to_u32(fields[_DEVICE_INDEX]),
        name=to_text(fields.get(_DEVICE_NAME, b"")),
        node_guid=int.from_bytes(fields.get(_NODE_GUID, b""), sys.byteorder),
        adaptive=None if not adaptive else bool(to_u8(adaptive)),
    )


def _first_netdev(sysfs: Sysfs, folder: str) -> str:
    for port in sysfs.listing(f"{folder}/ports"):
        name = sysfs.text(f"{folder}/ports/{port}/gid_attrs/ndevs/0")
        if name:
            return name
    return ""
