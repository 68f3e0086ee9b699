"""ResourceSlices of files: what the API server refuses in them, and the fields that netdra does not read.

That the API server refuses the same is in `tests/cluster/test_slices_accepted.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from netdra.model.resource import ResourceSlice
from netdra.slices.written import faults, misread

Written = dict[str, Any]
NODES = {"nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"}
COUNTERS = {"name": "pf0", "counters": {"slots": {"value": "2"}}}


def device(name: str = "enp3s0f0v0", **fields: Any) -> Written:
    return {"name": name, "attributes": {"type": {"string": "vf"}}, **fields}


def written(name: str = "worker-1-pf0", *, parts: int = 1, **spec: Any) -> Written:
    """A slice as a file has it."""
    pool = {"name": "worker-1/pf0", "generation": 1, "resourceSliceCount": parts}
    where = (
        {} if {"nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"} & spec.keys() else {"nodeName": "n"}
    )
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {"driver": "dra.networking", "pool": pool, **where, **spec},
    }


def drawing(counter_set: str = "pf0", counter: str = "slots") -> Written:
    return device(consumesCounters=[{"counterSet": counter_set, "counters": {counter: {"value": "1"}}}])


REFUSED: dict[str, tuple[Written, str]] = {
    "counters beside devices": (
        written(sharedCounters=[COUNTERS], devices=[device()]),
        "it has devices and sharedCounters",
    ),
    "for two": (written(nodeName="n", allNodes=True, devices=[device()]), "nodeName and allNodes are set"),
    "for none": (written(allNodes=False, devices=[device()]), "none of nodeName, nodeSelector and allNodes is set"),
    "many devices": (written(devices=[device(f"v{at}") for at in range(129)]), "129 devices, more than 128"),
    "many sets": (
        written(sharedCounters=[{**COUNTERS, "name": f"s{at}"} for at in range(9)]),
        "9 counter sets, more than 8",
    ),
    "name": (written(devices=[device("VF_0")]), 'device "VF_0": "VF_0" is not a DNS label'),
    "long text": (
        written(devices=[device(attributes={"type": {"string": "x" * 65}})]),
        'attribute "type" is longer than 64 bytes',
    ),
    "many attributes": (
        written(devices=[device(attributes={f"a{at}": {"int": at} for at in range(33)})]),
        "33 attributes and capacities, more than 32",
    ),
    "request policy": (
        written(devices=[device(capacity={"slots": {"value": "4", "requestPolicy": {"default": "1"}}})]),
        "has a request policy, but the device is not shared",
    ),
}
"""Slices that the API server refuses, and a part of what is told of each."""


@pytest.mark.parametrize(("value", "text"), REFUSED.values(), ids=REFUSED)
def test_a_slice_the_api_server_rejects_is_reported_with_the_reason(value: Written, text: str) -> None:
    (found,) = faults([msgspec.convert(value, ResourceSlice)])
    assert text in found[1].what


@pytest.mark.parametrize(
    ("parts", "taken", "text"),
    [
        (2, drawing(), ""),
        (2, drawing("pf1"), 'its pool does not have the counter set "pf1"'),
        (2, drawing(counter="vlans"), 'counter set "pf0" does not have the counter "vlans"'),
        (3, drawing("pf1"), ""),  # the set may be in the slice that is not here
    ],
)
def test_counter_sets_are_looked_for_in_the_pools_other_slices(parts: int, taken: Written, text: str) -> None:
    values = (written("a", parts=parts, sharedCounters=[COUNTERS]), written("b", parts=parts, devices=[taken]))
    found = [finding.what for _, finding in faults(msgspec.convert(values, tuple[ResourceSlice, ...]))]
    assert found == ([f'device "enp3s0f0v0": {text}'] if text else [])


def _in_device(value: Written) -> Written:
    return value["spec"]["devices"][0]  # type: ignore[no-any-return]


def _in_consumption(value: Written) -> Written:
    return _in_device(value)["consumesCounters"][0]  # type: ignore[no-any-return]


def _in_counter(value: Written) -> Written:
    return _in_consumption(value)["counters"]["slots"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("place", "field", "text", "unknown"),
    [
        (_in_device, "basic", 'unknown field "basic"; in resource.k8s.io/v1, attributes', True),
        (
            lambda value: _in_device(value)["attributes"]["type"],
            "stringSlice",
            "the field for a list of texts is strings",
            True,
        ),
        (_in_counter, "valueFrom", "does not support counters that follow a request", True),
        (_in_device, "atributes", 'did you mean "attributes"?', True),
        (lambda value: value["spec"], "nodename", 'did you mean "nodeName"?', True),
        (
            lambda value: _in_device(value)["consumesCounters"][0],
            "compatibilityGroups",
            "skips the device",
            False,
        ),
        (lambda value: value["spec"], "partitionTypeAttribute", "it does not change allocations", False),
        (_in_device, "nodeAllocatableResources", "only if its feature gate DRANodeAllocatableResources", False),
    ],
)
def test_a_field_that_is_not_read_is_named_once_with_the_next_step(
    place: Callable[[Written], Written], field: str, text: str, unknown: bool
) -> None:
    value = written(devices=[drawing(), drawing()])
    assert not misread(value)
    place(value)[field] = {}
    _in_device(value)["taints"] = [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]
    (found,) = misread(value)
    assert text in found.finding.text
    assert found.finding.path[-1] == field
    assert found.unknown == unknown


def test_one_fault_of_many_devices_is_reported_once_with_its_count() -> None:
    value = written(devices=[{"name": f"v{at}", "basic": {}} for at in range(3)])
    (found,) = misread(value)
    assert found.finding.what == 'unknown field "basic", 3 times'
    assert found.finding.path == ("spec", "devices", 0, "basic")


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
@pytest.mark.parametrize("within", ["exactly", "firstAvailable"])
def test_a_request_field_netdra_does_not_read_is_reported_with_its_feature_gate(kind: str, within: str) -> None:
    wanted = {"deviceClassName": "vf", "derivedAttributes": [{}]}
    request = {"name": "net", within: wanted if within == "exactly" else [wanted]}
    spec: Written = {"devices": {"requests": [request]}}
    (found,) = misread({"kind": kind, "spec": spec if kind == "ResourceClaim" else {"spec": spec}})
    assert "gate DRADerivedAttributes" in found.finding.hint
    assert not found.unknown


@pytest.mark.parametrize("value", [None, 1, "x", [], {}, [None], {"devices": 1}, {"devices": [1, {"attributes": 3}]}])
def test_values_of_any_type_are_passed_over(value: Any) -> None:
    for kind in ("ResourceSlice", "ResourceClaim", "ResourceClaimTemplate"):
        known = [each for each in misread({"kind": kind, "spec": deepcopy(value)}) if not each.unknown]
        assert not known
