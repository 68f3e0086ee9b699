"""A process that reviews policies and topologies, one object at a time (`netdra.review`, `netdra.workers.process`).

Started by `netdra.controller.checks` as `python -m netdra.controller.worker`. As a rule the webhook has checked these
objects; but it may have been installed after them, or be of another version.
"""

from __future__ import annotations

import msgspec

from netdra import cel
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.topology import NetworkTopology
from netdra.review import objects
from netdra.review.world import World
from netdra.rules import shipped
from netdra.workers import process


class PolicyTask(msgspec.Struct, frozen=True, tag="policy"):
    """A policy for the worker process, which compiles its untrusted expressions."""

    value: DeviceExposurePolicy
    world: World


class TopologyTask(msgspec.Struct, frozen=True, tag="topology"):
    """A topology for the worker process, which compiles its untrusted expressions."""

    value: NetworkTopology
    world: World


Task = PolicyTask | TopologyTask
_reader: msgspec.json.Decoder[Task] = msgspec.json.Decoder(Task)


def answer(body: bytes) -> tuple[str, ...]:
    """All errors of an object, as texts; none if it can be used."""
    task = _reader.decode(body)
    found = objects.errors([task.value], task.world)
    return tuple(objects.text_of(type(value).__name__, finding) for value, finding in found)


def load() -> None:
    """Load all modules and schemas that checks may need."""
    cel.load_all()
    shipped.load_all()


if __name__ == "__main__":
    process.main(answer, load=load)
