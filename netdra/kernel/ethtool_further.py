"""The settings of ethtool's family beyond those of `netdra.kernel.ethtool`: whole replies, restored as they came.

Read and restored by `netdra.steps.settings`. The kernel itself lists the requests of its family (CTRL_ATTR_OPS), so a
request that a newer kernel has is made too, and its reply compared, under its number. Left out are the requests and
attributes that are listed here with a reason. A reply's attributes have the numbers that the request to set them takes
(Documentation/networking/ethtool-netlink.rst).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from netdra.kernel import genetlink
from netdra.kernel.errors import KernelError, KernelMissingError
from netdra.kernel.ethtool import FAMILY, device
from netdra.kernel.netlink import Socket, attribute, attributes, nested

IGNORED: Mapping[int, str] = {
    1: "names of strings",
    6: "the link's state",
    11: "features, which are read by themselves",
    13: "private flags, which are read by themselves",
    15: "ring sizes, which are read by themselves",
    17: "channels, which are read by themselves",
    19: "coalescing, which is read by itself",
    21: "pause frames, which are read by themselves",
    25: "abilities of time stamping",
    28: "the ports of tunnels, which the kernel reports to the driver for all tunnels of the namespace",
    31: "a page of the module's memory",
    32: "counters",
    33: "virtual clocks, which belong to the clock",
    36: "the power that a port supplies",
    41: "the state of the PLCA",
    45: "the PHYs of the device",
    51: "the quality of the signal",
}
"""GET requests that are not made here, each with the reason."""


class _Command(NamedTuple):
    """A request.

    Attributes:
        name: its group.
        set: the request that sets, 0 for none.
        settings: its settings by attribute.
        following: attributes that follow the settings, or change by themselves.
        nested: settings that hold attributes, such as bit sets: the kernel requires a flag for them (NLA_F_NESTED).
    """

    name: str
    set: int
    settings: Mapping[int, str]
    following: frozenset[int] = frozenset()
    nested: frozenset[int] = frozenset()


_HEADER = 1
_BITSET_MASK = 5
_LINK_MODES, _RSS, _RSS_FIELDS = 4, 38, 8
_AUTONEG, _ADVERTISED, _SPEED, _DUPLEX = 2, 3, 5, 6
_COMMANDS: Mapping[int, _Command] = {
    # The kind of the port follows its module.
    2: _Command("port", 3, {3: "PHY address", 5: "MDI-X"}, frozenset({2, 4, 6})),
    _LINK_MODES: _Command(
        "link modes",
        5,
        {_AUTONEG: "autonegotiation", _ADVERTISED: "advertised", _SPEED: "speed", _DUPLEX: "duplex", 7: "master-slave"},
        # The partner's modes, the state of the PHY, lanes and rate matching follow.
        frozenset({4, 8, 9, 10}),
        frozenset({_ADVERTISED}),
    ),
    7: _Command("debug messages", 8, {2: "mask"}, nested=frozenset({2})),
    9: _Command("wake-on-LAN", 10, {2: "modes", 3: "password"}, nested=frozenset({2})),
    23: _Command(
        "EEE", 24, {2: "advertised", 5: "enabled", 6: "LPI", 7: "LPI timer"}, frozenset({3, 4}), frozenset({2})
    ),
    29: _Command("FEC", 30, {2: "modes", 3: "automatic"}, frozenset({4, 5}), frozenset({2})),
    34: _Command("module", 35, {2: "power mode"}, frozenset({3})),
    _RSS: _Command(
        "RSS", 48, {3: "hash function", 4: "table", 5: "key", 6: "input", _RSS_FIELDS: "fields"}, frozenset({2, 7})
    ),
    39: _Command("PLCA", 40, {}, frozenset({4})),
    42: _Command("MAC merge", 43, {}, frozenset({4, 8, 10, 11})),
    46: _Command(
        "time stamping", 47, {2: "provider", 3: "sent", 4: "received", 5: "flags"}, nested=frozenset({2, 3, 4, 5})
    ),
}
_BY_NAME = {command.name: number for number, command in _COMMANDS.items()}
GROUPS = tuple(_BY_NAME)
"""The known groups."""
_UNKNOWN = "ethtool request "
_NUMBERED = "attribute "

_requests: list[int] = []


def requests(sock: Socket, groups: Sequence[str] | None = None) -> Sequence[int]:
    """The numbers of the GET requests for these groups, None for all; none by a kernel without ethtool netlink.

    The kernel is asked once which ones it has: they do not change.

    Raises:
        KernelError: the kernel refused.
    """
    if groups is not None:
        return [_number(group) for group in groups]
    if not _requests:
        with suppress(KernelMissingError):
            for number, flags in genetlink.commands(sock, FAMILY).items():
                reads = bool(flags & genetlink.CAN_DO and flags & genetlink.CAN_DUMP)
                if number in _COMMANDS or (reads and number not in IGNORED and not flags & genetlink.NEEDS_RIGHTS):
                    _requests.append(number)
    return _requests


def settings(
    requested: Sequence[int], replies: Sequence[Mapping[int, bytes] | KernelError]
) -> tuple[dict[str, dict[str, str]], bool]:
    """The settings by group and name, the values in hexadecimal, and whether the driver lacks all other groups.

    Raises:
        KernelError: the kernel is short of memory.
    """
    values: dict[str, dict[str, str]] = {}
    lacks_others = True
    for number, reply in zip(requested, replies, strict=False):
        if isinstance(reply, KernelError):
            if reply.is_short:
                raise reply
            lacks_others = lacks_others and reply.is_unsupported
        elif len(reply) > 1:
            values[_name(number)] = _settings(number, reply)
    return values, lacks_others


def has_fields(values: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether the kernel reports the hash fields by netlink: then it also takes them, and the RSS table, so (6.17)."""
    rss = _COMMANDS[_RSS]
    return rss.settings[_RSS_FIELDS] in values.get(rss.name, {})


def is_known(group: str, name: str) -> bool:
    """Whether a setting is one that this version of netdra knows."""
    return not group.startswith(_UNKNOWN) and not (name.startswith(_NUMBERED) and _COMMANDS[_number(group)].settings)


def is_followed(group: str, name: str, former: str, present: str) -> bool:
    """Whether two values of a setting differ because the device has another module, or no link, by now.

    The speed of a link that is down is unknown; what a device can advertise depends on its module, and comes with it as
    the mask of the bit set.
    """
    if _number(group) != _LINK_MODES:
        return False
    if name == _COMMANDS[_LINK_MODES].settings[_ADVERTISED]:
        supported = [attributes(bytes.fromhex(value)).get(_BITSET_MASK, b"") for value in (former, present)]
        return supported[0] != supported[1]
    return any(value and set(value) == {"f"} for value in (former, present))


def change(sock: Socket, index: int, group: str, wanted: Mapping[str, str], former: Mapping[str, str]) -> None:
    """Give settings of a group their former values, as the kernel reported them.

    Args:
        sock: a generic netlink socket in the link's namespace.
        index: the link's.
        wanted: the settings that differ.
        former: all settings of the group: some are taken together only.

    Raises:
        KernelError: the driver or the kernel refused, or the group cannot be set.
    """
    command = _COMMANDS.get(_number(group))
    if command is None or not command.set:
        return
    numbers = {name: number for number, name in command.settings.items()}
    if _number(group) == _LINK_MODES:
        wanted = _link_modes(former)
    payload = device(index, 0)
    for name, value in wanted.items():
        if not value:
            continue  # the driver did not report it then
        number = numbers[name] if name in numbers else int(name.removeprefix(_NUMBERED))
        encode = nested if number in command.nested else attribute
        payload += encode(number, bytes.fromhex(value))
    genetlink.request(sock, FAMILY, command.set, payload, doing=f"cannot set {group} of link {index}")


def _link_modes(former: Mapping[str, str]) -> dict[str, str]:
    """The link modes for the driver: with autonegotiation the advertised ones, else the speed."""
    names = _COMMANDS[_LINK_MODES].settings
    chosen = (_AUTONEG, _ADVERTISED) if _negotiates(former) else (_AUTONEG, _SPEED, _DUPLEX)
    return {names[number]: former[names[number]] for number in chosen if names[number] in former}


def _negotiates(values: Mapping[str, str]) -> bool:
    return bool(int(values.get(_COMMANDS[_LINK_MODES].settings[_AUTONEG], "") or "0", 16))


def _settings(command: int, reply: Mapping[int, bytes]) -> dict[str, str]:
    known = _COMMANDS.get(command, _Command("", 0, {}))
    values = {
        known.settings.get(number) or f"{_NUMBERED}{number}": value.hex()
        for number, value in reply.items()
        if number != _HEADER and number not in known.following
    }
    if command == _LINK_MODES and _negotiates(values):
        # The partner decides, too.
        for number in (_SPEED, _DUPLEX):
            values.pop(known.settings[number], None)
    return values


def _name(command: int) -> str:
    return _COMMANDS[command].name if command in _COMMANDS else f"{_UNKNOWN}{command}"


def _number(group: str) -> int:
    return _BY_NAME[group] if group in _BY_NAME else int(group.removeprefix(_UNKNOWN))
