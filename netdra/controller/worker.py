"""A process that compiles the expressions of policies and topologies, one object at a time (`netdra.workers.process`).

Started by `netdra.controller.checks` as `python -m netdra.controller.worker`. As a rule the webhook has checked these
objects; but it may have been installed after them, or be of another version.
"""

from __future__ import annotations

import msgspec

from netdra import cel
from netdra.exposure.check import check
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.rules import contract, shipped
from netdra.rules.topologies import check_topology
from netdra.workers import process


class PolicyTask(msgspec.Struct, frozen=True, tag="policy"):
    """Check a policy."""

    policy: DeviceExposurePolicy


class TopologyTask(msgspec.Struct, frozen=True, tag="topology"):
    """Check a topology by the cluster's schemas."""

    topology: NetworkTopology
    schemas: tuple[CNIPluginSchema, ...]


Task = PolicyTask | TopologyTask
_reader: msgspec.json.Decoder[Task] = msgspec.json.Decoder(Task)


def answer(body: bytes) -> tuple[str, ...]:
    """All errors of an object, as texts; none if it can be used."""
    task = _reader.decode(body)
    if isinstance(task, PolicyTask):
        return tuple(finding.text_at_path for finding in check(task.policy))
    valid = [schema for schema in task.schemas if not contract.examine(schema)[1]]
    return tuple(finding.text for finding in check_topology(task.topology, valid))


def load() -> None:
    """Load all modules and schemas that checks may need."""
    cel.load_all()
    shipped.load_all()


if __name__ == "__main__":
    process.main(answer, load=load)
