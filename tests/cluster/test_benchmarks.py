"""The benchmarks that need a control plane, a node or the kernel work; quick, and with netdra alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "name",
    [
        "addresses",
        "allocator",
        "chain",
        "churn",
        "console",
        "discovery",
        "hollow",
        "hook",
        "imports",
        "neutron",
        "node",
        "pods",
        "publishing",
        "scale",
        "scheduling",
        "storms",
        "webhook",
    ],
)
def test_a_benchmark_works(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--output=json", name]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)[name]
