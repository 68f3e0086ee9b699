"""The settings of ethtool(8): speed, features, rings, channels, coalescing, pause frames, over generic netlink.

Follows the kernel's Documentation/networking/ethtool-netlink.rst. Discovery reads speeds, steps read and set the rest;
names are ethtool's ("combined", "rx-usecs", "adaptive-rx"), features the kernel's ("tx-checksum-ip-generic").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from netdra.kernel import genetlink
from netdra.kernel.errors import KernelError, KernelMissingError
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
_LINKMODES_GET, _FEATURES_GET, _FEATURES_SET, _FLAGS_GET, _FLAGS_SET = 4, 11, 12, 13, 14
_HEADER, _HEADER_INDEX, _HEADER_FLAGS = 1, 1, 3
COMPACT = 1
"""A flag of requests: bit sets come as words, not as lists of names."""
_SPEED = 5
_UNKNOWN_SPEED = 0xFFFFFFFF
_FEATURES_HARDWARE, _FEATURES_WANTED, _FEATURES_ACTIVE, _FEATURES_FIXED = _FEATURE_SETS = 2, 3, 4, 5
_FLAGS = 2
_BITSET_BITS, _BITSET_VALUE, _BIT, _BIT_INDEX, _BIT_NAME, _BIT_VALUE = 3, 4, 1, 1, 2, 3

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
    "pause": (21, 22, {"autoneg": 2, "rx": 3, "tx": 4}, frozenset({"autoneg", "rx", "tx"})),
}
GROUPS: tuple[str, ...] = tuple(_GROUPS)
"""The settings groups of `settings` and `change_settings`."""
FLAGS = "flags"
"""A driver's private flags, as a group of `read_all`."""
OFF, ON, REQUESTED, FORCED = range(4)
"""A feature in `named`: as it is requested (OFF, ON), requested but off, not requested but on."""


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
    payload = nested(_HEADER, attribute(_HEADER_FLAGS, u32(COMPACT)))
    doing = "cannot read link speeds"
    replies = genetlink.dump(sock, FAMILY, _LINKMODES_GET, payload, doing=doing, attempts=attempts)
    by_index: dict[int, int] = {}
    for reply in replies:
        value = _speed(reply)
        if value:
            by_index[to_u32(attributes(reply[_HEADER])[_HEADER_INDEX])] = value
    return by_index


def speed(sock: Socket, index: int) -> int:
    """The speed of one link in Mbit/s, 0 while it is unknown.

    Raises:
        KernelError: its driver has no speed (EOPNOTSUPP), it is gone (ENODEV), or the kernel refused.
    """
    return _speed(_get(sock, _LINKMODES_GET, index, COMPACT, "the speed"))


def features(sock: Socket, index: int) -> dict[str, Feature]:
    """All offload features that the kernel knows, by its names for them, as they are on a link.

    Raises:
        KernelError: no such link exists, or the kernel refused.
    """
    reply = _get(sock, _FEATURES_GET, index, COMPACT, "features")
    hardware, wanted, active, fixed = (_compact(reply.get(kind, b"")) for kind in _FEATURE_SETS)
    return {
        name: Feature(bool(active & bit), bool(wanted & bit), bool(fixed & bit) or not hardware & bit)
        for name, bit in _feature_names(sock, index)
    }


class Settings(NamedTuple):
    """The settings of a link.

    Attributes:
        features: as `named` takes them; empty by a kernel without ethtool netlink.
        groups: the settings of GROUPS and FLAGS, without groups that the driver does not have.
        replies: the replies to further requests, or their errors.
    """

    features: tuple[str, ...]
    groups: dict[str, dict[str, int]]
    replies: Sequence[dict[int, bytes] | KernelError]


def read_all(sock: Socket, index: int, groups: Sequence[str], further: Sequence[int] = ()) -> Settings:
    """The settings of a link, all requested at once.

    Args:
        sock: a generic netlink socket in the link's namespace.
        index: the link's.
        groups: which of GROUPS and FLAGS.
        further: the numbers of further GET requests (`netdra.kernel.ethtool_further`).

    Raises:
        KernelError: the kernel is short of memory, or the socket failed.
    """
    requests = [(_FEATURES_GET, device(index, COMPACT))]
    requests += [(_FLAGS_GET if group == FLAGS else _GROUPS[group][0], device(index, 0)) for group in groups]
    requests += [(command, device(index, COMPACT)) for command in further]
    try:
        replies = genetlink.request_each(sock, FAMILY, requests, doing=f"cannot read settings of link {index}")
    except KernelMissingError:
        return Settings((), {}, ())
    features: tuple[str, ...] = ()
    values: dict[str, dict[str, int]] = {}
    own = 1 + len(groups)
    for group, reply in zip(("", *groups), replies[:own], strict=True):
        if isinstance(reply, KernelError):
            if reply.is_short:
                raise reply
        elif not group:
            features = tuple(reply.get(kind, b"").hex() for kind in _FEATURE_SETS)
        elif group == FLAGS:
            values[group] = {name: int(value) for _, name, value in _bits(reply.get(_FLAGS, b""))}
        else:
            values[group] = _values(reply, group)
    return Settings(features, values, replies[own:])


def named(sock: Socket, index: int, features: Sequence[str]) -> dict[str, int]:
    """The changeable features of `read_all` by name: OFF, ON, REQUESTED or FORCED.

    Raises:
        KernelError: no such link exists, or the kernel refused.
    """
    hardware, wanted, active, fixed = (_compact(bytes.fromhex(data)) for data in features)
    states = ((OFF, FORCED), (REQUESTED, ON))
    return {
        name: states[bool(wanted & bit)][bool(active & bit)]
        for name, bit in _feature_names(sock, index)
        if hardware & ~fixed & bit
    }


def change_features(sock: Socket, index: int, wanted: Mapping[str, bool]) -> None:
    """Ask for features to be on or off.

    Raises:
        InvalidInputError: the driver kept a feature as it was (it is fixed, or depends on another).
        KernelError: a name is unknown to the kernel (EINVAL), or it refused.
    """
    payload = device(index, 0) + _bitset(_FEATURES_WANTED, wanted)
    genetlink.request(sock, FAMILY, _FEATURES_SET, payload, doing=f"cannot set features of link {index}")
    # If a driver does not change a feature, the kernel still reports success (ethtool-netlink.rst).
    now = features(sock, index)
    unchanged = sorted(name for name, value in wanted.items() if name not in now or now[name].active != value)
    if unchanged:
        raise InvalidInputError(
            f"link {index}: its driver does not support changing feature {', '.join(unchanged)}",
            hint="`ethtool -k` marks fixed features; a feature can also depend on another one",
            code="ND2238",
        )


def settings(sock: Socket, index: int, group: str) -> dict[str, int]:
    """The settings of a group ("rings", "channels", "coalesce") that the link's driver has.

    Raises:
        KernelError: the driver has none of them (EOPNOTSUPP), or the kernel refused.
    """
    return _values(_get(sock, _GROUPS[group][0], index, 0, group), group)


def change_settings(sock: Socket, index: int, group: str, wanted: Mapping[str, int]) -> None:
    """Set some settings of a group.

    Raises:
        InvalidInputError: a name is not in the group.
        KernelError: the driver does not have or take it, or the kernel refused.
    """
    _, command, named, small = _GROUPS[group]
    unknown = sorted(set(wanted) - set(named))
    if unknown:
        raise InvalidInputError(
            f'{group} setting "{unknown[0]}" is unknown', hint=f"known: {', '.join(named)}", code="ND2239"
        )
    payload = device(index, 0)
    for name, value in wanted.items():
        payload += attribute(named[name], u8(value) if name in small else u32(value))
    genetlink.request(sock, FAMILY, command, payload, doing=f"cannot set {group} of link {index}")


def change_flags(sock: Socket, index: int, wanted: Mapping[str, bool]) -> None:
    """Set private flags of a link's driver.

    Raises:
        KernelError: the driver does not have or take one, or the kernel refused.
    """
    payload = device(index, 0) + _bitset(_FLAGS, wanted)
    genetlink.request(sock, FAMILY, _FLAGS_SET, payload, doing=f"cannot set private flags of link {index}")


def _get(sock: Socket, command: int, index: int, flags: int, what: str) -> dict[int, bytes]:
    return genetlink.request(sock, FAMILY, command, device(index, flags), doing=f"cannot read {what} of link {index}")[
        0
    ]


def device(index: int, flags: int) -> bytes:
    """The beginning of a request about a link: its index, and flags (COMPACT, or 0)."""
    return nested(_HEADER, attribute(_HEADER_INDEX, u32(index)), attribute(_HEADER_FLAGS, u32(flags)))


def _speed(reply: dict[int, bytes]) -> int:
    value = to_u32(reply[_SPEED]) if _SPEED in reply else 0
    return 0 if value == _UNKNOWN_SPEED else value


def _values(reply: Mapping[int, bytes], group: str) -> dict[str, int]:
    _, _, named, small = _GROUPS[group]
    return {
        name: reply[kind][0] if name in small else to_u32(reply[kind]) for name, kind in named.items() if kind in reply
    }


def _feature_names(sock: Socket, index: int) -> Sequence[tuple[str, int]]:
    """The kernel's names of all features, each with its bit; a bit set with names takes the kernel 20 times as long."""
    if not _names:
        reply = _get(sock, _FEATURES_GET, index, 0, "features")
        _names.extend(sorted((name, 1 << place) for place, name, _ in _bits(reply.get(_FEATURES_HARDWARE, b""))))
    return _names


_names: list[tuple[str, int]] = []


def _bits(data: bytes) -> list[tuple[int, str, bool]]:
    """The bits of a verbose bit set with a mask, each with its place, its name, and whether it is set."""
    bits = (attributes(bit) for kind, bit in attribute_list(attributes(data).get(_BITSET_BITS, b"")) if kind == _BIT)
    return [(to_u32(bit[_BIT_INDEX]), to_text(bit[_BIT_NAME]), _BIT_VALUE in bit) for bit in bits if _BIT_NAME in bit]


def _compact(data: bytes) -> int:
    """The bits of a compact bit set, which the kernel has in words of 32 bits."""
    value = attributes(data).get(_BITSET_VALUE, b"")
    return sum(to_u32(value[place : place + 4]) << place * 8 for place in range(0, len(value), 4))


def _bitset(kind: int, wanted: Mapping[str, bool]) -> bytes:
    bits = (
        nested(_BIT, attribute(_BIT_NAME, text(name)), attribute(_BIT_VALUE, b"") if value else b"")
        for name, value in wanted.items()
    )
    return nested(kind, nested(_BITSET_BITS, *bits))
