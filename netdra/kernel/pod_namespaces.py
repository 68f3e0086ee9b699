"""Which network namespaces are pods': a link whose other end is in one of them is how that pod is reached.

The kernel calls the namespace of a link's other end by an id of the namespace that it is asked in
(IFLA_LINK_NETNSID), and reports which id a file's namespace has (RTM_GETNSID). So the namespaces that container
runtimes name are asked one by one. Runtimes name them by a UUID: `cni-<uuid>` (containerd), `<uuid>` (CRI-O) or
`netns-<uuid>` (Podman), before any CNI plugin puts something in. Namespaces of other names (routers, labs) are not
pods', nor are those without a name: on a node that is a container itself, its own NICs lead to one.

Names can be removed while pods run (`ip -all netns delete`). So where namespaces have an id and no name of a runtime,
the processes of the node's pods are searched for them, which are known by their cgroup. This needs the node's PIDs.

Discovery keeps a `PodNamespaces`; steps ask for `ids` right before they take a device from the host.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from netdra.kernel import netns, uapi
from netdra.kernel.errors import KernelError, KernelExistsError, KernelMissingError, from_os_error
from netdra.kernel.netlink import Socket, attribute, attributes, i32, to_i32, u32
from netdra.kernel.netns import Namespace

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_OF_RUNTIMES = re.compile(rf"(?:cni-|netns-)?{_UUID}\Z")
_HEADER = b"\0\0\0\0"  # struct rtgenmsg, padded
_PROC = "/proc"
_OF_PODS = b"kubepods"  # the kubelet's cgroup of all pods, in each of its forms (pkg/kubelet/cm)


class _Process(NamedTuple):
    """A process in a namespace that has no name: its path to the namespace, and the inode there."""

    path: str
    inode: int

    @property
    def is_inside(self) -> bool:
        """Whether it still is."""
        with suppress(KernelError):
            return netns.inode_at(self.path) == self.inode
        return False


class PodNamespaces:
    """The ids of pods' namespaces in one network namespace. Each namespace is asked until it has an id, then no more.

    An id is a namespace's as long as that lives (net/core/net_namespace.c), and no runtime uses a name twice.
    """

    def __init__(self, folder: str = netns.NAMED) -> None:
        """Begin with none.

        Args:
            folder: where runtimes name the namespaces of pods.
        """
        self._folder = folder
        self._ids: dict[str, int] = {}
        self._unnamed: dict[int, _Process] = {}
        self._searched: frozenset[int] = frozenset()

    def ids(self, sock: Socket) -> frozenset[int]:
        """The ids of the namespaces that have a name now, and of those without one in which a process of a pod is.

        Args:
            sock: a socket in the namespace whose ids they are, always the same one.

        Raises:
            KernelError: some cannot be read.
        """
        try:
            names = [name for name in netns.names(self._folder) if _OF_RUNTIMES.match(name)]
        except OSError as problem:
            raise from_os_error(problem, f"cannot list {self._folder}") from None
        known, self._ids = self._ids, {}
        for name in names:
            number = known[name] if name in known else _id_at(sock, f"{self._folder}/{name}")
            if number >= 0:
                self._ids[name] = number
        named = frozenset(self._ids.values())
        return named | self._without_name(sock, frozenset(known_ids(sock)) - named)

    def _without_name(self, sock: Socket, candidates: frozenset[int]) -> frozenset[int]:
        """Those of the candidates in which a process of a pod is; each is searched once while it has its id."""
        self._unnamed = {key: entry for key, entry in self._unnamed.items() if key in candidates and entry.is_inside}
        if candidates - self._unnamed.keys() - self._searched:
            self._unnamed = {key: entry for key, entry in _inhabited(sock) if key in candidates}
        self._searched = candidates - self._unnamed.keys()
        return frozenset(self._unnamed)


def ids(sock: Socket, folder: str = netns.NAMED) -> frozenset[int]:
    """The ids that pods' namespaces have in the namespace of a socket.

    Raises:
        KernelError: some cannot be read.
    """
    return PodNamespaces(folder).ids(sock)


def id_of(sock: Socket, descriptor: int) -> int:
    """The id that an open namespace has in the namespace of a socket, -1 without an id: then no link leads there.

    Raises:
        KernelError: the descriptor is of no network namespace.
    """
    body = _HEADER + attribute(uapi.NETNSA_FD, u32(descriptor))
    (reply,) = sock.request(uapi.RTM_GETNSID, body, doing="cannot read the ID of a network namespace")
    return to_i32(attributes(reply, len(_HEADER))[uapi.NETNSA_NSID])


def assign_id(sock: Socket, descriptor: int) -> int:
    """Give an open namespace an id in the namespace of a socket unless it has one, and return it.

    Raises:
        KernelError: the descriptor is of no network namespace, or the kernel refused.
    """
    if (number := id_of(sock, descriptor)) >= 0:
        return number
    # -1 has the kernel choose a free number (net/core/net_namespace.c, rtnl_net_newid()).
    body = _HEADER + attribute(uapi.NETNSA_FD, u32(descriptor)) + attribute(uapi.NETNSA_NSID, i32(-1))
    with suppress(KernelExistsError):  # the kernel has just given it one, for a pair of links
        sock.request(uapi.RTM_NEWNSID, body, doing="cannot give a network namespace an ID")
    return id_of(sock, descriptor)


def known_ids(sock: Socket) -> list[int]:
    """The ids of all namespaces that have one in the namespace of a socket, its own among them if that has one.

    Raises:
        KernelError: the kernel refused.
    """
    replies = sock.dump(uapi.RTM_GETNSID, _HEADER, doing="cannot list the IDs of network namespaces")
    return [to_i32(attributes(reply, len(_HEADER))[uapi.NETNSA_NSID]) for reply in replies]


def _id_at(sock: Socket, path: str) -> int:
    """The id of the namespace at a path; -1 also where none exists any more, or none yet but the file for its mount.

    Raises:
        KernelError: it cannot be read.
    """
    try:
        with Namespace.open(path) as namespace:
            return id_of(sock, namespace.fd)
    except KernelMissingError:
        return -1
    except KernelError as problem:
        if problem.errno == errno.EINVAL:
            return -1
        raise


def _inhabited(sock: Socket) -> Iterator[tuple[int, _Process]]:
    """The namespaces in which processes of pods are, by id, as far as they may be inspected."""
    visited = {netns.inode_at()}
    for pid in filter(str.isdecimal, os.listdir(_PROC)):  # noqa: PTH208
        path = f"{_PROC}/{pid}/ns/net"
        with suppress(KernelError, OSError):  # it has ended, or must not be inspected
            inode = netns.inode_at(path)
            if inode in visited or not _is_of_pod(pid):
                continue
            visited.add(inode)
            with Namespace.open(path) as namespace:
                yield id_of(sock, namespace.fd), _Process(path, inode)


def _is_of_pod(pid: str) -> bool:
    with open(f"{_PROC}/{pid}/cgroup", "rb") as file:
        return _OF_PODS in file.read()
