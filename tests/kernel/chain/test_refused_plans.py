"""Plans that the kernel would refuse are rejected before the first step: nothing is touched, without a checkpoint."""

from __future__ import annotations

import pytest

from netdra.chain.report import AttachError
from netdra.model.errors import InvalidInputError, NetdraError
from netdra.model.plan import PlannedStep
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.plans import attach, plan, step

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


def test_a_rejected_mtu_is_reported_with_the_interface_that_limits_it(bed: Bed) -> None:
    bed.veth("eth7", "peer7", up=True)
    before = bed.state()
    steps = (
        step("dev", "host-device", "net1", device=device("eth7")),
        step("sub", "macvlan", "net2", {"master": "net1", "linkInContainer": True, "mtu": 1500}, after=["dev"]),
        step("tune", "tuning", "net2", {"mtu": 9000}, after=["sub"]),
    )
    with pytest.raises(AttachError) as caught:
        attach([plan(*steps)], bed.container, bed.pod.path, bed.settings)
    assert (
        'NetworkTopology "t", step "tune" (tuning): cannot set mtu 9000 of net2: net1, which it stands on, has 1500'
        in str(caught.value)
    )
    assert differences(before, bed.state()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        step("x", "tuning", "net1", {"ethtool": {"rings": {"rx": "many"}}}, after=["dev"]),
        step("x", "no-such-plugin", "net9", {}, after=["dev"]),
        step("x", "tuning", "net1", {"ipam": {"type": "no-such-ipam"}}, after=["dev"]),
        step("x", "bond", "bond0", {"mode": "nonsense", "links": [{"name": "net1"}, {"name": "net2"}]}, after=["dev"]),
        step("x", "tuning", "net1", {"mac": "{{ nobody.mac }}"}, after=["dev"]),
    ],
)
def test_a_plan_rejected_before_it_runs_names_its_topology_and_step(bed: Bed, wrong: PlannedStep) -> None:
    bed.veth("eth7", "peer7", up=True)
    before = bed.state()
    with pytest.raises(NetdraError) as caught:
        attach(
            [plan(step("dev", "host-device", "net1", device=device("eth7")), wrong)],
            bed.container,
            bed.pod.path,
            bed.settings,
        )
    assert 'NetworkTopology "t", step "x"' in str(caught.value)
    assert differences(before, bed.state()) == []
