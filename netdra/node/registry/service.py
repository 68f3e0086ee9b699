"""The device registry's gRPC service (`protos/registry.proto`, `protos/device_registry.proto`) on its unix socket.

Run by `netdra.node.daemon` with `--registry-socket`. Pods go first: each call that changes something waits
for the gate, and one such call is worked on at a time. A socket that cannot be made ends no more than the registry's
service, and a full disk no more than that registrations outlive a restart.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from google.protobuf.message import Message

from netdra.grpc.calls import Methods
from netdra.kernel.device_files import DeviceFiles
from netdra.kube.backoff import Backoff
from netdra.model.errors import NetdraError
from netdra.model.plan import PlannedDevice
from netdra.model.registration import DeviceFile, Registration, RegistrationOutcome, path_error
from netdra.model.resource import ResourceSlice
from netdra.node import metrics
from netdra.node.kubelet import presence
from netdra.node.priority import PriorityGate
from netdra.node.publishing.interfaces import Bucket
from netdra.node.registry.callers import Callers
from netdra.node.registry.connections import AnswerSlots, Caller, RegistryServer, of_caller, streaming_to_caller
from netdra.node.registry.effect import Effect
from netdra.node.registry.listing import Listing
from netdra.node.registry.messages import from_request, wire_device
from netdra.node.registry.owners import ROOT
from netdra.node.registry.place import Place, listen
from netdra.node.registry.refusals import refusal
from netdra.node.registry.shares import RefusedRegistrationError
from netdra.node.registry.standard import standard_methods
from netdra.node.registry.table import DEFAULT_TTL, RegistrationTable
from netdra.node.view import DeviceHealth
from netdra.node.wire import device_registry_pb2 as first
from netdra.node.wire import registry_pb2 as wire
from netdra.ops.bounded import ConnectionLimits
from netdra.topology.devices import DeviceKey

log = logging.getLogger(__name__)
_Call = Callable[[Any, Caller], Awaitable[Message]]

SERVICE = "/netdra.registry.v1alpha1.DeviceRegistry"
FIRST_SERVICE = "/DeviceRegistry"
SERVICES = (wire.DESCRIPTOR.services_by_name["DeviceRegistry"], first.DESCRIPTOR.services_by_name["DeviceRegistry"])
FIRST_TTL = 86_400
"""Seconds of a lease where the request cannot say."""
LIMITS = ConnectionLimits(connections=64, of_peer=48, first=15.0, idle=300.0, request=10.0, held=16 * 1024 * 1024)
CALLS_PER_SECOND = 2000
"""How many calls are worked on; a caller that sends more is answered later."""
LISTS_OF_CALLER, LISTS = 4, 16
"""How many pages of registrations are made and not read yet at one time; other calls wait."""
WATCHES_OF_CALLER, WATCHES = 8, 32
"""How many calls may watch; more are refused."""
GRACE_SECONDS = 2.0
REMADE_SECONDS = 0.2
"""After how long a socket that somebody has deleted is made anew: another program may serve in its place by then."""
LONGEST_WAIT = 30.0


class View(Protocol):
    """The node as callers of the registry may read it; `netdra.node.publishing` is one."""

    gate: PriorityGate
    passes: int

    @property
    def devices(self) -> Mapping[DeviceKey, PlannedDevice]:
        """The facts of each device that is published."""

    @property
    def slices(self) -> Sequence[ResourceSlice]:
        """The slices with these devices."""

    @property
    def outcomes(self) -> Sequence[RegistrationOutcome]:
        """The outcome of each registration, of sockets and CustomDevices."""


class Registry:
    """The service of one node."""

    def __init__(
        self,
        place: Place,
        table: RegistrationTable,
        callers: Callers,
        view: View,
        states: Callable[[], AsyncIterator[Sequence[DeviceHealth]]],
        files: DeviceFiles | None = None,
    ) -> None:
        """Begin nothing yet.

        Args:
            place: the socket.
            table: the registrations.
            callers: the owners of callers.
            view: the node.
            states: how all devices are, now and whenever one changes.
            files: which device files may be registered; without it none.
        """
        self._place, self._table, self._callers = place, table, callers
        self._view, self._states = view, states
        self._files = files or DeviceFiles()
        self._listing = Listing(table, view, lambda path: self._files.look(path).text)
        self._effect = Effect(view)
        self._answers, self._watches = AnswerSlots(LISTS_OF_CALLER, LISTS), AnswerSlots(WATCHES_OF_CALLER, WATCHES)
        self._turn = asyncio.Lock()
        self._bucket = Bucket(CALLS_PER_SECOND, 0.0, CALLS_PER_SECOND, 1 / CALLS_PER_SECOND)
        self.problem = "not begun yet"
        self.serving = asyncio.Event()

    @property
    def methods(self) -> Methods:
        """The methods of all services by their paths."""
        calls: Mapping[str, tuple[type[Message], _Call]] = {
            "RegisterAttributes": (wire.RegisterAttributesRequest, self._attributes),
            "RegisterDevice": (wire.RegisterDeviceRequest, self._device),
            "Deregister": (wire.DeregisterRequest, self._deregister),
            "ListRegistrations": (wire.ListRegistrationsRequest, self._list),
        }
        methods = {
            f"{SERVICE}/{name}": of_caller(
                takes, _refusing(call), LIMITS, self._answers if call == self._list else None
            )
            for name, (takes, call) in calls.items()
        }
        methods[f"{SERVICE}/WatchDevices"] = streaming_to_caller(
            wire.WatchDevicesRequest, self._watch, LIMITS, self._watches
        )
        methods[f"{FIRST_SERVICE}/RegisterAttributes"] = of_caller(first.RegisterAttributesRequest, self._first, LIMITS)
        return {**methods, **standard_methods(SERVICES, LIMITS, self._watches)}

    async def run(self) -> None:
        """Serve until cancelled; a problem with the socket is logged, and tried again."""
        async with asyncio.TaskGroup() as tasks:
            await self._table.own()
            tasks.create_task(self._table.run())
            tasks.create_task(self._serve())

    async def _serve(self) -> None:
        backoff = Backoff(most=LONGEST_WAIT)
        while True:
            try:
                opened, made = listen(self._place)
            except NetdraError as problem:
                if str(problem) != self.problem:
                    log.warning("the device registry does not serve: %s", problem)
                self.problem = str(problem)
                await asyncio.sleep(backoff.next(0.0))
                continue
            await self._serve_on(opened, made)
            log.warning("%s was deleted or replaced: it is created again", self._place.path)
            await asyncio.sleep(REMADE_SECONDS)

    async def _serve_on(self, opened: socket.socket, made: presence.Identity) -> None:
        """Serve on a socket until it is deleted or replaced."""
        path = self._place.path
        server = RegistryServer(self.methods, LIMITS, self._view.gate)
        await server.start(opened)
        self.problem = ""
        self.serving.set()
        log.info("the device registry serves on %s", path)
        try:
            await presence.wait_gone({path: made})
        finally:
            presence.remove_own(path, made)
            await server.stop(GRACE_SECONDS)

    async def _attributes(self, request: wire.RegisterAttributesRequest, caller: Caller) -> Message:
        ttl = request.ttl_seconds if request.HasField("ttl_seconds") else DEFAULT_TTL
        message, ttl = await self._register(request, caller, ttl, *self._before(request))
        return wire.RegisterAttributesResponse(success=True, message=message, ttl_seconds=ttl)

    async def _device(self, request: wire.RegisterDeviceRequest, caller: Caller) -> Message:
        if request.HasField("device_file") and not request.device_file:
            raise RefusedRegistrationError('device_file: "" is not a path; omit it for an interface', code="ND2214")
        ttl = request.ttl_seconds if request.HasField("ttl_seconds") else DEFAULT_TTL
        message, ttl = await self._register(request, caller, ttl, True, request.device_file)
        return wire.RegisterDeviceResponse(success=True, message=message, ttl_seconds=ttl)

    async def _first(self, request: first.RegisterAttributesRequest, caller: Caller) -> Message:
        """The service's first form has no lease in its requests, and refusals in its answers."""
        try:
            message, ttl = await self._register(request, caller, FIRST_TTL, *self._before(request))
        except NetdraError as problem:
            return first.RegisterAttributesResponse(success=False, message=str(problem))
        return first.RegisterAttributesResponse(
            success=True, message=message or f"it holds for {ttl} s; register again before"
        )

    def _before(self, request: Any) -> tuple[bool, str]:
        """Whether the provider registered the device as one, and as which file: attributes do not change that."""
        grant = self._table.get(request.provider, request.device)
        return (grant.registration.adds, grant.registration.device_file) if grant is not None else (False, "")

    async def _register(self, request: Any, caller: Caller, ttl: int, adds: bool, device_file: str) -> tuple[str, int]:
        """Register what a request states; returns what there is to know, and the seconds of the lease.

        Raises:
            NetdraError: it is refused, or the caller's token could not be reviewed.
        """
        try:
            owner = await self._admit(caller)
            registration = from_request(request, adds=adds, device_file=device_file)
            file = self._device_file(registration)
            idle = self._effect.check(registration)
            grant, lost = await self._table.register(registration, owner, float(ttl))
        except NetdraError:
            metrics.REGISTRY_CALLS.labels("refused").inc()
            raise
        metrics.REGISTRY_CALLS.labels("granted").inc()
        message = f"it holds, but is lost if the driver restarts: {lost}" if lost else ""
        return "; ".join(filter(None, (file.text, idle, message))), int(grant.ttl)

    def _device_file(self, registration: Registration) -> DeviceFile:
        """The file at a registration's path; one that is not there is waited for.

        Raises:
            RefusedRegistrationError: the file is not given to any pod.
        """
        if not registration.device_file or path_error(registration.device_file):
            return DeviceFile()
        file = self._files.look(registration.device_file)
        if file.problem and not file.missing:
            raise RefusedRegistrationError(file.problem, hint=file.hint, code="ND2215")
        return file

    async def _deregister(self, request: wire.DeregisterRequest, caller: Caller) -> Message:
        owner = await self._admit(caller)
        anyone = owner == ROOT
        count, lost = await self._table.deregister(request.provider, request.device, owner, anyone=anyone)
        if not count:
            of_device = f' for "{request.device}"' if request.device else ""
            nothing = f'nothing was registered by "{request.provider}"{of_device}'
            return wire.DeregisterResponse(success=True, message=nothing)
        return wire.DeregisterResponse(success=True, message=lost)

    async def _admit(self, caller: Caller) -> str:
        """Wait for the caller's turn, and return the owner that it registers as.

        Raises:
            NetdraError: the caller's token is not valid, or the API server did not review it.
        """
        loop = asyncio.get_running_loop()
        async with self._turn:
            await self._view.gate.wait()
            # Other tasks have their turn between two calls, however many calls there are.
            await asyncio.sleep(self._bucket.wait(loop.time()))
            self._bucket = self._bucket.less(loop.time())
        return await self._callers.owner(caller)

    async def _list(self, request: wire.ListRegistrationsRequest, caller: Caller) -> Message:
        await self._admit(caller)
        return self._listing.page(request)

    async def _watch(self, _: wire.WatchDevicesRequest) -> AsyncGenerator[Message, None]:
        async for listed in self._states():
            devices = self._view.devices
            yield wire.WatchDevicesResponse(devices=[wire_device(entry, devices) for entry in listed])


def _refusing(call: _Call) -> _Call:
    """A call whose refusals are statuses of gRPC."""

    async def answer(request: Any, caller: Caller) -> Message:
        try:
            return await call(request, caller)
        except NetdraError as problem:
            raise refusal(problem) from None

    return answer
