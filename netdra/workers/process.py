"""What a worker process does: one task after the other, in memory that is limited.

Called by the modules that are started as workers (`netdra.admission.worker`, `netdra.controller.worker`). Tasks come by
standard input, answers go to standard output, each as four bytes of length and JSON; it ends when its input does. It
has no connection to anything else: a task that ends it, or keeps it too long, costs one answer.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from typing import BinaryIO

import msgspec

MAX_MEMORY = 512 * 1024 * 1024
LENGTH = 4


def frame(value: object) -> bytes:
    """A value as it goes through a pipe."""
    body = msgspec.json.encode(value)
    return len(body).to_bytes(LENGTH, "big") + body


def serve(answer: Callable[[bytes], object], source: BinaryIO, target: BinaryIO) -> None:
    """Answer until the input ends."""
    while head := source.read(LENGTH):
        target.write(frame(answer(source.read(int.from_bytes(head, "big")))))
        target.flush()


def main(answer: Callable[[bytes], object]) -> None:
    """Be a worker until the input ends.

    Args:
        answer: a task, as JSON, to its answer.
    """
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
    serve(answer, sys.stdin.buffer, sys.stdout.buffer)
