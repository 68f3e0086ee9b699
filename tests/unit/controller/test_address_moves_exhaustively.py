"""Every interleaving of two controllers, nodes, a tenant and the clock: no address on two pods, none lost, no deadlock.

Three claims, three addresses, two nodes. The controllers are the real ones (`address_model`); a controller may die, or
be overtaken by the other one, between any two of its requests. Broken controllers show that the checker finds faults.
"""

from __future__ import annotations

from unittest import mock

import pytest

from tests.state_checker import Search
from tests.unit.controller import address_model
from tests.unit.controller.address_model import NONE, Entry, Model, World, allocated_at_once, is_goal, start, wrong

SCENES: dict[str, tuple[World, tuple[str, ...]]] = {
    "two controllers": (start(1), ("force", "delete", "finish", "crash")),
    "a node is lost": (start(1, controllers=1), ("cut",)),
    "two disturbances": (start(2, controllers=1), ("force", "finish")),
    "claims of templates": (start(1, of_pods=True, controllers=1), ("force", "finish")),
    "a pod has another sandbox": (start(2, of_pods=True, controllers=1, number=2), ("sandbox", "force")),
}
"""By name, a state, and the disturbances that may come."""
BROKEN: dict[str, tuple[World, tuple[str, ...], str]] = {
    address_model.NO_REPORT: (start(1, controllers=1), ("force",), "address 0 is lost"),
    address_model.NO_QUARANTINE: (start(1, controllers=1), ("delete",), "before its quarantine has ended"),
    address_model.KEPT_IS_FREE: (start(1, of_pods=True, controllers=1), ("force",), "is lost"),
    address_model.NO_CONFLICT: (allocated_at_once(), (), "is lost"),
    address_model.BY_STATUS: (start(2, controllers=1), ("force", "finish"), "is lost"),
}
"""By variant of the controller, where the checker finds its fault, and the fault."""


@pytest.mark.parametrize("scene", SCENES)
def test_no_interleaving_has_an_address_on_two_pods_or_loses_one_or_blocks_a_claim(scene: str) -> None:
    first, disturbances = SCENES[scene]
    model = Model(disturbances=disturbances)
    verdict = model.check(first)
    assert not verdict.problem, model.story(verdict)
    print(f"{scene}: {verdict.states} states")


@pytest.mark.parametrize("variant", BROKEN)
def test_the_checker_finds_the_fault_of_a_broken_controller(variant: str) -> None:
    first, disturbances, problem = BROKEN[variant]
    model = Model(variant, disturbances)
    verdict = model.check(first)
    assert problem in verdict.problem, verdict.problem
    print(model.story(verdict))


@pytest.mark.parametrize("other", [Entry(0, 0, NONE, 1, fresh=True), Entry(0, 0, NONE), Entry(0, 0, 3, 1)])
def test_a_decision_on_a_claim_depends_on_others_only_by_the_addresses_that_they_have(other: Entry) -> None:
    """So a state of a controller in its work has no more of the others' addresses."""
    search = Search(start(1, controllers=1), Model(disturbances=("delete",)).steps)
    search.check(wrong, is_goal)
    jobs = {worker.job for world in search.states for worker in world.workers if worker.job is not None}
    decide = address_model.next_request.__wrapped__

    def entry(number: int, owner: int) -> Entry:
        return other._replace(number=number, owner=owner)

    for job in jobs:
        expected = decide(job.view, job.answers)
        with mock.patch.object(address_model, "other_entry", entry):
            assert decide(job.view, job.answers) == expected
