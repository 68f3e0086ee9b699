"""A process that reviews objects whose expressions nobody has compiled yet, one at a time (`netdra.workers.process`).

Started by `netdra.admission.workers` as `python -m netdra.admission.worker`.
"""

from __future__ import annotations

import msgspec

from netdra.admission.cluster import Cluster
from netdra.admission.messages import AdmissionRequest, Verdict
from netdra.admission.review import review
from netdra.workers import process


class Task(msgspec.Struct, frozen=True):
    """A request, and what of the cluster it is to be held against."""

    request: AdmissionRequest
    cluster: Cluster


_reader = msgspec.json.Decoder(Task)


def answer(body: bytes) -> Verdict:
    """The verdict on one object."""
    task = _reader.decode(body)
    return review(task.request, task.cluster)


if __name__ == "__main__":
    process.main(answer)
