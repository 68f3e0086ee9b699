"""Everything else that the kernel reports about a netdev: recorded whole, compared, restored as it came (decision N1).

Called by `netdra.steps.settings`, which knows the settings that have names in netdra. This part does not list what it
compares: it takes the whole of each source, without what the source's module lists as changing by itself. So a setting
that a newer kernel has is compared, too, and reported under its number as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from netdra.kernel import ethtool_further, ethtool_ioctl, link_attributes, queues
from netdra.kernel.errors import KernelError
from netdra.kernel.link import Link
from netdra.kernel.netlink import Message, Socket
from netdra.kernel.sysfs import Sysfs

Reply = Mapping[int, bytes] | KernelError
Further = Mapping[str, Mapping[str, str]]
"""Values by group and name: in hexadecimal, as the kernel has them; those of queues as text."""
ATTRIBUTES, QUEUES = "link", "queue"
_NUMBER = 16  # hexadecimal digits of the longest number
_SHOWN = 32  # characters of a longer value in messages
_NOT_NETLINK = frozenset({ATTRIBUTES, QUEUES, *ethtool_ioctl.GROUPS})
_known: dict[str, tuple[str, ...]] = {}


class Access(NamedTuple):
    """Where a netdev is read and changed: sockets in its namespace, which is the calling thread's, and its sysfs."""

    sock: Socket
    generic: Socket
    sysfs: Sysfs


class Changed(NamedTuple):
    """A value that is not as it was, "" for none.

    Attributes:
        matters: whether it stays with the device, and so concerns its next user.
        unknown: whether this version of netdra does not know it.
    """

    group: str
    name: str
    former: str
    present: str
    matters: bool
    unknown: bool

    @property
    def text(self) -> str:
        """The difference in words."""
        values = f"{_word(self.group, self.name, self.present)}, not {_word(self.group, self.name, self.former)}"
        return f"{self.group} {self.name} {values}{' (unknown to this version of netdra)' if self.unknown else ''}"


class Reading:
    """One reading of a netdev, for a caller who makes the requests of ethtool's family together with others.

    Attributes:
        requested: the numbers of the requests that `values` is given the replies to.
    """

    def __init__(self, generic: Socket, model: str, former: Further | None) -> None:
        """Choose what is read.

        Args:
            generic: a generic netlink socket.
            model: a text that devices with the same driver and abilities have in common, "" for none. Such a device is
                asked for no more than the first one had.
            former: a record, whose groups are read again.

        Raises:
            KernelError: the kernel refused.
        """
        self._model = model
        self._groups = tuple(former) if former is not None else _known.get(model)
        netlink = None if self._groups is None else [group for group in self._groups if group not in _NOT_NETLINK]
        self.requested = ethtool_further.requests(generic, netlink)

    def values(self, netdev: Link, message: Message, access: Access, replies: Sequence[Reply]) -> Further:
        """All further values of a netdev just now.

        Args:
            netdev: the netdev.
            message: all attributes of its message.
            access: where it is.
            replies: the replies to `requested`.

        Raises:
            KernelError: the kernel is short of memory or descriptors.
        """
        settings, lacks_others = ethtool_further.settings(self.requested, replies)
        by_ioctl, lacks_rest = ethtool_ioctl.read(access.sock, netdev.name, self._by_ioctl(settings))
        values: dict[str, Mapping[str, str]] = {
            ATTRIBUTES: link_attributes.read(message, netdev.flags, netdev.kind),
            QUEUES: queues.read(access.sysfs, netdev.name, netdev.index),
            **settings,
            **by_ioctl,
        }
        if self._groups is None and self._model and lacks_others and lacks_rest:
            _known[self._model] = tuple(values)
        return values

    def _by_ioctl(self, settings: Mapping[str, Mapping[str, str]]) -> Sequence[str]:
        if self._groups is not None:
            return [group for group in self._groups if group in ethtool_ioctl.GROUPS]
        by_netlink = (ethtool_ioctl.HASHES, ethtool_ioctl.RSS) if ethtool_further.has_fields(settings) else ()
        return [group for group in ethtool_ioctl.GROUPS if group not in by_netlink]


def has_attributes(former: Further | None, netdev: Link) -> bool:
    """Whether a link has the attributes of a record, in any namespace."""
    if former is None or ATTRIBUTES not in former or not netdev.message:
        return True
    present = link_attributes.read(netdev.message, netdev.flags, netdev.kind)
    return not any(differences({ATTRIBUTES: former[ATTRIBUTES]}, {ATTRIBUTES: present}))


def differences(former: Further, present: Further) -> Iterator[Changed]:
    """The values that differ, in groups that both have: a driver may be unable to report one just now."""
    for group, before in former.items():
        now = present.get(group)
        if now is None or now == before:
            continue
        for name in dict.fromkeys((*before, *now)):
            was, value = before.get(name, ""), now.get(name, "")
            if was != value and not _follows(group, name, was, value):
                unknown = not _is_known(group, name)
                matters = not unknown and not (group == ATTRIBUTES and link_attributes.is_of_host(name))
                yield Changed(group, name, was, value, matters, unknown)


def restore(changed: Sequence[Changed], former: Further, netdev: Link, access: Access) -> tuple[list[str], set[str]]:
    """Give values their former ones; return the kernel's refusals, and the texts of those that no program can set.

    Raises:
        KernelError: the kernel is short of memory or descriptors.
    """
    reasons: list[str] = []
    fixed: set[str] = set()
    for each in changed:
        try:
            _write(each, former[each.group], netdev, access)
        except KernelError as problem:
            if problem.is_short:
                raise
            if problem.is_unsupported:
                fixed.add(each.text)
            else:
                reasons.append(problem.what)
    return reasons, fixed


def _write(changed: Changed, former: Mapping[str, str], netdev: Link, access: Access) -> None:
    group, name, value = changed.group, changed.name, changed.former
    if group == ATTRIBUTES:
        link_attributes.change(access.sock, netdev.index, netdev.kind, name, value, changed.present)
    elif group == QUEUES:
        queues.change(access.sysfs, netdev.name, {name: value})
    elif group in ethtool_ioctl.GROUPS:
        if group == ethtool_ioctl.RULES and value and changed.present:
            ethtool_ioctl.change(access.sock, netdev.name, group, {name: ""})
        ethtool_ioctl.change(access.sock, netdev.name, group, {name: value})
    else:
        ethtool_further.change(access.generic, netdev.index, group, {name: value}, former)


def _follows(group: str, name: str, was: str, value: str) -> bool:
    if group == ATTRIBUTES:
        return link_attributes.is_followed(name, was, value)
    return group in ethtool_further.GROUPS and ethtool_further.is_followed(group, name, was, value)


def _is_known(group: str, name: str) -> bool:
    if group == ATTRIBUTES:
        return link_attributes.is_known(name)
    return group in (QUEUES, *ethtool_ioctl.GROUPS) or ethtool_further.is_known(group, name)


def _word(group: str, name: str, value: str) -> str:
    if group == ATTRIBUTES and link_attributes.is_flag(name):
        return "on" if value else "off"
    if not value:
        return "none"
    if group == ATTRIBUTES and name == link_attributes.QUEUEING:
        return bytes.fromhex(value).decode(errors="replace")
    if group != QUEUES and len(value) <= _NUMBER:
        return str(int.from_bytes(bytes.fromhex(value), "little"))
    return value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
