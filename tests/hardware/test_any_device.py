"""Links of every kind that the machine's kernel makes, from discovery to undo: also deleted inside the pod."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from netdra.discovery.scan import scan
from netdra.model.plan import PlannedDevice
from netdra.model.resource import Device
from netdra.node.publishing.facts import DeviceFacts, planned
from tests.hardware.node import ip
from tests.hardware.pods import Pod, assert_as_before, node_state
from tests.plans import plan, step

LINK = "any0"
KINDS = {
    "veth": ("type", "veth", "peer", "name", "any0-peer"),
    "dummy": ("type", "dummy"),
    "vlan": ("link", "vnic", "type", "vlan", "id", "7"),
    "ipvlan": ("link", "vnic", "type", "ipvlan"),
    "macvlan": ("link", "vnic", "type", "macvlan"),
    "vxlan": ("type", "vxlan", "id", "7", "dstport", "4789"),
}
"""Bonds and bridges do not move into another namespace (NETIF_F_NETNS_LOCAL)."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    """A link of that kind on the host."""
    ip("link", "set", "vnic", "up")
    ip("link", "add", "name", LINK, *KINDS[request.param])
    yield request.param
    ip("link", "delete", LINK)
    ip("link", "set", "vnic", "down")


def device() -> PlannedDevice:
    """The link as it is published and allocated."""
    (found,) = [each for each in scan().interfaces if each.if_name == LINK]
    return planned("p", Device(name=LINK), DeviceFacts(found))


@pytest.mark.parametrize("binary", [False, True], ids=["built in", "program"])
def test_it_is_attached_tuned_and_as_it_was(kind: str, pod: Pod, binary: bool) -> None:
    before = node_state()
    config = {"device": LINK} if binary else {}
    pod.attach(
        plan(
            step("dev", "host-device", "net1", config, device=device(), binary=binary),
            step("tune", "tuning", "net1", {"mtu": 1300}, after=["dev"]),
        )
    )
    assert pod.link("net1")["linkinfo"]["info_kind"] == kind
    report = pod.detach()
    assert report.is_clean, str(report)
    assert_as_before(before, pod.settings)


@pytest.mark.parametrize("binary", [False, True], ids=["built in", "program"])
def test_deleted_in_the_pod_it_is_reported(pod: Pod, binary: bool) -> None:
    ip("link", "add", "name", LINK, "type", "dummy")
    config = {"device": LINK} if binary else {}
    pod.attach(plan(step("dev", "host-device", "net1", config, device=device(), binary=binary)))
    ip("link", "delete", "net1", netns=pod.netns)
    report = pod.detach()
    assert report.is_undone, str(report)
    assert ("is gone" if binary else "is not in the pod any more") in str([each.notes for each in report.undone])
