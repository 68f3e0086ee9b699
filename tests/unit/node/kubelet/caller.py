"""A kubelet as a driver sees it: calls over real gRPC on unix sockets, by another implementation than the driver's."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from netdra.model.errors import InvalidInputError
from netdra.model.plan import ClaimReference
from netdra.node.claims.store import PreparedDevice
from netdra.node.kubelet import plugin, services
from netdra.node.kubelet.plugin import Sockets
from netdra.node.kubelet.services import ClaimServices, HealthSource, KubeletRegistration
from netdra.node.priority import PriorityGate, Turns
from netdra.node.view import DeviceHealth
from netdra.node.wire import kubelet_pb2 as wire

V1 = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
V1BETA1 = "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"
REGISTRATION = "/pluginregistration.Registration"
WITHIN = 60.0
_RUNNER = asyncio.Runner()  # gRPC's client has one poller for all event loops, which trips over one that is closed
atexit.register(_RUNNER.close)
SHARED = PreparedDevice(
    requests=("main/sub",),
    pool="n1/nic-eth1",
    device="eth1",
    cdi_ids=("dra.networking/claim=u-main",),
    share_id="5a5e2d2c-0000-4000-8000-000000000001",
)


@dataclass
class Handler:
    """Answers as each claim's name states, and remembers what it was asked."""

    asked: list[str] = field(default_factory=list)
    noted: list[tuple[str, str]] = field(default_factory=list)
    meet: asyncio.Barrier | None = None
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    async def prepare(self, claim: ClaimReference) -> tuple[PreparedDevice, ...]:
        self.asked.append(f"prepare {claim.namespace}/{claim.name} {claim.uid}")
        async with self.changed:
            self.changed.notify_all()
        try:
            if self.meet is not None:
                await self.meet.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        self._fail(claim)
        return (SHARED,)

    async def unprepare(self, claim: ClaimReference) -> None:
        self.asked.append(f"unprepare {claim.uid}")
        self._fail(claim)

    def note(self, claim: ClaimReference, problem: str, _hint: str) -> None:
        self.noted.append((claim.name, problem))

    async def until_asked(self, times: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.asked) >= times)

    def _fail(self, claim: ClaimReference) -> None:
        if claim.name == "wrong":
            raise InvalidInputError("the claim is wrong", hint="mend it")
        if claim.name == "defect":
            raise ZeroDivisionError("a secret detail")


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        try:
            async with asyncio.timeout(WITHIN):
                await test()
        finally:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    _RUNNER.run(bounded())


def nothing(*_: object) -> None:
    pass


async def nothing_yet() -> AsyncIterator[Sequence[DeviceHealth]]:
    await asyncio.Event().wait()
    yield ()


def serving(
    paths: Sockets, handler: Handler, health: HealthSource = nothing_yet
) -> AbstractAsyncContextManager[KubeletRegistration]:
    """The plugin's services over a handler."""
    return plugin.serving(paths, ClaimServices(handler, nothing, nothing, Turns(PriorityGate()), handler.note), health)


@asynccontextmanager
async def calling(path: Path) -> AsyncIterator[grpc.aio.Channel]:
    """A connection of its own: channels share those of closed ones, also to a server whose socket was deleted since."""
    own = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(f"unix:{path}", options=own) as channel:
        yield channel


async def call(channel: grpc.aio.Channel, method: str, request: Message, answer: type[Any]) -> Any:
    invoke: Any = channel.unary_unary(
        method, request_serializer=lambda message: message.SerializeToString(), response_deserializer=answer.FromString
    )
    return await invoke(request)


def watching(channel: grpc.aio.Channel, version: str = services.HEALTH_V1) -> Any:
    """A stream of the devices' health."""
    watch: Any = channel.unary_stream(
        f"/{version}/NodeWatchResources",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=wire.WatchResponse.FromString,
    )
    return watch(wire.WatchRequest())


def claims_of(*names: str) -> list[wire.Claim]:
    return [wire.Claim(namespace="ns", name=name, uid=f"uid-{place}") for place, name in enumerate(names)]


async def prepare(channel: grpc.aio.Channel, *names: str, service: str = V1) -> wire.PrepareResponse:
    request = wire.PrepareRequest(claims=claims_of(*names))
    found: wire.PrepareResponse = await call(channel, f"{service}/NodePrepareResources", request, wire.PrepareResponse)
    return found


@contextmanager
def failing(code: grpc.StatusCode, text: str) -> Iterator[None]:
    """A call ends in a status, and with a text to the letter."""
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        yield
    assert (failure.value.code(), failure.value.details()) == (code, text)
