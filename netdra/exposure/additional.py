"""The attributes that policies add to devices: their errors, and how all devices of a node get the same names.

`netdra.exposure.check` reports the errors. `netdra.exposure.templates` publishes the attributes of a policy, and adds
the names that the node's other policies define (decision D25).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import filterfalse
from typing import NamedTuple

from netdra.model import names, suggestions
from netdra.model.findings import Finding, Path
from netdra.model.inventory import ATTRIBUTES, CHOSEN_ATTRIBUTES, IDENTIFYING, AttributeValue
from netdra.model.policy import MAX_PLUGINS, Exposure
from netdra.model.resource import MAX_ATTRIBUTES_AND_CAPACITIES, MAX_STRING

ROOM = 4
"""How many capacities and additional attributes a device has room for beside all facts; `bandwidth` is one of them."""
MAX_INTEGER = 2**63 - 1
PCIE_ROOTS = (names.SEED_PCIE_ROOT, names.STANDARD_PCIE_ROOT)
"""The one fact that a policy may replace: the PCIe root next to which a GPU is best placed."""

_EXPOSURE: Path = ("spec", "exposure")
_BANDWIDTH = names.qualified(names.BANDWIDTH)
_PHYSNET = names.qualified(names.PHYSNET)
_OF_PLUGINS = (names.SUPPORTED_CNIS, names.LACKED_CNIS)
_PUBLISHED = frozenset((*(field.name for field in ATTRIBUTES), *map(names.qualified, _OF_PLUGINS))) - {_PHYSNET}
_WITHHELD = {field.name: field.type for field in ATTRIBUTES if field.reach == "policies"}
_NEUTRAL: Mapping[type, AttributeValue] = {bool: False, int: 0, str: "", tuple: ()}
_TYPES: Mapping[type, str] = {bool: "a boolean", int: "an integer", str: "a text", tuple: "a list"}


class Adding(NamedTuple):
    """A device that a policy makes: how many capacities it has, and which attributes are added to it.

    Attributes:
        room: how many capacities and additional attributes it has room for beside its facts.
        leaves_out: which of the attributes that the node or other policies add it does not carry without a value.
    """

    policy: str
    capacity: Iterable[str]
    attributes: Mapping[str, AttributeValue]
    room: int = ROOM
    leaves_out: Callable[[str], bool] = lambda _: False


def errors(exposure: Exposure) -> Iterator[Finding]:
    """The errors in the attributes that a policy adds."""
    for index, name in enumerate(exposure.additional_facts):
        if names.qualified(name) not in _WITHHELD:
            facts = ", ".join(sorted(fact.removeprefix(f"{names.DRIVER}/") for fact in _WITHHELD))
            what = f'"{name}" is not one of the optional facts: {facts}'
            yield Finding(what, path=(*_EXPOSURE, "additionalFacts", index), code="ND1390")
    yield from _choice_errors(exposure)
    seen: dict[str, AttributeValue] = {}
    for name, value in exposure.additional_attributes.items():
        path: Path = (*_EXPOSURE, "additionalAttributes", name)
        qualified = names.qualified(name)
        yield from name_errors(path, name)
        if qualified in PCIE_ROOTS:
            yield from _root_errors(path, value)
        else:
            yield from _value_errors(path, value)
            if qualified == _PHYSNET and not isinstance(value, str):
                yield Finding(
                    f"{value} is not text; it must be the name of a physical network", path=path, code="ND1391"
                )
            if qualified in _PUBLISHED:
                yield Finding(
                    f'"{name}" is the name of a fact that netdra determines', "choose another name", path, code="ND1392"
                )
        if qualified in seen:
            yield Finding(
                f'"{name}" is set twice, with the domain {names.DRIVER} and without', path=path, code="ND1393"
            )
        seen[qualified] = value
    if len({seen[root] for root in PCIE_ROOTS if root in seen}) > 1:
        what = f"{' and '.join(PCIE_ROOTS)} are two names of one attribute, but their values differ"
        yield Finding(what, path=(*_EXPOSURE, "additionalAttributes"), code="ND1394")


def _choice_errors(exposure: Exposure) -> Iterator[Finding]:
    """The errors in a policy's choice of facts."""
    known = {name.removeprefix(f"{names.DRIVER}/") for name in CHOSEN_ATTRIBUTES}
    for index, name in enumerate(exposure.facts or ()):
        path: Path = (*_EXPOSURE, "facts", index)
        plain = name.removeprefix(f"{names.DRIVER}/")
        if names.qualified(name) in _WITHHELD:
            yield Finding(f'"{name}" is an optional fact', "move it to additionalFacts", path, code="ND1395")
        elif names.qualified(name) in IDENTIFYING or plain == names.SUPPORTED_CNIS:
            yield Finding(f'"{name}" is always published', "remove it", path, code="ND1396")
        elif plain not in known:
            yield Finding(
                f'"{name}" is not a known fact', suggestions.hint(plain, sorted(known), "facts:"), path, code="ND1397"
            )


def room(exposure: Exposure) -> int:
    """How many capacities and additional attributes a policy's devices have room for beside their facts."""
    if exposure.facts is None:
        return ROOM
    carried = {*IDENTIFYING, names.qualified(names.SUPPORTED_CNIS), *map(names.qualified, exposure.facts)} - {_PHYSNET}
    return MAX_ATTRIBUTES_AND_CAPACITIES - len(carried)


def room_errors(exposure: Exposure) -> Iterator[Finding]:
    """The errors of a policy that adds more than a device has room for."""
    capacity = {names.qualified(name) for name in exposure.capacity} - {_BANDWIDTH}
    if exposure.pooled_vfs is not None:
        capacity.add(names.qualified(names.VFS))
    used, there = len(capacity) + len(_own(published(exposure))), room(exposure)
    if used >= there:
        more = "" if exposure.facts is not None else ", and more if facts lists few"
        what = f"{used} capacities and additional attributes beside bandwidth; a device supports {there - 1}{more}"
        yield Finding(what, path=_EXPOSURE, code="ND1398")


def published(exposure: Exposure) -> dict[str, AttributeValue]:
    """The attributes that a policy adds, under qualified names. The PCIe root has two names with one value."""
    attributes = {names.qualified(name): value for name, value in exposure.additional_attributes.items()}
    facts = (names.qualified(name) for name in exposure.additional_facts)
    attributes |= {name: _NEUTRAL[_WITHHELD[name]] for name in facts if name in _WITHHELD}
    root = next((attributes[name] for name in PCIE_ROOTS if name in attributes), None)
    return attributes if root is None else attributes | dict.fromkeys(PCIE_ROOTS, root)


def united(devices: Iterable[Adding], *, physnets: bool) -> tuple[dict[str, AttributeValue], dict[str, list[str]]]:
    """The attributes that all policies of a node add together.

    Args:
        devices: what each policy adds, in the order of the policies' names.
        physnets: whether the node has physical networks, which give its devices one more attribute.

    Returns:
        a neutral value for each name, of the type in the first policy; and by policy the problems: a value of another
        type, or no room on other policies' devices. The node's own additions have the policy "".
    """
    listed = list(devices)
    givers: dict[str, tuple[str, type]] = {_PHYSNET: ("", str)} if physnets and listed else {}
    problems: dict[str, list[str]] = {}
    for adding in listed:
        policy = adding.policy
        for name, value in _own(adding.attributes).items():
            giver, kind = givers.setdefault(name, (policy, type(value)))
            if kind is not type(value):
                problems.setdefault(policy, []).append(
                    f'additionalAttributes["{name}"] is {_TYPES[type(value)]}, but {_TYPES[kind]} in '
                    f'policy "{giver}": a selector that compares it fails on one of them'
                )
    # If the room is not enough for all, the physical network comes first: it is the node's, and concerns each device.
    in_order = sorted(givers, key=lambda name: (bool(givers[name][0]), name))
    neutral = {name: _NEUTRAL[givers[name][1]] for name in in_order}
    lacking: dict[str, list[str]] = {}
    for device in listed:
        for name in filterfalse(device.leaves_out, neutral.keys() - completed(device, neutral).keys()):
            lacking.setdefault(name, []).append(device.policy)
    for name, policies in sorted(lacking.items()):
        others = ", ".join(f'"{policy}"' for policy in dict.fromkeys(policies))
        source = f'additionalAttributes["{name}"]' if givers[name][0] else f"--{names.PHYSNET}: {names.PHYSNET}"
        problems.setdefault(givers[name][0], []).append(
            f"{source} is not published on the devices of {others}, for lack of space: a DeviceClass "
            "that netdra has not created must test whether it exists before reading it"
        )
    return neutral, {policy: list(dict.fromkeys(texts)) for policy, texts in problems.items()}


def completed(device: Adding, neutral: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """A device's attributes beside its facts: those of its policy, and those of others as far as there is room."""
    own = dict(device.attributes)
    left = device.room - len({*device.capacity, _BANDWIDTH}) - len(_own(own))
    missing = [name for name in neutral if name not in own and not device.leaves_out(name)][: max(0, left)]
    return own | {name: neutral[name] for name in missing}


def name_errors(path: Path, name: str) -> Iterator[Finding]:
    """The errors in the name of an attribute or a capacity."""
    domain, slash, identifier = name.rpartition("/")
    if slash and not names.is_attribute_domain(domain):
        yield Finding(f'"{domain}" is not a domain of at most {names.MAX_LABEL} characters', path=path, code="ND1399")
    if not names.is_identifier(identifier):
        what = f'"{identifier}" must have at most 32 letters, digits and _, and must not start with a digit'
        yield Finding(what, path=path, code="ND1400")


def _own(attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """The added attributes without those that replace a fact."""
    return {name: value for name, value in attributes.items() if name not in PCIE_ROOTS}


def _root_errors(path: Path, value: AttributeValue) -> Iterator[Finding]:
    if not isinstance(value, str) or not names.is_pcie_root(value):
        quoted = f'"{value}"' if isinstance(value, str) else value
        yield Finding(f"{quoted} is not a PCIe root, such as pci0000:00", path=path, code="ND1401")


def _value_errors(path: Path, value: AttributeValue) -> Iterator[Finding]:
    if isinstance(value, str):
        yield from _text_errors(path, value)
    elif isinstance(value, tuple):
        if not 0 < len(value) <= MAX_PLUGINS:
            yield Finding(f"a list must have 1 to {MAX_PLUGINS} entries, not {len(value)}", path=path, code="ND1402")
        for entry in value:
            yield from _text_errors(path, entry)
            if "," in entry or not entry:
                yield Finding("an entry of a list must not be empty or contain a comma", path=path, code="ND1403")
    elif not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
        yield Finding(f"{value} is not a 64-bit integer", path=path, code="ND1404")


def _text_errors(path: Path, text: str) -> Iterator[Finding]:
    if len(text.encode(errors="replace")) > MAX_STRING:
        yield Finding(f'"{text}" is longer than {MAX_STRING} bytes', path=path, code="ND1405")
