"""The networks of steps that hand out one address twice (decision D33).

IPAM plugins keep leases by the network's name, so two steps on one wire with one range must be on one network.
Admission and `netdra validate` warn of ranges that overlap.
"""

from __future__ import annotations

import ipaddress
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

import msgspec

from netdra.model.findings import Finding, Path, about
from netdra.model.topology import NetworkTopology, Step
from netdra.topology.bind import network_name

_Wire = tuple[int | None, ...]
"""The VLAN tags on the way to the device, None where one is not known."""


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses that a step hands out.

    Attributes:
        store: where the leases are kept: the plugin, the network and the folder. Ranges of one store never clash.
        first: the first address; `last` the last one.
        wire: where the addresses are used.
        step: the step that hands them out; `at` is its place in `spec.steps`.
        path: the place in the config.
    """

    topology: str
    step: str
    at: int
    path: Path
    store: tuple[str, str, str]
    version: int
    first: int
    last: int
    wire: _Wire

    def clashes(self, other: Range) -> bool:
        """Whether both can hand out one address on what may be one wire."""
        return (
            self.store != other.store
            and self.version == other.version
            and self.first <= other.last
            and other.first <= self.last
            and _may_be_one(self.wire, other.wire)
        )


class _Part(msgspec.Struct, frozen=True):
    """Addresses that the same ranges hand out: the first of them, and the first one of another store."""

    first: int
    last: int
    owners: tuple[Range, ...]


class _Taken:
    """The addresses of one version that are handed out on one wire, in order and without overlaps."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._parts: list[_Part] = []

    def other(self, wanted: Range) -> Range | None:
        """A range of another store that has an address of this one."""
        for part in self._parts[slice(*self._overlapped(wanted))]:
            for owner in part.owners:
                if owner.store != wanted.store:
                    return owner
        return None

    def add(self, new: Range) -> None:
        """Take a range's addresses; of those that two stores have already, nothing more needs to be known."""
        start, end = self._overlapped(new)
        made: list[_Part] = []
        free = new.first
        for part in self._parts[start:end]:
            low, high = max(part.first, new.first), min(part.last, new.last)
            known = any(owner.store == new.store for owner in part.owners)
            owners = part.owners if known or len(part.owners) > 1 else (*part.owners, new)
            made += [_Part(part.first, low - 1, part.owners)] * (part.first < low)
            made += [_Part(free, low - 1, (new,))] * (free < low)
            made.append(_Part(low, high, owners))
            made += [_Part(high + 1, part.last, part.owners)] * (high < part.last)
            free = high + 1
        made += [_Part(free, new.last, (new,))] * (free <= new.last)
        self._parts[start:end] = made = [*_merged(made)]
        self._starts[start:end] = [part.first for part in made]

    def _overlapped(self, wanted: Range) -> tuple[int, int]:
        """Where the parts begin and end that have an address of a range."""
        start = bisect_right(self._starts, wanted.first)
        start -= bool(start and self._parts[start - 1].last >= wanted.first)
        return start, bisect_right(self._starts, wanted.last)


def _merged(parts: Iterable[_Part]) -> Iterator[_Part]:
    """Neighbours of the same owners as one."""
    for _, same in groupby(parts, lambda part: tuple(map(id, part.owners))):
        found = [*same]
        yield _Part(found[0].first, found[-1].last, found[0].owners)


def _may_be_one(wire: _Wire, other: _Wire) -> bool:
    return len(wire) == len(other) and all(None in pair or pair[0] == pair[1] for pair in zip(wire, other, strict=True))


def _clashes(every: Iterable[Range]) -> Iterator[tuple[Range, Range]]:
    """Each range with an earlier one that can hand out one of its addresses on what may be one wire."""
    taken: dict[tuple[int, _Wire], _Taken] = {}
    unsure: set[tuple[int, _Wire]] = set()
    for new in every:
        key = new.version, new.wire
        is_unsure = None in new.wire
        near = [key] if key in taken else []
        near += [other for other in (taken if is_unsure else unsure) if other != key]
        found = (
            taken[other].other(new) for other in near if other[0] == new.version and _may_be_one(new.wire, other[1])
        )
        if (earlier := next(filter(None, found), None)) is not None:
            yield earlier, new
        taken.setdefault(key, _Taken()).add(new)
        if is_unsure:
            unsure.add(key)


def overlaps(topologies: Iterable[NetworkTopology]) -> Iterator[tuple[str, Finding]]:
    """Steps of different networks that hand out addresses of one range: a finding about each later step, once.

    Yields:
        the later topology, and what its author should know.
    """
    reported: set[tuple[str, str]] = set()
    for earlier, later in _clashes(entry for topology in topologies for entry in ranges(topology)):
        key = later.topology, later.step
        if key in reported:
            continue
        reported.add(key)
        where = f'step "{earlier.step}"'
        if earlier.topology != later.topology:
            where += f' of "{earlier.topology}"'
        low, high = (
            str(ipaddress.ip_address(number) if later.version == 4 else ipaddress.IPv6Address(number))
            for number in (max(earlier.first, later.first), min(earlier.last, later.last))
        )
        what = f"{f'addresses {low} to {high} are' if low != high else f'address {low} is'} handed out by {where} too"
        finding = about(
            later.topology,
            later.step,
            f"{what}, which is another network: on one wire two pods will have one address",
            hint='say the same "network" in both steps, or divide the range',
            path=("spec", "steps", later.at, "config", *later.path),
        )
        yield later.topology, finding


def ranges(topology: NetworkTopology) -> Iterator[Range]:
    """The addresses that a topology's steps hand out, as far as they are written in plain words."""
    steps = {step.name: step for step in topology.spec.steps}
    for at, step in enumerate(topology.spec.steps):
        ipam = step.config.get("ipam")
        if not isinstance(ipam, Mapping):
            continue
        for store, path, first, last in _ranges(network_name(topology.name, step), ipam):
            yield Range(
                topology=topology.name,
                step=step.name,
                at=at,
                path=("ipam", *path),
                store=store,
                version=first.version,
                first=int(first),
                last=int(last),
                wire=tuple(_tags(step, steps, 0)),
            )


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Assigned = tuple[tuple[str, str, str], Path, _Address, _Address]
_DEEP = 64


def _ranges(network: str, ipam: Mapping[str, Any]) -> Iterator[_Assigned]:
    kind = ipam.get("type")
    if kind == "host-local":
        store = "host-local", network, str(ipam.get("dataDir") or "")
        for path, written in host_local(ipam):
            if (bounds := _bounds(written, "subnet", "rangeStart", "rangeEnd")) is not None:
                yield store, path, *bounds
    elif kind == "whereabouts":
        # Its leases are the cluster's, and kept by the range.
        store = "whereabouts", str(ipam.get("network_name") or ""), ""
        if (bounds := _bounds(ipam, "range", "range_start", "range_end")) is not None:
            yield store, ("range",), *bounds
    elif kind == "static":
        listed = ipam.get("addresses")
        for at, entry in enumerate(listed if isinstance(listed, list | tuple) else ()):
            text = entry.get("address") if isinstance(entry, Mapping) else None
            try:
                address = ipaddress.ip_interface(text).ip  # type: ignore[arg-type]
            except (ValueError, TypeError):
                continue
            # One pod has it, as its author wants: whether two topologies may name one address is for their authors.
            yield ("static", "", ""), ("addresses", at, "address"), address, address


def host_local(ipam: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The ranges in the config of host-local, each with its place."""
    if ipam.get("subnet"):
        yield ("subnet",), ipam
    sets = ipam.get("ranges")
    for number, every in enumerate(sets if isinstance(sets, list | tuple) else ()):
        for at, entry in enumerate(every if isinstance(every, list | tuple) else ()):
            if isinstance(entry, Mapping):
                yield ("ranges", number, at), entry


def _bounds(written: Mapping[str, Any], subnet: str, first: str, last: str) -> tuple[_Address, _Address] | None:
    """The first and last address of a range; None if it is not to be understood, which another check reports."""
    try:
        network = ipaddress.ip_network(written.get(subnet, ""), strict=False)
        size = network.num_addresses
        low = ipaddress.ip_address(written[first]) if written.get(first) else network[min(1, size - 1)]
        spared = 2 if network.version == 4 and size > 2 else 1
        high = ipaddress.ip_address(written[last]) if written.get(last) else network[size - spared]
    except (ValueError, TypeError):
        return None
    return (low, high) if low.version == high.version and low <= high else None  # type: ignore[operator]


def _tags(step: Step, steps: Mapping[str, Step], depth: int) -> Iterator[int | None]:
    """The VLAN tags between a step and its device."""
    key = {"vlan": "id" if "id" in step.config else "vlanId", "sriov": "vlan", "bridge": "vlan"}.get(step.type, "")
    tag = step.config.get(key)
    if tag and isinstance(tag, int):
        yield tag
    elif isinstance(tag, str):
        yield None
    before = steps.get(step.depend_on[0]) if step.depend_on else None
    if before is not None and depth < _DEEP:
        yield from _tags(before, steps, depth + 1)
