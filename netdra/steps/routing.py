"""Policy rules and permanent neighbours that a step gives the pod: parameters, what is missing, adding and removing.

Used by tuning and by `source_routing`. A rule belongs to the namespace and a neighbour to its link, so rules stay when
an interface leaves the pod, and are deleted by themselves.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Annotated

import msgspec

from netdra.kernel import neighbour, rule
from netdra.kernel.errors import KernelExistsError, KernelMissingError
from netdra.kernel.neighbour import Neighbour
from netdra.kernel.rule import PolicyRule
from netdra.model import routing as model
from netdra.model import texts
from netdra.model.errors import InvalidInputError
from netdra.model.routing import ALL_BITS, neighbour_fault, network, rule_fault
from netdra.steps import sysctl
from netdra.steps.contract import Attempts, Count, MacText, PodSpace, Site, check_mac

PRIORITY = 20_000
"""Of rules without a priority: before those of `sourceRouting` and the main table's (32766), after the local one's."""
FIRST, LAST = 1, 32_765
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_NUMBER = r"^(0x[0-9a-fA-F]{1,8}|[0-9]{1,10})(/(0x[0-9a-fA-F]{1,8}|[0-9]{1,10}))?$"


class RuleParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One policy rule, in the words of ip-rule(8).

    IFNAME as `iif` or `oif` is the step's interface. Without `from` and `to` it is added for IPv4 and for IPv6.
    """

    from_: str = msgspec.field(default="", name="from")
    to: str = ""
    iif: str = ""
    oif: str = ""
    fwmark: Count | Annotated[str, msgspec.Meta(pattern=_NUMBER)] | None = None
    table: Count
    priority: Annotated[int, msgspec.Meta(ge=FIRST, le=LAST)] | None = None


class NeighbourParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A permanent neighbour: an IP address on the step's link, and its MAC address."""

    address: str
    mac: MacText


class Routing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rules and neighbours that a step adds; `former` are the permanent neighbours that it replaces."""

    if_name: str
    rules: tuple[PolicyRule, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    former: tuple[Neighbour, ...] = ()

    @property
    def is_nothing(self) -> bool:
        """Whether the step adds neither a rule nor a neighbour, so that nothing has to be undone."""
        return not self.rules and not self.neighbours


def checked_rules(params: RuleParams, where: str, if_name: str) -> tuple[PolicyRule, ...]:
    """A rule as the kernel takes it, of each family that it is for.

    Raises:
        InvalidInputError: it selects everything, a network is not valid, or the two are of different families.
    """
    given = {"from": params.from_, "to": params.to, "iif": params.iif, "oif": params.oif, "fwmark": params.fwmark}
    field, what, hint = rule_fault(given)
    if what:
        raise InvalidInputError(f"{where}{f'.{field}' if field else ''}: {what}", hint=hint, code="ND2059")
    if not params.table:
        raise InvalidInputError(f"{where}: table 0 does not exist", hint="use a table from 1 on", code="ND2060")
    source, destination = (text and network(text) for text in (params.from_, params.to))
    mark, mask = model.mark(params.fwmark) if params.fwmark is not None else (0, ALL_BITS)
    written = source or destination
    families = (socket.AF_INET6 if ":" in written else socket.AF_INET,) if written else _FAMILIES
    return tuple(
        rule.made(
            family,
            priority=params.priority or PRIORITY,
            table=params.table,
            source=source,
            destination=destination,
            input=if_name if params.iif == texts.OWN_INTERFACE else params.iif,
            output=if_name if params.oif == texts.OWN_INTERFACE else params.oif,
            mark=mark,
            mask=mask,
        )
        for family in families
    )


def checked_neighbour(params: NeighbourParams, where: str) -> Neighbour:
    """A neighbour as the kernel takes it.

    Raises:
        InvalidInputError: the address is not one of a single host, or the MAC address not one of an interface.
    """
    check_mac(params.mac, where)
    what, hint = neighbour_fault(params.address)
    if what:
        raise InvalidInputError(f"{where}: {what}", hint=hint, code="ND2061")
    return Neighbour(texts.ip(params.address), params.mac.lower())


def missing(wanted: Routing, index: int, pod: PodSpace) -> Routing:
    """The rules and neighbours that the pod, and its link of that index, do not have yet."""
    if wanted.is_nothing:
        return wanted
    present = {rule.key(entry) for entry in rule.dump(pod.sock)} if wanted.rules else set()
    known = {entry.address: entry for entry in neighbour.dump(pod.sock, index)} if wanted.neighbours else {}
    lacking = tuple(entry for entry in wanted.neighbours if known.get(entry.address) != entry)
    return Routing(
        if_name=wanted.if_name,
        rules=tuple(entry for entry in for_kernel(wanted.rules, pod) if rule.key(entry) not in present),
        neighbours=lacking,
        former=tuple(known[entry.address] for entry in lacking if entry.address in known),
    )


def for_kernel(rules: Iterable[PolicyRule], pod: PodSpace) -> Sequence[PolicyRule]:
    """The rules without those of IPv6 for interfaces or marks, if the kernel has no IPv6."""
    listed = [*rules]
    keys = [rule.key(entry) for entry in listed]
    if all(key.family == socket.AF_INET for key in keys) or sysctl.has_ipv6(pod.namespace):
        return listed
    return [
        entry
        for entry, key in zip(listed, keys, strict=True)
        if key.family == socket.AF_INET or key.source or key.destination
    ]


def add(wanted: Routing, index: int, pod: PodSpace) -> None:
    """Add rules, and add neighbours to the link of that index, which must be up.

    Raises:
        KernelError: the kernel refused one; those before it are there.
    """
    for entry in wanted.neighbours:
        neighbour.add(pod.sock, index, entry)
    for added in wanted.rules:
        with suppress(KernelExistsError):  # by a step that runs at the same time
            rule.add(pod.sock, added)


def remove(added: Routing, index: int, site: Site) -> None:
    """Remove rules and neighbours again; those that are gone already, or went with their link, are skipped.

    Args:
        added: what `missing` returned.
        index: the link's, 0 if it is gone.
        site: where.

    Raises:
        KernelError: the kernel refused; all are tried.
    """
    if site.pod is None:
        return
    attempts, sock = Attempts(), site.pod.sock

    def delete_rule(entry: PolicyRule) -> None:
        with suppress(KernelMissingError):
            rule.delete_exactly(sock, entry)

    def restore(entry: Neighbour) -> None:
        former = next((other for other in added.former if other.address == entry.address), None)
        try:
            if former is not None:
                neighbour.add(sock, index, former)
            else:
                neighbour.delete(sock, index, entry.address)
        except KernelMissingError:
            return

    for policy in reversed(added.rules):
        attempts.run(lambda policy=policy: delete_rule(policy))  # type: ignore[misc]
    for entry in reversed(added.neighbours) if index else ():
        attempts.run(lambda entry=entry: restore(entry))  # type: ignore[misc]
    attempts.result()


def drift(wanted: Routing, index: int, pod: PodSpace) -> tuple[str, ...]:
    """The rules and neighbours that are gone, in words."""
    lost = missing(wanted, index, pod)
    return (
        *(f"{described(entry)} is gone" for entry in lost.rules),
        *(f'interface "{wanted.if_name}": neighbour {entry.address} is not {entry.mac}' for entry in lost.neighbours),
    )


def described(entry: PolicyRule) -> str:
    """A rule as ip-rule(8) writes it."""
    key = rule.key(entry)
    words = (("from", key.source or "all"), ("to", key.destination), ("iif", key.input), ("oif", key.output))
    mark = f" fwmark {key.mark:#x}" + (f"/{key.mask:#x}" if key.mask != ALL_BITS else "") if key.mark else ""
    text = " ".join(f"{word} {value}" for word, value in words if value)
    return f"rule {key.priority}: {text}{mark} lookup {key.table}"
