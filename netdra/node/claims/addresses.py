"""Wait until the steps of a claim have their addresses: until netdra's controller has made their PodAddresses.

Imported by `prepare` for claims of topologies with `ipam: {type: network}`, and by no other module. From the first such
claim on, the node follows the PodAddresses of its own claims: a list for each claim would have the API server search
all of the cluster's. It assigns none (decision D68).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from netdra.kube.client import Client, Selection
from netdra.kube.errors import ApiError, NotFoundError
from netdra.kube.reflector import Reflector
from netdra.kube.resources import POD_ADDRESSES, POD_NETWORKS
from netdra.kube.store import Store
from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.model.plan import Plan, PlannedStep, called
from netdra.model.pod_address import Family, PodAddress, by_age
from netdra.model.pod_network import AVAILABLE, READY
from netdra.node.claims.checks import named
from netdra.topology import addresses
from netdra.topology.addresses import StepKey
from netdra.topology.devices import DeviceKey

SECONDS = 20.0
"""How long a claim waits, of the 45 seconds that the kubelet gives it."""


class NodeAddresses:
    """The PodAddresses of a node's claims."""

    def __init__(self, client: Client, node: str) -> None:
        """Follow nothing yet."""
        self._client = client
        self._store: Store[PodAddress] = Store()
        selection = Selection(field_selector=f"spec.nodeName={node}")
        self._reflector = Reflector(client, POD_ADDRESSES, self._store, selection, vital=False)
        self._following: asyncio.Task[None] | None = None

    @property
    def store(self) -> Store[PodAddress]:
        """The PodAddresses of the node's claims, as far as they are followed."""
        return self._store

    def follow(self) -> None:
        """Follow them from now on."""
        if self._following is None:
            self._following = asyncio.create_task(self._reflector.run())

    async def wait_assigned(
        self,
        plans: Sequence[Plan],
        wired: Mapping[DeviceKey, Any],
        seconds: float,
        refused: Collection[str] = (),
    ) -> tuple[Plan, ...]:
        """The plans of a claim with the addresses of its steps, once all of them are assigned.

        Args:
            plans: the claim's.
            wired: the physical networks of the node's devices.
            seconds: for how long to wait at most.
            refused: addresses, without prefix length, that other machines have: others are waited for.

        Raises:
            TemporaryError: an address is not assigned in time; the text has the PodNetwork's reason.
            InvalidInputError: a step names no PodNetwork, or its device is on another physical network.
        """
        steps, limit = {key: step for key, _, step in addresses.addressed(plans)}, min(seconds, SECONDS)
        _check_named(plans)
        self.follow()
        uid = plans[0].claim.uid
        try:
            async with asyncio.timeout(limit):
                await self._store.until(lambda: self._of(uid, steps, refused).keys() == steps.keys())
        except TimeoutError:
            raise await self._late(plans, self._of(uid, steps, refused), limit) from None
        return addresses.with_addresses(plans, self._of(uid, steps, refused), wired)

    async def aclose(self) -> None:
        """Follow them no longer."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
            self._following = None

    def _of(
        self, uid: str, steps: Mapping[StepKey, PlannedStep], refused: Collection[str]
    ) -> dict[StepKey, tuple[PodAddress, ...]]:
        """The addresses of each step of a claim that has all of them."""
        own = (
            entry
            for entry in self._store.objects.values()
            if entry.spec.claim is not None
            and entry.spec.claim.uid == uid
            and entry.metadata.deletion_timestamp is None
            and entry.spec.address.partition("/")[0] not in refused
        )
        found: dict[StepKey, dict[Family, PodAddress]] = {}
        for entry in by_age(own):
            owner = entry.spec.owner
            key = StepKey(owner.topology, owner.step, owner.index)
            if key in steps and steps[key].pod_network == entry.spec.network:
                found.setdefault(key, {}).setdefault(entry.family, entry)
        return {key: tuple(entries.values()) for key, entries in found.items() if _is_complete(entries)}

    async def _late(self, plans: Sequence[Plan], known: Iterable[StepKey], seconds: float) -> TemporaryError:
        """The error of a claim whose addresses were not assigned in time."""
        plan, step = next((plan, step) for key, plan, step in addresses.addressed(plans) if key not in known)
        reason = await self._reason(step.pod_network) or self._reflector.problem
        what = f'{named(plan.claim)}, step "{step.name}": no address of PodNetwork "{step.pod_network}" is assigned'
        return TemporaryError(
            f"{what} (waited {seconds:.0f} s){f': {reason}' if reason else ''}",
            hint=f"see the events of the claim and of the PodNetwork: kubectl describe pnet {step.pod_network}; "
            "without such events, check that netdra's controller runs: netdra doctor",
            code="ND2145",
        )

    async def _reason(self, name: str) -> str:
        """Why a PodNetwork assigns no address, if it reports a reason."""
        try:
            network = await self._client.get(POD_NETWORKS, name)
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


def _is_complete(entries: Mapping[Family, PodAddress]) -> bool:
    return entries.keys() == {family for entry in entries.values() for family in entry.spec.families}


def _check_named(plans: Sequence[Plan]) -> None:
    for _, plan, step in addresses.addressed(plans):
        if not step.pod_network:
            raise InvalidInputError(
                f"{called(plan.topology, step.name)}: ipam of type network requires network",
                hint="only a step of a NetworkTopology can name one",
                code="ND2146",
            )
