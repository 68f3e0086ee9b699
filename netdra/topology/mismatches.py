"""The words for a claim that does not fit its topology, the same when it is written and when it is prepared.

Used by `bind`, which raises them, and by `netdra.rules.claims`, which adds the place.
"""

from __future__ import annotations

from collections.abc import Sequence

from netdra.model.findings import Finding
from netdra.topology.classes import class_name


def absent(claim: str, topology: str) -> Finding:
    """A topology of the claim's DeviceClasses that does not exist."""
    return Finding(
        f'{claim} requests devices of NetworkTopology "{topology}", which does not exist',
        "create it, or delete its remaining DeviceClasses",
        code="ND1299",
    )


def other_step(claim: str, request: str, step: str, topology: str, roots: Sequence[str]) -> Finding:
    """A request whose name is not that of its class's step.

    Args:
        claim: the claim as messages call it.
        step: the step of its DeviceClass.
        topology: the step's topology.
        roots: the topology's root steps, each of which has a request of its name.
    """
    own = next((name for name in request.split("/", 1) if name in roots), "")
    more = f'; for several devices, set count of request "{step}"' if len(roots) == 1 else ""
    return Finding(
        f'{claim}, request "{request}": its DeviceClass belongs to step "{step}" of NetworkTopology "{topology}" and '
        "requires a request with the name of the step",
        f'set its deviceClassName to "{class_name(topology, own)}"' if own else f"remove the request{more}",
        code="ND1300",
    )


def several(claim: str, request: str, step: str, topology: str) -> Finding:
    """A request for several devices of a step; arguments as of `other_step`."""
    return Finding(
        f'{claim}, request "{request}" requests several devices, but root step "{step}" of NetworkTopology '
        f'"{topology}" supports one device',
        "request one device; only a topology with a single root step supports several",
        code="ND1301",
    )


def for_nothing(claim: str, requests: Sequence[str]) -> Finding:
    """Values of parameters for requests of which none is for a topology; empty for all requests."""
    given = f"requests {', '.join(requests)}" if requests else "all its requests"
    return Finding(
        f"{claim} sets parameters for {given}, but none of these requests is for a NetworkTopology",
        "use a request of a topology's DeviceClass, or remove the values",
        code="ND1302",
    )
