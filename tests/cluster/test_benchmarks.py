"""The benchmarks that need a control plane, a node or the kernel work; quick, and with netdra alone.

One command runs them all, so that they share what only a measurement needs for itself; a test waits for its own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import IO, Any

import pytest

from bench.bed import CLOUD
from testbed.openstack.cloud import Cloud

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Run:
    """The command that runs the benchmarks: the text that it prints as it goes, and its figures."""

    text: IO[str]
    kept: Path

    def until_next(self) -> str:
        """Wait until the present benchmark is over, and return what it printed."""
        return "".join(takewhile(lambda line: not is_heading(line), self.text))

    def figures(self, name: str) -> list[Any]:
        """The figures of a benchmark that is over; none if it failed."""
        found: dict[str, list[Any]] = json.loads(self.kept.read_bytes()) if self.kept.exists() else {}
        return found.get(name, [])


def is_heading(line: str) -> bool:
    """Whether a line begins a benchmark's output."""
    return re.fullmatch(r"bench: [a-z]+ \.\.\.\n", line) is not None


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The benchmarks of the selected tests, one after the other."""
    tests = [item for item in request.session.items if item.path == request.path]
    names = [str(item.callspec.params["name"]) for item in tests if isinstance(item, pytest.Function)]
    folder = tmp_path_factory.mktemp("bench")
    if "neutron" in names:
        cloud: Cloud = request.getfixturevalue("empty_cloud")
        cloud.share(folder, "127.0.0.1")
    with subprocess.Popen(
        [sys.executable, "-m", "bench", "--quick", "--output=json", *names],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), CLOUD: str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        found = Run(process.stderr, folder / "build" / "bench-quick.json")
        found.until_next()
        try:
            yield found
        finally:
            process.terminate()


# What the marked ones measure is tested elsewhere; that they work themselves, `make explore` sees.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("addresses", marks=pytest.mark.repeats),
        "allocator",
        "chain",
        pytest.param("churn", marks=pytest.mark.repeats),
        "console",
        "discovery",
        pytest.param("hollow", marks=pytest.mark.repeats),
        "hook",
        "imports",
        pytest.param("neutron", marks=pytest.mark.repeats),
        pytest.param("node", marks=pytest.mark.repeats),
        pytest.param("pods", marks=pytest.mark.repeats),
        pytest.param("publishing", marks=pytest.mark.repeats),
        pytest.param("scale", marks=pytest.mark.repeats),
        pytest.param("scheduling", marks=pytest.mark.repeats),
        pytest.param("storms", marks=pytest.mark.repeats),
        "takeover",
        "traffic",
        "webhook",
    ],
)
def test_a_benchmark_works(name: str, run: Run) -> None:
    printed = run.until_next()
    assert run.figures(name), printed
