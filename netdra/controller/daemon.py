"""The controller's process: takes part in the election, works while it leads, and reports its health.

Called by `netdra controller`, which gives it an API client.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from netdra.controller.addresses.pod_addresses import PodAddresses
from netdra.controller.controller import Controller
from netdra.controller.device_health import DeviceTaints
from netdra.controller.plugins.cluster_plugins import ClusterPlugins
from netdra.controller.plugins.installers import InstallerSettings
from netdra.controller.services.endpoints import ServiceEndpoints
from netdra.health.rules import DEFAULT_CAP, HealthCap
from netdra.kube.client import Client
from netdra.kube.events import Recorder
from netdra.kube.health import reachable, synced
from netdra.kube.leader import Election, Terms
from netdra.kube.undone_reports import UndoneReports
from netdra.model import names
from netdra.ops.health import Check, CheckResult
from netdra.ops.process import Process, spare_what_is_loaded

if TYPE_CHECKING:
    from netdra.controller.neutron.ports import NeutronSettings


REPORTER = f"{names.DRIVER}/controller"
FLUSH_SECONDS = 2.0


@dataclass(frozen=True)
class ControllerSettings:
    """The controller's settings.

    Attributes:
        namespace: where the lease is.
        identity: this process; no other may have the same.
        image: netdra's image, which installs CNI plugins; "" if none are to be installed.
        pull_secrets: names of the pull secrets of that image.
        cni_folder: the folder of CNI plugins on the nodes.
        allow_plugins: the nodes' list of plugins that topologies may run (`netdra.rules.runnable`).
        services: whether Services of PodNetworks get EndpointSlices.
        neutron: the cloud of VFs' ports; without it, Neutron is not asked.
        health: how many devices may be tainted for their faults at one time.
    """

    namespace: str
    identity: str
    image: str = ""
    pull_secrets: tuple[str, ...] = ()
    cni_folder: str = "/opt/cni/bin"
    allow_plugins: frozenset[str] = frozenset()
    services: bool = False
    neutron: NeutronSettings | None = None
    health: HealthCap = DEFAULT_CAP


async def run(client: Client, process: Process, settings: ControllerSettings, terms: Terms | None = None) -> None:
    """Work whenever this process leads, until cancelled."""
    election = Election(client, settings.namespace, names.CONTROLLER_LEASE, settings.identity, terms or Terms())
    process.health.ready("leadership", election.check)
    process.health.ready("api-server", reachable(client))
    process.health.ready("caches", _caches(client, election))
    recorder = Recorder(client, REPORTER, settings.identity)
    recording = [asyncio.create_task(recorder.run()), asyncio.create_task(UndoneReports(client, recorder).run())]
    spare_what_is_loaded()
    try:
        await election.run(lambda: _lead(client, recorder, process, settings))
    finally:
        # After the work has ended, because its last events are to be written too.
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await recorder.flush()
        for task in recording:
            task.cancel()


async def _lead(client: Client, recorder: Recorder, process: Process, settings: ControllerSettings) -> None:
    """Work until cancelled."""
    controller = Controller(client, recorder, process.in_hand, settings.allow_plugins)
    installing = InstallerSettings(
        image=settings.image,
        cni_folder=settings.cni_folder,
        namespace=settings.namespace,
        pull_secrets=settings.pull_secrets,
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(controller.run())
        tasks.create_task(ClusterPlugins(client, recorder, controller.state, installing, process.in_hand).run())
        addresses = PodAddresses(client, recorder, controller.state, process.in_hand)
        tasks.create_task(addresses.run())
        tasks.create_task(DeviceTaints(client, recorder, controller.state, settings.health, process.in_hand).run())
        if settings.services:
            tasks.create_task(ServiceEndpoints(client, recorder, addresses, process.in_hand).run())
        if settings.neutron is not None:
            from netdra.controller.neutron.ports import NeutronPorts

            ports = NeutronPorts(
                client, recorder, controller.state, settings.neutron, settings.namespace, process.in_hand
            )
            tasks.create_task(ports.run())


def _caches(client: Client, election: Election) -> Check:
    """The copies of the leader; other processes have none."""
    copies = synced(client)
    return lambda: (
        copies() if election.leads else CheckResult(ok=True, detail="not written, this replica is not the leader")
    )
