"""The answer is there in time, and a late hook still runs to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.model.errors import InvalidInputError, NetdraError, PermanentError, TemporaryError
from netdra.node.metrics import NODE
from netdra.node.nri.hooks import MOST_HOOKS, Budget, BusyError, LateError, Runner, Sandbox, budget
from netdra.node.nri.plugin import PLUGIN_SERVICE, PluginService
from netdra.node.priority import PriorityGate
from netdra.nri.connection import RuntimeRequest
from netdra.nri.framing import CallError, Code


def test_a_hook_has_three_quarters_of_the_two_seconds_that_an_untold_timeout_is() -> None:
    assert budget(0, 0, 0) == Budget(1.5, 1.75)


def test_the_shorter_timeout_applies_and_the_elapsed_time_is_subtracted() -> None:
    assert budget(4, 2, 0.5) == Budget(1.0, 1.25)
    assert budget(4, 8, 0.5) == Budget(2.5, 3.0)
    assert budget(0, 8, 0) == Budget(6, 7)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_the_answer_is_due_after_the_work_and_within_the_timeout_of_the_runtime(
    told: float, asked: float, spent: float
) -> None:
    found = budget(told, asked, spent)
    timeout = min((seconds for seconds in (told, asked) if seconds), default=2.0)
    assert 0 <= found.work <= found.answer <= timeout


async def fail(problem: Exception) -> None:
    raise problem


class Failing:
    """Hooks that fail."""

    def __init__(self, problem: Exception) -> None:
        self.problem = problem

    async def synchronize(self, sandboxes: Sequence[Sandbox]) -> None:
        raise self.problem

    async def run(self, sandbox: Sandbox, budget: float) -> None:
        raise self.problem

    async def stop(self, sandbox: Sandbox, budget: float) -> None:
        raise self.problem

    async def remove(self, sandbox: Sandbox) -> None:
        raise self.problem


async def answer(problem: Exception) -> bytes:
    """The answer to a runtime whose Synchronize fails for this."""
    service = PluginService(Failing(problem), Runner(PriorityGate()))
    return await service.serve(
        RuntimeRequest(PLUGIN_SERVICE, "Synchronize", b"", 30, asyncio.get_running_loop().time())
    )


@pytest.mark.parametrize(
    ("problem", "code", "text"),
    [
        (
            InvalidInputError("vlan 9999 is none", hint="use 1 to 4094"),
            Code.INVALID_ARGUMENT,
            "vlan 9999 is none; use 1 to 4094",
        ),
        (PermanentError("no SR-IOV here"), Code.FAILED_PRECONDITION, "no SR-IOV here"),
        (TemporaryError("eth1 is busy"), Code.ABORTED, "eth1 is busy"),
        (NetdraError("something"), Code.UNKNOWN, "something"),
    ],
)
def test_an_error_is_answered_by_its_text_and_kind(problem: NetdraError, code: Code, text: str) -> None:
    with pytest.raises(CallError) as caught:
        asyncio.run(answer(problem))
    assert (caught.value.code, caught.value.message) == (code, text)


def test_a_defect_is_answered_and_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(CallError, match="a defect of netdra: KeyError: 'x'") as caught:
        asyncio.run(answer(KeyError("x")))
    assert caught.value.code == Code.INTERNAL
    assert caplog.records[0].exc_info


def test_a_late_hook_is_answered_without_and_goes_on_to_its_end(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        release, ended = asyncio.Event(), asyncio.Event()

        async def slow() -> None:
            await release.wait()
            ended.set()

        runner = Runner(PriorityGate())
        with pytest.raises(LateError, match=r"has not ended after 0\.01 s"):
            await runner.run("run", "the run hook of pod a/b", slow(), 0.01)
        assert not ended.is_set()
        release.set()
        await runner.finish(30)
        assert ended.is_set()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert caplog.messages[-1] == "the run hook of pod a/b ended after its answer was due: it succeeded"


def test_hooks_that_never_end_are_bounded() -> None:
    async def main() -> None:
        runner = Runner(PriorityGate())
        asked = [asyncio.create_task(runner.run("run", "x", forever(), 30)) for _ in range(MOST_HOOKS)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="256 others have not ended"):
            await runner.run("run", "one more", forever(), 30)
        await runner.finish(0)
        assert not any(task.done() for task in asked)  # what they have begun they must end

    async def forever() -> None:
        await asyncio.Event().wait()

    asyncio.run(main())


def test_other_work_waits_while_a_hook_is_waited_for_and_not_for_one_that_is_late() -> None:
    async def main() -> None:
        gate = PriorityGate()
        runner, release = Runner(gate), asyncio.Event()

        async def slow() -> None:
            await release.wait()

        asked = asyncio.create_task(runner.run("run", "x", slow(), 0.2))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await gate.wait(30)
        with pytest.raises(LateError):
            await asked
        async with asyncio.timeout(10):
            await gate.wait(30)
        release.set()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("hook", "outcome"),
    [
        (lambda: asyncio.sleep(0), "ok"),
        (lambda: asyncio.sleep(3600), "timeout"),
        (lambda: fail(PermanentError("x")), "permanent"),
        (lambda: fail(KeyError("x")), "defect"),
    ],
)
def test_each_hook_is_measured_with_how_it_was_answered(
    hook: Callable[[], Coroutine[object, object, None]], outcome: str
) -> None:
    def count() -> float:
        labels = {"hook": "tested", "outcome": outcome}
        return NODE.registry.get_sample_value("netdra_nri_hook_duration_seconds_count", labels) or 0

    async def main() -> None:
        runner = Runner(PriorityGate())
        with suppress(NetdraError):
            await runner.run("tested", "x", hook(), 30 if outcome != "timeout" else 0)
        await runner.finish(0)

    before = count()
    asyncio.run(main())
    assert count() == before + 1
