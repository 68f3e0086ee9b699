"""Facts of providers: the rules for them, and how they are added to the devices of a node (decision D47). Pure.

The rules are the same for the registry's socket (`netdra.node.registry`) and for CustomDevices (the webhook).
`netdra.exposure.expose` adds registered facts to devices after policies have made them, all of a registration or none:
the facts that netdra publishes do not change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from netdra.exposure.additional import MAX_INTEGER
from netdra.exposure.capacities import policy_errors, value_errors
from netdra.model import names
from netdra.model.custom_device import CustomDevice, CustomDeviceSelector
from netdra.model.device import Decision, ExposedDevice, ExposureResult, Features, Problem
from netdra.model.findings import Finding, Path
from netdra.model.inventory import DEVICE_FILE, Interface
from netdra.model.registration import DeviceFile, Registration, RegistrationOutcome
from netdra.model.resource import (
    MAX_ATTRIBUTE_VALUES,
    MAX_ATTRIBUTES_AND_CAPACITIES,
    MAX_STRING,
    CapacityRequestPolicy,
    DeviceAttribute,
    DeviceCapacity,
)

_RESERVED = r"(.*\.)?((kubernetes|k8s)\.io|dra\.networking|networking\.dra\.io)\Z"
# semver.org 2.0.0; the API server takes no other form, and from 1.38 on no longer number, since CEL's have 64 bits.
_NUMBER = r"(0|[1-9]\d{0,17})"
_WORD = rf"({_NUMBER}|\d*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_WORD}(\.{_WORD})*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?\Z"
_NO_LISTS = "the API server does not support lists of attributes (feature gate DRAListTypeAttributes)"


def errors(
    provider: str,
    attributes: Mapping[str, DeviceAttribute],
    capacity: Mapping[str, DeviceCapacity],
    *,
    within: Path = (),
) -> Iterator[Finding]:
    """The errors in a provider's attributes and capacities.

    Args:
        provider: the domain of the names.
        attributes: by name without a domain.
        capacity: by name without a domain.
        within: the place around them, e.g. `("spec",)`.
    """
    yield from provider_errors(provider, within=within)
    used = len(attributes) + len(capacity)
    if used > MAX_ATTRIBUTES_AND_CAPACITIES:
        what = f"{used} attributes and capacities; a device supports {MAX_ATTRIBUTES_AND_CAPACITIES}"
        yield Finding(what, path=within, code="ND1451")
    for name, attribute in attributes.items():
        path: Path = (*within, "attributes", _shortened(name))
        yield from _name_errors(path, name)
        yield from _attribute_errors(path, attribute)
    for name, amount in capacity.items():
        path = (*within, "capacity", _shortened(name))
        yield from _name_errors(path, name)
        yield from value_errors(path, amount)
        yield from policy_errors(path, amount)


def provider_errors(provider: str, *, within: Path = ()) -> Iterator[Finding]:
    """The errors in a provider's name."""
    path: Path = (*within, "provider")
    if not names.is_attribute_domain(provider):
        yield Finding(
            f'"{_shortened(provider)}" is not a domain of at most {names.MAX_LABEL} characters',
            path=path,
            code="ND1452",
        )
    if re.match(_RESERVED, provider):
        yield Finding(f'"{_shortened(provider)}" is reserved', "use a domain of your own", path, code="ND1453")


def _shortened(text: str) -> str:
    return text if len(text) <= names.MAX_LABEL else f"{text[: names.MAX_LABEL]}…"


def _name_errors(path: Path, name: str) -> Iterator[Finding]:
    if not names.is_identifier(name):
        what = f'"{_shortened(name)}" must have at most 32 letters, digits and _, and must not start with a digit'
        yield Finding(what, path=path, code="ND1454")


def _attribute_errors(path: Path, attribute: DeviceAttribute) -> Iterator[Finding]:
    values = {field: value for field in attribute.__struct_fields__ if (value := getattr(attribute, field)) is not None}
    if len(values) != 1:
        yield Finding(
            f"the attribute has {len(values)} values; it must have exactly one, e.g. string", path=path, code="ND1455"
        )
        return
    ((field, value),) = values.items()
    entries = value if isinstance(value, tuple) else (value,)
    if not entries:
        yield Finding("a list must not be empty", path=path, code="ND1456")
    for entry in entries:
        yield from _value_errors(path, field, entry)


def _value_errors(path: Path, field: str, value: bool | int | str) -> Iterator[Finding]:
    if isinstance(value, str):
        if len(value.encode(errors="replace")) > MAX_STRING:
            yield Finding(f'"{_shortened(value)}" is longer than {MAX_STRING} bytes', path=path, code="ND1457")
        if field.startswith("version") and re.match(_VERSION, value, re.ASCII) is None:
            what = f'"{_shortened(value)}" is not a semantic version with numbers of at most 18 digits, e.g. 1.2.3'
            yield Finding(what, path=path, code="ND1458")
    elif not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
        yield Finding(f"{value} is not a 64-bit integer", path=path, code="ND1459")


def of_custom_device(device: CustomDevice, node: str, labels: Mapping[str, str]) -> Registration | None:
    """The registration of a CustomDevice on a node with these labels; None if it is for other nodes, or breaks a rule.

    The webhook refuses an object that breaks a rule. An object that came before the webhook, or without one, must not
    spoil a slice.
    """
    spec = device.spec
    selector = spec.selector or CustomDeviceSelector()
    if not selector.matches(node, labels):
        return None
    if any(errors(spec.provider, spec.attributes, spec.capacity)):
        return None
    return Registration(
        provider=spec.provider,
        device=spec.device,
        adds=spec.add_if_not_exist,
        pool=selector.pool_name,
        attributes=spec.attributes,
        capacity=spec.capacity,
        custom_device=device.name,
    )


def _rank(registration: Registration) -> tuple[bool, str]:
    """The order: CustomDevices by their names; registrations of the socket as they arrived."""
    return not registration.custom_device, registration.custom_device


def _called(what: Interface | Decision) -> frozenset[str]:
    """The names by which providers may register an interface."""
    return frozenset({what.if_name, what.device_name, names.label(what.device_name)} - {""})


def _adds_interface(registration: Registration) -> bool:
    """Whether the registration makes an interface a device."""
    return registration.adds and not registration.device_file


class Registered:
    """All that is registered on a node, by the name of the device or interface. Never changes.

    For one provider an object wins over the socket, and of several objects the first by name.
    """

    def __init__(self, registrations: Iterable[Registration] = ()) -> None:
        """Take them; those of one device in the order in which they came."""
        by_device: dict[str, list[Registration]] = {}
        entries = tuple(registrations)
        # In the order in which they came: no provider takes another's file by a name that sorts before it.
        self._files = tuple(registration for registration in entries if registration.device_file)
        for registration in sorted(entries, key=_rank):
            by_device.setdefault(registration.device, []).append(registration)
        self._by_device = {device: tuple(listed) for device, listed in by_device.items()}
        self._registered = by_device.keys()
        self._adding = {device for device, listed in by_device.items() if any(map(_adds_interface, listed))}

    def __bool__(self) -> bool:
        return bool(self._by_device)

    @property
    def picks_pools(self) -> bool:
        """Whether an interface may be registered as a device for one pool only."""
        registrations = (registration for name in self._adding for registration in self._by_device[name])
        return any(_adds_interface(registration) and registration.pool for registration in registrations)

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the device files that are registered as devices."""
        return tuple(registration.device_file for registration in self._files)

    def file_devices(
        self, interfaces: Iterable[Interface], read_file: Callable[[str], DeviceFile]
    ) -> tuple[Interface, ...]:
        """The devices that are only a file, also those whose file is given to no pod now.

        Args:
            interfaces: all of the node: none of their names is free for a file.
            read_file: what there is at a path now.
        """
        if not self._files:
            return ()
        interface_names = {name: interface for interface in interfaces for name in _called(interface)}
        paths: set[str] = set()
        numbers: dict[tuple[int, int], Registration] = {}
        devices = []
        for registration in self._files:
            path, file = registration.device_file, read_file(registration.device_file)
            if path in paths:
                continue
            paths.add(path)
            problem = file.text
            if registration.device in interface_names:
                problem = f'"{registration.device}" is the name of an interface; register {path} under another name'
            elif file.number is not None:
                first = numbers.setdefault(file.number, registration)
                if first is not registration:
                    problem = (
                        f"device file {path} is the same device as {first.device_file}, which is device "
                        f'"{first.device}" of provider "{first.provider}"; register each device once'
                    )
            devices.append(
                Interface(
                    type=DEVICE_FILE,
                    device_file=path,
                    called=registration.device,
                    registered_by=registration.provider,
                    file_problem=problem,
                )
            )
        return tuple(devices)

    def of(self, device: str) -> tuple[Registration, ...]:
        """The registrations under a name."""
        return self._by_device.get(device, ())

    def marked(self, interfaces: Sequence[Interface], pools: Mapping[str, str]) -> Sequence[Interface]:
        """The interfaces, those that are registered as devices with their provider.

        Args:
            interfaces: all of the node.
            pools: by identity, the pool of each, where it matters.
        """
        if not self._adding:
            return interfaces
        return [self._marked(interface, pools.get(interface.identity, "")) for interface in interfaces]

    def _marked(self, interface: Interface, pool: str) -> Interface:
        called = _called(interface)
        if interface.device_file or not called & self._adding:
            return interface
        # Sorted, or the order of a set would decide which of two providers is named.
        registrations = (registration for name in sorted(called) for registration in self.of(name))
        provider = next(
            (entry.provider for entry in registrations if _adds_interface(entry) and entry.pool in ("", pool)),
            "",
        )
        return msgspec.structs.replace(interface, registered_by=provider) if provider else interface

    def concerning(self, part: ExposureResult, pool: str) -> tuple[tuple[Registration, ...], ...]:
        """The registrations for a pool's interfaces and devices, in the order of its decisions."""
        return tuple(
            tuple(
                registration
                for name in sorted(self._registered & {*_called(decision), *decision.exposed})
                for registration in self.of(name)
                if registration.pool in ("", pool) and registration.device_file in ("", decision.interface)
            )
            for decision in part.decisions
        )


NOTHING = Registered()


def applied(part: ExposureResult, registered: Sequence[Sequence[Registration]], features: Features) -> ExposureResult:
    """A pool's devices with their registered facts, and the result of each registration.

    Args:
        part: the pool's devices as policies make them.
        registered: the registrations of the pool, of `Registered.concerning`.
        features: the features that the API server supports.
    """
    devices = {device.name: device for device in part.devices}
    outcomes: list[RegistrationOutcome] = []
    problems: list[Problem] = []
    for decision, registrations in zip(part.decisions, registered, strict=True):
        if not registrations:
            continue
        called = _called(decision)
        if not decision.exposed:
            outcomes += [_hidden(registration, decision) for registration in sorted(registrations, key=_rank)]
        for name in decision.exposed:
            if name not in devices:
                continue
            target = sorted(
                (
                    registration
                    for registration in registrations
                    if registration.device in called or registration.device == name
                ),
                key=_rank,
            )
            devices[name], made = _added(devices[name], target, features)
            outcomes += made
            problems += [_problem(entry, devices[name], decision) for entry in made if entry.problem]
    return msgspec.structs.replace(
        part,
        devices=tuple(devices[device.name] for device in part.devices),
        problems=(*part.problems, *problems),
        outcomes=tuple(outcomes),
    )


def _hidden(registration: Registration, decision: Decision) -> RegistrationOutcome:
    offers = f'offered by a policy that selects registeredBy == "{registration.provider}"'
    hint = f"; {offers}" if registration.adds else f"; set addIfNotExist: true; then it is {offers}"
    problem = f"not a device: {decision.reason}{(hint if decision.hidden in ('no-match', 'no-answer') else '')}"
    if decision.pooled:
        first, *others = decision.pooled
        devices = f'"{first}"' + (f" and {len(others)} more" if others else "")
        problem = (
            f'VF "{registration.device}" is one of the pooled VFs of device {devices} and not a device '
            "itself; register the device of pooled VFs by its name, or offer the VF with a policy "
            "without pooledVFs"
        )
    return RegistrationOutcome(
        provider=registration.provider,
        device=decision.if_name or decision.device_name,
        meant=registration.device,
        custom_device=registration.custom_device,
        problem=problem,
    )


def _problem(outcome: RegistrationOutcome, device: ExposedDevice, decision: Decision) -> Problem:
    source = f'CustomDevice "{outcome.custom_device}"' if outcome.custom_device else f'provider "{outcome.provider}"'
    return Problem(
        policy="",
        message=f"{device.name}: from {source}: {outcome.problem}",
        interface=device.interface,
        device=decision.device_name,
        cause=f"from {source}: {outcome.problem}",
    )


class _Value(NamedTuple):
    """An attribute or capacity of a registration, ready to be published."""

    name: str
    value: DeviceAttribute | DeviceCapacity


def _added(
    device: ExposedDevice, registrations: Sequence[Registration], features: Features
) -> tuple[ExposedDevice, list[RegistrationOutcome]]:
    """A device with its registered facts: all of a registration, or none if the device has no room for all of them.

    The first registration of a name wins.
    """
    attributes: dict[str, DeviceAttribute] = {}
    capacity = dict(device.capacity)
    sources: dict[tuple[type, str], Registration] = {}
    room = MAX_ATTRIBUTES_AND_CAPACITIES - len(device.attributes) - len(device.capacity)
    values = MAX_ATTRIBUTE_VALUES - sum(_count(value) for value in device.attributes.values())
    outcomes: list[RegistrationOutcome] = []
    for registration in registrations:
        refused: dict[str, list[str]] = {}
        own: list[_Value] = []
        needed = 0
        for name, value in _qualify_values(registration, device.shared, features, refused):
            before = sources.get((type(value), name))
            if before is not None:
                refused.setdefault(f"{before.source} sets it with precedence", []).append(name)
            elif name in device.attributes or name in device.capacity:
                refused.setdefault("a policy sets it with precedence", []).append(name)
            else:
                needed += _count(value.value) if isinstance(value, DeviceAttribute) else 0
                own.append(_Value(name, value))
        if len(own) > room or needed > values:
            refused[_no_room(device, room)] = [entry.name for entry in own]
            own, needed = [], 0
        room, values = room - len(own), values - needed
        for name, value in own:
            sources[type(value), name] = registration
            if isinstance(value, DeviceAttribute):
                attributes[name] = value
            else:
                capacity[name] = value
        outcomes.append(
            RegistrationOutcome(
                provider=registration.provider,
                device=device.name,
                meant=registration.device,
                custom_device=registration.custom_device,
                attributes=tuple(entry.name for entry in own if isinstance(entry.value, DeviceAttribute)),
                capacity=tuple(entry.name for entry in own if isinstance(entry.value, DeviceCapacity)),
                problem="; ".join(f"{', '.join(listed)} is omitted: {why}" for why, listed in refused.items()),
            )
        )
    return msgspec.structs.replace(device, registered=attributes, capacity=capacity), outcomes


def _qualify_values(
    registration: Registration, shared: bool, features: Features, refused: dict[str, list[str]]
) -> Iterator[_Value]:
    """A registration's values under qualified names, capacity first: without it claims cannot ask for an amount."""
    for name, capacity in sorted(registration.capacity.items()):
        yield _Value(f"{registration.provider}/{name}", _consumable(capacity) if shared else _whole(capacity))
    for name, attribute in sorted(registration.attributes.items()):
        qualified = f"{registration.provider}/{name}"
        if isinstance(attribute.value, tuple) and not features.list_attributes:
            text = f",{','.join(attribute.strings)}," if attribute.strings else ""
            if not text or len(text.encode()) > MAX_STRING or any("," in string for string in attribute.strings or ()):
                refused.setdefault(_NO_LISTS, []).append(qualified)
                continue
            yield _Value(qualified, DeviceAttribute(string=text))
        else:
            yield _Value(qualified, attribute)


def _consumable(capacity: DeviceCapacity) -> DeviceCapacity:
    """A shared device's capacity: a claim that does not ask takes none of it, or the first one would take all."""
    policy = capacity.request_policy or CapacityRequestPolicy()
    if policy.default is not None:
        return capacity
    return msgspec.structs.replace(capacity, request_policy=msgspec.structs.replace(policy, default="0"))


def _whole(capacity: DeviceCapacity) -> DeviceCapacity:
    """An exclusive device's capacity: a claim that has the device has all of it."""
    return capacity if capacity.request_policy is None else DeviceCapacity(value=capacity.value)


def _count(value: object) -> int:
    return len(value) if isinstance(value, tuple) else 1


def _no_room(device: ExposedDevice, room: int) -> str:
    own = len(device.attributes) + len(device.capacity)
    others = MAX_ATTRIBUTES_AND_CAPACITIES - own - room
    used = f"{own} are set by netdra and the policy" + (f", and {others} by other registrations" if others else "")
    return (
        f"the device has room for {room} more attributes and capacities, and all or none of a registration are added: "
        f"a device supports {MAX_ATTRIBUTES_AND_CAPACITIES}; {used}"
    )
