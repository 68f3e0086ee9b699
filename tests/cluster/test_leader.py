"""Of several processes one leads, never two; when it is gone, slow or suspended, another does."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
import pytest

from netdra.kube.client import Client
from netdra.kube.connection import connect
from netdra.kube.errors import NotFoundError
from netdra.kube.leader import LEASES, Election, Terms
from netdra.model.meta import micro_time_text
from netdra.ops.boot import since_boot
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.pace import stretched, within
from testbed.waiting import awaited, until_async, waiting
from tests.cluster.conftest import StartControlPlane
from tests.cluster.fault_proxy import Answer, FaultProxy, Request, Stall

LONG = Terms(duration=120.0, deadline=100.0, retry=0.2)  # nothing runs out while a test lasts
NAMESPACE = "default"
TAKES_OVER = 120.0


@pytest.fixture(scope="module")
def plane(start_control_plane: StartControlPlane) -> ControlPlane:
    """A control plane of this module's own, since it is paused."""
    return start_control_plane(Settings(scheduler=False, controller_manager=False))


@pytest.fixture
def short() -> Terms:
    """Terms that run out soon, in two seconds or, on a busy machine, as late as it can keep them."""
    duration = math.ceil(stretched(1.5))
    return Terms(duration=duration, deadline=0.75 * duration, retry=0.075 * duration)


@dataclass
class Candidate:
    """One process: its election behind a proxy of its own, and when it was at work."""

    election: Election
    proxy: FaultProxy
    diary: list[tuple[float, str, str]]
    working: asyncio.Event = field(default_factory=asyncio.Event)

    async def work(self) -> None:
        self.diary.append((time.monotonic(), self.election.identity, "begins"))
        self.working.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.working.clear()
            self.diary.append((time.monotonic(), self.election.identity, "ends"))


@asynccontextmanager
async def candidate(
    plane: ControlPlane,
    lease: str,
    name: str,
    diary: list[tuple[float, str, str]],
    terms: Terms,
    clock: Callable[[], float] = since_boot,
) -> AsyncIterator[Candidate]:
    async with FaultProxy(plane).serving() as proxy, Client(connect(proxy.config)) as client:
        found = Candidate(Election(client, NAMESPACE, lease, name, terms, clock), proxy, diary)
        task = asyncio.create_task(found.election.run(found.work))
        try:
            yield found
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def assert_never_two(diary: list[tuple[float, str, str]]) -> None:
    """Each beginning comes after the end of the one before."""
    at_work: list[str] = []
    for _, name, what in diary:
        if what == "begins":
            assert at_work == []
            at_work.append(name)
        else:
            at_work.remove(name)


async def at_work(*candidates: Candidate) -> Candidate:
    """The one that works, as soon as one does."""

    def leaders() -> list[Candidate]:
        return [one for one in candidates if one.election.leads and one.working.is_set()]

    await until_async(leaders, "one to lead", seconds=TAKES_OVER)
    return leaders()[0]


def test_one_leads_and_the_next_follows_at_once_when_it_leaves(plane: ControlPlane) -> None:
    async def story() -> None:
        diary: list[tuple[float, str, str]] = []
        async with candidate(plane, "leaves", "b", diary, LONG) as second:
            async with candidate(plane, "leaves", "a", diary, LONG) as first:
                leader = await at_work(first, second)
                other = second if leader is first else first
                with waiting("another one not to lead"):
                    await asyncio.sleep(3 * LONG.retry)
                assert not other.election.leads
                lease = await other.election.client.get(LEASES, "leaves", NAMESPACE)
                assert lease.spec.holder_identity == leader.election.identity
                assert lease.spec.lease_duration_seconds == LONG.duration
                if leader is second:
                    return
            await at_work(second)  # it was given up, so nobody waits until it runs out, which is after the test
        assert_never_two(diary)

    asyncio.run(story())


def test_a_lease_is_released_although_the_last_renewal_was_not_answered(plane: ControlPlane) -> None:
    async def story() -> None:
        diary: list[tuple[float, str, str]] = []
        stalled = asyncio.Event()

        def first_renewal(request: Request) -> Stall | None:
            if request.method != "PUT" or stalled.is_set():
                return None
            stalled.set()
            return Stall()

        async with candidate(plane, "unanswered", "a", diary, LONG) as first:
            await at_work(first)
            first.proxy.fault = first_renewal
            await awaited(stalled.wait(), "a renewal that is not answered")
            # What the server has when it did as it was asked, and could not say so.
            lease = await first.election.client.get(LEASES, "unanswered", NAMESPACE)
            renewed = msgspec.structs.replace(lease.spec, renew_time=micro_time_text(datetime.now(UTC)))
            await first.election.client.replace(LEASES, msgspec.structs.replace(lease, spec=renewed))
        async with candidate(plane, "unanswered", "b", diary, LONG) as second:
            await at_work(second)
        assert_never_two(diary)

    asyncio.run(story())


@pytest.mark.parametrize(
    "fault", [Stall(), Answer.status(500), Answer.status(429, retry_after=1)], ids=["stall", "500", "429"]
)
def test_a_leader_that_cannot_renew_stops_before_another_begins(
    fault: Stall | Answer, plane: ControlPlane, short: Terms
) -> None:
    async def story() -> None:
        diary: list[tuple[float, str, str]] = []
        lease = f"cut-off-{abs(hash(fault))}"
        async with candidate(plane, lease, "a", diary, short) as first:
            await at_work(first)
            async with candidate(plane, lease, "b", diary, short) as second:
                first.proxy.fault = lambda _: fault
                first.proxy.cut_all()
                await at_work(second)
                assert not first.election.leads
                first.proxy.fault = lambda _: None
                # Were it not renewed, the lease would have run out, and the first one would have seen that.
                with waiting("a former leader not to lead"):
                    await asyncio.sleep(short.duration + 3 * short.retry)
                assert second.election.leads
                assert not first.election.leads
        assert_never_two(diary)

    asyncio.run(story())


def test_a_paused_server_leaves_one_leader_when_it_goes_on(plane: ControlPlane, short: Terms) -> None:
    async def story() -> None:
        diary: list[tuple[float, str, str]] = []
        async with (
            candidate(plane, "paused", "a", diary, short) as first,
            candidate(plane, "paused", "b", diary, short) as second,
        ):
            await at_work(first, second)
            plane.apiserver.pause()
            try:
                with within(0.5, "a leader that cannot renew", after=short.deadline):
                    await until_async(lambda: not first.election.leads and not second.election.leads, "nobody to lead")
            finally:
                plane.apiserver.resume()
            await at_work(first, second)
        assert_never_two(diary)

    asyncio.run(story())


def test_a_leader_that_slept_an_hour_is_not_sure_until_it_has_asked(plane: ControlPlane) -> None:
    slept = 0.0

    async def story() -> None:
        nonlocal slept
        diary: list[tuple[float, str, str]] = []
        async with candidate(plane, "slept", "a", diary, LONG, lambda: since_boot() + slept) as first:
            await at_work(first)
            before = first.election.leads
            slept = 3600.0
            assert (before, first.election.leads) == (True, False)
            await until_async(lambda: first.election.leads, "the next renewal")
        assert_never_two(diary)

    asyncio.run(story())


def test_the_lease_is_released_when_the_work_is_done(plane: ControlPlane) -> None:
    async def story() -> None:
        async with FaultProxy(plane).serving() as proxy, Client(connect(proxy.config)) as client:
            done: list[str] = []

            async def work() -> None:
                done.append("done")

            election = Election(client, NAMESPACE, "short", "a", LONG)
            await awaited(election.run(work), "the work to be done")
            lease = await client.get(LEASES, "short", NAMESPACE)
            assert (done, lease.spec.holder_identity, election.leads) == (["done"], "", False)

    asyncio.run(story())


def test_works_failure_ends_the_election_and_gives_the_lease_up(plane: ControlPlane) -> None:
    async def story() -> None:
        async with FaultProxy(plane).serving() as proxy, Client(connect(proxy.config)) as client:

            async def work() -> None:
                raise ValueError("broken")

            with pytest.raises(ValueError, match="broken"):
                await Election(client, NAMESPACE, "failing", "a", LONG).run(work)
            lease = await client.get(LEASES, "failing", NAMESPACE)
            assert lease.spec.holder_identity == ""

    asyncio.run(story())


def test_a_lease_deleted_under_the_leader_is_made_again(plane: ControlPlane) -> None:
    async def story() -> None:
        diary: list[tuple[float, str, str]] = []
        async with candidate(plane, "deleted", "a", diary, LONG) as first:
            await at_work(first)
            client = first.election.client
            lease = await client.get(LEASES, "deleted", NAMESPACE)

            async def made_again() -> bool:
                with suppress(NotFoundError):
                    return (await client.get(LEASES, "deleted", NAMESPACE)).metadata.uid != lease.metadata.uid
                return False

            plane.kubectl("delete", "lease", "deleted", "-n", NAMESPACE)
            await until_async(made_again, "the lease to be made again")
            assert first.election.leads
        assert_never_two(diary)

    asyncio.run(story())
