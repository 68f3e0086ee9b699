"""Publishes the free addresses of PodNetworks as devices that claims share (decision D71).

Run by `netdra.controller.addresses.pod_addresses`, whose ledgers have the free addresses. For each PodNetwork there is
a DeviceClass, and a ResourceSlice for each group of nodes that its ranges are for; both are owned by the PodNetwork. A
slice is written only if its capacity is too high, or much too low.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from math import inf
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from netdra.controller import metrics
from netdra.controller.addresses.reminders import Reminders
from netdra.controller.state import InHand, State
from netdra.controller.writing import claim_references
from netdra.kube.client import Client, Selection
from netdra.kube.errors import AlreadyExistsError, ConflictError, NotFoundError
from netdra.kube.events import Occurrence, Recorder
from netdra.kube.features import dropped
from netdra.kube.queue import AGAIN, WorkQueue
from netdra.kube.reflector import Reflector
from netdra.kube.resources import DEVICE_CLASSES, RESOURCE_SLICES
from netdra.kube.store import Change, Store
from netdra.model import names
from netdra.model.claim import DeviceClass
from netdra.model.errors import sentence
from netdra.model.pod_network import PodNetwork
from netdra.model.resource import ResourceSlice, ResourceSliceSpec
from netdra.model.topology import NetworkTopology
from netdra.model.watched_claim import WatchedClaim, WatchedClaimMeta
from netdra.networks import shares
from netdra.networks.errors import NoFreeAddressError, NotAllowedError
from netdra.networks.ledger import NetworkLedger
from netdra.networks.shares import Available
from netdra.ops.metrics import counted
from netdra.topology.classes import owner
from netdra.topology.users import pod_owner, topologies_of

log = logging.getLogger(__name__)

T = TypeVar("T")

BATCH_SECONDS = 0.2
"""How long further changes are waited for before a capacity is written."""
REPORT_SECONDS = 300.0
"""Seconds until a network is checked again, in memory, for which claims wait: their events may have to be repeated."""
RECHECK_SECONDS = 600.0
"""Seconds until the API server is asked again whether it supports shared devices with taints."""
ACTION = "AssignAddress"


class _Share(NamedTuple):
    """A claim's share of the addresses of one group of nodes, and the topologies that the claim uses."""

    claim: str
    namespace: str
    group: str
    steps: int
    topologies: frozenset[str]


class _Request(NamedTuple):
    """A claim that is not allocated, and the steps for which it requests addresses."""

    metadata: WatchedClaimMeta
    steps: int


class NetworkShares:
    """The shares of a cluster's PodNetworks, for one term."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        state: State,
        networks: Store[PodNetwork],
        ledger: Callable[[str], NetworkLedger | None],
        in_hand: InHand,
    ) -> None:
        """Begin nothing yet.

        Args:
            state: the controller's copies of claims and DeviceClasses.
            networks: the PodNetworks.
            ledger: the addresses of a PodNetwork; None if it does not exist or cannot be used.
        """
        self._client, self._recorder, self._state, self._in_hand = client, recorder, state, in_hand
        self._networks, self._ledger = networks, ledger
        self._slices: Store[ResourceSlice] = Store()
        self._allocated: dict[str, dict[str, tuple[_Share, ...]]] = {}
        self._requested: dict[str, dict[str, _Request]] = {}
        self._reminders: dict[str, Reminders] = {}
        self._supported: bool | None = None
        self._checked = -inf
        self.work: WorkQueue[str] = WorkQueue("network-shares", self._network)

    def recount(self, network: str) -> None:
        """Check a network soon: its ranges or its addresses have changed."""
        self.work.add(network, BATCH_SECONDS)

    async def run(self) -> None:
        """Work until cancelled. The stores of the state and the networks are synced."""
        state = self._state
        everywhere = Selection(field_selector=f"spec.driver={names.DRIVER},spec.nodeName=")
        reflector = Reflector(self._client, RESOURCE_SLICES, self._slices, everywhere, vital=False)
        with ExitStack() as following:
            following.enter_context(self._slices.following(self._on_slice_change))
            following.enter_context(state.claims.following(self._on_claim_change))
            following.enter_context(state.classes.following(self._on_class_change))
            following.enter_context(state.topologies.following(self._on_topology_change))
            for key, claim in state.claims.objects.items():
                self._on_claim_change(Change(key, None, claim))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(reflector.run())
                await self._slices.wait_synced()
                for name in {*self._networks.objects, *map(_network_of, self._slices.objects.values())}:
                    self.work.add(name)
                tasks.create_task(self.work.run())

    def _on_slice_change(self, change: Change[ResourceSlice]) -> None:
        latest = change.new or change.old
        assert latest is not None
        self.recount(_network_of(latest))

    def _on_class_change(self, change: Change[DeviceClass]) -> None:
        network = names.network_of_class(change.key)
        if network in self._networks.objects:
            self.recount(network)

    def _on_topology_change(self, change: Change[NetworkTopology]) -> None:
        before, after = (
            {step.pod_network for step in topology.spec.steps} if topology is not None else set[str]()
            for topology in (change.old, change.new)
        )
        for network in (before ^ after) & self._networks.objects.keys():
            self.recount(network)

    def _on_claim_change(self, change: Change[WatchedClaim]) -> None:
        """Note a claim's shares and requests, by network."""
        key, old, new = change.key, change.old, change.new
        before, after = (_shares(old), _requests(old)), (_shares(new), _requests(new))
        if before == after:
            return
        _replace(self._allocated, key, before[0], after[0])
        _replace(self._requested, key, before[1], after[1])
        for network in {*before[0], *before[1], *after[0], *after[1]}:
            self.recount(network)

    async def _network(self, name: str) -> float | None:
        """Have the slices and the class of a network as they should be."""
        if not name or not names.has_shares(name):
            return None
        with self._in_hand():
            network, ledger = self._networks.objects.get(name), self._ledger(name)
            counts = _counted(ledger, self._useful(name), self._requests_of(name)) if ledger is not None else {}
            try:
                await self._write(name, network, counts)
            except (AlreadyExistsError, ConflictError, NotFoundError) as problem:
                log.debug("shares of PodNetwork %s changed meanwhile: %s", name, problem)
                return AGAIN
        return None

    async def _write(self, name: str, network: PodNetwork | None, counts: Mapping[str, Available]) -> None:
        await self._check(name)
        present = {entry.metadata.name: entry for entry in self._slices.objects.values() if _network_of(entry) == name}
        wanted: dict[str, ResourceSlice] = {}
        if network is not None and counts and self._supported:
            for group in shares.groups(network):
                old = present.get(shares.slice_name(network, group))
                amount = shares.capacity(counts[group.key], _amount(old))
                wanted[shares.slice_name(network, group)] = shares.resource_slice(network, group, amount)
        for entry in present.values():
            if entry.metadata.name not in wanted and not entry.metadata.deletion_timestamp:
                await self._client.delete(RESOURCE_SLICES, entry)
                metrics.SHARE_WRITES.labels("delete").inc()
        for entry_name, entry in wanted.items():
            await self._put(present.get(entry_name), entry)
        await self._put_class(name, network)
        self._report(name, counts)

    async def _put(self, present: ResourceSlice | None, wanted: ResourceSlice) -> None:
        if present is not None and _content(present) == _content(wanted):
            return
        if present is None:
            await self._client.create(RESOURCE_SLICES, wanted)
        elif present.metadata.deletion_timestamp:
            return  # it is made again when it is gone
        else:
            metadata = replace(present.metadata, owner_references=wanted.metadata.owner_references)
            await self._client.replace(RESOURCE_SLICES, replace(wanted, metadata=metadata))
        metrics.SHARE_WRITES.labels("create" if present is None else "update").inc()

    async def _check(self, name: str) -> None:
        """Find out whether the API server supports the devices, by a dry run; if it does not, ask again later."""
        if self._supported or time.monotonic() < self._checked + RECHECK_SECONDS:
            return
        former, sent = self._supported, shares.probe()
        stored = await self._client.create(RESOURCE_SLICES, sent, dry_run=True)
        off = sorted({field.gate for field in dropped(sent.spec, stored.spec)})
        self._supported, self._checked = not off, time.monotonic()
        if off:
            self.work.add(name, RECHECK_SECONDS)
        if off and former is None:
            log.warning(
                "the API server has feature gates off (%s): claims cannot request addresses of PodNetworks, and the "
                "scheduler does not know which PodNetworks are full",
                ", ".join(off),
            )
        elif former is False and not off:
            for network in self._networks.objects:
                self.recount(network)

    async def _put_class(self, name: str, network: PodNetwork | None) -> None:
        """Have the DeviceClass of a network as it should be."""
        present = self._state.classes.objects.get(names.network_class(name))
        if network is None or not self._supported:
            if present is not None and owner(present, PodNetwork.__name__) == name:
                with counted(metrics.CLASS_WRITES, "delete"):
                    await self._client.delete(DEVICE_CLASSES, present)
            return
        wanted = shares.device_class(network)
        if present is None:
            with counted(metrics.CLASS_WRITES, "create"):
                await self._client.create(DEVICE_CLASSES, wanted)
        elif owner(present, PodNetwork.__name__) != name or present.metadata.deletion_timestamp:
            return  # another's class of that name; or it is made again when it is gone
        elif (present.spec, present.metadata.owner_references) != (wanted.spec, wanted.metadata.owner_references):
            metadata = replace(present.metadata, owner_references=wanted.metadata.owner_references)
            with counted(metrics.CLASS_WRITES, "update"):
                await self._client.replace(DEVICE_CLASSES, replace(wanted, metadata=metadata))

    def _shares_of(self, name: str) -> list[_Share]:
        return [share for entries in self._allocated.get(name, {}).values() for share in entries]

    def _useful(self, name: str) -> Iterator[tuple[_Share, bool]]:
        """The shares of a network, and whether a step of the claim is on it: otherwise it gets no address."""
        on_network = {
            topology.name
            for topology in self._state.topologies.objects.values()
            if any(step.pod_network == name for step in topology.spec.steps)
        }
        for share in self._shares_of(name):
            yield share, not on_network.isdisjoint(share.topologies)

    def _requests_of(self, name: str) -> list[_Request]:
        return [*self._requested.get(name, {}).values()]

    def _report(self, name: str, counts: Mapping[str, Available]) -> None:
        """Report to pods that are not scheduled why they get no address, once and then now and then."""
        network, requests = self._networks.objects.get(name), self._requested.get(name, {})
        if network is None or not requests:
            self._reminders.pop(name, None)
            return
        most = max((count.left for count in counts.values()), default=0)
        excluded = {key: entry for key, entry in requests.items() if not network.spec.allows(entry.metadata.namespace)}
        waiting = {key: entry for key, entry in requests.items() if entry.steps > most and key not in excluded}
        if not excluded and not waiting:
            return
        reminders = self._reminders.setdefault(name, Reminders())
        reminders.keep(requests)
        for key, entry in excluded.items():
            problem = NotAllowedError.reason
            if reminders.is_due(key, (entry.metadata.uid, problem)):
                reminders.note(key, (entry.metadata.uid, problem))
                namespace, listed = entry.metadata.namespace, ", ".join(network.spec.namespaces)
                what = f'PodNetwork "{name}" is not for namespace "{namespace}"'
                hint = f'an administrator can add "{namespace}" to its spec.namespaces: {listed}'
                self._warn(entry, problem, what, hint)
        free = "no free address" if not most else f"free addresses for {most} more steps"
        hint = "the pod stays Pending until addresses are released, or a range is added to the PodNetwork"
        for key, entry in waiting.items():
            if not reminders.is_due(key, (entry.metadata.uid, NoFreeAddressError.reason)):
                continue
            reminders.note(key, (entry.metadata.uid, NoFreeAddressError.reason))
            wanted = f", and the claim requests {entry.steps}" if entry.steps > 1 else ""
            self._warn(entry, NoFreeAddressError.reason, f'PodNetwork "{name}" has {free}{wanted}', hint)
        self.work.add(name, REPORT_SECONDS)

    def _warn(self, request: _Request, reason: str, what: str, hint: str) -> None:
        for regarding in claim_references(request.metadata):
            self._recorder.emit(
                Occurrence(
                    regarding=regarding,
                    type="Warning",
                    reason=reason,
                    action=ACTION,
                    note=sentence(what, hint),
                    next_step=hint,
                )
            )


def _replace(index: dict[str, dict[str, T]], key: str, before: Iterable[str], after: Mapping[str, T]) -> None:
    """Put a claim's entries in the place of those that it had."""
    for network in before:
        if network not in after:
            del index[network][key]
            if not index[network]:
                del index[network]
    for network, entry in after.items():
        index.setdefault(network, {})[key] = entry


def _counted(
    ledger: NetworkLedger, given: Iterable[tuple[_Share, bool]], requests: list[_Request]
) -> dict[str, Available]:
    """The available addresses of each group of nodes.

    The scheduler subtracts all allocated shares, so they are part of the capacity. Addresses are promised only to those
    that will get some: not to claims of a namespace that the network excludes or that are beyond its limit, nor to
    claims that have no step on it (decision D76).

    Args:
        given: the allocated shares, each with whether a step of the claim is on the network.
        requests: those of claims that are not allocated.
    """
    network = ledger.network
    free, awaited = dict(enumerate(ledger.free)), _awaited(ledger, requests)
    consumed, wanted = Counter[str](), Counter[tuple[str, str]]()
    for share, is_useful in given:
        consumed[share.group] += share.steps
        if is_useful and network.spec.allows(share.namespace) and not ledger.steps_of(share.claim):
            wanted[share.group, share.namespace] += share.steps
    promised = Counter[str]()
    for (group_key, namespace), steps in wanted.items():
        left = ledger.left_for(namespace)
        promised[group_key] += steps if left is None else min(steps, left)
    counts = {
        group.key: shares.available(group, free, awaited, consumed[group.key], promised[group.key])
        for group in shares.groups(network)
    }
    if network.metadata.deletion_timestamp:
        return {key: Available(count.consumed, 0) for key, count in counts.items()}
    return counts


def _awaited(ledger: NetworkLedger, requests: list[_Request]) -> Counter[int]:
    """How many addresses of each range are kept or reserved for claims that wait for their allocation."""
    awaited, seen = Counter[int](), set[tuple[str, int]]()
    for request in requests:
        if not ledger.network.spec.allows(request.metadata.namespace):
            continue
        pod, left = pod_owner(request.metadata), Counter[str]()
        owner = request.metadata.namespace, pod.name if pod is not None else "", request.metadata.name
        for at, family, number in ledger.awaiting(*owner):
            if (family, number) in seen or left[family] >= request.steps:
                continue
            seen.add((family, number))
            left[family] += 1
            awaited[at] += 1
    return awaited


def _shares(claim: WatchedClaim | None) -> dict[str, tuple[_Share, ...]]:
    """A claim's shares, by network."""
    found: dict[str, tuple[_Share, ...]] = {}
    if claim is None or claim.status.allocation is None:
        return found
    for result in claim.status.allocation.devices.results:
        network = result.pod_network
        if not network:
            continue
        metadata, steps = claim.metadata, shares.steps_of(result.consumed_capacity)
        share = _Share(metadata.uid, metadata.namespace, names.group_of(result.pool), steps, topologies_of(claim))
        found[network] = (*found.get(network, ()), share)
    return found


def _requests(claim: WatchedClaim | None) -> dict[str, _Request]:
    """The requests of a claim that is not allocated, by network."""
    steps = Counter[str]()
    if claim is None or claim.status.allocation is not None or claim.metadata.deletion_timestamp:
        return {}
    for request in claim.spec.devices.requests:
        exactly = request.exactly
        assert exactly is not None  # others are dropped on reading
        amounts = exactly.capacity.requests if exactly.capacity is not None else {}
        steps[names.network_of_class(exactly.device_class_name)] += max(exactly.count, 1) * max(
            shares.steps_of(amounts), 1
        )
    return {network: _Request(claim.metadata, count) for network, count in steps.items()}


def _network_of(entry: ResourceSlice) -> str:
    return names.network_of(entry.spec.pool.name)


def _amount(entry: ResourceSlice | None) -> int | None:
    """The capacity that a slice publishes; None without one."""
    for device in entry.spec.devices if entry is not None else ():
        return shares.steps_of({name: capacity.value for name, capacity in device.capacity.items()})
    return None


def _content(entry: ResourceSlice) -> tuple[object, ...]:
    """The content of a slice in one notation: the API server rewrites quantities, and times of taints."""
    devices = tuple(
        replace(device, capacity={}, taints=tuple(replace(taint, time_added=None) for taint in device.taints))
        for device in entry.spec.devices
    )
    spec: ResourceSliceSpec = replace(entry.spec, devices=devices)
    return spec, _amount(entry), entry.metadata.owner_references
