"""A worker process: one task after the other, in limited memory.

Called by the modules that are started as workers (`netdra.admission.worker`, `netdra.controller.worker`). Tasks come by
standard input, answers go to standard output, each as four bytes of length and JSON. A worker states first that it is
ready, and ends when its input does. It has no connection to anything else, and none can be made (`confine`): a task
that ends it, or keeps it too long, costs one answer. For one in which netdra itself fails, the answer is the defect. It
ends by itself when an allocation failed: such a process cannot be trusted with another task.
"""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Callable, Iterable
from typing import BinaryIO

import msgspec

from netdra.workers import defects
from netdra.workers.confine import confine

MAX_MEMORY = 512 * 1024 * 1024
LENGTH = 4
DEFECT = 1 << 31
"""A bit of the length: the answer is a `netdra.workers.defects.Defect`."""
READY = bytes(LENGTH)
"""What a worker says before its first task: an answer of no length, which no answer has."""


def frame(value: object, flag: int = 0) -> bytes:
    """A value as it goes through a pipe."""
    body = msgspec.json.encode(value)
    return (len(body) | flag).to_bytes(LENGTH, "big") + body


def serve(answer: Callable[[bytes], object], source: BinaryIO, target: BinaryIO) -> None:
    """Answer until the input ends."""
    while head := source.read(LENGTH):
        task = source.read(int.from_bytes(head, "big"))
        try:
            answered = frame(answer(task))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 (any defect, and the answer reports it)
            answered = frame(defects.of(error), DEFECT)
        target.write(answered)
        target.flush()


def main(
    answer: Callable[[bytes], object], samples: Iterable[object] = (), load: Callable[[], None] = lambda: None
) -> None:
    """Be a worker until the input ends.

    Args:
        answer: a task, as JSON, to its answer.
        samples: tasks that are done before the first one comes, so that it does not wait for one-time work: the CEL
            engine alone takes 40 to 80 ms. The garbage collector does not inspect that memory again.
        load: loads modules that a task would load first: later it can no longer open files.
    """
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
    load()
    for sample in samples:
        answer(msgspec.json.encode(sample))
    gc.collect()
    gc.freeze()
    if missing := confine():
        sys.stderr.write(f"a worker has more rights than it needs: {missing}\n")
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    serve(answer, sys.stdin.buffer, sys.stdout.buffer)
