"""Writes EndpointSlices for Services of PodNetworks, so that names resolve to the pods' addresses there (D72, D75).

Run by `netdra.controller.daemon` while this process leads, if it is switched on. `netdra.controller.services.pods`
watches the pods, `netdra.controller.addresses.pod_addresses` knows their addresses, `netdra.services` works out the
slices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import ExitStack

from netdra.controller.addresses.pod_addresses import PodAddresses
from netdra.controller.services.pods import PodSelection, ServicePods
from netdra.controller.services.slice_writing import SliceWriter
from netdra.controller.state import InHand
from netdra.kube.client import Client, Selection
from netdra.kube.errors import ApiError
from netdra.kube.events import ObjectReference, Occurrence, Recorder
from netdra.kube.queue import AGAIN, REFUSED_SECONDS, WorkQueue
from netdra.kube.reflector import Reflector
from netdra.kube.resources import ENDPOINT_SLICES, SERVICES
from netdra.kube.store import Change, Store, key_of
from netdra.model.pod_address import PodAddress, WatchedPodAddress
from netdra.model.service import (
    KUBERNETES_MANAGERS,
    MANAGED_BY,
    MANAGER,
    NETWORK_LABEL,
    SERVICE_NAME,
    EndpointSlice,
    ServedPod,
    Service,
)
from netdra.services import selector, slices
from netdra.services.check import fault
from netdra.services.endpoints import AddressedPod, endpoints, unpublishable

log = logging.getLogger(__name__)

WORKERS = 4
"""How many Services are worked on at a time."""
DEBOUNCE_SECONDS = 0.1
"""How long further changes of a Service's pods and addresses are waited for before its slices are written."""


class ServiceEndpoints:
    """The EndpointSlices of a cluster's Services of PodNetworks, for one term."""

    def __init__(self, client: Client, recorder: Recorder, addresses: PodAddresses, in_hand: InHand) -> None:
        """Begin nothing yet.

        Args:
            addresses: the addresses of the cluster.
        """
        self._client, self._recorder, self._addresses, self._in_hand = client, recorder, addresses, in_hand
        self._services: Store[Service] = Store()
        self._slices: Store[EndpointSlice] = Store()
        self._of_service: dict[str, set[str]] = {}
        self._on_network: dict[tuple[str, str], set[str]] = {}
        self._problems: dict[str, tuple[str, ...]] = {}
        self._writer = SliceWriter(client)
        self._compared: dict[str, str] = {}
        self._pods = ServicePods(client, self._add)
        self.queue: WorkQueue[str] = WorkQueue("services", self._reconcile, workers=WORKERS)

    async def run(self) -> None:
        """Work until cancelled."""
        labelled = Selection(label_selector=NETWORK_LABEL)
        own = Selection(label_selector=f"{MANAGED_BY}={MANAGER}")
        with ExitStack() as following:
            async with asyncio.TaskGroup() as tasks:
                following.enter_context(self._services.following(self._on_service_change))
                following.enter_context(self._slices.following(self._on_slice_change))
                following.enter_context(self._addresses.store.following(self._on_address_change))
                tasks.create_task(Reflector(self._client, SERVICES, self._services, labelled, vital=False).run())
                tasks.create_task(Reflector(self._client, ENDPOINT_SLICES, self._slices, own, vital=False).run())
                tasks.create_task(self._pods.run())
                for synced in (self._services, self._slices, self._addresses.store):
                    await synced.wait_synced()
                await self.queue.run()

    def _add(self, key: str) -> None:
        """Have a Service's slices written soon: later where it has many pods, for all of them are checked."""
        self.queue.add(key, max(DEBOUNCE_SECONDS, self._pods.pause(key)))

    def _on_service_change(self, change: Change[Service]) -> None:
        if change.old is not None:
            self._on_network[_place_of(change.old)].discard(change.key)
        if change.new is not None:
            self._on_network.setdefault(_place_of(change.new), set()).add(change.key)
        self._pods.select(change.key, _selection(change.new))
        self.queue.add(change.key)

    def _on_slice_change(self, change: Change[EndpointSlice]) -> None:
        for entry, note in ((change.old, set.discard), (change.new, set.add)):
            if entry is not None:
                key = _service_of(entry)
                note(self._of_service.setdefault(key, set()), change.key)
                self._add(key)

    def _on_address_change(self, change: Change[WatchedPodAddress]) -> None:
        for address in (change.old, change.new):
            if address is not None and address.spec.claim is not None:
                for key in self._on_network.get((address.spec.owner.namespace, address.spec.network), ()):
                    self._add(key)

    async def _reconcile(self, key: str) -> float | None:
        """Have the slices of a Service as they should be.

        Raises:
            NetdraError: a slice cannot be written just now.
        """
        with self._in_hand():
            done = await self._writer.write(key, self._plan_writes(key))
            self._report_refusals(key, done.refused)
            if done.refused:
                self.queue.add(key, REFUSED_SECONDS)  # and not as a failure: others do not wait longer for this one
            if done.failure is not None:
                raise done.failure
            await self._compare(key)
        return AGAIN if done.changed else None

    def _plan_writes(self, key: str) -> slices.SliceWrites:
        """The writes that a Service needs now; none while its pods are not known."""
        present = tuple(self._slices.objects[name] for name in sorted(self._of_service.get(key, ())))
        service = self._services.objects.get(key)
        problem = fault(service) if service is not None else None
        if service is None or problem is not None:
            if service is not None and problem is not None:
                self._report(service, problem.rule, problem.text)
            self._writer.forget(key)
            return slices.deletes(present)
        pods = self._pods.of(key)
        if pods is None:
            return slices.SliceWrites()
        addressed = [AddressedPod(pod, self._addresses_of(service, pod)) for pod in pods]
        if found := unpublishable(service, addressed):
            self._report(service, "AddressesNotPublished", found)
        return slices.writes(service, endpoints(service, addressed), present, self._writer.taken(key))

    def _report_refusals(self, key: str, refused: Sequence[ApiError]) -> None:
        """Report the writes that the API server refused, at the Service; in the log once for each text."""
        service, former = self._services.objects.get(key), self._problems.pop(key, ())
        texts = tuple(dict.fromkeys(map(str, refused)))
        if service is None or not texts:
            return
        self._problems[key] = texts
        for text in texts:
            if text not in former:
                log.warning("Service %s: %s", key, text)
            note = f'Service "{service.metadata.name}": an EndpointSlice is rejected, the others are up to date: {text}'
            self._report(service, "EndpointSliceRefused", note)

    def _addresses_of(self, service: Service, pod: ServedPod) -> tuple[PodAddress, ...]:
        namespace = pod.metadata.namespace
        return tuple(
            address
            for claim in dict.fromkeys(pod.claims)
            for address in self._addresses.of_claim(key_of(namespace, claim))
            if address.spec.network == service.network
        )

    async def _compare(self, key: str) -> None:
        """Report EndpointSlices that Kubernetes wrote when a Service had a selector; once for each of its versions.

        Raises:
            ApiError: they cannot be listed just now.
        """
        service = self._services.objects.get(key)
        if service is None or fault(service) is not None:
            self._compared.pop(key, None)
            return
        if self._compared.get(key) == service.metadata.resource_version:
            return
        left = await self._client.list(ENDPOINT_SLICES, _of_kubernetes(service))
        if names := sorted(entry.metadata.name for entry in left if entry.endpoints):
            self._report(service, *_left(service, names))
        self._compared[key] = service.metadata.resource_version

    def _report(self, service: Service, reason: str, note: str) -> None:
        metadata = service.metadata
        regarding = ObjectReference(
            api_version="v1", kind="Service", name=metadata.name, namespace=metadata.namespace, uid=metadata.uid
        )
        self._recorder.emit(
            Occurrence(regarding=regarding, type="Warning", reason=reason, action="PublishEndpoints", note=note)
        )


def _place_of(service: Service) -> tuple[str, str]:
    return service.metadata.namespace, service.network


def _selection(service: Service | None) -> PodSelection | None:
    """The pods of a Service, None if it gets no slices."""
    if service is None or fault(service) is not None:
        return None
    return PodSelection(service.metadata.namespace, selector.parse(service.selector))


def _of_kubernetes(service: Service) -> Selection:
    """Kubernetes' own EndpointSlices of a Service."""
    labels = f"{SERVICE_NAME}={service.metadata.name},{MANAGED_BY} in ({','.join(KUBERNETES_MANAGERS)})"
    return Selection(namespace=service.metadata.namespace, label_selector=labels)


def _left(service: Service, names: Sequence[str]) -> tuple[str, str]:
    return "ServiceHasOtherEndpoints", (
        f'Service "{service.metadata.name}" has no spec.selector, but EndpointSlices of an earlier selector still '
        f"publish addresses of the cluster's own network: {', '.join(names)}; delete the Service and create it again"
    )


def _service_of(entry: EndpointSlice) -> str:
    return key_of(entry.metadata.namespace, entry.metadata.labels.get(SERVICE_NAME, ""))
