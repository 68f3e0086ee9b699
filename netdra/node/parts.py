"""Puts the parts that keep pods together: the kubelet's services, the runtime's hooks, recovery, statuses, registry.

Imported by `netdra.node.daemon` when the node is published: what only pods need (gRPC, the chain) takes a third of the
time until the first slice. Every part gets its dependencies here; parts that need each other's events subscribe
to `netdra.node.signals`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from netdra.chain import checkpoint
from netdra.chain.site import ChainSettings
from netdra.kernel.sysfs import Sysfs
from netdra.kube.client import Client
from netdra.kube.events import ObjectReference, Occurrence, Recorder
from netdra.kube.store import Change
from netdra.model import names
from netdra.node import metrics
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.handler import Claims
from netdra.node.claims.store import ClaimStore
from netdra.node.health.service import DeviceHealthWatch
from netdra.node.kubelet.plugin import KubeletPlugin, sockets
from netdra.node.kubelet.services import ClaimServices
from netdra.node.nri.plugin import NriSettings, Plugin
from netdra.node.permits import EVERYTHING, NodePermits, permits_of
from netdra.node.priority import PriorityGate, Turns
from netdra.node.publishing.service import Publishing
from netdra.node.registry.callers import Callers
from netdra.node.registry.place import Place
from netdra.node.registry.service import Registry
from netdra.node.registry.table import RegistrationTable
from netdra.node.sandboxes.carriers import Carriers
from netdra.node.sandboxes.circuits import Circuits
from netdra.node.sandboxes.events import PodEvents
from netdra.node.sandboxes.examiner import Examiner
from netdra.node.sandboxes.hooks import Attachments, Threads
from netdra.node.sandboxes.network import Network
from netdra.node.sandboxes.recover import Recovery
from netdra.node.sandboxes.specifications import Specifications
from netdra.node.sandboxes.table import Table
from netdra.node.sandboxes.tracker import Tracker, WatchedPod
from netdra.node.sandboxes.writer import StatusWriter
from netdra.node.settings import NodeSettings
from netdra.node.signals import Signals
from netdra.node.traffic.links import PodLinks, broken
from netdra.node.traffic.reader import Traffic
from netdra.node.view import NodeView
from netdra.ops.health import CheckResult, ProcessHealth
from netdra.topology.devices import DeviceKey

_SWITCH_SECONDS = 0.0005


async def _never() -> None:
    """Nothing is reported: wait until cancelled."""
    await asyncio.Event().wait()


@dataclass(frozen=True)
class Dependencies:
    """The daemon's objects for the parts that keep pods and claims.

    Attributes:
        node: the node's name.
        settings: how chains are run here.
        files: where claims' files are.
        prepared: the claims that are prepared here.
        view: the node's devices and topologies.
        emit: takes an event.
        gate: the priority gate; statuses wait for it.
        turns: the claims that are worked on.
        threads: do blocking work, in the host's network namespace.
        permits: the parts of the node that authors of topologies may use.
        signals: the events that several parts must know.
        wait_addresses: returns once claims of the node may get addresses of PodNetworks.
        pod_network_kind: the PodNetworkKind by which claims' statuses report PodNetworks, "" if they do not.
    """

    client: Client
    node: str
    settings: ChainSettings
    files: ClaimFiles
    prepared: ClaimStore
    view: NodeView
    emit: Callable[[Occurrence], None]
    gate: PriorityGate = field(default_factory=PriorityGate)
    turns: Turns = field(default_factory=lambda: Turns(PriorityGate()))
    threads: Threads = field(default_factory=Threads.made)
    permits: NodePermits = EVERYTHING
    signals: Signals = field(default_factory=Signals)
    wait_addresses: Callable[[], Awaitable[None]] = _never
    pod_network_kind: str = ""

    def policy_of(self, key: DeviceKey) -> str:
        """The policy that offers a device of this node, "" where it is not known."""
        device = self.view.devices.get(key)
        return device.policy if device is not None else ""


@dataclass(frozen=True)
class Pods:
    """The parts that run for a node's pods.

    Attributes:
        hooks: answers the runtime's hooks.
        claims: answers the kubelet's calls.
        network: acts on sandboxes; it knows the held devices.
        examiner: examines the devices that came back.
        specifications: writes CDI specifications again that other programs removed.
        links: watches the links of pods.
    """

    hooks: Attachments
    claims: Claims
    network: Network
    tracker: Tracker
    writer: StatusWriter
    recovery: Recovery
    examiner: Examiner
    specifications: Specifications
    links: PodLinks
    wait_addresses: Callable[[], Awaitable[None]] = _never

    @classmethod
    def assemble(cls, given: Dependencies) -> Pods:
        """All parts, connected; nothing runs yet."""
        network = Network(given.settings, Table(given.files, given.prepared))
        events = PodEvents(given.emit, given.node)
        writer = StatusWriter(given.client, given.policy_of, given.pod_network_kind, gate=given.gate)
        tracker = Tracker.of_node(given.client, given.node, given.prepared, writer.note_read)
        examiner = Examiner(given.settings.state, given.threads.examining, events, given.gate, given.signals)
        claims = Claims(
            given.client,
            given.node,
            given.view,
            network,
            given.prepared,
            given.files,
            tracker,
            given.permits,
            given.turns,
            examiner.wait_examined,
        )
        carriers = Carriers(network=network, writer=writer, events=events)
        hooks = Attachments(
            tracker=tracker,
            view=given.view,
            network=network,
            claims=claims.lookup,
            writer=writer,
            events=events,
            carriers=carriers,
            threads=given.threads,
            permits=given.permits,
            circuits=Circuits(events.report_hanging),
            signals=given.signals,
        )
        links = PodLinks(network.checkpoints, network.table.namespaces.opened, carriers.report_links)
        for signal in (given.signals.attached, given.signals.held_changed):
            signal.subscribe(links.look)
        return cls(
            hooks=hooks,
            claims=claims,
            network=network,
            tracker=tracker,
            writer=writer,
            recovery=Recovery(hooks, claims.releases),
            examiner=examiner,
            specifications=Specifications(hooks),
            links=links,
            wait_addresses=given.wait_addresses,
        )

    async def run(self) -> None:
        """Work until cancelled, then end the work in progress. Hooks may be called once `recover` has returned."""
        # A hook's thread gives the interpreter away at each call of the kernel. While the event loop works on the very
        # events that the hook causes, it would have it back only after 5 ms, each time.
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            with (
                self.network.table.prepared.follow(),
                checkpoint.follow(self.network.settings.state),
                self.tracker.pods.following(self._on_pod_change),
            ):
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self.tracker.run())
                    tasks.create_task(self.writer.run())
                    tasks.create_task(self.recovery.run())
                    tasks.create_task(self.examiner.run())
                    tasks.create_task(self.specifications.run())
                    tasks.create_task(self.links.run())
                    lost = self.hooks.signals.address_lost.emit
                    tasks.create_task(self.claims.addresses.follow(self.wait_addresses, lost))
                    namespaces = self.network.table.namespaces
                    tasks.create_task(namespaces.follow(self.hooks.signals.ended_unseen.emit))
        finally:
            await asyncio.shield(self.hooks.aclose())
            await self.claims.aclose()

    def _on_pod_change(self, change: Change[WatchedPod]) -> None:
        if change.old is not None and (change.new is None or change.new.metadata.uid != change.old.metadata.uid):
            self.writer.forget_pod(change.old.metadata.uid)

    async def recover(self) -> None:
        """Take up a former process's state, from the disk alone: to be awaited before anything else is started.

        Raises:
            NetdraError: the state folder or a CDI specification cannot be written.
        """
        await self.recovery.recover()


@dataclass(frozen=True)
class Parts:
    """The parts that keep pods, connected with the publishing part; nothing runs yet."""

    pods: Pods
    kubelet: KubeletPlugin
    plugin: Plugin
    recorder: Recorder
    faults: DeviceHealthWatch
    registry: Registry | None = None

    @classmethod
    def assemble(
        cls,
        client: Client,
        settings: NodeSettings,
        publishing: Publishing,
        signals: Signals,
        registrations: RegistrationTable | None = None,
    ) -> Parts:
        """All parts of a node."""
        paths = sockets(settings.kubelet_root, settings.instance)
        recorder = Recorder(client, f"{names.DRIVER}/pods", settings.node)
        prepared = ClaimStore.of_state(settings.state_dir)
        turns = Turns(publishing.gate)
        pods = Pods.assemble(
            Dependencies(
                client=client,
                node=settings.node,
                settings=ChainSettings(
                    state=settings.sandboxes,
                    plugins=settings.plugins,
                    device_files=settings.allow_device_files,
                    hold_unknown=settings.unknown_differences == "Hold",
                ),
                files=ClaimFiles(plugin=paths.plugin, cdi=settings.cdi_dir),
                prepared=prepared,
                view=publishing,
                emit=recorder.emit,
                gate=publishing.gate,
                turns=turns,
                permits=permits_of(settings, lambda: publishing.schemas, lambda: publishing.named_plugins),
                signals=signals,
                wait_addresses=publishing.wait_addresses,
                pod_network_kind=settings.pod_network_kind,
            )
        )
        publishing.addresses = pods.claims.addresses.report
        signals.address_lost.subscribe(publishing.report_soon)
        signals.held_changed.subscribe(publishing.report_unassigned)
        publishing.vf_troubles_changed.subscribe(lambda: pods.writer.note_troubles(publishing.vf_troubles))
        kubelet = KubeletPlugin(
            paths,
            ClaimServices(
                pods.claims, signals.held_changed.emit, signals.claim_prepared.emit, turns, pods.writer.note_prepare
            ),
            publishing.health.states,
        )
        metrics.on_scrape(
            lambda: len(prepared.uids()),
            lambda: len(checkpoint.sandboxes(settings.sandboxes)),
            lambda: len(pods.network.table.namespaces),
            lambda: kubelet.registered,
        )
        faults = DeviceHealthWatch(
            publishing,
            pods.network.table.namespaces.opened,
            lambda: pods.links.states,
            recorder.emit,
            settings.node,
            settings.state_dir,
            sysfs=Sysfs(settings.sysfs_root),
            on_change=publishing.report_soon,
        )
        publishing.faults = lambda: (faults.faults, faults.watched)
        pods.links.changed.subscribe(lambda: publishing.health.note_links(broken(pods.links.states)))
        _export_traffic(pods, settings, recorder)
        nri = NriSettings(socket=settings.nri_socket, index=settings.nri_index)
        return cls(
            pods=pods,
            kubelet=kubelet,
            plugin=Plugin(pods.hooks, nri, gate=publishing.gate),
            recorder=recorder,
            faults=faults,
            registry=_registry(client, settings, publishing, registrations),
        )

    def add_checks(self, health: ProcessHealth) -> None:
        """Ready only if the kubelet and the runtime have the driver."""
        kubelet, plugin = self.kubelet, self.plugin
        health.ready("kubelet", lambda: CheckResult(kubelet.registered, kubelet.problem or "registered"))
        health.ready("runtime", lambda: CheckResult(plugin.connected.is_set(), plugin.problem or str(plugin.runtime)))

    def work(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """The tasks to run, by name, after `pods.recover` has returned."""
        yield "events", self.recorder.run()
        yield "pods", self.pods.run()
        yield "kubelet", self.kubelet.run()
        yield "runtime", self.plugin.run()
        yield "health", self.faults.run()
        if self.registry is not None:
            yield "registry", self.registry.run()


def _export_traffic(pods: Pods, settings: NodeSettings, recorder: Recorder) -> None:
    """Export the counters of pods' interfaces, if that is wanted."""
    if not settings.traffic_interfaces:
        return
    node = ObjectReference(api_version="v1", kind="Node", name=settings.node)
    loop = asyncio.get_running_loop()

    def report(omitted: int) -> None:
        if omitted:
            note = (
                f"{omitted} interfaces of pods are not exported as metrics: at most {settings.traffic_interfaces} are "
                f"(--traffic-interfaces)"
            )
            event = Occurrence(regarding=node, type="Warning", reason="TrafficOmitted", action="Export", note=note)
            loop.call_soon_threadsafe(recorder.emit, event)

    metrics.TRAFFIC.source = Traffic(
        pods.network.checkpoints,
        pods.network.table.namespaces.opened,
        settings.traffic_interfaces,
        links=lambda: pods.links.states,
        sysfs=Sysfs(settings.sysfs_root),
        on_omitted=report,
    ).page


def _registry(
    client: Client, settings: NodeSettings, publishing: Publishing, registrations: RegistrationTable | None
) -> Registry | None:
    if registrations is None or settings.registry_socket is None:
        return None
    place = Place(path=settings.registry_socket, mode=settings.registry_mode, group=settings.registry_group)
    callers = Callers(client, settings.node, tokens_only=settings.registry_tokens_only)
    metrics.REGISTRY_REGISTRATIONS.set_function(lambda: len(registrations))
    return Registry(place, registrations, callers, publishing, publishing.health.states, settings.device_files)
