"""Workers answer in time or are replaced; what they had is refused, and the next object is reviewed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from netdra.admission import worker
from netdra.admission.messages import AdmissionRequest
from netdra.admission.metrics import WEBHOOK
from netdra.admission.workers import COMMAND, Workers
from netdra.cel import engine
from netdra.model import documents
from netdra.model.topology import NetworkTopology
from netdra.review.world import World
from netdra.rules import shipped
from netdra.workers import pool
from tests.builders import OURS, exclusive
from tests.unit.workers.commands import DEAD, DEAF, DEFECTIVE, GREEDY

Request = Callable[..., AdmissionRequest]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that takes another's place is waited for, however slowly the machine starts it."""
    monkeypatch.setattr(pool, "PATIENCE", 60.0)


def test_objects_are_reviewed_one_after_the_other_and_side_by_side(
    request_of: Request, topology: Callable[..., NetworkTopology]
) -> None:
    async def story() -> list[Any]:
        async with Workers(2, seconds=60.0) as workers:
            sound, unsound = exclusive("p", "true"), exclusive("p", "device.driver ==")
            asked = [workers.review(request_of(each), World()) for each in (sound, unsound, sound, unsound)]
            asked.append(workers.review(request_of(topology("net", "- {name: a, type: sriov}")), World()))
            return await asyncio.gather(*asked)

    assert [each.allowed for each in asyncio.run(story())] == [True, False, True, False, True]


@pytest.mark.parametrize(
    ("command", "message"),
    [(DEAF, "cannot be checked within 0.2 s"), (DEAD, "in the available memory"), (GREEDY, "in the available memory")],
    ids=["deaf", "dead", "greedy"],
)
def test_an_object_that_no_worker_can_review_is_rejected_and_the_next_is_reviewed(
    request_of: Request, command: tuple[str, ...], message: str
) -> None:
    async def story() -> None:
        workers = Workers(1, seconds=0.2 if command is DEAF else 60.0, command=command)
        async with workers:
            workers.pool.command = COMMAND
            (error,) = (await workers.review(request_of(exclusive("p", "true")), World())).errors
            assert message in error
            workers.pool.seconds = 60.0
            assert (await workers.review(request_of(exclusive("p", "true")), World())).allowed

    asyncio.run(story())


def defects() -> float:
    """The policies that were admitted without a check."""
    labels = {"kind": "DeviceExposurePolicy"}
    return WEBHOOK.registry.get_sample_value("netdra_webhook_defects_total", labels) or 0.0


def test_a_defect_of_netdra_rejects_no_object_and_a_warning_names_its_place(request_of: Request) -> None:
    async def story() -> None:
        async with Workers(1, seconds=60.0, command=DEFECTIVE) as workers:
            before = defects()
            verdict = await workers.review(request_of(exclusive("p", "true")), World())
            (warning,) = verdict.warnings
            assert verdict.allowed
            assert warning.startswith(
                'DeviceExposurePolicy "p": netdra could not check this object: internal error (Key'
            )
            assert defects() == before + 1

    asyncio.run(story())


def test_a_worker_opens_nothing_that_it_has_not_opened_before(
    request_of: Request, recorded: Callable[[str], Any], topology: Callable[..., NetworkTopology]
) -> None:
    """All modules that it may need are loaded before it loses the right to open files; a missing one would end it."""
    steps = "\n".join(
        f"- {{name: s{number}, type: {kind.partition(' ')[0]}, execution: {'Binary' if ' ' in kind else 'Auto'}}}"
        for number, kind in enumerate(shipped.names())
    )
    expressions = (
        '"a".upperAscii().find("[A-Z]") == device.driver.split("")[0]',
        'quantity("1Gi").isGreaterThan(quantity("x")) && semver("1.2.3").major() == 1',
        'timestamp("2026-01-01T00:00:00Z").getHours("Europe/Berlin") == 1',
        '"%.3f é".format([1.5]).matches(r"\\pL")',
        "device.driver ==",
    )
    written = [exclusive("p", text) for text in expressions] + [topology("net", steps)]
    written.append(documents.convert(recorded("topologies/ai-bonded-rdma.yaml"), NetworkTopology, "test"))

    async def story() -> list[Any]:
        async with Workers(1, seconds=60.0) as workers:
            before = tuple(workers.pool.running)
            answers = [await workers.review(request_of(each), World()) for each in written]
            assert tuple(workers.pool.running) == before
            return answers

    assert not any("memory" in error for each in asyncio.run(story()) for error in each.errors)


def test_a_bad_alloc_of_the_engine_raises_memory_error_instead_of_a_policy_error(
    request_of: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine states so in the words of C++, as if the expression were not good."""

    def exhausted(*_: object, **__: object) -> None:
        raise RuntimeError("std::bad_alloc")

    asked = msgspec.json.encode(worker.Task(request_of(exclusive("p", "device.driver == 'exhausted'")), World()))
    monkeypatch.setattr(engine, "_environment", lambda **_: SimpleNamespace(compile=exhausted))
    with pytest.raises(MemoryError):
        worker.answer(asked)


ASKED = f"{OURS}.ifName == 'asked'"


def test_a_policy_is_asked_of_devices_before_it_is_let_through(
    request_of: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def matches(own: engine.CompiledSelector, _: object) -> bool:
        asked.append(own.expression)
        return True

    monkeypatch.setattr(engine.CompiledSelector, "matches", matches)
    policy = exclusive("p", ASKED)
    assert worker.answer(msgspec.json.encode(worker.Task(request_of(policy), World()))).allowed
    assert asked == [ASKED] * 2


def test_no_process_is_left(request_of: Request) -> None:
    async def story() -> None:
        workers = Workers(2)
        async with workers:
            processes = tuple(workers.pool.running)
            assert len(processes) == 2
        assert all(process.returncode is not None for process in processes)

    asyncio.run(story())


def test_worker_samples_are_allowed_and_compile_expressions() -> None:
    compiled = engine._compiled.cache_info().currsize
    for sample in worker.samples():
        assert worker.answer(msgspec.json.encode(sample)).allowed
    assert engine._compiled.cache_info().currsize > compiled
