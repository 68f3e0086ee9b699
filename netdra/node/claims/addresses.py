"""Wait until the steps of a claim have their addresses: until netdra's controller has made their PodAddresses.

Imported by `prepare` for claims of topologies with `ipam: {type: network}`, and by no other module. The node reads the
PodAddresses of its own claims and assigns none (decision D68).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from netdra.kube import answers
from netdra.kube.backoff import Backoff
from netdra.kube.client import Client, Selection
from netdra.kube.errors import ApiError, NotFoundError, no_answer
from netdra.kube.resources import POD_ADDRESSES, POD_NETWORKS
from netdra.kube.watch import watch
from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.model.plan import Plan, PlannedStep, called
from netdra.model.pod_address import PodAddress
from netdra.model.pod_network import AVAILABLE, READY
from netdra.node.claims.checks import named
from netdra.topology import addresses
from netdra.topology.addresses import StepKey
from netdra.topology.devices import DeviceKey

log = logging.getLogger(__name__)

SECONDS = 20.0
"""How long a claim waits, of the 45 seconds that the kubelet gives it."""


class _Assigned:
    """The PodAddresses of a claim, as far as they are known."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.steps = {key: (plan, step) for key, plan, step in addresses.addressed(plans)}
        self._uid = plans[0].claim.uid
        self._known: dict[str, PodAddress] = {}

    def put(self, entry: PodAddress) -> None:
        """Take an object as it is now; those of other claims, and those that are being deleted, do not count."""
        if entry.spec.claim is None or entry.spec.claim.uid != self._uid or entry.metadata.deletion_timestamp:
            self.remove(entry.name)
        else:
            self._known[entry.name] = entry

    def remove(self, name: str) -> None:
        """An object is gone."""
        self._known.pop(name, None)

    @property
    def by_step(self) -> dict[StepKey, tuple[PodAddress, ...]]:
        """The addresses of each step that has all of them."""
        steps: dict[StepKey, list[PodAddress]] = {}
        for entry in self._known.values():
            owner = entry.spec.owner
            key = StepKey(owner.topology, owner.step, owner.index)
            if key in self.steps and entry.spec.network == self.steps[key][1].pod_network:
                steps.setdefault(key, []).append(entry)
        return {key: tuple(found) for key, found in steps.items() if _is_complete(found)}

    @property
    def missing(self) -> list[tuple[Plan, PlannedStep]]:
        """The steps that lack addresses."""
        complete = self.by_step
        return [entry for key, entry in self.steps.items() if key not in complete]


def _is_complete(found: Iterable[PodAddress]) -> bool:
    entries = [*found]
    return {entry.family for entry in entries} == {*entries[0].spec.families}


async def addressed(
    client: Client, node: str, plans: Sequence[Plan], wired: Mapping[DeviceKey, Any], seconds: float
) -> tuple[Plan, ...]:
    """The plans of a claim with the addresses of its steps, once all of them are assigned.

    Args:
        client: for PodAddresses.
        node: this node's name.
        plans: the claim's.
        wired: the physical networks of the node's devices.
        seconds: for how long to wait at most.

    Raises:
        TemporaryError: an address is not assigned in time; the text has the PodNetwork's reason.
        InvalidInputError: a step names no PodNetwork, or its device is on another physical network.
    """
    assigned, limit = _Assigned(plans), min(seconds, SECONDS)
    for plan, step in assigned.steps.values():
        if not step.pod_network:
            raise InvalidInputError(
                f"{called(plan.topology, step.name)}: ipam of type network requires network",
                hint="only a step of a NetworkTopology can name one",
            )
    try:
        async with asyncio.timeout(limit):
            await _complete(client, node, assigned)
    except TimeoutError:
        raise await _late(client, assigned, limit) from None
    return addresses.with_addresses(plans, assigned.by_step, wired)


async def _complete(client: Client, node: str, assigned: _Assigned) -> None:
    """Return once all addresses are known; go on until cancelled."""
    backoff = Backoff()
    while True:
        try:
            await _follow(client, node, assigned)
        except ApiError as problem:
            wait = backoff.next(problem.retry_after)
            log.info("PodAddresses are read again in %.1f s: %s", wait, problem.what)
            await asyncio.sleep(wait)
        else:
            return


async def _follow(client: Client, node: str, assigned: _Assigned) -> None:
    """List the node's PodAddresses and watch them, until all of the claim are known.

    Raises:
        ApiError: the API server did not answer, or ended the watch.
    """
    selection = Selection(field_selector=f"spec.nodeName={node}")
    page = await client.page(POD_ADDRESSES, selection)
    for item in page.items or ():
        assigned.put(answers.one(POD_ADDRESSES, item))
    if not assigned.missing:
        return
    version, limit = page.metadata.resource_version, SECONDS * 2
    async with watch(client, POD_ADDRESSES, selection, version, seconds=int(limit), idle_seconds=limit) as events:
        async for event in events:
            if event.type == "DELETED":
                assigned.remove(answers.one(POD_ADDRESSES, event.object).name)
            elif event.type in ("ADDED", "MODIFIED"):
                assigned.put(answers.one(POD_ADDRESSES, event.object))
            if not assigned.missing:
                return
    raise no_answer(f"watch {POD_ADDRESSES.plural}", ConnectionError("the server ended the watch"))


async def _late(client: Client, assigned: _Assigned, seconds: float) -> TemporaryError:
    """The error of a claim whose addresses were not assigned in time."""
    plan, step = assigned.missing[0]
    reason = await _reason(client, step.pod_network)
    what = f'{named(plan.claim)}, step "{step.name}": no address of PodNetwork "{step.pod_network}" is assigned'
    return TemporaryError(
        f"{what} (waited {seconds:.0f} s){f': {reason}' if reason else ''}",
        hint=f"see the events of the claim and of the PodNetwork: kubectl describe pnet {step.pod_network}",
    )


async def _reason(client: Client, name: str) -> str:
    """Why a PodNetwork assigns no address, as far as it says so."""
    try:
        network = await client.get(POD_NETWORKS, name)
    except NotFoundError:
        return "it does not exist"
    except ApiError as problem:
        return problem.what
    conditions = network.status.conditions if network.status is not None else ()
    reasons: Iterator[str] = (
        condition.message
        for kind in (READY, AVAILABLE)
        for condition in conditions
        if (condition.type, condition.status) == (kind, "False")
    )
    return next(reasons, "")
