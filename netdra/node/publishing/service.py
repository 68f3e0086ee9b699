"""Publishes a node while the kernel, the policies, the node's labels and the held devices change.

Run by `netdra.node.daemon`; for the other parts it is the `NodeView`. Each change wakes one skip all facts, in the
thread that reads the kernel; changed pools are handed to the publisher. Changes that arrive during a pass share the
next one, so a burst costs a few passes and a quiet node none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial

import msgspec

from netdra.cni.plugins import PluginPath
from netdra.discovery.watch import InterfaceChanges, Watcher
from netdra.exposure.registered import NOTHING
from netdra.exposure.templates import allocatable_of
from netdra.kernel.device_files import DeviceFiles
from netdra.kube import features as gates
from netdra.kube.backoff import Backoff
from netdra.kube.client import Client
from netdra.kube.errors import ApiError
from netdra.kube.events import Recorder
from netdra.kube.resources import NODE_NETWORKS
from netdra.kube.store import Change
from netdra.kube.undone_reports import UndoneReports
from netdra.model import names
from netdra.model.core import ClusterNode
from netdra.model.custom_device import CustomDevice
from netdra.model.device import DEFAULT_FEATURES, Features, Problem
from netdra.model.errors import NetdraError
from netdra.model.health import HealthRule
from netdra.model.node_network import AddressReport, DeviceFault, NodeNetwork, NodeNetworkStatus, UnassignedAddress
from netdra.model.plan import PlannedDevice
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.registration import Registration, RegistrationOutcome
from netdra.model.resource import ResourceSlice, newest
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.node import metrics
from netdra.node.hardware import HardwareTable
from netdra.node.priority import PriorityGate
from netdra.node.publishing.announce import ProblemEvents, PublishedHealth
from netdra.node.publishing.followed import FollowedObjects, NodeRegistrations
from netdra.node.publishing.interfaces import Interfaces
from netdra.node.publishing.offering import Offered, Offering, Slices
from netdra.node.publishing.plugins import NodePlugins
from netdra.node.publishing.publisher import PoolWrites, Publisher
from netdra.node.publishing.reconcile import owner_of
from netdra.node.publishing.reporter import Reporter
from netdra.node.publishing.spread import Spread
from netdra.node.signals import Signal
from netdra.node.view import HeldDevice, Holder, VFTrouble
from netdra.rules.runnable import NamedPlugins
from netdra.topology.devices import DeviceKey
from netdra.topology.needed import NeededPrograms

log = logging.getLogger(__name__)


def _allocatable(node: ClusterNode | None) -> Mapping[str, str]:
    return node.status.allocatable if node is not None else {}


CUSTOM_DEVICES_SECONDS = 5.0
"""How long the first list of CustomDevices is waited for."""
FILES_SECONDS = 2.0
HELD_SECONDS = 1.0
"""How long a pass for other held devices alone waits for another reason: a device that leaves or returns is one."""
HELD_AGAIN_SECONDS = 5.0
PODS_SECONDS = 10.0
"""How long the links of pods that come and go wait for a pass, so that one counts many."""
"""Seconds between two looks whether registered device files have come or gone."""


class Publishing:
    """One node's publishing half.

    Attributes:
        health: the health of the published devices.
        followed: the cluster's objects that the node follows.
        hardware: see `NodeView`.
        outcomes: the outcomes of the providers' registrations.
        vf_troubles: the troubles of pooled VFs that claims have; `vf_troubles_changed` is set when they change.
        passes: how many passes there were.
        published: set when the API server has had all wanted slices once.
        gate: the priority gate; inspects the kernel and passes wait for it.
        spread: when this node follows an edit that all nodes see.
    """

    def __init__(
        self,
        client: Client,
        node: str,
        watch: Callable[[], Watcher],
        plugins: PluginPath | None = None,
        allowed: Callable[[str], bool] = lambda _: True,
        leased: Callable[[], tuple[Registration, ...]] = tuple,
        files: DeviceFiles | None = None,
        hardware: HardwareTable | None = None,
    ) -> None:
        """Prepare.

        Args:
            node: the node's name.
            watch: opens the kernel; called in the thread that then reads it.
            plugins: where the node has its CNI plugins; without it, all that policies list count as there.
            allowed: whether a plugin may be run, asked when the cluster's schemas are known.
            leased: the registrations of the node's device registry; the same object while nothing changes.
            files: the device files that pods may be given; without it none.
            hardware: where the hardware of published devices is noted.
        """
        self._client = client
        self._node = node
        self._watch = watch
        self._holder: Holder | None = None
        self._held: tuple[HeldDevice, ...] | None = None
        self._plugins = NodePlugins(plugins, self.look_again, allowed) if plugins is not None else None
        self._recorder = Recorder(client, f"{names.DRIVER}/node", node)
        self._undone = UndoneReports(client, self._recorder, self.report_soon)
        self._problem_events = ProblemEvents(self._recorder, node)
        self.followed = FollowedObjects(node)
        self._named = NamedPlugins()
        self._names_plugins = False
        self._facts = NodeRegistrations(node, leased)
        self._needed = NeededPrograms()
        self._files = files or DeviceFiles()
        self.hardware = hardware or HardwareTable()
        self.health = PublishedHealth()
        self.passes = 0
        self.outcomes: tuple[RegistrationOutcome, ...] = ()
        self.vf_troubles: tuple[VFTrouble, ...] = ()
        self.vf_troubles_changed = Signal()
        self.published = asyncio.Event()
        self._features = DEFAULT_FEATURES
        self._registered = NOTHING
        self._slices: dict[str, Slices] = {}
        self._devices: dict[DeviceKey, PlannedDevice] = {}
        self._vfs: dict[DeviceKey, tuple[PlannedDevice, ...]] = {}
        self.gate = PriorityGate()
        self.spread = Spread(client, node)
        self._publisher: Publisher | None = None
        self._reporter: Reporter | None = None
        self.addresses: Callable[[], Awaitable[AddressReport]] = _none
        self._unassigned: tuple[UnassignedAddress, ...] = ()
        self.faults: Callable[[], tuple[tuple[DeviceFault, ...], int]] = lambda: ((), 0)
        self._problems: tuple[Problem, ...] = ()
        self._work = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None
        self._passed = asyncio.Event()
        self._held_noted = asyncio.Event()
        self._passed_held: tuple[HeldDevice, ...] | None = None
        self._first_pass = asyncio.Event()
        self._handed_on = asyncio.Event()
        self._delay = metrics.Delay()

    def know_holder(self, holder: Holder) -> None:
        """Begin to ask which devices are held: the part that knows is begun later than this one."""
        self._holder = holder
        self.look_again()

    @property
    def devices(self) -> Mapping[DeviceKey, PlannedDevice]:
        """See `NodeView`."""
        return self._devices

    @property
    def vfs(self) -> Mapping[DeviceKey, Sequence[PlannedDevice]]:
        """By device of pooled VFs, the facts of the VFs that a claim of it can be given, held or not."""
        return self._vfs

    @property
    def slices(self) -> Sequence[ResourceSlice]:
        """See `NodeView`."""
        return [resource_slice for slices in self._slices.values() for resource_slice in slices]

    @property
    def topologies(self) -> Mapping[str, NetworkTopology]:
        """See `NodeView`."""
        return self.followed.topologies.objects

    async def wait_addresses(self) -> None:
        """Wait until a topology has steps whose addresses come from PodNetworks."""
        topologies = self.followed.topologies
        await topologies.until(lambda: any(topology.asks_addresses for topology in topologies.objects.values()))

    @property
    def schemas(self) -> Sequence[CNIPluginSchema] | None:
        """The cluster's CNIPluginSchemas, or None while they are not known."""
        return tuple(self.followed.schemas.objects.values()) if self.followed.schemas.synced else None

    @property
    def health_rules(self) -> Mapping[str, tuple[HealthRule, ...]]:
        """The health rules of each policy that has any."""
        policies = self.followed.policies.objects.values()
        return {
            policy.name: policy.spec.exposure.health
            for policy in policies
            if policy.spec.exposure is not None and policy.spec.exposure.health
        }

    @property
    def labels(self) -> Mapping[str, str] | None:
        """See `NodeView`."""
        node = self.followed.nodes.objects.get(self._node)
        return node.metadata.labels if node is not None else None

    @property
    def named_plugins(self) -> frozenset[str] | None:
        """The plugins that the cluster's policies name, or None while the policies are not known."""
        return self._named.names if self.followed.policies.synced else None

    @property
    def ready(self) -> bool:
        """See `NodeView`."""
        return self._first_pass.is_set() and self.followed.topologies.synced

    async def _follow_plugins(self, followed: NodePlugins) -> None:
        """Follow the CNI path from when the schemas and policies are known, which state what may be run."""
        await self.followed.schemas.wait_synced()
        await self.followed.policies.wait_synced()
        with self.followed.schemas.following(lambda _: followed.look_again()):
            await followed.run()

    def look_again(self) -> None:
        """The registrations or the node's plugins have changed."""
        self._work.set()

    def note_held(self) -> None:
        """The held devices may have changed: they are compared with those of the last pass soon."""
        self._held_noted.set()

    async def _compare_held(self) -> None:
        """Have a pass made when other devices are held than at the last one, or none of that is known."""
        while True:
            await self._held_noted.wait()
            await asyncio.sleep(HELD_SECONDS)
            await self.gate.wait()
            self._held_noted.clear()
            try:
                is_same = self._held_devices() == self._passed_held
            except NetdraError:
                is_same = False  # the pass reports it
            if not is_same:
                self._work.set()

    async def run(self) -> None:
        """Publish until cancelled.

        Raises:
            NetdraError: the kernel cannot be read, or the API server cannot be used.
        """
        with ExitStack() as following:
            following.enter_context(self.followed.policies.following(self._on_policy_change))
            following.enter_context(self.followed.topologies.following(self._on_topology_change))
            following.enter_context(self.followed.nodes.following(self._on_node_change))
            for custom_devices in (self.followed.custom_devices, self.followed.shared_custom_devices):
                following.enter_context(custom_devices.following(self._on_custom_device_change))
            async with asyncio.TaskGroup() as knowing:
                for reflector in self.followed.reflectors(self._client):
                    knowing.create_task(reflector.run())
                knowing.create_task(self._recorder.run())
                knowing.create_task(self._undone.run())
                knowing.create_task(self.spread.run())
                if self._plugins is not None:
                    knowing.create_task(self._follow_plugins(self._plugins))
                reported = knowing.create_task(self._begin())
                async with Interfaces.watching(self._watch, self._files) as interfaces:
                    await self._publish(interfaces, await reported)

    async def _publish(self, interfaces: Interfaces, reported: NodeNetworkStatus | None) -> None:
        owner = owner_of(self._node, self.followed.nodes.objects[self._node].metadata.uid)
        publisher = Publisher(self._client, self.followed.slices, owner, self._on_write)
        self._publisher = publisher
        published = newest([stored.read() for stored in self.followed.slices.objects.values()])
        offering = Offering(self._node, published, reported, self.hardware)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(publisher.run())
            tasks.create_task(self._follow(interfaces))
            tasks.create_task(self._compare_held())
            tasks.create_task(self._run_passes(interfaces, publisher, offering))
            tasks.create_task(self._time(publisher))
            await self._first_pass.wait()
            self._reporter = Reporter(self._client, owner, lambda: self._report(interfaces, publisher, offering))
            self._reporter.belong(publisher.owner)  # it may have changed during the first pass
            tasks.create_task(self._reporter.run())
            await publisher.wait_published_once()
            self.published.set()

    def report_soon(self) -> None:
        """Report again: the node's state may have changed."""
        if self._reporter is not None:
            self._reporter.note(urgent=True)

    def report_unassigned(self) -> None:
        """Report again once an address that was reported as unassigned may no longer belong to a pod."""
        if self._unassigned:
            self.report_soon()

    async def _report(self, interfaces: Interfaces, publisher: Publisher, offering: Offering) -> NodeNetworkStatus:
        # The report counts all interfaces. During an update two drivers report, and each corrects the other's. Of two
        # passes the second began after this call; further ones are not waited for, however many pods come and go.
        for _ in range(2):
            if self._later is not None:
                self._passed.clear()
                self._work.set()
                await self._passed.wait()
        refused = {key: self._problem_events.reason(key) for key in publisher.refused}
        features, undone = self._features, self._undone.notes(but=NodeNetwork.__name__)
        unassigned, released_version = await self.addresses()
        self._unassigned = unassigned
        faults, watched = self.faults()

        def make() -> NodeNetworkStatus:
            return msgspec.structs.replace(
                offering.report(refused, undone),
                features=gates.on(features),
                unassigned_addresses=unassigned,
                released_version=released_version,
                faults=faults,
                watched_devices=watched,
            )

        return await interfaces.run(make)

    async def _begin(self) -> NodeNetworkStatus | None:
        """Wait for the objects that the first pass needs; the kernel is read at the same time.

        Returns:
            The node's former report; None if none exists, or if it cannot be read, for which nothing waits.
        """
        self._features = await self._probe()
        self._problem_events.report_missing_gates(gates.off(self._features))
        for store in (self.followed.policies, self.followed.slices):
            await store.wait_synced()
        await self.followed.nodes.until(lambda: self._node in self.followed.nodes.objects)
        if self._plugins is not None:
            await self._plugins.wait_known()
        # A cluster may lack the kind; where it has it, the objects' facts must not go for a moment.
        with suppress(TimeoutError):
            async with asyncio.timeout(CUSTOM_DEVICES_SECONDS):
                await self.followed.topologies.wait_synced()
                await self.followed.custom_devices.wait_synced()
                await self.followed.shared_custom_devices.wait_synced()
        if not self.followed.slices.objects:
            return None
        try:
            return (await self._client.get(NODE_NETWORKS, self._node)).status
        except NetdraError:
            return None

    async def _probe(self) -> Features:
        """The server's features, asked until it answers: a server that has just begun knows no rights yet."""
        backoff = Backoff()
        while True:
            try:
                return await gates.probe(self._client, self._node)
            except ApiError as problem:
                log.warning("%s", problem)
                await asyncio.sleep(backoff.next(problem.retry_after))

    async def _run_passes(self, interfaces: Interfaces, publisher: Publisher, offering: Offering) -> None:
        """Make a pass, hand on its changes, and wait for the next reason to make one."""
        # Devices from before a restart stay published until the owners of the ends of pairs are known.
        await interfaces.settle()
        while True:
            await self.gate.wait()
            self._work.clear()
            self._cancel_later()
            if self._plugins is not None and self._names_plugins:
                self._names_plugins = False
                await self._plugins.wait_known()
            self._hand_on(await interfaces.run(self._pass(offering, interfaces)), publisher)
            self._passed.set()
            if publisher.is_published:
                self._delay.ends(published=False)
            else:
                self._handed_on.set()
            self._first_pass.set()
            await self._reason(interfaces, offering)

    def _cancel_later(self) -> None:
        """Forget the pass that was to come later: one is made now."""
        if self._later is not None:
            self._later.cancel()
            self._later = None

    async def _reason(self, interfaces: Interfaces, offering: Offering) -> None:
        """Wait until another pass is needed; device files are inspected meanwhile, because they have no events."""
        while True:
            due = None if offering.due is None else max(0.0, offering.due - time.monotonic())
            paths = self._registered.files
            waiting = FILES_SECONDS if paths and (due is None or due > FILES_SECONDS) else due
            with suppress(TimeoutError):
                async with asyncio.timeout(waiting):
                    await self._work.wait()
            if self._work.is_set() or waiting is due:
                return
            await self.gate.wait()
            if await interfaces.run(partial(interfaces.files_changed, paths)):
                return

    def _pass(self, offering: Offering, interfaces: Interfaces) -> Callable[[], Offered]:
        """A skip all present facts, to be made in the other thread."""
        policies = tuple(self.followed.policies.objects[name] for name in sorted(self.followed.policies.objects))
        node = self.followed.nodes.objects.get(self._node)
        labels = dict(node.metadata.labels) if node is not None else {}
        allocatable_names = allocatable_of(policies)
        allocatable = {name: amount for name, amount in _allocatable(node).items() if name in allocatable_names}
        held_devices, features = self._held_devices(), self._features
        self._passed_held = held_devices
        presence = self._plugins.presence if self._plugins is not None else None
        required = self._needed.names
        registered = self._registered = self._facts.registered(labels)
        metrics.set_held(held_devices)

        def make() -> Offered:
            offering.follow(policies, features, presence, required)
            interfaces.metrics.count()  # the first reading, before any event
            interfaces.metrics.show(interfaces.inventory)
            offered = offering.update(
                interfaces.inventory, labels, held_devices, interfaces, time.monotonic(), registered, allocatable
            )
            self.hardware.note({key: device for pool in offered.devices.values() for key, device in pool.items()})
            return offered

        return make

    def _held_devices(self) -> tuple[HeldDevice, ...]:
        """The devices that claims have; the former ones while the disk cannot be read: none of them is free for that.

        Raises:
            NetdraError: the disk could not be read yet.
        """
        if self._holder is None:
            return ()
        try:
            self._held = tuple(self._holder.held)
        except NetdraError as problem:
            if self._held is None:
                raise
            log.warning("the devices that claims have cannot be read, the former ones count: %s", problem)
            asyncio.get_running_loop().call_later(HELD_AGAIN_SECONDS, self._work.set)
        return self._held

    def _hand_on(self, offered: Offered, publisher: Publisher) -> None:
        self.passes += 1
        other = any(tuple(slices) != self._slices.get(pool, ()) for pool, slices in offered.slices.items())
        for pool, slices in offered.slices.items():
            for former in self._slices.get(pool, ()):
                for device in former.spec.devices:
                    self._devices.pop((pool, device.name), None)
                    self._vfs.pop((pool, device.name), None)
            self._devices |= offered.devices[pool]
            if slices:
                self._slices[pool] = slices
            else:
                self._slices.pop(pool, None)
                self._problem_events.forget(pool)
        self._vfs |= offered.vfs
        self.health.publish(offered.slices)
        self._problem_events.report_problems(offered.problems)
        if offered.vf_troubles != self.vf_troubles:
            self._problem_events.report_vf_troubles(self.vf_troubles, offered.vf_troubles)
            self.vf_troubles = offered.vf_troubles
            self.vf_troubles_changed.emit()
        before = self._problems, self.outcomes
        self._problems, self.outcomes = offered.problems, offered.outcomes
        metrics.set_published(self.slices, offered.left_out)
        publisher.want_pools(offered.slices)
        if self._reporter is not None:
            self._reporter.note(urgent=other or offered.followed or before != (self._problems, self.outcomes))

    async def _follow(self, interfaces: Interfaces) -> None:
        while True:
            changes = await interfaces.next(self.gate.wait)
            if changes is None:
                continue
            if not self._can_wait(changes):
                self._delay.begins()
                self._work.set()
            elif self._later is None:
                self._later = asyncio.get_running_loop().call_later(PODS_SECONDS, self._work.set)

    def _can_wait(self, changes: InterfaceChanges) -> bool:
        """Whether a pass would only count: the ends of pods' pairs came or went, and none of them is offered."""
        ends = changes.of_pods
        return bool(ends) and ends.isdisjoint(device.if_name for device in self._devices.values())

    async def _time(self, publisher: Publisher) -> None:
        """Measure how long it takes until the API server has the slices that follow from a change."""
        while True:
            await self._handed_on.wait()
            self._handed_on.clear()
            await publisher.wait_published()
            self._delay.ends(published=True)

    def _on_write(self, pool: str, written: PoolWrites) -> None:
        self._problem_events.report_write(pool, written)
        if written.refusals and self._reporter is not None:
            self._reporter.note(urgent=True)
        left = gates.without(self._features, written.dropped)
        if left != self._features:
            log.warning("the API server does not keep fields that it claims to support: %s", left)
            self._features = left
            self._work.set()

    def _on_policy_change(self, change: Change[DeviceExposurePolicy]) -> None:
        if change.old is not None and change.new is not None and change.old.spec == change.new.spec:
            return
        if self._named.update(change.old, change.new) and self._plugins is not None:
            self._plugins.look_again()
            self._names_plugins = True
        if any(policy is not None and policy.spec.action == "exclude" for policy in (change.old, change.new)):
            self._names_plugins = False  # it protects, and waits for nothing
            self._work.set()
        else:
            self._look_in_turn()

    def _on_topology_change(self, change: Change[NetworkTopology]) -> None:
        if self._needed.put(change.key, change.new):
            self._look_in_turn()

    def _look_in_turn(self) -> None:
        """Make a pass for a change that all nodes see at this moment."""
        delay = self.spread.delay if self._first_pass.is_set() else 0.0
        if delay:
            asyncio.get_running_loop().call_later(delay, self._work.set)
        else:
            self._work.set()

    def _on_custom_device_change(self, change: Change[CustomDevice]) -> None:
        node = self.followed.nodes.objects.get(self._node)
        labels = dict(node.metadata.labels) if node is not None else {}
        # An object that is changed to name the node, or to name none, changes stores.
        if not self._facts.apply(replace(change, new=self.followed.custom_device(change.key)), labels):
            return
        selectors = [device.spec.selector for device in (change.old, change.new) if device is not None]
        if any(selector is not None and selector.node_name for selector in selectors):
            self._work.set()
        else:
            self._look_in_turn()

    def _on_node_change(self, change: Change[ClusterNode]) -> None:
        old, new = change.old, change.new
        uid = new.metadata.uid if new is not None else ""
        if self._publisher is not None and self._publisher.owner_uid != uid:
            self._belong(uid)
        if old is None or new is None or old.metadata.labels != new.metadata.labels or old.status != new.status:
            self._work.set()

    def _belong(self, uid: str) -> None:
        """The Node was created again, with another uid, or deleted: "".

        The garbage collector deletes what belongs to a Node that does not exist.
        """
        owner = owner_of(self._node, uid) if uid else None
        log.warning("Node %s was %s", self._node, f"created again, with uid {uid}" if uid else "deleted")
        for part in (self._publisher, self._reporter):
            if part is not None:
                part.belong(owner)


async def _none() -> AddressReport:
    return AddressReport()
