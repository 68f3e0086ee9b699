"""Keeps PodNetworks from being deleted while claims have addresses of them (decision D76).

Used by `netdra.controller.addresses.pod_addresses`. A network has the finalizer from before its first address is
assigned until the last one is released, so a network without users is deleted at once, with or without a controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from netdra.controller.writing import FINALIZER, set_finalizer
from netdra.kube.client import Client
from netdra.kube.errors import ConflictError, RefusedError
from netdra.kube.resources import POD_NETWORKS
from netdra.kube.store import Change, Store
from netdra.model.pod_network import PodNetwork
from netdra.networks.errors import NoPodNetworkError
from netdra.rules import pod_addresses

log = logging.getLogger(__name__)

_TRIES = 5
"""How often a finalizer is written if the network changes meanwhile: the address that was chosen is kept."""


class NetworkFinalizers:
    """The finalizers of a cluster's PodNetworks, for one term."""

    def __init__(self, client: Client, networks: Store[PodNetwork], is_used: Callable[[str], bool]) -> None:
        """Begin.

        Args:
            is_used: whether a claim has an address of a network, or is about to get one.
        """
        self._client, self._networks, self._is_used = client, networks, is_used
        self._written: dict[str, bool] = {}
        self._turn = asyncio.Lock()

    def note(self, change: Change[PodNetwork]) -> None:
        """Take a change of a PodNetwork: the copy may be older than the last write."""
        if change.old is not None and (change.new is None or change.new.metadata.uid != change.old.metadata.uid):
            self._written.pop(change.old.metadata.uid, None)
        if change.new is not None and self._written.get(change.new.metadata.uid) == _is_protected(change.new):
            del self._written[change.new.metadata.uid]

    async def protect(self, name: str) -> None:
        """Set the finalizer of a network of which an address was chosen, before it is assigned.

        Raises:
            NoPodNetworkError: the network is being deleted.
            ApiError: it is gone or was changed meanwhile, or cannot be written just now.
        """
        async with self._turn:
            network = self._networks.objects.get(name)
            if network is not None and not self._has(network):
                await self._write(name, wanted=True)

    async def update(self, name: str) -> bool:
        """Set the finalizer of a network with users, or remove it from one without; returns whether it is gone then.

        Raises:
            ApiError: it is gone or was changed meanwhile, or cannot be written just now.
        """
        async with self._turn:
            network = self._networks.objects.get(name)
            if network is None:
                return True
            is_used, is_deleted = self._is_used(name), bool(network.metadata.deletion_timestamp)
            if is_used != self._has(network) and not (is_used and is_deleted):
                with suppress(NoPodNetworkError):
                    await self._write(name, wanted=is_used)
            return is_deleted and not is_used

    def _has(self, network: PodNetwork) -> bool:
        return self._written.get(network.metadata.uid, _is_protected(network))

    async def _write(self, name: str, *, wanted: bool) -> None:
        for left in reversed(range(_TRIES)):
            network = await self._client.get(POD_NETWORKS, name)
            if wanted and network.metadata.deletion_timestamp:
                raise pod_addresses.deleting(name)
            try:
                if _is_protected(network) != wanted:
                    await set_finalizer(self._client, POD_NETWORKS, network, FINALIZER, wanted=wanted)
            except ConflictError:  # its status was written meanwhile
                if not left:
                    raise
                continue
            except RefusedError as problem:
                if not wanted:
                    raise
                # The rights of an older chart: addresses are assigned, and the deletion does not wait.
                log.warning('the finalizer of PodNetwork "%s" cannot be written: %s', name, problem)
            self._written[network.metadata.uid] = wanted
            return


def _is_protected(network: PodNetwork) -> bool:
    return FINALIZER in network.metadata.finalizers
