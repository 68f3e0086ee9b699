"""The half of the driver that keeps pods, in a process of its own that measures itself; started by `bench.node`.

Reads one `Job` as a line of JSON from its standard input, and then one `Order` a line; answers each with a `Report`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from netdra.chain import checkpoint
from netdra.chain.site import ChainSettings
from netdra.kernel import libc, uapi
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from netdra.kube.backoff import Backoff
from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config
from netdra.model import decoders
from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.model.resource import ResourceSlice
from netdra.model.topology import NetworkTopology
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.store import ClaimStore
from netdra.node.hardware import HardwareTable
from netdra.node.nri.plugin import NriSettings, Plugin
from netdra.node.parts import Dependencies, Pods
from netdra.node.sandboxes.hooks import Threads
from netdra.ops import boot
from netdra.ops.process import spare_what_is_loaded
from netdra.topology.devices import DeviceKey, from_slices

PAUSE = 0.01
_READS = {uapi.RTM_GETLINK, uapi.RTM_GETADDR, uapi.RTM_GETROUTE}


class Job(msgspec.Struct, frozen=True):
    """A node.

    Attributes:
        host: the descriptor of the node's network namespace.
        boot: a file with the id of the boot.
    """

    node: str
    kubeconfig: str
    folder: str
    host: int
    boot: str
    slices: tuple[ResourceSlice, ...]
    topology: NetworkTopology


class Order(msgspec.Struct, frozen=True):
    """Prepare claims, report the hooks since the last report, or end."""

    verb: Literal["prepare", "hooks", "end"]
    claims: tuple[ClaimReference, ...] = ()


class Report(msgspec.Struct, frozen=True):
    """The measured values.

    Attributes:
        cpu, seconds: since the start of the process, or of the order.
        recover: CPU seconds of taking up a former process's state.
        hooks: by hook, the seconds of each without the kernel's changes.
        cpu_of_hooks: by hook, the CPU seconds of the process meanwhile, the kernel's changes included.
        checkpoints: how many there are.
        memory: resident bytes.
    """

    cpu: float = 0.0
    seconds: float = 0.0
    recover: float = 0.0
    hooks: Mapping[str, tuple[float, ...]] = {}
    cpu_of_hooks: Mapping[str, tuple[float, ...]] = {}
    checkpoints: int = 0
    memory: int = 0


@dataclass
class View:
    """The node as the publishing half would have it."""

    devices: Mapping[DeviceKey, PlannedDevice]
    topologies: Mapping[str, NetworkTopology]
    slices: Sequence[ResourceSlice] = ()
    vfs: Mapping[DeviceKey, Sequence[PlannedDevice]] = field(default_factory=dict)
    hardware: HardwareTable = field(default_factory=HardwareTable)
    ready: bool = True
    labels: Mapping[str, str] | None = None


class _Hooks:
    """Measures hooks; the time that the kernel takes for changes is not netdra's."""

    def __init__(self, pods: Pods) -> None:
        self.seconds: dict[str, list[float]] = {"run": [], "stop": []}
        self.cpu: dict[str, list[float]] = {"run": [], "stop": []}
        self._kernel = 0.0
        original = Socket.request

        def request(sock: Socket, kind: int, body: bytes, *, flags: int = 0, doing: str) -> list[bytes]:
            began = time.perf_counter()
            try:
                return original(sock, kind, body, flags=flags, doing=doing)
            finally:
                self._kernel += 0.0 if kind in _READS else time.perf_counter() - began

        Socket.request = request  # type: ignore[method-assign, assignment]
        for name in self.seconds:
            setattr(pods.hooks, name, self._measured(name, getattr(pods.hooks, name)))

    def _measured(self, name: str, hook: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def measured(*arguments: object) -> None:
            self._kernel, began, cpu = 0.0, time.perf_counter(), time.process_time()
            await hook(*arguments)
            if self._kernel:  # removing a sandbox calls `stop` again
                self.seconds[name].append(time.perf_counter() - began - self._kernel)
                self.cpu[name].append(time.process_time() - cpu)

        return measured

    def clear(self) -> None:
        """Forget the hooks so far."""
        for values in (*self.seconds.values(), *self.cpu.values()):
            values.clear()


async def drive(job: Job) -> None:
    """Be the driver until the order to end."""
    began = time.monotonic()
    state = Path(job.folder)
    async with Client(connect(find_config(Path(job.kubeconfig)))) as client:
        pods = _pods(job, client, state)
        before = time.process_time()
        await pods.recover()
        recovered = time.process_time() - before
        hooks = _Hooks(pods)
        plugin = Plugin(pods.hooks, NriSettings(socket=state / "nri.sock"), backoff=Backoff(0.02, 0.02))
        tasks = [asyncio.create_task(pods.run()), asyncio.create_task(plugin.run())]
        try:
            await plugin.connected.wait()
            await _settled(pods)
            _tell(_report(job, began=began, cpu=0.0, recover=recovered))
            await _serve(job, pods, hooks)
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def _settled(pods: Pods) -> None:
    """Wait until every sandbox is compared or taken down, and every status is written."""
    await pods.tracker.pods.wait_synced()
    await pods.tracker.at_rest()
    while not pods.recovery.rounds or pods.network.table.to_take_down():  # noqa: ASYNC110
        await asyncio.sleep(PAUSE)
    await pods.recovery.wait_finished()
    await pods.writer.wait_written()


async def _serve(job: Job, pods: Pods, hooks: _Hooks) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        order = msgspec.json.decode(line, type=Order)
        began, cpu = time.monotonic(), time.process_time()
        if order.verb == "end":
            return
        for claim in order.claims:
            await pods.claims.prepare(claim)
        if order.verb == "hooks":
            await pods.writer.wait_written()
        _tell(_report(job, began=began, cpu=cpu, hooks=hooks if order.verb == "hooks" else None))


def _report(job: Job, *, began: float, cpu: float, recover: float = 0.0, hooks: _Hooks | None = None) -> Report:
    report = Report(
        cpu=time.process_time() - cpu,
        seconds=time.monotonic() - began,
        recover=recover,
        hooks=_frozen(hooks.seconds) if hooks is not None else {},
        cpu_of_hooks=_frozen(hooks.cpu) if hooks is not None else {},
        checkpoints=len(checkpoint.sandboxes(Path(job.folder) / "sandboxes")),
        memory=int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
    )
    if hooks is not None:
        hooks.clear()
    return report


def _frozen(values: Mapping[str, Sequence[float]]) -> Mapping[str, tuple[float, ...]]:
    return {name: tuple(of_name) for name, of_name in values.items()}


def _tell(report: Report) -> None:
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    sys.stdout.flush()


def _pods(job: Job, client: Client, state: Path) -> Pods:
    return Pods.assemble(
        Dependencies(
            client=client,
            node=job.node,
            settings=ChainSettings(state=state / "sandboxes"),
            files=ClaimFiles(plugin=state / "plugin", cdi=state / "cdi"),
            prepared=ClaimStore.of_state(state),
            view=View(from_slices(job.slices), {job.topology.metadata.name: job.topology}, job.slices),
            emit=lambda _: None,
            threads=Threads.made(lambda: libc.setns(job.host, libc.CLONE_NEWNET)),
        )
    )


def _main() -> None:
    with open(0, "rb", closefd=False) as orders:  # its first order comes after its first report
        job = msgspec.json.decode(orders.readline(), type=Job, dec_hook=lambda kind, value: kind(value))
    boot._BOOT_ID = Path(job.boot)  # noqa: SLF001 - another boot
    decoders.build()
    spare_what_is_loaded()
    _show_devices(job.host)
    asyncio.run(drive(job))


def _show_devices(host: int) -> None:
    """Have /sys show the node's devices; it shows those of the namespace in which it is mounted."""
    libc.unshare(libc.CLONE_NEWNS)
    libc.mount("", "/sys", "", libc.MS_REC | libc.MS_PRIVATE)
    with Namespace.current() as own:
        libc.setns(host, libc.CLONE_NEWNET)
        libc.mount("sysfs", "/sys", "sysfs", 0)
        libc.setns(own.fd, libc.CLONE_NEWNET)


if __name__ == "__main__":
    _main()
