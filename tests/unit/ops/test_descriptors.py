"""The descriptors of a process: how many it may have, how many it has, and when it reports too few."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from netdra.ops import descriptors
from netdra.ops.descriptors import MOST, RESERVE, Descriptors

RAISED = """
import os, resource
from pathlib import Path
from netdra.ops import descriptors
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096))
descriptors.raise_limit()
before = descriptors.read()
opened = [os.open("/", os.O_RDONLY) for _ in range(200)]
after = descriptors.read(Path("/proc") / str(os.getpid()))
assert (before.limit, after.limit, after.used - before.used) == (4096, 4096, 200), (before, after)
"""


def test_the_soft_limit_is_raised_to_the_hard_one_and_open_descriptors_are_counted() -> None:
    subprocess.run((sys.executable, "-c", RAISED), check=True, timeout=60)


def test_a_process_without_a_free_descriptor_reports_all_in_use() -> None:
    script = (
        "import os, resource; from netdra.ops import descriptors\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))\n"
        "try:\n while True: os.open('/', os.O_RDONLY)\n"
        "except OSError: pass\n"
        "assert descriptors.read() == descriptors.Descriptors(32, 32)"
    )
    subprocess.run((sys.executable, "-c", script), check=True, timeout=60)


@pytest.mark.parametrize(
    ("used", "is_short"), [(10, False), (1024 - RESERVE, False), (1025 - RESERVE, True), (1024, True)]
)
def test_a_shortage_of_descriptors_is_reported_with_a_hint(used: int, is_short: bool) -> None:
    seen = Descriptors(used, 1024)
    assert seen.is_short is is_short
    assert ("LimitNOFILE" in str(seen)) is is_short
    assert f"{used} of 1024" in str(seen)


def test_no_limit_counts_as_the_kernels_default(tmp_path: Path) -> None:
    (tmp_path / "fd").mkdir()
    (tmp_path / "limits").write_text("Max processes  5 5\nMax open files            unlimited  unlimited  files\n")
    assert descriptors.read(tmp_path) == Descriptors(0, MOST)
    assert descriptors.read(tmp_path / "gone") is None
