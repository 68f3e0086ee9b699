"""Why a selector is false for a device: the part of it that is false, and the device's values in that part. Pure.

Called for people who ask why nothing matches. Nodes never call it: it compiles each part by itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from netdra.cel.engine import AttributeValue, CompiledSelector, DeviceVariables, compile_selector, device_variables
from netdra.cel.errors import CelCompileError, CelEvaluationError
from netdra.cel.syntax import Chain, Node, Parenthesized, parse
from netdra.cel.values import Version
from netdra.model.errors import InvalidInputError

MAX_SHOWN = 200
"""Characters of an expression, or of a value, that are printed."""


def why_false(expression: str, driver: str, attributes: Mapping[str, AttributeValue]) -> str:
    """The first operand of `&&` that is false, with the values that it depends on, e.g. `type == "VF"; type is "vf"`.

    Args:
        expression: a selector that compiles.
        driver: the driver's name, which is also the domain of names without one.
        attributes: the device's, by name.

    Returns:
        "" if the expression is true, cannot be evaluated, or does not compile.
    """
    device = device_variables(driver, attributes)
    whole = _selector(expression)
    if whole is None or not _is_false(whole, device):
        return ""
    try:
        part = _false_part(expression, parse(expression), device)
    except InvalidInputError:
        part = whole
    return "; ".join((_shown(" ".join(part.expression.split())), *_values(part, driver, attributes)))


def _false_part(expression: str, node: Node, device: DeviceVariables) -> CompiledSelector:
    """The smallest part that makes the expression false. An operand of `&&` has no variables of its own."""
    while isinstance(node, Parenthesized):
        node = node.part
    for part in node.parts if isinstance(node, Chain) and node.operator == "&&" else ():
        selector = _selector(expression[part.start : part.end])
        if selector is not None and _is_false(selector, device):
            return _false_part(expression, part, device)
    return compile_selector(expression[node.start : node.end])


def _selector(expression: str) -> CompiledSelector | None:
    try:
        return compile_selector(expression)
    except CelCompileError:
        return None


def _is_false(selector: CompiledSelector, device: DeviceVariables) -> bool:
    try:
        return not selector.matches(device)
    except CelEvaluationError:
        return False


def _values(part: CompiledSelector, driver: str, attributes: Mapping[str, AttributeValue]) -> list[str]:
    """The device's values of the attributes in a part, in the order of their names."""
    by_name = {name if "/" in name else f"{driver}/{name}": value for name, value in attributes.items()}
    texts = []
    for domain, name in sorted(part.attributes or ()):
        value = by_name.get(f"{domain}/{name}")
        texts.append(f"{name} is not set" if value is None else f"{name} is {_shown(_written(value))}")
    return texts


def _written(value: AttributeValue) -> str:
    """A value as CEL writes it."""
    if isinstance(value, Version):
        return f'semver("{value}")'
    return json.dumps(value, ensure_ascii=False)


def _shown(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"
