"""Keeps the ports of claims' VFs in Neutron: made, bound, reported, and deleted with their claims (decision D50).

Run by `netdra.controller.daemon` while this process leads and knows a cloud. `netdra.controller.neutron.desired` works
out the desired state, `netdra.neutron.client` talks to Neutron. A NeutronPort is written before its port is asked for,
and deleted after its port, so a death of this process leaves no unknown port. A port that is left because an object's
finalizer was removed is found among the cluster's ports.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from netdra.controller import metrics
from netdra.controller.children import ClaimChildren
from netdra.controller.neutron import desired, slots
from netdra.controller.neutron.desired import AllocatedNode
from netdra.controller.neutron.inspection import ClusterView, Inspection
from netdra.controller.neutron.networks import PortNetworks
from netdra.controller.neutron.ownership import Ownership
from netdra.controller.state import InHand, State, now
from netdra.controller.writing import MANAGER, finalize_port, notices
from netdra.kube.client import Client, Selection
from netdra.kube.errors import AlreadyExistsError, ConflictError, NotFoundError
from netdra.kube.events import ObjectReference, Recorder
from netdra.kube.queue import AGAIN, WorkQueue
from netdra.kube.reflector import Reflector
from netdra.kube.resources import NAMESPACES, NEUTRON_PORTS, NODES, RESOURCE_SLICES
from netdra.kube.store import Change, Store, key_of
from netdra.model import documents, names
from netdra.model.claim import ResourceClaim
from netdra.model.errors import NetdraError
from netdra.model.neutron_port import FINALIZER, HOST_ANNOTATION, ChosenVF, NeutronPort, NeutronPortStatus
from netdra.model.resource import API_VERSION, ResourceSlice
from netdra.neutron.answers import NeutronNetwork, Port, PortRequest, VfSettings
from netdra.neutron.cached import RequestBudget
from netdra.neutron.client import Neutron
from netdra.neutron.errors import (
    AmbiguousError,
    CloudsError,
    LostError,
    NetworkMovedError,
    NeutronError,
    NeutronRefusedError,
    NoAgentError,
    NoNetworkError,
    OtherProjectError,
    QuotaError,
    UnauthorizedError,
    UnknownProjectError,
    UnreachableError,
    WrongPhysnetError,
)
from netdra.neutron.marks import Mark
from netdra.neutron.physnets import PhysnetDefault
from netdra.neutron.session import AT_ONCE, Session
from netdra.neutron.tenancy import NOTHING, AllowedIds

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 15.0
"""How long a request may take: busy clouds need 10 s for a port, and a node that waits hears of it within its 20 s."""
REQUESTS_PER_SECOND = 20.0
"""How many requests to Neutron begin in a second at most."""
POLL_SECONDS = 10.0
"""Seconds between two looks for what was changed in Neutron."""
POLL_SHARE = 5.0
"""How many times longer than the last such look took the next one waits at least: a slow server is asked less."""
SWEEP_SECONDS = 600.0
"""Seconds between two looks through all ports of the cluster."""
AGENT_SECONDS = 30.0
"""Seconds until a port is offered again to a host on which no agent took it."""
AGAIN_SECONDS = 60.0
"""Seconds until a request that Neutron refused is tried again: an administrator may have changed the reason."""
FIRST_SECONDS, MOST_SECONDS = 1.0, 60.0
"""The first and the longest back-off while Neutron or Keystone does not answer."""


_KNOWN_WRONG = (
    AmbiguousError,
    NetworkMovedError,
    NeutronRefusedError,
    NoNetworkError,
    OtherProjectError,
    UnknownProjectError,
    WrongPhysnetError,
)
"""The refusals that may come of what was known for a while."""


@dataclass(frozen=True)
class NeutronSettings:
    """The cloud, and the networks of topologies that name none.

    Attributes:
        clouds: the clouds.yaml, read at each login.
        cloud: the name of one of its clouds; the only one if it is "".
        physnets: by physical network, the network whose ports VFs get if their topology names none.
        sweep_seconds: seconds between two search the cluster's ports.
        allowed: what may be used beside the cloud's own project.
        cluster_name: what operators of the cloud call this cluster; its uid without it.
        poll_seconds: seconds between two searches for changes.
        timeout_seconds: how long a request may take.
        requests_per_second: how many requests to Neutron may begin in a second; 0 for any number.
    """

    clouds: Path
    cloud: str = ""
    physnets: Mapping[str, PhysnetDefault] = field(default_factory=dict)
    sweep_seconds: float = SWEEP_SECONDS
    allowed: AllowedIds = NOTHING
    cluster_name: str = ""
    poll_seconds: float = POLL_SECONDS
    timeout_seconds: float = TIMEOUT_SECONDS
    requests_per_second: float = REQUESTS_PER_SECOND


class NeutronPorts:
    """The ports of a cluster, for one term."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        state: State,
        settings: NeutronSettings,
        namespace: str,
        in_hand: InHand,
    ) -> None:
        """Begin nothing yet.

        Args:
            state: the controller's copies of claims and topologies.
            namespace: the controller's own.
        """
        self._client, self._recorder, self._state = client, recorder, state
        self._settings, self._in_hand = settings, in_hand
        budget = RequestBudget(settings.requests_per_second, AT_ONCE)
        seconds, cloud = settings.timeout_seconds, settings.cloud
        session = Session(settings.clouds, cloud, seconds=seconds, on_answer=_measure, budget=budget)
        self._neutron = Neutron(session, settings.allowed)
        self._ownership = Ownership(client, self._neutron, namespace, self._cluster_uid)
        self._networks = PortNetworks(self._neutron, settings.physnets)
        self._ports: Store[NeutronPort] = Store()
        self._last_chosen: dict[str, dict[str, ChosenVF]] = {}
        self._cluster = ""
        # Names of NeutronPorts that this process made and has not asked Neutron for, and by claim of those that ended.
        self._unasked: set[str] = set()
        self._creating: dict[str, asyncio.Event] = {}
        self._ended: dict[str, set[str]] = {}
        self._inspection = Inspection(
            self._neutron,
            self._networks,
            ClusterView(
                ports=lambda: self._ports.objects,
                claims=lambda: {claim.metadata.uid for claim in state.claims.objects.values()},
                uid=self._cluster_uid,
                write=self._write,
                label=self._label,
                confirm=self._ownership.confirm,
            ),
        )
        self.claims: WorkQueue[str] = WorkQueue("neutron-claims", self._claim, workers=AT_ONCE)
        self._children = ClaimChildren(client, state, lambda topology: topology.asks_neutron, self.claims.add)
        self.ports: WorkQueue[str] = WorkQueue(
            "neutron-ports", self._port, workers=AT_ONCE, first=FIRST_SECONDS, most=MOST_SECONDS
        )

    async def run(self) -> None:
        """Work until cancelled."""
        state = self._state
        with ExitStack() as following:
            async with self._neutron, asyncio.TaskGroup() as tasks:
                following.callback(metrics.NEUTRON_PORTS.clear)
                following.enter_context(self._ports.following(self._on_port_change))
                self._children.follow(following)
                tasks.create_task(Reflector(self._client, NEUTRON_PORTS, self._ports, vital=False).run())
                for store in (self._ports, state.claims, state.topologies):
                    await store.wait_synced()
                for key in {*self._children, *(key for key, _ in self._children.asking())}:
                    self.claims.add(key)
                tasks.create_task(self.claims.run())
                tasks.create_task(self.ports.run())
                tasks.create_task(self._run_sweeps())
                tasks.create_task(self._run_looks())
                tasks.create_task(self._ownership.keep(lambda: bool(self._ports.objects)))

    def _on_port_change(self, change: Change[NeutronPort]) -> None:
        before, after = change.old, change.new
        for port, way in ((before, -1), (after, 1)):
            if port is not None:
                metrics.NEUTRON_PORTS.labels(desired.reason_of(port)).inc(way)
        if after is None:
            assert before is not None
            self._on_port_end(change.key, before)
            return
        self._children.add(_claim_of(after), change.key)
        if before is None or before.metadata.deletion_timestamp != after.metadata.deletion_timestamp:
            self.ports.add(change.key)
        elif before.chosen_vf != after.chosen_vf:
            self.ports.add(change.key)
            self._look_again(before)

    def _on_port_end(self, key: str, port: NeutronPort) -> None:
        claim = _claim_of(port)
        self._unasked.discard(port.name)
        self._ended.setdefault(claim, set()).add(port.name)
        self._children.remove(claim, key)
        if port.chosen_vf is not None:
            self._last_chosen.setdefault(claim, {})[port.name] = port.chosen_vf
        self.claims.add(claim)  # a user may have deleted the NeutronPort of a claim that still has its VF

    def _look_again(self, former: NeutronPort) -> None:
        """Inspect the ports of the VF that a port was of: they may have been refused for it."""
        for key, port in self._ports.objects.items() if former.pci_address else ():
            if (port.spec.host, port.pci_address) == (former.spec.host, former.pci_address):
                self.ports.add(key)

    async def _claim(self, key: str) -> float | None:
        """Make the NeutronPorts that a claim should have, and delete the others and those that are outdated.

        Raises:
            NetdraError: the claim does not fit its topology, or a NeutronPort cannot be written just now.
        """
        with self._in_hand():
            claim = await self._children.read(key)
            wanted = await self._work_out(claim) if claim is not None else {}
            present = [self._ports.objects[port] for port in self._children.of(key)]
            try:
                for port in present:
                    wished = wanted.get(port.name)
                    if claim and wished and not desired.is_outdated(port, wished, claim):
                        continue
                    if not port.metadata.deletion_timestamp:
                        await self._client.delete(NEUTRON_PORTS, port)  # its end has the claim looked at again
                for name in wanted.keys() - {port.name for port in present}:
                    # The node of a running pod does not read its port again.
                    chosen = self._last_chosen.get(key, {}).get(name)
                    with suppress(AlreadyExistsError):
                        await self._create(key, replace(wanted[name], chosen_vf=chosen))
                    self._last_chosen.get(key, {}).pop(name, None)
                if claim is None:
                    self._last_chosen.pop(key, None)
                    self._ended.pop(key, None)
            except (ConflictError, NotFoundError) as problem:
                log.debug("ports of claim %s changed meanwhile: %s", key, problem)
                return AGAIN
        return None

    async def _create(self, key: str, port: NeutronPort) -> None:
        """Make a NeutronPort; Neutron cannot have a port for it, unless an earlier one of its name has ended."""
        created = self._creating[port.name] = asyncio.Event()
        try:
            await self._client.create(NEUTRON_PORTS, port)
            if port.name in self._ended.get(key, ()):
                self._unasked.discard(port.name)
            else:
                self._unasked.add(port.name)
        finally:
            del self._creating[port.name]
            created.set()

    async def _work_out(self, claim: ResourceClaim) -> Mapping[str, NeutronPort]:
        """The NeutronPorts that an allocated claim should have, by name."""
        name = desired.node_of(claim)
        if not name:
            return {}
        slices, host = await self._slices(name), name
        with suppress(NotFoundError):
            host = (await self._client.get(NODES, name)).metadata.annotations.get(HOST_ANNOTATION) or name
        node = AllocatedNode(name, host, slices)
        return {port.name: port for port in desired.wanted(claim, self._state.topologies.objects, node)}

    async def _slices(self, node: str) -> tuple[ResourceSlice, ...]:
        selection = Selection(field_selector=f"spec.nodeName={node},spec.driver={names.DRIVER}")
        return tuple(await self._client.list(RESOURCE_SLICES, selection))

    async def _port(self, key: str) -> float | None:
        """Have one port in Neutron as it should be, and write its status.

        Raises:
            UnreachableError, UnauthorizedError: Neutron or Keystone gives no answer just now.
            ApiError: the object cannot be written just now.
        """
        port = self._ports.objects.get(key)
        if port is None:
            return None
        with self._in_hand():
            try:
                if port.metadata.deletion_timestamp:
                    await self._delete(port)
                elif FINALIZER not in port.metadata.finalizers:  # netdra was uninstalled meanwhile
                    await finalize_port(self._client, port, wanted=True)
                    return AGAIN
                elif port.pci_address and not desired.is_bound(port):
                    answer, network, vf_settings = await self._ensure_validated(port)
                    await self._write(port, desired.bound(port, answer, network, vf_settings, now()))
                    self._look_at_refused_by_quota(AT_ONCE)
                    await self._label(port, answer)
            except (ConflictError, NotFoundError) as problem:
                log.debug("NeutronPort %s changed meanwhile: %s", key, problem)
                return AGAIN
            except (NeutronError, CloudsError) as problem:
                await self._write(port, desired.failed(port, problem, now()))
                if isinstance(problem, UnreachableError | UnauthorizedError):
                    raise
                self.ports.add(key, AGENT_SECONDS if isinstance(problem, NoAgentError) else AGAIN_SECONDS)
                self.claims.add(_claim_of(port))  # an administrator may have changed what the claim should have
        return None

    def _look_at_refused_by_quota(self, count: int) -> None:
        """Inspect some ports again that the quota refused: a created or deleted one shows that the quota has room."""
        refused = (key for key, port in self._ports.objects.items() if desired.reason_of(port) == QuotaError.reason)
        for key in islice(refused, count):
            self.ports.add(key)

    async def _ensure_validated(self, port: NeutronPort) -> tuple[Port, NeutronNetwork, VfSettings]:
        """As `_ensure`; a rejection by cached networks and hosts counts after both were read again.

        Raises:
            NeutronError: the port is not bound.
        """
        try:
            return await self._ensure(port)
        except _KNOWN_WRONG:
            if not self._neutron.forget():
                raise
        return await self._ensure(port)

    async def _ensure(self, port: NeutronPort) -> tuple[Port, NeutronNetwork, VfSettings]:
        """Have Neutron bind a port, which is made if it is not there.

        Raises:
            NeutronError: the port is not bound.
        """
        neutron, spec = self._neutron, port.spec
        condition = port.bound
        if condition is not None and condition.reason == LostError.reason and port.status is not None:
            # A new port would have another MAC address and other addresses under a running pod.
            bound = await neutron.port(port.status.port_id)
            network = await neutron.network(bound.network_id)
            return bound, network, await neutron.describe(bound, network)
        chosen, subnet = None, ""
        if not spec.port:
            chosen, subnet = await self._networks.choose(port, self._ports.objects.values())
        wanted = await self._request(port, chosen.id if chosen is not None else "", subnet)
        if port.chosen_vf is not None:
            desired.check_choice(port, await self._slices(spec.node_name))
        has_one = await slots.check(neutron, port, wanted.mark, self._ports.objects.values())
        if spec.port:
            return await neutron.adopt(wanted, spec.port, lambda host, pci_slot: self._has(spec.port, host, pci_slot))
        if creating := self._creating.get(port.name):
            await creating.wait()  # its watch event may come before the answer
        is_new = port.name in self._unasked and not has_one
        self._unasked.discard(port.name)  # an attempt without an answer may have made it
        return await neutron.ensure(wanted, chosen, is_new=is_new)

    async def _request(self, port: NeutronPort, network: str = "", subnet: str = "") -> PortRequest:
        """The request to Neutron for a NeutronPort, in a network and subnet by their ids."""
        cluster, spec = await self._cluster_uid(), port.spec
        return PortRequest(
            name=port.name,
            claim=spec.claim.uid,
            cluster=cluster,
            host=spec.host,
            network=network,
            physnet=spec.physnet,
            pci_slot=port.pci_address,
            subnet=subnet,
            addresses=spec.fixed_ips,
            security_groups=spec.security_groups,
            qos_policy=spec.qos_policy,
            label=desired.label(
                port, self._state.claims.objects.get(_claim_of(port)), self._settings.cluster_name or cluster
            ),
        )

    async def _label(self, port: NeutronPort, now: Port) -> None:
        """Set the fields of a netdra port that operators search for. Nothing waits for it; the next look repeats it."""
        if port.spec.port:
            return  # its name and tags are those of the project that made it
        try:
            await self._neutron.label(now, await self._request(port))
        except (NeutronError, CloudsError) as problem:
            log.info("port %s in Neutron does not have its tags yet: %s", now.id, problem.what)

    def _has(self, port_id: str, host: str, pci_slot: str) -> bool:
        """Whether a VF has a NeutronPort that names a port, and keeps it."""
        return any(
            (port.spec.port, port.spec.host, port.pci_address) == (port_id, host, pci_slot)
            and not port.metadata.deletion_timestamp
            for port in self._ports.objects.values()
        )

    async def _delete(self, port: NeutronPort) -> None:
        """Delete a port from Neutron, and let its object go.

        Raises:
            OtherClusterError: it may be another cluster's.
            NeutronError: Neutron does not delete it.
        """
        if FINALIZER not in port.metadata.finalizers:
            return
        await self._ownership.confirm()
        if port.spec.port:
            spec = port.spec
            used = partial(self._has, spec.port)
            await self._neutron.give_back(spec.port, spec.claim.uid, spec.host, used)
        else:
            port_ids = {port.status.port_id} if port.status is not None and port.status.port_id else set()
            mark = Mark(await self._cluster_uid(), port.name)
            there = await self._neutron.find(mark, port.spec.claim.uid)
            for port_id in sorted(port_ids | {item.id for item in there}):
                await self._neutron.delete(port_id)
        await finalize_port(self._client, port, wanted=False)
        self._look_at_refused_by_quota(1)

    async def _write(self, port: NeutronPort, status: NeutronPortStatus) -> None:
        """Write a status, unless the object has it already; its news become events of the claim."""
        if status == port.status:
            return
        metadata = port.metadata
        wanted: dict[str, Any] = {
            "apiVersion": port.api_version,
            "kind": port.kind,
            "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
            "status": documents.plain(status),
        }
        await self._client.apply(NEUTRON_PORTS, wanted, manager=MANAGER, subresource="status")
        metrics.STATUS_WRITES.labels(NEUTRON_PORTS.plural).inc()
        before = port.status.conditions if port.status is not None else ()
        for regarding in self._regarded(port):
            for occurrence in notices(regarding, before, status.conditions):
                self._recorder.emit(occurrence)

    def _regarded(self, port: NeutronPort) -> Iterator[ObjectReference]:
        """The objects of events about a port: its claim, and the pod that the claim was created for."""
        claim, namespace = port.spec.claim, port.metadata.namespace
        yield ObjectReference(
            api_version=API_VERSION, kind="ResourceClaim", name=claim.name, namespace=namespace, uid=claim.uid
        )
        pod = desired.pod_of(self._state.claims.objects.get(_claim_of(port)))
        if pod is not None:
            yield ObjectReference(api_version="v1", kind="Pod", name=pod.name, namespace=namespace, uid=pod.uid)

    async def _run_sweeps(self) -> None:
        while True:
            await asyncio.sleep(self._settings.sweep_seconds)
            try:
                problems = await self._inspection.look_through()
            except NetdraError as problem:
                log.warning("the cluster's ports in Neutron were not checked: %s", problem)
                continue
            if problems:
                first = f"{len(problems)} of the cluster's ports in Neutron were not checked, the first"
                log.warning("%s: %s", first, problems[0])

    async def _run_looks(self) -> None:
        """Search for changes, as often as is cheap for the server."""
        wait = self._settings.poll_seconds
        while True:
            await asyncio.sleep(wait)
            began = time.monotonic()
            self._look_at_refused_by_quota(1)
            try:
                for problem in await self._inspection.look_for_changes():
                    log.info("a port in Neutron was not compared: %s", problem)
            except NetdraError as problem:
                log.info("changes in Neutron were not checked: %s", problem)
            wait = max(self._settings.poll_seconds, (time.monotonic() - began) * POLL_SHARE)

    async def _cluster_uid(self) -> str:
        """The uid that marks the ports of this cluster among those of others in a project."""
        if not self._cluster:
            self._cluster = (await self._client.get(NAMESPACES, "kube-system")).metadata.uid
        return self._cluster


def _claim_of(port: NeutronPort) -> str:
    return key_of(port.metadata.namespace, port.spec.claim.name)


def _measure(server: str, method: str, status: int, seconds: float) -> None:
    metrics.NEUTRON_SECONDS.labels(server, method, str(status)).observe(seconds)
