"""The capacities that a policy publishes, and the errors in them: decision D5, and the API server's rules.

Asked by `netdra.exposure.check` for the errors, and by `netdra.exposure.templates` for the default amounts of claims.
Follows k8s.io/kubernetes/pkg/apis/resource/validation (request policies).
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Literal

from netdra.model import names, quantity
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding, Path
from netdra.model.policy import CapacityCounter, Exposure
from netdra.model.resource import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity, QuantityText

MAX_VALID_VALUES = 10
MAX_QUANTITY = 2**63 - 1

Sharing = Literal["exclusive", "shared", "both"]
_EXPOSURE: Path = ("spec", "exposure")


def sharing(exposure: Exposure) -> Sharing:
    """Which devices a policy makes of an interface: one for one claim, one for many, or one of each kind."""
    kinds = {plugin.exclusive for plugin in exposure.supported_cni_plugins}
    if len(kinds) == 2:
        return "both"
    return "shared" if exposure.allow_multiple_allocations else "exclusive"


def amounts(exposure: Exposure, name: str) -> tuple[QuantityText | None, ...]:
    """How much of a capacity a claim without an amount consumes: by each shared plugin, or by the request policy."""
    policy = exposure.capacity[name].request_policy
    default = policy.default if policy else None
    plugins = [plugin for plugin in exposure.supported_cni_plugins if not plugin.exclusive]
    return tuple(plugin.consume_per_allocation.get(name, default) for plugin in plugins) or (default,)


def number(text: QuantityText | None) -> Decimal | None:
    """A quantity's value, if it is from 0 to the largest number of 64 bits."""
    try:
        value = quantity.parse(text) if text is not None else None
    except InvalidInputError:
        return None
    return value if value is not None and 0 <= value <= MAX_QUANTITY else None


def number_errors(path: Path, text: QuantityText | None) -> Iterator[Finding]:
    """The errors in an amount; a missing amount is valid."""
    if text is not None and number(text) is None:
        yield Finding(f'"{text}" is not a quantity from 0 to {MAX_QUANTITY}', path=path, code="ND1406")


def written_errors(path: Path, capacity: CapacityCounter) -> Iterator[Finding]:
    """The errors of a policy that does not define a capacity's value in exactly one way."""
    if (capacity.value == "") == (capacity.value_from is None):
        count = "neither" if capacity.value_from is None else "both"
        yield Finding(f"the capacity has {count} of value and valueFrom", "set exactly one", path, code="ND1407")


def value_errors(path: Path, capacity: CapacityCounter | DeviceCapacity) -> Iterator[Finding]:
    """The errors in one capacity, apart from the default consumption of claims."""
    yield from number_errors((*path, "value"), capacity.value)
    policy, value = capacity.request_policy, number(capacity.value)
    if policy is None or value is None:
        return
    place: Path = (*path, "requestPolicy")
    yield from number_errors((*place, "default"), policy.default)
    if policy.valid_values and policy.valid_range:
        yield Finding("requestPolicy has both validValues and validRange", "remove one of them", place, code="ND1408")
    elif policy.valid_range:
        yield from _range_errors((*place, "validRange"), policy.valid_range, value)
    else:
        yield from _choice_errors((*place, "validValues"), policy.valid_values, value)


def policy_errors(path: Path, capacity: DeviceCapacity) -> Iterator[Finding]:
    """The errors in a capacity's default amount, by the API server's rules for a single capacity."""
    policy, value = capacity.request_policy, number(capacity.value)
    if policy is None or value is None:
        return
    if policy.default is None:
        if policy.valid_values or policy.valid_range:
            yield Finding(
                "default is required with validValues or validRange", path=(*path, "requestPolicy"), code="ND1409"
            )
        return
    default = number(policy.default)
    if default is None:
        return
    place: Path = (*path, "requestPolicy", "default")
    if default > value:
        yield Finding(f"{policy.default} exceeds the capacity of the device", path=place, code="ND1410")
    elif rule := _broken_rule(default, policy, value):
        yield Finding(f"{policy.default} is {rule}", path=place, code="ND1411")


def bandwidth_errors(exposure: Exposure) -> Iterator[Finding]:
    """Whether a policy lets claims of an exclusive device consume another bandwidth than the device has."""
    if sharing(exposure) != "exclusive" or exposure.pooled_vfs is not None:
        return
    for name in (names.BANDWIDTH, names.qualified(names.BANDWIDTH)):
        capacity = exposure.capacity.get(name)
        if capacity is None or capacity.request_policy is None:
            continue
        default = capacity.request_policy.default
        if default is not None and number(default) != number(capacity.value):
            what = (
                f"the default must be {capacity.value}, because a claim gets the whole bandwidth of an exclusive device"
            )
            yield Finding(
                f"{what}, not {default}", path=(*_EXPOSURE, "capacity", name, "requestPolicy", "default"), code="ND1412"
            )


def pooling_errors(exposure: Exposure) -> Iterator[Finding]:
    """The errors of a policy that pools VFs and also shares them: a claim uses its VF exclusively."""
    if exposure.allow_multiple_allocations:
        what = "allowMultipleAllocations must not be true, because each of the pooledVFs belongs to one claim"
        yield Finding(what, "remove it", (*_EXPOSURE, "allowMultipleAllocations"), code="ND1413")
    if exposure.exclusion_group:
        what = "exclusionGroup is only for shared devices, but each of the pooledVFs belongs to one claim"
        yield Finding(what, "remove it", (*_EXPOSURE, "exclusionGroup"), code="ND1414")
    if sharing(exposure) == "both":
        what = "some plugins set exclusive: true, but with pooledVFs every plugin gets a whole VF"
        yield Finding(what, "remove it", (*_EXPOSURE, "supportedCNIPlugins"), code="ND1415")
    for index, plugin in enumerate(exposure.supported_cni_plugins):
        if plugin.consume_per_allocation:
            what = f'consumePerAllocation of plugin "{plugin.name}" is not supported with pooledVFs'
            place: Path = (*_EXPOSURE, "supportedCNIPlugins", index, "consumePerAllocation")
            yield Finding(what, "set requestPolicy.default of the capacity", place, code="ND1416")
    for name, capacity in exposure.capacity.items():
        path: Path = (*_EXPOSURE, "capacity", name)
        if names.qualified(name) != names.qualified(names.BANDWIDTH):
            what = f'capacity "{name}": pooledVFs only support the capacities {names.VFS} and {names.BANDWIDTH}'
            yield Finding(what, "remove it", path, code="ND1417")
        else:
            yield from policy_errors(path, DeviceCapacity(value=capacity.value, request_policy=capacity.request_policy))


def sharing_errors(exposure: Exposure) -> Iterator[Finding]:
    """The errors of a policy that shares a device between claims."""
    kind, plugins = sharing(exposure), exposure.supported_cni_plugins
    if kind == "exclusive":
        return
    if kind == "shared" and plugins and all(plugin.exclusive for plugin in plugins):
        what = "allowMultipleAllocations is true, but every plugin is exclusive"
        yield Finding(what, "remove one of the two", (*_EXPOSURE, "allowMultipleAllocations"), code="ND1418")
        return
    usable = False
    for name, capacity in exposure.capacity.items():
        yield from _default_errors((*_EXPOSURE, "capacity", name), exposure, name)
        usable = usable or bool(number(capacity.value) and number(amounts(exposure, name)[0]))
    if not usable:
        why = "lists exclusive and shared plugins" if kind == "both" else "allows multiple allocations"
        what = f"a policy that {why} requires a capacity above 0 of which each claim consumes a part"
        yield Finding(what, path=(*_EXPOSURE, "capacity"), code="ND1419")


def _choice_errors(path: Path, texts: tuple[QuantityText, ...], value: Decimal) -> Iterator[Finding]:
    if len(texts) > MAX_VALID_VALUES:
        yield Finding(f"{len(texts)} values exceed the maximum of {MAX_VALID_VALUES}", path=path, code="ND1420")
    for text in texts:
        yield from number_errors(path, text)
    choices = [choice for choice in map(number, texts) if choice is not None]
    if choices != sorted(set(choices)):
        yield Finding("validValues must be in ascending order without duplicates", path=path, code="ND1421")
    if choices and choices[-1] > value:
        yield Finding(f"{texts[-1]} exceeds the capacity of the device", path=path, code="ND1422")


def _range_errors(path: Path, span: CapacityRequestPolicyRange, value: Decimal) -> Iterator[Finding]:
    for field, text in (("min", span.min), ("max", span.max), ("step", span.step)):
        yield from number_errors((*path, field), text)
    least, most, step = number(span.min), _most(span, value), number(span.step)
    if least is None or most is None:
        return
    if not least <= most <= value:
        yield Finding("validRange must satisfy min <= max <= the capacity's value", path=path, code="ND1423")
    if step == 0:
        yield Finding("step must be greater than 0", path=(*path, "step"), code="ND1424")
    if step and span.max is not None and (most - least) % step:
        yield Finding("max must be min plus a multiple of step", path=path, code="ND1425")


def _default_errors(path: Path, exposure: Exposure, name: str) -> Iterator[Finding]:
    """The errors in the consumption of a claim without an amount: the scheduler decides it, not the plugin."""
    texts = amounts(exposure, name)
    if any(text is None for text in texts):
        what = f'capacity "{name}" requires requestPolicy.default or consumePerAllocation'
        yield Finding(f"{what}; otherwise, the first claim consumes all of it", path=path, code="ND1426")
        return
    defaults = {number(text) for text in texts}
    if len(defaults) > 1:
        yield Finding("the shared plugins set different values for consumePerAllocation", path=path, code="ND1427")
        return
    (default,) = defaults
    capacity = exposure.capacity[name]
    value = number(capacity.value)
    if default is None or value is None:
        return
    if default > value:
        yield Finding(
            f"a claim would consume {texts[0]}, which exceeds the capacity of the device", path=path, code="ND1428"
        )
    rule = _broken_rule(default, capacity.request_policy or CapacityRequestPolicy(), value)
    if rule:
        yield Finding(f"a claim would consume {texts[0]}, which is {rule}", path=path, code="ND1429")


def _broken_rule(default: Decimal, policy: CapacityRequestPolicy, value: Decimal) -> str:
    span = policy.valid_range
    if span is None:
        choices = {number(text) for text in policy.valid_values}
        return "not one of requestPolicy.validValues" if choices and default not in choices else ""
    least, most, step = number(span.min), _most(span, value), number(span.step)
    if least is None or most is None:
        return ""
    if not least <= default <= most:
        return "outside requestPolicy.validRange"
    return "not requestPolicy.validRange.min plus a multiple of step" if step and (default - least) % step else ""


def _most(span: CapacityRequestPolicyRange, value: Decimal) -> Decimal | None:
    return value if span.max is None else number(span.max)
