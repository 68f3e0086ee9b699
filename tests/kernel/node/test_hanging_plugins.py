"""A runtime calls its hooks for one sandbox after the other: how long pods without claims wait for plugins that hang.

The runtime is a lock here, as it is in NRI (`Adaptation` in github.com/containerd/nri). All behind it is netdra's own:
the hooks, the chain, programs, namespaces. `tests/cluster/pods/test_hanging_hooks.py` has the same with a real one.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from netdra.kernel import netns
from netdra.kernel.netns import Namespace
from netdra.model.errors import NetdraError
from netdra.node.nri.hooks import DEFAULT_TIMEOUT, Runner, Sandbox, budget
from netdra.node.priority import PriorityGate
from netdra.node.sandboxes.hooks import Attachments
from testbed.pace import Pace, measured
from testbed.recorder import Recorder
from tests.kernel.conftest import Machine
from tests.kernel.node.hanging import HOOK_SECONDS, IN_VAIN, Node

SECONDS = 5.0
"""Pods without claims begin for so long, one every quarter of a second."""
ALLOWED = budget(DEFAULT_TIMEOUT, 0.0, 0.0)


@dataclass
class Runtime:
    """A runtime that calls hooks in turn.

    Attributes:
        held: how long it waited for each hook of a pod with a claim.
        waited: how long pods without claims waited, each from its beginning to its answer.
    """

    node: Node
    ending: ExitStack
    held: list[tuple[str, float]] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _runner: Runner = field(default_factory=lambda: Runner(PriorityGate()))

    @property
    def hooks(self) -> Attachments:
        return self.node.pods.hooks

    def pod(self, *plugins: Recorder) -> Sandbox:
        """A sandbox, of a pod with a claim for a device and for steps of plugins if there are any."""
        number = uuid.uuid4().hex[:6]
        name = f"netdra-test-{number}"
        self.ending.callback(netns.delete, name)
        with Namespace.create(name) as space:
            sandbox = Sandbox(id=f"sb-{number}", name=number, namespace="ns", uid=number, netns=space.path, pid=1)
        if plugins:
            self.node.prepare(number, *plugins)
        return sandbox

    async def begin(self, sandbox: Sandbox) -> None:
        """A pod begins; one that is refused is stopped and removed."""
        try:
            await self._call("run", lambda: self.hooks.run(sandbox, ALLOWED.work))
        except NetdraError:
            await self.end(sandbox)

    async def end(self, sandbox: Sandbox) -> None:
        """A pod ends."""
        with suppress(NetdraError):
            await self._call("stop", lambda: self.hooks.stop(sandbox, ALLOWED.work))
        with suppress(NetdraError):
            await self._call("remove", lambda: self.hooks.remove(sandbox))

    async def plain(self, sandbox: Sandbox, after: float) -> None:
        """A pod without claims begins later."""
        await asyncio.sleep(after)
        began = time.monotonic()
        async with self._lock:
            await self._runner.run("run", "run", self.hooks.run(sandbox, ALLOWED.work), ALLOWED.answer)
        self.waited.append(time.monotonic() - began)

    async def beside(self, *others: Awaitable[None]) -> None:
        """Begin pods without claims while something else continues."""
        plain = [self.pod() for _ in range(int(SECONDS * 4))]
        await asyncio.gather(*others, *(self.plain(sandbox, 0.25 * number) for number, sandbox in enumerate(plain)))

    async def _call(self, name: str, hook: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with self._lock:
            began = time.monotonic()
            try:
                await self._runner.run(name, name, hook(), ALLOWED.answer)
            finally:
                self.held.append((name, time.monotonic() - began))


@pytest.fixture
def node(machine: Machine, tmp_path: Path) -> Node:
    found = Node(machine, tmp_path)
    found.start()
    return found


@pytest.fixture
def runtime(node: Node) -> Iterator[Runtime]:
    with ExitStack() as ending:
        yield Runtime(node, ending)


def waits_once(runtime: Runtime, pace: Pace) -> None:
    """One hook waited without success, and no pod without claims waited for more than this one."""
    seconds = [seconds for _, seconds in runtime.held]
    print(f"in hooks {sum(seconds):.2f} s, the longest wait of a pod without claims {max(runtime.waited):.2f} s")
    assert len([each for each in seconds if each > IN_VAIN]) == 1, (runtime.held, pace)
    assert max(runtime.waited) < HOOK_SECONDS + 0.3 * pace.slowness, pace


@pytest.mark.parametrize(("pods", "types"), [(1, 1), (4, 1), (8, 1), (8, 4), (8, 8)])
def test_pods_without_claims_wait_for_one_hook_of_all_pods_whose_plugins_hang(
    node: Node, runtime: Runtime, pods: int, types: int
) -> None:
    async def story() -> None:
        plugins = [node.plugin("ADD", "DEL") for _ in range(types)]
        await runtime.beside(*(runtime.begin(runtime.pod(plugins[number % types])) for number in range(pods)))
        await node.end(plugins)

    with measured() as pace:
        asyncio.run(story())
    waits_once(runtime, pace)


def test_a_plugin_that_is_called_too_late_to_be_blamed_is_not_waited_for_again(node: Node, runtime: Runtime) -> None:
    """Before it, another step of each pod takes most of the time."""

    async def story() -> None:
        slow = node.plugin()
        slow.does("ADD", 'sleep 0.7; cat "$state/ADD.json"')
        plugins = [node.plugin("ADD", "DEL") for _ in range(8)]
        await runtime.beside(*(runtime.begin(runtime.pod(slow, plugin)) for plugin in plugins))
        await node.end([slow, *plugins])

    with measured() as pace:
        asyncio.run(story())
    waits_once(runtime, pace)


@pytest.mark.parametrize("restarted", [False, True])
def test_pods_that_end_are_not_waited_for_one_after_the_other_either(
    node: Node, runtime: Runtime, restarted: bool
) -> None:
    async def story() -> None:
        plugins = [node.plugin() for _ in range(4)]
        sandboxes = [runtime.pod(plugins[number % 4]) for number in range(8)]
        for sandbox in sandboxes:
            await runtime.begin(sandbox)
        runtime.held.clear()
        for plugin in plugins:
            plugin.does("DEL", "exec sleep 600")
        if restarted:  # then what a pod's plugins are is in its checkpoint
            await node.pods.hooks.aclose()
            node.start()
            await node.pods.recover()
        await runtime.beside(*(runtime.end(sandbox) for sandbox in sandboxes))
        await node.end(plugins)

    with measured() as pace:
        asyncio.run(story())
    waits_once(runtime, pace)


def test_a_plugin_that_answers_serves_its_pods_while_another_one_hangs(node: Node, runtime: Runtime) -> None:
    async def story() -> None:
        good, bad = node.plugin(), node.plugin("ADD", "DEL")
        await runtime.begin(runtime.pod(good))
        await runtime.begin(runtime.pod(bad))
        served = [runtime.pod(good) for _ in range(4)]
        for sandbox in served:
            await runtime.begin(sandbox)
        assert len(good.calls("ADD")) == 5
        assert len(bad.calls("ADD")) == 1
        for sandbox in served:
            await runtime.end(sandbox)
        await node.end([good, bad])
        assert len(good.calls("DEL")) == 4

    asyncio.run(story())
