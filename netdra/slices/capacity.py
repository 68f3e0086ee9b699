"""A claim's consumption of a device's capacities, and whether it still fits.

Called by the allocator, and by `exclusion` for a node. Follows the scheduler (k8s.io/dynamic-resource-allocation v0.37,
structured/internal/incubating/consumable_capacity.go): on a shared device every capacity is consumed: the requested
amount as the request policy rounds it, else the policy's default, else all; on any other device a request is
only a lower bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

import msgspec

from netdra.model import quantity
from netdra.model.claim import CapacityRequirements
from netdra.model.resource import CapacityRequestPolicyRange, DeviceCapacity, QuantityText

Amounts = Mapping[str, Decimal]

_MAX_INT64 = 2**63 - 1
_ZERO = Decimal(0)


class UnusableRequestError(Exception):
    """A request for which the scheduler cannot allocate the claim at all.

    Its capacity is beyond the scheduler's arithmetic, or one of its selectors has no answer for a device.
    """


class CapacityRange(msgspec.Struct, frozen=True):
    """A policy's range, as numbers; the step's unit is that of the result."""

    min: Decimal
    max: Decimal | None
    step: Decimal | None
    step_text: QuantityText


class Capacity(msgspec.Struct, frozen=True):
    """A device's capacity and request policy, as numbers."""

    value: Decimal
    text: QuantityText
    default: Decimal | None = None
    default_text: QuantityText = ""
    valid_values: tuple[tuple[Decimal, QuantityText], ...] = ()
    valid_range: CapacityRange | None = None


class Consumption(msgspec.Struct, frozen=True):
    """The consumption of one capacity, as a number and as it is written into the allocation."""

    amount: Decimal
    text: QuantityText


def parse(capacity: DeviceCapacity) -> Capacity:
    """A published capacity with its quantities read once.

    Raises:
        InvalidInputError: a quantity is not valid.
    """
    value = quantity.parse(capacity.value)
    policy = capacity.request_policy
    if policy is None:
        return Capacity(value, capacity.value)
    return Capacity(
        value,
        capacity.value,
        None if policy.default is None else quantity.parse(policy.default),
        "" if policy.default is None else policy.default,
        tuple((quantity.parse(valid), valid) for valid in policy.valid_values),
        None if policy.valid_range is None else _range(policy.valid_range),
    )


def requested(requirements: CapacityRequirements | None) -> Mapping[str, Consumption]:
    """The requested amounts, by the capacity's name.

    Raises:
        InvalidInputError: a quantity is not valid.
    """
    if requirements is None:
        return {}
    return {name: Consumption(quantity.parse(text), text) for name, text in requirements.requests.items()}


def consumption(wanted: Mapping[str, Consumption], capacities: Mapping[str, Capacity]) -> dict[str, Consumption] | None:
    """A claim's consumption of each capacity; None where the device lacks a requested capacity.

    Raises:
        UnusableRequestError: an amount is negative, or past what the scheduler can round.
    """
    if any(name not in capacities for name in wanted):
        return None
    return {name: _consumed(name, wanted.get(name), capacity) for name, capacity in capacities.items()}


def shortage(consumed: Mapping[str, Consumption], capacities: Mapping[str, Capacity], in_use: Amounts) -> str | None:
    """The name of the first capacity that stands in the way; None if everything fits.

    Args:
        consumed: what `consumption` stated.
        capacities: the device's.
        in_use: what other claims consume of the device already.
    """
    for name, capacity in capacities.items():
        amount = consumed[name].amount
        if in_use.get(name, _ZERO) + amount > capacity.value or _broken_rule(amount, capacity):
            return name
    return None


def describe(name: str, share: Consumption, capacity: Capacity, used: Decimal) -> str:
    """Why a capacity does not fit, in words: the broken rule, or the amount left."""
    rule = _broken_rule(share.amount, capacity)
    if rule:
        return f"capacity {name}: {rule}, not {share.text}"
    if share.amount > capacity.value:
        return f"requires {name} {share.text}, but has only {capacity.text} in total"
    left = quantity.render(capacity.value - used, like=capacity.text)
    return f"requires {name} {share.text}, {left} of {capacity.text} left"


def _range(published: CapacityRequestPolicyRange) -> CapacityRange:
    return CapacityRange(
        quantity.parse(published.min),
        None if published.max is None else quantity.parse(published.max),
        None if published.step is None else quantity.parse(published.step),
        "" if published.step is None else published.step,
    )


def _consumed(name: str, wanted: Consumption | None, capacity: Capacity) -> Consumption:
    if wanted is not None:
        share = _rounded(name, wanted, capacity)
    elif capacity.default is not None:
        share = Consumption(capacity.default, capacity.default_text)
    else:
        share = Consumption(capacity.value, capacity.text)
    if share.amount < 0:
        raise UnusableRequestError(f"capacity {name}: {share.text} is negative")
    return share


def _rounded(name: str, wanted: Consumption, capacity: Capacity) -> Consumption:
    if capacity.valid_range is not None:
        return _round_to_step(name, wanted, capacity.valid_range)
    for valid, text in capacity.valid_values:
        if wanted.amount <= valid:
            return Consumption(valid, text)
    return wanted


def _round_to_step(name: str, wanted: Consumption, limits: CapacityRange) -> Consumption:
    if wanted.amount < limits.min:
        return Consumption(limits.min, quantity.render(limits.min, like=limits.step_text))
    if limits.step is None:
        return wanted
    # The scheduler reads all three as 64-bit integers, rounded up. The gate DRAFractionalCapacityRange, by which it
    # counts in thousandths, is on in 1.37 only with --min-compatibility-version=1.37.
    amount, least, step = (_ceiling(value) for value in (wanted.amount, limits.min, limits.step))
    rounded = least + -(-(amount - least) // step) * step
    if rounded > _MAX_INT64:
        raise UnusableRequestError(f"capacity {name}: {wanted.text} is too large to be rounded up to a step")
    return Consumption(Decimal(rounded), quantity.render(rounded, like=limits.step_text))


def _broken_rule(amount: Decimal, capacity: Capacity) -> str:
    if amount == capacity.default:
        return ""
    if capacity.valid_range is not None:
        limit = capacity.valid_range.max
        return "" if limit is None or amount <= limit else f"the maximum request is {quantity.render(limit)}"
    if capacity.valid_values and all(amount != valid for valid, _ in capacity.valid_values):
        return f"possible requests are {', '.join((str(text) for _, text in capacity.valid_values))}"
    return ""


def _ceiling(value: Decimal) -> int:
    return int(value.to_integral_value(rounding=ROUND_CEILING))
