"""The plugin and a real containerd: what is told, and what becomes of pods when one of the two is in trouble."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from netdra.kube.backoff import Backoff
from netdra.model.errors import TemporaryError
from netdra.node.nri.hooks import Sandbox
from netdra.node.nri.plugin import Plugin, Settings
from tests.cluster.container_runtime import ContainerRuntime, RefusedSandboxError, open_runtime

PATIENCE = 60.0
ROOT = Path(__file__).parents[2]


class Hooks:
    """Hooks that write down what they are told, and answer as the test wants."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Sandbox]] = []
        self.lists: list[dict[str, Sandbox]] = []
        self.budgets: list[float] = []
        self.refusal: TemporaryError | None = None
        self.release: asyncio.Event | None = None
        self.ended = asyncio.Event()

    async def synchronize(self, sandboxes: Sequence[Sandbox]) -> None:
        self.lists.append({sandbox.name: sandbox for sandbox in sandboxes})

    async def run(self, sandbox: Sandbox, budget: float) -> None:
        self.told.append(("run", sandbox))
        self.budgets.append(budget)
        if self.refusal:
            raise self.refusal
        if self.release:
            await self.release.wait()
            self.ended.set()

    async def stop(self, sandbox: Sandbox, budget: float) -> None:
        self.told.append(("stop", sandbox))
        self.budgets.append(budget)

    async def remove(self, sandbox: Sandbox) -> None:
        self.told.append(("remove", sandbox))

    def story(self, pod: str) -> list[str]:
        """What was told of one pod."""
        return [what for what, sandbox in self.told if sandbox.name == pod]


@pytest.fixture(scope="module")
def shared_runtime() -> Iterator[ContainerRuntime]:
    """The containerd of this module's tests."""
    with open_runtime() as runtime:
        yield runtime


@pytest.fixture
def runtime(shared_runtime: ContainerRuntime) -> Iterator[ContainerRuntime]:
    """A containerd without sandboxes."""
    yield shared_runtime
    shared_runtime.remove_all()


@asynccontextmanager
async def registered(runtime: ContainerRuntime, hooks: Hooks) -> AsyncIterator[Plugin]:
    """A plugin that knows all sandboxes."""
    plugin = Plugin(hooks, Settings(socket=str(runtime.nri_socket)), backoff=Backoff(0.05, 0.2))
    running = asyncio.create_task(plugin.run())
    try:
        await wait(plugin.connected)
        yield plugin
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def wait(event: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE):
        await event.wait()


def exists(path: str) -> bool:
    return Path(path).exists()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110 - what a file or another process does sets no event
            await asyncio.sleep(0.02)


def test_a_sandbox_is_told_from_its_beginning_to_its_end(runtime: ContainerRuntime) -> None:
    async def main() -> None:
        hooks = Hooks()
        async with registered(runtime, hooks) as plugin:
            assert plugin.runtime is not None
            assert (plugin.runtime.name, plugin.runtime.request_timeout) == ("containerd", 2.0)
            sandbox = await asyncio.to_thread(runtime.begin, "a")
            ((_, begun),) = hooks.told
            assert begun.id == sandbox
            assert (begun.name, begun.namespace, begun.uid) == ("a", "ns", "uid-a")
            assert exists(begun.netns)
            assert exists(f"/proc/{begun.pid}/ns/net")
            await asyncio.to_thread(runtime.stop, sandbox)
            await asyncio.to_thread(runtime.remove, sandbox)
        assert hooks.story("a") == ["run", "stop", "remove"]
        assert {about.id for _, about in hooks.told} == {sandbox}
        assert hooks.told[1][1].netns == begun.netns
        assert all(1.2 < budget <= 1.5 for budget in hooks.budgets)

    asyncio.run(main())


def test_a_pod_on_the_hosts_network_has_no_namespace_of_its_own(runtime: ContainerRuntime) -> None:
    async def main() -> None:
        hooks = Hooks()
        async with registered(runtime, hooks):
            await asyncio.to_thread(runtime.begin, "a", host_network=True)
        assert [about.netns for _, about in hooks.told] == [""]

    asyncio.run(main())


def test_sandboxes_that_were_there_before_are_listed_the_stopped_ones_too(runtime: ContainerRuntime) -> None:
    async def main() -> None:
        await asyncio.to_thread(runtime.begin, "a")
        await asyncio.to_thread(runtime.stop, await asyncio.to_thread(runtime.begin, "b"))
        hooks = Hooks()
        async with registered(runtime, hooks):
            (listed,) = hooks.lists
        assert set(listed) == {"a", "b"}
        assert exists(listed["a"].netns)
        assert (listed["b"].netns, listed["b"].pid) == ("", 0)

    asyncio.run(main())


def test_an_error_refuses_the_sandbox_with_our_text_and_the_next_one_is_fine(runtime: ContainerRuntime) -> None:
    async def main() -> None:
        hooks = Hooks()
        async with registered(runtime, hooks):
            hooks.refusal = TemporaryError("eth9 is busy", hint="wait for pod ns/other to end")
            with pytest.raises(RefusedSandboxError, match="eth9 is busy; wait for pod ns/other to end"):
                await asyncio.to_thread(runtime.begin, "a")
            assert hooks.story("a") == ["run", "stop", "remove"]
            hooks.refusal = None
            await asyncio.to_thread(runtime.begin, "b")
        assert hooks.story("b") == ["run"]

    asyncio.run(main())


def test_an_error_of_any_length_keeps_the_connection(runtime: ContainerRuntime) -> None:
    async def main() -> None:
        hooks = Hooks()
        async with registered(runtime, hooks) as plugin:
            hooks.refusal = TemporaryError("é" * 100_000)
            with pytest.raises(RefusedSandboxError, match="é" * 900):
                await asyncio.to_thread(runtime.begin, "a")
            assert plugin.connected.is_set()
        assert len(hooks.lists) == 1

    asyncio.run(main())


def test_a_hook_over_its_time_refuses_the_sandbox_and_runs_to_its_end(runtime: ContainerRuntime) -> None:
    async def main() -> None:
        hooks = Hooks()
        async with registered(runtime, hooks) as plugin:
            hooks.release = asyncio.Event()
            with pytest.raises(RefusedSandboxError, match=r"pod ns/a, sandbox [0-9a-f]+ has not ended after 1\.7"):
                await asyncio.to_thread(runtime.begin, "a")
            assert plugin.connected.is_set()
            assert not hooks.ended.is_set()
            hooks.release.set()
            await wait(hooks.ended)
            await asyncio.to_thread(runtime.begin, "b")
        assert len(hooks.lists) == 1

    asyncio.run(main())


def test_after_a_restart_of_the_runtime_all_sandboxes_are_told_again(runtime: ContainerRuntime) -> None:
    async def main() -> None:
        await asyncio.to_thread(runtime.begin, "a")
        hooks = Hooks()
        async with registered(runtime, hooks) as plugin:
            runtime.process.stop()
            await until(lambda: not plugin.connected.is_set())
            assert plugin.problem
            runtime.process.start()
            runtime.process.wait_ready()
            await wait(plugin.connected)
            await asyncio.to_thread(runtime.begin, "b")
        assert [set(listed) for listed in hooks.lists] == [{"a"}, {"a"}]
        assert hooks.story("b") == ["run"]

    asyncio.run(main())


def test_a_plugin_that_was_killed_is_told_what_it_missed(runtime: ContainerRuntime, tmp_path: Path) -> None:
    async def main() -> None:
        diary = tmp_path / "diary"
        diary.touch()
        command = [sys.executable, "-m", "tests.cluster.nri_process", str(diary), str(runtime.nri_socket)]
        first = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
        await until(lambda: diary.read_text() == "synchronize\n")
        await asyncio.to_thread(runtime.begin, "a")
        first.kill()
        await first.wait()
        await asyncio.to_thread(runtime.begin, "b")
        second = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
        await until(lambda: diary.read_text() == "synchronize\nrun a\nsynchronize a b\n")
        await asyncio.to_thread(runtime.begin, "c")
        assert diary.read_text().endswith("run c\n")
        second.kill()
        await second.wait()

    asyncio.run(main())


def test_two_plugins_of_one_name_are_both_told(runtime: ContainerRuntime) -> None:
    async def main() -> None:
        old, new = Hooks(), Hooks()
        async with registered(runtime, old):
            await asyncio.to_thread(runtime.begin, "a")
            async with registered(runtime, new):
                await asyncio.to_thread(runtime.begin, "b")
        assert (old.story("a"), old.story("b")) == (["run"], ["run"])
        assert (set(new.lists[0]), new.story("b")) == ({"a"}, ["run"])

    asyncio.run(main())


def test_a_runtime_that_starts_the_plugin_itself_leaves_it_a_socket(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    with open_runtime() as runtime:
        script = runtime.launched / "10-started"
        script.write_text(f"#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m tests.cluster.nri_process {diary}\n")
        script.chmod(0o755)
        runtime.process.restart()
        runtime.begin("a")
        assert diary.read_text() == "synchronize\nrun a\n"
