"""The errors and warnings of a PodNetwork: by itself, with ranges that are already used, and for topologies. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from netdra.model.findings import Finding
from netdra.model.pod_network import PodNetwork
from netdra.model.topology import NetworkTopology
from netdra.review.topologies import SHOWN
from netdra.review.world import World
from netdra.rules import network_mtus, pod_networks, taken_ranges


def errors(new: PodNetwork) -> Iterator[Finding]:
    """The errors of a network by itself."""
    yield from pod_networks.check(new)


def warnings(new: PodNetwork, world: World) -> Iterator[Finding]:
    """The warnings for the author of a network without errors."""
    yield from taken_ranges.overlaps(new, world.taken)
    yield from pod_networks.unusable(new)
    if not world.offline:
        unfit = [*_unfit(new, world.topologies.values())]
        yield from unfit[:SHOWN]
        if len(unfit) > SHOWN:
            yield Finding(f"{len(unfit) - SHOWN} more warnings like these are not shown", code="ND1245")


def _unfit(network: PodNetwork, users: Iterable[NetworkTopology]) -> Iterator[Finding]:
    """Warnings for steps of topologies that no longer have the VLAN or the MTU of their network."""
    for topology in users:
        yield from pod_networks.check_steps(topology, {network.name: network})
        yield from network_mtus.check(topology, {network.name: network})
