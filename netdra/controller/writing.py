"""Writes what the controller makes beside statuses: DeviceClasses, and the finalizer of topologies that are used.

Used by `netdra.controller.controller`, which knows what is to be written.
"""

from __future__ import annotations

import logging

from netdra.controller import metrics
from netdra.controller.classes import Changes
from netdra.kube.client import Client
from netdra.kube.errors import AlreadyExistsError, RefusedError
from netdra.kube.resources import DEVICE_CLASSES, TOPOLOGIES
from netdra.model import names
from netdra.model.topology import NetworkTopology
from netdra.ops.metrics import counted

log = logging.getLogger(__name__)

FINALIZER = f"{names.GROUP}/in-use"


async def write(client: Client, planned: Changes) -> str:
    """Write what is planned; what the API server refuses of it, or "".

    Raises:
        ApiError: it cannot be written just now.
    """
    refused: list[str] = []
    for each in planned.delete:
        with counted(metrics.CLASS_WRITES, "delete"):
            await client.delete(DEVICE_CLASSES, each)
        log.info('deleted DeviceClass "%s"', each.metadata.name)
    writes = (("create", client.create, planned.create), ("update", client.replace, planned.replace))
    for verb, send, group in writes:
        for each in group:
            try:
                with counted(metrics.CLASS_WRITES, verb):
                    await send(DEVICE_CLASSES, each)
                log.info('wrote DeviceClass "%s"', each.metadata.name)
            except AlreadyExistsError:
                continue  # the store will learn of it, and it is looked at again
            except RefusedError as problem:
                refused.append(problem.what)
    return "\n".join(refused)


async def hold(client: Client, topology: NetworkTopology, *, held: bool) -> None:
    """Keep a topology from going while it is used.

    Raises:
        ApiError: it was changed meanwhile, or cannot be written just now.
    """
    present = topology.metadata.finalizers
    if held == (FINALIZER in present) or (held and topology.metadata.deletion_timestamp):
        return
    kept = [name for name in present if name != FINALIZER]
    wanted = [*kept, FINALIZER] if held else kept
    version = topology.metadata.resource_version
    await client.merge(TOPOLOGIES, topology.name, {"metadata": {"finalizers": wanted, "resourceVersion": version}})
