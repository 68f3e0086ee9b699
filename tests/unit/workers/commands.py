"""Workers that become ready and then do one thing wrong."""

from __future__ import annotations

import sys

_READY = "import resource, signal, sys; from netdra.workers.process import READY; out = sys.stdout.buffer; "
_SAYS_SO = "out.write(READY); out.flush(); "


def _worker(*does: str) -> tuple[str, ...]:
    return (sys.executable, "-c", "".join((_READY, *does)))


DEAF = _worker(_SAYS_SO, "signal.pause()")
DEAD = _worker(_SAYS_SO)
GREEDY = _worker(
    *("resource.setrlimit(resource.RLIMIT_DATA, (1 << 27, 1 << 27)); ", _SAYS_SO),
    "sys.stdin.buffer.read(4); bytearray(1 << 30)",
)
LONG = _worker(_SAYS_SO, "out.write(bytes([255] * 4)); out.flush()")
DEFECTIVE = (
    sys.executable,
    "-c",
    "from netdra.workers import process; process.main(lambda body: {b'1': 'one'}[body])",
)
"""Answers the task 1, and fails in each other one as a rule with a defect does."""
STILLBORN = _worker()
ABSENT = ("/nowhere/worker",)
