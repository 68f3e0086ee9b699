"""The traffic and errors of links: the kernel's counters of links, and those of VFs at their PF.

Follows rtnetlink(7): RTM_GETSTATS (include/uapi/linux/if_link.h, struct rtnl_link_stats64) has the counters of all
links of a namespace and nothing else: 1,250 links in 250 namespaces take a third of the time that RTM_GETLINK takes.
`netdra.node.traffic` reads.
"""

from __future__ import annotations

import errno
import socket
import struct
import sys
from collections.abc import Collection, Mapping
from typing import NamedTuple

from netdra.kernel import link, uapi
from netdra.kernel.errors import from_os_error, kernel_error
from netdra.kernel.netlink import (
    NETLINK_ROUTE,
    NLM_F_DUMP,
    NLM_F_REQUEST,
    Socket,
    attribute,
    attribute_list,
    attributes,
    to_i32,
    to_u32,
    u32,
)

_NLMSG_HEADER = 16
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_LINK_64 = 1
# struct nlmsghdr, struct if_stats_msg
_REQUEST = struct.pack(
    "=IHHIIBxxxII", 28, uapi.RTM_GETSTATS, NLM_F_REQUEST | NLM_F_DUMP, 1, 0, socket.AF_UNSPEC, 0, 1 << _LINK_64 - 1
)
_HEAD = struct.Struct("=IH14xI")
_COUNTERS_AT = 32
_COUNTERS = struct.Struct("=24Q")
_READ = 8 * 1024  # the kernel fills at most what the last read had room for, or NLMSG_GOODSIZE (netlink_dump())
_MOST_READS = 512
"""A pod can make links without number in its namespace; those of some 15,000 are read."""
_IFINFO_SIZE = 16
_VF_INFO, _VF_MAC, _VF_STATS = 1, 1, 8
_VF_COUNTERS = ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "", "multicast", "", "rx_dropped", "tx_dropped")


class LinkCounters(NamedTuple):
    """The counters of a link since its driver made it, in the order of struct rtnl_link_stats64.

    `rx` is what the link received, `tx` what it sent; of a pod's link both are the pod's view. A link that moves to
    another namespace keeps its counters.
    """

    rx_packets: int = 0
    tx_packets: int = 0
    rx_bytes: int = 0
    tx_bytes: int = 0
    rx_errors: int = 0
    tx_errors: int = 0
    rx_dropped: int = 0
    tx_dropped: int = 0
    multicast: int = 0
    collisions: int = 0
    rx_length_errors: int = 0
    rx_over_errors: int = 0
    rx_crc_errors: int = 0
    rx_frame_errors: int = 0
    rx_fifo_errors: int = 0
    rx_missed_errors: int = 0
    tx_aborted_errors: int = 0
    tx_carrier_errors: int = 0
    tx_fifo_errors: int = 0
    tx_heartbeat_errors: int = 0
    tx_window_errors: int = 0
    rx_compressed: int = 0
    tx_compressed: int = 0
    rx_nohandler: int = 0


def of_links(indexes: Collection[int] | None = None) -> dict[int, LinkCounters]:
    """The counters of links of the calling thread's namespace, by index.

    On a node, this is done for hundreds of namespaces in turn, so it has no options of `netlink.Socket` and parses
    nothing but these links. A link that comes or goes meanwhile may be missing.

    Args:
        indexes: of these links; by default of all.

    Raises:
        KernelError: the kernel refused.
    """
    found: dict[int, LinkCounters] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_ROUTE) as sock:
            sock.send(_REQUEST)
            for _ in range(_MOST_READS):
                if _take(sock.recv(_READ), indexes, found):
                    return found
    except OSError as problem:
        raise from_os_error(problem, "cannot read the counters of links") from None
    raise kernel_error(errno.EMSGSIZE, "cannot read the counters of links", "the namespace has too many links")


def _take(data: bytes, indexes: Collection[int] | None, found: dict[int, LinkCounters]) -> bool:
    """Take the counters in one read of a dump; whether it was the last one.

    Raises:
        KernelError: the kernel refused.
    """
    at, end = 0, len(data)
    data += b"\0" * _HEAD.size  # the last message is shorter than the others
    while at + _NLMSG_HEADER <= end:
        size, kind, index = _HEAD.unpack_from(data, at)
        if kind in (_NLMSG_DONE, _NLMSG_ERROR):
            # Both begin with an errno, which is 0 at the end of a dump.
            number = -to_i32(data[at + _NLMSG_HEADER : at + _NLMSG_HEADER + 4])
            if number > 0:
                raise kernel_error(number, "cannot read the counters of links")
            return True
        if size < _HEAD.size or at + size > end:
            raise kernel_error(errno.EBADMSG, "cannot read the counters of links")
        if indexes is None or index in indexes:
            # An older kernel has fewer counters, a newer one more. The filter leaves this one attribute.
            if size >= _COUNTERS_AT + _COUNTERS.size:
                found[index] = LinkCounters._make(_COUNTERS.unpack_from(data, at + _COUNTERS_AT))
            else:
                counted = data[at + _COUNTERS_AT : at + size]
                found[index] = LinkCounters._make(_COUNTERS.unpack(counted.ljust(_COUNTERS.size, b"\0")))
        at += (size + 3) & ~3
    if not end:
        raise kernel_error(errno.EBADMSG, "cannot read the counters of links")
    return False


def of_vfs(sock: Socket, pf: str | int) -> dict[int, LinkCounters]:
    """The counters of a PF's VFs as the VFs see them, by index; those of struct rtnl_link_stats64 that it has.

    A driver without such counters reports 0 for each (rtnl_fill_vfinfo() in net/core/rtnetlink.c).

    Raises:
        KernelError: no such link exists, or the kernel refused.
    """
    body = link.get_raw(sock, pf, attribute(uapi.IFLA_EXT_MASK, u32(uapi.RTEXT_FILTER_VF)))
    listed = attributes(body, _IFINFO_SIZE).get(uapi.IFLA_VFINFO_LIST, b"")
    vfs = [attributes(data) for kind, data in attribute_list(listed) if kind == _VF_INFO]
    return {to_u32(vf[_VF_MAC]): _of_vf(attributes(vf[_VF_STATS])) for vf in vfs if _VF_STATS in vf}


def _of_vf(fields: Mapping[int, bytes]) -> LinkCounters:
    numbered = ((name, fields.get(number)) for number, name in enumerate(_VF_COUNTERS) if name)
    return LinkCounters(**{name: int.from_bytes(value, sys.byteorder) for name, value in numbered if value})
