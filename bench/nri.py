"""The delay of a pod's start without work for netdra: the round trip of RunPodSandbox through an empty hook.

A process of its own (`python -m bench.nri`) plays the runtime, call after call as a runtime does, so that its work is
not counted as ours. The same bytes sent back by a bare asyncio program are the floor beside it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
from google.protobuf.message import Message

from bench.figures import Figure
from netdra.kube.backoff import Backoff
from netdra.node.nri.hooks import Sandbox
from netdra.node.nri.plugin import PLUGIN_SERVICE, NriSettings, Plugin
from netdra.nri import framing, nri_pb2, ttrpc_pb2
from netdra.nri.framing import Frame, FrameKind, encode

CALLS = 3000
WARM_UP = 300
WALL_MS = 0.5
CPU_MS = 0.4
_MUX_HEADER = struct.Struct(">II")
QUICK = {"CALLS": 30, "WARM_UP": 3}


class _Empty:
    async def synchronize(self, sandboxes: Sequence[Sandbox]) -> None:
        pass

    async def run(self, sandbox: Sandbox, budget: float) -> None:
        pass

    async def stop(self, sandbox: Sandbox, budget: float) -> None:
        pass

    async def remove(self, sandbox: Sandbox) -> None:
        pass


class _Measured(msgspec.Struct, frozen=True):
    """Of the round trips, in ms; `cpu` is that of this process for each of them."""

    median: float
    p99: float
    cpu: float


def run() -> list[Figure]:
    """Measure the plugin, then the floor."""
    ours = asyncio.run(_measured("plugin", _serve_plugin))
    floor = asyncio.run(_measured("echo", _serve_echo))
    note = f"{CALLS} calls, one after the other"
    return [
        Figure("an empty RunPodSandbox, median", ours.median, "ms", WALL_MS, f"{note}; p99 {ours.p99:.3f} ms"),
        Figure("CPU time of one", ours.cpu, "ms", CPU_MS, note),
        Figure("beside a bare echo", ours.median / floor.median, "x", 0.0, f"the echo's median: {floor.median:.3f} ms"),
    ]


async def _measured(role: str, serve: Callable[[Path], Awaitable[None]]) -> _Measured:
    with tempfile.TemporaryDirectory(prefix="netdra-nri-") as folder:
        path = Path(folder) / "nri.sock"
        runtime = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.nri", role, str(path), stdin=PIPE, stdout=PIPE
        )
        assert runtime.stdin is not None
        assert runtime.stdout is not None
        assert await runtime.stdout.readline() == b"listening\n"
        serving = asyncio.ensure_future(serve(path))
        assert await runtime.stdout.readline() == b"begins\n"
        before = time.process_time()
        assert await runtime.stdout.readline() == b"ends\n"
        used = time.process_time() - before
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        runtime.stdin.close()
        waits = msgspec.json.decode(await runtime.stdout.read(), type=list[float])
        await runtime.wait()
    waits.sort()
    return _Measured(1000 * waits[len(waits) // 2], 1000 * waits[len(waits) * 99 // 100], 1000 * used / len(waits))


async def _serve_plugin(path: Path) -> None:
    await Plugin(_Empty(), NriSettings(socket=path), backoff=Backoff(60, 60)).run()


async def _serve_echo(path: Path) -> None:
    reader, writer = await asyncio.open_unix_connection(path)
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


def _play_runtime(role: str, path: str) -> None:
    """Take one connection, and print how long each call took, in seconds."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("listening", flush=True)
        connection, _ = listener.accept()
    with connection, connection.makefile("rb") as answers:

        def ask(stream: int, frame: Frame) -> None:
            connection.sendall(framing.frames(stream, encode(frame)))

        def read() -> None:
            _, size = _MUX_HEADER.unpack(answers.read(_MUX_HEADER.size))
            answers.read(size)

        if role == "plugin":
            read()
            ask(framing.RUNTIME_STREAM, Frame(1, FrameKind.RESPONSE, b""))
            for call, (method, message) in enumerate(
                [("Configure", nri_pb2.ConfigureRequest()), ("Synchronize", nri_pb2.SynchronizeRequest())]
            ):
                ask(framing.PLUGIN_STREAM, _request(2 * call + 1, method, message))
                read()
        waits = []
        for number in range(WARM_UP + CALLS):
            if number == WARM_UP:
                print("begins", flush=True)
            frame = _request(2 * number + 5, "RunPodSandbox", _pod(number))
            begun = time.perf_counter()
            ask(framing.PLUGIN_STREAM, frame)
            read()
            waits.append(time.perf_counter() - begun)
        print("ends", flush=True)
        sys.stdin.read()
    print(msgspec.json.encode(waits[WARM_UP:]).decode(), flush=True)


def _request(call: int, method: str, message: Message) -> Frame:
    request = ttrpc_pb2.Request(service=PLUGIN_SERVICE, method=method, payload=message.SerializeToString())
    return Frame(call, FrameKind.REQUEST, request.SerializeToString())


def _pod(number: int) -> nri_pb2.PodSandboxRequest:
    namespaces = [nri_pb2.LinuxNamespace(type=kind, path=f"/run/netns/{number:064}") for kind in ("ipc", "network")]
    linux = nri_pb2.LinuxPodSandbox(namespaces=namespaces)
    pod = nri_pb2.PodSandbox(id=f"{number:064}", name="pod", namespace="ns", uid=f"{number:036}", linux=linux, pid=1)
    return nri_pb2.PodSandboxRequest(pod=pod)


if __name__ == "__main__":
    _play_runtime(*sys.argv[1:])
