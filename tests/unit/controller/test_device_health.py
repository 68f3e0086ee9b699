"""Taints for faults of devices: a refused write delays no other, and no refusal makes them more than the cap allows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import msgspec

from netdra.controller.device_health import DeviceTaints
from netdra.controller.state import State
from netdra.health.rules import HealthCap, rule_name, rule_of
from netdra.kube.errors import RefusedError, Status
from netdra.kube.events import Recorder
from netdra.kube.queue import WorkQueue
from netdra.kube.resources import Resource
from netdra.model.names import DRIVER
from netdra.model.node_network import DeviceFault, NodeNetworkReport
from tests.memory_api import MemoryApi, T

DEVICES = [f"nic{number}" for number in range(6)]
RULES = "devicetaintrules"


class PickyApi(MemoryApi):
    """Refuses to write one rule, as an administrator's admission policy may.

    Attributes:
        refusals: how often it has.
        most: the most rules that existed at one time.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self.most = self.refusals = 0
        self.changed = asyncio.Condition()
        self._refused = rule_name("n", device)

    async def create(self, resource: Resource[T], new: T, *, dry_run: bool = False) -> T:
        await self._check_allowed(new.metadata.name)
        made = await super().create(resource, new, dry_run=dry_run)
        async with self.changed:
            self.most = max(self.most, len(self.objects[RULES]))
            self.changed.notify_all()
        return made

    async def delete(self, resource: Resource[T], seen: T) -> None:
        await self._check_allowed(seen.metadata.name)
        await super().delete(resource, seen)

    async def _check_allowed(self, name: str) -> None:
        if name == self._refused:
            async with self.changed:
                self.refusals += 1
                self.changed.notify_all()
            raise RefusedError("denied by a policy", Status(code=403))

    def tainted(self) -> set[str]:
        return {value["spec"]["deviceSelector"]["device"] for value in self.objects.get(RULES, {}).values()}


def fault(device: str) -> dict[str, Any]:
    return {"pool": "n", "device": device, "policy": "p", "rule": "r", "effect": "NoSchedule", "since": device}


async def until_refused_twice(api: PickyApi, faulty: Sequence[str], cap: HealthCap) -> None:
    """Have the controller taint the faulty devices of a node, and try a refused write again."""
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": name} for name in DEVICES]
    spec = {"driver": DRIVER, "nodeName": "n", "pool": pool, "devices": devices}
    api.put("resourceslices", {"metadata": {"name": "s"}, "spec": spec})
    state = State(api, WorkQueue("none", lambda _: asyncio.sleep(0)))
    status = {"faults": [fault(name) for name in faulty], "watchedDevices": len(DEVICES)}
    state.nodes.put("n", msgspec.convert({"metadata": {"name": "n"}, "status": status}, NodeNetworkReport))
    state.nodes.advance("1")
    taints = DeviceTaints(api, Recorder(api, "dra.networking/controller", "x"), state, cap, nullcontext)
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(taints.run())
        async with api.changed:
            await api.changed.wait_for(lambda: api.refusals >= 2)
        running.cancel()


def test_a_taint_that_is_refused_delays_no_other() -> None:
    async def story(refused: str) -> None:
        api = PickyApi(refused)
        await until_refused_twice(api, DEVICES, HealthCap(node=100, cluster=100))
        assert api.tainted() == {*DEVICES} - {refused}

    for refused in sorted(DEVICES, key=lambda device: rule_name("n", device))[::3]:
        asyncio.run(story(refused))


def test_a_taint_that_cannot_be_removed_counts_for_the_cap() -> None:
    async def story() -> None:
        api = PickyApi("nic0")
        api.put(RULES, msgspec.to_builtins(rule_of("n", msgspec.convert(fault("nic0"), DeviceFault))))
        await until_refused_twice(api, DEVICES[1:], HealthCap(node=50, cluster=100))
        assert api.tainted() == {"nic0", "nic1", "nic2"}
        assert api.most == 3

    asyncio.run(story())
