"""The networks of steps that hand out one address twice (decision D33).

IPAM plugins keep leases by the network's name, so two steps on one wire with one range must be on one network.
Admission and `netdra validate` warn of ranges that overlap.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
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
        """Whether both can hand out one address, perhaps on one wire."""
        return (
            self.store != other.store
            and self.version == other.version
            and self.first <= other.last
            and other.first <= self.last
            and _may_be_one(self.wire, other.wire)
        )


class _Taken:
    """Ranges in a segment tree over addresses; each node keeps at most two of different stores.

    For any range's store, one of these two is of another. So adding and searching take a number of steps that
    grows with the logarithm of the number of ranges, however they lie.
    """

    def __init__(self, bounds: Iterable[int]) -> None:
        """Make it for ranges of which each first address, and each address after the last one, is among `bounds`."""
        self._leaves = {bound: at for at, bound in enumerate(sorted({*bounds}))}
        self._whole: list[tuple[Range, ...]] = [()] * (2 * len(self._leaves))
        self._some = self._whole[:]

    def other(self, wanted: Range) -> Range | None:
        """A range of another store that has an address of this one."""
        inside, above = self._nodes(wanted)
        owners = chain(*(self._some[node] for node in inside), *(self._whole[node] for node in above))
        return next((owner for owner in owners if owner.store != wanted.store), None)

    def add(self, new: Range) -> None:
        """Add a range."""
        inside, above = self._nodes(new)
        for node in inside:
            self._whole[node] = _two_stores(self._whole[node], new)
        for node in {*inside, *above}:
            self._some[node] = _two_stores(self._some[node], new)

    def _nodes(self, wanted: Range) -> tuple[list[int], set[int]]:
        """The nodes that a range is made of, and all above these."""
        low, high = (self._leaves[bound] + len(self._leaves) for bound in _bounds_of(wanted))
        above = {leaf >> level for leaf in (low, high - 1) for level in range(1, leaf.bit_length())}
        inside = []
        while low < high:
            if low & 1:
                inside.append(low)
                low += 1
            if high & 1:
                high -= 1
                inside.append(high)
            low, high = low >> 1, high >> 1
        return inside, above


def _two_stores(owners: tuple[Range, ...], new: Range) -> tuple[Range, ...]:
    is_known = len(owners) > 1 or any(owner.store == new.store for owner in owners)
    return owners if is_known else (*owners, new)


def _bounds_of(entry: Range) -> tuple[int, int]:
    return entry.first, entry.last + 1


def _may_be_one(wire: _Wire, other: _Wire) -> bool:
    return len(wire) == len(other) and all(None in pair or pair[0] == pair[1] for pair in zip(wire, other, strict=True))


_Unknown = tuple[bool, ...]
"""Which tags of a wire are not known."""


def _clashes(ranges_in_order: Iterable[Range]) -> Iterator[tuple[Range, Range]]:
    """Each range with an earlier one that can hand out one of its addresses, perhaps on one wire.

    Wires of which the same tags are unknown may be one if their other tags are equal. There are few such kinds of
    wires, so each kind is searched for the tags that both kinds know.
    """
    every = [(entry, tuple(tag is None for tag in entry.wire)) for entry in ranges_in_order]
    kinds: dict[tuple[int, int], dict[_Unknown, None]] = {}
    for entry, unknown in every:
        kinds.setdefault((entry.version, len(unknown)), {})[unknown] = None

    def trees(entry: Range, unknown: _Unknown) -> Iterator[tuple[tuple[object, ...], tuple[object, ...]]]:
        """For each kind of wire, where its ranges are that may be on the wire of this one, and where this one is."""
        for other in kinds[entry.version, len(unknown)]:
            known = tuple(None if hidden else tag for tag, hidden in zip(entry.wire, other, strict=True))
            yield (entry.version, other, unknown, known), (entry.version, unknown, other, known)

    bounds: dict[tuple[object, ...], list[int]] = {}
    for entry, unknown in every:
        for key in {each for pair in trees(entry, unknown) for each in pair}:
            bounds.setdefault(key, []).extend(_bounds_of(entry))
    taken = {key: _Taken(found) for key, found in bounds.items()}
    for new, unknown in every:
        pairs = [*trees(new, unknown)]
        earlier = next(filter(None, (taken[searched].other(new) for searched, _ in pairs)), None)
        if earlier is not None:
            yield earlier, new
        for _, own in pairs:
            taken[own].add(new)


def overlaps(topologies: Iterable[NetworkTopology]) -> Iterator[tuple[str, Finding]]:
    """Steps of different networks that hand out addresses of one range: a finding about each later step, once.

    Yields:
        the later topology, and the finding for its author.
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
        what = f"{(f'addresses {low} to {high} are' if low != high else f'address {low} is')} also assigned by {where}"
        finding = about(
            later.topology,
            later.step,
            f"{what}, which is another network: two pods on the same wire will have the same address",
            hint='use the same "network" in both steps, or divide the range',
            path=("spec", "steps", later.at, "config", *later.path),
            code="ND1103",
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
                wire=tuple(tags(step, steps, 0)),
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


def tags(step: Step, steps: Mapping[str, Step], depth: int) -> Iterator[int | None]:
    """The VLAN tags between a step and its device."""
    key = {"vlan": "id" if "id" in step.config else "vlanId", "sriov": "vlan", "bridge": "vlan"}.get(step.type, "")
    tag = step.config.get(key)
    if tag and isinstance(tag, int):
        yield tag
    elif isinstance(tag, str):
        yield None
    before = steps.get(step.depend_on[0]) if step.depend_on else None
    if before is not None and depth < _DEEP:
        yield from tags(before, steps, depth + 1)
