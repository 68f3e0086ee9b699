"""The permissions of a plugin's own schema that the schema of netdra for that plugin would reject.

A vendor's or administrator's schema counts in place of netdra's (decision D35). The webhook,
`netdra validate` and the schema's status show its author the values that are no longer rejected when a topology is
written. netdra's schema checks the names of the node in a step in any case (decision D31). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from netdra.model.suggestions import listed
from netdra.rules import shipped
from netdra.rules.contract import Contract, Shape

_SHOWN = 8


def loosened(own: Contract) -> str:
    """The permissions of a schema beyond netdra's for the same plugin and execution, as a clause; "" without any."""
    of_netdra = shipped.contracts([own.plugin]).get(own.plugin)
    if of_netdra is None:
        return ""
    return "; ".join(clause for clause in _clauses(own, of_netdra) if clause)


def _clauses(own: Contract, of_netdra: Contract) -> Iterator[str]:
    if of_netdra.closed and not own.closed:
        yield "it accepts any parameter"
    elif of_netdra.closed:
        yield _about("it accepts", sorted(own.names.keys() - of_netdra.names.keys()))
    yield _about(
        "it does not require", [name for name in of_netdra.required if own.names.get(name) not in own.required]
    )
    yield _about("it accepts further values of", list(dict.fromkeys(_wider(own, of_netdra))))
    yield from _input(own, of_netdra)


def _wider(own: Contract, of_netdra: Contract) -> Iterator[str]:
    """The parameters of both that may hold more by the first contract, dotted."""
    for key, name in of_netdra.names.items():
        if key in own.names:
            yield from _wider_shape(own.parameters[own.names[key]], of_netdra.parameters[name], name)


def _wider_shape(own: Shape, of_netdra: Shape, where: str) -> Iterator[str]:
    if _is_wider_itself(own, of_netdra):
        yield where
        return
    if own.kind != of_netdra.kind:
        return
    if own.kind in ("list", "map"):
        yield from _wider_shape(own.parts[0], of_netdra.parts[0], where)
    elif own.kind == "object":
        for key in own.properties.keys() & of_netdra.properties.keys():
            yield from _wider_shape(own.properties[key], of_netdra.properties[key], f"{where}.{key}")


def _is_wider_itself(own: Shape, of_netdra: Shape) -> bool:
    if of_netdra.enum:
        # Values of an enumeration may be of any type: nothing else needs to be compared.
        return not own.enum or any(value not in of_netdra.enum for value in own.enum)
    if own.enum:
        return False
    if not _kinds(own) <= _kinds(of_netdra):
        return True
    if own.kind == "object" and of_netdra.closed:
        return not own.closed or not own.properties.keys() <= of_netdra.properties.keys()
    return any(
        limit is not None and (other is None or (other < limit if is_least else other > limit))
        for limit, other, is_least in (
            (of_netdra.minimum, own.minimum, True),
            (of_netdra.min_items, own.min_items, True),
            (of_netdra.maximum, own.maximum, False),
            (of_netdra.max_items, own.max_items, False),
        )
    )


def _kinds(shape: Shape) -> frozenset[str]:
    """The kinds of values that a shape accepts."""
    parts = shape.parts if shape.kind == "either" else (shape,)
    kinds = {part.kind for part in parts}
    if "any" in kinds:
        return frozenset({"any", "string", "integer", "number", "boolean", "object", "list", "map"})
    if "number" in kinds:
        kinds.add("integer")
    if "object" in kinds:
        kinds.add("map")
    return frozenset(kinds)


def _input(own: Contract, of_netdra: Contract) -> Iterator[str]:
    before, after = of_netdra.input.prev_result, own.input.prev_result
    if before.required and not after.required:
        yield "it does not have to follow another step"
    least, most = before.interfaces.min_items, before.interfaces.max_items
    if after.interfaces.min_items < least:
        yield f"it needs {after.interfaces.min_items} interfaces instead of {least}"
    if most is not None and (after.interfaces.max_items is None or after.interfaces.max_items > most):
        yield f"it takes {after.interfaces.max_items or 'any number of'} interfaces instead of {most}"
    for word, needed, needed_now in (
        ("addresses", before.ips.required, after.ips.required),
        ("routes", before.routes.required, after.routes.required),
    ):
        if needed and not needed_now:
            yield f"it needs no {word}"


def _about(verb: str, names: Iterable[str]) -> str:
    shown = listed(names, _SHOWN)
    return f"{verb} {shown}" if shown else ""
