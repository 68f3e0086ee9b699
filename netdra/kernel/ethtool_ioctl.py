"""Settings of ethtool(8) that netlink does not have: flow rules, hash fields, time stamping, tunables, the RSS table.

Follows include/uapi/linux/ethtool.h and net_tstamp.h (SIOCETHTOOL). Read and restored by `netdra.steps.settings`. A
driver that lacks a group refuses its first question, so virtual links cost four calls.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import struct
from collections.abc import Callable, Collection, Iterator, Mapping

from netdra.kernel.errors import KernelError, from_os_error
from netdra.kernel.netlink import Socket

RULES, HASHES, STAMPS, TUNABLES, RSS = "flow rule", "hash fields", "time stamping of", "tunable", "RSS of"
"""The groups; a flow rule's name is its place, that of hash fields the kind of traffic."""
GROUPS = (RULES, HASHES, STAMPS, TUNABLES, RSS)
MOST_RULES = 4096

_SIOCETHTOOL, _SIOCSHWTSTAMP, _SIOCGHWTSTAMP = 0x8946, 0x89B0, 0x89B1
_GRXFH, _SRXFH, _GRXRINGS = 0x29, 0x2A, 0x2D
_GRXCLSRLCNT, _GRXCLSRULE, _GRXCLSRLALL, _SRXCLSRLDEL, _SRXCLSRLINS = 0x2E, 0x2F, 0x30, 0x31, 0x32
_GRSSH, _SRSSH = 0x46, 0x47
_GTUNABLE, _STUNABLE = 0x48, 0x49

_REQUEST = struct.Struct("16sQ16x")  # struct ifreq with ifr_data
_RXNFC = struct.Struct("=IIQ168sI4x")  # cmd, flow_type, data, fs (struct ethtool_rx_flow_spec), rule_cnt
_LOCATION = struct.Struct("=160xI4x")  # the place of a rule in its struct ethtool_rx_flow_spec
_PLACES_AT = 188  # rule_locs of struct ethtool_rxnfc
_STAMPS = struct.Struct("=III")  # struct hwtstamp_config: flags, tx_type, rx_filter
_RSS = struct.Struct("=IIIIBB6x")  # struct ethtool_rxfh: cmd, context, sizes of table and key, hash function, input
_TUNABLE = struct.Struct("=IIII")
_FLOWS: Mapping[str, int] = {
    "tcp4": 1, "udp4": 2, "sctp4": 3, "ah-esp4": 4, "tcp6": 5, "udp6": 6, "sctp6": 7, "ah-esp6": 8, "ah4": 9,
    "esp4": 10, "ah6": 11, "esp6": 12, "ipv4": 16, "ipv6": 17, "ether": 18,
}  # fmt: skip
# name -> (id, type, size in bytes)
_TUNABLES: Mapping[str, tuple[int, int, int]] = {
    "rx-copybreak": (1, 3, 4), "tx-copybreak": (2, 3, 4), "pfc-prevention-tout": (3, 2, 2), "tx-buf-size": (4, 3, 4),
}  # fmt: skip


def read(sock: Socket, name: str, groups: Collection[str] = GROUPS) -> tuple[dict[str, dict[str, str]], bool]:
    """The settings of a link by group and name, the values in hexadecimal, and whether it lacks all other groups.

    Some drivers report some settings only while the link is up.

    Args:
        sock: a netlink socket in the link's namespace.
        name: the link's name.
        groups: the groups to read.

    Raises:
        KernelError: the kernel is short of memory.
    """
    values: dict[str, dict[str, str]] = {}
    lacks_others = True
    for group in groups:
        try:
            values[group] = dict(_READERS[group](sock, name))
        except KernelError as problem:
            if problem.is_short:
                raise
            lacks_others = lacks_others and problem.is_unsupported
    return values, lacks_others


def change(sock: Socket, name: str, group: str, wanted: Mapping[str, str]) -> None:
    """Give settings of a group their former values; "" deletes a flow rule.

    Raises:
        KernelError: the driver refused.
    """
    for key, value in wanted.items():
        data = bytes.fromhex(value)
        if group == RULES:
            command = _SRXCLSRLINS if data else _SRXCLSRLDEL
            _ethtool(sock, name, _RXNFC.pack(command, 0, 0, data or _LOCATION.pack(int(key)), 0), f"{group} {key}")
        elif group == HASHES and data:
            fields = int.from_bytes(data, "little")
            _ethtool(sock, name, _RXNFC.pack(_SRXFH, _FLOWS[key], fields, b"", 0), f"{group} {key}")
        elif group == STAMPS and data:
            _ioctl(sock, name, _SIOCSHWTSTAMP, data, f"{group} {key}")
        elif group == TUNABLES and data:
            number, kind, size = _TUNABLES[key]
            _ethtool(sock, name, _TUNABLE.pack(_STUNABLE, number, kind, size) + data, f"{group} {key}")
        elif group == RSS and data:
            _ethtool(sock, name, struct.pack("=I", _SRSSH) + data[4:], f"{group} {key}")


def _rules(sock: Socket, name: str) -> Iterator[tuple[str, str]]:
    """The flow rules (ntuple) by their place."""
    reply = _ethtool(sock, name, _RXNFC.pack(_GRXCLSRLCNT, 0, 0, b"", 0), RULES)
    number = min(int(_RXNFC.unpack(reply)[4]), MOST_RULES)
    if not number:
        return
    request = _RXNFC.pack(_GRXCLSRLALL, 0, 0, b"", number)[:_PLACES_AT] + bytes(4 * number + 4)
    reply = _ethtool(sock, name, request, RULES)
    number = min(int(_RXNFC.unpack_from(reply)[4]), number)
    for (place,) in struct.iter_unpack("=I", reply[_PLACES_AT : _PLACES_AT + 4 * number]):
        rule = _ethtool(sock, name, _RXNFC.pack(_GRXCLSRULE, 0, 0, _LOCATION.pack(place), 0), RULES)
        yield str(place), _RXNFC.unpack(rule)[3].hex()


def _hashes(sock: Socket, name: str) -> Iterator[tuple[str, str]]:
    """The fields by which packets of a kind are spread; a driver may lack some kinds."""
    for kind, number in _FLOWS.items():
        try:
            reply = _ethtool(sock, name, _RXNFC.pack(_GRXFH, number, 0, b"", 0), HASHES)
        except KernelError as problem:
            if problem.errno != errno.EINVAL:  # this kind alone
                raise
            continue
        yield kind, int(_RXNFC.unpack(reply)[2]).to_bytes(8, "little").hex()


def _stamps(sock: Socket, name: str) -> Iterator[tuple[str, str]]:
    reply = _ioctl(sock, name, _SIOCGHWTSTAMP, bytes(_STAMPS.size), STAMPS)
    yield "packets", reply.hex()


def _tunables(sock: Socket, name: str) -> Iterator[tuple[str, str]]:
    for key, (number, kind, size) in _TUNABLES.items():
        request = _TUNABLE.pack(_GTUNABLE, number, kind, size) + bytes(size)
        try:
            reply = _ethtool(sock, name, request, TUNABLES)
        except KernelError as problem:
            if problem.errno != errno.EINVAL:  # this one alone
                raise
            continue
        yield key, reply[_TUNABLE.size :].hex()


def _rss(sock: Socket, name: str) -> Iterator[tuple[str, str]]:
    """The table and the key, as the request to set them.

    A driver may report a table of more queues than it has just now, and takes none such: the queues are then counted
    around.
    """
    sizes = _RSS.unpack(_ethtool(sock, name, _RSS.pack(_GRSSH, 0, 0, 0, 0, 0), RSS))
    table, key = int(sizes[2]), int(sizes[3])
    if not table and not key:
        return
    request = _RSS.pack(_GRSSH, 0, table, key, 0, 0) + bytes(4 * table + key)
    reply = _ethtool(sock, name, request, RSS)
    end = _RSS.size + 4 * table
    queues = struct.unpack(f"={table}I", reply[_RSS.size : end])
    number = int(_RXNFC.unpack(_ethtool(sock, name, _RXNFC.pack(_GRXRINGS, 0, 0, b"", 0), RSS))[2])
    within = struct.pack(f"={table}I", *(queue % number for queue in queues)) if number else reply[_RSS.size : end]
    yield "all contexts", (reply[: _RSS.size] + within + reply[end:]).hex()


_READERS: Mapping[str, Callable[[Socket, str], Iterator[tuple[str, str]]]] = {
    RULES: _rules,
    HASHES: _hashes,
    STAMPS: _stamps,
    TUNABLES: _tunables,
    RSS: _rss,
}


def _ethtool(sock: Socket, name: str, request: bytes, doing: str) -> bytes:
    return _ioctl(sock, name, _SIOCETHTOOL, request, doing)


def _ioctl(sock: Socket, name: str, command: int, request: bytes, doing: str) -> bytes:
    """The kernel's answer, which it writes over the request."""
    data = ctypes.create_string_buffer(request, len(request))
    try:
        fcntl.ioctl(sock.handle, command, _REQUEST.pack(name.encode(), ctypes.addressof(data)))
    except OSError as problem:
        raise from_os_error(problem, f'cannot access {doing} of link "{name}"') from None
    return data.raw
