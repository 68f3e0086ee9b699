"""A probe asks the process of its own pod, by a program that is quick to start, and two processes share an address."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from netdra.ops import probe, server
from netdra.ops.health import CheckResult, ProcessHealth
from netdra.ops.metrics import PROCESS
from netdra.ops.server import Told, serving, serving_when_free
from testbed.process import Ports

PROBE = probe.__file__


def ran(*arguments: str) -> tuple[int, str]:
    """The program's exit code and output: started as the image starts it."""
    done = subprocess.run((sys.executable, "-IS", PROBE, *arguments), capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout or done.stderr).strip()


def test_the_probe_reports_whether_the_process_is_alive_and_ready(tmp_path: Path) -> None:
    socket = tmp_path / "health.sock"

    async def scene() -> None:
        health = ProcessHealth()
        async with serving(socket, Told(health, (PROCESS,))):
            assert await asyncio.to_thread(ran, "live", str(socket)) == (0, "ok")
            assert await asyncio.to_thread(ran, "ready", str(socket)) == (1, "started: starting")
            health.ready("kubelet", lambda: CheckResult(ok=False, detail="not registered"))
            assert await asyncio.to_thread(ran, "ready", str(socket)) == (1, "kubelet: not registered")
            health.ready("kubelet", lambda: CheckResult(ok=True))
            assert await asyncio.to_thread(ran, "ready", str(socket)) == (0, "ok")
            assert socket.stat().st_mode & 0o777 == 0o600
        # A container that was killed leaves its socket, and the next one of the pod listens there.
        async with serving(socket, Told(health, (PROCESS,))):
            assert (await asyncio.to_thread(ran, "ready", str(socket)))[0] == 0

    asyncio.run(scene())


def test_the_probe_reports_a_missing_or_unserved_socket(tmp_path: Path) -> None:
    socket = tmp_path / "health.sock"
    assert ran("live", str(socket)) == (
        1,
        f"{socket} is not there: netdra has not begun, or listens elsewhere (--health-socket)",
    )

    async def left() -> None:
        (await asyncio.get_running_loop().create_unix_server(asyncio.Protocol, socket)).close()

    asyncio.run(left())
    if not socket.exists():  # Python 3.13 takes the socket away
        return
    assert ran("live", str(socket)) == (1, f"{socket}: connection refused: netdra has ended")


@pytest.mark.parametrize("wrong", [(), ("alive",), ("live", "a", "b")])
def test_wrong_arguments_print_the_usage_of_the_probe(wrong: tuple[str, ...]) -> None:
    code, text = ran(*wrong)
    assert (code, text.partition(" [")[0]) == (2, "usage: netdra-health live|ready")


def test_it_needs_nothing_of_netdra_and_is_quick() -> None:
    loaded = "import sys; exec(open(sys.argv[1]).read(), {'__name__': 'probe'}); print(*sys.modules)"
    done = subprocess.run((sys.executable, "-IS", "-c", loaded, PROBE), capture_output=True, text=True, check=True)
    assert not {"netdra", "site", "asyncio", "re", "json", "logging", "typing"} & {*done.stdout.split()}


def _with_port(scene: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    ports = Ports("127.0.0.1")
    try:
        asyncio.run(scene(ports.take()))
    finally:
        ports.close()


async def _metrics(port: int, query: str = "") -> tuple[int, str]:
    async with ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics{query}") as answer:
        return answer.status, await answer.text()


def test_the_port_is_taken_over_when_the_other_process_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "AGAIN_SECONDS", 0.01)

    async def scene(port: int) -> None:
        where = ("127.0.0.1", port)
        async with AsyncExitStack() as newer:
            async with serving(where, Told(ProcessHealth(), (PROCESS,), "old")):
                await newer.enter_async_context(serving_when_free(where, Told(ProcessHealth(), (PROCESS,), "new")))
                assert (await _metrics(port, "?instance=old"))[0] == HTTPStatus.OK
                told = (HTTPStatus.MISDIRECTED_REQUEST, "this is instance old")
                assert await _metrics(port, "?instance=new") == told
            async with asyncio.timeout(10):
                while await _is_refused(port):  # noqa: ASYNC110 (the port is asked as a scraper asks)
                    await asyncio.sleep(0.01)
            assert (await _metrics(port, "?instance=new"))[0] == HTTPStatus.OK
            assert (await _metrics(port, "?instance=old"))[0] == HTTPStatus.MISDIRECTED_REQUEST
            assert (await _metrics(port))[0] == HTTPStatus.OK
        assert await _is_refused(port)

    _with_port(scene)


async def _is_refused(port: int) -> bool:
    try:
        await _metrics(port)
    except OSError:
        return True
    return False


def test_a_process_waiting_for_a_port_can_stop_before_the_port_is_free() -> None:
    async def scene(port: int) -> None:
        where = ("127.0.0.1", port)
        async with serving(where, Told(ProcessHealth(), (PROCESS,), "old")):
            async with serving_when_free(where, Told(ProcessHealth(), (PROCESS,), "new")):
                pass
            assert (await _metrics(port, "?instance=old"))[0] == HTTPStatus.OK

    _with_port(scene)
