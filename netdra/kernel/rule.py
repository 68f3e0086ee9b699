"""Policy rules over rtnetlink: list, add, delete. Follows ip-rule(8) and include/uapi/linux/fib_rules.h."""

from __future__ import annotations

import ipaddress
import socket
import struct
from typing import NamedTuple

import msgspec

from netdra.kernel import uapi
from netdra.kernel.errors import KernelExistsError, KernelMissingError
from netdra.kernel.netlink import NLM_F_CREATE, NLM_F_EXCL, Socket, attribute, attributes, to_u32, u32

_HEADER = struct.Struct("=BBBBBBBBI")  # struct fib_rule_hdr: family, lengths, tos, table, two reserved, action, flags
_OWN_FLAGS = 0xFFFF
"""Flags from bit 16 up are the kernel's reports: the rule's interface is missing, its target is unresolved."""
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
ALL_BITS = 0xFFFFFFFF
_PRIORITY_OF_VRFS = 1000
_INVERTED = 0x2  # FIB_RULE_INVERT


class RuleKey(NamedTuple):
    """The part of a rule that no other one has: all that it asks for, in its family."""

    family: int
    priority: int
    table: int
    source: str
    destination: str
    input: str
    output: str
    mark: int
    mask: int
    tos: int
    action: int
    inverted: bool


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One policy rule.

    Attributes:
        priority: its place among the rules of its family, the lowest first.
        table: the routing table that it selects, 0 for another action.
        input: the name of the interface that packets come in by, "" for any; a rule need not have an existing one.
        output: the name of the interface that a socket is bound to, "" for any.
        message: the rule as the kernel has it, with everything else that it asks for.
    """

    priority: int
    table: int = 0
    input: str = ""
    output: str = ""
    message: bytes

    @property
    def called(self) -> str:
        """The rule as messages call it."""
        return f"rule {self.priority} (table {self.table})"


def parse(body: bytes) -> PolicyRule:
    """The rule in an RTM_NEWRULE or RTM_DELRULE message."""
    table = _HEADER.unpack_from(body)[4]
    fields = attributes(body, _HEADER.size)
    return PolicyRule(
        priority=_number(fields, uapi.FRA_PRIORITY),
        table=_number(fields, uapi.FRA_TABLE) or table,
        input=_name(fields, uapi.FRA_IIFNAME),
        output=_name(fields, uapi.FRA_OIFNAME),
        message=bytes(body),
    )


def key(rule: PolicyRule) -> RuleKey:
    """The conditions of a rule and its table, as its message has them."""
    family, to_length, from_length, tos, table, _, _, action, flags = _HEADER.unpack_from(rule.message)
    fields = attributes(rule.message, _HEADER.size)
    mark = _number(fields, uapi.FRA_FWMARK)
    mask = _number(fields, uapi.FRA_FWMASK) if uapi.FRA_FWMASK in fields else ALL_BITS if mark else 0
    return RuleKey(
        family=family,
        priority=rule.priority,
        table=_number(fields, uapi.FRA_TABLE) or table,
        source=_network(family, fields.get(uapi.FRA_SRC), from_length),
        destination=_network(family, fields.get(uapi.FRA_DST), to_length),
        input=rule.input,
        output=rule.output,
        mark=mark,
        mask=mask,
        tos=tos,
        action=action,
        inverted=bool(flags & _INVERTED),
    )


def made(
    family: int,
    *,
    priority: int,
    table: int,
    source: str = "",
    destination: str = "",
    input: str = "",  # noqa: A002 (the kernel's word)
    output: str = "",
    mark: int = 0,
    mask: int = ALL_BITS,
) -> PolicyRule:
    """A rule that selects a table.

    Args:
        family: AF_INET or AF_INET6.
        priority: its place, 1 to 32765 to come after the local table and before the main one.
        table: the table's number.
        source: the packets' source, a network of that family, "" for any.
        destination: likewise.
        input: the interface that packets come in by, "" for any.
        output: the interface that a socket is bound to, "" for any.
        mark: the packets' mark, 0 for any, compared in the bits of `mask`.
        mask: see `mark`.
    """
    networks = {uapi.FRA_DST: destination, uapi.FRA_SRC: source}
    parsed = {kind: ipaddress.ip_network(text) for kind, text in networks.items() if text}
    lengths = [parsed[kind].prefixlen if kind in parsed else 0 for kind in networks]
    # A table over 255 does not fit the header: the attribute then counts alone.
    header = (family, *lengths, 0, table if table < 256 else 0, 0, 0, uapi.FR_ACT_TO_TBL, 0)
    encoded = [attribute(kind, network.network_address.packed) for kind, network in parsed.items()]
    names = {uapi.FRA_IIFNAME: input, uapi.FRA_OIFNAME: output}
    encoded += (attribute(kind, name.encode() + b"\0") for kind, name in names.items() if name)
    encoded += (attribute(uapi.FRA_PRIORITY, u32(priority)), attribute(uapi.FRA_TABLE, u32(table)))
    if mark:
        encoded += (attribute(uapi.FRA_FWMARK, u32(mark)), attribute(uapi.FRA_FWMASK, u32(mask)))
    return parse(_HEADER.pack(*header) + b"".join(encoded))


def dump(sock: Socket) -> list[PolicyRule]:
    """The rules of the namespace, of both families.

    Raises:
        KernelError: the kernel refused.
    """
    return [
        parse(body)
        for family in _FAMILIES
        for body in sock.dump(uapi.RTM_GETRULE, _HEADER.pack(family, *[0] * 8), doing="cannot list policy rules")
    ]


def renamed(rule: PolicyRule, former: str, name: str) -> PolicyRule:
    """The rule with another name for one of the interfaces that it names."""
    header = list(_HEADER.unpack_from(rule.message))
    header[-1] &= _OWN_FLAGS
    names = {uapi.FRA_IIFNAME: rule.input, uapi.FRA_OIFNAME: rule.output}
    fields = attributes(rule.message, _HEADER.size)
    encoded = b"".join(
        attribute(kind, name.encode() + b"\0" if names.get(kind) == former else bytes(value))
        for kind, value in fields.items()
    )
    return parse(_HEADER.pack(*header) + encoded)


def add(sock: Socket, rule: PolicyRule) -> None:
    """Add a rule that another namespace has.

    Raises:
        KernelExistsError: there is such a rule.
        KernelError: the kernel refused.
    """
    doing = f"cannot add {rule.called}"
    try:
        sock.request(uapi.RTM_NEWRULE, rule.message, flags=NLM_F_CREATE | NLM_F_EXCL, doing=doing)
    except KernelExistsError:
        # The kernel compares only what the new rule states (net/core/fib_rules.c, rule_exists): beside "from 10.0.0.2
        # fwmark 16" it takes "fwmark 16" for a rule that exists.
        if any(key(entry) == key(rule) for entry in dump(sock)):
            raise
        sock.request(uapi.RTM_NEWRULE, rule.message, flags=NLM_F_CREATE, doing=doing)


def is_for_vrfs(rule: PolicyRule) -> bool:
    """Whether a rule leads to the tables of VRFs, each for the traffic of its own ports."""
    return bool(attributes(rule.message, _HEADER.size).get(uapi.FRA_L3MDEV, b"\0")[0])


def add_for_vrfs(sock: Socket, family: int) -> None:
    """Add the rule that leads to the tables of VRFs, as the kernel does once in a namespace (drivers/net/vrf.c).

    Raises:
        KernelExistsError: it is there.
        KernelError: the kernel refused.
    """
    body = _HEADER.pack(family, 0, 0, 0, 0, 0, 0, uapi.FR_ACT_TO_TBL, 0)
    body += attribute(uapi.FRA_PROTOCOL, bytes([uapi.RTPROT_KERNEL])) + attribute(uapi.FRA_L3MDEV, b"\1")
    body += attribute(uapi.FRA_PRIORITY, u32(_PRIORITY_OF_VRFS))
    flags = NLM_F_CREATE | NLM_F_EXCL
    sock.request(uapi.RTM_NEWRULE, body, flags=flags, doing="cannot add the rule that leads to VRFs")


def delete(sock: Socket, rule: PolicyRule) -> None:
    """Delete a rule.

    Raises:
        KernelMissingError: no such rule exists.
        KernelError: the kernel refused.
    """
    sock.request(uapi.RTM_DELRULE, rule.message, doing=f"cannot delete {rule.called}")


def delete_exactly(sock: Socket, rule: PolicyRule) -> None:
    """Delete the rule that asks for this and nothing more.

    The kernel deletes the first rule that has all that a message asks for, and may have more (fib_rules.c, rule_find).
    Rules of other owners that come first so are added again, behind the other rules of their priority.

    Raises:
        KernelMissingError: no such rule exists.
        KernelError: the kernel refused.
    """
    wanted = key(rule)
    earlier: list[PolicyRule] = []
    for present in dump(sock):
        found = key(present)
        if found == wanted:
            break
        if _includes(found, wanted):
            earlier.append(present)
    else:
        raise KernelMissingError(2, f"cannot delete {rule.called}")
    for other in earlier:
        delete(sock, other)
    try:
        delete(sock, rule)
    finally:
        for other in earlier:
            add(sock, renamed(other, "", ""))


def _includes(found: RuleKey, wanted: RuleKey) -> bool:
    """Whether a rule has all that another one asks for."""
    same = (found.family, found.priority, found.table) == (wanted.family, wanted.priority, wanted.table)
    return same and all(not want or has == want for has, want in zip(found[3:], wanted[3:], strict=True))


def _network(family: int, packed: bytes | None, length: int) -> str:
    return f"{socket.inet_ntop(family, packed)}/{length}" if packed and length else ""


def _number(fields: dict[int, bytes], kind: int) -> int:
    return to_u32(fields[kind]) if kind in fields else 0


def _name(fields: dict[int, bytes], kind: int) -> str:
    return bytes(fields.get(kind, b"")).rstrip(b"\0").decode(errors="replace")
