"""The words for a claim that does not fit its topology, the same when it is written and when it is prepared.

Used by `bind`, which raises them, and by `netdra.rules.claims`, which adds the place.
"""

from __future__ import annotations

from collections.abc import Sequence

from netdra.model.findings import Finding


def absent(claim: str, topology: str) -> Finding:
    """A topology of the claim's DeviceClasses that does not exist."""
    return Finding(
        f'{claim} requests devices of NetworkTopology "{topology}", which does not exist',
        "create it, or delete its remaining DeviceClasses",
        code="ND1299",
    )


def other_step(claim: str, request: str, step: str, topology: str) -> Finding:
    """A request whose name is not that of its class's step.

    Args:
        claim: the claim as messages call it.
        step: the step of its DeviceClass.
        topology: the step's topology.
    """
    return Finding(
        f'{claim}, request "{request}": its DeviceClass belongs to step "{step}" of NetworkTopology "{topology}" and '
        "requires a request with the name of the step",
        f'rename the request to "{step}", or remove it',
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
