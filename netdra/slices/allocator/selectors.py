"""CEL selectors of classes and requests, asked once of each device.

Called by `wishes` (to compile) and `trial` (to ask). Answers are kept per list of expressions and device, because a few
classes ask the same of every device again for each claim.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from netdra.cel import (
    CelEvaluationError,
    DeviceVariables,
    Selector,
    Version,
    compile_selector,
    device_variables,
)
from netdra.model.errors import InvalidInputError
from netdra.model.resource import DeviceAttribute
from netdra.slices.allocator.pools import Candidate


class Selectors:
    """Expressions that must all hold. Made by `SelectorCache` only."""

    def __init__(self, compiled: tuple[Selector, ...], variables: dict[Candidate, DeviceVariables]) -> None:
        self._compiled = compiled
        self._variables = variables
        self._answers: dict[Candidate, int | CelEvaluationError] = {}

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
        self._known: dict[tuple[str, ...], Selectors] = {}
        self._variables: dict[Candidate, DeviceVariables] = {}

    def of(self, expressions: Iterable[str]) -> Selectors:
        """The selectors of these expressions.

        Raises:
            CelCompileError: one of them does not compile.
        """
        key = tuple(expressions)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Selectors(tuple(compile_selector(text) for text in key), self._variables)
        return known


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
        raise InvalidInputError(f'device "{"/".join(candidate.key)}": {problem.what}', hint=problem.hint) from None


def _value(attribute: DeviceAttribute) -> Any:
    if attribute.version is not None:
        return Version(attribute.version)
    if attribute.versions is not None:
        return tuple(Version(each) for each in attribute.versions)
    value = attribute.value
    return "" if value is None else value
