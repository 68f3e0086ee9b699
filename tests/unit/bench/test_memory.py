"""The memory of several processes is counted as a container's limit counts it: shared pages once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench import memory

MIB = 1 << 20


@contextmanager
def running(code: str) -> Iterator[int]:
    """The pid of a Python process that has run some code and waits."""
    command = [sys.executable, "-c", f"import ssl; {code}; print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def test_pages_of_files_count_once_and_own_pages_for_each_process() -> None:
    with ExitStack() as undo:
        small, large = (undo.enter_context(running(code)) for code in ("pass", f"own = bytearray(b'x') * {40 * MIB}"))
        alone = memory.charged([small])
        assert abs(alone - memory.resident([small])) < 0.5
        both = memory.charged([small, large])
        assert 40 < both - alone < memory.resident([large]) - 2
