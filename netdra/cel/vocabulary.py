"""What selectors may speak of: the names that devices have, each with the kinds of value that it can have.

Made from the table of an interface's attributes and from what policies and CustomDevices add; read by
`netdra.cel.analysis`. Pure.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

import msgspec

from netdra.model import names
from netdra.model.custom_device import CustomDevice
from netdra.model.inventory import ATTRIBUTES, AttributeValue
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.suggestions import closest

Kinds = tuple[str, ...]
"""The kinds of value that a name can have: `bool`, `int`, `string`, `version`, `list`; several if givers disagree."""

_LIST: Kinds = ("list", "string")
"""A list is published as a text with commas where the API server takes no lists (decision D6)."""
_NEAR, _LIKE, _NEAR_DOMAIN = 0.8, 0.6, 0.75
_GROUP = frozenset(names.DRIVER.split("."))


class Added(msgspec.Struct, frozen=True):
    """What administrators and providers add to devices, by qualified name; a capacity is always a quantity."""

    attributes: Mapping[str, Kinds] = {}
    capacity: tuple[str, ...] = ()


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """The names that a selector can ask for.

    Attributes:
        facts: what netdra knows of every interface, or publishes of every device, by qualified name.
        added: what stands beside it on devices.
        of_devices: whether devices are asked, as by a topology, or interfaces before any policy has chosen them.
        withheld: facts of interfaces that devices do not carry (decision D25).
    """

    facts: Mapping[str, Kinds]
    added: Added
    of_devices: bool
    withheld: frozenset[str] = frozenset()

    def kinds(self, name: str) -> Kinds | None:
        """The kinds of an attribute by its qualified name; None if nothing gives devices this attribute."""
        return self.facts.get(name) or self.added.attributes.get(name)

    @property
    def domains(self) -> frozenset[str]:
        """All domains of the attributes that devices have."""
        return frozenset(name.partition("/")[0] for name in (*self.facts, *self.added.attributes))

    def is_own(self, domain: str) -> bool:
        """Whether netdra itself publishes in a domain, so that it knows what is there."""
        return any(name.startswith(f"{domain}/") for name in self.facts)

    def nearest(self, domain: str, name: str) -> str:
        """The fact whose name is almost the given name; "" if there is none."""
        return closest(name, self._named(self.facts, domain), _NEAR)

    def likely(self, domain: str, name: str) -> str:
        """A name of the domain that may be meant, for a hint; "" if none is like it."""
        present = self._named(self.facts, domain) + self._named(self.added.attributes, domain)
        return closest(name, present, _LIKE) or next((entry for entry in present if _ends_alike(entry, name)), "")

    def nearest_domain(self, domain: str) -> str:
        """The domain of netdra's own that is almost the given domain; "" if there is none."""
        own = sorted({name.partition("/")[0] for name in self.facts})
        if frozenset(domain.split(".")) >= _GROUP or domain == "netdra":
            return names.DRIVER
        close = difflib.get_close_matches(domain, own, n=1, cutoff=_NEAR_DOMAIN)
        parts = (entry for entry in own if entry.startswith(f"{domain}.") or entry.endswith(f".{domain}"))
        abridged = (entry for entry in own if len(domain) >= len("dra.net") and entry.startswith(domain))
        return next((candidate for group in (close, abridged, parts) for candidate in group), "")

    def domain_of(self, name: str) -> str:
        """The domain of netdra's own that has an attribute of that name, "" if none has."""
        qualified = (f"{domain}/{name}" for domain in (names.DRIVER, *sorted(self.domains)))
        return next((entry.partition("/")[0] for entry in qualified if entry in self.facts), "")

    def _named(self, table: Iterable[str], domain: str) -> list[str]:
        return [name.partition("/")[2] for name in table if name.startswith(f"{domain}/")]


def of_interfaces(added: Added | None = None) -> Vocabulary:
    """What a policy's selector may ask for: the facts alone, since what policies add comes after they have chosen."""
    given = added or Added()
    after = msgspec.structs.replace(given, attributes={**_PLUGINS, **given.attributes})
    return Vocabulary(facts=_FACTS, added=after, of_devices=False)


def of_devices(added: Added | None = None) -> Vocabulary:
    """What a topology's selector may ask for."""
    return Vocabulary(
        facts=_PUBLISHED, added=added or Added(), of_devices=True, withheld=frozenset(_FACTS) - frozenset(_PUBLISHED)
    )


def added(policies: Iterable[DeviceExposurePolicy], custom_devices: Iterable[CustomDevice] = ()) -> Added:
    """What policies and CustomDevices add to devices."""
    kinds_of: dict[str, set[str]] = {}
    capacity: set[str] = set()
    for policy in policies:
        if policy.spec.exposure is None:
            continue
        for name, value in policy.spec.exposure.additional_attributes.items():
            kinds_of.setdefault(names.qualified(name), set()).update(_kinds(value))
        capacity.update(map(names.qualified, policy.spec.exposure.capacity))
    for custom in custom_devices:
        for name, attribute in custom.spec.attributes.items():
            kinds = {_FIELDS[field] for field in _FIELDS if getattr(attribute, field) is not None}
            kinds_of.setdefault(f"{custom.spec.provider}/{name}", set()).update(kinds)
        capacity.update(f"{custom.spec.provider}/{name}" for name in custom.spec.capacity)
    return Added({name: tuple(sorted(kinds)) for name, kinds in sorted(kinds_of.items())}, tuple(sorted(capacity)))


def _kinds(value: AttributeValue) -> Kinds:
    if isinstance(value, bool):
        return ("bool",)
    if isinstance(value, int):
        return ("int",)
    return ("string",) if isinstance(value, str) else _LIST


def _ends_alike(name: str, other: str) -> bool:
    """Whether one name is the other's last word: `speed` and `linkSpeed`."""
    short, long = sorted((name.lower(), other.lower()), key=len)
    return len(short) > 2 and (long.endswith(short) or long.startswith(short))


_FIELDS = {
    "bool_": "bool",
    "int_": "int",
    "string": "string",
    "version": "version",
    "bools": "list",
    "ints": "list",
    "strings": "list",
    "versions": "list",
}
_TYPES: Mapping[type, Kinds] = {bool: ("bool",), int: ("int",), str: ("string",)}
_FACTS: Mapping[str, Kinds] = {field.name: _TYPES[field.type] for field in ATTRIBUTES}
_PLUGINS: Mapping[str, Kinds] = {names.qualified(names.SUPPORTED_CNIS): _LIST}
_PUBLISHED: Mapping[str, Kinds] = {
    **{field.name: _FACTS[field.name] for field in ATTRIBUTES if field.reach != "policies"},
    **_PLUGINS,
}
