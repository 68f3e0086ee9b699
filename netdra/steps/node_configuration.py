"""The node's network configuration that hangs on a link, recorded before the link leaves, and restored when it is back.

Called by `moving`. It is what the kernel forgets with the link: addresses, next hop objects and groups with them,
neighbours, and routes, also those through other links whose source is an address of this one. All are kept as the
kernel's own messages (`netdra.kernel.replay`), so that nothing of them is lost, and come back in their order.

Configuration that a router advertised comes by itself again: routes are left to the kernel, addresses get their
remaining lifetime. Policy rules belong to the namespace, and stay.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

import msgspec

from netdra.kernel import address, link, multicast, replay, route_replay, uapi
from netdra.kernel.errors import KernelError, KernelExistsError, KernelMissingError
from netdra.kernel.link import Link
from netdra.kernel.netlink import Request, Socket, u32
from netdra.steps.contract import Attempts

MOST = 4096
"""Messages of one kind of one link; a routing daemon may have made many thousands of routes."""
_AT_ONCE = 64
_MOST_AT_ONCE = 128  # the kernel's replies to some more would not fit the socket's buffer


class NodeAddress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An address's message; it is used until, and valid until, on the monotonic clock, None for ever."""

    message: bytes
    preferred_until: float | None = None
    valid_until: float | None = None

    @property
    def is_valid(self) -> bool:
        """Whether the link would still have it."""
        return _is_ahead(self.valid_until)


class NodeRoute(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A route's message; it is valid until, on the monotonic clock, None for ever.

    `other` is a route that does not depend on the link, but has its order among those that do.
    """

    message: bytes
    other: bool = False
    valid_until: float | None = None


class NodeConfiguration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The node's configuration on a link of that index and name, all in the order in which it is to be added.

    `left_out` are notes on the entries that are too many to be recorded.
    """

    index: int
    name: str
    addresses: tuple[NodeAddress, ...] = ()
    nexthops: tuple[bytes, ...] = ()
    routes: tuple[NodeRoute, ...] = ()
    neighbours: tuple[bytes, ...] = ()
    groups: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def read(netdev: Link, sock: Socket, *, with_groups: bool) -> NodeConfiguration:
    """The node's configuration of a link just now.

    Args:
        netdev: the link.
        sock: a socket in its namespace.
        with_groups: whether the calling thread's namespace is the link's: only then its groups can be read.

    Raises:
        KernelError: the kernel refused.
    """
    index = netdev.index
    left_out: list[str] = []
    addresses = _limit("addresses", replay.dump_addresses(sock, index), left_out)
    nexthops = _limit("next hop objects", replay.dump_nexthops(sock, index), left_out)
    neighbours = _limit("neighbours", _neighbours(index, sock), left_out)
    routes = _routes(route_replay.dump(sock), _Dependence(index, addresses, nexthops), left_out)
    return NodeConfiguration(
        index=index,
        name=netdev.name,
        addresses=tuple(map(_address, addresses)),
        nexthops=tuple(nexthops),
        routes=tuple(routes),
        neighbours=tuple(neighbours),
        groups=multicast.static_groups(index) if with_groups else (),
        left_out=tuple(f'netdev "{netdev.name}": {text}' for text in left_out),
    )


def restore(former: NodeConfiguration, index: int, sock: Socket, attempts: Attempts) -> None:
    """Make the node's configuration of a link what it was; each part that the kernel refuses becomes a note.

    Args:
        former: the record.
        index: the link's index now.
        sock: a socket in its namespace.
        attempts: gets the notes, and an error where the kernel is short of memory.
    """
    attempts.notes += former.left_out
    added: list[bytes] = []
    attempts.run(lambda: _restore_addresses(former, index, sock, added))
    attempts.run(lambda: _restore_nexthops(former, index, sock))
    attempts.run(lambda: _restore_routes(former, index, sock, added))
    attempts.run(lambda: _restore_neighbours(former, index, sock))
    if former.groups:
        attempts.run(lambda: _restore_groups(former, index, sock))


def lost(former: NodeConfiguration, index: int, sock: Socket) -> Iterator[tuple[str, bool]]:
    """The entries that the node had configured on a link and has no longer, in words, with whether each is an address.

    Without the routes that the kernel makes for addresses.

    Raises:
        KernelError: the kernel refused.
    """
    there = {replay.address_key(body) for body in replay.dump_addresses(sock, index)}
    for entry in former.addresses:
        shown = address.parse(entry.message)
        comes_and_goes = shown.is_link_local  # with the carrier
        if _is_ahead(entry.valid_until) and not comes_and_goes and replay.address_key(entry.message) not in there:
            yield f"address {shown.text}", True
    objects = set(replay.dump_nexthops(sock, index)) if former.nexthops else set()
    for body in former.nexthops:
        if replay.nexthop_on(body, index) not in objects:
            yield f"next hop object {replay.nexthop_id(body)}", False
    recorded = [route.message for route in former.routes]
    routes = {route_replay.settable(body) for _, body in _like(route_replay.dump(sock) if recorded else (), recorded)}
    for route in former.routes:
        body = route_replay.settable(route.message, former.index, index)
        expected = not route.other and _is_ahead(route.valid_until) and not route_replay.is_of_kernel(body)
        if expected and body not in routes:
            yield f"route to {route_replay.destination(body)}", False
    known = set(replay.dump_neighbours(sock, index)) if former.neighbours else set()
    for body in former.neighbours:
        if replay.neighbour_on(body, index) not in known:
            yield replay.neighbour_text(body), False


def _address(body: bytes) -> NodeAddress:
    entry = address.parse(body)
    return NodeAddress(message=body, preferred_until=_until(entry.preferred), valid_until=_until(entry.valid))


def _neighbours(index: int, sock: Socket) -> list[bytes]:
    """The configured neighbours of a link, without the MACs of links that stand on it, which go with those links."""
    bodies = replay.dump_neighbours(sock, index)
    if not any(body[0] == replay.AF_BRIDGE for body in bodies):
        return bodies
    stacked = {upper.address for upper in link.stacked_on(sock, index)}
    return [body for body in bodies if replay.forwarded(body) not in stacked]


def _limit(what: str, bodies: Sequence[bytes], left_out: list[str]) -> Sequence[bytes]:
    if len(bodies) > MOST:
        left_out.append(f"{len(bodies) - MOST} of {len(bodies)} {what} are not restored; at most {MOST} are recorded")
    return bodies[:MOST]


class _Dependence:
    """Which routes go with a link: those through it, by a next hop object of it, or with an address of it as source."""

    def __init__(self, index: int, addresses: Iterable[bytes], nexthops: Iterable[bytes]) -> None:
        self._index = index
        self._objects = {replay.nexthop_id(body) for body in nexthops}
        self._sources = {replay.address_bytes(body) for body in addresses}
        # Of thousands of routes, few have any of these bytes: only those are parsed.
        needles = (u32(index), *map(u32, self._objects), *self._sources)
        self._is_candidate = re.compile(b"|".join(map(re.escape, needles)), re.DOTALL).search

    def covers(self, body: bytes) -> bool:
        """Whether a route goes with the link."""
        if not self._is_candidate(body) or route_replay.comes_by_itself(body):
            return False
        uses = route_replay.dependencies(body)
        return self._index in uses.links or uses.nexthop in self._objects or uses.source in self._sources


def _routes(bodies: Sequence[bytes], dependence: _Dependence, left_out: list[str]) -> Iterator[NodeRoute]:
    """The routes that go with a link, and those among which their order counts."""
    every = [body for body in bodies if dependence.covers(body)]
    own = set(every)
    if len(every) > MOST:
        every.sort(key=route_replay.is_of_daemon)
        daemons = sum(map(route_replay.is_of_daemon, every[MOST:]))
        left_out.append(
            f"{len(every) - MOST} of {len(every)} routes are not restored, {daemons} of them of routing daemons; at "
            f"most {MOST} are recorded"
        )
    chosen = set(every[:MOST])
    starts = set(map(route_replay.start, chosen))
    near = [body for body in bodies if body not in own and route_replay.start(body) in starts]
    beside = {body for _, body in _like(near, chosen) if not route_replay.comes_by_itself(body)} if near else set()
    now = time.monotonic()
    for body in bodies:
        if body in chosen or body in beside:
            left = route_replay.expires(body)
            until = None if left is None else now + left
            yield NodeRoute(message=route_replay.settable(body), other=body in beside, valid_until=until)


def _like(bodies: Iterable[bytes], examples: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """The routes of the same keys as the examples, each after its key."""
    examples = tuple(examples)
    keys = set(map(route_replay.key, examples))
    # Of thousands of routes, most have another destination: only the others are parsed.
    starts = set(map(route_replay.start, examples))
    for body in bodies:
        if route_replay.start(body) in starts and (key := route_replay.key(body)) in keys:
            yield key, body


def _restore_addresses(former: NodeConfiguration, index: int, sock: Socket, added: list[bytes]) -> Iterator[str]:
    """Add the addresses that are missing; those that could be added are appended to `added`."""
    there = {replay.address_key(body) for body in replay.dump_addresses(sock, index)} if former.addresses else set()
    for entry in former.addresses:
        if replay.address_key(entry.message) in there or not _is_ahead(entry.valid_until):
            continue
        left = _left(entry.preferred_until), _left(entry.valid_until)
        refused = _refusals(sock, replay.add_address(entry.message, index, former.name, *left))
        if not refused:
            added.append(entry.message)
        yield from refused[:1]


def _restore_nexthops(former: NodeConfiguration, index: int, sock: Socket) -> Iterator[str]:
    """Add the next hop objects that are missing, and give groups back the members that they have lost."""
    for recorded in former.nexthops:
        body = replay.nexthop_on(recorded, index)
        now = replay.find_nexthop(sock, replay.nexthop_id(body))
        if now == body:
            continue
        if now is None or replay.members(now) < replay.members(body):
            yield from _refusals(sock, [replay.add_nexthop(body)])
        else:
            yield f"next hop object {replay.nexthop_id(body)} is another one by now, and is left alone"


def _restore_neighbours(former: NodeConfiguration, index: int, sock: Socket) -> Iterator[str]:
    known = set(replay.dump_neighbours(sock, index)) if former.neighbours else set()
    for body in (replay.neighbour_on(recorded, index) for recorded in former.neighbours):
        if body not in known:
            yield from _refusals(sock, [replay.add_neighbour(body)])


def _restore_groups(former: NodeConfiguration, index: int, sock: Socket) -> Iterator[str]:
    there, name = multicast.static_groups(index), link.get(sock, index).name
    for mac in former.groups:
        if mac not in there:
            try:
                multicast.add_static_group(sock, name, mac)
            except KernelError as problem:
                yield problem.what


def _restore_routes(former: NodeConfiguration, index: int, sock: Socket, added: Iterable[bytes]) -> Iterable[str]:
    """Add the routes that are missing at their places, and remove those that came with addresses and were not there.

    A route to a router needs the route to the router's network, which need not come before it in the record: a
    refused route is tried again as long as other routes could be added meanwhile.
    """
    pending = sorted(_places(former, index, sock, added), key=lambda place: place.needs_others)
    while pending:
        refused = list(_refused(sock, pending))
        for place, _ in refused:
            _refusals(sock, place.amends())
        if len(refused) == len(pending):
            return chain.from_iterable(texts for _, texts in refused)
        pending = [place for place, _ in refused]
    return ()


class _Place:
    """The routes of one key: how they are listed now, and how they are wanted."""

    def __init__(
        self, now: Mapping[bytes, bytes], wanted: Sequence[bytes], until: Mapping[bytes, float | None]
    ) -> None:
        self._now, self._until = now, until
        self._changes = route_replay.changes(tuple(now), wanted)
        kept = set(wanted)
        if any(last is None and body in kept and self._is_kept_by_kernel(body) for body, last in self._changes):
            # A route that the kernel adds itself, or that expires, would differ if it were added again.
            self._changes = [(body, True) for body in wanted if body not in now]
        self._partial = [body for body, last in self._changes if last is None and body not in kept]

    @property
    def needs_others(self) -> bool:
        """Whether a route of it needs the route to its next router."""
        return any(last is not None and route_replay.is_gateway(body) for body, last in self._changes)

    def requests(self) -> list[Request]:
        """The requests that bring the wanted routes about."""
        return [
            route_replay.delete(body) if last is None else self._add(body, last=last) for body, last in self._changes
        ]

    def amends(self) -> list[Request]:
        """The requests that restore the routes that were deleted for a route that was then refused."""
        return [self._add(body, last=True) for body in self._partial]

    def _is_kept_by_kernel(self, body: bytes) -> bool:
        present = self._now[body]
        expires = route_replay.expires(present) is not None
        return route_replay.comes_by_itself(present) or (expires and self._until.get(body) is None)

    def _add(self, body: bytes, *, last: bool) -> Request:
        return route_replay.add(body, last=last, expires_in=_left(self._until.get(body)))


def _places(former: NodeConfiguration, index: int, sock: Socket, added: Iterable[bytes]) -> Iterator[_Place]:
    """The places whose routes are not as they were."""
    was: dict[bytes, dict[bytes, NodeRoute]] = {}
    for entry in former.routes:
        body = route_replay.settable(entry.message, former.index, index)
        was.setdefault(route_replay.key(body), {})[body] = entry
    bodies = route_replay.dump(sock) if was or added else []
    came = _came_with(bodies, index, added)
    now: dict[bytes, dict[bytes, bytes]] = {key: {} for key in was}
    for key, body in _like(bodies, chain((entry.message for entry in former.routes), came)):
        now.setdefault(key, {})[route_replay.settable(body)] = body
    extra = set(map(route_replay.settable, came))
    for key, listed in now.items():
        recorded = was.get(key, {})
        wanted = list(_wanted(recorded, listed, extra))
        if wanted != list(listed):
            own = {body: entry.valid_until for body, entry in recorded.items() if not entry.other}
            yield _Place(listed, wanted, own)


def _wanted(
    recorded: Mapping[bytes, NodeRoute], listed: Mapping[bytes, bytes], extra: Container[bytes]
) -> Iterator[bytes]:
    """The routes of one key as they are to be: the recorded ones first, then those that others have added since."""
    missing = []
    for body, entry in recorded.items():
        if body in listed or (not entry.other and _is_ahead(entry.valid_until)):
            yield body
        if body not in listed and not entry.other and listed:
            missing.append(route_replay.next_hops(body))
    for body in listed:
        # IPv6 leaves a route over several links without the one that has gone: the whole route takes its place.
        is_rest = body[0] == socket.AF_INET6 and any(route_replay.next_hops(body) <= hops for hops in missing)
        if body not in recorded and body not in extra and not is_rest:
            yield body


def _came_with(bodies: Iterable[bytes], index: int, added: Iterable[bytes]) -> list[bytes]:
    """The routes to networks that the kernel made for addresses which have just been added to a link."""
    networks = {replay.network(body) for body in added}
    needle = u32(index)
    return [
        body
        for body in bodies
        if body[5] == uapi.RTPROT_KERNEL and body[7] == uapi.RTN_UNICAST and needle in body
        if route_replay.dependencies(body).links == {index} and route_replay.destination(body) in networks
    ]


def _refused(sock: Socket, places: Iterable[_Place]) -> Iterator[tuple[_Place, list[str]]]:
    """Change places; return those of which the kernel refused something, each with the refusals in words."""
    sent: list[tuple[_Place, Sequence[Request]]] = []
    waiting = 0
    for place in chain(places, (None,)):
        if waiting and (place is None or waiting >= _AT_ONCE):
            answers = iter(_answers(sock, [request for _, requests in sent for request in requests]))
            for changed, requests in sent:
                if texts := [text for text in islice(answers, len(requests)) if text]:
                    yield changed, texts
            sent, waiting = [], 0
        if place is not None:
            sent.append((place, place.requests()))
            waiting += len(sent[-1][1])


def _refusals(sock: Socket, requests: Sequence[Request]) -> list[str]:
    """Send changes; return the kernel's refusals in words, except for entries that exist, or are gone, already.

    Raises:
        KernelError: the kernel is short of memory.
    """
    return [text for text in _answers(sock, requests) if text]


def _answers(sock: Socket, requests: Sequence[Request]) -> Iterator[str]:
    """Send changes; return for each the kernel's refusal in words, "" for none."""
    for start in range(0, len(requests), _MOST_AT_ONCE):
        sent = requests[start : start + _MOST_AT_ONCE]
        for request, problem in zip(sent, sock.request_all(sent), strict=True):
            is_done = isinstance(problem, KernelExistsError) or (
                request.kind == uapi.RTM_DELROUTE and isinstance(problem, KernelMissingError)
            )
            if problem is not None and problem.is_short:
                raise problem
            yield "" if problem is None or is_done else problem.what


def _until(seconds: int | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds


def _left(until: float | None) -> int | None:
    return None if until is None else max(0, int(until - time.monotonic()))


def _is_ahead(until: float | None) -> bool:
    return until is None or until - time.monotonic() >= 1
