"""`netdra preset` prints policies that can be used as they are."""

from __future__ import annotations

import msgspec
import pytest
from click.testing import CliRunner

from netdra.cli.preset import command
from netdra.exposure import expose
from netdra.exposure.check import check
from netdra.exposure.unwise import warnings
from netdra.model.policy import DeviceExposurePolicy
from testbed import yaml
from tests.builders import inventory, sriov


def preset(*arguments: str) -> DeviceExposurePolicy:
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0, done.output
    return msgspec.convert(yaml.safe_load(done.stdout), DeviceExposurePolicy)


def test_pooled_vfs_have_bandwidth_in_steps_and_an_eighth_by_default() -> None:
    policy = preset("pooled-vfs")
    assert (check(policy), list(warnings(policy))) == ((), [])
    assert policy.spec.exposure is not None
    rule = policy.spec.exposure.capacity["bandwidth"].request_policy
    assert rule is not None
    assert rule.valid_range is not None
    assert (rule.default, rule.valid_range.min, rule.valid_range.max) == ("12500", "100", "100000")
    assert rule.valid_range.step == "100"


@pytest.mark.parametrize("lanes", ["1", "2", "8", "64"])
@pytest.mark.parametrize("bandwidth", ["10000", "25000", "100000"])
def test_pooled_vfs_of_a_preset_are_offered_with_any_lanes(lanes: str, bandwidth: str) -> None:
    policy = preset("pooled-vfs", "--lanes", lanes, "--bandwidth", bandwidth)
    assert check(policy) == ()
    result = expose(inventory(*sriov("eth0", 64)), [policy])
    assert (len(result.devices), result.problems) == (int(lanes), ())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["shared", "--plugin", "sriov"], "the preset shared supports macvlan, ipvlan"),
        (["pooled-vfs", "--type", "nic"], "the preset pooled-vfs does not support --type"),
        (["shared", "--lanes", "2"], "the preset shared does not support --lanes"),
    ],
)
def test_a_preset_rejects_options_that_it_does_not_support(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 2
    assert said in done.output
