"""Finds those of many selectors that may be true for a device, without asking each: by values that they need.

A node may have hundreds of policies for thousands of interfaces, and nearly all selectors are false for nearly all of
them by one attribute, as `pfName == "ens1f0"`. Selectors that may be true without such an attribute are asked always.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from netdra.cel.engine import AttributeValue, CompiledSelector
from netdra.cel.tree import Condition, Needs, NeedsOne

_Attribute = tuple[str, type]
"""An attribute's qualified name, and the class of the values that it is compared with."""
_NONE: frozenset[CompiledSelector] = frozenset()


class SelectorIndex:
    """Selectors by the values that they need."""

    def __init__(self, selectors: Iterable[CompiledSelector]) -> None:
        """Put each selector below the attributes of which fewest others need the same value."""
        listed = [*selectors]
        often = Counter(
            (need.name, value) for each in listed for need in _needs(each.condition) for value in need.values
        )
        self._always: set[CompiledSelector] = set()
        self._below: dict[_Attribute, dict[object, set[CompiledSelector]]] = {}
        self._all_below: dict[_Attribute, set[CompiledSelector]] = {}
        for selector in listed:
            cover = _cover(selector.condition, often)
            if not cover:
                self._always.add(selector)
            for need in cover:
                (kind,) = need.kinds
                self._all_below.setdefault((need.name, kind), set()).add(selector)
                for value in need.values:
                    self._below.setdefault((need.name, kind), {}).setdefault(value, set()).add(selector)

    def candidates(self, attributes: Mapping[str, AttributeValue]) -> set[CompiledSelector]:
        """The selectors that may be true for a device, or have no answer; all others are false.

        Args:
            attributes: the device's, under qualified names, and none longer than every selector is bounded for.
        """
        found = set(self._always)
        for (name, kind), below in self._below.items():
            value = attributes.get(name)
            # The engine gets a text that is not ASCII in another form, and compares values of different kinds.
            if value.__class__ is kind and (kind is int or value.isascii()):  # type: ignore[union-attr]
                found |= below.get(value, _NONE)
            else:
                found |= self._all_below[name, kind]
        return found


def _needs(condition: Condition | None) -> Iterable[Needs]:
    if isinstance(condition, Needs):
        return (condition,)
    return [need for part in condition.parts for need in _needs(part)] if condition is not None else ()


def _cover(condition: Condition | None, often: Mapping[tuple[str, object], int]) -> tuple[Needs, ...]:
    """Needs of which one must be met; empty without such needs."""
    if condition is None:
        return ()
    if isinstance(condition, Needs):
        return (condition,) if len(condition.kinds) == 1 else ()
    covers = [_cover(part, often) for part in condition.parts]
    if isinstance(condition, NeedsOne):
        return tuple(need for cover in covers for need in cover) if all(covers) else ()

    def weight(cover: tuple[Needs, ...]) -> int:
        return sum(often[need.name, value] for need in cover for value in need.values)

    return min(filter(None, covers), key=weight, default=())
