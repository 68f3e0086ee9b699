"""Release claims: those that the kubelet unprepares, and those that no pod of the node has any more.

Unprepare goes by the written claim and asks no API server. `netdra.node.sandboxes.recover` finds the claims that the
kubelet has forgotten, and asks here whether a pod needs them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from netdra.kube.client import Client
from netdra.kube.errors import ApiError, NotFoundError
from netdra.kube.resources import RESOURCE_CLAIMS
from netdra.model.errors import NetdraError, TemporaryError
from netdra.model.plan import ClaimReference
from netdra.node import faults
from netdra.node.claims.reading import PODS
from netdra.node.claims.refused import RefusedAddresses
from netdra.node.claims.store import ClaimStore, PreparedClaim
from netdra.node.claims.vfs import VFChooser
from netdra.node.priority import Turns
from netdra.ops.logs import fields

log = logging.getLogger(__name__)


class RemovableFiles(Protocol):
    """The files of a claim beside its record: `netdra.node.cdi.files`."""

    def remove_spec(self, uid: str) -> None:
        """Let no further container be made with a claim's devices."""

    def remove_all(self, uid: str) -> None:
        """Remove all files of a claim."""


@dataclass(frozen=True)
class Releases:
    """Releases the claims of one node.

    Attributes:
        vfs: learns which VFs were returned.
        refused: forgets the addresses of a claim.
    """

    client: Client
    node: str
    store: ClaimStore
    files: RemovableFiles
    vfs: VFChooser
    refused: RefusedAddresses
    turns: Turns
    _before_release: list[Callable[[str], Awaitable[None]]] = field(default_factory=list)

    def before_release(self, act: Callable[[str], Awaitable[None]]) -> None:
        """Have a function called with a claim's uid before the claim is released."""
        self._before_release.append(act)

    async def unprepare(self, claim: ClaimReference) -> None:
        """Forget a claim and remove its files; see `ClaimHandler`. The caller has the claim's turn.

        A pod stays in the cluster until its claims are unprepared. So on a file system that is read-only, files that
        let no container begin are left for `remove_given_up`.

        Raises:
            NetdraError: a pod's network could not be taken down, or the CDI specification not be removed.
        """
        for act in self._before_release:
            await act(claim.uid)
        self.refused.forget(claim.uid)
        await asyncio.to_thread(self._forget, claim.uid)

    def _forget(self, uid: str) -> None:
        with self.store.locked():
            faults.point("unprepare-begun")
            record = None
            with suppress(NetdraError):  # a record of a newer netdra is removed unread
                record = self.store.get(uid)
            self.files.remove_spec(uid)
            try:
                self.files.remove_all(uid)
                faults.point("unprepare-removed")
                self.store.remove(uid)
            except TemporaryError as problem:
                log.warning("unprepared, but %s", problem, extra=fields(claim=uid))
                self.store.give_up(uid)
        if record is not None:
            self.vfs.note_given_back(record)

    async def release(self, claim: ClaimReference) -> None:
        """Release a claim that no pod has, in its turn.

        Raises:
            NetdraError: as `unprepare`.
        """
        await self.turns.run_alone(claim.uid, lambda: self.unprepare(claim))

    def remove_given_up(self) -> None:
        """Remove the files of forgotten claims that could not be removed before, if they can be now.

        Raises:
            NetdraError: as of `unprepare`.
        """
        for uid in self.store.given_up():
            self._forget(uid)

    async def put_aside(self, uid: str) -> None:
        """Forget a claim that no pod has and whose record cannot be read, in its turn; the record is kept renamed.

        Raises:
            NetdraError: a file cannot be renamed or removed.
        """
        await self.turns.run_alone(uid, partial(asyncio.to_thread, self._put_aside, uid))

    def _put_aside(self, uid: str) -> None:
        with self.store.locked():
            if uid in self.store.damaged():  # it was not prepared again meanwhile
                self.files.remove_all(uid)
                self.store.put_aside(uid)

    async def is_needed(self, record: PreparedClaim, present: set[str]) -> bool:
        """Whether a pod of this node may need a prepared claim, by reading the claim and its pods from the API server.

        A watch may be behind the kubelet: a claim is prepared milliseconds after its pod was bound. A claim that is
        reserved for a PodGroup counts as needed as long as it is. A claim that cannot be read counts as needed.

        Args:
            record: the claim.
            present: uids of pods that were just read for other claims, and are on this node; those of this claim that
                are found to be are added.
        """
        pods = {user.uid: user.name for user in record.pods}
        if not present.isdisjoint(pods):
            return True
        try:
            claim = await self.client.get(RESOURCE_CLAIMS, record.claim.name, record.claim.namespace)
            if claim.metadata.uid == record.claim.uid:
                if any(consumer.resource != "pods" for consumer in claim.status.reserved_for):
                    return True
                pods |= {consumer.uid: consumer.name for consumer in claim.status.reserved_for}
        except NotFoundError:
            pass
        except ApiError:
            return True
        for uid, name in pods.items():
            if await self.has_pod(record.claim.namespace, name, uid):
                present.add(uid)
                return True
        return False

    async def has_pod(self, namespace: str, name: str, uid: str) -> bool:
        """Whether this node has a pod, by reading it from the API server. A pod that cannot be read counts as there."""
        try:
            pod = await self.client.get(PODS, name, namespace)
        except NotFoundError:
            return False
        except ApiError:
            return True
        return pod.metadata.uid == uid and pod.spec.node_name == self.node
