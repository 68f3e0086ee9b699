"""What the devices of a claim must have in common, or must not: matchAttribute and distinctAttribute.

Called by `search` and `explain`. Follows k8s.io/dynamic-resource-allocation v0.37, structured/internal/experimental:
values are sets (a scalar is a set of one), matching sets must keep a common element, distinct ones are disjoint in
pairs. For scalars this is what the scheduler's default allocator does; lists exist only where their gate is on.
"""

from __future__ import annotations

from collections.abc import Collection

from netdra.model.claim import DeviceConstraint
from netdra.model.resource import DeviceAttribute
from netdra.slices.allocator.pools import Candidate

# Type name and value, so that the integer 1, the version "1" and true stay apart.
Values = frozenset[tuple[str, bool | int | str]]


class Constraint:
    """One constraint of a claim and the devices that have been put under it, last in first out."""

    def __init__(self, constraint: DeviceConstraint) -> None:
        self._requests = frozenset(constraint.requests)
        self._match = constraint.match_attribute is not None
        self.attribute = constraint.match_attribute or constraint.distinct_attribute or ""
        self._chosen: list[Values] = []

    def applies(self, names: Collection[str]) -> bool:
        """Whether the request of these names (its own, and with its alternative) is under it."""
        return not self._requests or not self._requests.isdisjoint(names)

    def allows(self, candidate: Candidate) -> bool:
        """Whether a device can be added without breaking the constraint."""
        values = attribute_values(candidate, self.attribute)
        if self._match:
            return bool(values & self._chosen[-1] if self._chosen else values)
        return bool(values) and not any(values & other for other in self._chosen)

    def add(self, candidate: Candidate) -> None:
        """Put a device that it allows under the constraint."""
        values = attribute_values(candidate, self.attribute)
        self._chosen.append(values & self._chosen[-1] if self._match and self._chosen else values)

    def remove(self) -> None:
        """Take away the device that was added last."""
        self._chosen.pop()

    def describe(self, candidate: Candidate) -> str:
        """Why a device cannot be added now, in words."""
        values = attribute_values(candidate, self.attribute)
        if not values:
            return f"has no attribute {self.attribute}, which a constraint compares"
        shown = _show(values)
        if self._match:
            return f"{self.attribute} is {shown}, must be {_show(self._chosen[-1])} as on the claim's other devices"
        return f"{self.attribute} is {shown}, which a device of the claim has already"


def attribute_values(candidate: Candidate, name: str) -> Values:
    """A device's values of an attribute given by its full name; the driver's own may be published without domain."""
    attributes = candidate.device.attributes
    found = attributes.get(name)
    if found is None:
        domain, slash, short = name.partition("/")
        if slash and domain == candidate.key[0]:
            found = attributes.get(short)
    return frozenset() if found is None else _values(found)


def _values(attribute: DeviceAttribute) -> Values:
    value = attribute.value
    version = attribute.version is not None or attribute.versions is not None
    values = value if isinstance(value, tuple) else () if value is None else (value,)
    return frozenset(("version" if version else type(each).__name__, each) for each in values)


def _show(values: Values) -> str:
    return ", ".join(sorted(str(value) if value != "" else '""' for _, value in values))
