"""A program that the kernel has no descriptors for: it is not run, or ended, and no descriptor is left."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest

from netdra.cni import process
from tests import refusing
from tests.refusing import Refusal


@pytest.mark.parametrize(
    ("calls_of", "first"),
    [("process.py:watch", 1), ("process.py:watch", 2), ("process.py:__init__", 1)],
    ids=["its output", "its errors", "its end"],
)
def test_a_program_that_cannot_be_waited_for_does_not_go_on_unseen(tmp_path: Path, calls_of: str, first: int) -> None:
    done = tmp_path / "done"
    argv = ("/bin/sh", "-c", f"sleep 0.3; touch {done}")
    descriptors = set(Path("/proc/self/fd").iterdir())
    with (
        refusing.refusing(Refusal(errno.EMFILE, first, calls_of=calls_of)) as refusal,
        pytest.raises(OSError, match="Too many open files"),
    ):
        process.run(argv, {"PATH": "/usr/bin:/bin"}, b"", 10.0)
    assert len(refusal.refused) == 1
    assert len(set(Path("/proc/self/fd").iterdir())) == len(descriptors)
    time.sleep(0.6)  # an end that does not come has no event
    assert not done.exists()
