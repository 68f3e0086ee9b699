"""The kernel refuses any request, at any call: no running pod loses its network, and no device its owner.

A refusal proves nothing about the object: a kernel without a free descriptor does not report that a namespace is gone.
The faults are drawn (`tests/draws.py`); the one that fails is printed, and drawn again by NETDRA_SEED.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from netdra.model.errors import NetdraError
from netdra.node.nri.hooks import Sandbox
from netdra.node.parts import Pods
from testbed.api import Object
from tests import draws, refusing
from tests.cluster.sandboxes.scene import Daemon, Scene, chain_of_three, step
from tests.cluster.sandboxes.test_any_order import only
from tests.refusing import Refusal

RUNS = draws.count(1, 250)
FAULTS = 40
LENGTHS = (1, 1, 2, 5, 20, 10**6)
SETTLING = 4
"""Looks that may be needed until all that has ended is given back."""


@dataclass
class Node:
    """Pods that run, and pods that come and go, each with a device of its own.

    Attributes:
        scene: where they are.
        daemon: the daemon of the moment.
        running: the sandboxes that run all the time.
        claims: the uids of their claims.
        comers: the pods that come and go, by the device that each takes from the node.
        come: their sandboxes.
        calls: how many calls each act makes.
    """

    scene: Scene
    daemon: Daemon
    running: Sequence[Sandbox]
    claims: frozenset[str]
    comers: Mapping[str, Object]
    come: list[Sandbox] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)

    @property
    def acts(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """The actions while the kernel refuses."""
        return {
            "scan": self.scan,
            "list": lambda: self.list(*self.running, *self.come),
            "list nothing": self.list,
            "compare": self.compare,
            "attach": self.attach,
            "undo": self.undo,
            "start": self.start,
        }

    async def scan(self) -> None:
        """Everything is inspected."""
        await self.daemon.pods.recovery.look_around()

    async def list(self, *sandboxes: Sandbox) -> None:
        """The runtime lists sandboxes, and everything is inspected."""
        with suppress(NetdraError):
            await self.daemon.pods.hooks.synchronize(sandboxes)
        await self.scan()

    async def compare(self) -> None:
        """Running pods are compared with their networks."""
        for sandbox in self.running:
            await self.daemon.pods.recovery._compare(sandbox.id)

    async def attach(self) -> None:
        """Pods come."""
        for sandbox in self.come:
            with suppress(NetdraError):
                await self.daemon.pods.hooks.run(sandbox, 20.0)

    async def undo(self) -> None:
        """Pods go."""
        for sandbox in self.come:
            with suppress(NetdraError):
                await self.daemon.pods.hooks.stop(sandbox, 20.0)

    async def start(self) -> None:
        """A daemon takes up the state of a former one, and takes its place."""
        pods = Pods.assemble(self.scene.dependencies(self.daemon.pods.tracker.client))
        try:
            await pods.recover()
            await pods.recovery.look_around()
        finally:
            await pods.hooks.aclose()

    async def fault(self, drawn: random.Random) -> None:
        """Something is done, the kernel refuses calls of it, and then no longer."""
        name = drawn.choice(list(self.acts))
        self.come = [self.scene.machine.sandbox(pod) for pod in self.comers.values()]
        if name != "attach":
            await self.attach()
        first, length = drawn.randint(1, self.calls.get(name, 1)), drawn.choice(LENGTHS)
        refusal = Refusal(drawn.choice(refusing.ERRNOS), first if name in self.calls else 0, length)
        with refusing.refusing(refusal), suppress(NetdraError):
            await self.acts[name]()
        self.calls[name] = max(refusal.calls, self.calls.get(name, 1))
        self.check(f"{name}, {refusal}")
        await self.settle(f"{name}, {refusal}")

    def check(self, what: str) -> None:
        """Running pods have their networks; each device is on the node, or a checkpoint names its pod."""
        machine = self.scene.machine
        for sandbox in self.running:
            assert "net1" in machine.links(sandbox), what
            assert sandbox.id in machine.checkpoints(), what
        if not {sandbox.id for sandbox in self.come} & machine.checkpoints():
            assert set(self.comers) <= machine.links(), what

    async def settle(self, what: str) -> None:
        """The comers go, and all that they had is returned."""
        machine, ids = self.scene.machine, {sandbox.id for sandbox in self.running}
        await self.daemon.synchronize(*self.running)
        await self.undo()
        for sandbox in self.come:
            machine.end(sandbox)
        for _ in range(SETTLING):
            await self.scan()
            if machine.checkpoints() == ids:
                break
        self.check(what)
        assert machine.checkpoints() == ids, what
        assert set(self.comers) <= machine.links(), what
        assert set(self.daemon.pods.network.table.namespaces.sandboxes()) == ids, what
        assert self.claims <= machine.specified(), what


@pytest.mark.parametrize("number", range(RUNS))
def test_no_running_pod_loses_its_network_and_no_device_its_owner(scene: Scene, number: int) -> None:
    devices = ("eth1", "eth2", "eth3", "eth4")
    scene.publish(*devices)
    moved = scene.topology("three", *chain_of_three())
    binary = scene.topology("binary", step("mac", "macvlan", {"mode": "bridge"}))
    kinds = dict(zip(devices, (moved, binary, moved, binary), strict=True))
    claims = {name: scene.claim(kind, selectors=only(name)) for name, kind in kinds.items()}
    pods = {name: scene.pod(claim) for name, claim in claims.items()}
    drawn = random.Random(f"{draws.seed()}-{number}")

    async def main() -> None:
        async with scene.daemon() as daemon:
            running = [scene.machine.sandbox(pods[name]) for name in devices[:2]]
            uids = frozenset(scene.uid(claims[name]) for name in devices[:2])
            node = Node(scene, daemon, running, uids, {name: pods[name] for name in devices[2:]})
            for sandbox in running:
                await daemon.run(sandbox)
            for _ in range(FAULTS):
                await node.fault(drawn)

    asyncio.run(main())
