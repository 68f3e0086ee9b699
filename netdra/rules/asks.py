"""The unlikely requests of classes, claims and templates for netdra's devices: names, values, units, counts. Pure.

Called by `netdra validate`. The API server takes most of it, and the pod stays Pending without a word about the reason.
`netdra.model.claim_rules` finds objects that the API server rejects.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from netdra.cel.vocabulary import Added
from netdra.model import names, quantity, suggestions
from netdra.model.claim import DeviceClaim, DeviceClass, DeviceSubRequest, ExactDeviceRequest, device_claim
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding, Path
from netdra.model.quantity import BITS_PER_MBIT, MOST_MBITS
from netdra.topology.selectors import Written, check_selector, expressions

_TAINTS = (names.LINK_DOWN, names.GONE, names.WITHDRAWN, names.TROUBLE, names.OF_NETWORK)
_TEXT = re.compile(r"""(["'])((?:(?!\1)[^\\\n])*)\1""")
_NEAR = 0.8
_Judged = tuple[Finding, bool]
"""A finding, and whether it is certain; else it is hardly meant so."""


def check_asks(value: Written, added: Added) -> Iterator[_Judged]:
    """The requests of an object that no device can meet.

    Args:
        value: as its author wrote it; selectors that do not compile are skipped.
        added: the additions of policies and CustomDevices to devices.
    """
    named = f'{value.kind} "{value.metadata.name}"'
    for finding, wrong in _asks(value, added):
        yield Finding(f"{named}{finding.what}", finding.hint, finding.path, code=finding.code), wrong


def _asks(value: Written, added: Added) -> Iterator[_Judged]:
    yield from _selectors(value, added)
    if isinstance(value, DeviceClass):
        return
    wanted, path = device_claim(value)
    yield from _constraints(wanted, (*path, "constraints"), added)
    for at, request in enumerate(wanted.requests):
        place: Path = (*path, "requests", at)
        if request.exactly is not None:
            yield from _choice(request.name, request.exactly, (*place, "exactly"), added)
        for number, choice in enumerate(request.first_available):
            called = f"{request.name}/{choice.name}"
            yield from _choice(called, choice, (*place, "firstAvailable", number), added)


def _selectors(value: Written, added: Added) -> Iterator[_Judged]:
    from netdra.cel.analysis import examine
    from netdra.vocabulary import of_devices

    for path, selector in expressions(value):
        expression = selector.cel.expression if selector.cel is not None else ""
        if not expression or check_selector(expression):
            continue
        place: Path = (*path, "cel", "expression")
        if names.DRIVER in expression:
            for remark in examine(expression, of_devices(added)):
                # A class may be for devices of several drivers.
                if not remark.text.startswith("device.driver ") or "did you mean" in remark.hint:
                    yield Finding(f": {remark.what}", path=place, code="ND1002"), remark.wrong
            continue
        for _, text in _TEXT.findall(expression):
            if suggestions.closest(text, [names.DRIVER], _NEAR):
                hint = f'did you mean "{names.DRIVER}"?'
                yield (
                    Finding(f': "{text}" is neither a driver nor a domain of netdra\'s', hint, place, code="ND1003"),
                    False,
                )


def _constraints(wanted: DeviceClaim, path: Path, added: Added) -> Iterator[_Judged]:
    requests = [request.name for request in wanted.requests]
    choices = [f"{request.name}/{choice.name}" for request in wanted.requests for choice in request.first_available]
    for at, constraint in enumerate(wanted.constraints):
        for number, name in enumerate(constraint.requests):
            if name not in requests and name not in choices:
                hint = suggestions.hint(name, [*requests, *choices], "the claim's requests are")
                place: Path = (*path, at, "requests", number)
                yield (
                    Finding(
                        f': a constraint names request "{name}", which the claim lacks', hint, place, code="ND1004"
                    ),
                    True,
                )
        for field, attribute in (
            ("matchAttribute", constraint.match_attribute),
            ("distinctAttribute", constraint.distinct_attribute),
        ):
            if attribute:
                yield from _attribute(attribute, (*path, at, field), added)


def _attribute(attribute: str, place: Path, added: Added) -> Iterator[_Judged]:
    """An attribute that is compared between devices; where one of them lacks it, nothing is allocated."""
    from netdra.vocabulary import of_devices

    domain, _, name = attribute.rpartition("/")
    known = {*of_devices(added).facts, *added.attributes}
    # Of several domains with the name, the driver's own counts, then that of Kubernetes.
    whole = {each.rpartition("/")[2]: each for each in sorted(known, key=_rank, reverse=True)}
    meant = whole.get(name) or whole.get(suggestions.closest(name, sorted(whole)), "")
    if not domain:
        what = f': attribute "{attribute}" has no domain'
        yield Finding(what, f"write {meant or names.qualified(name)}", place, code="ND1005"), True
    elif domain == names.DRIVER and attribute not in known:
        hint = f'did you mean "{meant}"?' if meant else ""
        yield Finding(f': no device has attribute "{attribute}"', hint, place, code="ND1006"), False


def _rank(attribute: str) -> tuple[bool, bool, str]:
    return not attribute.startswith(f"{names.DRIVER}/"), not attribute.startswith("resource.kubernetes.io/"), attribute


def _choice(called: str, choice: ExactDeviceRequest | DeviceSubRequest, path: Path, added: Added) -> Iterator[_Judged]:
    own = (names.BANDWIDTH, names.VFS, names.GIDS, names.ADDRESSES)
    known = [*map(names.qualified, own), *added.capacity]
    asked = choice.capacity.requests if choice.capacity is not None else {}
    for name, amount in asked.items():
        domain, _, _ = name.rpartition("/")
        place: Path = (*path, "capacity", "requests", name)
        if domain in ("", names.DRIVER) and names.qualified(name) not in known:
            near = suggestions.closest(names.qualified(name), known)
            if near:
                what = f', request "{called}": no device has capacity "{name}"'
                yield Finding(what, f'did you mean "{near}"?', place, code="ND1007"), False
        elif names.qualified(name) == names.qualified(names.BANDWIDTH):
            yield from _bandwidth(called, str(amount), place)
        if not domain and names.qualified(name) in known:
            yield from _without_domain(called, name, asked, place)
    yield from _tolerations(called, (each.key for each in choice.tolerations), (*path, "tolerations"))


def _without_domain(called: str, name: str, asked: Collection[str], place: Path) -> Iterator[_Judged]:
    """A capacity that is requested without its domain, under which devices publish it (decision D82)."""
    whole = names.qualified(name)
    if whole in asked:
        what = f', request "{called}": capacity "{name}" is requested twice, also as "{whole}"'
        yield Finding(what, "remove it", place, code="ND1008"), True
        return
    what = f', request "{called}": Kubernetes before 1.38 does not find capacity "{name}" without its domain'
    yield Finding(what, f'did you mean "{whole}"?', place, code="ND1009"), False


def _bandwidth(called: str, amount: str, place: Path) -> Iterator[_Judged]:
    try:
        mbits = quantity.parse(amount)
    except InvalidInputError:
        return  # the API server reports it
    if mbits > MOST_MBITS:
        what = f', request "{called}": bandwidth {amount} is {quantity.render(mbits)} Mbit/s'
        yield (
            Finding(what, f'write it in Mbit/s, e.g. "{int(mbits / BITS_PER_MBIT) or 1}"', place, code="ND1010"),
            False,
        )


def _tolerations(called: str, keys: Iterable[str], path: Path) -> Iterator[_Judged]:
    for at, key in enumerate(keys):
        near = suggestions.closest(key, _TAINTS) if key and key not in _TAINTS else ""
        if near:
            what = f', request "{called}": netdra sets no taint "{key}"'
            yield Finding(what, f'did you mean "{near}"?', (*path, at, "key"), code="ND1011"), False
