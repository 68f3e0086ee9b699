"""The names for selectors on netdra's devices: the table of an interface's attributes, and the additions of others.

Policies and CustomDevices add names. Made at admission, by `netdra validate` and for topologies; `netdra.cel.analysis`
holds selectors against it. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from netdra.cel.vocabulary import Added, Kinds, KnownValues, Vocabulary
from netdra.model import names
from netdra.model.custom_device import CustomDevice
from netdra.model.inventory import ATTRIBUTES, TYPES, AttributeValue
from netdra.model.policy import DeviceExposurePolicy

_LIST: Kinds = ("list", "string")
"""A list is published as a text with commas where the API server takes no lists (decision D6)."""
_OF_NETWORKS: Mapping[str, Kinds] = {names.qualified(names.POD_NETWORK): ("string",)}
"""What the devices of a PodNetwork have, which stand for its addresses on a node."""
_ALIASES = frozenset({"netdra"})


def of_interfaces(added: Added | None = None) -> Vocabulary:
    """The names for a policy's selector: the facts alone, since additions of policies come after their selection."""
    given = added or Added()
    after = msgspec.structs.replace(given, attributes={**_PLUGINS, **given.attributes})
    return Vocabulary(
        driver=names.DRIVER, facts=_FACTS, values=_VALUES, added=after, of_devices=False, aliases=_ALIASES
    )


def of_devices(added: Added | None = None) -> Vocabulary:
    """The names for a topology's selector."""
    return Vocabulary(
        driver=names.DRIVER,
        facts={**_PUBLISHED, **_OF_NETWORKS},
        values=_VALUES,
        capacity=frozenset(map(names.qualified, (names.BANDWIDTH, names.GIDS, names.ADDRESSES))),
        added=added or Added(),
        of_devices=True,
        withheld=frozenset(_FACTS) - frozenset(_PUBLISHED),
        aliases=_ALIASES,
    )


def added(policies: Iterable[DeviceExposurePolicy], custom_devices: Iterable[CustomDevice] = ()) -> Added:
    """The additions of policies and CustomDevices to devices."""
    names_of_all = AddedNames()
    for policy in policies:
        names_of_all.update(None, policy)
    for device in custom_devices:
        names_of_all.update(None, device)
    return names_of_all.value


class AddedNames:
    """The additions of policies and CustomDevices to devices, kept current at the cost of the changes."""

    def __init__(self) -> None:
        self._attributes: dict[str, Counter[str]] = {}
        self._capacity: Counter[str] = Counter()
        self._value: Added | None = None

    def update(
        self, old: DeviceExposurePolicy | CustomDevice | None, new: DeviceExposurePolicy | CustomDevice | None
    ) -> bool:
        """Take the change of an object; returns whether a name came, went, or got another kind."""
        if old is not None and new is not None and old.spec == new.spec:
            return False
        is_changed = False
        for item, sign in ((old, -1), (new, 1)):
            for name, kind in _added_by(item) if item is not None else ():
                counts = self._capacity if kind is None else self._attributes.setdefault(name, Counter())
                key = name if kind is None else kind
                counts[key] += sign
                is_changed |= counts[key] == (sign > 0)
                if not counts[key]:
                    del counts[key]
                if not counts and kind is not None:
                    del self._attributes[name]
        self._value = None if is_changed else self._value
        return is_changed

    @property
    def value(self) -> Added:
        """All names, with the kinds of the attributes."""
        if self._value is None:
            kinds_of = {name: tuple(sorted(filter(None, kinds))) for name, kinds in sorted(self._attributes.items())}
            self._value = Added(kinds_of, tuple(sorted(self._capacity)))
        return self._value


def _added_by(item: DeviceExposurePolicy | CustomDevice) -> Iterator[tuple[str, str | None]]:
    """An object's additions: each attribute with "" and with its kinds, each capacity with None."""
    if isinstance(item, CustomDevice):
        for name, attribute in item.spec.attributes.items():
            kinds = (kind for field, kind in _FIELDS.items() if getattr(attribute, field) is not None)
            yield from ((f"{item.spec.provider}/{name}", kind) for kind in ("", *kinds))
        yield from ((f"{item.spec.provider}/{name}", None) for name in item.spec.capacity)
        return
    exposure = item.spec.exposure
    if exposure is None:
        return
    for name, value in exposure.additional_attributes.items():
        yield from ((names.qualified(name), kind) for kind in ("", *_kinds(value)))
    yield from ((names.qualified(name), None) for name in exposure.capacity)
    if exposure.pooled_vfs is not None:
        yield from ((names.qualified(name), None) for name in (names.VFS, names.BANDWIDTH))


def _kinds(value: AttributeValue) -> Kinds:
    if isinstance(value, bool):
        return ("bool",)
    if isinstance(value, int):
        return ("int",)
    return ("string",) if isinstance(value, str) else _LIST


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
# The kernel's words, as `netdra.kernel` has them: IF_OPER_* of RFC 2863, and DEVLINK_ESWITCH_MODE_*.
_OPER_STATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")
_ESWITCH_MODES = ("legacy", "switchdev", "switchdev_inactive")
_PCI = KnownValues(form=r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", described="a PCI address, as 0000:3b:00.1")
_ID = KnownValues(form=r"[0-9a-f]{4}", described="four hexadecimal digits, as 15b3")
_VALUES: Mapping[str, KnownValues] = {
    names.qualified(name): values
    for name, values in {
        "type": KnownValues(form=r"[a-z0-9][a-z0-9_.-]*", known=TYPES),
        "operState": KnownValues(known=_OPER_STATES, others=False),
        "bridgeType": KnownValues(known=("linux", "ovs"), others=False),
        "eswitchMode": KnownValues(known=_ESWITCH_MODES, others=False),
        "mac": KnownValues(form=r"[0-9a-f]{2}(:[0-9a-f]{2})*", described="a MAC address, as 02:00:00:00:00:01"),
        "pciAddress": _PCI,
        names.STANDARD_PCI_BUS_ID: _PCI,
        "vendor": _ID,
        "product": _ID,
    }.items()
}
_PLUGINS: Mapping[str, Kinds] = {names.qualified(name): _LIST for name in (names.SUPPORTED_CNIS, names.LACKED_CNIS)}
_PUBLISHED: Mapping[str, Kinds] = {
    **{field.name: _FACTS[field.name] for field in ATTRIBUTES if field.reach != "policies"},
    **_PLUGINS,
}
