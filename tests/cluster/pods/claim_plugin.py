"""`python -m tests.cluster.pods.claim_plugin`: the kubelet plugin alone, on a node of the test bed, for one test.

It prepares claims for real, against slices that the test has published; nothing is attached. With `attach UID` as
further arguments it does the step after a successful chain: it lets the claim's containers be made.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from netdra.kube.client import Client, Selection
from netdra.kube.connection import connect, find_config
from netdra.kube.resources import RESOURCE_SLICES
from netdra.model.plan import PlannedDevice
from netdra.model.resource import ResourceSlice
from netdra.model.topology import NetworkTopology
from netdra.node import metrics
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.store import ClaimStore
from netdra.node.hardware import HardwareTable
from netdra.node.kubelet.plugin import KubeletPlugin, sockets
from netdra.node.kubelet.services import ClaimServices
from netdra.node.priority import PriorityGate, Turns
from netdra.node.view import DeviceHealth, HeldDevice, Recorded
from netdra.topology.devices import DeviceKey, from_slices
from tests.cluster.claims.alone import handler

STATE = Path("/var/lib/netdra")
SICK = STATE / "sick"  # as long as it is there, no device is well


class Slices:
    """The slices that a node publishes, read once."""

    ready = True
    labels: Mapping[str, str] | None = None
    topologies: Mapping[str, NetworkTopology] = {}
    held: Sequence[HeldDevice] = ()
    vfs: Mapping[DeviceKey, Sequence[PlannedDevice]] = {}
    hardware = HardwareTable()

    def __init__(self, slices: Sequence[ResourceSlice]) -> None:
        self.slices = slices

    @property
    def devices(self) -> Mapping[DeviceKey, PlannedDevice]:
        return from_slices(self.slices)

    def has_sandbox(self, claim: str) -> bool:
        return False

    def unrecorded(self, recorded: Recorded) -> Sequence[HeldDevice]:
        return ()

    async def health(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        told = None
        while True:
            sick = await asyncio.to_thread(SICK.exists)
            if sick != told:
                told = sick
                yield [DeviceHealth(pool=pool, device=device, healthy=not sick) for pool, device in self.devices]
            await asyncio.sleep(0.1)


async def main(kubeconfig: Path, node: str, instance: str) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    paths = sockets(instance=instance)
    async with Client(connect(find_config(kubeconfig))) as client:
        view = Slices(await client.list(RESOURCE_SLICES, Selection(field_selector=f"spec.nodeName={node}")))
        store = ClaimStore.of_state(STATE)
        turns = Turns(PriorityGate())
        claims = handler(client, node, view, view, store, ClaimFiles(plugin=paths.plugin), turns)
        plugin = KubeletPlugin(
            paths,
            ClaimServices(claims, lambda: None, lambda: None, turns, lambda _claim, _problem, _hint: None),
            view.health,
        )
        serving = asyncio.create_task(plugin.run())
        while not stopped.is_set():
            times = metrics.NODE.registry.get_sample_value("netdra_kubelet_registrations_total", {"outcome": "ok"})
            (STATE / f"registered{instance}").write_text(str(int(times or 0)))
            await asyncio.sleep(0.1)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


def attach(uid: str) -> None:
    claim = ClaimStore.of_state(STATE).get(uid)
    assert claim is not None
    ClaimFiles(plugin=sockets().plugin).write_spec(claim, ())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    match sys.argv[1:]:
        case ["attach", uid]:
            attach(uid)
        case [kubeconfig, node, instance]:
            asyncio.run(main(Path(kubeconfig), node, instance))
