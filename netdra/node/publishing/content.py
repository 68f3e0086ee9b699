"""What a slice says, apart from how it is written: the form in which wanted and stored slices are compared.

Called by `netdra.node.publishing.reconcile`. The API server writes quantities in its own way and stamps taints with
the time; both are no difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from netdra.model import quantity
from netdra.model.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    Device,
    DeviceCapacity,
    QuantityText,
    ResourcePool,
    ResourceSliceSpec,
)

_NO_POOL = ResourcePool(name="", generation=0, resource_slice_count=0)


def content(spec: ResourceSliceSpec) -> ResourceSliceSpec:
    """A slice's content in one way of writing it, without its pool's generation and size."""
    return msgspec.structs.replace(
        spec,
        pool=msgspec.structs.replace(_NO_POOL, name=spec.pool.name),
        devices=tuple(_device(device) for device in spec.devices),
        shared_counters=tuple(
            msgspec.structs.replace(counters, counters=_counters(counters.counters))
            for counters in spec.shared_counters
        ),
    )


def digest(spec: ResourceSliceSpec) -> bytes:
    """A short stand-in for a content: equal contents have equal ones."""
    return hashlib.sha256(msgspec.json.encode(content(spec), order="deterministic")).digest()[:16]


def _device(device: Device) -> Device:
    """The device in one way of writing it; most have nothing to rewrite, and are returned as they are."""
    rewritten: dict[str, object] = {}
    if device.capacity:
        rewritten["capacity"] = {name: _capacity(capacity) for name, capacity in device.capacity.items()}
    if device.consumes_counters:
        rewritten["consumes_counters"] = tuple(
            msgspec.structs.replace(consumption, counters=_counters(consumption.counters))
            for consumption in device.consumes_counters
        )
    if device.taints:
        rewritten["taints"] = tuple(msgspec.structs.replace(taint, time_added=None) for taint in device.taints)
    return msgspec.structs.replace(device, **rewritten) if rewritten else device


def _capacity(capacity: DeviceCapacity) -> DeviceCapacity:
    policy = capacity.request_policy
    return DeviceCapacity(value=_text(capacity.value), request_policy=None if policy is None else _policy(policy))


def _policy(policy: CapacityRequestPolicy) -> CapacityRequestPolicy:
    span = policy.valid_range
    return CapacityRequestPolicy(
        default=_text_or_none(policy.default),
        valid_values=tuple(_text(value) for value in policy.valid_values),
        valid_range=None
        if span is None
        else CapacityRequestPolicyRange(
            min=_text(span.min), max=_text_or_none(span.max), step=_text_or_none(span.step)
        ),
    )


def _counters(counters: Mapping[str, Counter]) -> dict[str, Counter]:
    return {name: Counter(value=_text(counter.value)) for name, counter in counters.items()}


def _text(text: QuantityText) -> str:
    return quantity.render(quantity.parse(text))


def _text_or_none(text: QuantityText | None) -> str | None:
    return None if text is None else _text(text)
