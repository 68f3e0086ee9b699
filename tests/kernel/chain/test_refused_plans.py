"""What the kernel would refuse is found before the first step: nothing is touched, and there is no checkpoint."""

from __future__ import annotations

import pytest

from netdra.chain.attach import attach
from netdra.model.errors import InvalidInputError
from netdra.model.plan import PlannedStep
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.plans import plan, step

WRONG = {
    "an MTU above the parent's": (
        step("v", "vlan", "data0", {"id": 7, "master": "{{ dev.interfaceName }}", "mtu": 9000}, after=["dev"]),
        "9000",
    ),
    "a bond of one": (
        step("b", "bond", "bond0", {"mode": "active-backup", "links": [{"name": "net1"}]}, after=["dev"]),
        "bond",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_nothing_is_begun(bed: Bed, wrong: str) -> None:
    later, said = WRONG[wrong]
    bed.veth("eth7", "peer7", up=True)
    fake = recorder(bed, "fake")
    steps: tuple[PlannedStep, ...] = (
        step("first", "fake", "net9"),
        step("dev", "host-device", "net1", device=device("eth7", mtu=1500)),
        later,
    )
    before = bed.state()
    with pytest.raises(InvalidInputError, match=said):
        attach([plan(*steps)], bed.container, bed.pod.path, bed.settings)
    assert fake.calls() == []
    assert differences(before, bed.state()) == []
