"""Invalid policies are distinguished from valid ones, with the field that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from netdra.exposure import check
from netdra.exposure.additional import PCIE_ROOTS
from tests.builders import exclude, policy

PORTS = {"value": "64", "requestPolicy": {"default": "1"}}
SHARED: dict[str, Any] = {"allowMultipleAllocations": True, "capacity": {"ports": PORTS}}


def bridge(**consumed: object) -> dict[str, Any]:
    return {"supportedCNIPlugins": [{"name": "bridge", "consumePerAllocation": consumed}]}


def ports(value: object = "64", **request_policy: object) -> dict[str, Any]:
    return {"capacity": {"ports": {"value": value, "requestPolicy": request_policy}}, "allowMultipleAllocations": True}


@pytest.mark.parametrize(
    "exposure",
    [
        {},
        {"supportedCNIPlugins": [{"name": "host-device", "exclusive": True}]},
        {"supportedCNIPlugins": [{"name": "host-device"}], "deviceNameSuffix": "-a1"},
        SHARED,
        SHARED | {"capacity": {"ports": PORTS, "example.org/gold": {"value": "0", "requestPolicy": {"default": "0"}}}},
        ports(default="2", validRange={"min": "1", "max": "4", "step": "1"}),
        ports(default="2", validRange={"min": "1"}),
        ports(default="2", validValues=["1", "2", "64"]),
        # consumePerAllocation gives the default that the request policy has not, or another one.
        {"capacity": {"ports": {"value": 64}}, "allowMultipleAllocations": True} | bridge(ports=1),
        SHARED | bridge(ports=2),
        # Exclusive and shared plugins make two devices.
        {
            "capacity": {"ports": PORTS},
            "supportedCNIPlugins": [{"name": "macvlan"}, {"name": "host-device", "exclusive": True}],
        },
        # A capacity of an exclusive device is something to ask for, and needs no default.
        {"capacity": {"bandwidth": {"value": "10Gi"}}},
        {"additionalAttributes": {"rack": "r1", "example.org/tier": 1, "nets": ["a", "b"]}},
        {"additionalAttributes": {"on": True, **dict.fromkeys(PCIE_ROOTS, "pci0000:3f"), "a": 1, "b": 2}},
        {"capacity": {"bandwidth": {"value": "9000", "requestPolicy": {"default": "9k"}}}},
    ],
)
def test_valid_exposures_are_accepted(exposure: dict[str, Any]) -> None:
    assert check(policy("p", "true", **exposure)) == ()


@pytest.mark.parametrize(
    ("exposure", "message"),
    [
        ({"deviceNameSuffix": "-A"}, '"-A" must have'),
        ({"deviceNameSuffix": "-a-"}, "must not end with -"),
        ({"deviceNameSuffix": "-" + "a" * 32}, "at most 32"),
        ({"allowMultipleAllocations": True}, "a policy that allows multiple allocations requires a capacity"),
        (ports("0", default="0"), "requires a capacity above 0"),
        (ports("64", default="0"), "of which each claim consumes a part"),
        (
            {"allowMultipleAllocations": True, "capacity": {"ports": {"value": "64"}}},
            'capacity "ports" requires requestPolicy.default or consumePerAllocation',
        ),
        (
            SHARED | {"supportedCNIPlugins": [{"name": "a", "consumePerAllocation": {"ports": 2}}, {"name": "b"}]},
            "the shared plugins set different values",
        ),
        (
            SHARED | bridge(seats=1),
            '"seats" not found in spec.exposure.capacity [spec.exposure.supportedCNIPlugins[0].consumePerAllocation',
        ),
        (SHARED | bridge(ports=65), "65 exceeds the capacity of the device, 64"),
        (SHARED | bridge(ports="many"), '"many" is not a quantity'),
        (
            SHARED | {"supportedCNIPlugins": [{"name": "host-device", "exclusive": True}]},
            "allowMultipleAllocations is true, but every plugin is exclusive",
        ),
        (
            {"supportedCNIPlugins": [{"name": "macvlan"}, {"name": "host-device", "exclusive": True}]},
            "lists exclusive and shared plugins",
        ),
        ({"supportedCNIPlugins": [{"name": "a,b"}]}, '"a,b" must be the name of a plugin'),
        ({"supportedCNIPlugins": [{"name": "a"}, {"name": "a"}]}, '"a" is listed twice'),
        ({"supportedCNIPlugins": [{"name": f"p{i}"} for i in range(17)]}, "17 plugins exceed the maximum of 16"),
        (ports("-1", default="0"), "not a quantity from 0"),
        (
            ports("x", default="0"),
            '"x" is not a quantity from 0 to 9223372036854775807 [spec.exposure.capacity.ports.value]',
        ),
        (ports("9223372036854775808", default="1"), "not a quantity from 0 to 9223372036854775807"),
        (ports(default="65"), "a claim would consume 65, which exceeds the capacity of the device"),
        (ports(default="1", validValues=["1"], validRange={"min": "1"}), "both validValues and validRange"),
        (ports(default="1", validValues=["2", "1"]), "must be in ascending order"),
        (ports(default="1", validValues=["1", "65"]), "65 exceeds the capacity of the device"),
        (ports(default="3", validValues=["1", "2"]), "not one of requestPolicy.validValues"),
        (ports(default="1", validValues=[str(i) for i in range(1, 12)]), "11 values exceed the maximum of 10"),
        (ports(default="1", validRange={"min": "2", "max": "4"}), "outside requestPolicy.validRange"),
        (ports(default="1", validRange={"min": "1", "max": "65"}), "min <= max <= the capacity's value"),
        (ports(default="1", validRange={"min": "1", "step": "0"}), "step must be greater than 0"),
        (
            ports(default="2", validRange={"min": "1", "step": "2"}),
            ("not requestPolicy.validRange.min plus a multiple of step"),
        ),
        (
            ports(default="1", validRange={"min": "1", "max": "4", "step": "2"}),
            ("max must be min plus a multiple of step"),
        ),
        ({"capacity": {"a-b": PORTS}}, '"a-b" must have at most 32 letters'),
        ({"capacity": {"A_/b": PORTS}}, '"A_" is not a domain'),
        ({"capacity": {"ports": PORTS, "dra.networking/ports": PORTS}}, "set twice"),
        ({"additionalAttributes": {"a": "1", "dra.networking/a": "2"}}, "set twice"),
        ({"additionalAttributes": {"a" * 33: "x"}}, "must have at most 32 letters"),
        ({"additionalAttributes": {"rack": "x" * 65}}, "is longer than 64 bytes"),
        ({"additionalAttributes": {"rack": "é" * 33}}, "is longer than 64 bytes"),
        ({"additionalAttributes": {"racks": ["r1", "x" * 65]}}, "is longer than 64 bytes"),
        ({"additionalAttributes": {"racks": []}}, "a list must have 1 to 16 entries"),
        ({"additionalAttributes": {"racks": ["a,b"]}}, "must not be empty or contain a comma"),
        ({"additionalAttributes": {"n": 2**63}}, "is not a 64-bit integer"),
        ({"additionalAttributes": {"ifName": "x"}}, "is the name of a fact that netdra determines"),
        ({"additionalAttributes": {"alias": "x"}}, "is the name of a fact that netdra determines"),
        (
            {"additionalAttributes": {"dra.networking/supportedCNIs": "x"}},
            "is the name of a fact that netdra determines",
        ),
        ({"additionalAttributes": {"resource.kubernetes.io/pcieRoot": "0000:00"}}, '"0000:00" is not a PCIe root'),
        ({"additionalAttributes": {"device.k8s.io/pcieRoot": 7}}, "7 is not a PCIe root, such as pci0000:00"),
        (
            {"additionalAttributes": {root: f"pci0000:0{at}" for at, root in enumerate(PCIE_ROOTS)}},
            "are two names of one attribute, but their values differ",
        ),
        (
            {"capacity": {"bandwidth": {"value": "9000", "requestPolicy": {"default": "3000"}}}},
            "the default must be 9000, because a claim gets the whole bandwidth of an exclusive device, not 3000",
        ),
        (
            {"additionalAttributes": {f"a{i}": 1 for i in range(4)}},
            "4 capacities and additional attributes beside bandwidth; a device supports 3",
        ),
        (
            SHARED | {"additionalAttributes": {f"a{i}": 1 for i in range(3)}},
            "4 capacities and additional attributes beside bandwidth; a device supports 3",
        ),
    ],
)
def test_invalid_exposures_are_rejected_with_the_field_and_the_reason(exposure: dict[str, Any], message: str) -> None:
    errors = check(policy("p", "true", **exposure))
    assert any(message in error.text_at_path for error in errors), errors
    assert all(error.path[:2] == ("spec", "exposure") for error in errors)


@pytest.mark.parametrize(
    ("cel", "spec", "message"),
    [
        ("true &&", {}, "CEL expression does not compile at line 1, column 8"),
        ("1", {}, "must be a bool"),
        ("true", {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}, "In requires values"),
        (
            "true",
            {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}},
            "Exists must not have values",
        ),
        (
            "true",
            {"nodeSelector": {"matchLabels": {"a b": "x"}}},
            '"a b" is not a valid label key; it must have at most 63 letters',
        ),
        (
            "true",
            {"nodeSelector": {"matchLabels": {"a": "x y"}}},
            '"x y" of "a" is not a valid label value; it must have at most 63 letters',
        ),
        ("true", {"nodeSelector": {"matchLabels": {"Not-A-Domain/a": "x"}}}, '"Not-A-Domain/a" is not a valid label'),
        ("true", {"nodeSelector": {"matchLabels": {"a.b/c/d": "x"}}}, '"a.b/c/d" is not a valid label'),
        ("true", {"nodeSelector": {"matchLabels": {"": "x"}}}, '"" is not a valid label'),
        ("true", {"nodeSelector": {"matchLabels": {"a": "-x"}}}, '"-x" of "a" is not a valid label'),
        ("true", {"nodeSelector": {"matchLabels": {"a": "x" * 64}}}, 'of "a" is not a valid label'),
        (
            "true",
            {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["y", "x y"]}]}},
            '"x y" of "a" is not a valid label',
        ),
    ],
)
def test_targets_are_checked_on_both_kinds(cel: str, spec: dict[str, Any], message: str) -> None:
    for found in (policy("p", cel, spec=spec), exclude("x", cel, **spec)):
        (error,) = check(found)
        assert message in error.text
        assert error.path[:2] in {("spec", "selector"), ("spec", "nodeSelector")}


def test_labels_that_nodes_can_have_are_asked_for() -> None:
    labels = {"a": "", "kubernetes.io/hostname": "n1.example", "A_b.C-9": "A_b.C-9", "x" * 63: "y" * 63}
    assert check(policy("p", "true", spec={"nodeSelector": {"matchLabels": labels}})) == ()


def test_an_exposure_of_an_exclude_policy_is_reported_as_not_supported() -> None:
    (error,) = check(policy("x", "true", spec={"action": "exclude"}, deviceNameSuffix="-a"))
    assert error.text_at_path == "exposure is not supported with action: exclude [spec.exposure] (ND1430)"
