"""A PodNetwork: its ranges as maps of addresses, a cell for each address or block, and their owners. Pure.

A map has `MAX_CELLS` cells at most: a /16 has a cell for each 64 addresses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from netdra.cluster.objects import ClusterState
from netdra.console.frame import facts, link, section, state, table, together
from netdra.console.markup import Child, Markup, PageAddress, element
from netdra.console.rows import network_state, usage_bar
from netdra.console.times import ago
from netdra.model.pod_address import PodAddress
from netdra.model.pod_network import AddressRange, PodNetwork, PodNetworkStatus
from netdra.networks.ranges import Span, bounds, network_of, shown, usable

MAX_CELLS = 1024
_STEPS = 4
WORDS: Mapping[str, str] = {
    "used": "a claim has it",
    "reserved": "kept or reserved for an owner",
    "imported": "a lease of another IPAM plugin",
    "conflict": "another machine on the wire has it",
    "free": "can be assigned",
    "excluded": "is never assigned",
}
"""The states of an address, and each in words."""
_TONES = {"used": "busy", "reserved": "warn", "imported": "calm", "conflict": "bad", "free": "good", "excluded": "none"}


def address_state(address: PodAddress) -> str:
    """The state of an address that is not free, one of `WORDS`."""
    spec = address.spec
    if spec.conflict_since:
        return "conflict"
    if spec.lease is not None:
        return "imported"
    return "used" if spec.claim is not None else "reserved"


def network_content(cluster: ClusterState, network: PodNetwork) -> Child:
    """The content of a PodNetwork's page, beside its story."""
    own = sorted(
        (entry for entry in cluster.addresses if entry.spec.network == network.name), key=lambda entry: entry.number
    )
    status, spec = network.status or PodNetworkStatus(), network.spec
    using = [
        entry.name for entry in cluster.topologies if any(step.pod_network == network.name for step in entry.spec.steps)
    ]
    return (
        facts(
            (
                ("State", state(network_state(network))),
                ("Addresses", usage_bar(status)),
                ("Claims", status.users),
                ("Topologies", together(link(name, "topologies", name) for name in using)),
                ("VLAN", spec.vlan),
                ("MTU", spec.mtu),
                ("Physical network", spec.physnet),
                ("Name servers", ", ".join(spec.dns)),
                ("Namespaces", ", ".join(spec.namespaces) or "all"),
            )
        ),
        section("Ranges", _legend(own), [_range(entry, network, own) for entry in spec.ranges]),
        _addresses(own, cluster.server_time),
    )


def _legend(own: Iterable[PodAddress]) -> Markup:
    present = {"free", "excluded", "used", *map(address_state, own)}
    words = (
        element(
            "span", element("span", class_=f"box {'s0' if name == 'free' else _TONES[name]}"), f" {name}: {meaning}"
        )
        for name, meaning in WORDS.items()
        if name in present
    )
    return element("p", words, class_="legend quiet")


def _range(entry: AddressRange, network: PodNetwork, own: Sequence[PodAddress]) -> Markup:
    """A range with its map."""
    try:
        subnet = network_of(entry.cidr)
        whole, spans = bounds(entry), usable(entry, network)
    except ValueError as problem:
        return element("div", element("h3", entry.cidr), element("p", f"The range is not valid: {problem}"))
    inside = [
        address
        for address in own
        if whole.first <= address.number <= whole.last
        and f"/{address.spec.address.partition('/')[2]}" == f"/{entry.cidr.partition('/')[2]}"
    ]
    total = sum(span.size for span in spans)
    counts = Counter(map(address_state, inside))
    counted = ", ".join(f"{counts[name]} {name}" for name in WORDS if counts[name])
    words = f"{total} addresses can be assigned{f': {counted}' if counted else ''}"
    gateway = f", gateway {entry.gateway}" if entry.gateway else ""
    size = _block(whole)
    each = f" A cell is a block of {size} addresses." if size > 1 else ""
    cells = _cells(whole, spans, inside, subnet.version, size)
    return element(
        "div",
        element("h3", entry.cidr),
        element("p", f"{words}{gateway}.{each}", class_="quiet"),
        element("div", cells, class_="map addresses", role="group", aria_label=f"Map of {entry.cidr}"),
    )


def _block(whole: Span) -> int:
    """How many addresses a cell stands for: a power of two."""
    size = 1
    while whole.size > size * MAX_CELLS:
        size *= 2
    return size


def _cells(
    whole: Span, spans: Sequence[Span], inside: Sequence[PodAddress], version: int, size: int
) -> Iterator[Markup]:
    blocks: dict[int, list[PodAddress]] = {}
    for address in inside:
        blocks.setdefault((address.number - whole.first) // size, []).append(address)
    free = _FreeCounts(spans)
    # A range of IPv6 has more blocks than cells; those after the last address are left out.
    for at in range(-(-whole.size // size)):
        first = whole.first + at * size
        last = min(first + size - 1, whole.last)
        if size == 1:
            yield _single(shown(first, version), blocks.get(at, ()), is_usable=free.within(first, last) > 0)
        else:
            words = f"{shown(first, version)} to {shown(last, version)}"
            yield _many(words, blocks.get(at, ()), free.within(first, last))


class _FreeCounts:
    """How many addresses of some spans are within others, asked in their order."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans

    def within(self, first: int, last: int) -> int:
        return sum(max(0, min(last, span.last) - max(first, span.first) + 1) for span in self._spans)


def _single(text: str, own: Sequence[PodAddress], *, is_usable: bool) -> Markup:
    """A cell for one address."""
    if not own:
        name = "free" if is_usable else "excluded"
        return element("span", class_=_TONES[name], title=f"{text}: {name}")
    spec, name = own[0].spec, address_state(own[0])
    words = f"{text}: {name}, {spec.owner.namespace}/{spec.owner.name}"
    if spec.claim is None:
        return element("span", class_=_TONES[name], title=words)
    where = PageAddress("claims", spec.owner.namespace, spec.claim.name)
    return element("a", class_=_TONES[name], href=where, title=words, aria_label=words, tabindex=-1)


def _many(words: str, own: Sequence[PodAddress], total: int) -> Markup:
    """A cell for a block of addresses, by the share that is not free."""
    if not total:
        return element("span", class_="none", title=f"{words}: never assigned")
    step = min(-(-len(own) * _STEPS // total), _STEPS)
    return element("span", class_=f"s{step}", title=f"{words}: {len(own)} of {total} not free")


def _addresses(own: Sequence[PodAddress], now: str) -> Markup | None:
    if not own:
        return None
    rows = [
        (
            address.spec.address,
            state(address_state(address)),
            f"{address.spec.owner.namespace}/{address.spec.owner.name}",
            link(address.spec.claim.name, "claims", address.spec.owner.namespace, address.spec.claim.name)
            if address.spec.claim is not None
            else "",
            link(address.spec.node_name, "nodes", address.spec.node_name) if address.spec.node_name else "",
            ago(address.metadata.creation_timestamp or "", now),
        )
        for address in own
    ]
    columns = ("Address", "State", "Owner", "Claim", "Node", "Assigned")
    return section("Addresses", table(f"{len(own)} addresses that are not free", columns, rows))
