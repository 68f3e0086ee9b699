"""Policy rules over rtnetlink: list, add, delete. Follows ip-rule(8) and include/uapi/linux/fib_rules.h."""

from __future__ import annotations

import socket
import struct

import msgspec

from netdra.kernel import uapi
from netdra.kernel.netlink import NLM_F_CREATE, NLM_F_EXCL, Socket, attribute, attributes, to_u32

_HEADER = struct.Struct("=BBBBBBBBI")  # struct fib_rule_hdr: family, lengths, tos, table, two reserved, action, flags
_OWN_FLAGS = 0xFFFF
"""Flags from bit 16 up are the kernel's reports: the rule's interface is missing, its target is unresolved."""
_FAMILIES = (socket.AF_INET, socket.AF_INET6)


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
    flags = NLM_F_CREATE | NLM_F_EXCL
    sock.request(uapi.RTM_NEWRULE, rule.message, flags=flags, doing=f"cannot add {rule.called}")


def delete(sock: Socket, rule: PolicyRule) -> None:
    """Delete a rule.

    Raises:
        KernelMissingError: no such rule exists.
        KernelError: the kernel refused.
    """
    sock.request(uapi.RTM_DELRULE, rule.message, doing=f"cannot delete {rule.called}")


def _number(fields: dict[int, bytes], kind: int) -> int:
    return to_u32(fields[kind]) if kind in fields else 0


def _name(fields: dict[int, bytes], kind: int) -> str:
    return bytes(fields.get(kind, b"")).rstrip(b"\0").decode(errors="replace")
