"""The verdicts on netdra's processes: one table, the facts, the check, the level, and words of the finding."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from netdra.doctor.cluster_verdicts import Component
from netdra.doctor.diagnosis import Unseen, worst
from netdra.doctor.process_verdicts import DriverFacts, Leader, ProcessFacts, verdicts

SINCE = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
RUNNING = (
    Component("controller-a", "controller", "0.2.0"),
    Component("webhook-a", "webhook", "0.2.0"),
    Component("node-a", "node", "0.2.0", node="n1"),
)
WELL = ProcessFacts(
    components=RUNNING,
    leader=Leader("controller-a", SINCE, works=True),
    drivers=DriverFacts(selected=frozenset({"n1"}), used=frozenset({"n1"})),
)


def stopped(part: str, node: str = "", state: str = "CrashLoopBackOff") -> Component:
    return Component(f"{part}-b", part, "0.2.0", node=node, is_ready=False, state=state)


def test_processes_that_all_run_have_no_trouble_and_nothing_to_do() -> None:
    found = verdicts(WELL)
    assert [each.check for each in found] == ["netdra controller", "netdra webhook", "netdra node"]
    assert [each for each in found if each.level != "ok" or each.fix] == []


def test_the_last_renewal_of_a_lease_is_named() -> None:
    (found, *_) = verdicts(msgspec.structs.replace(WELL, leader=Leader("a", SINCE)))
    assert found.seen.startswith("no controller works since 2026-11-21T10:00:00Z: pods wait")


@pytest.mark.parametrize(
    ("change", "check", "level", "seen", "fix"),
    [
        ({"leader": Leader()}, "netdra controller", "error", "no controller works: ", "component=controller"),
        (
            {"leader": Leader("a", SINCE), "components": (stopped("controller"),)},
            "netdra controller",
            "error",
            "statuses stay as they are; pod controller-b is not ready (CrashLoopBackOff)",
            "component=controller",
        ),
        ({"components": (stopped("webhook"),)}, "netdra webhook", "error", "no webhook is ready; pod", "describe pods"),
        (
            {"components": (stopped("node", "n1", ""),)},
            "netdra node",
            "error",
            "not ready on 1 nodes whose devices are offered or used (n1): pod node-b is not ready; pods on n1 use",
            "component=node",
        ),
        (
            {"components": (), "drivers": DriverFacts(selected=frozenset({"n1", "n2"}))},
            "netdra node",
            "error",
            "not ready on 2 nodes whose devices are offered or used (n1, n2): n1 has no pod of it",
            "nodeSelector",
        ),
        (
            {"drivers": DriverFacts(selected=frozenset({"n1", "n2"}), not_ready=frozenset({"n2"}))},
            "netdra node",
            "warning",
            "(n2) are not Ready",
            "kubectl describe node n2",
        ),
        ({"leader": Unseen("forbidden")}, "netdra controller", "warning", "could not be read: forbidden", "kubeconfig"),
        ({"drivers": Unseen("forbidden")}, "netdra node", "warning", "could not be read: forbidden", "kubeconfig"),
        ({"drivers": DriverFacts()}, "netdra node", "ok", "no policy selects a node", ""),
    ],
)
def test_a_process_that_does_not_run_is_named(
    change: dict[str, Any], check: str, level: str, seen: str, fix: str
) -> None:
    found = [each for each in verdicts(msgspec.structs.replace(WELL, **change)) if each.check == check]
    assert len(found) == 1
    assert found[0].level == level
    assert seen in found[0].seen
    assert fix in found[0].fix


def test_an_ended_driver_beside_its_successor_on_a_node_is_no_trouble() -> None:
    facts = msgspec.structs.replace(WELL, components=(stopped("node", "n1"), *RUNNING))
    assert worst(verdicts(facts)) == "ok"


def test_pods_that_cannot_be_read_have_no_findings() -> None:
    assert verdicts(msgspec.structs.replace(WELL, components=Unseen("forbidden"))) == []
