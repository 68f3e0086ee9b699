"""The reflector misses nothing and never spins, with any faults of its connections, answers and clock."""

from __future__ import annotations

import asyncio
import itertools
import json
import time

import pytest

from netdra.kube import reflector
from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.waiting import until_async, waiting
from tests.cluster.fault_proxy import Answer, Cut, Request, Stall
from tests.cluster.reflector.scene import replayed, run, scene

# Attempts a fifth of a second apart, which is the first wait, would be ten; with waits that double they are five.
STORM_SECONDS = 2.0


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


def error_event(code: int) -> Answer:
    """A watch that begins, and then reports that it failed."""
    status = {"kind": "Status", "code": code, "message": "injected"}
    return Answer(200, json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")


@pytest.mark.parametrize(
    "answer",
    [Answer.status(410, "Expired"), *(error_event(code) for code in (410, 500, 504))],
    ids=["status 410", "event 410", "event 500", "event 504"],
)
def test_a_watch_that_is_refused_or_fails_is_made_good_by_a_list(
    answer: Answer, plane: ControlPlane, server: Api
) -> None:
    async def story() -> None:
        async with scene(plane, server) as found:
            refused = iter([answer])
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
            with waiting("few requests"):
                await asyncio.sleep(STORM_SECONDS)
            await until_async(lambda: found.proxy.count(began) >= 3, "a third request")
            assert found.proxy.count(began, began + STORM_SECONDS) <= 7
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
            with waiting("few requests"):
                await asyncio.sleep(STORM_SECONDS)
            assert found.proxy.count(began, began + STORM_SECONDS) <= 10
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


def test_a_long_list_comes_in_pages_and_is_begun_anew_when_its_mark_expired(
    plane: ControlPlane, server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "PAGE", 50)

    async def story() -> None:
        async with scene(plane, server) as found:
            await asyncio.to_thread(found.write, *(f"many-{number:03}" for number in range(100)))
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
            found.delete("many-000", "many-099")
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
