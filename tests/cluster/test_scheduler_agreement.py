"""The allocator decides as the real kube-scheduler, on random devices and claims.

`NETDRA_AGREEMENT_CASES` states how many sequences are drawn, `NETDRA_SEED` the seed; a difference names its seed, and
its slices and claims are written where pytest keeps the test's files.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdra.model.scheduler_version import SchedulerVersion
from testbed.build import component_of, programs_of
from testbed.commands import Settings
from testbed.components import COMPONENTS, NEXT_SCHEDULER
from tests import draws
from tests.cluster.agreement import DifferenceError, Driver, driver
from tests.cluster.conftest import StartControlPlane
from tests.drawn.cases import Case, draw

CASES = int(os.environ.get("NETDRA_AGREEMENT_CASES") or draws.count(50, 600))
SEED = str(draws.seed())
SCHEDULERS = {"kube-scheduler": component_of("kube-scheduler").version} | {
    known.name: known.version for known in COMPONENTS if known.name == NEXT_SCHEDULER and programs_of(known).is_dir()
}
"""The programs that are built, and their versions."""
OF_EXPLORE = {NEXT_SCHEDULER: pytest.mark.repeats}
AT_ONCE = 50


@pytest.fixture(
    params=[pytest.param(name, marks=OF_EXPLORE.get(name, ())) for name in SCHEDULERS],
    scope="module",
)
def version(request: pytest.FixtureRequest) -> SchedulerVersion:
    """The version of the scheduler."""
    return SchedulerVersion.parse(SCHEDULERS[request.param])


@pytest.fixture(scope="module")
def running(version: SchedulerVersion, start_control_plane: StartControlPlane) -> Iterator[Driver]:
    """A control plane on which cases are played, with the API server of the newest release."""
    program = next(name for name, known in SCHEDULERS.items() if SchedulerVersion.parse(known) == version)
    settings = Settings(controller_manager=False, scheduler_program=program)
    with driver(start_control_plane(settings), AT_ONCE) as opened:
        yield opened


@pytest.mark.timeout(300 + 2 * CASES)
def test_allocator_and_scheduler_agree_on_every_step(
    running: Driver, version: SchedulerVersion, tmp_path: Path
) -> None:
    differences: list[DifferenceError] = []
    for start in range(0, CASES, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, CASES))
        batch = [draw(SEED, number, node, version) for number, node in zip(numbers, running.nodes, strict=False)]
        found = running.run(batch)
        differences += found
        for each in batch if found else ():
            _keep(each, tmp_path)
    assert not differences, "\n".join(itertools.chain([f"files in {tmp_path}"], map(str, differences[:5])))


def _keep(case: Case, folder: Path) -> None:
    """Write a case so that `netdra simulate` reads it."""
    claims = [claim for step in case.steps for claim in step.claims]
    for name, items in (("slices", case.slices), ("claims", claims)):
        document = {"apiVersion": "v1", "kind": "List", "items": items}
        (folder / f"{case.name}-{name}.json").write_text(json.dumps(document, indent=1))
