"""What selectors may speak of on netdra's devices: the table of an interface's attributes, and what others add.

Policies and CustomDevices add names. Made at admission, by `netdra validate` and for topologies; `netdra.cel.analysis`
holds selectors against it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from netdra.cel.vocabulary import Added, Kinds, KnownValues, Vocabulary
from netdra.model import names
from netdra.model.custom_device import CustomDevice
from netdra.model.inventory import ATTRIBUTES, TYPES, AttributeValue
from netdra.model.policy import DeviceExposurePolicy

_LIST: Kinds = ("list", "string")
"""A list is published as a text with commas where the API server takes no lists (decision D6)."""
_ALIASES = frozenset({"netdra"})


def of_interfaces(added: Added | None = None) -> Vocabulary:
    """What a policy's selector may ask for: the facts alone, since what policies add comes after they have chosen."""
    given = added or Added()
    after = msgspec.structs.replace(given, attributes={**_PLUGINS, **given.attributes})
    return Vocabulary(
        driver=names.DRIVER, facts=_FACTS, values=_VALUES, added=after, of_devices=False, aliases=_ALIASES
    )


def of_devices(added: Added | None = None) -> Vocabulary:
    """What a topology's selector may ask for."""
    return Vocabulary(
        driver=names.DRIVER,
        facts=_PUBLISHED,
        values=_VALUES,
        capacity=frozenset({names.qualified(names.BANDWIDTH)}),
        added=added or Added(),
        of_devices=True,
        withheld=frozenset(_FACTS) - frozenset(_PUBLISHED),
        aliases=_ALIASES,
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
        if policy.spec.exposure.pooled_vfs is not None:
            capacity.update((names.qualified(names.VFS), names.qualified(names.BANDWIDTH)))
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
_PLUGINS: Mapping[str, Kinds] = {names.qualified(names.SUPPORTED_CNIS): _LIST}
_PUBLISHED: Mapping[str, Kinds] = {
    **{field.name: _FACTS[field.name] for field in ATTRIBUTES if field.reach != "policies"},
    **_PLUGINS,
}
