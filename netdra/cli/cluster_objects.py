"""The objects of a cluster that a command needs, read only, with the user's kubeconfig. Called by `netdra.cli.objects`.

A right that the user does not have is reported on stderr, and the rest is read.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from netdra.cli import terminal
from netdra.cli.shared import ClusterAccess
from netdra.cluster.reading import ObjectReader
from netdra.kube import resources
from netdra.kube.client import Selection
from netdra.kube.features import scheduler_version
from netdra.kube.resources import Resource
from netdra.model.core import ClusterNode, ServiceCIDR
from netdra.model.errors import InvalidInputError
from netdra.model.neutron_port import NeutronPort
from netdra.model.scheduler_version import NEWEST_SCHEDULER, SchedulerVersion
from netdra.rules import taken_ranges
from netdra.rules.taken_ranges import TakenRange

Kind = TypeVar("Kind")

_RESOURCES: dict[type, Resource[Any]] = {
    resource.type: resource
    for resource in (
        resources.NODES,
        resources.RESOURCE_SLICES,
        resources.RESOURCE_CLAIMS,
        resources.CLAIM_TEMPLATES,
        resources.DEVICE_CLASSES,
        resources.POLICIES,
        resources.TOPOLOGIES,
        resources.SCHEMAS,
        resources.CUSTOM_DEVICES,
        resources.NODE_NETWORKS,
        resources.POD_NETWORKS,
        resources.NEUTRON_PORTS,
        resources.SERVICE_CIDRS,
    )
}


class ClusterObjects(NamedTuple):
    """The objects that were read from a cluster.

    Attributes:
        objects: by their kind.
        refusals: by kind, why it could not be read.
        namespace: the namespace of the user's context.
        version: that of the server.
    """

    objects: dict[type, list[Any]]
    refusals: dict[type, str]
    namespace: str
    version: SchedulerVersion = NEWEST_SCHEDULER

    def of(self, kind: type[Kind]) -> list[Kind]:
        """The objects of a kind."""
        return self.objects.get(kind, [])

    def key(self, entry: Any) -> tuple[str, str]:
        """An object's namespace and name; one of a file that names no namespace is created in the context's."""
        resource = _RESOURCES.get(type(entry))
        is_namespaced = resource is not None and resource.namespaced
        return (entry.metadata.namespace or self.namespace) if is_namespaced else "", entry.metadata.name

    def refused(self) -> dict[str, str]:
        """The kinds that could not be read, by their plurals."""
        return {_RESOURCES[kind].plural: kind.__name__ for kind in self.refusals}

    def require(self, kinds: Iterable[type]) -> None:
        """See that kinds could be read.

        Raises:
            InvalidInputError: one could not.
        """
        for kind in kinds:
            if kind in self.refusals:
                raise InvalidInputError(self.refusals[kind], code="ND4005")


def read(access: ClusterAccess, kinds: Iterable[type], driver: str = "") -> ClusterObjects:
    """The objects of kinds. Rights and kinds that are missing are reported on stderr.

    Args:
        access: the way to the cluster.
        kinds: the types of the objects.
        driver: the only driver whose slices are read; "" for all.

    Raises:
        InvalidInputError: the cluster cannot be found.
        ApiError: it cannot be read.
    """
    namespace = access.config().namespace
    found = asyncio.run(_read(access, tuple(kinds), driver))
    for text in found.refusals.values():
        terminal.tell(text)
    return found._replace(namespace=namespace)


def taken(access: ClusterAccess) -> Iterator[TakenRange]:
    """The ranges of Services, of nodes' pods, and of the subnets of Neutron's ports, as far as they can be read.

    Raises:
        InvalidInputError, ApiError: as of `read`.
    """
    found = read(access, (ServiceCIDR, ClusterNode, NeutronPort))
    yield from itertools.chain.from_iterable(map(taken_ranges.of_services, found.of(ServiceCIDR)))
    yield from itertools.chain.from_iterable(map(taken_ranges.of_node, found.of(ClusterNode)))
    yield from itertools.chain.from_iterable(map(taken_ranges.of_port, found.of(NeutronPort)))


async def _read(access: ClusterAccess, kinds: tuple[type, ...], driver: str) -> ClusterObjects:
    async with access.client() as client:
        reader = ObjectReader(client)
        lists = await asyncio.gather(*(reader.list(_RESOURCES[kind], _selection(kind, driver)) for kind in kinds))
        plurals = {kind: _RESOURCES[kind].plural for kind in kinds}
        unread = {kind: reader.unread[plural] for kind, plural in plurals.items() if plural in reader.unread}
        objects = {kind: [*found] for kind, found in zip(kinds, lists, strict=True) if kind not in unread}
        return ClusterObjects(objects, unread, "", await scheduler_version(client))


def _selection(kind: type, driver: str) -> Selection:
    is_of_driver = driver and _RESOURCES[kind] is resources.RESOURCE_SLICES
    return Selection(field_selector=f"spec.driver={driver}" if is_of_driver else "")
