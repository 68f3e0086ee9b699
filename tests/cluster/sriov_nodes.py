"""Nodes whose SR-IOV NICs are given by tests, since the test bed's kernel has none; all else of them is netdra's own.

Each publishes its interfaces and prepares claims as the node daemon does, with the rights of its service account. They
run in one thread of their own, so that tests are plain functions.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from netdra.chain.site import ChainSettings
from netdra.discovery.watch import InterfaceChanges, Watcher
from netdra.kernel.sysfs import Sysfs
from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config
from netdra.model import names
from netdra.model.inventory import Interface, Inventory, InventoryNode
from netdra.model.plan import ClaimReference
from netdra.model.registration import Registration
from netdra.model.resource import ResourceSlice
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.store import ClaimStore, PreparedClaim, PreparedDevice
from netdra.node.publishing.service import Publishing
from netdra.node.registry.table import FILE, RegistrationTable
from netdra.node.sandboxes.network import Network
from netdra.node.sandboxes.table import Table
from testbed.api import Api, Object, Objects
from testbed.control_plane import ControlPlane
from testbed.objects import SLICE
from testbed.waiting import until
from tests.cluster import identities
from tests.cluster.claims.alone import handler

WITHIN = 60.0
PROVIDER = "uid 0"
T = TypeVar("T")


class GivenInterfaces(Watcher):
    """Interfaces in the place of the kernel's; `change` is an event of their kernel."""

    def __init__(self, node: str, interfaces: Sequence[Interface], folder: Path) -> None:
        """Begin; `folder` becomes a sysfs with the devices on the bus and no facts of them."""
        self.node = InventoryNode(name=node)
        self.rescans, self.events, self.overflows = 1, 0, 0
        self.left = {}
        self._given = {interface.device_name: interface for interface in interfaces}
        self._given_sysfs = Sysfs(str(folder))
        for interface in interfaces:
            (folder / "bus/pci/devices" / interface.pci_address).mkdir(parents=True)
        self._event = os.eventfd(0, os.EFD_NONBLOCK)

    def close(self) -> None:
        os.close(self._event)

    def fileno(self) -> int:
        return self._event

    @property
    def sysfs(self) -> Sysfs:
        return self._given_sysfs

    @property
    def inventory(self) -> Inventory:
        return Inventory(node=self.node, interfaces=tuple(self._given.values()))

    @property
    def timeout(self) -> float:
        return 3600.0

    @property
    def stale(self) -> bool:
        return False

    @property
    def arriving(self) -> frozenset[int]:
        return frozenset()

    @property
    def settling(self) -> float:
        return 0.0

    def handle(self) -> InterfaceChanges:
        with suppress(BlockingIOError):
            self.events += os.eventfd_read(self._event)
            every = tuple(self._given.values())
            return InterfaceChanges(changed=tuple(zip(every, every, strict=True)))
        return InterfaceChanges()

    def change(self, name: str, **facts: Any) -> None:
        """Facts of an interface become others."""
        self._given = {**self._given, name: msgspec.structs.replace(self._given[name], **facts)}
        os.eventfd_write(self._event, 1)


class SRIOVNode:
    """One node.

    Attributes:
        interfaces: its interfaces.
        publishing: its publishing half.
        registry: the registrations of its devices.
        store: the records of its claims.
        files: the files of its claims.
    """

    def __init__(self, api: Api, client: Client, name: str, interfaces: Sequence[Interface], folder: Path) -> None:
        """Prepare it; `open_nodes` runs it."""
        self.name = name
        self._api = api
        self._loop = asyncio.get_running_loop()
        self.interfaces = GivenInterfaces(name, interfaces, folder / "sys")
        self.registry = RegistrationTable(folder / FILE, changed=lambda: self.publishing.look_again())
        self.publishing = Publishing(client, name, lambda: self.interfaces, leased=lambda: self.registry.registrations)
        self.files = ClaimFiles(plugin=folder / "plugin", cdi=folder / "cdi")
        self.store = ClaimStore.of_state(folder / "state")
        self.sandboxes = Table(self.files, self.store)
        holder = Network(ChainSettings(state=folder / "checkpoints"), self.sandboxes)
        self._claims = handler(client, name, self.publishing, holder, self.store, self.files)
        self.publishing.know_holder(holder)

    def prepare(self, claim: ClaimReference) -> tuple[PreparedDevice, ...]:
        """Prepare a claim, as the kubelet has it done."""
        prepared = self._run(self._claims.prepare(claim))
        self.call_soon(self.publishing.look_again)
        return prepared

    def unprepare(self, claim: ClaimReference) -> None:
        """Undo that."""
        self._run(self._claims.unprepare(claim))
        self.call_soon(self.publishing.look_again)

    def record(self, claim: ClaimReference) -> PreparedClaim:
        """A prepared claim's record."""
        record = self.store.get(claim.uid)
        assert record is not None
        return record

    @contextmanager
    def registered(self, *registrations: Registration) -> Iterator[None]:
        """Things that a program on the node has registered of devices."""

        async def put() -> None:
            for registration in registrations:
                self.registry.put(registration, PROVIDER, 3600.0)
            self.publishing.look_again()

        async def remove() -> None:
            for registration in registrations:
                self.registry.remove(registration.provider, registration.device, PROVIDER)
            self.publishing.look_again()

        self._run(put())
        try:
            yield
        finally:
            self._run(remove())

    @contextmanager
    def without_link(self, pf: str) -> Iterator[None]:
        """A PF has no carrier, and its VFs have the taint that states so."""
        self.interfaces.change(pf, no_carrier=True, oper_state="down")
        self.wait(lambda found: [taint["key"] for taint in found[f"{pf}-vfs"].get("taints", ())] == [names.LINK_DOWN])
        try:
            yield
        finally:
            self.interfaces.change(pf, no_carrier=False, oper_state="up")
            self.wait(lambda found: not found[f"{pf}-vfs"].get("taints"))

    def slices(self) -> list[ResourceSlice]:
        """Its slices as the API server has them."""
        return [msgspec.convert(each, ResourceSlice) for each in self._api.list(SLICE, fields=self._own)]

    def wait(self, met: Callable[[dict[str, Object]], bool]) -> None:
        """Wait until its published devices, by name, meet a condition."""

        def published(items: Objects) -> bool:
            return met({device["name"]: device for item in items for device in item["spec"].get("devices", ())})

        self._api.wait_for_all(SLICE, published, fields=self._own)

    def call_soon(self, act: Callable[[], object]) -> None:
        """Do something in the nodes' thread."""
        self._loop.call_soon_threadsafe(act)

    @property
    def _own(self) -> str:
        return f"spec.nodeName={self.name}"

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WITHIN)


@contextmanager
def open_nodes(
    plane: ControlPlane, api: Api, machines: Mapping[str, Sequence[Interface]], folder: Path
) -> Iterator[dict[str, SRIOVNode]]:
    """Nodes that exist as objects, by name, from when all of them have published until the end.

    Args:
        plane: the control plane, with netdra's service accounts.
        api: the administrator's client.
        machines: each node's interfaces.
        folder: a folder for their files.
    """
    accounts = {name: identities.kubeconfig(plane, api, "netdra-node", name) for name in machines}
    nodes: dict[str, SRIOVNode] = {}
    ended = asyncio.Event()

    async def run() -> None:
        async with AsyncExitStack() as undo, asyncio.TaskGroup() as tasks:
            running = []
            for name, interfaces in machines.items():
                client = await undo.enter_async_context(Client(connect(find_config(accounts[name]))))
                nodes[name] = node = SRIOVNode(api, client, name, interfaces, folder / name)
                undo.callback(node.sandboxes.namespaces.close)
                running.append(tasks.create_task(node.publishing.run()))
            await ended.wait()
            for task in running:
                task.cancel()

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(asyncio.run, run())

        def have_published() -> bool:
            if running.done():
                running.result()
            return len(nodes) == len(machines) and all(node.publishing.published.is_set() for node in nodes.values())

        try:
            until(have_published, "the nodes to publish")
            yield nodes
        finally:
            if not running.done():
                next(iter(nodes.values())).call_soon(ended.set)
        running.result()
    for name in machines:
        api.delete_all(SLICE, fields=f"spec.nodeName={name}")
