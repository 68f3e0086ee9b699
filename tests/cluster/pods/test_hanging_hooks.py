"""How long a real container runtime has pods without claims wait for the hooks of pods whose plugins never answer.

The runtime calls its plugins for one sandbox after the other (docs/nri.md). The test runs without a kubelet, so nothing
else is in the time. `tests/kernel/node/test_hanging_plugins.py` counts the waits that netdra causes.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from netdra.node.nri.hooks import Sandbox
from netdra.node.nri.plugin import NriSettings, Plugin
from netdra.node.sandboxes.circuits import VAIN_SHARE
from testbed.node import CommandError
from testbed.node import Node as Host
from testbed.pace import measured
from testbed.runtime import Runtime
from testbed.runtimes import started
from testbed.waiting import awaited
from tests.kernel.conftest import new_machine
from tests.kernel.node.hanging import HOOK_SECONDS, IN_VAIN, Node

PLAIN = 8
"""Pods without claims, of which one begins every quarter of a second."""


class Relayed:
    """netdra's hooks, called by a runtime whose namespaces have other paths here; knows how long each took."""

    def __init__(self, node: Node, runtime: Runtime) -> None:
        self._node, self._runtime = node, runtime
        self.held: list[float] = []

    async def synchronize(self, sandboxes: Sequence[Sandbox]) -> None:
        await self._node.pods.hooks.synchronize([self._here(sandbox) for sandbox in sandboxes])

    async def run(self, sandbox: Sandbox, budget: float) -> None:
        with self._timed():
            await self._node.pods.hooks.run(self._here(sandbox), budget)

    async def stop(self, sandbox: Sandbox, budget: float) -> None:
        with self._timed():
            await self._node.pods.hooks.stop(self._here(sandbox), budget)

    async def remove(self, sandbox: Sandbox) -> None:
        with self._timed():
            await self._node.pods.hooks.remove(self._here(sandbox))

    def _here(self, sandbox: Sandbox) -> Sandbox:
        path = str(self._runtime.node.path(sandbox.netns)) if sandbox.netns else ""
        return msgspec.structs.replace(sandbox, netns=path)

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.held.append(time.monotonic() - began)


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    # Not in pytest's folder, whose length leaves too little for the socket's name.
    with Host("hang") as host:
        yield started(host)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with contextlib.contextmanager(new_machine)() as machine:
        found = Node(machine, tmp_path)
        found.start()
        yield found


async def begin(runtime: Runtime, pod: str, after: float = 0.0) -> float:
    """Have a pod's sandbox made, and return the seconds that it took; a refused one may be tried again."""
    await asyncio.sleep(after)
    began = time.monotonic()
    with contextlib.suppress(CommandError):
        await asyncio.to_thread(runtime.run_pod_sandbox, pod, uid=pod)
    return time.monotonic() - began


async def beside(runtime: Runtime, names: Sequence[str]) -> list[float]:
    """Begin pods without claims, one after the other, beside pods that begin at once; the seconds that each took."""
    others = [asyncio.create_task(begin(runtime, name)) for name in names]
    plain = [f"plain-{uuid.uuid4().hex[:6]}" for _ in range(PLAIN)]
    took = await asyncio.gather(*(begin(runtime, name, 0.25 * number) for number, name in enumerate(plain)))
    await asyncio.gather(*others)
    return took


@pytest.mark.parametrize(("pods", "types"), [(1, 1), (4, 1), (8, 1), (8, 8)])
def test_hooks_wait_in_vain_once_and_then_a_tenth_of_the_time(
    runtime: Runtime, node: Node, pods: int, types: int
) -> None:
    hooks = Relayed(node, runtime)

    async def story() -> tuple[list[float], list[float]]:
        plugins = [node.plugin("ADD", "DEL") for _ in range(types)]
        names = [uuid.uuid4().hex[:6] for _ in range(pods)]
        for number, name in enumerate(names):
            node.prepare(name, plugins[number % types])
        plugin = Plugin(hooks, NriSettings(socket=runtime.nri_socket))
        running = asyncio.create_task(plugin.run())
        await awaited(plugin.connected.wait(), "the plugin to be connected")
        try:
            # As many sandboxes of pods without claims, which the runtime and the kernel take as long for.
            usual = await beside(runtime, [f"more-{name}" for name in names])
            await asyncio.to_thread(runtime.remove_all)
            hooks.held.clear()
            return usual, await beside(runtime, names)
        finally:
            await asyncio.to_thread(runtime.remove_all)
            await node.end(plugins)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    with measured() as pace:
        usual, took = asyncio.run(story())
    vain = [seconds for seconds in hooks.held if seconds > IN_VAIN]
    print(
        f"{pods} pods, {types} plugins: in hooks {sum(hooks.held):.2f} s; pods without claims took "
        f"{statistics.median(usual):.2f}, at most {max(usual):.2f} s beside others without claims, and "
        f"{statistics.median(took):.2f}, at most {max(took):.2f} s beside these; {pace}"
    )
    assert vain, "a plugin was tried"
    assert sum(vain) < HOOK_SECONDS + VAIN_SHARE * pace.seconds
    assert max(took) < 3 * max(usual) + HOOK_SECONDS + pace.slowness
