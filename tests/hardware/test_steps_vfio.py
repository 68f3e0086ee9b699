"""The vfio-pci step: a VF as a device file, IOMMU groups whole or not at all, and the VF's own driver afterwards."""

from __future__ import annotations

import mmap
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netdra.chain.check import check
from netdra.chain.report import AttachError
from netdra.chain.site import ChainSettings
from testbed.waiting import until
from tests.hardware.node import PATIENCE, PCI, PF, VF, Function, bind, ip, links, run
from tests.hardware.pods import Pod, allocated, assert_as_before, node_state, of_pf
from tests.plans import plan, step

# The chipset's LPC bridge, SATA and SMBus controllers are functions of one device without isolation from each other.
SATA, SMBUS = Function("0000:00:1f.2"), Function("0000:00:1f.3")


@pytest.fixture
def shared_group() -> Iterator[tuple[Function, Function]]:
    """Two devices of one IOMMU group: the first has its driver, the second none."""
    run("modprobe", "ahci")
    assert (SATA.driver, SMBUS.driver, SATA.iommu_group) == ("ahci", "", SMBUS.iommu_group)
    yield SATA, SMBUS
    assert SATA.driver == "ahci"


@pytest.fixture
def vf(pfs: tuple[PF, ...]) -> Iterator[VF]:
    """A VF with a name, a MAC and an MTU of its own, up."""
    vf = pfs[1].vf(3)
    was, mac = vf.name, links()[vf.name]["address"]
    ip("link", "set", was, "name", "fast3")
    # A VF whose PF was reset since takes no MAC before it is reset itself.
    ip("link", "set", "fast3", "up")
    ip("link", "set", "fast3", "down")
    ip("link", "set", "fast3", "address", "02:00:00:00:44:01")
    ip("link", "set", "fast3", "mtu", "3000", "up")
    yield vf
    ip("link", "set", "fast3", "down")
    ip("link", "set", "fast3", "mtu", "1500")
    ip("link", "set", "fast3", "address", mac)
    ip("link", "set", "fast3", "name", was)


def test_a_vf_becomes_a_device_file_and_then_the_netdev_that_it_was(vf: VF, pod: Pod) -> None:
    before = node_state()
    report = pod.attach(plan(step("vf", "vfio-pci", "net1", device=allocated(vf))))

    assert (vf.driver, vf.name) == ("vfio-pci", "")
    node = Path(f"/dev/vfio/{vf.iommu_group}")
    assert stat.S_ISCHR(node.stat().st_mode)
    (device,) = report.steps[0].result.devices
    assert (device.pci_address, device.iommu_group) == (vf.pci, vf.iommu_group)
    assert device.device_nodes == (str(node), "/dev/vfio/vfio")
    assert report.steps[0].result.interfaces == ()
    with node.open("r+b", buffering=0):
        pass  # the group can be had
    assert check(pod.netns, pod.settings).is_clean

    assert pod.detach().is_clean
    assert not node.exists()
    assert_as_before(before, pod.settings)
    assert (links()["fast3"]["address"], of_pf(vf)["address"]) == ("02:00:00:00:44:01",) * 2


def test_a_pod_that_dies_gives_the_device_back_to_its_driver(pfs: tuple[PF, ...], pod: Pod) -> None:
    vf = pfs[0].vf(3)
    before = node_state()
    pod.attach(plan(step("vf", "vfio-pci", "net1", device=allocated(vf))))
    ip("netns", "delete", pod.netns)
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


def test_a_device_that_was_vfios_before_stays_so(
    pfs: tuple[PF, ...], rebind: Callable[[Function, str], None], new_pod: Callable[[], Pod]
) -> None:
    vf = pfs[0].vf(3)
    rebind(vf, "vfio-pci")
    # With each reset its PF forgets the MAC that its former driver had set (drivers/net/ethernet/intel/igb).
    (vf.folder / "reset").write_text("1")
    until(lambda: of_pf(vf)["address"] == "00:00:00:00:00:00", "the PF to forget the MAC", seconds=PATIENCE)
    pod = new_pod()
    pod.attach(plan(step("vf", "vfio-pci", "net1", device=allocated(vf))))
    assert pod.detach().is_clean
    assert vf.driver == "vfio-pci"


_RXDCTL, _QUEUE_ENABLE = 0x2828, 1 << 25
"""Of the 82576's VF: its first receive queue, which writes to memory while it is enabled."""


def receive_queue(vf: VF, *, enable: bool = False) -> bool:
    """Whether the hardware's first receive queue is enabled, after enabling it if that is wanted."""
    with (
        (vf.folder / "resource0").open("r+b", buffering=0) as bar,
        mmap.mmap(bar.fileno(), 0x4000) as registers,
    ):
        if enable:
            registers[_RXDCTL : _RXDCTL + 4] = _QUEUE_ENABLE.to_bytes(4, "little")
        return bool(int.from_bytes(registers[_RXDCTL : _RXDCTL + 4], "little") & _QUEUE_ENABLE)


@pytest.mark.parametrize(("policy", "left"), [("IfChanged", False), ("Never", True)])
@pytest.mark.parametrize("kind", ["vfio-pci", "sriov"])
def test_interrupts_and_dma_that_a_program_enabled_are_off_for_the_next_pod(
    pfs: tuple[PF, ...],
    rebind: Callable[[Function, str], None],
    new_netns: Callable[[], str],
    settings: ChainSettings,
    kind: str,
    policy: str,
    left: bool,
) -> None:
    vf = pfs[0].vf(3)
    rebind(vf, "vfio-pci")
    pod = Pod(netns=new_netns(), settings=settings)
    pod.attach(plan(step("vf", kind, "net1", device=allocated(vf, reset=policy))))
    assert receive_queue(vf, enable=True)
    report = pod.detach()
    assert report.is_clean, str(report)
    assert (receive_queue(vf), vf.driver) == (left, "vfio-pci")


def test_a_vf_is_set_up_through_its_pf_after_it_became_a_device_file(pfs: tuple[PF, ...], pod: Pod) -> None:
    vf = pfs[1].vf(4)
    before = node_state()
    pod.attach(
        plan(
            step("dpdk", "vfio-pci", "net1", device=allocated(vf)),
            step("vf", "sriov", "net1", {"vlan": 9, "pciBusID": "{{ dpdk.pciAddress }}"}, after=["dpdk"]),
        )
    )
    assert (vf.driver, of_pf(vf)["vlan_list"]) == ("vfio-pci", [{"vlan": 9}])
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


def test_a_device_whose_group_the_host_uses_is_refused(shared_group: tuple[Function, Function], pod: Pod) -> None:
    user, wanted = shared_group
    with pytest.raises(AttachError, match=f"group {wanted.iommu_group} .* also has {user.pci} .driver ahci."):
        pod.attach(plan(step("dev", "vfio-pci", "net1", device=allocated(wanted))))
    assert (user.driver, wanted.driver) == ("ahci", "")


def test_a_device_is_attached_if_no_other_function_of_its_iommu_group_is_in_use(
    shared_group: tuple[Function, Function], pod: Pod
) -> None:
    user, wanted = shared_group
    (PCI / user.pci / "driver" / "unbind").write_text(user.pci)
    try:
        pod.attach(plan(step("dev", "vfio-pci", "net1", device=allocated(wanted))))
        assert wanted.driver == "vfio-pci"
        Path(f"/dev/vfio/{wanted.iommu_group}").open("r+b", buffering=0).close()
        assert pod.detach().is_clean
        assert wanted.driver == ""
    finally:
        bind(user, "")


def test_a_vf_that_the_host_uses_is_refused(pfs: tuple[PF, ...], pod: Pod) -> None:
    vf = pfs[0].vf(5)
    ip("address", "add", "10.8.0.1/24", "dev", vf.name)
    try:
        with pytest.raises(AttachError, match=f'the host uses device "{vf.name}": address'):
            pod.attach(plan(step("vf", "vfio-pci", "net1", device=allocated(vf))))
        assert vf.driver == "igbvf"
    finally:
        ip("address", "delete", "10.8.0.1/24", "dev", vf.name)
