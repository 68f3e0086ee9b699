"""The claims of one node: the `ClaimHandler` of the kubelet's services, and the questions of others about claims.

`prepare` makes a claim ready, `lookup` gives its plan to a pod's hook, `release` forgets it, and `assigned` follows its
addresses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from netdra.kube.client import Client
from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.node.claims.assigned import AssignedAddresses
from netdra.node.claims.lookup import PlanLookup, PlansInUse
from netdra.node.claims.prepare import DescribedFiles, Preparation
from netdra.node.claims.reading import WatchedPods
from netdra.node.claims.refused import RefusedAddresses
from netdra.node.claims.release import Releases, RemovableFiles
from netdra.node.claims.store import ClaimStore, PreparedDevice
from netdra.node.claims.vfs import VFChooser
from netdra.node.permits import NodePermits
from netdra.node.priority import Turns
from netdra.node.view import NodeView, SandboxHolder


class SideFiles(DescribedFiles, RemovableFiles, Protocol):
    """The files of a claim beside its record: `netdra.node.cdi.files`."""


class Claims:
    """The claims of one node.

    Attributes:
        preparation: prepares a claim.
        lookup: gives hooks the plans of claims.
        releases: releases claims.
        addresses: the claims' addresses of PodNetworks.
    """

    def __init__(
        self,
        client: Client,
        node: str,
        view: NodeView,
        holder: SandboxHolder,
        store: ClaimStore,
        files: SideFiles,
        watched: WatchedPods,
        permits: NodePermits,
        turns: Turns,
        wait_examined: Callable[[Collection[PlannedDevice]], Awaitable[None]],
    ) -> None:
        """Begin.

        Args:
            client: for claims and their pods.
            node: the node's name.
            view: the node's devices, slices and topologies.
            holder: the held devices.
            store: where claims are written down.
            files: the claims' other files.
            watched: pods and their claims without asking the API server.
            permits: what authors of topologies may use of the node.
            turns: the claims that are worked on.
            wait_examined: waits until devices were examined since they came back from other pods.
        """
        vfs, refused = VFChooser(view, holder, store), RefusedAddresses()
        plans = PlansInUse(store, holder, turns)
        self._wait_examined = wait_examined
        self.addresses = AssignedAddresses(client, node, store, plans, refused)
        self.preparation = Preparation(
            client, node, view, holder, store, files, watched, permits, turns, vfs, self.addresses
        )
        self.lookup = PlanLookup(plans, refused, turns, self.preparation.prepare_with_plan)
        self.releases = Releases(client, node, store, files, vfs, refused, turns)

    async def prepare(self, claim: ClaimReference) -> tuple[PreparedDevice, ...]:
        """Make a claim ready; see `ClaimHandler`. The caller has the claim's turn.

        Raises:
            NetdraError: the claim is refused, or could not be checked or written down.
        """
        prepared = await self.preparation.prepare(claim)
        await self._wait_examined([device.facts for device in prepared.devices])
        return prepared.told

    async def unprepare(self, claim: ClaimReference) -> None:
        """Forget a claim and remove its files; see `ClaimHandler`. The caller has the claim's turn.

        Raises:
            NetdraError: as of `Releases.unprepare`.
        """
        await self.releases.unprepare(claim)

    async def aclose(self) -> None:
        """Follow no addresses any longer."""
        await self.addresses.aclose()
