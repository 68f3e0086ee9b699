"""The registry's registrations as messages of its gRPC service, and back.

Used by `netdra.node.registry.service` and `netdra.node.registry.listing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from netdra.model.plan import PlannedDevice
from netdra.model.registration import Registration, RegistrationOutcome
from netdra.model.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    DeviceAttribute,
    DeviceCapacity,
)
from netdra.node.registry.journal import Grant
from netdra.node.view import DeviceHealth
from netdra.node.wire import registry_pb2 as wire
from netdra.node.wire.quantity_pb2 import Quantity
from netdra.topology.devices import DeviceKey


def from_request(request: Any, *, adds: bool, device_file: str = "") -> Registration:
    """The registration of a request, in either form of the service; the table checks the rules."""
    return Registration(
        provider=request.provider,
        device=request.device,
        adds=adds,
        device_file=device_file,
        attributes={name: _attribute(value) for name, value in request.attributes.items()},
        capacity={name: _capacity(value) for name, value in request.capacity.items()},
    )


def _given(message: Message, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def _amount(message: Message, field: str) -> str | None:
    """An amount, which is a text, or in the first form of the service a message with one."""
    value = _given(message, field)
    return value.string if isinstance(value, Quantity) else value


def _attribute(value: Any) -> DeviceAttribute:
    return DeviceAttribute(
        int_=_given(value, "int"),
        bool_=_given(value, "bool"),
        string=_given(value, "string"),
        version=_given(value, "version"),
    )


def _capacity(value: Any) -> DeviceCapacity:
    policy = None
    if value.HasField("request_policy"):
        given = value.request_policy
        span = given.valid_range if given.HasField("valid_range") else None
        policy = CapacityRequestPolicy(
            default=_amount(given, "default"),
            valid_values=tuple(entry.string if isinstance(entry, Quantity) else entry for entry in given.valid_values),
            valid_range=CapacityRequestPolicyRange(
                min=_amount(span, "min") or "", max=_amount(span, "max"), step=_amount(span, "step")
            )
            if span is not None
            else None,
        )
    return DeviceCapacity(value=_amount(value, "value") or "", request_policy=policy)


def wire_registration(
    grant: Grant, left: float, outcomes: Sequence[RegistrationOutcome], file_problem: str
) -> wire.Registration:
    """A registration with the seconds that its lease has left, and its outcome."""
    registration = grant.registration
    return wire.Registration(
        provider=registration.provider,
        device=registration.device,
        attributes={name: _wire_attribute(value) for name, value in registration.attributes.items()},
        capacity={name: _wire_capacity(value) for name, value in registration.capacity.items()},
        owner=grant.owner,
        ttl_seconds=int(left),
        adds=registration.adds,
        device_file=registration.device_file,
        device_file_problem=file_problem,
        outcomes=[wire_outcome(outcome) for outcome in outcomes if outcome.meant == registration.device],
    )


def wire_outcome(outcome: RegistrationOutcome) -> wire.Outcome:
    """The outcome of a registration on one device."""
    return wire.Outcome(device=outcome.device, problem=outcome.problem)


def _wire_attribute(value: DeviceAttribute) -> wire.DeviceAttribute:
    return wire.DeviceAttribute(int=value.int_, bool=value.bool_, string=value.string, version=value.version)


def _wire_capacity(value: DeviceCapacity) -> wire.DeviceCapacity:
    policy = value.request_policy
    if policy is None:
        return wire.DeviceCapacity(value=str(value.value))
    span = policy.valid_range
    return wire.DeviceCapacity(
        value=str(value.value),
        request_policy=wire.CapacityRequestPolicy(
            default=None if policy.default is None else str(policy.default),
            valid_values=map(str, policy.valid_values),
            valid_range=None
            if span is None
            else wire.CapacityRequestPolicyRange(
                min=str(span.min),
                max=None if span.max is None else str(span.max),
                step=None if span.step is None else str(span.step),
            ),
        ),
    )


def wire_device(state: DeviceHealth, devices: Mapping[DeviceKey, PlannedDevice]) -> wire.Device:
    """A published device with its health."""
    device = devices.get((state.pool, state.device))
    return wire.Device(
        pool=state.pool,
        name=state.device,
        interface=device.if_name if device is not None else "",
        type=device.type if device is not None else "",
        device_file=device.device_file if device is not None else "",
        healthy=state.healthy,
        message=state.message,
    )
