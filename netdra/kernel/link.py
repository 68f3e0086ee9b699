"""Links (network interfaces) over rtnetlink: read them, make them, change them, move them, delete them.

Follows rtnetlink(7) and include/uapi/linux/if_link.h. `netdra.discovery` reads, steps and the lab change. The
attributes of a kind (veth, bond ...) are in `netdra.kernel.kinds`, a PF's settings of its VFs in `netdra.kernel.vf`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypedDict, Unpack

import msgspec

from netdra.kernel import uapi
from netdra.kernel.errors import KernelMissingError
from netdra.kernel.netlink import (
    NLM_F_APPEND,
    NLM_F_CREATE,
    NLM_F_EXCL,
    Message,
    Socket,
    attribute,
    attribute_list,
    attributes,
    i32,
    nested,
    text,
    to_i32,
    to_text,
    to_u32,
    u32,
)

OPER_STATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")
"""The names of IF_OPER_* (RFC 2863), as sysfs writes them."""

_DUMP_ATTEMPTS = 3
"""Few: each takes the lock of all networks for 13 ms at 1,000 links, and what is interrupted can be put together."""
_IFINFO = struct.Struct("=BxHiII")
_HEADER_SIZE = _IFINFO.size
_NO_STATS = attribute(uapi.IFLA_EXT_MASK, u32(uapi.RTEXT_FILTER_SKIP_STATS))
_NO_ATTRIBUTES: dict[int, bytes] = {}
_REPRESENTED = re.compile(r"(?:c(?P<controller>\d+))?pf(?P<pf>\d+)(?:vf(?P<vf>\d+)|sf\d+)?\Z", re.ASCII)
_VXLAN_LINK = 3
PAIRED = frozenset({"veth", "netkit", "vxcan"})
"""Kinds whose IFLA_LINK is the other end of a cable, not what the link stands on."""
HERE, UNASSIGNED = -1, -2
"""In the place of a namespace's id: the link's own namespace, and another one without an id, which is about to end."""
_UPLINK = re.compile(r"p(?P<pf>\d+)\Z", re.ASCII)
_BARE_NUMBER = re.compile(r"\d+\Z", re.ASCII)


class Link(msgspec.Struct, frozen=True, gc=False):
    """One interface as rtnetlink has it; 0, "" and -1 for attributes that the message lacks.

    Attributes:
        index: the ifindex, unique in the namespace of the moment.
        name: the interface's name.
        hardware: ARPHRD_*, the type in sysfs.
        flags: IFF_*.
        kind: its kind, if it was made by rtnetlink ("veth", "bridge" ...).
        port_kind: the kind of the master that it is a port of ("bridge", "bond" ...).
        data: the kind's own attributes, for `netdra.kernel.kinds`.
        address: the link-layer address, as text with colons.
        permanent_address: the address burnt in.
        mtu: in bytes.
        state: one of OPER_STATES.
        lower: the ifindex of the link below (VLAN, macvlan) or of its veth peer.
        lower_netns: the id of the namespace that `lower` is in, or HERE or UNASSIGNED.
        master: the ifindex of the bridge, bond ... that it is a port of.
        parent: the bus address of the device behind it ("0000:03:00.0"), on `parent_bus` ("pci").
        vfs: how many VFs its device has just now.
        port_name: which port of a switch in hardware it is ("p0", "pf0vf3"), on the switch `switch_id`.
        xdp: whether an XDP program is attached to it.
        message: all attributes if it was read by itself (`get`, `find`), for `netdra.kernel.link_settings`.
    """

    index: int
    name: str
    hardware: int
    flags: int
    kind: str
    port_kind: str
    data: bytes
    address: str
    permanent_address: str
    mtu: int
    state: str
    lower: int
    lower_netns: int
    master: int
    alias: str
    alt_names: tuple[str, ...]
    parent: str
    parent_bus: str
    vfs: int
    txqlen: int
    promiscuity: int
    port_name: str
    switch_id: str
    xdp: bool = False
    message: Message = Message()

    @property
    def is_up(self) -> bool:
        """Whether it is set up by the administrator (not: whether it has a carrier)."""
        return bool(self.flags & uapi.IFF_UP)

    @property
    def lacks_carrier(self) -> bool:
        """Whether it is set up and has no carrier anyway."""
        return self.flags & (uapi.IFF_UP | uapi.IFF_LOWER_UP) == uapi.IFF_UP

    @property
    def stands_on(self) -> int:
        """The index of the link in the same namespace that it is stacked on (VLAN, macvlan ...), 0 for none.

        For a VXLAN that index is only in the attributes of its kind.
        """
        if self.lower_netns != HERE or self.lower == self.index or self.kind in PAIRED:
            return 0
        if self.kind != "vxlan":
            return self.lower
        value = attributes(self.data).get(_VXLAN_LINK)
        return to_u32(value) if value else 0

    @property
    def peer_netns(self) -> int:
        """The id of the namespace that the other end of a pair is in, HERE if it is in this one, or UNASSIGNED."""
        return self.lower_netns if self.kind in PAIRED else HERE

    @property
    def port(self) -> SwitchPort | None:
        """The function that it represents on its NIC's switch; None if it represents none, or is a function's own."""
        return switch_port(self.port_name, bool(self.switch_id and not self.kind))


class SwitchPort(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The function that a representor stands for.

    Attributes:
        controller: the host whose function it is, 0 for this one.
        pf: the number of the PF on the NIC, -1 for old drivers, which give a bare number.
        vf: the index of the VF, -1 for a PF or an SF.
    """

    controller: int
    pf: int
    vf: int


@lru_cache(maxsize=4096)
def switch_port(port_name: str, on_switch: bool = True) -> SwitchPort | None:
    """The function that a port of a NIC's switch represents, by its phys_port_name; None for the NIC's own ports.

    Follows the kernel's Documentation/networking/devlink/devlink-port.rst: `pf0`, `pf0vf3`, `pf0sf7`, `c1pf0vf3`.
    Drivers before 5.2 name the port of a VF by the VF's index alone.
    """
    parts = _REPRESENTED.match(port_name)
    if parts is not None:
        return SwitchPort(controller=int(parts["controller"] or 0), pf=int(parts["pf"]), vf=int(parts["vf"] or -1))
    if on_switch and _BARE_NUMBER.match(port_name):
        return SwitchPort(controller=0, pf=-1, vf=int(port_name))
    return None


def uplink_number(port_name: str) -> int:
    """The number of the PF whose own port on the switch has that phys_port_name ("p1"), -1 for other ports."""
    parts = _UPLINK.match(port_name)
    return int(parts["pf"]) if parts is not None else -1


class LinkSettings(TypedDict, total=False):
    """The settings of a link; a setting that is left out, or None, stays as it is.

    `mac` is text with colons, `mtu` in bytes, `lower` and `master` are indexes (master 0: none), `netns_fd` is an open
    namespace to make the link in or to move it to, `index` the ifindex to make it with.
    """

    mtu: int | None
    mac: str | None
    up: bool | None
    promiscuous: bool | None
    all_multicast: bool | None
    txqlen: int | None
    master: int | None
    lower: int | None
    netns_fd: int | None
    group: int | None
    gso_max_size: int | None
    gso_max_segs: int | None
    gro_max_size: int | None
    gso_ipv4_max_size: int | None
    gro_ipv4_max_size: int | None
    index: int | None


class LinkChanges(LinkSettings, total=False):
    """The settings of a link that exists: its name too, and its alias, which the kernel ignores at creation.

    `new_index` is its ifindex in the namespace that it is moved to; the kernel refuses one that is taken there.
    """

    name: str | None
    alias: str | None
    new_index: int | None


def parse(body: bytes, *, whole: bool = False) -> Link:
    """The link in an RTM_NEWLINK or RTM_DELLINK message, if `whole` with all attributes."""
    _, hardware, index, flags, _ = _IFINFO.unpack_from(body)
    fields = attributes(body, _HEADER_SIZE)
    get = fields.get
    info = attributes(fields[uapi.IFLA_LINKINFO]) if uapi.IFLA_LINKINFO in fields else _NO_ATTRIBUTES
    state = get(uapi.IFLA_OPERSTATE, b"\0")[0]
    return Link(
        index,
        to_text(get(uapi.IFLA_IFNAME, b"")),
        hardware,
        flags,
        to_text(info.get(uapi.IFLA_INFO_KIND, b"")),
        to_text(info.get(uapi.IFLA_INFO_SLAVE_KIND, b"")),
        info.get(uapi.IFLA_INFO_DATA, b""),
        get(uapi.IFLA_ADDRESS, b"").hex(":"),
        get(uapi.IFLA_PERM_ADDRESS, b"").hex(":"),
        _number(get(uapi.IFLA_MTU)),
        OPER_STATES[state] if state < len(OPER_STATES) else OPER_STATES[0],
        _number(get(uapi.IFLA_LINK)),
        _netns(get(uapi.IFLA_LINK_NETNSID)),
        _number(get(uapi.IFLA_MASTER)),
        to_text(get(uapi.IFLA_IFALIAS, b"")),
        _alt_names(fields[uapi.IFLA_PROP_LIST]) if uapi.IFLA_PROP_LIST in fields else (),
        to_text(get(uapi.IFLA_PARENT_DEV_NAME, b"")),
        to_text(get(uapi.IFLA_PARENT_DEV_BUS_NAME, b"")),
        _number(get(uapi.IFLA_NUM_VF)),
        _number(get(uapi.IFLA_TXQLEN)),
        _number(get(uapi.IFLA_PROMISCUITY)),
        to_text(get(uapi.IFLA_PHYS_PORT_NAME, b"")),
        get(uapi.IFLA_PHYS_SWITCH_ID, b"").hex(),
        uapi.IFLA_XDP in fields and _has_program(fields[uapi.IFLA_XDP]),
        Message(fields if whole else ()),
    )


def is_moved(body: bytes) -> bool:
    """Whether an RTM_DELLINK message is about a link that continues in another namespace."""
    # A move is a deletion here and a new link there; the index that it gets there is in the deletion alone
    # (rtmsg_ifinfo_newnet() in net/core/rtnetlink.c).
    return uapi.IFLA_NEW_IFINDEX in attributes(body, _HEADER_SIZE)


def dump(sock: Socket) -> list[Link]:
    """Every link of the socket's namespace.

    While links come and go so fast that no dump is of one moment, links that come or go meanwhile may be there or not.

    Raises:
        KernelError: the kernel refused.
    """
    return [parse(body) for body in dump_raw(sock)[0]]


def dump_raw(sock: Socket, netns_id: int = -1) -> tuple[list[bytes], bool]:
    """The messages about all links of the socket's namespace, for `parse`, and whether they are of one moment.

    With an id it is the namespace that has this id in the socket's; ids in the replies are the socket's namespace's.

    If all attempts are interrupted, each may lack a link that was there all the time: the kernel before 6.6 skips one
    for each that goes (rtnl_dump_ifinfo() in net/core/rtnetlink.c). So the attempts are put together, and a link that
    the last one lacks is read by itself.

    Raises:
        KernelError: the kernel refused.
    """
    former: dict[int, bytes] = {}
    last: dict[int, bytes] = {}
    extra = _NO_STATS + _target(netns_id)
    for _ in range(_DUMP_ATTEMPTS):
        bodies, complete = sock.try_dump(uapi.RTM_GETLINK, header() + extra, doing="cannot list links")
        if complete:
            return bodies, True
        former |= last
        last = {_IFINFO.unpack_from(body)[2]: body for body in bodies}
    for index in former.keys() - last.keys():
        with suppress(KernelMissingError):
            last[index] = get_raw(sock, index, extra)
    return list(last.values()), False


def get(sock: Socket, which: str | int) -> Link:
    """The link of that name (also an alternative one) or index.

    Raises:
        KernelMissingError: none exists.
        KernelError: the kernel refused.
    """
    return parse(get_raw(sock, which, _NO_STATS), whole=True)


def get_raw(sock: Socket, which: str | int, extra: bytes) -> bytes:
    """The message about one link, requested with further attributes."""
    return sock.request(uapi.RTM_GETLINK, _selector(which) + extra, doing=f"cannot read {_called(which)}")[0]


def max_mtu(sock: Socket, which: str | int) -> int:
    """The greatest MTU that a link's driver takes, 0 if it does not report it.

    Raises:
        KernelError: the kernel refused.
    """
    value = attributes(get_raw(sock, which, _NO_STATS), _HEADER_SIZE).get(uapi.IFLA_MAX_MTU)
    return to_u32(value) if value else 0


def stacked_on(sock: Socket, index: int) -> list[Link]:
    """The links of the namespace that stand on one and are not masters of it (VLAN, macvlan, VXLAN ...).

    Raises:
        KernelError: the kernel refused.
    """
    # Of thousands of links, only those with the index in an attribute of their message are read in full.
    signs = tuple(attribute(kind, u32(index)) for kind in (uapi.IFLA_LINK, _VXLAN_LINK))
    candidates = (parse(body) for body in dump_raw(sock)[0] if any(sign in body for sign in signs))
    return [candidate for candidate in candidates if candidate.stands_on == index]


def find(sock: Socket, which: str | int) -> Link | None:
    """The link of that name or index, or None where none exists."""
    try:
        return get(sock, which)
    except KernelMissingError:
        return None


def create(sock: Socket, name: str, kind: str, data: bytes = b"", **settings: Unpack[LinkSettings]) -> None:
    """Make a link.

    Args:
        sock: a socket in the namespace in which the request is made (and where `lower` is looked up).
        kind: "veth", "bridge", "macvlan", "vlan", "bond" ...
        data: the kind's attributes, from `netdra.kernel.kinds`.
        **settings: see `LinkSettings`; `netns_fd` makes it right in that namespace.

    Raises:
        KernelExistsError: the name is taken.
        KernelError: the kernel refused; EOPNOTSUPP where it lacks the kind.
    """
    flags, mask, encoded = _encode(LinkChanges(**settings, name=name, alias=None, new_index=None))
    info = [attribute(uapi.IFLA_INFO_KIND, text(kind))]
    if data:
        info.append(nested(uapi.IFLA_INFO_DATA, data))
    body = _IFINFO.pack(0, 0, settings.get("index") or 0, flags, mask) + encoded + nested(uapi.IFLA_LINKINFO, *info)
    doing = f'cannot create link "{name}" ({kind})'
    sock.request(uapi.RTM_NEWLINK, body, flags=NLM_F_CREATE | NLM_F_EXCL, doing=doing)


def change(sock: Socket, which: str | int, kind: str = "", data: bytes = b"", **settings: Unpack[LinkChanges]) -> None:
    """Change a link in one message; a move may carry a new name and MTU, and `up`, which comes last.

    The kernel moves first and names then: if the new name is taken in the other namespace, the error is
    KernelExistsError and the link is there already, under the name it had (or still here, if that is taken too).

    Args:
        sock: a socket in the link's namespace.
        which: its name or index.
        kind: its kind, where `data` is given.
        data: new values of the kind's attributes.
        **settings: see `LinkSettings` and `LinkChanges`.

    Raises:
        KernelMissingError: no such link exists.
        KernelExistsError: the new name is taken, here or where it is moved to.
        KernelError: the kernel refused.
    """
    flags, mask, encoded = _encode(settings)
    if isinstance(which, str) and _finds(which, settings):
        # The kernel looks it up itself.
        index, encoded = 0, encoded + attribute(uapi.IFLA_IFNAME, text(which))
    else:
        index = which if isinstance(which, int) else get(sock, which).index
    body = _IFINFO.pack(0, 0, index, flags, mask) + encoded
    if data:
        body += nested(
            uapi.IFLA_LINKINFO, attribute(uapi.IFLA_INFO_KIND, text(kind)), nested(uapi.IFLA_INFO_DATA, data)
        )
    listed = ", ".join(_in_words(key, value) for key, value in settings.items() if value is not None) or kind
    sock.request(uapi.RTM_NEWLINK, body, doing=f"cannot set {listed} of {_called(which)}")


def encode(**settings: Unpack[LinkChanges]) -> bytes:
    """A link's header and attributes alone, as a veth carries them for its peer."""
    flags, mask, encoded = _encode(settings)
    return _IFINFO.pack(0, 0, settings.get("index") or 0, flags, mask) + encoded


def delete(sock: Socket, which: str | int, netns_id: int = -1) -> None:
    """Delete a link, with an id in the namespace that has this id in the socket's.

    Raises:
        KernelMissingError: no such link exists.
        KernelError: the kernel refused; EOPNOTSUPP for a physical device.
    """
    sock.request(uapi.RTM_DELLINK, _selector(which) + _target(netns_id), doing=f"cannot delete {_called(which)}")


def add_alt_names(sock: Socket, index: int, names: Iterable[str]) -> None:
    """Give a link further names (up to 127 bytes each), by which it can also be found.

    Raises:
        KernelExistsError: a name is taken.
        KernelError: the kernel refused.
    """
    flags = NLM_F_CREATE | NLM_F_EXCL | NLM_F_APPEND
    _properties(sock, uapi.RTM_NEWLINKPROP, index, tuple(names), flags, "add")


def delete_alt_names(sock: Socket, index: int, names: Iterable[str]) -> None:
    """Take further names from a link.

    Raises:
        KernelError: it has no such name, or the kernel refused.
    """
    _properties(sock, uapi.RTM_DELLINKPROP, index, tuple(names), 0, "delete")


def _properties(sock: Socket, message: int, index: int, names: tuple[str, ...], flags: int, verb: str) -> None:
    listed = (attribute(uapi.IFLA_ALT_IFNAME, text(name)) for name in names)
    body = header(index) + nested(uapi.IFLA_PROP_LIST, *listed)
    called = ", ".join(names)
    sock.request(message, body, flags=flags, doing=f"cannot {verb} alternative name {called} of {_called(index)}")


_FLAGS = {"up": uapi.IFF_UP, "promiscuous": uapi.IFF_PROMISC, "all_multicast": uapi.IFF_ALLMULTI}
_ENCODERS: dict[str, tuple[int, Callable[[Any], bytes]]] = {
    "name": (uapi.IFLA_IFNAME, text),
    "mtu": (uapi.IFLA_MTU, u32),
    "mac": (uapi.IFLA_ADDRESS, lambda value: bytes.fromhex(value.replace(":", ""))),
    "txqlen": (uapi.IFLA_TXQLEN, u32),
    "alias": (uapi.IFLA_IFALIAS, lambda value: value.encode()),
    "master": (uapi.IFLA_MASTER, u32),
    "lower": (uapi.IFLA_LINK, u32),
    "netns_fd": (uapi.IFLA_NET_NS_FD, u32),
    "new_index": (uapi.IFLA_NEW_IFINDEX, u32),
    "group": (uapi.IFLA_GROUP, u32),
    "gso_max_size": (uapi.IFLA_GSO_MAX_SIZE, u32),
    "gso_max_segs": (uapi.IFLA_GSO_MAX_SEGS, u32),
    "gro_max_size": (uapi.IFLA_GRO_MAX_SIZE, u32),
    "gso_ipv4_max_size": (uapi.IFLA_GSO_IPV4_MAX_SIZE, u32),
    "gro_ipv4_max_size": (uapi.IFLA_GRO_IPV4_MAX_SIZE, u32),
}


def _encode(settings: LinkChanges) -> tuple[int, int, bytes]:
    """Flags, the mask of the flags to set, and the attributes for settings; None means not set."""
    flags = mask = 0
    encoded = b""
    for key, value in settings.items():
        if value is None:
            continue
        if key in _FLAGS:
            mask |= _FLAGS[key]
            flags |= _FLAGS[key] if value else 0
        elif key in _ENCODERS:
            number, encoder = _ENCODERS[key]
            encoded += attribute(number, encoder(value))
    return flags, mask, encoded


def _target(netns_id: int) -> bytes:
    """The attribute that names another namespace than the socket's, by its id there; nothing for -1."""
    return attribute(uapi.IFLA_TARGET_NETNSID, i32(netns_id)) if netns_id >= 0 else b""


def header(index: int = 0, flags: int = 0, mask: int = 0) -> bytes:
    """The header of a request about a link: its index, the flags (IFF_*) to set, and which flags are to change."""
    return _IFINFO.pack(0, 0, index, flags, mask)


def _selector(which: str | int) -> bytes:
    """The part of a request that names its link; the attribute for alternative names finds plain names too."""
    return header(which) if isinstance(which, int) else header() + attribute(uapi.IFLA_ALT_IFNAME, text(which))


def _called(which: str | int) -> str:
    return f"link {which}" if isinstance(which, int) else f'link "{which}"'


def _in_words(key: str, value: object) -> str:
    """A setting as messages show it; a number that means something to this process alone is left out."""
    match key:
        case "up":
            return "state up" if value else "state down"
        case "promiscuous" | "all_multicast":
            return f"{key.replace('_', '-')} mode {'on' if value else 'off'}"
        case "netns_fd":
            return "the network namespace"
        case "master":
            return f"master link {value}" if value else "no master"
        case "lower":
            return f"lower link {value}"
    return f"{key} {value}"


def _finds(name: str, settings: LinkChanges) -> bool:
    """Whether the kernel itself can look up the link to change by this name; alternative names may be too long.

    Names of 16 bytes (IFNAMSIZ) are too long. With some settings it cannot either: a new name stands in the same
    attribute, a link that moves would get this name there, and a group without an index means all links of the group.
    """
    others = (settings.get(key) for key in ("name", "netns_fd", "group"))
    return len(name.encode()) < 16 and all(value is None for value in others)


def _number(data: bytes | None) -> int:
    return to_u32(data) if data else 0


def _netns(data: bytes | None) -> int:
    """The namespace in IFLA_LINK_NETNSID; the kernel gives none that is about to end an id (peernet2id_alloc())."""
    if data is None:
        return HERE
    number = to_i32(data)
    return number if number >= 0 else UNASSIGNED


def _has_program(data: bytes) -> bool:
    return bool(attributes(data).get(uapi.IFLA_XDP_ATTACHED, b"\0")[0])


def _alt_names(data: bytes) -> tuple[str, ...]:
    return tuple(to_text(value) for kind, value in attribute_list(data) if kind == uapi.IFLA_ALT_IFNAME)
