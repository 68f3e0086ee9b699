"""Compile CEL selectors and evaluate them on devices, with the meaning that Kubernetes gives them.

`compile_selector` once per expression, `device_variables` once per device, then `matches` for each pair. A compiled
selector is bounded in time and memory on any device (`netdra.cel.bounds`, decision D30). The engine's own
extensions to CEL are loaded when an expression needs them for the first time: each is a library with half an engine in
it, together 8 MiB of a daemon's memory, and most selectors only compare attributes. Follows
k8s.io/dynamic-resource-allocation/cel/compile.go; docs/cel.md lists the differences.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, Final

from cel_expr_python import cel

from netdra.cel import bounds, functions, source, tree, values
from netdra.cel.errors import CelCompileError, CelEvaluationError

MAX_EXPRESSION = 10 * 1024
"""Bytes (CELSelectorExpressionMaxLength in k8s.io/api/resource/v1)."""
MAX_BINDS = 8
MAX_MAPPED = 3
AttributeValue = bool | int | str | tuple[str, ...]
_BOOL = cel.Type.BOOL
_AS_IT_IS = frozenset({bool, int})
_PLACE = re.compile(r"ERROR: <input>:(\d+):(\d+): ([^\n]*)")
_TOO_DEEP = re.compile(r"recursion limit|nest|too deep", re.IGNORECASE)

# CEL's own functions (language definition, "Standard Definitions"); selectors do not use the rest of them.
_MACROS = frozenset({"all", "exists", "exists_one", "filter", "has", "map"})
_FUNCTIONS = frozenset({"contains", "endsWith", "in", "matches", "size", "startsWith"})
_CONVERSIONS = frozenset({"bool", "bytes", "double", "dyn", "int", "string", "type", "uint"})
_SHARED = frozenset({"indexOf", "lastIndexOf"})
"""Ours for lists, an extension's for strings."""


class DeviceVariables:
    """One device as CEL sees it, prepared to be asked many expressions. Made by `device_variables` only.

    Attributes:
        activation: what the engine evaluates on.
        longer: how long its attributes are, where they are longer than every selector is bounded for.
        attributes: the domains that the device has attributes in; `capacity` those of its capacities.
    """

    __slots__ = ("_completed", "_device", "activation", "attributes", "capacity", "longer")

    def __init__(self, device: dict[str, Any], longer: bounds.Longest | None) -> None:
        self._device = device
        self.longer = longer
        self._completed: dict[tuple[frozenset[str], frozenset[str]], cel.Activation] = {}
        self.activation = _environment().Activation({"device": device})
        self.attributes = frozenset(device["attributes"])
        self.capacity = frozenset(device["capacity"])

    def completed(self, attributes: frozenset[str], capacity: frozenset[str]) -> cel.Activation:
        """The engine's input, with empty maps for domains in which the device has no values."""
        key = (attributes, capacity)
        activation = self._completed.get(key)
        if activation is None:
            device = {
                **self._device,
                "attributes": {domain: {} for domain in attributes} | self._device["attributes"],
                "capacity": {domain: {} for domain in capacity} | self._device["capacity"],
            }
            activation = self._completed[key] = _environment().Activation({"device": device})
        return activation


class CompiledSelector:
    """A compiled expression. Made by `compile_selector` only.

    Attributes:
        attributes: those that its answer depends on, each as its domain and name; None if it may be all.
        condition: what must hold of attributes, or it is false; None if nothing is known; see `netdra.cel.index`.
    """

    __slots__ = ("_attributes", "_capacity", "_is_bool", "_program", "attributes", "condition", "expression")

    expression: Final[str]

    def __init__(self, expression: str, program: cel.Expression, read: tree.Node) -> None:
        self.expression = expression
        self._program = program
        self._is_bool = program.return_type() == _BOOL
        # The engine knows `device` as a plain map, but Kubernetes takes a domain that a device has nothing in for an
        # empty map, not for a missing key (k8s.io/dynamic-resource-allocation/cel/compile.go).
        self._attributes = tree.domains(read, "attributes")
        self._capacity = tree.domains(read, "capacity")
        self.attributes = tree.attributes(read)
        self.condition = tree.condition(read)

    @property
    def domains(self) -> frozenset[str]:
        """The domains that it names attributes of."""
        return self._attributes

    def matches(self, device: DeviceVariables) -> bool:
        """Whether the expression is true for the device.

        Raises:
            CelEvaluationError: it has no answer: a missing key, a value of another type, too much work.
        """
        if device.longer is not None and (excess := _excess(self.expression, device.longer)):
            raise CelEvaluationError(self.expression, excess)
        activation = device.activation
        if not (self._attributes <= device.attributes and self._capacity <= device.capacity):
            activation = device.completed(self._attributes, self._capacity)
        try:
            result = self._program.eval(activation)
            # Of another type than bool or error the value must not be taken: the engine frees None on CPython 3.11.
            if self._is_bool or result.type() == _BOOL:
                answer = result.value()
                if answer is True or answer is False:
                    return answer
        except RuntimeError as problem:
            _give_up_without_memory(problem)
            raise CelEvaluationError(self.expression, _plain(str(problem))) from None
        raise CelEvaluationError(self.expression, _failure(result))

    def serialized(self) -> bytes:
        """The checked syntax tree as `netdra.cel.tree` reads it."""
        return bytes(self._program.serialize())


def compile_selector(expression: str) -> CompiledSelector:
    """A selector, compiled once per text.

    Args:
        expression: CEL over `device`, true or false; up to 10 KiB, as in Kubernetes.

    Raises:
        CelCompileError: it is too long, breaks the grammar or the types, is nested deeper than the engine goes, or may
            take more time or memory than one is given.
    """
    return _compiled(expression)


def device_variables(
    driver: str,
    attributes: Mapping[str, AttributeValue],
    capacity: Mapping[str, str | int] = {},
    shared: bool = False,
) -> DeviceVariables:
    """A device as `device.driver`, `device.attributes[domain][id]`, `device.capacity[domain][id]` and so on.

    Args:
        driver: the driver's name, which is also the domain of names without one.
        attributes: values by name, with or without a domain; a `Version` is a semantic version.
        capacity: quantities by name, with or without a domain.
        shared: whether the device allows several allocations.

    Raises:
        InvalidInputError: a capacity is not a quantity, or a version is not valid.
    """
    taken = _values(attributes.values())
    return DeviceVariables(
        {
            "driver": driver,
            "attributes": _by_domain(driver, tuple(attributes), taken),
            "capacity": _by_domain(driver, tuple(capacity), [values.of_quantity(text) for text in capacity.values()]),
            "allowMultipleAllocations": shared,
        },
        _longer(taken),
    )


def load_all() -> None:
    """Load all modules that are otherwise loaded on demand, for a process that can open no files later."""
    device = device_variables("", {})
    for expression in ('"a".lowerAscii().find("a") == "a"', "1 / 0 == 1"):
        with suppress(CelEvaluationError):
            compile_selector(expression).matches(device)


def needs_extensions(calls: Iterable[str]) -> bool:
    """Whether an expression that calls these functions may need an extension; an unknown function may."""
    return not _without_extensions().issuperset(calls)


@cache
def _without_extensions() -> frozenset[str]:
    """The functions that need no extension."""
    ours = frozenset(name.rpartition(".")[2] for name in functions.names())
    return (_MACROS | _FUNCTIONS | _CONVERSIONS | ours) - _SHARED


def _extensions() -> list[cel.CelExtension]:
    from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

    return [ext_strings.ExtStrings(2), ext_optional.ExtOptional(), ext_bindings.ExtBindings()]


@cache
def _environment(*, extended: bool = False) -> cel.Env:
    """The engine; what one has compiled can be asked of the other's activations."""
    kubernetes = cel.CelExtension("kubernetes", functions.declarations())
    # Ours comes last: it adds overloads to `indexOf`, and the engine's own strings refuse a name that is there already.
    added = [*_extensions(), kubernetes] if extended else [kubernetes]
    return cel.NewEnv(variables={"device": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)}, extensions=added)


@lru_cache(maxsize=4096)
def _compiled(expression: str) -> CompiledSelector:
    encoded = expression.encode(errors="replace")
    if len(encoded) > MAX_EXPRESSION:
        raise CelCompileError(expression, 0, 0, f"longer than {MAX_EXPRESSION} bytes")
    if encoded.decode() != expression:
        raise CelCompileError(expression, 0, 0, "not valid Unicode text")
    usage = source.usage(expression)
    if usage.unknown is not None:
        line, column = source.position(expression, usage.unknown.start)
        message = f"undefined field '{usage.unknown.text}'; a device has {', '.join(source.FIELDS)}"
        raise CelCompileError(expression, line, column, message)
    if usage.binds > MAX_BINDS:
        raise CelCompileError(expression, 0, 0, f"binds {usage.binds} variables, more than {MAX_BINDS}")
    if usage.mapped > MAX_MAPPED:
        raise CelCompileError(expression, 0, 0, f"maps {usage.mapped} optional values, more than {MAX_MAPPED}")
    try:
        program = _environment(extended=needs_extensions(usage.calls)).compile(expression)
    except RuntimeError as problem:
        _give_up_without_memory(problem)
        raise _compile_error(expression, str(problem)) from None
    read = tree.read(bytes(program.serialize()))
    if tree.binds_after_a_loop(read):
        message = (
            "binds a variable (cel.bind, optMap, optFlatMap) after all() or exists(); move the binding before them"
        )
        raise CelCompileError(expression, 0, 0, message)
    try:
        bounds.check(read)
    except bounds.UnboundedError as problem:
        raise CelCompileError(expression, 0, 0, f"{problem} (docs/cel.md, Bounds)") from None
    if program.return_type() not in (_BOOL, cel.Type.DYN):
        raise CelCompileError(expression, 0, 0, f"must be a bool, but its type is {program.return_type().name()}")
    return CompiledSelector(expression, program, read)


@lru_cache(maxsize=1024)
def _excess(expression: str, longest: bounds.Longest) -> str:
    """Why an expression is not evaluated on a device with such long attributes, or ""."""
    program = _environment(extended=needs_extensions(source.usage(expression).calls)).compile(expression)
    try:
        bounds.check(tree.read(bytes(program.serialize())), longest)
    except bounds.UnboundedError as problem:
        return f"with attributes of up to {longest.text} characters and {longest.values} values it {problem}"
    return ""


def _give_up_without_memory(problem: RuntimeError) -> None:
    """An allocation that failed reports nothing about the expression, and nothing good about this process.

    Raises:
        MemoryError: that is what happened.
    """
    if str(problem) == "std::bad_alloc":
        raise MemoryError("the CEL engine is out of memory") from None


def _compile_error(expression: str, text: str) -> CelCompileError:
    match = _PLACE.search(text)
    if match is not None:
        return CelCompileError(expression, int(match.group(1)), int(match.group(2)), match.group(3))
    if _TOO_DEEP.search(text):
        message = "nested too deeply; the engine supports 32 levels of parentheses, operators and calls"
        return CelCompileError(expression, 0, 0, message)
    return CelCompileError(expression, 0, 0, _plain(text))


def _failure(result: cel.Value) -> str:
    if result.type() == cel.Type.ERROR:
        return _plain(str(result.value()))
    return f"must be a bool, but its type is {result.type().name()}"


def _plain(text: str) -> str:
    """The engine's message without its status code: `NOT_FOUND: Key not found` states it twice."""
    return re.sub(r"^[A-Z_]+: | \[[A-Z_]+\]$", "", text.strip())


def _by_domain(driver: str, entries: tuple[str, ...], attributes: list[Any]) -> dict[str, dict[str, Any]]:
    """Values by domain and name. Devices of one kind have the same names, so these are taken apart once."""
    return {
        domain: {identifier: attributes[position] for identifier, position in places}
        for domain, places in _layout(driver, entries)
    }


@lru_cache(maxsize=256)
def _layout(driver: str, entries: tuple[str, ...]) -> tuple[tuple[str, tuple[tuple[str, int], ...]], ...]:
    """Names by domain: the domain, and of each name in it where it stands among all."""
    positions: dict[str, dict[str, int]] = {}
    for position, name in enumerate(entries):
        domain, _, identifier = name.rpartition("/")
        positions.setdefault(domain or driver, {})[identifier] = position
    return tuple((domain, tuple(group.items())) for domain, group in positions.items())


def _values(listed: Iterable[AttributeValue]) -> list[Any]:
    """Values as the engine takes them; most are already, and a device has three dozen."""
    return [
        value if value.__class__ in _AS_IT_IS or (value.__class__ is str and value.isascii()) else _value(value)
        for value in listed
    ]


def _longer(listed: list[Any]) -> bounds.Longest | None:
    """How long the attributes are, in powers of two; None where every selector is bounded for them."""
    plain = bounds.PLAIN
    long = [
        entry for entry in listed if entry.__class__ is list or (entry.__class__ is str and len(entry) > plain.text)
    ]
    if not long and len(listed) <= plain.names:
        return None
    lists = [value for value in long if value.__class__ is list]
    longest = bounds.Longest(
        max([plain.text, *(len(value) for value in long if value.__class__ is str)]),
        max([plain.values, *map(len, lists)]),
        max([plain.value, *(len(value) for one in lists for value in one if value.__class__ is str)]),
        max(plain.names, len(listed)),
    )
    return None if longest == plain else bounds.Longest(*(1 << (length - 1).bit_length() for length in longest))


def _value(value: AttributeValue) -> Any:
    """The value as one of the exact types that the engine takes, without lone surrogates, which it does not."""
    if value.__class__ is str:
        return value if value.isascii() else value.encode(errors="replace").decode()
    if isinstance(value, values.Version):
        return values.of_version(value)
    return [_value(one) for one in value] if isinstance(value, tuple | list) else value
