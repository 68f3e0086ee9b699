"""Which links the routes of a machine leave through, counted from the kernel's messages about single routes.

Filled by `live` from one dump, kept current by `update`, asked by `assemble`. A node of a routed network has tens of
thousands of routes and hundreds of changes a second, so they are not listed again after a change. Of each route only
its key and its next hops are kept; equal next hops share their memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from netdra.kernel.monitor import RouteEvent
from netdra.kernel.route import MadeRoute

_Hop = tuple[int, bytes]
_Hops = tuple[_Hop, ...]
_Group = tuple[_Hops, ...]


class MadeRoutes:
    """The routes that `is_made`, by key. Under one key, IPv4 has routes in an order; IPv6 has one set of next hops."""

    def __init__(self, routes: Iterable[MadeRoute] = ()) -> None:
        """Begin with the routes of a dump."""
        self._groups: dict[bytes, _Group] = {}
        self._keys: dict[int, set[bytes]] = {}
        self._default_keys: set[bytes] = set()
        self._equal: dict[_Group, _Group] = {}
        for route in routes:
            self._add(route, last=True)

    @property
    def links(self) -> frozenset[int]:
        """The links that any of them leaves through."""
        return frozenset(self._keys)

    @property
    def default_links(self) -> frozenset[int]:
        """The links that default routes leave through, of all tables."""
        return self._links_of(self._default_keys)

    @property
    def links_for_all(self) -> frozenset[int]:
        """The links that default routes leave through of the tables that the kernel asks for all traffic."""
        return self._links_of(key for key in self._default_keys if MadeRoute(key, ()).is_for_all)

    def apply(self, event: RouteEvent) -> None:
        """Take in an event; an event whose change is known already changes nothing."""
        route = event.route
        group = self._groups.get(route.key, ())
        if event.replaces and route.is_ipv6:
            self._set(route, ((*route.hops, *_kept(group[0] if group else (), route.hops)),))
        elif event.replaces:
            # Only the first of a key is replaced (fib_table_insert() in net/ipv4/fib_trie.c).
            self._set(route, (route.hops, *(hops for hops in group[1:] if hops != route.hops)))
        elif not event.gone:
            self._add(route, last=event.last)
        elif route.is_ipv6:
            left = tuple(hop for hop in (group[0] if group else ()) if hop not in route.hops)
            self._set(route, (left,) if left else ())
        else:
            self._set(route, tuple(hops for hops in group if hops != route.hops))

    def drop_link(self, index: int) -> None:
        """Forget the routes through a link that is gone: the kernel sends no messages about those of IPv4."""
        for key in tuple(self._keys.get(index, ())):
            # A route of IPv4 goes with any of its links (fib_sync_down_dev()), of one of IPv6 the other hops are left.
            route, group = MadeRoute(key, ()), self._groups[key]
            if route.is_ipv6:
                left = tuple(hop for hop in group[0] if hop[0] != index)
                self._set(route, (left,) if left else ())
            else:
                self._set(route, tuple(hops for hops in group if index not in _links((hops,))))

    def replace_link(self, index: int, routes: Iterable[MadeRoute]) -> set[bytes]:
        """Replace all known routes through a link by those that it has now; those that stay keep their order.

        Returns:
            The keys of IPv4 with routes through other links, too, among which those of this link may stand elsewhere:
            a route that went with its link and came again is behind them. `reorder` them.
        """
        unsure: set[bytes] = set()
        listed: dict[bytes, list[_Hops]] = {}
        for route in routes:
            listed.setdefault(route.key, []).append(route.hops)
        for key in {*self._keys.get(index, ()), *listed}:
            route, group, now = MadeRoute(key, ()), self._groups.get(key, ()), listed.get(key, [])
            if route.is_ipv6:
                left = _hops_left(group[0] if group else (), [*chain.from_iterable(now)], index)
                self._set(route, (left,) if left else ())
            else:
                kept = tuple(hops for hops in group if index not in _links((hops,)) or hops in now)
                self._set(route, (*kept, *(hops for hops in now if hops not in kept)))
                if now and any(index not in _links((hops,)) for hops in kept):
                    unsure.add(key)
        return unsure

    def reorder(self, keys: Collection[bytes], routes: Iterable[MadeRoute]) -> None:
        """Take the routes of some keys as they are in a dump of all routes."""
        listed: dict[bytes, list[_Hops]] = {key: [] for key in keys}
        for route in routes:
            if route.key in listed and route.hops not in listed[route.key]:
                listed[route.key].append(route.hops)
        for key, now in listed.items():
            self._set(MadeRoute(key, ()), tuple(now))

    def _links_of(self, keys: Iterable[bytes]) -> frozenset[int]:
        return frozenset(link for key in keys for link in _links(self._groups[key]))

    def _add(self, route: MadeRoute, *, last: bool) -> None:
        group = self._groups.get(route.key, ())
        if route.is_ipv6:
            # A message about one more next hop has all that the kernel balances between, or this one alone.
            known = group[0] if group else ()
            self._set(route, ((*known, *(hop for hop in route.hops if hop not in known)),))
        elif route.hops not in group:
            self._set(route, (*group, route.hops) if last else (route.hops, *group))

    def _set(self, route: MadeRoute, group: _Group) -> None:
        key = route.key
        before = self._groups.get(key, ())
        if group == before:
            return
        if group:
            self._groups[key] = self._equal.setdefault(group, group)
        else:
            del self._groups[key]
        if route.is_default:
            (self._default_keys.add if group else self._default_keys.discard)(key)
        former, links = _links(before), _links(group)
        for link in links - former:
            self._keys.setdefault(link, set()).add(key)
        for link in former - links:
            self._keys[link].discard(key)
            if not self._keys[link]:
                del self._keys[link]


def _kept(known: _Hops, hops: _Hops) -> _Hops:
    """The next hops of IPv6 that stay beside those that replace a route.

    Next hops with a gateway, between which the kernel balances, are replaced together; of those without one, only the
    first. Without any of the same sort, those of the other are replaced (fib6_add_rt2node() in net/ipv6/ip6_fib.c).
    """
    through_gateway = bool(hops and hops[0][1])
    sorts = {sort: [hop for hop in known if bool(hop[1]) == sort] for sort in (True, False)}
    sort = through_gateway if sorts[through_gateway] else not through_gateway
    replaced = sorts[sort] if sort else sorts[sort][:1]
    return tuple(hop for hop in known if hop not in replaced and hop not in hops)


def _links(group: _Group) -> set[int]:
    return {link for hops in group for link, _ in hops}


def _hops_left(former: _Hops, hops: Sequence[_Hop], index: int) -> _Hops:
    """The next hops of a route of IPv6 once those through a link are others; those that stay keep their order."""
    kept = tuple(hop for hop in former if hop[0] != index or hop in hops)
    return (*kept, *(hop for hop in hops if hop not in kept))
