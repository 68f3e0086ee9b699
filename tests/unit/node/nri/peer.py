"""The runtime's end of a connection, scripted: for runtimes older than the test bed's, and for faults of none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import Message

from netdra.node.nri.hooks import Sandbox
from netdra.node.nri.plugin import PLUGIN_SERVICE
from netdra.nri import framing, nri_pb2, ttrpc_pb2
from netdra.nri.framing import Demux, Frame, FrameKind, Reader, encode

PATIENCE = 30.0


class Peer:
    """One connection of a plugin, seen by the runtime."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.ended = asyncio.Event()
        self.is_closed = False
        self._reader = reader
        self._next_call = 1
        self._requests: asyncio.Queue[Frame] = asyncio.Queue()
        self._responses: dict[int, asyncio.Future[ttrpc_pb2.Response]] = {}
        self._pump = asyncio.create_task(self._read())

    async def _read(self) -> None:
        demux, requests, responses = Demux(), Reader(FrameKind.REQUEST), Reader(FrameKind.RESPONSE)
        try:
            while data := await self._reader.read(1 << 16):
                for stream, payload in demux.feed(data):
                    if stream == framing.RUNTIME_STREAM:
                        for frame in requests.feed(payload):
                            self._requests.put_nowait(frame)
                    else:
                        for frame in responses.feed(payload):
                            self._responses.pop(frame.call).set_result(ttrpc_pb2.Response.FromString(frame.data))
        except ConnectionError:
            pass
        finally:
            self.ended.set()

    async def registration(self) -> tuple[int, nri_pb2.RegisterPluginRequest]:
        """The plugin's next call, which is to be RegisterPlugin, and its number."""
        async with asyncio.timeout(PATIENCE):
            frame = await self._requests.get()
        request = ttrpc_pb2.Request.FromString(frame.data)
        assert (request.service, request.method) == ("nri.pkg.api.v1alpha1.Runtime", "RegisterPlugin")
        return frame.call, nri_pb2.RegisterPluginRequest.FromString(request.payload)

    def accept(self, call: int, code: int = 0, text: str = "") -> None:
        response = ttrpc_pb2.Response(status=ttrpc_pb2.Status(code=code, message=text))
        self.send(framing.RUNTIME_STREAM, Frame(call, FrameKind.RESPONSE, response.SerializeToString()))

    def send(self, stream: int, frame: Frame) -> None:
        self.writer.write(framing.frames(stream, encode(frame)))

    def begin(
        self, method: str, message: Message, *, seconds: float = 0.0, service: str = PLUGIN_SERVICE
    ) -> asyncio.Future[ttrpc_pb2.Response]:
        """Ask, and do not wait."""
        call, self._next_call = self._next_call, self._next_call + 2
        self._responses[call] = asyncio.get_running_loop().create_future()
        payload = message.SerializeToString()
        request = ttrpc_pb2.Request(service=service, method=method, payload=payload, timeout_nano=int(seconds * 1e9))
        self.send(framing.PLUGIN_STREAM, Frame(call, FrameKind.REQUEST, request.SerializeToString()))
        return self._responses[call]

    async def ask(
        self, method: str, message: Message, *, seconds: float = 0.0, service: str = PLUGIN_SERVICE
    ) -> ttrpc_pb2.Response:
        """Ask, and wait for the answer."""
        async with asyncio.timeout(PATIENCE):
            return await self.begin(method, message, seconds=seconds, service=service)

    async def handshake(self, *pods: nri_pb2.PodSandbox, request_timeout: int = 0) -> None:
        """Register, configure and synchronize, in the order of current runtimes."""
        call, _ = await self.registration()
        self.accept(call)
        configure = nri_pb2.ConfigureRequest(runtime_name="scripted", request_timeout=request_timeout)
        assert (await self.ask("Configure", configure)).status.code == 0
        assert (await self.ask("Synchronize", nri_pb2.SynchronizeRequest(pods=pods))).status.code == 0

    async def close(self) -> None:
        self.is_closed = True
        self.writer.close()
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)


@asynccontextmanager
async def listening(path: Path) -> AsyncIterator[Callable[[], asyncio.Task[Peer]]]:
    """A runtime's socket; gives a function that waits for the next plugin to connect."""
    arrived: asyncio.Queue[Peer] = asyncio.Queue()
    peers: list[Peer] = []

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers[:] = [*(peer for peer in peers if not peer.is_closed), Peer(reader, writer)]
        arrived.put_nowait(peers[-1])

    server = await asyncio.start_unix_server(connected, path)
    try:
        yield lambda: asyncio.create_task(asyncio.wait_for(arrived.get(), PATIENCE))
    finally:
        server.close()
        for peer in peers:
            await peer.close()


@dataclass
class Diary:
    """Hooks that record their calls, and then do what the test wants."""

    told: list[tuple[str, object]] = field(default_factory=list)
    budgets: list[float] = field(default_factory=list)
    act: Callable[[Sandbox], asyncio.Future[None]] | None = None

    async def synchronize(self, sandboxes: Sequence[Sandbox]) -> None:
        self.told.append(("synchronize", tuple(sandboxes)))

    async def run(self, sandbox: Sandbox, budget: float) -> None:
        self.budgets.append(budget)
        await self._note("run", sandbox)

    async def stop(self, sandbox: Sandbox, budget: float) -> None:
        self.budgets.append(budget)
        await self._note("stop", sandbox)

    async def remove(self, sandbox: Sandbox) -> None:
        await self._note("remove", sandbox)

    async def _note(self, what: str, sandbox: Sandbox) -> None:
        self.told.append((what, sandbox))
        if self.act is not None:
            await self.act(sandbox)


def pod(name: str, netns: str | None = None, pid: int = 7) -> nri_pb2.PodSandbox:
    """A pod's sandbox as a runtime describes it; `netns` None is a pod on the host's network."""
    namespaces = [nri_pb2.LinuxNamespace(type="pid", path="/proc/1/ns/pid")]
    if netns is not None:
        namespaces.append(nri_pb2.LinuxNamespace(type="network", path=netns))
    linux = nri_pb2.LinuxPodSandbox(namespaces=namespaces)
    return nri_pb2.PodSandbox(id=f"id-{name}", name=name, namespace="ns", uid=f"uid-{name}", linux=linux, pid=pid)


def seen(name: str, netns: str = "", pid: int = 7) -> Sandbox:
    """The sandbox of `pod` as the hooks should get it."""
    return Sandbox(id=f"id-{name}", name=name, namespace="ns", uid=f"uid-{name}", netns=netns, pid=pid)
