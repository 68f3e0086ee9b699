"""A process that reviews objects whose expressions nobody has compiled yet: one at a time, in memory that is limited.

Started by `netdra.admission.workers` as `python -m netdra.admission.worker`. It reads tasks from standard input and
writes verdicts to standard output, each as four bytes of length and JSON, and ends when its input does. It has no
connection to anything else; an expression that ends it, or keeps it too long, costs one verdict.
"""

from __future__ import annotations

import resource
import sys
from typing import BinaryIO

import msgspec

from netdra.admission.cluster import Cluster
from netdra.admission.messages import AdmissionRequest
from netdra.admission.review import review

MAX_MEMORY = 512 * 1024 * 1024
LENGTH = 4


class Task(msgspec.Struct, frozen=True):
    """A request, and what of the cluster it is to be held against."""

    request: AdmissionRequest
    cluster: Cluster


_reader = msgspec.json.Decoder(Task)


def frame(value: object) -> bytes:
    """A value as it goes through a pipe."""
    body = msgspec.json.encode(value)
    return len(body).to_bytes(LENGTH, "big") + body


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Review until the input ends."""
    while head := source.read(LENGTH):
        task = _reader.decode(source.read(int.from_bytes(head, "big")))
        target.write(frame(review(task.request, task.cluster)))
        target.flush()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
    serve(sys.stdin.buffer, sys.stdout.buffer)
