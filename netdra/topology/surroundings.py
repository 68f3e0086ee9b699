"""The values of facts when a claim is bound: of the device that each step has, of the node, and of the pod.

Called by `bind` on the node at Prepare, where all of them are known, and by the command line, where those that are not
known stay references. Each value is checked before it stands in a config (`facts.checked`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from netdra.model import names
from netdra.model.claim import ResourceClaim
from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.model.findings import dotted, quoted
from netdra.model.node_network import DEFAULTS
from netdra.model.plan import PlannedDevice
from netdra.model.resource import DeviceAttribute, ResourceSlice, newest
from netdra.model.suggestions import closest, listed
from netdra.topology import facts, references
from netdra.topology.devices import OF_ONE_VF, DeviceKey, with_own_facts
from netdra.topology.graph import Graph
from netdra.topology.parameters import ordinal_in
from netdra.topology.references import Reference


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The place at which a claim is bound.

    Attributes:
        node: the node's name, "" if it is not known.
        labels: the labels of the node; None if they are not known.
        slices: the slices with its devices, which have their attributes.
        pods: the pods that have the claim, by name; None for those that the claim is reserved for.
        is_partial: whether facts that are not known here stay references; else they are errors.
    """

    node: str = ""
    labels: Mapping[str, str] | None = None
    slices: Sequence[ResourceSlice] = ()
    pods: tuple[str, ...] | None = None
    is_partial: bool = False


NOWHERE = Surroundings()
"""No fact is known, and each is an error."""
ELSEWHERE = Surroundings(is_partial=True)
"""No fact is known, and each stays a reference."""


class _UnknownError(TemporaryError):
    """A fact is not known here."""


def published(slices: Iterable[ResourceSlice], key: DeviceKey) -> Mapping[str, DeviceAttribute] | None:
    """The attributes of one of the driver's devices, from the newest generation of its pool; None if absent."""
    pool, device = key
    current = newest(entry for entry in slices if entry.spec.driver == names.DRIVER and entry.spec.pool.name == pool)
    devices = (entry for part in current.get(pool, ()) for entry in part.spec.devices)
    return next((entry.attributes for entry in devices if entry.name == device), None)


def bound(
    graph: Graph, devices: Mapping[str, PlannedDevice], claim: ResourceClaim, place: Surroundings
) -> tuple[Graph, str]:
    """A graph with the values of facts in its steps' configs, and the pod whose facts are among them, "" for none.

    Args:
        graph: of a topology.
        devices: the allocated devices, by root step.
        place: the node and its devices.

    Raises:
        InvalidInputError: a fact does not exist, or cannot stand in a config.
        TemporaryError: a fact is not known yet.
    """
    if not any(graph.facts.values()):
        return graph, ""
    steps, left, pod = [], {}, ""
    for step in graph.steps:
        given: dict[Reference, Any] = {}
        for path, reference in graph.facts[step.name]:
            try:
                device = devices.get((graph.roots_of(step.name) or ("",))[0])
                given[reference] = facts.checked(_value(reference, device, claim, place))
            except _UnknownError as problem:
                if place.is_partial:
                    continue
                raise TemporaryError(
                    _shown(graph, step.name, path, reference, problem), hint=problem.hint, code=problem.code
                ) from None
            except InvalidInputError as problem:
                raise InvalidInputError(
                    _shown(graph, step.name, path, reference, problem), hint=problem.hint, code=problem.code
                ) from None
            if reference.step == facts.POD and reference.field != "namespace":
                pod = _pods(claim, place)[0]
        steps.append(msgspec.structs.replace(step, config=references.put(step.config, given)) if given else step)
        left[step.name] = tuple(entry for entry in graph.facts[step.name] if entry[1] not in given)
    return msgspec.structs.replace(graph, steps=tuple(steps), facts=left), pod


def device_value(reference: Reference, device: PlannedDevice, attributes: Mapping[str, DeviceAttribute] | None) -> Any:
    """The value of a fact of a device, not checked yet.

    Args:
        reference: to the fact.
        attributes: its published attributes; None if they are not known.

    Raises:
        InvalidInputError: the device has no such fact.
        TemporaryError: its attributes are not known.
    """
    called = f'device "{device.device}"' + (f' of pool "{device.pool}"' if device.pool else "")
    hint = "see whether policies still offer it: netdra plan; if not, delete the pod"
    if reference.field == "name":
        return device.device
    if reference.field == "ifName":
        value: Any = device.if_name
        if not value and (attributes is None or device.is_unchosen):
            raise _UnknownError(f"the interface of {called} is not known", hint=hint, code="ND1369")
    elif attributes is None:
        raise _UnknownError(f"the attributes of {called} are not published now", hint=hint, code="ND1370")
    elif device.is_unchosen and names.qualified(reference.key) in OF_ONE_VF:
        raise _UnknownError(f"{called} stands for several VFs, of which none is chosen", code="ND1371")
    else:
        value = _attribute(reference.key, called, attributes)
    if value == "" or (value == -1 and DEFAULTS.get(names.qualified(reference.key)) == -1):
        raise InvalidInputError(
            f"it does not apply to {called}: the value is {quoted(value) if isinstance(value, str) else value}",
            hint="let the step's selector match only devices to which it applies",
            code="ND1372",
        )
    return value


def _attribute(key: str, called: str, attributes: Mapping[str, DeviceAttribute]) -> Any:
    known = {names.qualified(name): attribute for name, attribute in attributes.items()}
    attribute = known.get(names.qualified(key))
    if attribute is None:
        meant = closest(key, sorted(name.removeprefix(f"{names.DRIVER}/") for name in known))
        raise InvalidInputError(
            f"{called} has no attribute {quoted(key)}",
            hint=f'did you mean "{meant}"?' if meant else "add it to additionalAttributes of the device's policy",
            code="ND1373",
        )
    return attribute.value


def _value(reference: Reference, device: PlannedDevice | None, claim: ResourceClaim, place: Surroundings) -> Any:
    if reference.step == facts.DEVICE:
        if device is None:
            raise _UnknownError("no device is allocated", code="ND1374")
        attributes = published(place.slices, (device.pool, device.device))
        if attributes is not None and not device.is_unchosen:
            attributes = with_own_facts(attributes, device)
        return device_value(reference, device, attributes)
    if reference.step == facts.NODE:
        return _of_node(reference, place)
    if reference.field == "namespace":
        return claim.metadata.namespace
    (pod,) = _pods(claim, place)
    if reference.field == "name":
        return pod
    ordinal = ordinal_in(pod)
    if ordinal is None:
        raise InvalidInputError(
            f'the name of pod "{pod}" does not end with an ordinal',
            hint="use the topology in a StatefulSet, whose pods are named <name>-<ordinal>",
            code="ND1375",
        )
    return ordinal


def _of_node(reference: Reference, place: Surroundings) -> Any:
    if reference.field == "name":
        if not place.node:
            raise _UnknownError("the node is not known", code="ND1376")
        return place.node
    if place.labels is None:
        raise _UnknownError(
            "the labels of the node are not known", hint="see whether the driver reaches the API server", code="ND1377"
        )
    return label(place.node, reference.key, place.labels)


def label(node: str, key: str, labels: Mapping[str, str]) -> str:
    """The value of a label of a node.

    Raises:
        InvalidInputError: the node does not have the label, or its value is empty.
    """
    value = labels.get(key)
    if value is None:
        raise InvalidInputError(
            f'node "{node}" does not have a label {quoted(key)}',
            hint=f"set it: kubectl label node {node} {key}=<value>",
            code="ND1378",
        )
    if not value:
        raise InvalidInputError(
            f'label {quoted(key)} of node "{node}" does not have a value',
            hint=f"set it: kubectl label --overwrite node {node} {key}=<value>",
            code="ND1573",
        )
    return value


def _pods(claim: ResourceClaim, place: Surroundings) -> Sequence[str]:
    """The only pod that has a claim.

    Raises:
        InvalidInputError: several pods have it.
        TemporaryError: its pods are not known.
    """
    pods = place.pods
    if pods is None:
        reserved = claim.status.reserved_for
        pods = tuple(entry.name for entry in reserved if entry.resource == "pods" and not entry.api_group)
        owners = (entry for entry in claim.metadata.owner_references if entry.controller)
        pods = pods or tuple(entry.name for entry in owners if (entry.api_version, entry.kind) == ("v1", "Pod"))
    if len(pods) > 1:
        raise InvalidInputError(
            f'ResourceClaim "{claim.metadata.namespace}/{claim.metadata.name}" is shared by pods {listed(pods, 5)}',
            hint="give each pod a claim of its own: a ResourceClaimTemplate",
            code="ND1379",
        )
    if not pods:
        raise _UnknownError("the pod is not known", hint="wait until the claim is reserved for a pod", code="ND1380")
    return pods


def _shown(
    graph: Graph,
    step: str,
    path: Sequence[str | int],
    reference: Reference,
    problem: InvalidInputError | TemporaryError,
) -> str:
    where = f'NetworkTopology "{graph.topology}", step "{step}": ' if graph.topology else f'request "{step}": '
    return f"{where}{dotted(tuple(path))}: {reference}: {problem.what}"
