"""Taints for faults of devices are written one by one: a refused one delays no other."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import msgspec

from netdra.controller.device_health import DeviceTaints
from netdra.controller.state import State
from netdra.health.rules import HealthCap, rule_name
from netdra.kube.errors import RefusedError, Status
from netdra.kube.events import Recorder
from netdra.kube.queue import WorkQueue
from netdra.kube.resources import Resource
from netdra.model.names import DRIVER
from netdra.model.node_network import NodeNetworkReport
from tests.memory_api import MemoryApi, T

DEVICES = [f"nic{number}" for number in range(6)]
REFUSED = rule_name("n", sorted(DEVICES, key=lambda device: rule_name("n", device))[2])


class PickyApi(MemoryApi):
    """Refuses one rule, as an administrator's admission policy may."""

    def __init__(self) -> None:
        super().__init__()
        self.complete = asyncio.Event()

    async def create(self, resource: Resource[T], new: T, *, dry_run: bool = False) -> T:
        if new.metadata.name == REFUSED:
            raise RefusedError("denied by a policy", Status(code=403))
        made = await super().create(resource, new, dry_run=dry_run)
        if len(self.objects["devicetaintrules"]) == len(DEVICES) - 1:
            self.complete.set()
        return made


def test_a_taint_that_is_refused_delays_no_other() -> None:
    async def story() -> None:
        api = PickyApi()
        pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": name} for name in DEVICES]
        spec = {"driver": DRIVER, "nodeName": "n", "pool": pool, "devices": devices}
        api.put("resourceslices", {"metadata": {"name": "s"}, "spec": spec})
        state = State(api, WorkQueue("none", lambda _: asyncio.sleep(0)))
        faults = [
            {"pool": "n", "device": name, "policy": "p", "rule": "r", "effect": "NoSchedule", "since": f"{place}"}
            for place, name in enumerate(DEVICES)
        ]
        reported = {"metadata": {"name": "n"}, "status": {"faults": faults, "watchedDevices": len(DEVICES)}}
        state.nodes.put("n", msgspec.convert(reported, NodeNetworkReport))
        state.nodes.advance("1")
        cap = HealthCap(node=100, cluster=100)
        taints = DeviceTaints(api, Recorder(api, "dra.networking/controller", "x"), state, cap, nullcontext)
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(taints.run())
            await api.complete.wait()
            running.cancel()
        names = {name for _, name in api.objects["devicetaintrules"]}
        assert names == {rule_name("n", device) for device in DEVICES} - {REFUSED}

    asyncio.run(story())
