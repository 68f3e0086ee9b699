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
from netdra.model.policy import CapacityCounter, Exposure
from netdra.model.resource import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity, QuantityText

MAX_VALID_VALUES = 10
MAX_QUANTITY = 2**63 - 1

Sharing = Literal["exclusive", "shared", "both"]


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


def number_errors(path: str, text: QuantityText | None) -> Iterator[str]:
    """The errors in an amount; a missing amount is valid."""
    if text is not None and number(text) is None:
        yield f'{path}: "{text}" is not a quantity from 0 to {MAX_QUANTITY}'


def written_errors(path: str, capacity: CapacityCounter) -> Iterator[str]:
    """The errors of a policy that does not define a capacity's value in exactly one way."""
    if (capacity.value == "") == (capacity.value_from is None):
        count = "neither" if capacity.value_from is None else "both"
        yield f"{path}: has {count} of value and valueFrom; set exactly one"


def value_errors(path: str, capacity: CapacityCounter | DeviceCapacity) -> Iterator[str]:
    """The errors in one capacity, apart from the default consumption of claims."""
    yield from number_errors(f"{path}.value", capacity.value)
    policy, value = capacity.request_policy, number(capacity.value)
    if policy is None or value is None:
        return
    yield from number_errors(f"{path}.requestPolicy.default", policy.default)
    if policy.valid_values and policy.valid_range:
        yield f"{path}.requestPolicy: has both validValues and validRange"
    elif policy.valid_range:
        yield from _range_errors(f"{path}.requestPolicy.validRange", policy.valid_range, value)
    else:
        yield from _choice_errors(f"{path}.requestPolicy.validValues", policy.valid_values, value)


def policy_errors(path: str, capacity: DeviceCapacity) -> Iterator[str]:
    """The errors in a capacity's default amount, by the API server's rules for a single capacity."""
    policy, value = capacity.request_policy, number(capacity.value)
    if policy is None or value is None:
        return
    if policy.default is None:
        if policy.valid_values or policy.valid_range:
            yield f"{path}.requestPolicy: default is required with validValues or validRange"
        return
    default = number(policy.default)
    if default is None:
        return
    if default > value:
        yield f"{path}.requestPolicy.default: {policy.default} exceeds the capacity of the device"
    elif rule := _broken_rule(default, policy, value):
        yield f"{path}.requestPolicy.default: {policy.default} is {rule}"


def bandwidth_errors(exposure: Exposure) -> Iterator[str]:
    """Whether a policy lets claims of an exclusive device consume another bandwidth than the device has."""
    if sharing(exposure) != "exclusive" or exposure.pooled_vfs is not None:
        return
    for name in (names.BANDWIDTH, names.qualified(names.BANDWIDTH)):
        capacity = exposure.capacity.get(name)
        if capacity is None or capacity.request_policy is None:
            continue
        default = capacity.request_policy.default
        if default is not None and number(default) != number(capacity.value):
            path = f'spec.exposure.capacity["{name}"].requestPolicy.default'
            yield (
                f"{path}: a claim gets the whole bandwidth of an exclusive device; this must be "
                f"{capacity.value}, not {default}"
            )


def pooling_errors(exposure: Exposure) -> Iterator[str]:
    """The errors of a policy that pools VFs and also shares them: a claim uses its VF exclusively."""
    if exposure.allow_multiple_allocations:
        yield (
            "spec.exposure.allowMultipleAllocations: must not be true, because each of the pooledVFs "
            "belongs to one claim; remove it"
        )
    if exposure.exclusion_group:
        yield (
            "spec.exposure.exclusionGroup: only for shared devices, but each of the pooledVFs belongs to "
            "one claim; remove it"
        )
    if sharing(exposure) == "both":
        yield (
            "spec.exposure.supportedCNIPlugins: exclusive: true on some plugins; with pooledVFs, every "
            "plugin gets a whole VF"
        )
    for plugin in exposure.supported_cni_plugins:
        if plugin.consume_per_allocation:
            path = f'spec.exposure.supportedCNIPlugins["{plugin.name}"].consumePerAllocation'
            yield f"{path}: not supported with pooledVFs; set requestPolicy.default of the capacity"
    for name, capacity in exposure.capacity.items():
        path = f'spec.exposure.capacity["{name}"]'
        if names.qualified(name) != names.qualified(names.BANDWIDTH):
            yield f"{path}: pooledVFs only support the capacities {names.VFS} and {names.BANDWIDTH}; remove it"
        else:
            yield from policy_errors(path, DeviceCapacity(value=capacity.value, request_policy=capacity.request_policy))


def sharing_errors(exposure: Exposure) -> Iterator[str]:
    """The errors of a policy that shares a device between claims."""
    kind, plugins = sharing(exposure), exposure.supported_cni_plugins
    if kind == "exclusive":
        return
    if kind == "shared" and plugins and all(plugin.exclusive for plugin in plugins):
        yield "spec.exposure.allowMultipleAllocations: true, but every plugin is exclusive"
        return
    usable = False
    for name, capacity in exposure.capacity.items():
        yield from _default_errors(f'spec.exposure.capacity["{name}"]', exposure, name)
        usable = usable or bool(number(capacity.value) and number(amounts(exposure, name)[0]))
    if not usable:
        why = "lists exclusive and shared plugins" if kind == "both" else "allows multiple allocations"
        yield (
            f"spec.exposure.capacity: a policy that {why} requires a capacity above 0 of which each claim "
            "consumes a part"
        )


def _choice_errors(path: str, texts: tuple[QuantityText, ...], value: Decimal) -> Iterator[str]:
    if len(texts) > MAX_VALID_VALUES:
        yield f"{path}: {len(texts)} values, more than {MAX_VALID_VALUES}"
    for text in texts:
        yield from number_errors(path, text)
    choices = [choice for choice in map(number, texts) if choice is not None]
    if choices != sorted(set(choices)):
        yield f"{path}: must be in ascending order without duplicates"
    if choices and choices[-1] > value:
        yield f"{path}: {texts[-1]} exceeds the capacity of the device"


def _range_errors(path: str, span: CapacityRequestPolicyRange, value: Decimal) -> Iterator[str]:
    for field, text in (("min", span.min), ("max", span.max), ("step", span.step)):
        yield from number_errors(f"{path}.{field}", text)
    least, most, step = number(span.min), _most(span, value), number(span.step)
    if least is None or most is None:
        return
    if not least <= most <= value:
        yield f"{path}: must be min <= max <= the capacity's value"
    if step == 0:
        yield f"{path}.step: must be greater than 0"
    if step and span.max is not None and (most - least) % step:
        yield f"{path}: max must be min plus a multiple of step"


def _default_errors(path: str, exposure: Exposure, name: str) -> Iterator[str]:
    """The errors in the consumption of a claim without an amount: the scheduler decides it, not the plugin."""
    texts = amounts(exposure, name)
    if any(text is None for text in texts):
        yield (
            f"{path}: requires requestPolicy.default or consumePerAllocation; otherwise, the first claim "
            "consumes all of it"
        )
        return
    defaults = {number(text) for text in texts}
    if len(defaults) > 1:
        yield f"{path}: the shared plugins set different values for consumePerAllocation"
        return
    (default,) = defaults
    capacity = exposure.capacity[name]
    value = number(capacity.value)
    if default is None or value is None:
        return
    if default > value:
        yield f"{path}: a claim would consume {texts[0]}, which exceeds the capacity of the device"
    rule = _broken_rule(default, capacity.request_policy or CapacityRequestPolicy(), value)
    if rule:
        yield f"{path}: a claim would consume {texts[0]}, which is {rule}"


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
