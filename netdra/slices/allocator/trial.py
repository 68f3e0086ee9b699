"""One attempt to give claims devices on one node: the devices taken so far, in addition to the ledger's.

Driven by `search`, which takes and gives back in turn; read by `explain`, which asks why a device cannot be taken.
Follows k8s.io/dynamic-resource-allocation v0.37:

- The order of the checks is that of structured/internal/incubating, because an expression that fails on a device ends
  the allocation only if no earlier check has excluded the device.
- Taints and tolerations are those of resourceclaim/devicetoleration.go; which effects block at all is for `pools`.
- matchAttribute and distinctAttribute are those of structured/internal/experimental: values are sets (a scalar is a set
  of one), matching sets must keep a common element, distinct ones are disjoint in pairs. For scalars this is what the
  scheduler's default allocator does; lists exist only where their gate is on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from enum import Enum, auto

import msgspec

from netdra.cel import CelEvaluationError
from netdra.model.claim import DeviceConstraint, DeviceToleration
from netdra.model.resource import DeviceAttribute, DeviceTaint
from netdra.model.scheduler_version import SchedulerVersion
from netdra.slices import capacity
from netdra.slices.allocator.ledger import Counters, Ledger, shortage
from netdra.slices.allocator.pools import Candidate, CounterKey, DeviceKey, Pool, PoolKey
from netdra.slices.allocator.wishes import ClaimTask, Wish
from netdra.slices.capacity import Amounts, Consumption, UnusableRequestError
from netdra.slices.nodes import SchedulerNode, serves

# Type name and value, so that the integer 1, the version "1" and true stay apart.
Values = frozenset[tuple[str, bool | int | str]]
VERSION = "version"


def untolerated(taints: Iterable[DeviceTaint], tolerations: Iterable[DeviceToleration]) -> DeviceTaint | None:
    """The first taint that no toleration covers."""
    tolerations = tuple(tolerations)
    for taint in taints:
        if not any(_tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    return (
        toleration.effect in ("", taint.effect)
        and toleration.key in ("", taint.key)
        and (toleration.operator == "Exists" or toleration.value == taint.value)
    )


class Constraint:
    """One constraint of a claim and the devices that have been put under it, last in first out."""

    def __init__(self, constraint: DeviceConstraint, version: SchedulerVersion) -> None:
        self._version = version
        self._requests = frozenset(constraint.requests)
        self._match = constraint.match_attribute is not None
        self.attribute = constraint.match_attribute or constraint.distinct_attribute or ""
        self._chosen: list[Values] = []
        self._last: dict[str, Values] = {}

    def applies(self, names: Collection[str]) -> bool:
        """Whether the request of these names (its own, and with its alternative) is under it."""
        return not self._requests or not self._requests.isdisjoint(names)

    def allows(self, candidate: Candidate) -> bool:
        """Whether a device can be added without breaking the constraint."""
        values = self._values(candidate)
        if self._match:
            return bool(values & self._chosen[-1] if self._chosen else values)
        others = self._chosen if self._version.compares_all_devices else self._last.values()
        return bool(values) and not any(values & other for other in others)

    def add(self, candidate: Candidate, request: str) -> None:
        """Put a device of a request that it allows under the constraint."""
        values = self._values(candidate)
        self._chosen.append(values & self._chosen[-1] if self._match and self._chosen else values)
        self._last[request] = values

    def remove(self, request: str) -> None:
        """Take away the device that was added last, which is of this request."""
        self._chosen.pop()
        self._last.pop(request, None)

    def _values(self, candidate: Candidate) -> Values:
        values = attribute_values(candidate, self.attribute)
        if not self._version.ignores_build_metadata:
            return values
        return frozenset(
            (kind, value.partition("+")[0] if kind == VERSION and isinstance(value, str) else value)
            for kind, value in values
        )

    def describe(self, candidate: Candidate) -> str:
        """Why a device cannot be added now, in words."""
        values = attribute_values(candidate, self.attribute)
        if not values:
            return f"does not have the attribute {self.attribute}, which a constraint compares"
        shown = _show(values)
        if self._match:
            return f"{self.attribute} is {shown}, but must be {_show(self._chosen[-1])} as on the claim's other devices"
        return f"{self.attribute} is {shown}, as on another device of the claim"


def attribute_values(candidate: Candidate, name: str) -> Values:
    """A device's values of an attribute given by its full name."""
    attribute = attribute_of(candidate, name)
    return frozenset() if attribute is None else _values(attribute)


def attribute_of(candidate: Candidate, name: str) -> DeviceAttribute | None:
    """A device's attribute given by its full name; the driver's own may be published without domain."""
    attributes = candidate.device.attributes
    attribute = attributes.get(name)
    if attribute is None:
        domain, slash, short = name.partition("/")
        if slash and domain == candidate.key[0]:
            attribute = attributes.get(short)
    return attribute


def _values(attribute: DeviceAttribute) -> Values:
    value = attribute.value
    version = attribute.version is not None or attribute.versions is not None
    values = value if isinstance(value, tuple) else () if value is None else (value,)
    return frozenset((VERSION if version else type(value).__name__, value) for value in values)


def _show(values: Values) -> str:
    return ", ".join(sorted(str(value) if value != "" else '""' for _, value in values))


class DeviceVerdict(Enum):
    """Whether a device can be taken, or the first thing that stands in the way."""

    FREE = auto()
    IN_USE = auto()
    NOT_OF_CLASS = auto()
    NOT_SELECTED = auto()
    OTHER_NODE = auto()
    NO_CAPACITY = auto()
    NO_COUNTERS = auto()
    TAINTED = auto()
    CONSTRAINED = auto()


class Taken(msgspec.Struct, frozen=True, eq=False):
    """A device given to a claim in this attempt, with the changes to undo when it is returned."""

    claim: int
    wish: Wish
    candidate: Candidate
    consumed: Mapping[str, Consumption]
    drew_counters: bool


class Trial:
    """The devices that an attempt has taken, last in first out."""

    def __init__(
        self,
        node: SchedulerNode,
        pools: Sequence[Pool],
        tasks: Sequence[ClaimTask],
        ledger: Ledger,
        counters: Counters,
        version: SchedulerVersion,
    ) -> None:
        self.taken: list[Taken] = []
        self.constraints = [
            [Constraint(constraint, version) for constraint in task.claim.spec.devices.constraints] for task in tasks
        ]
        self._version = version
        self._node = node
        self._pools: Mapping[PoolKey, Pool] = {pool.key: pool for pool in pools}
        self._ledger = ledger
        self._counters = counters
        self._owners: dict[DeviceKey, list[int]] = {}
        self._shares: dict[DeviceKey, list[Mapping[str, Consumption]]] = {}
        self._drawn: dict[PoolKey, dict[CounterKey, Decimal]] = {}

    def listable(self, wish: Wish, candidate: Candidate) -> bool:
        """Whether a wish for everything means this device: selected, on this node, and large enough.

        Raises:
            UnusableRequestError: a selector has no answer for the device, or a capacity cannot be calculated with.
        """
        try:
            failing = wish.selectors.first_false(candidate)
        except CelEvaluationError as problem:
            raise _unanswered(wish, candidate, problem) from None
        if failing >= 0 or not self._here(candidate):
            return False
        consumed = self.wanted(wish, candidate)
        in_use = {} if self._version.requests_full_devices else self._ledger.consumed(candidate.key)
        return consumed is not None and capacity.shortage(consumed, candidate.capacity, in_use) is None

    def judge(self, claim: int, wish: Wish, candidate: Candidate) -> DeviceVerdict:
        """The first reason against the device, apart from constraints.

        Raises:
            UnusableRequestError: a selector has no answer for the device, or a capacity cannot be calculated with.
        """
        if self._in_use(claim, wish, candidate):
            return DeviceVerdict.IN_USE
        try:
            failing = wish.selectors.first_false(candidate)
        except CelEvaluationError as problem:
            raise _unanswered(wish, candidate, problem) from None
        if failing >= 0:
            return DeviceVerdict.NOT_OF_CLASS if failing < wish.of_class else DeviceVerdict.NOT_SELECTED
        if not self._here(candidate):
            return DeviceVerdict.OTHER_NODE
        # If all devices are wanted, a broken constraint is an error, and it is checked before the capacity.
        if not wish.everything and not self._has_capacity(wish, candidate):
            return DeviceVerdict.NO_CAPACITY
        if self._draws(candidate) and self.short_counter(candidate):
            return DeviceVerdict.NO_COUNTERS
        if candidate.taints and untolerated(candidate.taints, wish.tolerations):
            return DeviceVerdict.TAINTED
        return DeviceVerdict.FREE

    def take(self, claim: int, wish: Wish, candidate: Candidate) -> DeviceVerdict:
        """Give the device to the claim; unless the verdict is FREE, nothing is done.

        Raises:
            UnusableRequestError: as for `judge`.
        """
        verdict = self.judge(claim, wish, candidate)
        if verdict is not DeviceVerdict.FREE:
            return verdict
        if self.broken_constraint(claim, wish, candidate) is not None:
            return DeviceVerdict.CONSTRAINED
        if wish.everything and not self._has_capacity(wish, candidate):
            return DeviceVerdict.NO_CAPACITY
        for constraint in self._applying(claim, wish):
            constraint.add(candidate, wish.request)
        draws = self._draws(candidate)
        if draws:
            self._draw(candidate, 1)
        consumed: Mapping[str, Consumption] = {}
        if candidate.shared:
            consumed = self.wanted(wish, candidate) or {}
            self._shares.setdefault(candidate.key, []).append(consumed)
        else:
            self._owners.setdefault(candidate.key, []).append(claim)
        self.taken.append(Taken(claim, wish, candidate, consumed, draws))
        return DeviceVerdict.FREE

    def give_back(self, length: int) -> None:
        """Undo what was taken last, until only `length` devices are taken."""
        while len(self.taken) > length:
            last = self.taken.pop()
            kept = self._shares if last.candidate.shared else self._owners
            kept[last.candidate.key].pop()
            if last.drew_counters:
                self._draw(last.candidate, -1)
            for constraint in self._applying(last.claim, last.wish):
                constraint.remove(last.wish.request)

    def broken_constraint(self, claim: int, wish: Wish, candidate: Candidate) -> Constraint | None:
        """The first constraint of the claim that the device would break."""
        return next(
            (constraint for constraint in self._applying(claim, wish) if not constraint.allows(candidate)), None
        )

    def consumed(self, candidate: Candidate) -> Amounts:
        """The consumption of the device's capacities by the ledger's claims and by this attempt."""
        used = self._ledger.consumed(candidate.key)
        shares = self._shares.get(candidate.key)
        if not shares:
            return used
        total = dict(used)
        for share in shares:
            for name, consumption in share.items():
                total[name] = total.get(name, Decimal(0)) + consumption.amount
        return total

    def wanted(self, wish: Wish, candidate: Candidate) -> Mapping[str, Consumption] | None:
        """The consumption of each of the device's capacities; None if the device lacks one that the wish requests.

        Raises:
            UnusableRequestError: a capacity cannot be calculated with.
        """
        return capacity.consumption(wish.amounts, candidate.capacity, candidate.key[0], self._version)

    def lacking(self, wish: Wish, candidate: Candidate) -> list[str]:
        """The requested capacities that the device lacks, as they are requested."""
        return capacity.lacking(wish.amounts, candidate.capacity, candidate.key[0], self._version)

    def short_counter(self, candidate: Candidate) -> CounterKey | None:
        """The first counter that is too low for the device."""
        balance = self._counters.balance(self._pools[candidate.pool])
        return shortage(candidate, balance, self._drawn.get(candidate.pool, {}))

    def drawn(self, pool: PoolKey) -> Mapping[CounterKey, Decimal]:
        """The amounts that the attempt has drawn from the pool's counters."""
        return self._drawn.get(pool, {})

    def _in_use(self, claim: int, wish: Wish, candidate: Candidate) -> bool:
        owners = self._owners.get(candidate.key)
        if wish.admin:
            return bool(owners) and claim in (owners or ())
        if owners or self._ledger.exclusive(candidate.key):
            return True
        return (
            self._version.has_shares_of_exclusive_devices
            and not candidate.shared
            and self._ledger.shared(candidate.key)
        )

    def _applying(self, claim: int, wish: Wish) -> list[Constraint]:
        return [constraint for constraint in self.constraints[claim] if constraint.applies(wish.names)]

    def _has_capacity(self, wish: Wish, candidate: Candidate) -> bool:
        consumed = self.wanted(wish, candidate)
        return consumed is not None and not capacity.shortage(consumed, candidate.capacity, self.consumed(candidate))

    def _here(self, candidate: Candidate) -> bool:
        if not candidate.slice.per_device_node_selection:
            return True
        device = candidate.device
        return serves(self._node, device.node_name, device.all_nodes, device.node_selector, f'device "{device.name}"')

    def _draws(self, candidate: Candidate) -> bool:
        """Whether taking the device draws its counters: not where a share of it is out already."""
        if not candidate.consumes:
            return False
        return not candidate.shared or not (self._shares.get(candidate.key) or self._ledger.shared(candidate.key))

    def _draw(self, candidate: Candidate, sign: int) -> None:
        drawn = self._drawn.setdefault(candidate.pool, {})
        for counter, amount in candidate.consumes.items():
            drawn[counter] = drawn.get(counter, Decimal(0)) + sign * amount


def _unanswered(wish: Wish, candidate: Candidate, problem: CelEvaluationError) -> UnusableRequestError:
    name = wish.device_class.metadata.name
    device = "/".join(candidate.key[1:])
    return UnusableRequestError(f'request "{wish.name}" of class "{name}", device {device}: {problem}')
