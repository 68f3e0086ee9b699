"""Distinguishes a cluster from its copy: which of the two may delete ports in Neutron.

A snapshot of etcd that is restored beside the original has the original's uid, claims and NeutronPorts. It does not
have the word that the original has written last: the controller that leads writes another word every minute, into a
Lease of the cluster first and then into a record in Neutron (`netdra.neutron.records`). Where the record has a word
that the Lease does not have, another cluster writes it, and nothing is deleted there. A cluster without the Lease takes
the record over, so an administrator decides by deleting the Lease.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from netdra.kube.client import Client
from netdra.kube.errors import NotFoundError
from netdra.kube.leader import LEASES, Lease, LeaseSpec
from netdra.model.errors import NetdraError
from netdra.model.meta import ObjectMeta
from netdra.neutron.client import Neutron
from netdra.neutron.errors import ForbiddenError, NeutronRefusedError, OtherClusterError, QuotaError

log = logging.getLogger(__name__)

LEASE = "netdra-neutron"
WORDS = "networking.dra.io/neutron-words"
"""The annotation of the Lease with the words that the record may have: the one that it had, and the one it gets."""
FRESH_SECONDS = 60.0
"""How long the record is known to be this cluster's."""


class Ownership:
    """Whether this cluster, and not its copy, looks after its ports."""

    def __init__(
        self,
        client: Client,
        neutron: Neutron,
        namespace: str,
        cluster: Callable[[], Awaitable[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is known yet.

        Args:
            namespace: where the Lease is.
            cluster: the cluster's uid.
        """
        self._client, self._neutron, self._namespace, self._cluster = client, neutron, namespace, cluster
        self._clock = clock
        self._turn = asyncio.Lock()
        self._confirmed = -math.inf
        self._is_made = False

    async def confirm(self) -> None:
        """Return if the ports are this cluster's; that is known for a minute.

        Raises:
            OtherClusterError: another cluster with the same uid has written the record.
            NeutronError: Neutron does not answer.
            ApiError: the Lease cannot be read or written.
        """
        async with self._turn:
            if self._clock() - self._confirmed >= FRESH_SECONDS:
                await self._renew()
                self._confirmed = self._clock()

    async def keep(self, needed: Callable[[], bool]) -> None:
        """Write another word every minute while there is something to look after, until cancelled."""
        while True:
            if needed():
                try:
                    await self.confirm()
                except NetdraError as problem:
                    log.warning("ports in Neutron are not deleted: %s", problem)
            await asyncio.sleep(FRESH_SECONDS)

    async def _renew(self) -> None:
        cluster = await self._cluster()
        records = await self._neutron.records(cluster)
        lease = await self._lease()
        known = lease.metadata.annotations.get(WORDS, "").split() if lease is not None else []
        words = sorted(record.word for record in records)
        if lease is not None and not {*words} <= {*known}:
            raise OtherClusterError(
                f"Neutron: security group {records[0].name}: another cluster with the UID {cluster} "
                "manages the ports of both; this cluster is a copy of it, or was restored from a "
                "snapshot",
                hint=f"if the other cluster no longer exists: kubectl delete lease -n {self._namespace} "
                f"{LEASE}; otherwise configure another project for this cluster",
                code="ND3035",
            )
        if self._is_made and not records:
            return  # this Neutron takes none, or does not show it, or an administrator has deleted it
        word = secrets.token_hex(16)
        await self._write(lease, [*words, word])
        try:
            await self._neutron.write_record(cluster, records, word)
        except (QuotaError, ForbiddenError, NeutronRefusedError) as problem:
            if records:
                raise
            log.warning(
                "a copy of this cluster cannot be distinguished from it and would delete its ports: %s", problem
            )
        self._is_made = True

    async def _lease(self) -> Lease | None:
        try:
            return await self._client.get(LEASES, LEASE, self._namespace)
        except NotFoundError:
            return None

    async def _write(self, lease: Lease | None, words: list[str]) -> None:
        annotations = {WORDS: " ".join(words)}
        if lease is None:
            metadata = ObjectMeta(name=LEASE, namespace=self._namespace, annotations=annotations)
            await self._client.create(LEASES, Lease(metadata=metadata, spec=LeaseSpec(holder_identity=LEASE)))
        else:
            metadata = replace(lease.metadata, annotations={**lease.metadata.annotations, **annotations})
            await self._client.replace(LEASES, replace(lease, metadata=metadata))
