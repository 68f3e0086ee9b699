"""Claims to wishes: each request and alternative, checked and worked out as far as no node is needed.

Called by `allocator`; searched by `search`. The checks are those that the scheduler makes before it inspects a device
(k8s.io/dynamic-resource-allocation v0.37, `validateDeviceRequest`); the defaults are the API server's. CEL selectors of
classes and requests are compiled here, and asked once of each device by `trial`: answers are kept per list of
expressions and device, because a few classes ask the same of every device again for each claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from netdra.cel import (
    CelCompileError,
    CelEvaluationError,
    CompiledSelector,
    DeviceVariables,
    Version,
    compile_selector,
    device_variables,
)
from netdra.model.claim import (
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from netdra.model.errors import InvalidInputError
from netdra.model.resource import DeviceAttribute
from netdra.slices import capacity
from netdra.slices.allocator.pools import Candidate

ADMIN_LABEL = "resource.kubernetes.io/admin-access"


class Selectors:
    """Expressions that must all hold. Made by `SelectorCache` only."""

    def __init__(self, compiled: tuple[CompiledSelector, ...], variables: dict[Candidate, DeviceVariables]) -> None:
        self._compiled = compiled
        self._variables = variables
        self._answers: dict[Candidate, int | CelEvaluationError] = {}

    @property
    def attributes(self) -> frozenset[tuple[str, str]] | None:
        """The attributes that the answers depend on, each as its domain and name; None if it may be all."""
        asked = [selector.attributes for selector in self._compiled]
        known = [attributes for attributes in asked if attributes is not None]
        return frozenset().union(*known) if len(known) == len(asked) else None

    def first_false(self, candidate: Candidate) -> int:
        """The position of the first expression that is false for the device, or -1 where all hold.

        Raises:
            CelEvaluationError: an expression has no answer for the device.
        """
        answer = self._answers.get(candidate)
        if answer is None:
            answer = self._answers[candidate] = self._ask(candidate)
        if isinstance(answer, CelEvaluationError):
            raise answer
        return answer

    def _ask(self, candidate: Candidate) -> int | CelEvaluationError:
        device = self._variables.get(candidate)
        if device is None:
            device = self._variables[candidate] = _variables(candidate)
        for position, selector in enumerate(self._compiled):
            try:
                if not selector.matches(device):
                    return position
            except CelEvaluationError as problem:
                return problem
        return -1


class SelectorCache:
    """Every list of expressions once, and every device's variables once."""

    def __init__(self) -> None:
        self._selectors: dict[tuple[str, ...], Selectors] = {}
        self._variables: dict[Candidate, DeviceVariables] = {}

    def of(self, expressions: Iterable[str]) -> Selectors:
        """The selectors of these expressions.

        Raises:
            CelCompileError: one of them does not compile.
        """
        key = tuple(expressions)
        selectors = self._selectors.get(key)
        if selectors is None:
            selectors = self._selectors[key] = Selectors(tuple(compile_selector(text) for text in key), self._variables)
        return selectors


def _variables(candidate: Candidate) -> DeviceVariables:
    device = candidate.device
    try:
        return device_variables(
            candidate.key[0],
            {name: _value(attribute) for name, attribute in device.attributes.items()},
            {name: capacity.value for name, capacity in device.capacity.items()},
            shared=candidate.shared,
        )
    except InvalidInputError as problem:
        raise InvalidInputError(
            f'device "{"/".join(candidate.key)}": {problem.what}', hint=problem.hint, code=problem.code
        ) from None


def _value(attribute: DeviceAttribute) -> Any:
    if attribute.version is not None:
        return Version(attribute.version)
    if attribute.versions is not None:
        return tuple(Version(version) for version in attribute.versions)
    value = attribute.value
    return "" if value is None else value


class Wish(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One request, or one alternative of a request.

    Attributes:
        request: the request's name; an alternative's is `request/alternative` in `name`.
        selectors: those of the class, then those of the request; `of_class` is how many are the class's.
        everything: whether all devices are wanted; else `count` of them.
        amounts: the requested capacities.
    """

    request: str
    name: str
    device_class: DeviceClass
    selectors: Selectors
    of_class: int
    everything: bool
    count: int
    admin: bool
    tolerations: tuple[DeviceToleration, ...]
    amounts: Mapping[str, capacity.Consumption]

    @property
    def names(self) -> tuple[str, str]:
        """The names by which constraints and configuration may mean it."""
        return self.request, self.name


class ClaimTask(msgspec.Struct, frozen=True, eq=False):
    """A claim and, per request, the wishes of which one is to be met, in the order in which they are tried.

    Claims with the same `shape` ask for the same.
    """

    claim: ResourceClaim
    key: str
    shape: bytes
    requests: tuple[tuple[Wish, ...], ...]


def asked(tasks: Iterable[ClaimTask]) -> frozenset[tuple[str, str]] | None:
    """The attributes of devices that claims depend on, each as its domain and name; None if it may be all."""
    found: set[tuple[str, str]] = set()
    for entry in tasks:
        for wish in (wish for wishes in entry.requests for wish in wishes):
            if wish.selectors.attributes is None:
                return None
            found |= wish.selectors.attributes
        for constraint in entry.claim.spec.devices.constraints:
            domain, _, name = (constraint.match_attribute or constraint.distinct_attribute or "").partition("/")
            found.add((domain, name))
    return frozenset(found)


class UnallocatableError(Exception):
    """The claim cannot be allocated on any node, even if all devices are free: the scheduler fails with an error."""


def claim_key(claim: ResourceClaim) -> str:
    """The name under which a claim's devices are held: namespace and name."""
    return f"{claim.metadata.namespace or 'default'}/{claim.metadata.name}"


def shown(key: str) -> str:
    """A claim's key as it is shown to people: the default namespace goes without stating."""
    return key.removeprefix("default/")


def task(
    claim: ResourceClaim, classes: Mapping[str, DeviceClass], selectors: SelectorCache, admin_namespaces: frozenset[str]
) -> ClaimTask:
    """A claim, ready to be searched for.

    Args:
        claim: an unallocated claim.
        classes: the cluster's device classes by name.
        selectors: where compiled selectors are kept.
        admin_namespaces: the namespaces whose label allows admin access.

    Raises:
        UnallocatableError: a class is missing, a selector does not compile, admin access is not allowed there, or no
            request type that is known is used.
    """
    requests = []
    for request in claim.spec.devices.requests:
        try:
            requests.append(tuple(_wish(request, one, classes, selectors) for one in _alternatives(request)))
        except CelCompileError as problem:
            raise UnallocatableError(f'request "{request.name}": {problem}') from None
        except InvalidInputError as problem:
            raise UnallocatableError(f'request "{request.name}": capacity: {problem}') from None
    for number, constraint in enumerate(claim.spec.devices.constraints):
        if constraint.match_attribute is None and constraint.distinct_attribute is None:
            raise UnallocatableError(f"constraint {number} is empty: matchAttribute or distinctAttribute is required")
    namespace = claim.metadata.namespace or "default"
    if namespace not in admin_namespaces and any(wish.admin for wishes in requests for wish in wishes):
        raise UnallocatableError(f'adminAccess requires the label {ADMIN_LABEL}: "true" on namespace {namespace}')
    return ClaimTask(claim, claim_key(claim), msgspec.json.encode(claim.spec), tuple(requests))


def _alternatives(request: DeviceRequest) -> tuple[ExactDeviceRequest | DeviceSubRequest, ...]:
    if request.first_available:
        return request.first_available
    if request.exactly is None:
        raise UnallocatableError(f'request "{request.name}" has neither exactly nor firstAvailable')
    return (request.exactly,)


def _wish(
    request: DeviceRequest,
    wanted: ExactDeviceRequest | DeviceSubRequest,
    classes: Mapping[str, DeviceClass],
    selectors: SelectorCache,
) -> Wish:
    name = f"{request.name}/{wanted.name}" if isinstance(wanted, DeviceSubRequest) else request.name
    device_class = classes.get(wanted.device_class_name)
    if device_class is None:
        raise UnallocatableError(f'request "{name}": DeviceClass "{wanted.device_class_name}" not found')
    of_class = _expressions(name, device_class.spec.selectors)
    everything = wanted.allocation_mode == "All"
    return Wish(
        request=request.name,
        name=name,
        device_class=device_class,
        selectors=selectors.of((*of_class, *_expressions(name, wanted.selectors))),
        of_class=len(of_class),
        everything=everything,
        count=0 if everything else wanted.count or 1,
        admin=isinstance(wanted, ExactDeviceRequest) and wanted.admin_access,
        tolerations=wanted.tolerations,
        amounts=capacity.requested(wanted.capacity),
    )


def _expressions(name: str, selectors: tuple[DeviceSelector, ...]) -> list[str]:
    expressions = [selector.cel.expression for selector in selectors if selector.cel is not None]
    if len(expressions) != len(selectors):
        raise UnallocatableError(f'request "{name}": a selector does not have a CEL expression')
    return expressions
