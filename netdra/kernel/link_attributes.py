"""The attributes of a link's message that neither `Link` nor `link_settings` has, read whole and restored.

Read and restored by `netdra.steps.settings`. The whole message is compared, except for the attributes that are
listed here with a reason, so an attribute of a newer kernel is not ignored: it appears under its number. The kernel
takes most attributes in the form in which it reports them (rtnl_fill_ifinfo() and do_setlink() in
net/core/rtnetlink.c).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from netdra.kernel import link, uapi
from netdra.kernel.netlink import Message, Socket, attribute, attributes, nested, text, to_text

_QDISC = 6
_OWN_QDISCS = frozenset({"", "noop", "noqueue", "mq", "pfifo_fast", "fq_codel"})
IGNORED: Mapping[int, str] = {
    uapi.IFLA_ADDRESS: "a fact of Link",
    uapi.IFLA_IFNAME: "a fact of Link",
    uapi.IFLA_MTU: "a fact of Link",
    uapi.IFLA_LINK: "a fact of Link; the index of a veth's peer changes when the peer moves",
    _QDISC: "the queue discipline's kind, compared if it is not one that the kernel gives a link by itself",
    7: "counters",
    uapi.IFLA_MASTER: "a fact of Link",
    uapi.IFLA_TXQLEN: "a setting of its own",
    uapi.IFLA_OPERSTATE: "follows the carrier and the link mode",
    uapi.IFLA_LINKINFO: "read part by part",
    uapi.IFLA_IFALIAS: "a setting of its own",
    uapi.IFLA_NUM_VF: "the VFs, which are compared as such",
    uapi.IFLA_VFINFO_LIST: "settings of the VFs, which are compared as such",
    23: "counters",
    24: "virtual ports of VFs: read with the VFs",
    25: "the virtual port, which a switch assigns",
    uapi.IFLA_AF_SPEC: "read part by part; sysctls are settings of their own",
    uapi.IFLA_GROUP: "a setting of its own",
    31: "the transmit queues that the link was made with",
    32: "the receive queues that the link was made with",
    33: "the carrier",
    34: "the place of the device, which cannot be set",
    35: "counts changes of the carrier",
    uapi.IFLA_PHYS_SWITCH_ID: "the place of the device, which cannot be set",
    uapi.IFLA_LINK_NETNSID: "the number of the peer's namespace, which the kernel chooses separately in each namespace",
    uapi.IFLA_PHYS_PORT_NAME: "the place of the device, which cannot be set",
    uapi.IFLA_GSO_MAX_SEGS: "a setting of its own",
    uapi.IFLA_GSO_MAX_SIZE: "a setting of its own",
    42: "padding",
    uapi.IFLA_XDP: "programs, which are compared as such",
    44: "the reason of an event",
    47: "counts changes of the carrier",
    48: "counts changes of the carrier",
    50: "a limit of the driver",
    uapi.IFLA_MAX_MTU: "a limit of the driver, which follows its other settings",
    uapi.IFLA_PROP_LIST: "a fact of Link",
    uapi.IFLA_PERM_ADDRESS: "a fact of Link",
    uapi.IFLA_PARENT_DEV_NAME: "a fact of Link",
    uapi.IFLA_PARENT_DEV_BUS_NAME: "a fact of Link",
    uapi.IFLA_GRO_MAX_SIZE: "a setting of its own",
    59: "a limit of the driver, which follows its other settings",
    60: "a limit of the driver, which follows its other settings",
    62: "the place of the device, which cannot be set",
    uapi.IFLA_GSO_IPV4_MAX_SIZE: "a setting of its own",
    uapi.IFLA_GRO_IPV4_MAX_SIZE: "a setting of its own",
    65: "the place of the device, which cannot be set",
    68: "room for headers, which follows programs and links above",
    69: "room for trailers, which follows links above",
}
"""Attributes of the message that are not compared here, each with the reason."""

_NAMES: Mapping[int, str] = {
    2: "broadcast address",
    14: "hardware map",
    17: "link mode",
    30: "promiscuity",
    39: "protodown",
    55: "protodown reason",
    61: "all-multicast count",
    66: "pacing offload horizon",
    67: "immutable namespace",
}
_NUMBERS = {name: number for number, name in _NAMES.items()}
_UNKNOWN = "attribute "
_USERS = frozenset({"promiscuity", "all-multicast count"})
_FOLLOWING = _USERS | {"queue discipline"}
"""Attributes that cannot be set: how many users need a mode, and a discipline, which has settings of its own."""
_FLAGS: Mapping[str, int] = {
    "debug": 0x4,
    "notrailers": 0x20,
    "noarp": uapi.IFF_NOARP,
    "multicast": 0x1000,
    "portsel": 0x2000,
    "automedia": 0x4000,
    "dynamic": 0x8000,
}
"""The flags that can be set (dev_change_flags() in net/core/dev.c) and that `Link` and the settings do not have."""
_FLAG = "flag "
_DATA = "kind's attribute "
_TOKEN = "IPv6 token"  # noqa: S105 (the host's part of addresses)
QUEUEING = "queue discipline"
_AF_INET6, _INET6_TOKEN = 10, 7
_CHANGING: Mapping[str, frozenset[int]] = {
    "macvlan": frozenset({8}),  # the queue length that all links of the same lower link use
    "macvtap": frozenset({8}),
    "tun": frozenset({8, 9}),  # open queues
    "can": frozenset({4, 8}),  # the state of the bus, errors
}
"""Attributes of a kind that change by themselves."""
_CHANGING_KINDS = frozenset({"bridge", "bond", "team", "openvswitch"})
"""Kinds whose own attributes are timers, counters and states for the most part."""
ON = "01"


def read(message: Message, flags: int, kind: str) -> dict[str, str]:
    """All further attributes that are not zero, by name; the values in hexadecimal.

    Args:
        message: the link's, with all attributes.
        flags: IFF_* of the message's header.
        kind: the link's kind, "" for a physical one.
    """
    values = {
        _NAMES.get(number) or f"{_UNKNOWN}{number}": value.hex()
        for number, value in message.items()
        if number not in IGNORED and any(value)
    }
    for name, bit in _FLAGS.items():
        if flags & bit:
            values[_FLAG + name] = ON
    if kind and kind not in _CHANGING_KINDS:
        info = attributes(message.get(uapi.IFLA_LINKINFO, b""))
        own, ignored = attributes(info.get(uapi.IFLA_INFO_DATA, b"")), _CHANGING.get(kind, frozenset())
        values |= {f"{_DATA}{number}": value.hex() for number, value in own.items() if number not in ignored}
    kind_of_queue = to_text(message.get(_QDISC, b""))
    if kind_of_queue not in _OWN_QDISCS:
        values[QUEUEING] = kind_of_queue.encode().hex()
    ipv6 = attributes(message.get(uapi.IFLA_AF_SPEC, b"")).get(_AF_INET6, b"")
    token = attributes(ipv6).get(_INET6_TOKEN, b"")
    if any(token):
        values[_TOKEN] = token.hex()
    return values


def is_known(name: str) -> bool:
    """Whether an attribute of `read` is one that this version of netdra knows."""
    return not name.startswith(_UNKNOWN)


def is_flag(name: str) -> bool:
    """Whether an attribute of `read` is a flag: on if it is there."""
    return name.startswith(_FLAG)


def is_followed(name: str, former: str, present: str) -> bool:
    """Whether two values differ because fewer users of the link need a mode by now: the others were not the pod's."""
    if name not in _USERS:
        return False
    before, now = (int.from_bytes(bytes.fromhex(value), sys.byteorder) for value in (former, present))
    return now <= before


def is_of_host(name: str) -> bool:
    """Whether an attribute ends with the device's stay in a namespace, and so concerns the host alone."""
    return name in (_TOKEN, QUEUEING)


def change(sock: Socket, index: int, kind: str, name: str, former: str, present: str) -> None:
    """Give an attribute its former value, as the kernel reported it.

    Args:
        sock: a socket in the link's namespace.
        index: the link's.
        name: the attribute's name in `read`.
        former: its former value, "" for zero.
        present: its present value.

    Raises:
        KernelError: the kernel refused, or the attribute cannot be set.
    """
    if name in _FOLLOWING:
        return
    doing = f"cannot set {name} of link {index}"
    if name.startswith(_FLAG):
        bit = _FLAGS[name.removeprefix(_FLAG)]
        body = link.header(index, bit if former == ON else 0, bit)
    else:
        value = bytes.fromhex(former) or bytes(len(present) // 2)
        body = link.header(index) + _encoded(kind, name, value)
    sock.request(uapi.RTM_NEWLINK, body, doing=doing)


def _encoded(kind: str, name: str, value: bytes) -> bytes:
    if name.startswith(_DATA):
        data = nested(uapi.IFLA_INFO_DATA, attribute(int(name.removeprefix(_DATA)), value))
        return nested(uapi.IFLA_LINKINFO, attribute(uapi.IFLA_INFO_KIND, text(kind)), data)
    if name == _TOKEN:
        return nested(uapi.IFLA_AF_SPEC, nested(_AF_INET6, attribute(_INET6_TOKEN, value)))
    number = _NUMBERS[name] if name in _NUMBERS else int(name.removeprefix(_UNKNOWN))
    return attribute(number, value)
