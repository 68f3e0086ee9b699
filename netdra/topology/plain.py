"""Devices without a NetworkTopology: the one step that attaches each, as a graph of that step alone.

The step comes from the `DeviceParameters` of the device's DeviceClass, else it is the first usable one of those that
the device's policy lists. Called by `bind`; a class is also checked when it is written (`netdra.rules.classes`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

from netdra.model import names
from netdra.model.claim import OpaqueDeviceConfiguration, ResourceClaim
from netdra.model.device_parameters import KIND, DeviceParameters, DeviceStep
from netdra.model.documents import fit
from netdra.model.errors import InvalidInputError
from netdra.model.findings import quoted
from netdra.model.inventory import DEVICE_FILE
from netdra.model.meta import ObjectMeta
from netdra.model.plan import PlannedDevice
from netdra.model.policy import PolicySelector
from netdra.model.topology import NetworkTopology, NetworkTopologySpec, Step
from netdra.topology import references
from netdra.topology.classes import parameters as topology_parameters
from netdra.topology.graph import Graph, compile_topology
from netdra.topology.step_check import RESERVED_KEYS, is_plugin_name, plugin_name_hint
from netdra.topology.values import ConfigError

DEFAULT_TYPES = ("sriov", "host-device", "macvlan", "ipvlan", "bridge", "vfio-pci", "rdma", DEVICE_FILE)
"""The steps that can attach a device without a configuration, in the order of preference."""

_ONLY_VFS = frozenset({"sriov"})
_ANY_DEVICE = PolicySelector(cel="true")
_step = msgspec.json.Decoder(DeviceStep)


def parameters(opaque: OpaqueDeviceConfiguration | None, origin: str) -> DeviceParameters | None:
    """The `DeviceParameters` of a class's opaque configuration; None if it is another driver's or a topology's.

    Args:
        opaque: from a class or an allocation.
        origin: where it comes from, for errors.

    Raises:
        InvalidInputError: it is for this driver, and not to be understood.
    """
    if opaque is None or opaque.driver != names.DRIVER or topology_parameters(opaque, origin) is not None:
        return None
    value = opaque.parameters
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind != KIND:
        raise InvalidInputError(
            f"{origin}: the opaque parameters for {names.DRIVER} are neither a networkTopologyRef nor {KIND}",
            hint=f"docs/claims.md describes the parameters of a DeviceClass; kind is {_shown(kind)}",
            code="ND1330",
        )
    converted = fit(value, DeviceParameters, f"{origin}: opaque parameters")
    _check(converted.step, f"{origin}: opaque parameters, step")
    return converted


def only(configs: Iterable[OpaqueDeviceConfiguration | None], origin: str) -> DeviceParameters | None:
    """The only `DeviceParameters` of a class's opaque configurations; None without any.

    Args:
        configs: from a class or an allocation.
        origin: where they come from, for errors.

    Raises:
        InvalidInputError: one is not to be understood, or they differ.
    """
    read = [value for opaque in configs if (value := parameters(opaque, origin)) is not None]
    if any(value != read[0] for value in read):
        raise InvalidInputError(
            f"{origin}: it carries several DeviceParameters",
            hint="keep one of them: a device is attached by one step",
            code="ND1331",
        )
    return read[0] if read else None


def graph_of(device: PlannedDevice, given: DeviceParameters | None, origin: str) -> Graph | None:
    """The graph of the device's one step, whose name is the request's; its `topology` is "".

    Args:
        device: the allocated device, `request` included.
        given: its class's parameters.
        origin: where these come from, for errors.

    Returns:
        None if it is open how the device could be attached: its policy lists no plugin, or none that needs no
        configuration.

    Raises:
        InvalidInputError: the class names a step that the device's policy does not list.
    """
    if given is None:
        kind = default_type(device)
        step = DeviceStep(type=kind) if kind else None
    else:
        step = given.step
        _check_supported(step, device, origin)
    if step is None:
        return None
    return _compiled(names.label(device.request.partition("/")[0]), msgspec.json.encode(step))


@lru_cache(maxsize=256)
def _compiled(name: str, step: bytes) -> Graph:
    """The graph of one step. Every pod's start asks for it again, and it takes a millisecond."""
    only = Step(name=name, selector=_ANY_DEVICE, **msgspec.structs.asdict(_step.decode(step)))
    alone = NetworkTopology(
        metadata=ObjectMeta(name=only.name),
        spec=NetworkTopologySpec(steps=(only,)),
        api_version="networking.dra.io/v1alpha1",
        kind="NetworkTopology",
    )
    return msgspec.structs.replace(compile_topology(alone), topology="")


def default_type(device: PlannedDevice) -> str:
    """The step that attaches a device whose class names none; "" if no such step exists."""
    listed = device.supported_cnis
    return next(
        (kind for kind in DEFAULT_TYPES if kind in listed and (device.type == "vf" or kind not in _ONLY_VFS)), ""
    )


def class_of(claim: ResourceClaim, request: str) -> str:
    """The DeviceClass of a request, or of the alternative that was chosen; "" if the claim has no such request."""
    main, _, chosen = request.partition("/")
    for wish in claim.spec.devices.requests:
        if wish.name == main:
            alternatives = {choice.name: choice.device_class_name for choice in wish.first_available}
            return wish.exactly.device_class_name if wish.exactly is not None else alternatives.get(chosen, "")
    return ""


def _check(step: DeviceStep, origin: str) -> None:
    if not is_plugin_name(step.type):
        raise InvalidInputError(
            f"{origin}: type {quoted(step.type)} is not a valid CNI plugin name",
            hint=plugin_name_hint(step.type),
            path=("step", "type"),
            code="ND1332",
        )
    for key in RESERVED_KEYS:
        if key in step.config:
            raise InvalidInputError(
                f"{origin}: config.{key} is written by netdra",
                hint="remove it",
                path=("step", "config", key),
                code="ND1333",
            )
    try:
        reference = next(iter(references.find(step.config)), None)
    except ConfigError as problem:
        path = ("step", "config")
        raise InvalidInputError(f"{origin}: {problem.what}", hint=problem.hint, path=path, code=problem.code) from None
    if reference is not None:
        raise InvalidInputError(
            f"{origin}: {reference[1]} "
            + (
                "refers to another step, which does not exist" if reference[1].is_of_result else "is not supported here"
            ),
            hint="write a NetworkTopology for a network of several steps"
            if reference[1].is_of_result
            else "write a NetworkTopology, whose steps can have it",
            path=("step", "config", *reference[0]),
            code="ND1334",
        )


def _check_supported(step: DeviceStep, device: PlannedDevice, origin: str) -> None:
    if device.supported_cnis and step.type not in device.supported_cnis:
        raise InvalidInputError(
            f'{origin}: step type "{step.type}" is not among the plugins that the policy of device "{device.device}" '
            f"lists ({', '.join(device.supported_cnis)})",
            hint="let the DeviceClass select devices by supportedCNIs, or list the plugin in the policy",
            code="ND1335",
        )


def _shown(kind: Any) -> str:
    return quoted(kind) if isinstance(kind, str) else "not given"
