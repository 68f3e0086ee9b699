"""Errors of a DeviceClass are found when it is written, in the words in which Prepare would refuse it."""

from __future__ import annotations

from typing import Any

import pytest

from netdra.model import documents, names
from netdra.model.claim import DeviceClass, ResourceClaim
from netdra.model.errors import InvalidInputError
from netdra.model.plan import PlannedDevice
from netdra.rules.classes import check_class
from netdra.topology.bind import bind

STEP = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "DeviceParameters", "step": {"type": "macvlan"}}
REFERENCE = {"networkTopologyRef": {"name": "net"}, "step": "vf"}
FIRST, SECOND = (("config", at, "opaque", "parameters") for at in (0, 1))


def step(**changes: Any) -> dict[str, Any]:
    return {**STEP, "step": {**STEP["step"], **changes}}  # type: ignore[dict-item]


def config(*said: Any) -> list[dict[str, Any]]:
    return [{"opaque": {"driver": names.DRIVER, "parameters": each}} for each in said]


def device_class(*configs: dict[str, Any]) -> DeviceClass:
    value = {"metadata": {"name": "nics"}, "spec": {"config": list(configs)}}
    return documents.convert(value, DeviceClass, "test")


def prepare(*said: Any) -> None:
    """Prepare a claim whose class has this configuration."""
    result = {"request": "net", "driver": names.DRIVER, "pool": "p", "device": "d"}
    brought = [{"source": "FromClass", "requests": [], **each} for each in config(*said)]
    claim = documents.convert(
        {
            "metadata": {"name": "c", "namespace": "ns", "uid": "u"},
            "spec": {"devices": {"requests": [{"name": "net", "exactly": {"deviceClassName": "nics"}}]}},
            "status": {"allocation": {"devices": {"results": [result], "config": brought}}},
        },
        ResourceClaim,
        "test",
    )
    device = PlannedDevice(
        request="net", pool="p", device="d", if_name="d", type="nic", supported_cnis=("macvlan", "bridge")
    )
    bind([claim], {}, {("p", "d"): device})


@pytest.mark.parametrize(
    ("said", "path"),
    [
        (["text"], FIRST),
        ([{"kind": "Other"}], FIRST),
        ([step(type="../bin/sh")], (*FIRST, "step", "type")),
        ([step(unknown=1)], (*FIRST, "step", "unknown")),
        ([STEP, step(config={"a": "{{ vf.interfaceName }}"})], (*SECOND, "step", "config", "a")),
        ([step(config={"name": "x", "cniVersion": "1.1.0"})], (*FIRST, "step", "config", "cniVersion")),
        ([{"networkTopologyRef": "net"}], (*FIRST, "networkTopologyRef")),
        ([STEP, step(type="bridge")], ("config",)),
        ([REFERENCE, {**REFERENCE, "step": "other"}], ("config",)),
    ],
)
def test_class_errors_are_reported_in_the_same_words_as_at_prepare(said: list[Any], path: tuple[Any, ...]) -> None:
    (finding,) = check_class(device_class(*config(*said)))
    assert finding.path == ("spec", *path)
    mine, text = finding.what.split(": ", 1)
    assert mine == 'DeviceClass "nics"'
    with pytest.raises(InvalidInputError) as refused:
        prepare(*said)
    assert refused.value.what.endswith(f": {text}")
    assert refused.value.hint == finding.hint


@pytest.mark.parametrize("said", [[], [STEP], [STEP, STEP], [step(type="my-plugin", execution="Binary")]])
def test_a_class_that_can_be_prepared_yields_no_findings(said: list[Any]) -> None:
    assert check_class(device_class(*config(*said))) == ()


def test_config_for_other_drivers_in_a_class_is_ignored() -> None:
    other = {"opaque": {"driver": "gpu.example.com", "parameters": {"kind": "Other"}}}
    assert check_class(device_class(other, {}, *config(REFERENCE))) == ()
