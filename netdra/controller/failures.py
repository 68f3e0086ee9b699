"""The claims that fail, counted for each topology and each policy, by the device statuses from the nodes' drivers.

Pure. Indexed by `netdra.controller.state`; `netdra.controller.status` makes a summary's status of them. A claim fails
while the driver reports a device of it as not ready: it could not be prepared, or a pod has not got its network. All
topologies that the claim was allocated through count it, and the policies that offer the devices which are not ready.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

import msgspec

from netdra.model.meta import MAX_REPORTED
from netdra.model.rollout import ClaimFailure, FailingClaims
from netdra.model.watched_claim import DeviceReadiness, WatchedClaim
from netdra.ops.logs import clean
from netdra.topology.users import topologies_of


class DeviceFailure(msgspec.Struct, frozen=True):
    """The error of a claim.

    Attributes:
        node: the node's name.
        message: why a device is not ready.
        time: since when, in RFC 3339 and in UTC, so that later ones are greater.
    """

    node: str
    message: str
    time: str


Failures = Iterable[tuple[str, DeviceFailure]]
"""The failures of one object, each with its claim as `<namespace>/<name>`."""


def by_topology(claim: WatchedClaim) -> Mapping[str, DeviceFailure]:
    """The failure of a claim for each topology that it uses; none if no device fails."""
    devices = claim.status.devices
    if not devices:
        return {}
    last = max(map(_failure, devices), key=_time)
    return dict.fromkeys(topologies_of(claim), last)


def by_policy(claim: WatchedClaim) -> Mapping[str, DeviceFailure]:
    """The last failure of a claim for each policy that offers a device of it which fails; a policy may be unknown."""
    if claim.status.allocation is None:
        return {}
    failures: dict[str, DeviceFailure] = {}
    for device in claim.status.devices:
        policy = device.data.policy if device.data is not None else ""
        if policy and isinstance(policy, str):
            failure = _failure(device)
            failures[policy] = max(failures.get(policy, failure), failure, key=_time)
    return failures


def summary(failures: Failures) -> FailingClaims:
    """The claims that fail, the nodes on which they do, and the error of the last one, without secrets."""
    listed = dict(failures)
    if not listed:
        return FailingClaims(number=0)
    last = max(listed, key=lambda claim: (listed[claim].time, claim))
    failure = listed[last]
    return FailingClaims(
        number=len(listed),
        nodes=tuple(heapq.nsmallest(MAX_REPORTED, {entry.node for entry in listed.values()} - {""})),
        claims=tuple(heapq.nsmallest(MAX_REPORTED, listed)),
        last_error=ClaimFailure(claim=last, node=failure.node, message=clean(failure.message), time=failure.time),
    )


def _failure(device: DeviceReadiness) -> DeviceFailure:
    condition = device.failure
    assert condition is not None  # a WatchedClaim keeps no other devices
    # A pool of an older netdra that is still in use is called `<node>-<name>`: the end of the node's name is unknown.
    node, slash, _ = device.pool.partition("/")
    return DeviceFailure(node if slash else "", condition.message, condition.last_transition_time)


def _time(failure: DeviceFailure) -> str:
    return failure.time
