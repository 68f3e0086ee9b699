"""`netdra top --traffic` reads a driver's socket twice, and prints the rates."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from netdra.cli.main import cli
from netdra.node import metrics
from netdra.ops import server
from netdra.ops.health import ProcessHealth
from netdra.ops.metrics import SeriesCatalogue, header, series_name

LABELS = ("default", "p", "c", "nic", "vf", "net1", "eth1v0", "blue")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, SeriesCatalogue]]:
    """A process with metrics at a socket."""
    catalogue = SeriesCatalogue("Traffic")
    path, ready, loop = tmp_path / "s", threading.Event(), asyncio.new_event_loop()

    async def serve() -> None:
        async with server.serving(path, server.Told(ProcessHealth(), (catalogue,))):
            ready.set()
            await asyncio.Event().wait()

    task = loop.create_task(serve())
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.gather(task, return_exceptions=True)))
    thread.start()
    assert ready.wait(10)
    yield path, catalogue
    loop.call_soon_threadsafe(task.cancel)
    thread.join()
    loop.close()


def run(path: Path, *more: str) -> tuple[int, str]:
    """The exit code and output of the command."""
    done = CliRunner().invoke(cli, ["top", "--traffic", "--every", "0.2", "--socket", str(path), *more])
    return done.exit_code, f"{done.output}{done.exception or ''}"


def test_rates_of_a_drivers_interfaces_are_printed(served: tuple[Path, SeriesCatalogue]) -> None:
    path, catalogue = served
    counts = itertools.count(step=1_000_000)
    line = series_name(metrics.RECEIVE_BYTES, LABELS)
    catalogue.source = lambda: f"{header(metrics.RECEIVE_BYTES)}{line}{next(counts)}\n".encode()
    code, output = run(path, "--output", "json")
    (row,) = json.loads(output)
    assert (code, row["pod"], row["interface"], row["device"]) == (0, "p", "net1", "eth1v0")
    assert 1_000_000 / 2.0 < row["receiveBytes"] <= 1_000_000 / 0.2
    assert "net1" in run(path)[1]


def test_a_driver_that_exports_none_is_reported(served: tuple[Path, SeriesCatalogue]) -> None:
    code, output = run(served[0])
    assert (code, "version that does not export" in output) == (1, True)
    served[1].series("counter", "netdra_pod_network_receive_bytes_total", "Bytes.", "pod")
    assert "node.traffic.enabled" in run(served[0])[1]
