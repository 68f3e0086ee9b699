"""The reflector's store is the server's state again within seconds of any fault; it misses nothing and never spins."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from netdra.kube.client import Client, Selection
from netdra.kube.connection import connect
from netdra.kube.reflector import Reflector, Timing
from netdra.kube.resources import Resource
from netdra.kube.store import Change, Store
from netdra.model.meta import ObjectMeta
from testbed.api import Api
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.objects import NAMESPACE, manifest
from tests.cluster.conftest import StartControlPlane
from tests.cluster.fault_proxy import Answer, Cut, FaultProxy, Request, Stall

WITHIN = 5.0
KIND = "v1/ConfigMap"


class ConfigMap(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


CONFIG_MAPS = Resource("v1", "configmaps", ConfigMap, namespaced=True)


@pytest.fixture(scope="module")
def plane(start_control_plane: StartControlPlane) -> ControlPlane:
    """A control plane of this module's own, since its parts are killed."""
    return start_control_plane(Settings(scheduler=False, controller_manager=False))


@pytest.fixture
def server(plane: ControlPlane) -> Iterator[Api]:
    with closing(plane.client()) as client:
        yield client


@dataclass
class Scene:
    """One namespace of one server, a reflector of it behind a proxy, and all changes that its store told of."""

    api: Api
    proxy: FaultProxy
    reflector: Reflector[ConfigMap]
    namespace: str
    changes: list[Change[ConfigMap]]

    @property
    def store(self) -> Store[ConfigMap]:
        return self.reflector.store

    def write(self, *names: str, text: str = "") -> None:
        for name in names:
            self.api.apply(manifest(KIND, name, self.namespace, data={"text": text or name}))

    def delete(self, *names: str) -> None:
        for name in names:
            self.api.delete(KIND, name, self.namespace)

    async def equal(self, within: float = WITHIN) -> None:
        """Wait until the store is what the server has, which must not change meanwhile."""
        listed = await asyncio.to_thread(self.api.list, KIND, self.namespace)
        expected = {
            f"{self.namespace}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in listed
        }
        async with asyncio.timeout(within):
            await self.store.until(lambda: self.versions() == expected)

    def versions(self) -> dict[str, str]:
        return {key: found.metadata.resource_version for key, found in self.store.objects.items()}


_NUMBERS = itertools.count(1)


@asynccontextmanager
async def scene(plane: ControlPlane, api: Api, **timing: Any) -> AsyncIterator[Scene]:
    """A reflector at work on ten objects."""
    namespace = f"reflected-{next(_NUMBERS)}"
    api.create(manifest(NAMESPACE, namespace))
    changes: list[Change[ConfigMap]] = []
    async with FaultProxy(plane).serving() as proxy, Client(connect(proxy.config)) as client:
        reflector = Reflector(client, CONFIG_MAPS, Store(), Selection(namespace=namespace), Timing(**timing))
        found = Scene(api, proxy, reflector, namespace, changes)
        found.write(*(f"first-{number}" for number in range(10)))
        with reflector.store.following(changes.append):
            task = asyncio.create_task(reflector.run())
            try:
                await reflector.store.wait_synced()
                # What came after the list can only come through the watch, so that one stands when the story begins.
                found.write("watched")
                await found.equal()
                yield found
            finally:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task


def replayed(changes: list[Change[ConfigMap]]) -> dict[str, str]:
    """The state that a listener has who believes every change, in order; each must fit the one before."""
    state: dict[str, ConfigMap] = {}
    for change in changes:
        assert state.get(change.key) == change.old
        if change.new is None:
            del state[change.key]
        else:
            state[change.key] = change.new
    return {key: found.metadata.resource_version for key, found in state.items()}


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def test_follows_every_change_with_one_list_and_one_watch(plane: ControlPlane, server: Api) -> None:
    async def story() -> None:
        async with scene(plane, server) as found:
            found.write("new", "first-0", text="changed")
            found.delete("first-1")
            await found.equal()
            assert found.store.objects[f"{found.namespace}/new"].data == {"text": "changed"}
            assert replayed(found.changes) == found.versions()
            assert (found.reflector.counts.lists, found.reflector.counts.watches) == (1, 1)

    run(story())


def test_a_killed_server_costs_nothing_but_time(plane: ControlPlane, server: Api) -> None:
    async def story() -> None:
        async with scene(plane, server) as found:
            killed = time.monotonic()
            await restarted(plane)
            away = time.monotonic() - killed
            found.delete("first-1", "first-2")
            found.write("after", "first-0", text="after")
            await found.equal()
            assert replayed(found.changes) == found.versions()
            assert found.proxy.count(killed) <= 6 + 2 * away

    run(story())


def test_a_paused_server_is_waited_for(plane: ControlPlane, server: Api) -> None:
    async def story() -> None:
        async with scene(plane, server, idle=1.0) as found:
            paused = time.monotonic()
            plane.apiserver.pause()
            try:
                await asyncio.sleep(7.0)
            finally:
                plane.apiserver.resume()
            found.delete("first-1")
            found.write("after")
            await found.equal()
            assert replayed(found.changes) == found.versions()
            assert found.proxy.count(paused) <= 12

    run(story())


def test_a_compacted_history_is_made_good_by_a_list_and_the_deletes_nobody_saw(
    plane: ControlPlane, server: Api
) -> None:
    async def story() -> None:
        async with scene(plane, server) as found:
            found.proxy.fault = lambda _: Answer.status(503)
            found.proxy.cut_all()
            found.delete("first-1", "first-2", "first-3")
            for number in range(20):
                found.write("first-0", text=str(number))
            compact(plane, server)
            await restarted(plane)
            before = found.reflector.counts.lists
            found.proxy.fault = lambda _: None
            await found.equal()
            assert found.reflector.counts.lists == before + 1
            assert replayed(found.changes) == found.versions()
            gone = {change.key for change in found.changes if change.new is None}
            assert gone == {f"{found.namespace}/first-{number}" for number in (1, 2, 3)}

    run(story())


async def restarted(plane: ControlPlane) -> None:
    """Kill the API server, start it again and wait until it is ready; it lives as long as the thread that starts it."""
    plane.apiserver.kill()
    plane.apiserver.start()
    await asyncio.to_thread(plane.apiserver.wait_ready)


def compact(plane: ControlPlane, api: Api) -> None:
    """Make etcd forget all revisions before the current one."""
    endpoint = next(part.split("=", 1)[1] for part in plane.etcd.command if part.startswith("--listen-client-urls="))
    revision = api.request("GET", api.path(NAMESPACE))["metadata"]["resourceVersion"]
    body = json.dumps({"revision": revision, "physical": True}).encode()
    with urllib.request.urlopen(f"{endpoint}/v3/kv/compaction", data=body) as answer:
        assert answer.status == 200


def test_gone_as_an_http_status_is_made_good_by_a_list(plane: ControlPlane, server: Api) -> None:
    async def story() -> None:
        async with scene(plane, server) as found:
            refused = iter([Answer.status(410, "Expired")])
            found.proxy.fault = lambda request: next(refused, None) if request.is_watch else None
            found.proxy.cut_all()
            found.delete("first-1")
            await found.equal()
            assert found.reflector.counts.lists == 2
            assert replayed(found.changes) == found.versions()

    run(story())


@pytest.mark.parametrize("code", [410, 500, 504])
def test_an_error_event_is_made_good_by_a_list(code: int, plane: ControlPlane, server: Api) -> None:
    status = {"kind": "Status", "code": code, "message": "injected"}
    event = json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"

    async def story() -> None:
        async with scene(plane, server) as found:
            refused = iter([Answer(200, event)])
            found.proxy.fault = lambda request: next(refused, None) if request.is_watch else None
            found.proxy.cut_all()
            found.delete("first-1")
            await found.equal()
            assert found.reflector.counts.lists == 2
            assert replayed(found.changes) == found.versions()

    run(story())


def test_connections_cut_within_events_lose_none_and_need_no_list(plane: ControlPlane, server: Api) -> None:
    async def story() -> None:
        async with scene(plane, server) as found:
            # An answer's head is some 300 bytes and an event some 700, so these end in the middle of something.
            sizes = itertools.cycle([100, 450, 700, 1200, 2500, 3333])
            found.proxy.fault = lambda _: Cut(next(sizes))
            found.proxy.cut_all()
            for number in range(30):
                await asyncio.to_thread(found.write, f"cut-{number}", "first-0", text=str(number))
            await asyncio.to_thread(found.delete, "cut-3", "first-4")
            found.proxy.fault = lambda _: None
            found.proxy.cut_all()
            await found.equal()
            assert replayed(found.changes) == found.versions()
            assert found.reflector.counts.lists == 1

    run(story())


@pytest.mark.parametrize(
    "answer",
    [
        Answer.status(429, "TooManyRequests", retry_after=1),
        Answer.status(500),
        Answer.status(503),
        Answer(502, b"<html>"),
    ],
    ids=["429", "500", "503", "load-balancer"],
)
def test_a_storm_of_refusals_is_weathered_with_few_requests(answer: Answer, plane: ControlPlane, server: Api) -> None:
    async def story() -> None:
        async with scene(plane, server) as found:
            began = time.monotonic()
            found.proxy.fault = lambda _: answer
            found.proxy.cut_all()
            found.delete("first-1")
            found.write("after")
            await asyncio.sleep(4.0)
            assert 3 <= found.proxy.count(began) <= 8
            assert "injected" in found.reflector.problem or "html" in found.reflector.problem
            found.proxy.fault = lambda _: None
            await found.equal()
            assert replayed(found.changes) == found.versions()
            assert found.reflector.problem == ""

    run(story())


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200),
        Answer(200, b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}\n'),
        Answer(200, b"what is this\n"),
        Answer(200, b'{"type":"ADDED","object":{}}\n'),
        Answer(200, b'{"type":"ERROR","object":{"code":410}}\n'),
        Answer.status(410),
        Answer.status(404),
    ],
    ids=["ends-at-once", "old-bookmark", "no-json", "no-metadata", "always-expired", "always-gone", "not-found"],
)
def test_a_watch_that_never_works_is_not_tried_faster_and_faster(
    answer: Answer, plane: ControlPlane, server: Api
) -> None:
    async def story() -> None:
        async with scene(plane, server) as found:
            began = time.monotonic()
            found.proxy.fault = lambda request: answer if request.is_watch else None
            found.proxy.cut_all()
            await asyncio.sleep(4.0)
            assert found.proxy.count(began) <= 12
            found.write("after")
            found.proxy.fault = lambda _: None
            await found.equal()

    run(story())


def test_a_connection_that_went_dead_without_a_word_is_noticed(plane: ControlPlane, server: Api) -> None:
    async def story() -> None:
        async with scene(plane, server, idle=1.0) as found:
            stalled = iter([Stall(), Stall()])
            found.proxy.fault = lambda request: next(stalled, None) if request.is_watch else None
            found.proxy.cut_all()
            found.delete("first-1")
            await found.equal()
            assert replayed(found.changes) == found.versions()

    run(story())


def test_a_server_restored_from_a_backup_is_believed(plane: ControlPlane, server: Api) -> None:
    data, backup = plane.folder / "etcd", plane.folder / "backup"

    def restore() -> None:
        shutil.rmtree(data)
        backup.rename(data)

    async def bounced(meanwhile: Callable[[], object]) -> None:
        plane.apiserver.kill()
        plane.etcd.kill()
        meanwhile()
        plane.etcd.start()
        await asyncio.to_thread(plane.etcd.wait_ready)
        await restarted(plane)

    async def story() -> None:
        async with scene(plane, server, idle=2.0) as found:
            await bounced(lambda: shutil.copytree(data, backup))
            for number in range(50):
                await asyncio.to_thread(found.write, "first-0", f"lost-{number}", text=str(number))
            await found.equal()
            await bounced(restore)
            found.write("first-0", text="after")
            await found.equal()
            assert f"{found.namespace}/lost-0" not in found.store.objects
            assert found.store.objects[f"{found.namespace}/first-0"].data == {"text": "after"}
            assert replayed(found.changes) == found.versions()

    run(story())


def test_a_long_list_comes_in_pages_and_is_begun_anew_when_its_mark_expired(plane: ControlPlane, server: Api) -> None:
    async def story() -> None:
        async with scene(plane, server) as found:
            await asyncio.to_thread(found.write, *(f"many-{number:04}" for number in range(1200)))
            await found.equal()
            watches = iter([Answer.status(410, "Expired")])
            marks = iter([Answer.status(410, "Expired")])

            def expired(request: Request) -> Answer | None:
                if request.is_watch:
                    return next(watches, None)
                return next(marks, None) if "continue" in request.parameters else None

            found.proxy.fault = expired
            began = time.monotonic()
            found.proxy.cut_all()
            found.delete("many-0000", "many-1199")
            await found.equal()
            assert replayed(found.changes) == found.versions()
            pages = [request for request in found.proxy.requests if request.at >= began and not request.is_watch]
            assert [("continue" in request.parameters) for request in pages] == [False, True, False, True, True]

    run(story())


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be moved forward, as it is after a virtual machine was suspended."""

    offset = 0.0

    def time(self) -> float:
        return super().time() + self.offset


def test_a_clock_that_jumps_hours_changes_nothing(plane: ControlPlane, server: Api) -> None:
    loop = JumpingLoop()

    async def story() -> None:
        async with scene(plane, server) as found:
            began = time.monotonic()
            for hours in range(1, 6):
                loop.offset += 3600.0 * hours
                found.write("first-0", f"jump-{hours}", text=str(hours))
                found.delete(f"first-{hours}")
                await found.equal()
            assert replayed(found.changes) == found.versions()
            assert found.proxy.count(began) <= 20
            assert found.reflector.counts.lists == 1

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(story())
