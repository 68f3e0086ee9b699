"""Hooks of pods while programs of the node register devices, and while some of them flood the registry's socket.

RunPodSandbox and StopPodSandbox as in `bench hook`, with the registry served by the same event loop. A process of its
own states when a pod comes, so a hook's time begins before the loop gets to it, as with a runtime. Others, also bounded
in time, register 1,000 times a second, open a connection after the other for all the calls that one may carry, send
frames that ask for an answer, or bytes that mean nothing. Figures are ratios to the same with a socket that is idle.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import statistics
import struct
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from grpclib.client import Channel, UnaryUnaryMethod
from h2.config import H2Configuration
from h2.connection import H2Connection

from bench import hook
from bench.figures import Figure
from netdra.model.plan import PlannedDevice
from netdra.model.registration import RegistrationOutcome
from netdra.model.resource import ResourceSlice
from netdra.node.nri.hooks import Sandbox
from netdra.node.priority import PriorityGate
from netdra.node.registry.connections import Caller
from netdra.node.registry.place import Place
from netdra.node.registry.service import SERVICE, Registry
from netdra.node.registry.table import FILE, RegistrationTable
from netdra.node.view import DeviceHealth
from netdra.node.wire import registry_pb2 as wire
from netdra.topology.devices import DeviceKey

ROUNDS = 200
QUICK = {"ROUNDS": 4}
TWICE = 2.0
_APART = (0.005, 0.02)
_MOST_SECONDS = 120.0
_CONNECTIONS = 48
_STREAMS = 90
_RATE = 1000
_DEVICES = 100
_UNTIL_FULL = 1.0
_PAUSE_SECONDS = 0.001
_REQUEST = wire.RegisterAttributesRequest
_TIME = struct.Struct("d")
_KINDS = {
    "1,000 registrations a second": "steady",
    "48 connections full of calls": "calls",
    "48 connections full of pings": "pings",
    "48 connections full of garbage": "garbage",
}


def run() -> Iterator[Figure]:
    """The figures of each kind of load, and of an idle socket."""
    gc.freeze()  # as `netdra.ops.process` does: a hook is not interrupted to collect imported objects
    idle = asyncio.run(_measured(""))
    yield Figure("hooks beside an idle registry, p99", 1000 * _p99(idle), "ms", 0.0, _note(idle))
    for name, kind in _KINDS.items():
        seconds = asyncio.run(_measured(kind))
        ratio = _p99(seconds) / _p99(idle)
        yield Figure(f"hooks beside {name}, p99 to idle", ratio, "x", TWICE, _note(seconds))


def _p99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)]


def _note(seconds: Sequence[float]) -> str:
    most = 1000 * max(seconds)
    return f"p50 {1000 * statistics.median(seconds):.1f}, p99 {1000 * _p99(seconds):.1f}, most {most:.1f} ms"


async def _measured(kind: str) -> list[float]:
    """Seconds of each hook from the moment in which the pod came."""
    seconds: list[float] = []
    with hook.bed() as (pods, claim, pod, _), tempfile.TemporaryDirectory(prefix="registry-") as folder:
        prepared = pods.network.table.prepared.get(claim.metadata.uid)
        assert prepared is not None
        gate = PriorityGate()
        async with _registry(Path(folder), gate) as (path, table), _program("runtime") as runtime, _load(kind, path):
            for number in range(ROUNDS):
                box = Sandbox(id=f"sb-{number}", name="pod", namespace="ns", uid="pod-uid", netns=pod.path, pid=1)
                pods.network.table.prepared.put(prepared)
                pods.network.table.files.write_metadata(prepared)
                for call in (pods.hooks.run, pods.hooks.stop):
                    begun = await _comes(runtime)
                    with gate.in_hand():
                        await call(box, hook.BUDGET)
                    seconds.append(time.monotonic() - begun)
                await pods.claims.unprepare(claim.reference)
            if kind == "steady":
                assert len(table) == _DEVICES
        await pods.hooks.aclose()
    return seconds


async def _comes(runtime: Process) -> float:
    """Wait until the runtime has a pod; when that was."""
    assert runtime.stdin is not None
    assert runtime.stdout is not None
    runtime.stdin.write(b"?")
    (begun,) = _TIME.unpack(await runtime.stdout.readexactly(_TIME.size))
    return float(begun)


class _Anyone:
    """Callers are users of the machine."""

    async def owner(self, caller: Caller) -> str:
        return f"uid:{caller.uid}"


@dataclass
class _Node:
    """The node's part for the registry."""

    gate: PriorityGate
    passes: int = 0
    devices: Mapping[DeviceKey, PlannedDevice] = field(default_factory=dict)
    slices: Sequence[ResourceSlice] = ()
    outcomes: Sequence[RegistrationOutcome] = ()


@asynccontextmanager
async def _registry(folder: Path, gate: PriorityGate) -> AsyncIterator[tuple[Path, RegistrationTable]]:
    """A registry that serves, with nothing about a node."""
    table = RegistrationTable(folder / FILE)

    async def states() -> AsyncIterator[Sequence[DeviceHealth]]:
        yield ()
        await asyncio.Event().wait()

    callers: Any = _Anyone()
    path = folder / "registry.sock"
    registry = Registry(Place(path=path), table, callers, _Node(gate), states)
    serving = asyncio.create_task(registry.run())
    try:
        await registry.serving.wait()
        yield path, table
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


@asynccontextmanager
async def _program(*arguments: str) -> AsyncIterator[Process]:
    """A part of this benchmark in a process of its own, which states when it has begun."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.registry", *arguments, stdin=PIPE, stdout=PIPE
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readexactly(1) == b"!"
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@asynccontextmanager
async def _load(kind: str, path: Path) -> AsyncIterator[None]:
    if not kind:
        yield
        return
    async with _program(kind, str(path)):
        await asyncio.sleep(_UNTIL_FULL)
        yield


def _runtime() -> None:
    """Report when a pod comes, some time after each byte that requests one."""
    say = sys.stdout.buffer
    while sys.stdin.buffer.read(1):
        time.sleep(random.uniform(*_APART))
        say.write(_TIME.pack(time.monotonic()))
        say.flush()


async def _register(path: str) -> None:
    """Register `_RATE` times a second, over a few connections."""
    channels = [Channel(path=path) for _ in range(4)]
    gives = wire.RegisterAttributesResponse
    methods = [UnaryUnaryMethod(channel, f"{SERVICE}/RegisterAttributes", _REQUEST, gives) for channel in channels]
    running: set[asyncio.Task[Any]] = set()
    begun = time.monotonic()
    for number in itertools.count():
        if (ahead := begun + number / _RATE - time.monotonic()) > 0:
            await asyncio.sleep(ahead)
        if time.monotonic() - begun > _MOST_SECONDS:
            return
        while len(running) >= _STREAMS:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(methods[number % 4](_request(number % _DEVICES, number)))
        running.add(task)
        task.add_done_callback(running.discard)


def _request(device: int, value: int) -> wire.RegisterAttributesRequest:
    amount = wire.DeviceCapacity(value=str(value))
    return _REQUEST(provider="bctl", device=f"eth{device}", capacity={"bandwidth": amount})


def _calls() -> bytes:
    """All calls that a connection may carry at one time."""
    connection = _preface()
    headers = (
        *((":method", "POST"), (":scheme", "http"), (":path", f"{SERVICE}/RegisterAttributes")),
        *((":authority", "localhost"), ("te", "trailers"), ("content-type", "application/grpc")),
    )
    for number in range(_STREAMS):
        stream, message = connection.get_next_available_stream_id(), _request(number, number).SerializeToString()
        connection.send_headers(stream, headers)
        connection.send_data(stream, struct.pack(">?I", False, len(message)) + message, end_stream=True)
    return connection.data_to_send()


def _pings() -> bytes:
    connection = _preface()
    for _ in range(20_000):
        connection.ping(b"12345678")
    return connection.data_to_send()


def _preface() -> H2Connection:
    connection = H2Connection(H2Configuration(client_side=True))
    connection.initiate_connection()
    return connection


def _text(kind: str) -> bytes:
    """The text of a kind of load."""
    texts: dict[str, Callable[[], bytes]] = {"calls": _calls, "pings": _pings, "garbage": partial(bytes, 800_000)}
    return texts[kind]()


async def _flood(path: str, text: bytes) -> None:
    """Send the same over many connections as fast as they take it, repeatedly."""
    async with asyncio.timeout(_MOST_SECONDS), asyncio.TaskGroup() as tasks:
        for _ in range(_CONNECTIONS):
            tasks.create_task(_say(path, text))


async def _say(path: str, text: bytes) -> None:
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_unix_connection(path)
            with suppress(OSError, TimeoutError):
                writer.write(text)
                await writer.drain()
                while await asyncio.wait_for(reader.read(1 << 16), 0.2):
                    pass
            writer.close()
        # It is netdra's time that is measured, not what is left of the machine beside a program that spins.
        await asyncio.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    print("!", end="", flush=True)
    if sys.argv[1] == "runtime":
        _runtime()
    elif sys.argv[1] == "steady":
        asyncio.run(_register(sys.argv[2]))
    else:
        asyncio.run(_flood(sys.argv[2], _text(sys.argv[1])))
