"""The errors and warnings of a DeviceClass, as far as it has configuration for netdra. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from netdra.model.claim import DeviceClass
from netdra.model.findings import Finding
from netdra.review.claims import of_selectors
from netdra.review.topologies import sound
from netdra.review.world import World
from netdra.rules.asks import check_asks
from netdra.rules.classes import check_class, check_config, check_reference
from netdra.topology.selectors import check_selectors


def errors(given: DeviceClass, world: World) -> Iterator[Finding]:
    """The errors of a class."""
    yield from check_class(given)
    if world.offline:
        yield from check_config(given, sound(world))
        yield from check_selectors(given)
        yield from (finding for finding, wrong in _names(given, world) if wrong)


def warnings(given: DeviceClass, world: World) -> Iterator[Finding]:
    """The warnings for the author of a class without errors."""
    if world.offline:
        yield from (finding for finding, wrong in _names(given, world) if not wrong)
    yield from of_selectors(given, world)


def _names(given: DeviceClass, world: World) -> Iterator[tuple[Finding, bool]]:
    """The names in a class that nothing has, and whether that is certain."""
    yield from check_reference(given, world.topologies)
    yield from check_asks(given, world.added)
