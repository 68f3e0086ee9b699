"""How long kube-scheduler's search for a pod's claims may take on a node, without searching.

Called by `allocator` for its warnings. The scheduler does not look ahead (k8s.io/dynamic-resource-allocation v0.37,
structured/internal/incubating, `allocateOne`): it tries every device for the first request, for each of them every
device for the second, and learns last that the last request cannot be met. So the number of visits of a device is
about the product of the numbers of devices that match the requests before the one that fails. The estimate holds for
any state of other claims: no search visits more devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import comb
from typing import Any, NamedTuple

import msgspec

from netdra.model.claim import MAX_RESULTS, DeviceConstraint
from netdra.model.findings import Finding
from netdra.slices.allocator.pools import Candidate, Pool
from netdra.slices.allocator.trial import Trial, Values, attribute_values
from netdra.slices.allocator.wishes import ClaimTask, Wish
from netdra.slices.capacity import UnusableRequestError

MOST_VISITS = 2_000_000
"""How many visits of a device fit into the ten seconds after which kube-scheduler gives a node up.

Measured on kube-scheduler 1.37.1: a visit takes 0.3 µs of CPU for a VF that is a device, 0.6 µs for a pooled one. The
scheduler searches 16 nodes at once. On two CPUs each of 16 long searches gets 10 s · 2 / 16 = 1.25 s: 2 million visits.
A scheduler with more CPUs, or with one long search alone, gets further.
"""

MOST_NODES = 20
"""How many nodes are looked at: one of each kind, those with the most devices first."""
MOST_PARTS = 32
"""How often the devices are divided by the values of attributes that must match."""
_UNCOUNTED = 10**12

Places = frozenset[int]
"""Devices of a node, by their place in the order in which the scheduler tries them."""


class OutOfTimeError(Exception):
    """No time is left for an estimate."""


class Shortage(msgspec.Struct, frozen=True):
    """A request that asks for more devices than match it on any node, of which some are shared."""

    request: str
    wanted: int
    matching: int


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """Why the scheduler may leave a claim's pod Pending although devices are free.

    Attributes:
        node: where its search is the longest; "" if it is short everywhere.
        visits: how many devices it visits there at most.
        order: the claim's requests in an order in which the search is short; none if no such order exists.
        shortages: requests that no node can ever meet.
    """

    node: str = ""
    visits: int = 0
    order: tuple[str, ...] = ()
    shortages: tuple[Shortage, ...] = ()

    def findings(self, named: str, at: str = "") -> list[Finding]:
        """The warnings.

        Args:
            named: the object that asks for the devices: `ResourceClaim "default/a"`.
            at: the node in words, where it must not be named.
        """
        findings = [
            Finding(
                f'{named}, request "{short.request}": {short.wanted} devices are requested, but only '
                f"{short.matching} match{'es' * (short.matching == 1)} on any node, and a request "
                "cannot get the same shared device twice",
                hint="divide the pooled VFs into more lanes, or use several requests",
                code="ND1559",
            )
            for short in self.shortages
        ]
        if self.node:
            what = (
                f"{named}: if a request cannot be allocated on {at or f'node {self.node}'}, "
                f"kube-scheduler visits up to {_number(self.visits)} devices, and about "
                f"{MOST_VISITS:,} fit into its timeout of 10 s: the pod stays Pending although "
                "other nodes are free"
            )
            order = f"change the order of the requests to {', '.join(self.order)}, or " if self.order else ""
            findings.append(
                Finding(
                    what, hint=f"{order}offer the VFs together (pooledVFs in their policy), in few lanes", code="ND1560"
                )
            )
        return findings


def _number(visits: int) -> str:
    return f"{visits:,}" if visits < _UNCOUNTED else f"more than {_UNCOUNTED:,}"


class MatchedWish(NamedTuple):
    """A wish on a node: the devices that match it, free or not, and how many of them are wanted."""

    wish: Wish
    matching: Places
    wanted: int


class MatchedRequest(NamedTuple):
    """A request on a node, with its alternatives; `claim` is the number of its claim."""

    claim: int
    choices: tuple[MatchedWish, ...]


def at_most(requests: Iterable[Iterable[int]], devices: int) -> int:
    """A bound for any node with so many devices, for which no selector is evaluated.

    Args:
        requests: for each request its alternatives, by how many devices are wanted; 0 for all.
        devices: how many devices the node has.
    """
    return _visits(
        [_effort(devices, devices, wanted) if wanted else (devices, 1) for wanted in alternatives]
        for alternatives in requests
    )


class Estimate:
    """The worst case of claims on one node.

    Attributes:
        requests: the requests of all claims in the order in which the scheduler meets them.
    """

    def __init__(
        self,
        tasks: Sequence[ClaimTask],
        pools: Sequence[Pool],
        trial: Trial,
        in_time: Callable[[], bool] = lambda: True,
    ) -> None:
        """Find the devices that match each request.

        Args:
            tasks: the claims of one pod.
            pools: the node's pools.
            trial: an attempt on this node.
            in_time: whether there is time left, asked before each device.

        Raises:
            OutOfTimeError: none exists.
        """
        self._constraints = [task.claim.spec.devices.constraints for task in tasks]
        self._pools = {pool.key: pool for pool in pools}
        self._candidates = [candidate for pool in pools if pool.state == "usable" for candidate in pool.candidates]
        self._values: dict[tuple[int, str], Values] = {}
        self.requests = [
            MatchedRequest(number, tuple(self._match(wish, trial, in_time) for wish in wishes))
            for number, task in enumerate(tasks)
            for wishes in task.requests
        ]

    def _match(self, wish: Wish, trial: Trial, in_time: Callable[[], bool]) -> MatchedWish:
        matching = frozenset(
            place for place, candidate in enumerate(self._candidates) if _matches(wish, candidate, trial, in_time)
        )
        return MatchedWish(wish, matching, len(matching) if wish.everything else wish.count)

    def has_shared(self, request: MatchedRequest) -> bool:
        """Whether a device that matches the request is shared."""
        return any(self._has_shared(choice.matching) for choice in request.choices)

    def visits(self, requests: Sequence[MatchedRequest]) -> int:
        """How many devices the scheduler visits at most before it has an allocation, or knows that none exists.

        The requests are the node's, in this or another order.

        Never below the true number. Where each request asks for one device, and requests have no device in common, this
        is the number of visits if all devices are free but those of the last request.
        """
        parts: list[Sequence[MatchedRequest]] = [requests]
        met: list[tuple[int, DeviceConstraint]] = []
        bounds = [self._worst(requests, met)]
        for claim, constraints in enumerate(self._constraints):
            for constraint in constraints:
                if constraint.match_attribute and len(parts) <= MOST_PARTS:
                    met.append((claim, constraint))
                    parts = [kept for part in parts for kept in self._by_value(part, *met[-1])]
                    bounds.append(sum(self._worst(part, met) for part in parts))
        return min(bounds)

    def _worst(self, requests: Sequence[MatchedRequest], met: Collection[tuple[int, DeviceConstraint]]) -> int:
        """The most visits, over the requests whose failure may end the search.

        A group of independent requests fails if too few of its devices are free: one less than it wants, at most. Any
        other request may fail although its devices are free: what is taken before, or a constraint, is in the way.

        Args:
            requests: the requests, with devices of one value each for the constraints that are met.
            met: constraints that these devices meet, each with the number of its claim.
        """
        groups = self._independent(requests, met)
        bounds = [self._walk(requests, self._almost(requests, group)) for group in groups]
        independent = {place for group in groups for place in group}
        dependent = [place for place in range(len(requests)) if place not in independent]
        if dependent:
            bounds.append(self._walk(requests[: dependent[-1] + 1], {}))
        return max(bounds, default=0)

    def _almost(self, requests: Sequence[MatchedRequest], group: Sequence[int]) -> dict[int, int]:
        """The rest for each request of a group if one device, or share, less is free than they want together."""
        matching = requests[group[0]].choices[0].matching
        wanted = [requests[place].choices[0].wanted for place in group]
        left = {}
        for number, place in enumerate(group):
            taken = sum(wanted[:number])
            devices = len(matching) if self._has_shared(matching) else len(matching) - taken
            left[place] = max(0, min(devices, sum(wanted) - 1 - taken))
        return left

    def _walk(self, requests: Sequence[MatchedRequest], free: Mapping[int, int]) -> int:
        """The visits where so many devices are left for some requests, by their place, and all for the others."""
        return _visits(
            [self._effort(requests, place, choice, free) for choice in request.choices]
            for place, request in enumerate(requests)
        )

    def _effort(
        self, requests: Sequence[MatchedRequest], place: int, choice: MatchedWish, free: Mapping[int, int]
    ) -> tuple[int, int]:
        if choice.wish.everything:
            return choice.wanted, bool(choice.wanted)
        left = free.get(place)
        if left is None:
            gone = max(self._taken(requests[:place], choice), self._apart(requests, place, choice))
            left = len(choice.matching) - gone
        return _effort(len(self._candidates), max(0, left), choice.wanted)

    def _taken(self, earlier: Sequence[MatchedRequest], choice: MatchedWish) -> int:
        """How many of the matching devices earlier requests have taken in any case."""
        if choice.wish.admin:
            return 0
        return sum(
            min(other.wanted for other in request.choices)
            for request in earlier
            if all(
                other.matching <= choice.matching and not other.wish.admin and not self._has_shared(other.matching)
                for other in request.choices
            )
        )

    def _apart(self, requests: Sequence[MatchedRequest], place: int, choice: MatchedWish) -> int:
        """How many of the matching devices distinctAttribute excludes, after the choices of earlier requests."""
        claim = requests[place].claim
        return max(
            (
                self._unlike(requests[:place], claim, choice, constraint, constraint.distinct_attribute)
                for constraint in self._constraints[claim]
                if constraint.distinct_attribute and applies(constraint, choice.wish)
            ),
            default=0,
        )

    def _unlike(
        self,
        earlier: Sequence[MatchedRequest],
        claim: int,
        choice: MatchedWish,
        constraint: DeviceConstraint,
        attribute: str,
    ) -> int:
        values = [self._value(device, attribute) for device in choice.matching]
        if any(len(value) > 1 for value in values):
            return 0
        groups = Counter(values)
        without = groups.pop(frozenset(), 0)
        used = sum(
            min(other.wanted for other in request.choices)
            for request in earlier
            if request.claim == claim
            and all(
                applies(constraint, other.wish)
                and groups.keys() >= {self._value(device, attribute) for device in other.matching} - {frozenset()}
                for other in request.choices
            )
        )
        return without + sum(sorted(groups.values())[:used])

    def _by_value(
        self, requests: Sequence[MatchedRequest], claim: int, constraint: DeviceConstraint
    ) -> Iterator[list[MatchedRequest]]:
        """The requests once for each value of an attribute that must match, each with the devices of that value."""
        attribute = constraint.match_attribute or ""

        def is_under(request: MatchedRequest, choice: MatchedWish) -> bool:
            return request.claim == claim and applies(constraint, choice.wish)

        values: set[Any] = {
            value
            for request in requests
            for choice in request.choices
            if is_under(request, choice)
            for device in choice.matching
            for value in self._value(device, attribute)
        }
        for value in values or {None}:
            with_value = {place for place in range(len(self._candidates)) if value in self._value(place, attribute)}
            yield [
                MatchedRequest(
                    request.claim,
                    tuple(
                        choice._replace(matching=choice.matching & with_value)
                        if is_under(request, choice) and not choice.wish.everything
                        else choice
                        for choice in request.choices
                    ),
                )
                for request in requests
            ]

    def _independent(
        self, requests: Sequence[MatchedRequest], met: Collection[tuple[int, DeviceConstraint]]
    ) -> list[list[int]]:
        """The requests that can only fail for want of free devices: the places of all those for the same devices.

        Shares are as good as devices where each request takes one, of the same size.
        """
        groups: dict[tuple[Places, Any], list[int]] = {}
        for place, request in enumerate(requests):
            if self._is_plain(request, met):
                wish, matching, _ = request.choices[0]
                amounts = tuple(sorted((name, wanted.amount) for name, wanted in wish.amounts.items()))
                groups.setdefault((matching, self._has_shared(matching) and amounts), []).append(place)
        independent = []
        for (matching, amounts), group in groups.items():
            others: Places = frozenset().union(
                *(
                    choice.matching
                    for place, request in enumerate(requests)
                    if place not in group
                    for choice in request.choices
                )
            )
            alike = amounts is False or len(group) == 1
            if (
                (alike or all(requests[place].choices[0].wanted == 1 for place in group))
                and matching.isdisjoint(others)
                and self._is_apart(matching, others)
            ):
                independent.append(group)
        return independent

    def _is_plain(self, request: MatchedRequest, met: Collection[tuple[int, DeviceConstraint]]) -> bool:
        choice = request.choices[0]
        return (
            len(request.choices) == 1
            and not choice.wish.everything
            and not choice.wish.admin
            and not any(
                applies(constraint, choice.wish) and (request.claim, constraint) not in met
                for constraint in self._constraints[request.claim]
            )
            and self._has_own_counters(choice.matching)
        )

    def _is_apart(self, places: Places, others: Places) -> bool:
        """Whether no counter keeps these devices out when other requests take theirs, with adminAccess or without."""
        devices = [self._candidates[place] for place in places]
        beside = [self._candidates[place] for place in others]
        for pool_key, counter in {(device.pool, counter) for device in devices for counter in device.consumes}:
            of_others = [device.consumes[counter] for device in beside if self._draws(device, pool_key, counter)]
            own = [device.consumes[counter] for device in devices if self._draws(device, pool_key, counter)]
            if of_others and sum(own) + sum(of_others) > self._pools[pool_key].counters[counter]:
                return False
        return True

    @staticmethod
    def _draws(device: Candidate, pool: object, counter: object) -> bool:
        return device.pool == pool and counter in device.consumes

    def _has_own_counters(self, places: Collection[int]) -> bool:
        """Whether counters keep either none of these devices or all of them out, beside those that are in use."""
        devices = [self._candidates[place] for place in places]
        keys = {device.key for device in devices}
        for pool_key, counter in {(device.pool, counter) for device in devices for counter in device.consumes}:
            pool = self._pools[pool_key]
            total = pool.counters[counter]
            least = min(device.consumes.get(counter, total) for device in devices if device.pool == pool_key)
            draws = ((consumer.key, consumer.consumes.get(counter, 0)) for consumer in pool.consumers)
            if sum(amount for key, amount in draws if key in keys or amount <= total - least) > total:
                return False
        return True

    def _has_shared(self, places: Iterable[int]) -> bool:
        return any(self._candidates[place].shared for place in places)

    def _value(self, place: int, attribute: str) -> Values:
        key = (place, attribute)
        if key not in self._values:
            self._values[key] = attribute_values(self._candidates[place], attribute)
        return self._values[key]


def _matches(wish: Wish, candidate: Candidate, trial: Trial, in_time: Callable[[], bool]) -> bool:
    """Whether the wish could have the device if nothing were in use; taints come and go, and are left aside."""
    if not in_time():
        raise OutOfTimeError
    try:
        return trial.listable(wish, candidate)
    except UnusableRequestError:
        return False  # the search ends there


def outlook(nodes: Mapping[str, Estimate], *, are_all: bool) -> Outlook:
    """The outlook of claims.

    Args:
        nodes: the worst case of each node.
        are_all: whether no other node can have more devices that match a request.
    """
    visits = {node: estimate.visits(estimate.requests) for node, estimate in nodes.items()}
    worst = max(visits, key=visits.__getitem__, default="")
    shortages = tuple(_shortages(list(nodes.values()))) if are_all else ()
    if not worst or visits[worst] <= MOST_VISITS:
        return Outlook(shortages=shortages)
    scarcest_first = sorted(nodes[worst].requests, key=lambda request: max(len(c.matching) for c in request.choices))
    names = tuple(request.choices[0].wish.request for request in scarcest_first)
    is_short = nodes[worst].visits(scarcest_first) <= MOST_VISITS
    return Outlook(node=worst, visits=visits[worst], order=names if is_short else (), shortages=shortages)


def _shortages(nodes: Sequence[Estimate]) -> Iterator[Shortage]:
    for of_nodes in zip(*(estimate.requests for estimate in nodes), strict=True):
        wish = of_nodes[0].choices[0].wish
        wanted = min(choice.wanted for choice in of_nodes[0].choices)
        matching = max(len(choice.matching) for request in of_nodes for choice in request.choices)
        are_shared = any(estimate.has_shared(request) for estimate, request in zip(nodes, of_nodes, strict=True))
        if matching < wanted and are_shared and not wish.everything:
            yield Shortage(wish.request, wanted, matching)


def applies(constraint: DeviceConstraint, wish: Wish) -> bool:
    """Whether a wish is under a constraint."""
    return not constraint.requests or not set(constraint.requests).isdisjoint(wish.names)


def _visits(requests: Iterable[Iterable[tuple[int, int]]]) -> int:
    """The visits of a search: of each request's alternatives, those for one entry, and the ways to meet it."""
    visits, entries = 0, 1
    for alternatives in requests:
        inside, ways = (sum(column) for column in zip(*alternatives, strict=True))
        visits += entries * inside
        entries *= ways
    return visits


def _effort(devices: int, free: int, wanted: int) -> tuple[int, int]:
    """The visits for one entry into a request, each of its devices tried on all of the node's, and the ways to meet it.

    The devices of one request are taken in rising order only, so these are combinations.
    """
    if wanted > MAX_RESULTS:
        return 0, 0  # the scheduler does not begin
    return devices * sum(comb(free, chosen) for chosen in range(wanted)), comb(free, wanted)
