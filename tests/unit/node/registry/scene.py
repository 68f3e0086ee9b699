"""A device registry on a real socket, and clients of it by another implementation of gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message

from netdra.kernel.device_files import DeviceFiles
from netdra.model.errors import NetdraError
from netdra.model.plan import PlannedDevice
from netdra.model.registration import RegistrationOutcome
from netdra.model.resource import ResourceSlice
from netdra.node.priority import PriorityGate
from netdra.node.registry.connections import Caller
from netdra.node.registry.owners import ROOT
from netdra.node.registry.place import Place
from netdra.node.registry.service import SERVICE, Registry
from netdra.node.registry.shares import RegistryLimits
from netdra.node.registry.table import FILE, RegistrationTable
from netdra.node.view import DeviceHealth
from netdra.node.wire import refusal_pb2 as refusal
from netdra.node.wire import registry_pb2 as wire
from netdra.topology.devices import DeviceKey

DEVICE = DeviceHealth("n/veth-eth7", "eth7", healthy=True)


@dataclass
class Node:
    """The node as the registry sees it."""

    gate: PriorityGate = field(default_factory=PriorityGate)
    devices: Mapping[DeviceKey, PlannedDevice] = field(default_factory=dict)
    slices: Sequence[ResourceSlice] = ()
    passes: int = 0
    outcomes: Sequence[RegistrationOutcome] = ()


class AnyCaller:
    """Every caller is who its token states, or a user of the machine."""

    async def owner(self, caller: Caller) -> str:
        if caller.token == "away":
            raise NetdraError("the API server is away")
        return f"account:{caller.token}" if caller.token else ROOT if caller.is_root else f"uid:{caller.uid}"


@dataclass
class Scene:
    """A registry that serves."""

    registry: Registry
    table: RegistrationTable
    path: Path
    node: Node
    channel: grpc.aio.Channel

    async def call(self, name: str, request: Message, answer: type[Any], token: str = "") -> Any:
        invoke: Any = self.channel.unary_unary(
            f"{SERVICE}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        try:
            return await invoke(request, metadata=(("authorization", f"Bearer {token}"),) if token else ())
        except grpc.aio.AioRpcError as problem:
            if refused_reason(problem):
                return answer(success=False, message=problem.details())
            raise

    async def register(self, device: str = "eth7", provider: str = "bctl", token: str = "", **more: Any) -> Any:
        said = more or {"attributes": {"rdma": wire.DeviceAttribute(bool=True)}}
        request = wire.RegisterAttributesRequest(device=device, provider=provider, **said)
        return await self.call("RegisterAttributes", request, wire.RegisterAttributesResponse, token)

    async def add(self, device: str, file: str | None = None, **more: Any) -> Any:
        request = wire.RegisterDeviceRequest(device=device, provider="bctl", device_file=file, **more)
        return await self.call("RegisterDevice", request, wire.RegisterDeviceResponse)

    async def deregister(self, provider: str = "bctl", device: str = "", token: str = "") -> Any:
        request = wire.DeregisterRequest(provider=provider, device=device)
        return await self.call("Deregister", request, wire.DeregisterResponse, token)

    async def listed(self) -> list[wire.Registration]:
        found = await self.call("ListRegistrations", wire.ListRegistrationsRequest(), wire.ListRegistrationsResponse)
        return list(found.registrations)


@asynccontextmanager
async def another_connection(scene: Scene) -> AsyncIterator[Scene]:
    """The same registry by a connection of its own."""
    async with grpc.aio.insecure_channel(f"unix:{scene.path}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield replace(scene, channel=channel)


def refused_reason(problem: grpc.aio.AioRpcError) -> str:
    """Why the registry refused a call, for programs; "" if it reports nothing of that."""
    (*_, details) = (b"", *(value for key, value in problem.trailing_metadata() or () if key.endswith("details-bin")))
    reasons = [
        refusal.ErrorInfo.FromString(detail.value).reason
        for detail in refusal.Status.FromString(details).details
        if detail.type_url == "type.googleapis.com/google.rpc.ErrorInfo"
    ]
    return reasons[0] if reasons else ""


@asynccontextmanager
async def serving(
    folder: Path,
    *,
    mode: int = 0o660,
    group: str = "",
    limits: RegistryLimits | None = None,
    wait: bool = True,
    files: Sequence[str] = (),
    place: Path | None = None,
) -> AsyncIterator[Scene]:
    node = Node()
    table = RegistrationTable(folder / FILE, limits=limits)
    path = (place or folder) / "registry.sock"
    callers: Any = AnyCaller()

    async def states() -> AsyncIterator[Sequence[DeviceHealth]]:
        yield (DEVICE,)
        await asyncio.Event().wait()

    registry = Registry(Place(path=path, mode=mode, group=group), table, callers, node, states, DeviceFiles(files))
    task = asyncio.create_task(registry.run())
    try:
        if wait:
            await registry.serving.wait()
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            yield Scene(registry, table, path, node, channel)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
