"""Which claims fail for which topology and policy, by drivers' device statuses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netdra.controller import failures
from netdra.controller.failures import DeviceFailure
from netdra.kube.answers import decoder
from netdra.model import names
from netdra.model.rollout import FailingClaims
from netdra.model.watched_claim import MAX_FAILURE, WatchedClaim

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def config(topology: str) -> dict[str, Any]:
    parameters = {"networkTopologyRef": {"name": topology}, "step": "nic"}
    return {"source": "FromClass", "opaque": {"driver": names.DRIVER, "parameters": parameters}}


def device(
    status: str = "False", *, policy: Any = "rails", time: str = EARLY, pool: str = "n1/sriov-eth0", **changes: Any
) -> dict[str, Any]:
    conditions = [
        {"type": "Healthy", "status": "False", "message": "of something else"},
        {
            "type": "Ready",
            "status": status,
            "reason": "StepFailed",
            "message": "no carrier",
            "lastTransitionTime": time,
        },
    ]
    data = {"policy": policy, "pods": [{"name": "p"}]} if policy else {"pods": []}
    return {"driver": names.DRIVER, "pool": pool, "device": "vf0", "conditions": conditions, "data": data, **changes}


def claim(*devices: dict[str, Any], topologies: tuple[str, ...] = ("net",), allocated: bool = True) -> WatchedClaim:
    """A claim as the API server writes it and the controller reads it."""
    allocation = {"devices": {"config": [config(topology) for topology in topologies]}} if allocated else None
    value = {"metadata": {"name": "c"}, "status": {"allocation": allocation, "devices": devices}}
    watched: WatchedClaim = decoder(WatchedClaim).decode(msgspec.json.encode(value))
    return watched


ONE = DeviceFailure("n1", "no carrier", EARLY)
TABLE: dict[str, tuple[WatchedClaim, dict[str, DeviceFailure], dict[str, DeviceFailure]]] = {
    "a device that is not ready": (claim(device()), {"net": ONE}, {"rails": ONE}),
    "a device that is ready": (claim(device("True")), {}, {}),
    "a state that is not known": (claim(device("Unknown")), {}, {}),
    "no status yet": (claim(), {}, {}),
    "no conditions": (claim(device(conditions=None)), {}, {}),
    "another driver's device": (claim(device(driver="gpu.example")), {}, {}),
    "one of two devices": (
        claim(device("True", policy="other"), device()),
        {"net": ONE},
        {"rails": ONE},
    ),
    "two devices of one policy: the last failure": (
        claim(device(time=LATE, pool="n1/p"), device()),
        {"net": DeviceFailure("n1", "no carrier", LATE)},
        {"rails": DeviceFailure("n1", "no carrier", LATE)},
    ),
    "two policies, two topologies": (
        claim(device(), device(policy="other", time=LATE), topologies=("a", "b")),
        dict.fromkeys(("a", "b"), DeviceFailure("n1", "no carrier", LATE)),
        {"rails": ONE, "other": DeviceFailure("n1", "no carrier", LATE)},
    ),
    "no topology": (claim(device(), topologies=()), {}, {"rails": ONE}),
    "an older netdra, which names no policy": (claim(device(policy="")), {"net": ONE}, {}),
    "a policy that is not a name": (claim(device(policy=[1])), {"net": ONE}, {}),
    "no data": (claim(device(data=None)), {"net": ONE}, {}),
    "a pool of a former name": (
        claim(device(pool="n1-sriov-eth0")),
        {"net": DeviceFailure("", "no carrier", EARLY)},
        {"rails": DeviceFailure("", "no carrier", EARLY)},
    ),
    "a claim that was given back": (claim(device(), allocated=False), {}, {}),
}


@pytest.mark.parametrize("case", TABLE)
def test_a_claim_fails_for_its_topologies_and_the_policies_of_its_devices(case: str) -> None:
    watched, of_topologies, of_policies = TABLE[case]
    assert failures.by_topology(watched) == of_topologies
    assert failures.by_policy(watched) == of_policies


def test_only_devices_that_are_not_ready_are_kept_of_a_claim_with_short_messages() -> None:
    long = device()
    long["conditions"][1]["message"] = "x" * 32 * 1024
    (kept,) = claim(device("True"), device(driver="gpu.example", data={"policy": {"a": 1}}), long).status.devices
    assert kept.conditions is not None
    assert [len(entry.message) for entry in kept.conditions] == [MAX_FAILURE]


def test_the_failures_of_an_object_are_counted_and_the_last_is_named() -> None:
    entries = {
        f"team/c{number:03}": DeviceFailure(f"n{number % 20:02}", f"error {number}", EARLY) for number in range(300)
    }
    entries["team/c100"] = DeviceFailure("n00", "the last error", LATE)
    found = failures.summary(entries.items())
    assert found.number == 300
    assert found.nodes == tuple(f"n{number:02}" for number in range(16))
    assert found.claims == tuple(f"team/c{number:03}" for number in range(16))
    assert found.last_error is not None
    assert msgspec.to_builtins(found.last_error) == {
        "claim": "team/c100",
        "node": "n00",
        "message": "the last error",
        "time": LATE,
    }
    assert failures.summary(reversed(entries.items())) == found, "in whatever order"
    assert failures.summary(()) == FailingClaims(number=0)


def test_a_secret_in_an_error_is_not_shown_to_the_whole_cluster() -> None:
    found = failures.summary([("a/c", DeviceFailure("n1", "plugin: token=abcdefgh123 refused", EARLY))])
    assert found.last_error is not None
    assert found.last_error.message == "plugin: token=[secret] refused"
