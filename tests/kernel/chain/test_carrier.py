"""Interfaces whose lower interface is down: an attach fails with the reason, and check shows a carrier that is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from netdra.chain.check import check
from netdra.chain.report import AttachTemporaryError
from netdra.model.plan import Plan
from testbed.waiting import until
from tests.kernel.chain.conftest import Bed, device, differences
from tests.plans import attach, plan, step


def child() -> Plan:
    config = {
        "mode": "bridge",
        "master": "wire",
        "ipam": {"type": "static", "addresses": [{"address": "10.66.0.5/24"}]},
    }
    return plan(step("lan", "macvlan", "net1", config, device=device("wire")))


def nic() -> Plan:
    return plan(step("nic", "host-device", "net1", device=device("wire")))


def test_an_interface_on_a_device_that_is_down_is_not_attached_and_the_error_names_the_device(bed: Bed) -> None:
    bed.veth("wire", "far")
    bed.run("ip", "link", "set", "wire", "down")
    before = bed.state()

    with pytest.raises(AttachTemporaryError, match='the interface below it, "wire", is down') as caught:
        attach((child(),), bed.container, bed.pod.path, bed.settings)
    assert caught.value.report.is_clean
    assert "ip link set wire up" in str(caught.value)
    assert differences(before, bed.state()) == []

    bed.run("ip", "link", "set", "wire", "up")
    attach((child(),), bed.container, bed.pod.path, bed.settings)
    assert bed.link("net1", inside=True)["ifname"] == "net1"


@pytest.mark.parametrize("made", [nic, child], ids=["a device that moved", "a program's interface"])
def test_check_shows_an_interface_without_a_carrier_which_is_no_drift(bed: Bed, made: Callable[[], Plan]) -> None:
    bed.veth("wire", "far")
    bed.run("ip", "link", "set", "far", "up")
    bed.run("ip", "link", "set", "wire", "up")
    attach((made(),), bed.container, bed.pod.path, bed.settings)
    assert [entry.link for entry in check(bed.container.sandbox, bed.settings).steps] == [""]

    bed.run("ip", "link", "set", "far", "down")
    # The kernel reports a lost carrier to upper links later, from a work queue (net/core/link_watch.c).
    until(lambda: bed.link("net1", inside=True)["operstate"] != "UP", "the interface to lose its carrier")
    report = check(bed.container.sandbox, bed.settings)
    assert report.is_clean
    (entry,) = report.steps
    assert entry.link.startswith('interface "net1" has no carrier (operstate ')
