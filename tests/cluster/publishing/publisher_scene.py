"""A publisher of one node's slices on the real API server, and slices for it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import msgspec

from netdra.kube.client import Client
from netdra.kube.connection import connect
from netdra.kube.reflector import Reflector
from netdra.kube.store import Store
from netdra.model import names
from netdra.model.device import ExposedCounterSet, ExposedDevice, ExposureResult
from netdra.model.meta import ObjectMeta
from netdra.model.resource import (
    CapacityRequestPolicy,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from netdra.node.publishing.publisher import STORED_SLICES, PoolWrites, Publisher, of_node
from netdra.node.publishing.reconcile import content, owner_of
from netdra.slices.pack import layout
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import NODE, SLICE
from testbed.waiting import awaited
from testbed.workspace import Workspace
from tests.cluster.fault_proxy import FaultProxy

SLOTS = {"dra.networking/slots": DeviceCapacity(value="64", request_policy=CapacityRequestPolicy(default="1"))}


def exposed(node: str, count: int, *, mtu: int = 1500) -> ExposureResult:
    """The devices that a node offers: one pool of shared personas that consume counters."""
    pool = f"{node}/sriov-eth0"
    devices = tuple(
        ExposedDevice(
            name=f"eth0v{number}",
            pool=pool,
            interface=f"i{number}",
            policy="p",
            attributes={"dra.networking/mtu": mtu, "dra.networking/supportedCNIs": ("sriov", "host-device")},
            capacity=SLOTS,
            shared=True,
            consumes={"eth0-counters": {"exclusion-slots": 1}},
        )
        for number in range(count)
    )
    counters = ExposedCounterSet(name="eth0-counters", pool=pool, counters={"exclusion-slots": count + 1})
    return ExposureResult(devices=devices, counter_sets=(counters,))


def packed(node: str, count: int, *, mtu: int = 1500) -> tuple[ResourceSlice, ...]:
    return layout(exposed(node, count, mtu=mtu), node=node).slices


@dataclass
class Scene:
    """A node, its publisher behind a proxy, and the publisher's reports."""

    node: str
    api: Api
    proxy: FaultProxy
    publisher: Publisher
    reports: list[tuple[str, PoolWrites]] = field(default_factory=list)

    async def settle(self, slices: tuple[ResourceSlice, ...]) -> None:
        self.publisher.want(slices)
        await self.settled()

    async def settled(self) -> None:
        await awaited(self.publisher.wait_published(), "the publisher to settle")

    def stored(self) -> list[Object]:
        return self.api.list(SLICE, fields=f"spec.nodeName={self.node}")

    def content(self) -> list[ResourceSliceSpec]:
        return contents(msgspec.convert(item["spec"], ResourceSliceSpec) for item in self.stored())

    def written(self, since: float, until: float = math.inf) -> int:
        return sum(request.method != "GET" for request in self.proxy.requests if since <= request.at < until)


def contents(specs: Iterator[ResourceSliceSpec]) -> list[ResourceSliceSpec]:
    return sorted((content(spec) for spec in specs), key=msgspec.json.encode)


def as_stored(slices: tuple[ResourceSlice, ...]) -> list[ResourceSliceSpec]:
    return contents(one.spec for one in slices)


@asynccontextmanager
async def publishing(plane: ControlPlane, workspace: Workspace) -> AsyncIterator[Scene]:
    node = workspace.add_node()
    uid = workspace.api.get(NODE, node)["metadata"]["uid"]
    reports: list[tuple[str, PoolWrites]] = []
    async with FaultProxy(plane).serving() as proxy, Client(connect(proxy.config)) as client:
        reflector = Reflector(client, STORED_SLICES, Store(), of_node(node))
        publisher = Publisher(
            client, reflector.store, owner_of(node, uid), lambda pool, written: reports.append((pool, written))
        )
        tasks = [asyncio.create_task(reflector.run()), asyncio.create_task(publisher.run())]
        try:
            yield Scene(node, workspace.api, proxy, publisher, reports)
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
            for item in workspace.api.list(SLICE, fields=f"spec.nodeName={node}"):
                workspace.api.delete(SLICE, item["metadata"]["name"])


def one_slice(node: str, *devices: str, taint: str = "") -> tuple[ResourceSlice, ...]:
    taints = (DeviceTaint(key=taint, effect="NoSchedule"),) if taint else ()
    spec = ResourceSliceSpec(
        driver=names.DRIVER,
        pool=ResourcePool(name=f"{node}/nic", generation=1, resource_slice_count=1),
        node_name=node,
        devices=tuple(
            Device(name=name, attributes={"dra.networking/ifName": DeviceAttribute(string=name)}, taints=taints)
            for name in devices
        ),
    )
    return (ResourceSlice(metadata=ObjectMeta(name=f"{node}-nic-0"), spec=spec),)
