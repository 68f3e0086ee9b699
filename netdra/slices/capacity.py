"""A claim's consumption of a device's capacities, and whether it still fits.

Called by the allocator, and by `exclusion` for a node. Follows the scheduler (k8s.io/dynamic-resource-allocation,
consumable_capacity.go in structured/internal/incubating of v0.37 and structured/internal/stable of v0.38): on a shared
device every capacity is consumed: the requested amount as the request policy rounds it, else the policy's default, else
all; on any other device a request is only a lower bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import TypeVar

import msgspec

from netdra.model import quantity
from netdra.model.claim import CapacityRequirements
from netdra.model.resource import CapacityRequestPolicyRange, DeviceCapacity, QuantityText
from netdra.model.scheduler_version import SchedulerVersion

Amounts = Mapping[str, Decimal]

T = TypeVar("T")

_MAX_INT64 = 2**63 - 1
_ZERO, _ONE, _MILLI = Decimal(0), Decimal(1), Decimal("0.001")


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
    """A device's capacity and request policy, as numbers; and its name as the device publishes it."""

    value: Decimal
    text: QuantityText
    published_name: str = ""
    default: Decimal | None = None
    default_text: QuantityText = ""
    valid_values: tuple[tuple[Decimal, QuantityText], ...] = ()
    valid_range: CapacityRange | None = None


class Consumption(msgspec.Struct, frozen=True):
    """The consumption of one capacity, as a number and as it is written into the allocation."""

    amount: Decimal
    text: QuantityText


def name_of(name: str, driver: str, version: SchedulerVersion) -> str:
    """The name by which the scheduler compares a capacity of a driver's device, however it is written."""
    return f"{driver}/{name}" if version.has_one_name_for_capacity and "/" not in name else name


def by_name(written: Mapping[str, T], driver: str, version: SchedulerVersion) -> Mapping[str, T]:
    """Values by the names by which the scheduler compares; where both spellings exist, that with the domain counts."""
    if not version.has_one_name_for_capacity:
        return written
    with_domain = {name: value for name, value in written.items() if "/" in name}
    return {name_of(name, driver, version): value for name, value in written.items()} | with_domain


def parse_all(
    published: Mapping[str, DeviceCapacity], driver: str, version: SchedulerVersion
) -> Mapping[str, Capacity]:
    """The capacities of a driver's device, by the names by which the scheduler compares.

    Raises:
        InvalidInputError: a quantity is not valid.
    """
    return by_name({name: parse(capacity, name) for name, capacity in published.items()}, driver, version)


def parse(capacity: DeviceCapacity, name: str = "") -> Capacity:
    """A published capacity with its quantities read once.

    Raises:
        InvalidInputError: a quantity is not valid.
    """
    value = quantity.parse(capacity.value)
    policy = capacity.request_policy
    if policy is None:
        return Capacity(value, capacity.value, name)
    return Capacity(
        value,
        capacity.value,
        name,
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


def lacking(
    wanted: Mapping[str, Consumption], capacities: Mapping[str, Capacity], driver: str, version: SchedulerVersion
) -> list[str]:
    """The requested capacities that a driver's device lacks, as they are requested."""
    return [name for name in wanted if name_of(name, driver, version) not in capacities]


def consumption(
    wanted: Mapping[str, Consumption], capacities: Mapping[str, Capacity], driver: str, version: SchedulerVersion
) -> dict[str, Consumption] | None:
    """A claim's consumption of each capacity; None where the device lacks a requested capacity.

    Args:
        wanted: the requested amounts, by the names that the claim uses.
        capacities: the device's.
        driver: the device's.
        version: the scheduler's.

    Raises:
        UnusableRequestError: an amount is negative, or past what the scheduler can round; or a capacity is requested
            by both of its names.
    """
    if wanted and lacking(wanted, capacities, driver, version):
        return None
    amounts: dict[str, Consumption] = {}
    for name, amount in wanted.items():
        key = name_of(name, driver, version)
        if key in amounts:
            short = key.partition("/")[2]
            raise UnusableRequestError(f'capacity {short} is requested twice: as "{short}" and as "{key}"')
        amounts[key] = amount
    return {name: _consumed(amounts.get(name), capacity, version) for name, capacity in capacities.items()}


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


def describe(share: Consumption, capacity: Capacity, used: Decimal) -> str:
    """Why a capacity does not fit, in words: the broken rule, or the amount left."""
    name = capacity.published_name
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


def _consumed(wanted: Consumption | None, capacity: Capacity, version: SchedulerVersion) -> Consumption:
    name = capacity.published_name
    if wanted is not None:
        if wanted.amount < 0 and version.refuses_negative_requests:
            raise UnusableRequestError(f"capacity {name}: {wanted.text} is negative")
        share = _rounded(wanted, capacity, version)
    elif capacity.default is not None:
        share = Consumption(capacity.default, capacity.default_text)
    else:
        share = Consumption(capacity.value, capacity.text)
    if share.amount < 0:
        raise UnusableRequestError(f"capacity {name}: {share.text} is negative")
    return share


def _rounded(wanted: Consumption, capacity: Capacity, version: SchedulerVersion) -> Consumption:
    limits = capacity.valid_range
    if limits is not None:
        if wanted.amount < limits.min:
            return Consumption(limits.min, quantity.render(limits.min, like=limits.step_text))
        return wanted if limits.step is None else _round_to_step(wanted, limits, limits.step, capacity, version)
    for valid, text in capacity.valid_values:
        if wanted.amount <= valid:
            return Consumption(valid, text)
    return wanted


def _round_to_step(
    wanted: Consumption, limits: CapacityRange, step: Decimal, capacity: Capacity, version: SchedulerVersion
) -> Consumption:
    # The scheduler calculates with 64-bit integers: of thousandths if the range is written in them, else rounded up.
    published = (limits.min, step, *(() if limits.max is None else (limits.max,)))
    unit = _MILLI if version.has_fractional_ranges and step >= _MILLI and all(map(_is_in_milli, published)) else _ONE
    if unit == _MILLI and not _is_in_milli(wanted.amount):
        raise UnusableRequestError(
            f"capacity {capacity.published_name}: {wanted.text} is too large or too fine to be rounded up to a step"
        )
    amount, least, width = (_ceiling(value / unit) for value in (wanted.amount, limits.min, step))
    rounded = least + -(-(amount - least) // width) * width
    if rounded > _MAX_INT64:
        raise UnusableRequestError(
            f"capacity {capacity.published_name}: {wanted.text} is too large to be rounded up to a step"
        )
    return Consumption(rounded * unit, quantity.render(rounded * unit, like=limits.step_text))


def _is_in_milli(value: Decimal) -> bool:
    """Whether a value is a 64-bit integer of thousandths."""
    thousandths = value / _MILLI
    return thousandths == thousandths.to_integral_value() and -_MAX_INT64 - 1 <= thousandths <= _MAX_INT64


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
