"""The daemon has devices examined soon after they came back, and reports what pods had left on them."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from netdra.chain import returned
from netdra.kernel import children, libc
from netdra.kernel.netns import Namespace
from netdra.kube.events import Occurrence
from netdra.model.plan import PlannedDevice
from netdra.node.priority import PriorityGate
from netdra.node.sandboxes.events import PodEvents
from netdra.node.sandboxes.examiner import WAIT_SECONDS, Examiner
from netdra.node.signals import Signals
from tests.kernel.chain.conftest import Bed
from tests.kernel.chain.test_children import elsewhere, names, nic, put, undone

__all__ = ["elsewhere", "nic"]
SECONDS = 20.0


class Scene:
    """An examiner that runs, and its events."""

    def __init__(self, bed: Bed, threads: ThreadPoolExecutor) -> None:
        self.events: asyncio.Queue[Occurrence] = asyncio.Queue()
        self.signals, self.gate = Signals(), PriorityGate()
        told = PodEvents(self.events.put_nowait, "node-1")
        self.examiner = Examiner(bed.settings.state, threads, told, self.gate, self.signals)

    async def event(self) -> Occurrence:
        async with asyncio.timeout(SECONDS):
            return await self.events.get()


def planned(name: str) -> PlannedDevice:
    return PlannedDevice(request="nic", pool="node-1", device=name, if_name=name)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdra.node.sandboxes.examiner.FIRST_SECONDS", 0.0)
    monkeypatch.setattr("netdra.node.sandboxes.examiner.LEAST_PAUSE", 0.0)
    monkeypatch.setattr("netdra.node.sandboxes.examiner.PAUSE_SHARE", 0.0)


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> queue.SimpleQueue[int]:
    """The searches as they end."""
    real, done = returned.examine, queue.SimpleQueue[int]()

    def counted(directory: Path, *given: Any) -> returned.Examination:
        examination = real(directory, *given)
        done.put(examination.namespaces)
        return examination

    monkeypatch.setattr(returned, "examine", counted)
    return done


@pytest.fixture
def threads(bed: Bed) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1, "examine", lambda: libc.setns(bed.host.fd, libc.CLONE_NEWNET)) as pool:
        yield pool


@asynccontextmanager
async def running(bed: Bed, threads: ThreadPoolExecutor) -> AsyncIterator[Scene]:
    scene = Scene(bed, threads)
    task = asyncio.create_task(scene.examiner.run())
    try:
        yield scene
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_a_link_of_a_pod_goes_when_its_device_has_come_back(
    nic: Bed, elsewhere: Namespace, threads: ThreadPoolExecutor, searched: queue.SimpleQueue[int]
) -> None:
    put(nic.pod, elsewhere)

    async def scenario() -> None:
        async with running(nic, threads) as scene:
            await asyncio.to_thread(searched.get, timeout=SECONDS)
            undone(nic)
            scene.signals.held_changed.emit()
            event = await scene.event()
            assert (event.reason, event.regarding.kind, event.regarding.name) == ("DeviceRestored", "Node", "node-1")
            assert event.note.startswith('device veth:eth7 came back from a pod with macvlan "spy0" in the network')
            assert event.note.endswith("was deleted")

    asyncio.run(scenario())
    assert (names(elsewhere), returned.marks(nic.settings.state)) == (set(), frozenset())


def test_devices_that_came_back_while_no_daemon_ran_are_examined_at_its_start(
    nic: Bed, elsewhere: Namespace, threads: ThreadPoolExecutor
) -> None:
    put(nic.pod, elsewhere)
    undone(nic)

    async def scenario() -> None:
        async with running(nic, threads) as scene:
            await scene.event()

    asyncio.run(scenario())
    assert names(elsewhere) == set()


def test_a_link_that_stays_is_reported_and_the_device_examined_again(
    nic: Bed, elsewhere: Namespace, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(nic.pod, elsewhere)
    undone(nic)
    monkeypatch.setattr("netdra.node.sandboxes.examiner.AGAIN_SECONDS", 0.1)
    refuse: Callable[..., str] = lambda *_: "the kernel refuses"  # noqa: E731

    async def scenario() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(children, "delete", refuse)
            async with running(nic, threads) as scene:
                assert (await scene.event()).reason == "DeviceNotRestored"
                patch.undo()
                while (await scene.event()).reason != "DeviceRestored":
                    pass

    asyncio.run(scenario())
    assert names(elsewhere) == set()


def test_nothing_is_searched_without_a_reason(
    nic: Bed, elsewhere: Namespace, threads: ThreadPoolExecutor, searched: queue.SimpleQueue[int]
) -> None:
    async def scenario() -> None:
        async with running(nic, threads) as scene:
            await asyncio.to_thread(searched.get, timeout=SECONDS)
            for _ in range(5):
                scene.signals.held_changed.emit()
                for _ in range(5):  # what that causes is before this in the only thread, once the loop has had its turn
                    await asyncio.wrap_future(threads.submit(lambda: None))
            put(nic.pod, elsewhere)
            undone(nic)
            scene.signals.held_changed.emit()
            await scene.event()

    asyncio.run(scenario())
    assert searched.qsize() == 1


def test_a_claim_that_is_prepared_ends_the_pause_after_a_search(
    nic: Bed,
    elsewhere: Namespace,
    threads: ThreadPoolExecutor,
    searched: queue.SimpleQueue[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("netdra.node.sandboxes.examiner.LEAST_PAUSE", 1000.0)
    put(nic.pod, elsewhere)

    async def scenario() -> None:
        async with running(nic, threads) as scene:
            await asyncio.to_thread(searched.get, timeout=SECONDS)
            undone(nic)
            scene.signals.held_changed.emit()
            for _ in range(5):
                await asyncio.wrap_future(threads.submit(lambda: None))
            assert searched.empty()
            scene.signals.claim_prepared.emit()
            await scene.event()

    asyncio.run(scenario())
    assert names(elsewhere) == set()


def test_preparing_a_claim_waits_until_its_device_is_examined(
    nic: Bed, elsewhere: Namespace, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While hooks run, in a pause, and after the daemon's start, too."""
    for name, value in {"LEAST_PAUSE": 1000.0, "FIRST_SECONDS": 1000.0}.items():
        monkeypatch.setattr(f"netdra.node.sandboxes.examiner.{name}", value)

    async def scenario() -> None:
        async with running(nic, threads) as scene:
            with scene.gate.in_hand():
                put(nic.pod, elsewhere)
                undone(nic)
                await asyncio.gather(
                    *(scene.examiner.wait_examined([planned(each)]) for each in ("eth7", "eth7", "eth8"))
                )
                assert (names(elsewhere), returned.marks(nic.settings.state)) == (set(), frozenset())

    began = time.monotonic()
    asyncio.run(scenario())
    assert time.monotonic() - began < WAIT_SECONDS


def test_preparing_a_claim_does_not_wait_for_a_device_that_cannot_be_cleared(
    nic: Bed, elsewhere: Namespace, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(nic.pod, elsewhere)
    undone(nic)
    refuse: Callable[..., str] = lambda *_: "the kernel refuses"  # noqa: E731
    monkeypatch.setattr(children, "delete", refuse)

    async def scenario() -> None:
        async with running(nic, threads) as scene:
            await scene.examiner.wait_examined([planned("eth7")])

    began = time.monotonic()
    asyncio.run(scenario())
    assert time.monotonic() - began < WAIT_SECONDS
    assert returned.marks(nic.settings.state) == {"veth:eth7"}


def test_preparing_a_claim_waits_for_a_limited_time(
    nic: Bed, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    undone(nic)
    monkeypatch.setattr("netdra.node.sandboxes.examiner.WAIT_SECONDS", 0.2)
    monkeypatch.setattr(returned, "examine", lambda *_: returned.Examination(complete=False))

    async def scenario() -> None:
        async with running(nic, threads) as scene:
            await scene.examiner.wait_examined([planned("eth7")])

    asyncio.run(scenario())
    assert returned.marks(nic.settings.state) == {"veth:eth7"}


def test_preparing_a_claim_does_not_wait_while_no_search_runs(nic: Bed, threads: ThreadPoolExecutor) -> None:
    undone(nic)
    began = time.monotonic()
    asyncio.run(Scene(nic, threads).examiner.wait_examined([planned("eth7")]))
    assert time.monotonic() - began < WAIT_SECONDS
