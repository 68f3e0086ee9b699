"""A virtio NIC, as virtual machines have them: netlink calls its parent "virtio2", a claim has its PCI address.

Discovered, given to a pod by the built-in step and by programs, restored, and unplugged inside a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netdra.chain.report import AttachError
from netdra.discovery.scan import scan
from netdra.model.inventory import Interface
from netdra.model.plan import PlannedDevice
from netdra.model.resource import Device
from netdra.node.publishing.facts import DeviceFacts, planned
from testbed.vm.hardware import VIRTIO_MAC
from testbed.waiting import until
from tests.hardware.node import PATIENCE, PCI, Function, ip, links, run
from tests.hardware.pods import Pod, assert_as_before, node_state
from tests.plans import plan, step

VNIC = "vnic"


def pci_address() -> str:
    """The PCI function of the NIC, read from sysfs by hand."""
    return Path(f"/sys/class/net/{VNIC}/device").resolve().parent.name


def discovered() -> Interface:
    (found,) = [each for each in scan().interfaces if each.pci_address == pci_address()]
    return found


def device() -> PlannedDevice:
    """The NIC as it is published and allocated."""
    return planned("p", Device(name=VNIC), DeviceFacts(discovered()))


@pytest.fixture
def vnic() -> Iterator[Function]:
    """The NIC, with an MTU of its own."""
    function = Function(pci_address())
    ip("link", "set", VNIC, "mtu", "1400")
    before = links()[VNIC]
    yield function
    assert links()[VNIC]["address"] == before["address"]
    ip("link", "set", VNIC, "mtu", "1500", "down")


@contextmanager
def unplugged(function: Function) -> Iterator[None]:
    """Without the NIC, which is plugged in again in the end."""
    (function.folder / "remove").write_text("1")
    until(lambda: not function.folder.exists(), "the NIC to go", seconds=PATIENCE)
    yield
    Path("/sys/bus/pci/rescan").write_text("1")
    until(lambda: VIRTIO_MAC in {each["address"] for each in links().values()}, "the NIC", seconds=PATIENCE)
    (name,) = [name for name, each in links().items() if each["address"] == VIRTIO_MAC]
    ip("link", "set", name, "down")
    ip("link", "set", name, "name", VNIC, "mtu", "1400")


def test_netlink_has_another_parent_than_the_claim_and_both_are_one_device(vnic: Function) -> None:
    assert links()[VNIC]["parentdev"].startswith("virtio")
    found = discovered()
    assert (found.pci_address, found.driver, found.identity) == (vnic.pci, "virtio_net", vnic.pci)


@pytest.mark.parametrize(
    ("config", "binary", "by_claim"),
    [({}, False, True), ({}, True, True), ({"deviceID": "at"}, False, False), ({"pciBusID": "at"}, False, False),
     ({"deviceID": "at"}, True, False)],
    ids=["built in, allocated", "program, allocated", "built in, deviceID", "built in, pciBusID", "program, deviceID"],
)  # fmt: skip
def test_a_pod_gets_the_nic_and_the_host_has_it_back_as_it_was(
    vnic: Function, pod: Pod, config: dict[str, str], binary: bool, by_claim: bool
) -> None:
    before = node_state()
    named = dict.fromkeys(config, vnic.pci)
    pod.attach(plan(step("nic", "host-device", "net1", named, device=device() if by_claim else None, binary=binary)))
    assert VNIC not in links()
    assert pod.link("net1")["permaddr" if "permaddr" in pod.link("net1") else "address"] == VIRTIO_MAC
    if by_claim or not binary:
        assert [path.name for path in (pod.settings.state / "devices").iterdir()] == [vnic.pci]
    if by_claim or not binary:  # of a device that a program alone knows, nothing is recorded
        ip("link", "set", "net1", "mtu", "1280", netns=pod.netns)
        ip("link", "set", "net1", "address", "02:00:00:00:00:77", netns=pod.netns)
    report = pod.detach()
    assert report.is_clean, str(report)
    assert_as_before(before, pod.settings)


def test_another_pod_is_refused_while_one_has_the_nic(vnic: Function, new_pod: Callable[[], Pod]) -> None:
    first, second = new_pod(), new_pod()
    allocated = device()
    first.attach(plan(step("nic", "host-device", "net1", device=allocated)))
    with pytest.raises(AttachError, match=f"device {vnic.pci} is not on the host; sandbox {first.netns} has it"):
        second.attach(plan(step("nic", "host-device", "net1", device=allocated)))
    assert first.link("net1")["operstate"]
    assert first.detach().is_clean


@pytest.mark.parametrize("binary", [False, True], ids=["built in", "program"])
def test_unplugged_inside_a_pod_it_is_released_and_reported(vnic: Function, pod: Pod, binary: bool) -> None:
    pod.attach(plan(step("nic", "host-device", "net1", device=device(), binary=binary)))
    with unplugged(vnic):
        report = pod.detach()
    notes = [note for each in report.undone for note in each.notes]
    assert any(f"({vnic.pci}) is gone from the machine" in note for note in notes), str(report)
    assert report.is_undone, str(report)
    assert not list((pod.settings.state / "devices").glob("*"))


def test_tuned_in_a_pod_whose_namespace_is_gone_the_nic_is_as_it_was(vnic: Function, pod: Pod) -> None:
    before = node_state()
    pod.attach(
        plan(
            step("nic", "host-device", "net1", device=device()),
            step("tune", "tuning", "net1", {"mtu": 1300, "mac": "02:00:00:00:00:78"}, after=["nic"]),
        )
    )
    assert pod.link("net1")["mtu"] == 1300
    run("ip", "netns", "delete", pod.netns)
    assert pod.detach().is_undone
    assert_as_before(before, pod.settings)


def test_bound_to_vfio_and_back_the_nic_is_as_it_was(vnic: Function, pod: Pod) -> None:
    before = node_state()
    driver = vnic.driver
    run("modprobe", "vfio-pci")
    pod.attach(plan(step("nic", "vfio-pci", "net1", device=device())))
    assert (PCI / vnic.pci / "driver").resolve().name == "vfio-pci"
    assert pod.detach().is_clean
    assert (PCI / vnic.pci / "driver").resolve().name == driver == "virtio-pci"
    assert_as_before(before, pod.settings)
