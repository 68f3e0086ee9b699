"""A user with many or costly requests takes turns from itself: others wait for one task at most."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from netdra.admission import turns
from netdra.admission.turns import ClientTurns, NoTurnError

SHORT = 0.3
ATTACKERS = [f"192.0.2.{number}" for number in range(4)]
OTHER, TRUSTED = "198.51.100.1", ""


class Scene:
    """Tasks that are in their rooms until they are ended."""

    def __init__(self, rooms: int, wait: float = SHORT) -> None:
        self.turns = ClientTurns(rooms, wait=wait)
        self.inside: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}

    def ask(self, client: str, size: int = 0) -> asyncio.Task[None]:
        return asyncio.create_task(self._be(client, size))

    async def _be(self, client: str, size: int) -> None:
        async with self.turns.turn(client, size):
            self.inside.append(client)
            await self._ends.setdefault(client, asyncio.Event()).wait()
            self.inside.remove(client)

    def end(self, client: str) -> None:
        self._ends.setdefault(client, asyncio.Event()).set()

    def has_cost(self, client: str, seconds: float) -> None:
        self.turns._spend(client, seconds)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def play(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 60.0))


def test_one_client_never_has_all_rooms() -> None:
    async def story() -> None:
        scene = Scene(2)
        flood = [scene.ask(ATTACKERS[0]) for _ in range(5)]
        await settle()
        own = scene.ask(OTHER)
        await settle()
        assert scene.inside == [ATTACKERS[0], OTHER]
        late = await asyncio.gather(*flood[1:], return_exceptions=True)
        assert all(isinstance(problem, NoTurnError) for problem in late)
        scene.end(ATTACKERS[0])
        scene.end(OTHER)
        await asyncio.gather(flood[0], own)
        assert (scene.turns._running, scene.turns._waiting, scene.turns._size) == ({}, {}, 0)

    play(story)


def test_large_requests_never_have_all_rooms_however_many_ask() -> None:
    async def story() -> None:
        scene = Scene(2)
        flood = [scene.ask(attacker, turns.SMALL + 1) for attacker in ATTACKERS]
        await settle()
        assert len(scene.inside) == 1
        own = scene.ask(OTHER, turns.SMALL)
        await settle()
        assert OTHER in scene.inside
        for client in (OTHER, *ATTACKERS):
            scene.end(client)
        await asyncio.gather(own, *flood)

    play(story)


def test_where_a_worker_is_being_replaced_large_requests_leave_the_other_one_to_small_ones() -> None:
    async def story() -> None:
        scene = Scene(2, wait=60.0)
        scene.turns.set_ready(1)
        large, small = scene.ask(ATTACKERS[0], turns.SMALL + 1), scene.ask(OTHER, turns.SMALL)
        await settle()
        assert scene.inside == [OTHER]
        scene.turns.set_ready(2)
        await settle()
        assert scene.inside == [OTHER, ATTACKERS[0]]
        for client in (OTHER, ATTACKERS[0]):
            scene.end(client)
        await asyncio.gather(large, small)

    play(story)


def test_of_those_that_wait_the_one_that_used_least_is_next_and_a_trusted_one_before_all() -> None:
    async def story() -> None:
        scene = Scene(1, wait=60.0)
        first = scene.ask(ATTACKERS[0])
        await settle()
        scene.has_cost(ATTACKERS[1], 2 * turns.BUDGET_SECONDS)
        waiting = [scene.ask(client) for client in (ATTACKERS[1], ATTACKERS[1], OTHER, TRUSTED)]
        for client in (ATTACKERS[0], TRUSTED, OTHER, ATTACKERS[1]):
            await settle()
            assert scene.inside == [client]
            scene.end(client)
        await asyncio.gather(first, *waiting)

    play(story)


def test_where_a_trusted_client_asks_a_room_is_its_own() -> None:
    async def story() -> None:
        scene = Scene(2)
        scene.end(TRUSTED)
        await scene.ask(TRUSTED)
        flood = [scene.ask(attacker) for attacker in ATTACKERS]
        await settle()
        assert len(scene.inside) == 1
        await asyncio.wait_for(scene.ask(TRUSTED), 10.0)
        for attacker in ATTACKERS:
            scene.end(attacker)
        await asyncio.gather(*flood)

    play(story)


def test_requests_that_wait_do_not_fill_the_memory_and_the_largest_client_pays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "MAX_WAITING", 100)

    async def story() -> None:
        scene = Scene(1, wait=60.0)
        first = scene.ask(ATTACKERS[0])
        await settle()
        own, large = scene.ask(OTHER, 30), [scene.ask(ATTACKERS[1], 40) for _ in range(4)]
        await settle()
        assert [task.done() for task in large] == [False, True, True, True]
        assert scene.turns._size == 70
        for client in (ATTACKERS[0], OTHER, ATTACKERS[1]):
            scene.end(client)
        await asyncio.gather(first, own, large[0])
        assert [type(task.exception()) for task in large[1:]] == [NoTurnError] * 3

    play(story)


def test_a_request_cancelled_while_it_waits_leaves_no_state() -> None:
    async def story() -> None:
        scene = Scene(1)
        first = scene.ask(ATTACKERS[0])
        await settle()
        gone = scene.ask(OTHER, 10)
        await settle()
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        assert (scene.turns._waiting, scene.turns._size) == ({}, 0)
        # Its turn comes at the moment when it goes.
        gone = scene.ask(OTHER, 10)
        await settle()
        scene.end(ATTACKERS[0])
        await first
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        assert scene.turns._running == {}

    play(story)


def test_used_time_decays_and_excess_clients_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MAX_CLIENTS", 3)
    monkeypatch.setattr(turns, "HALF_LIFE", 0.05)

    async def story() -> None:
        scene = Scene(1)
        for number in range(10):
            scene.has_cost(f"192.0.2.{number}", 2 * turns.BUDGET_SECONDS)
        assert len(scene.turns._used) == 3
        while scene.turns.used("192.0.2.9") > turns.BUDGET_SECONDS:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    play(story)
