"""A node that publishes its interfaces through a proxy, and the test's changes to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from netdra.cni.plugins import PluginPath
from netdra.discovery.watch import Watcher
from netdra.kube.client import Client
from netdra.kube.connection import connect
from netdra.model.inventory import InventoryNode
from netdra.model.names import DRIVER
from netdra.node.publishing.service import Publishing
from netdra.node.view import HeldDevice
from testbed.api import Api, Object, Objects
from testbed.control_plane import ControlPlane
from testbed.objects import SLICE
from testbed.waiting import until_async, waiting
from testbed.workspace import Workspace
from tests.cluster.fault_proxy import FaultProxy
from tests.kernel.conftest import Machine

POLICY = "networking.dra.io/v1alpha1/DeviceExposurePolicy"
EVENT = "events.k8s.io/v1/Event"
VETHS = 'device.attributes["dra.networking"].ifName.startsWith("eth")'
QUIET_SECONDS = 0.5  # what is written comes of something that happened, which is over by then
REST_SECONDS = 1.5  # the kernel tells a change of carrier within a second


@dataclass
class Hands:
    """The devices of each claim, as the test defines."""

    held: Sequence[HeldDevice] = ()


@dataclass
class Scene:
    """A node that publishes through a proxy."""

    node: str
    api: Api
    machine: Machine
    proxy: FaultProxy
    publishing: Publishing
    hands: Hands = field(default_factory=Hands)

    def until(self, condition: Callable[[Objects], bool]) -> Objects:
        return self.api.wait_for_all(SLICE, condition, fields=f"spec.nodeName={self.node}")

    async def wait(self, condition: Callable[[dict[str, Object]], bool]) -> dict[str, Object]:
        """Wait until the published devices are as they should be."""
        return devices(await asyncio.to_thread(self.until, lambda items: condition(devices(items))))

    async def devices(self, *expected: str) -> dict[str, Object]:
        return await self.wait(lambda found: set(found) == set(expected))

    def slices(self) -> Objects:
        return self.api.list(SLICE, fields=f"spec.nodeName={self.node}")

    def writes(self, since: float) -> list[str]:
        return [
            request.method
            for request in self.proxy.requests
            if request.at >= since and request.method != "GET" and "resourceslices" in request.path
        ]

    async def quiet(self) -> None:
        """Assert that nothing is written while nothing happens."""
        await self.at_rest()
        since, passes = time.monotonic(), self.publishing.passes
        with waiting("nothing to be published"):
            await asyncio.sleep(QUIET_SECONDS)
        assert self.writes(since) == []
        assert self.publishing.passes == passes

    async def at_rest(self) -> None:
        """Wait until the effects of the last change are over: events of the kernel may arrive one by one."""
        passes, since = self.publishing.passes, time.monotonic()

        def rests() -> bool:
            nonlocal passes, since
            if passes != self.publishing.passes:
                passes, since = self.publishing.passes, time.monotonic()
            return time.monotonic() - since >= REST_SECONDS

        await until_async(rests, "publishing to come to rest")

    async def looks_again(self) -> None:
        """Wait until it was worked out again what is to be published."""
        passes = self.publishing.passes
        await until_async(lambda: self.publishing.passes > passes, "the next pass")

    def hold(self, device: str, trouble: str = "") -> None:
        key = (f"{self.node}/veth-{device.removesuffix('-macvlan')}", device)
        self.hands.held = (HeldDevice(key=key, claim="uid", trouble=trouble),)
        self.publishing.look_again()

    def release(self) -> None:
        self.hands.held = ()
        self.publishing.look_again()


def devices(items: Objects) -> dict[str, Object]:
    return {device["name"]: device for item in items for device in item["spec"].get("devices", ())}


def taints(device: Object) -> list[str]:
    return [taint["key"] for taint in device.get("taints", ())]


@asynccontextmanager
async def publishing(
    plane: ControlPlane,
    workspace: Workspace,
    machine: Machine,
    plugins: PluginPath | None = None,
    *,
    runs_all: bool = True,
    client: Client | None = None,
) -> AsyncIterator[Scene]:
    """A node that publishes, by a client of its own; it runs all plugins that it has, or those that policies name."""
    node = workspace.add_node()
    hands = Hands()

    def watch() -> Watcher:
        return machine.namespace.run(lambda: Watcher(InventoryNode(name=node)))

    async with FaultProxy(plane).serving() as proxy, Client(connect(proxy.config)) as through_proxy:
        service = Publishing(
            client or through_proxy,
            node,
            watch,
            plugins,
            lambda plugin: runs_all or plugin in (service.named_plugins or ()),
        )
        service.know_holder(hands)
        task = asyncio.create_task(service.run())
        try:
            yield Scene(node, workspace.api, machine, proxy, service, hands)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            workspace.api.delete_all(SLICE, fields=f"spec.nodeName={node}")


def policy(workspace: Workspace, cel: str = VETHS, name: str = "veths", **spec: Any) -> Object:
    """A policy of this test's nodes."""
    return workspace.create(
        {
            "apiVersion": "networking.dra.io/v1alpha1",
            "kind": "DeviceExposurePolicy",
            "metadata": {"name": workspace.name(name)},
            "spec": {"selector": {"cel": cel}, **spec},
        }
    )


def about(events: Objects, name: str) -> Objects:
    """The driver's events about an object; of a node, Kubernetes writes events as well."""
    return [
        each
        for each in events
        if each.get("regarding", {}).get("name") == name and each["reportingController"].startswith(f"{DRIVER}/")
    ]


SHARED = {
    "deviceNameSuffix": "-macvlan",
    "allowMultipleAllocations": True,
    "capacity": {"macvlans": {"value": "64", "requestPolicy": {"default": "1"}}},
    "supportedCNIPlugins": [{"name": "macvlan"}],
}
