"""The allocator decides as Kubernetes' own library for DRA of each version, on random devices and claims.

The library of the newest release is always built; `make explore` and `make test-runtimes` build the others, and the
tests run them wherever they are. `NETDRA_AGREEMENT_CASES` states how many sequences are drawn, `NETDRA_SEED` the seed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.model.claim import AllocationResult
from netdra.model.scheduler_version import SchedulerVersion
from netdra.slices.allocator import Allocation, Refusal
from testbed import dra, objects
from tests import draws
from tests.cluster.agreement import canonical_allocation
from tests.drawn.cases import Case, Step, draw
from tests.drawn.claims import classes
from tests.drawn.versions import ROWS, Row

CASES = int(os.environ.get("NETDRA_AGREEMENT_CASES") or draws.count(150, 10_000))
SEED = str(draws.seed())
NODE = "node-0"


@pytest.fixture(params=dra.built(), scope="module")
def version(request: pytest.FixtureRequest) -> str:
    """A minor version whose library is built."""
    return str(request.param)


@pytest.mark.timeout(300 + CASES)
def test_allocator_and_library_of_each_version_agree_on_every_step(version: str, tmp_path: Path) -> None:
    differences = []
    with dra.started(version) as library:
        for number in range(CASES):
            case = draw(SEED, number, NODE, SchedulerVersion.parse(version))
            if difference := _difference(case, library):
                differences.append(f"seed {SEED}, {case.name}: {difference}")
                (tmp_path / f"{case.name}.json").write_text(json.dumps(_input(case), indent=1))
    assert not differences, "\n".join((f"{len(differences)}; files in {tmp_path}", *differences[:5]))


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_library_of_each_version_agrees_where_versions_differ(version: str, row: Row) -> None:
    with dra.started(version) as library:
        assert not _difference(row.case(version), library)


def _difference(case: Case, library: dra.Library) -> str:
    """The first step in which the allocator and the library differ: later ones follow from it."""
    for step, outcome in zip(case.steps, library.play(_input(case)), strict=True):
        ours, theirs = _ours(step), _theirs(outcome)
        if ours != theirs:
            reason = step.outcome.reason if isinstance(step.outcome, Refusal) else ""
            return f"{step.pod}:\n  allocator: {ours} {reason}\n  library: {theirs} {outcome.get('reason', '')}"
    return ""


def _ours(step: Step) -> Any:
    if isinstance(step.outcome, Allocation):
        return [canonical_allocation(claim.status.allocation) for claim in step.outcome.claims]
    if step.outcome is None:
        return ""
    return "given up" if step.outcome.permanent else "does not fit"


def _theirs(outcome: Any) -> Any:
    if outcome["decision"] != "fits":
        return outcome["decision"]
    return [canonical_allocation(each) for each in msgspec.convert(outcome["allocations"], list[AllocationResult])]


def _input(case: Case) -> Any:
    """A case as the library's program reads it."""
    node = objects.manifest(objects.NODE, case.node)
    node["metadata"]["labels"] = {objects.HOSTNAME: case.node}
    steps = [{"pod": step.pod, "claims": step.claims, "leaves": step.leaves} for step in case.steps]
    return {"node": node, "slices": case.slices, "classes": classes(), "steps": steps}
