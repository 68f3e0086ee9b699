"""Alive and ready are what the checks state; a process that was stopping is never ready again."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import ClientSession

from netdra.model.errors import InvalidInputError
from netdra.ops.health import CheckResult, Named, ProcessHealth, Report, met
from netdra.ops.metrics import PROCESS
from netdra.ops.server import Told, address, serving
from testbed.process import Ports


def test_a_process_without_checks_is_alive_and_not_ready() -> None:
    health = ProcessHealth()
    assert health.liveness().ok
    assert health.readiness().trouble == "started: starting"


def test_a_failing_check_is_named_with_its_detail() -> None:
    health = ProcessHealth()
    health.ready("caches", met(lambda: True, "", "3 copies"))
    health.ready("certificate", met(lambda: False, "no certificate yet"))
    found = health.readiness()
    assert not found.ok
    assert found.trouble == "certificate: no certificate yet"
    assert found.checks == (Named("caches", True, "3 copies"), Named("certificate", False, "no certificate yet"))


def test_a_stopping_process_is_not_ready_regardless_of_its_checks() -> None:
    health = ProcessHealth()
    health.ready("caches", lambda: CheckResult(ok=True))
    assert health.readiness().ok
    health.stopping = True
    assert health.readiness() == Report(ok=False, checks=(Named("stopping", False, "stopping"),))
    assert health.liveness().ok


def test_a_task_that_ended_makes_a_process_dead_unless_it_is_stopping() -> None:
    async def run() -> None:
        health = ProcessHealth()
        task = asyncio.create_task(asyncio.Event().wait())
        health.task("discovery", task)
        assert health.liveness().ok
        task.cancel()
        await asyncio.wait((task,))
        assert health.liveness().trouble == "discovery: ended"
        health.stopping = True
        assert health.liveness().ok

    asyncio.run(run())


def test_probes_are_answered_in_short_and_in_full() -> None:
    async def run(port: int) -> None:
        health = ProcessHealth()
        base = f"http://127.0.0.1:{port}"
        async with serving(("127.0.0.1", port), Told(health, (PROCESS,))), ClientSession() as session:
            async with session.get(f"{base}/readyz") as answer:
                assert (answer.status, await answer.text()) == (503, "started: starting")
            health.ready("caches", lambda: CheckResult(ok=True, detail="2 copies"))
            async with session.get(f"{base}/readyz?verbose") as answer:
                assert answer.status == 200
                assert await answer.json() == {
                    "ok": True,
                    "checks": [{"name": "caches", "ok": True, "detail": "2 copies"}],
                }
            async with session.get(f"{base}/healthz") as answer:
                assert (answer.status, await answer.text()) == (200, "ok")
            async with session.get(f"{base}/metrics") as answer:
                assert answer.headers["Content-Type"].startswith("text/plain; version=")
                assert "netdra_log_lines_total" in await answer.text()
            async with session.post(f"{base}/metrics", data=b"x" * 100) as answer:
                assert answer.status == 405

    ports = Ports("127.0.0.1")
    try:
        asyncio.run(run(ports.take()))
    finally:
        ports.close()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", None),
        (":8080", ("", 8080)),
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("[::1]:8080", ("::1", 8080)),
    ],
)
def test_an_address_is_host_and_port(text: str, found: tuple[str, int] | None) -> None:
    assert address(text) == found


@pytest.mark.parametrize("text", ["8080", "host", "host:", ":http", ":70000", ":٣"])
def test_an_invalid_listen_address_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInputError, match="must be HOST:PORT"):
        address(text)
