"""VFs that claims were allocated bandwidth for: their PF limits them, with any step, and forgets it after.

The emulated 82576 (igb) limits a VF to a rate of at most its link's speed, and guarantees none.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from netdra.chain.check import check
from netdra.chain.report import AttachError
from netdra.model.plan import PlannedDevice
from tests.hardware import killed
from tests.hardware.node import PF, VF, ip, up
from tests.hardware.pods import Pod, allocated, assert_as_before, node_state, of_pf
from tests.plans import plan, step


def with_bandwidth(vf: VF, bandwidth: int) -> PlannedDevice:
    """A VF as a node chooses it for a claim that asks for bandwidth."""
    consumed = {"dra.networking/vfs": "1", "dra.networking/bandwidth": str(bandwidth)}
    return allocated(vf, type="vf", vf_index=vf.index, pooled=True, share_id="s", consumed_capacity=consumed)


def rates(vf: VF) -> tuple[int, int]:
    """The guaranteed rate and the limit of a VF, as its PF has them."""
    rate = of_pf(vf)["rate"]
    return rate["min_tx"], rate["max_tx"]


@pytest.mark.parametrize(
    ("kind", "binary", "config"),
    [
        ("sriov", False, {"vlan": 100}),
        ("sriov", True, {"vlan": 100}),
        ("host-device", False, {}),
        ("host-device", True, {}),
        ("vfio-pci", False, {}),
        ("macvlan", True, {"ipam": {"type": "static", "addresses": [{"address": "10.5.0.5/24"}]}}),
    ],
)
def test_a_vf_is_limited_to_its_bandwidth_by_every_step_that_takes_it(
    pfs: tuple[PF, ...], pod: Pod, kind: str, binary: bool, config: Mapping[str, Any]
) -> None:
    vf = pfs[0].vf(2)
    ip("link", "set", vf.name, "up")
    before = node_state()
    on = {"master": vf.name} if kind == "macvlan" else {}
    one = step("vf", kind, "net1", {**config, **on}, device=with_bandwidth(vf, 300), binary=binary)
    report = pod.attach(plan(one))

    assert rates(vf) == (0, 300)
    (note,) = report.steps[0].notes
    assert note.startswith(f"VF {vf.pci}: min rate stays 0, not 300: cannot set the rates of VF 2")
    assert check(pod.netns, pod.settings).is_clean
    ip("link", "set", pfs[0].name, "vf", "2", "max_tx_rate", "400")
    (checked,) = check(pod.netns, pod.settings).steps
    assert checked.drift == (f"VF {vf.pci}: max rate is 400, not 300",)

    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)
    ip("link", "set", vf.name, "down")


@pytest.mark.parametrize("binary", [False, True])
def test_a_pod_ends_while_the_pf_has_no_link_and_the_next_one_without_bandwidth_has_no_limit(
    pfs: tuple[PF, ...], new_pod: Callable[[], Pod], binary: bool
) -> None:
    """Without a link no rate is below its speed, by the driver; the emulated NIC accepts none at all."""
    vf = pfs[0].vf(2)
    first, second = new_pod(), new_pod()
    ip("link", "set", pfs[0].name, "vf", "2", "max_tx_rate", "250")
    first.attach(plan(step("vf", "host-device", "net1", device=with_bandwidth(vf, 300), binary=binary)))
    ip("link", "set", pfs[0].name, "down")
    report = first.detach()
    left = rates(vf)
    up(pfs[0].name)
    assert report.is_clean, str(report)
    assert left == (0, 300)
    (note,) = report.notes
    assert f'VF {vf.pci} keeps its rates, because PF "{pfs[0].name}" has no link' in note

    second.attach(plan(step("vf", "host-device", "net1", device=with_bandwidth(vf, 0), binary=binary)))
    assert rates(vf) == (0, 0)
    assert second.detach().is_clean
    ip("link", "set", pfs[0].name, "vf", "2", "max_tx_rate", "0")


def test_a_smaller_rate_of_the_step_applies_and_the_previous_rate_is_restored(pfs: tuple[PF, ...], pod: Pod) -> None:
    vf = pfs[0].vf(2)
    ip("link", "set", pfs[0].name, "vf", "2", "max_tx_rate", "250")
    before = node_state()
    pod.attach(plan(step("vf", "sriov", "net1", {"maxTxRate": 100, "minTxRate": 0}, device=with_bandwidth(vf, 300))))
    assert rates(vf) == (0, 100)
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)
    ip("link", "set", pfs[0].name, "vf", "2", "max_tx_rate", "0")


@pytest.mark.parametrize(
    ("kind", "config", "bandwidth", "why"),
    [
        ("sriov", {}, 5000, "cannot be limited to 5000 Mbit/s"),
        ("host-device", {}, 5000, "cannot be limited to 5000 Mbit/s"),
        ("sriov", {"minTxRate": 50}, 300, "cannot be guaranteed 50 and limited to 300 Mbit/s"),
    ],
)
def test_a_nic_that_cannot_limit_a_vf_fails_the_pod_and_nothing_is_left(
    pfs: tuple[PF, ...], pod: Pod, kind: str, config: dict[str, Any], bandwidth: int, why: str
) -> None:
    vf = pfs[0].vf(2)
    before = node_state()
    with pytest.raises(AttachError, match=why) as caught:
        pod.attach(plan(step("vf", kind, "net1", config, device=with_bandwidth(vf, bandwidth))))
    assert f"ip link show {pfs[0].name}" in str(caught.value)
    assert_as_before(before, pod.settings)


def test_a_vf_whose_pod_dies_while_it_is_limited_is_unlimited_again(pfs: tuple[PF, ...], pod: Pod) -> None:
    """The process dies when it has moved the VF and set its rate, and has not written down that it did."""
    vf = pfs[0].vf(2)
    before = node_state()
    limited = plan(step("vf", "host-device", "net1", device=with_bandwidth(vf, 300)))
    assert killed.exit_code(killed.Job(limited, pod.netns, pod.settings, "vf")) == -signal.SIGKILL
    assert rates(vf) == (0, 300)
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


def test_pods_that_share_a_claim_leave_its_vf_limited_until_the_last_has_ended(
    pfs: tuple[PF, ...], new_pod: Callable[[], Pod]
) -> None:
    vf = pfs[1].vf(2)
    first, second = new_pod(), new_pod()
    ip("link", "set", vf.name, "up")
    before = node_state()
    for number, each in enumerate((first, second)):
        ipam = {"type": "static", "addresses": [{"address": f"10.5.0.{number + 5}/24"}]}
        config = {"master": vf.name, "mode": "bridge", "ipam": ipam}
        each.attach(plan(step("top", "macvlan", "net1", config, device=with_bandwidth(vf, 300), binary=True)))
    assert rates(vf) == (0, 300)
    assert first.detach().is_undone
    assert rates(vf) == (0, 300)
    assert second.detach().is_undone
    assert_as_before(before, second.settings)
    ip("link", "set", vf.name, "down")
