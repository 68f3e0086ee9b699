"""An interface's attributes as they are published: those that every device has, cut to the API's limits.

Called by `netdra.exposure.assemble` once per interface and once per device. Limits: k8s.io/api/resource/v1/types.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from netdra.exposure.templates import Template
from netdra.model import names
from netdra.model.inventory import (
    ALWAYS_KNOWN,
    DEVICE_FILE,
    IDENTIFYING,
    LISTED_ATTRIBUTES,
    PUBLISHED_ATTRIBUTES,
    PUBLISHED_IF_ANY,
    AttributeValue,
    Interface,
    attributes,
)
from netdra.model.resource import MAX_STRING
from netdra.model.topology import BUILTIN_TYPES

SUPPORTED_CNIS = names.qualified(names.SUPPORTED_CNIS)
LACKED_CNIS = names.qualified(names.LACKED_CNIS)
_MOST_LACKED = 16
PHYSNET = names.qualified(names.PHYSNET)
_EMPTY = {name: value for name, value in attributes(Interface(type="")).items() if name not in ALWAYS_KNOWN}
"""By fact that not every device has, its value where it does not apply."""


def publishable(facts: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
    """The facts that devices carry, with every string short enough, always cut in the same way.

    A fact that could not be read is absent, and so is an empty one that carries no information (decision D25).
    """
    silent = [name for name in PUBLISHED_IF_ANY if facts.get(name) == ""]
    facts = {name: facts[name] for name in PUBLISHED_ATTRIBUTES if name in facts and name not in silent}
    long = [
        (name, value)
        for name, value in facts.items()
        if value.__class__ is str and (len(value) > MAX_STRING or not value.isascii())
    ]
    cut = {name: _cut(value, listed=name in LISTED_ATTRIBUTES) for name, value in long}
    return {**facts, **cut} if cut else facts


def of_device(
    facts: Mapping[str, AttributeValue],
    interface: Interface,
    template: Template,
    *,
    lists: bool,
    programs: Collection[str] | None = None,
) -> tuple[dict[str, AttributeValue], tuple[str, ...]]:
    """The attributes of one device of an interface, and the values that its lists have no room for.

    The interface's own facts come first, so that every device has the same keys; the policy's attributes follow. Of the
    policy's plugins, only those are listed that the node has (decision D45).

    Args:
        facts: what `publishable` made of the interface's attributes.
        interface: the interface, which also has the template's further facts and the physical network.
        lists: whether the API server takes lists; if not, a list must fit into one string.
        programs: the CNI plugins of the node's CNI path; None if it was not read, and all count as there.
    """
    fitting_facts = {name: value for name, value in facts.items() if _is_chosen(name, template)}
    left_out = []
    plugins = tuple(name for name in plugins_of(interface, template) if is_there(name, programs))
    for name, value in ((SUPPORTED_CNIS, plugins), *template.additional.items()):
        fitting = value if lists or not isinstance(value, tuple) else _fitting(value)
        if fitting != value:
            left_out.append(
                f"{name} is truncated to {fitting}: the API server does not support lists, and a string "
                f"has at most {MAX_STRING} characters"
            )
        fitting_facts[name] = fitting
    if template.additional.get(PHYSNET) == "":
        fitting_facts[PHYSNET] = interface.physnet
    if template.facts:
        fitting_facts |= _own_facts(interface, template)
    if lists and len(interface.pcie_roots) > 1:
        for name in _chosen_roots(template):
            fitting_facts.setdefault(name, interface.pcie_roots)
    if interface.device_file and fitting_facts.get(names.STANDARD_PCIE_ROOT):
        # A PCIe root that a policy gives is a key more than other devices have: there is room for one of its two names.
        fitting_facts.pop(names.SEED_PCIE_ROOT, None)
    if not template.empty_facts:
        fitting_facts = {name: value for name, value in fitting_facts.items() if _EMPTY.get(name) != value}
    return fitting_facts, tuple(left_out)


def _chosen_roots(template: Template) -> Iterator[str]:
    """The names by which a template publishes PCIe roots."""
    return (name for name in (names.SEED_PCIE_ROOT, names.STANDARD_PCIE_ROOT) if _is_chosen(name, template))


def _own_facts(interface: Interface, template: Template) -> Iterator[tuple[str, AttributeValue]]:
    """The further facts of an interface that a template asks for."""
    own = attributes(interface)
    for name in template.facts:
        value = own.get(name, template.additional[name])
        yield name, _cut(value, listed=name in LISTED_ATTRIBUTES) if isinstance(value, str) else value


def with_lacked(
    published: dict[str, AttributeValue], lacked: Sequence[str], *, lists: bool, room: int
) -> tuple[dict[str, AttributeValue], tuple[str, ...]]:
    """A device's attributes with the programs that topologies need and the node lacks, or why they are left out.

    Args:
        published: the device's attributes; extended where something is lacked.
        lacked: the programs.
        lists: whether the API server takes lists.
        room: how many more attributes the device has room for.
    """
    if not lacked:
        return published, ()
    if room < 1:
        what = (
            f"{LACKED_CNIS} ({', '.join(lacked)}) is omitted: the maximum number of attributes of the device is reached"
        )
        return published, (what,)
    entries = tuple(lacked[:_MOST_LACKED])
    entries = entries if lists else _fitting(entries)
    more = lacked[len(entries) :]
    cut = (f"{LACKED_CNIS} is truncated by {', '.join(more)}: the maximum length is reached",) if more else ()
    return {**published, LACKED_CNIS: entries}, cut


def _is_chosen(name: str, template: Template) -> bool:
    return template.chosen is None or name in template.chosen or name in IDENTIFYING


def plugins_of(interface: Interface, template: Template) -> tuple[str, ...]:
    """The plugins that may attach a device: for a file only the step of that type, which attaches nothing else."""
    if interface.type == DEVICE_FILE:
        return (DEVICE_FILE,)
    return tuple(name for name in template.plugins if name != DEVICE_FILE)


def is_there(plugin: str, programs: Collection[str] | None) -> bool:
    """Whether a node can run a plugin: netdra has it built in, or its program is in the CNI path."""
    return programs is None or plugin in BUILTIN_TYPES or plugin in programs


def _cut(text: str, *, listed: bool) -> str:
    encoded = text.encode(errors="replace")
    if len(encoded) <= MAX_STRING:
        return encoded.decode()
    start = encoded[:MAX_STRING].decode(errors="ignore")
    if listed and encoded[len(start.encode()) :][:1] != b",":
        start = start.rpartition(",")[0]
    return start


def _fitting(entries: tuple[str, ...]) -> tuple[str, ...]:
    """As many entries as fit into `,a,b,`."""
    while len(",".join(entries)) + 2 > MAX_STRING:
        entries = entries[:-1]
    return entries
