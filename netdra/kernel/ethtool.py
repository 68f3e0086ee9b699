"""The settings of ethtool(8): speed, features, rings, channels and coalescing, over generic netlink.

Follows the kernel's Documentation/networking/ethtool-netlink.rst. Discovery reads speeds, steps read and set the rest;
names are ethtool's ("combined", "rx-usecs", "adaptive-rx"), features the kernel's ("tx-checksum-ip-generic").
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from netdra.kernel import genetlink
from netdra.kernel.netlink import (
    DUMP_ATTEMPTS,
    Socket,
    attribute,
    attribute_list,
    attributes,
    nested,
    text,
    to_text,
    to_u32,
    u8,
    u32,
)
from netdra.model.errors import InvalidInputError

FAMILY = "ethtool"
_LINKMODES_GET, _FEATURES_GET, _FEATURES_SET = 4, 11, 12
_HEADER, _HEADER_INDEX, _HEADER_FLAGS = 1, 1, 3
_COMPACT_BITSETS = 1
_SPEED = 5
_UNKNOWN_SPEED = 0xFFFFFFFF
_FEATURES_HARDWARE, _FEATURES_WANTED, _FEATURES_ACTIVE, _FEATURES_FIXED = 2, 3, 4, 5
_BITSET_BITS, _BIT, _BIT_NAME, _BIT_VALUE = 3, 1, 2, 3

# settings group -> (GET, SET, name -> attribute, names that are one byte)
_GROUPS: Mapping[str, tuple[int, int, Mapping[str, int], frozenset[str]]] = {
    "rings": (15, 16, {"rx": 6, "rx-mini": 7, "rx-jumbo": 8, "tx": 9}, frozenset()),
    "channels": (17, 18, {"rx": 6, "tx": 7, "other": 8, "combined": 9}, frozenset()),
    "coalesce": (
        19,
        20,
        {
            "rx-usecs": 2,
            "rx-frames": 3,
            "rx-usecs-irq": 4,
            "rx-frames-irq": 5,
            "tx-usecs": 6,
            "tx-frames": 7,
            "tx-usecs-irq": 8,
            "tx-frames-irq": 9,
            "stats-block-usecs": 10,
            "adaptive-rx": 11,
            "adaptive-tx": 12,
            "pkt-rate-low": 13,
            "rx-usecs-low": 14,
            "rx-frames-low": 15,
            "tx-usecs-low": 16,
            "tx-frames-low": 17,
            "pkt-rate-high": 18,
            "rx-usecs-high": 19,
            "rx-frames-high": 20,
            "tx-usecs-high": 21,
            "tx-frames-high": 22,
            "sample-interval": 23,
            "cqe-mode-tx": 24,
            "cqe-mode-rx": 25,
        },
        frozenset({"adaptive-rx", "adaptive-tx", "cqe-mode-tx", "cqe-mode-rx"}),
    ),
}
GROUPS: tuple[str, ...] = tuple(_GROUPS)
"""The settings groups of `settings` and `change_settings`."""


class Feature(msgspec.Struct, frozen=True):
    """One offload feature: whether it is on, was asked for, and can be changed at all."""

    active: bool
    wanted: bool
    fixed: bool


def speeds(sock: Socket, *, attempts: int = DUMP_ATTEMPTS) -> dict[int, int]:
    """The speed of every link of the namespace that has one, in Mbit/s, by index; one dump for all.

    Raises:
        KernelInterruptedError: links came or went during each attempt.
        KernelError: the kernel has no ethtool netlink, or refused.
    """
    payload = nested(_HEADER, attribute(_HEADER_FLAGS, u32(_COMPACT_BITSETS)))
    doing = "cannot read link speeds"
    replies = genetlink.dump(sock, FAMILY, _LINKMODES_GET, payload, doing=doing, attempts=attempts)
    by_index: dict[int, int] = {}
    for reply in replies:
        value = _speed(reply)
        if value:
            by_index[to_u32(attributes(reply[_HEADER])[_HEADER_INDEX])] = value
    return by_index


def speed(sock: Socket, index: int) -> int:
    """The speed of one link in Mbit/s, 0 where it has none just now.

    Raises:
        KernelError: its driver has no speed (EOPNOTSUPP), it is gone (ENODEV), or the kernel refused.
    """
    return _speed(_get(sock, _LINKMODES_GET, index, _COMPACT_BITSETS, "the speed"))


def features(sock: Socket, index: int) -> dict[str, Feature]:
    """All offload features that the kernel knows, by its names for them, as they are on a link.

    Raises:
        KernelError: there is no such link, or the kernel refused.
    """
    reply = _get(sock, _FEATURES_GET, index, 0, "features")
    hardware, wanted, active, fixed = (
        _bit_names(reply.get(kind, b""))
        for kind in (_FEATURES_HARDWARE, _FEATURES_WANTED, _FEATURES_ACTIVE, _FEATURES_FIXED)
    )
    changeable = hardware - fixed
    named = _bit_names(reply.get(_FEATURES_HARDWARE, b""), only_set=False)
    return {name: Feature(name in active, name in wanted, name not in changeable) for name in sorted(named)}


def change_features(sock: Socket, index: int, wanted: Mapping[str, bool]) -> None:
    """Ask for features to be on or off.

    Raises:
        InvalidInputError: the driver kept a feature as it was (it is fixed, or depends on another).
        KernelError: a name is unknown to the kernel (EINVAL), or it refused.
    """
    bits = (
        nested(_BIT, attribute(_BIT_NAME, text(name)), attribute(_BIT_VALUE, b"") if value else b"")
        for name, value in wanted.items()
    )
    payload = _device(index, 0) + nested(_FEATURES_WANTED, nested(_BITSET_BITS, *bits))
    genetlink.request(sock, FAMILY, _FEATURES_SET, payload, doing=f"cannot set features of link {index}")
    # Where a driver keeps a feature as it is, the kernel reports success all the same (ethtool-netlink.rst).
    now = features(sock, index)
    unchanged = sorted(name for name, value in wanted.items() if name not in now or now[name].active != value)
    if unchanged:
        raise InvalidInputError(
            f"link {index}: its driver does not change feature {', '.join(unchanged)}",
            hint="`ethtool -k` marks what is fixed; a feature can also depend on another one",
        )


def settings(sock: Socket, index: int, group: str) -> dict[str, int]:
    """The settings of a group ("rings", "channels", "coalesce") that the link's driver has.

    Raises:
        KernelError: the driver has none of them (EOPNOTSUPP), or the kernel refused.
    """
    command, _, named, small = _GROUPS[group]
    reply = _get(sock, command, index, 0, group)
    return {
        name: reply[kind][0] if name in small else to_u32(reply[kind]) for name, kind in named.items() if kind in reply
    }


def change_settings(sock: Socket, index: int, group: str, wanted: Mapping[str, int]) -> None:
    """Set some settings of a group.

    Raises:
        InvalidInputError: a name is none of the group's.
        KernelError: the driver does not have or take it, or the kernel refused.
    """
    _, command, named, small = _GROUPS[group]
    unknown = sorted(set(wanted) - set(named))
    if unknown:
        raise InvalidInputError(f'{group} setting "{unknown[0]}" is unknown', hint=f"known: {', '.join(named)}")
    payload = _device(index, 0)
    for name, value in wanted.items():
        payload += attribute(named[name], u8(value) if name in small else u32(value))
    genetlink.request(sock, FAMILY, command, payload, doing=f"cannot set {group} of link {index}")


def _get(sock: Socket, command: int, index: int, flags: int, what: str) -> dict[int, bytes]:
    return genetlink.request(sock, FAMILY, command, _device(index, flags), doing=f"cannot read {what} of link {index}")[
        0
    ]


def _device(index: int, flags: int) -> bytes:
    return nested(_HEADER, attribute(_HEADER_INDEX, u32(index)), attribute(_HEADER_FLAGS, u32(flags)))


def _speed(reply: dict[int, bytes]) -> int:
    value = to_u32(reply[_SPEED]) if _SPEED in reply else 0
    return 0 if value == _UNKNOWN_SPEED else value


def _bit_names(data: bytes, *, only_set: bool = True) -> set[str]:
    """The names of the bits that are set in a verbose bit set (with a mask: whose value is set), or of all bits."""
    outer = attributes(data)
    masked = only_set and 1 not in outer  # ETHTOOL_A_BITSET_NOMASK
    bits = (attributes(bit) for kind, bit in attribute_list(outer.get(_BITSET_BITS, b"")) if kind == _BIT)
    return {to_text(bit[_BIT_NAME]) for bit in bits if _BIT_NAME in bit and (not masked or _BIT_VALUE in bit)}
