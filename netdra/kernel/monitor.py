"""Events of the kernel: links, addresses and routes of one namespace (rtnetlink), devices that come and go (uevents).

Discovery and the chain hang the descriptors on their event loop and read when they are ready. An event socket that ran
over has lost events: that is an `EventsLostError`, and all facts must be read again.
"""

from __future__ import annotations

import errno
import socket

import msgspec

from netdra.kernel import address, link, route, uapi
from netdra.kernel.closing import Closing
from netdra.kernel.errors import EventsLostError, KernelBusyError, from_os_error
from netdra.kernel.netlink import NETLINK_KOBJECT_UEVENT, NETLINK_ROUTE, NLM_F_APPEND, NLM_F_REPLACE, messages, to_i32

# include/uapi/linux/rtnetlink.h: bit n-1 for RTNLGRP_n
LINKS, _IPV4_ADDRESS, _IPV4_ROUTE, _IPV6_ADDRESS, _IPV6_ROUTE = (1 << number - 1 for number in (1, 5, 7, 9, 11))
GROUPS = LINKS | _IPV4_ADDRESS | _IPV6_ADDRESS | _IPV4_ROUTE | _IPV6_ROUTE
_KERNEL_UEVENTS = 1
_RECEIVE_BUFFER = 8 * 1024 * 1024
_SO_RCVBUFFORCE = 33
_SOL_NETLINK, _LISTEN_ALL_NSID = 270, 8
_NO_DATA = 16
"""The bytes of an event that are read where only its namespace matters; the kernel drops the rest."""
_ANCILLARY = socket.CMSG_SPACE(4)
_READ = 256 * 1024


class LinkEvent(msgspec.Struct, frozen=True):
    """A link is there or has changed, or is gone from the namespace; `moved` if it continues in another one."""

    link: link.Link
    gone: bool
    moved: bool = False


class AddressEvent(msgspec.Struct, frozen=True):
    """An address is there, or is gone."""

    address: address.Address
    gone: bool


class RouteEvent(msgspec.Struct, frozen=True):
    """A route that `is_made` is there, or is gone.

    Attributes:
        replaces: it takes the place of the first route of its key; no event reports that this one is gone.
        last: it comes behind the other routes of its key, not before them.
    """

    route: route.MadeRoute
    gone: bool
    replaces: bool = False
    last: bool = False


class DeviceEvent(msgspec.Struct, frozen=True):
    """A uevent: `action` (add, remove, change, bind, unbind, move) on the device at `path` below /sys."""

    action: str
    path: str
    subsystem: str


Event = LinkEvent | AddressEvent | RouteEvent


class _EventSocket(Closing):
    """A netlink socket that only listens, and never waits."""

    def __init__(self, family: int, groups: int) -> None:
        try:
            kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            self._socket = socket.socket(socket.AF_NETLINK, kind, family)
        except OSError as problem:
            raise from_os_error(problem, "cannot open a netlink event socket") from None
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
        except PermissionError:  # without CAP_NET_ADMIN the system's limit stands
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        self._socket.bind((0, groups))

    def fileno(self) -> int:
        """The descriptor that is ready when there are events."""
        return self._socket.fileno()

    def close(self) -> None:
        """Stop listening; closing twice is not an error."""
        self._socket.close()

    def _waiting(self) -> list[bytes]:
        """The messages that have arrived, without waiting.

        Raises:
            EventsLostError: more arrived than there was room for.
        """
        arrived: list[bytes] = []
        while True:
            try:
                data, sender = self._socket.recvfrom(_READ)
            except BlockingIOError:
                return arrived
            except OSError as problem:
                # The kernel never waits for a reader: an event without room is dropped, and the next read reports it
                # once (ENOBUFS).
                if problem.errno == errno.ENOBUFS:
                    raise EventsLostError("the socket's buffer overflowed with kernel events", code="ND2242") from None
                error = from_os_error(problem, "cannot read events of the kernel")
                if isinstance(error, KernelBusyError):  # what has been read of this call is lost
                    raise EventsLostError(error.what, code=error.code) from None
                raise error from None
            if sender[0] == 0:  # processes may send here too: only messages of the kernel count
                arrived.append(data)


class Monitor(_EventSocket):
    """Events of links, addresses and routes in the namespace of the thread that made it."""

    def __init__(self, groups: int = GROUPS) -> None:
        """Begin to listen; no event from now on is missed.

        Raises:
            KernelError: the kernel refused.
        """
        super().__init__(NETLINK_ROUTE, groups)

    def read(self) -> list[Event]:
        """The events that have arrived, in their order; none if none exist.

        Raises:
            EventsLostError: some were lost; those that are left come with the next call.
            KernelError: the socket failed.
        """
        events: list[Event] = []
        for data in self._waiting():
            for kind, flags, _, body in messages(data):
                event = _event(kind, flags, body)
                if event is not None:
                    events.append(event)
        return events


class PodLinkMonitor(_EventSocket):
    """Events of links in all network namespaces that have an id in the namespace of the thread that made it.

    One socket for all of them (NETLINK_LISTEN_ALL_NSID, netlink(7)). It needs CAP_NET_BROADCAST.
    """

    def __init__(self) -> None:
        """Begin to listen.

        Raises:
            KernelError: the kernel refused, or the capability is missing (EPERM).
        """
        super().__init__(NETLINK_ROUTE, LINKS)
        try:
            self._socket.setsockopt(_SOL_NETLINK, _LISTEN_ALL_NSID, 1)
        except OSError as problem:
            self.close()
            raise from_os_error(problem, "cannot listen to events of all network namespaces") from None

    def read(self) -> frozenset[int]:
        """The ids of the other namespaces whose links have changed since the last call.

        Raises:
            EventsLostError: some were lost.
            KernelError: the socket failed.
        """
        changed: set[int] = set()
        while True:
            try:
                _, ancillary, _, sender = self._socket.recvmsg(_NO_DATA, _ANCILLARY)
            except BlockingIOError:
                return frozenset(changed)
            except OSError as problem:
                if problem.errno == errno.ENOBUFS:
                    raise EventsLostError(
                        "the socket's buffer overflowed with events of links", code="ND2243"
                    ) from None
                raise from_os_error(problem, "cannot read events of links") from None
            if sender[0] == 0:
                # An event of the own namespace has no ID (net/netlink/af_netlink.c, netlink_cmsg_listen_all_nsid()).
                changed.update(
                    to_i32(data) for level, kind, data in ancillary if (level, kind) == (_SOL_NETLINK, _LISTEN_ALL_NSID)
                )


class DeviceMonitor(_EventSocket):
    """Uevents of the kernel. They reach the initial network namespace, and others only for their own devices."""

    def __init__(self) -> None:
        """Begin to listen.

        Raises:
            KernelError: the kernel refused.
        """
        super().__init__(NETLINK_KOBJECT_UEVENT, _KERNEL_UEVENTS)

    def read(self) -> list[DeviceEvent]:
        """The events that have arrived.

        Raises:
            EventsLostError: some were lost.
            KernelError: the socket failed.
        """
        return [event for data in self._waiting() if (event := _device_event(data)) is not None]


def _event(kind: int, flags: int, body: bytes) -> Event | None:
    if kind in (uapi.RTM_NEWLINK, uapi.RTM_DELLINK):
        # A bridge also sends messages about its ports here, in its own family: a port that leaves its bridge is not
        # deleted.
        if body[0] != socket.AF_UNSPEC:
            return None
        gone = kind == uapi.RTM_DELLINK
        return LinkEvent(link.parse(body), gone, moved=gone and link.is_moved(body))
    if kind in (uapi.RTM_NEWADDR, uapi.RTM_DELADDR):
        return AddressEvent(address.parse(body), kind == uapi.RTM_DELADDR)
    if kind in (uapi.RTM_NEWROUTE, uapi.RTM_DELROUTE):
        made = route.made(body)
        if made is None:
            return None
        if kind == uapi.RTM_DELROUTE:
            return RouteEvent(made, gone=True)
        return RouteEvent(made, gone=False, replaces=bool(flags & NLM_F_REPLACE), last=bool(flags & NLM_F_APPEND))
    return None


def _device_event(data: bytes) -> DeviceEvent | None:
    """A uevent is `action@path` and then `KEY=value` lines, each ended by a NUL; udev's own begin with "libudev"."""
    head, *lines = data.decode(errors="surrogateescape").split("\0")
    action, at, path = head.partition("@")
    if not at:
        return None
    subsystem = next((line.removeprefix("SUBSYSTEM=") for line in lines if line.startswith("SUBSYSTEM=")), "")
    return DeviceEvent(action, path, subsystem)
