"""Releases addresses of PodNetworks that are kept without a claim, at an administrator's command.

Called by `netdra networks release-kept`. `netdra.networks.kept` selects the addresses. A PodAddress is deleted only in
the state that was read, so an address that a claim has got meanwhile stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from netdra.controller.addresses.imports import write_few
from netdra.kube.client import Client
from netdra.kube.errors import ConflictError, NotFoundError
from netdra.kube.resources import POD_ADDRESSES, POD_NETWORKS
from netdra.model.errors import InvalidInputError
from netdra.networks import kept
from netdra.networks.kept import KeptRelease, KeptSelection


async def plan(client: Client, selection: KeptSelection, now: datetime) -> list[KeptRelease]:
    """The kept addresses that are selected.

    Raises:
        InvalidInputError: a PodNetwork neither exists nor has addresses.
        ApiError: the API server refuses, or does not answer.
    """
    networks = {network.name: network for network in await client.list(POD_NETWORKS)}
    addresses = await client.list(POD_ADDRESSES)
    known = {*networks, *(address.spec.network for address in addresses)}
    for name in selection.networks:
        if name not in known:
            raise InvalidInputError(
                f'PodNetwork "{name}" does not exist', hint="kubectl get podnetworks", code="ND3028"
            )
    return [*kept.releases(addresses, networks, selection, now)]


async def write(
    client: Client, releases: Sequence[KeptRelease], advance: Callable[[], None] = lambda: None
) -> list[KeptRelease]:
    """Release the addresses that can be released; returns all of them with their new states.

    Args:
        releases: as `plan` returns them.
        advance: called after each write.

    Raises:
        ApiError: the API server refuses, or does not answer; a second run does the rest.
    """
    return await write_few(partial(_write, client), releases, advance)


async def _write(client: Client, release: KeptRelease) -> KeptRelease:
    try:
        await client.delete(POD_ADDRESSES, release.stored)
    except ConflictError:
        try:
            return kept.refused(release, await client.get(POD_ADDRESSES, release.stored.name))
        except NotFoundError:
            return kept.released(release)
    except NotFoundError:
        pass
    return kept.released(release)
