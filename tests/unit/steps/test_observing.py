"""The refusals of steps when they inspect the hardware, on sysfs trees made for it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from netdra.kernel.sysfs import Sysfs
from netdra.kernel.vf import VF
from netdra.model.errors import PermanentError
from netdra.model.plan import PlannedDevice
from netdra.steps import devices, functions, rdma_device, sriov, vfio_pci
from netdra.steps.contract import Order
from netdra.steps.sriov import SriovParams

ORDER = Order(topology="t", step="s", type="vfio-pci", if_name="net1", network="t-s", config={})
OWN = "0000:03:00.2"


def device(root: Path, address: str, *, group: str = "", driver: str = "", kind: str = "0x020000") -> None:
    folder = root / "bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "class").write_text(kind)
    if driver:
        (root / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(f"../../drivers/{driver}")
    if group:
        (root / "kernel/iommu_groups" / group / "devices" / address).mkdir(parents=True)
        (folder / "iommu_group").symlink_to(f"../../../../kernel/iommu_groups/{group}")


def test_a_device_alone_in_its_group_can_be_given_away(tmp_path: Path) -> None:
    device(tmp_path, OWN, group="42", driver="igbvf")
    vfio_pci._check_group(ORDER, OWN, "42", Sysfs(str(tmp_path)))


@pytest.mark.parametrize(
    ("driver", "kind"), [("pcieport", "0x060400"), ("", "0x020000"), ("pci-stub", "0x020000"), ("vfio-pci", "0x020000")]
)
def test_bridges_and_devices_that_no_one_uses_do_not_count(tmp_path: Path, driver: str, kind: str) -> None:
    device(tmp_path, OWN, group="42", driver="igbvf")
    device(tmp_path, "0000:03:00.0", group="42", driver=driver, kind=kind)
    vfio_pci._check_group(ORDER, OWN, "42", Sysfs(str(tmp_path)))


def test_a_group_with_a_device_that_the_host_uses_is_kept_whole(tmp_path: Path) -> None:
    device(tmp_path, OWN, group="42", driver="igbvf")
    device(tmp_path, "0000:03:00.4", group="42", driver="nvme")
    with pytest.raises(
        PermanentError, match=r"IOMMU group 42 of device 0000:03:00.2 also has 0000:03:00.4 \(driver nvme\)"
    ):
        vfio_pci._check_group(ORDER, OWN, "42", Sysfs(str(tmp_path)))


@pytest.mark.parametrize("group", ["", "7"], ids=["no group", "a group of vfio's own"])
def test_without_an_iommu_a_device_is_not_given_away_and_the_error_names_the_choices(
    tmp_path: Path, group: str
) -> None:
    device(tmp_path, OWN, group=group, driver="vfio-pci")
    if group:
        (tmp_path / f"kernel/iommu_groups/{group}/name").write_text("vfio-noiommu\n")
    with pytest.raises(PermanentError, match="in no IOMMU group, and vfio without an IOMMU") as caught:
        vfio_pci._check_group(ORDER, OWN, group, Sysfs(str(tmp_path)))
    assert "intel_iommu=on" in caught.value.hint
    assert "driver: uio_pci_generic" in caught.value.hint


def test_the_files_of_a_device_are_those_of_its_driver(tmp_path: Path) -> None:
    device(tmp_path, OWN, group="42", driver="vfio-pci")
    device(tmp_path, "0000:03:00.3", driver="igb_uio")
    (tmp_path / "bus/pci/devices/0000:03:00.3/uio/uio3").mkdir(parents=True)
    device(tmp_path, "0000:03:00.4", group="43", driver="igbvf")
    sysfs = Sysfs(str(tmp_path))
    assert devices.device_nodes(OWN, sysfs) == ("/dev/vfio/42", "/dev/vfio/vfio")
    assert devices.device_nodes("0000:03:00.3", sysfs) == ("/dev/uio3",)
    assert devices.device_nodes("0000:03:00.4", sysfs) == ()
    assert devices.iommu_group("0000:03:00.3", sysfs) == ""


def test_the_files_of_an_rdma_device_are_its_own_and_the_shared_one(tmp_path: Path) -> None:
    for path, owner in (
        ("infiniband_verbs/uverbs0", "mlx5_0"),
        ("infiniband_verbs/uverbs1", "mlx5_1"),
        ("infiniband_mad/umad1", "mlx5_1"),
        ("infiniband_mad/issm1", "mlx5_1"),
    ):
        (tmp_path / "class" / path).mkdir(parents=True)
        (tmp_path / "class" / path / "ibdev").write_text(f"{owner}\n")
    (tmp_path / "class/misc/rdma_cm").mkdir(parents=True)
    assert rdma_device.character_devices("mlx5_1", Sysfs(str(tmp_path))) == (
        "/dev/infiniband/uverbs1",
        "/dev/infiniband/issm1",
        "/dev/infiniband/umad1",
        "/dev/infiniband/rdma_cm",
    )


NOW = VF(index=3, mac="02:00:00:00:00:03", vlan=5, qos=1, spoof_check=True, trust=False, min_rate=10, max_rate=100)


def test_only_requested_vf_settings_are_set_and_a_max_rate_keeps_the_min_rate(tmp_path: Path) -> None:
    assert sriov._wanted(3, NOW, SriovParams(trust="on", max_tx_rate=200)) == VF(
        index=3, trust=True, min_rate=10, max_rate=200
    )
    assert sriov._wanted(3, NOW, SriovParams()) == VF(index=3)


def test_all_vf_settings_are_recorded_and_those_that_the_step_changes_are_named() -> None:
    wanted = sriov._wanted(3, NOW, SriovParams(vlan=0, spoofchk=False))
    assert sriov._names(wanted) == ("vlan", "spoof_check", "qos", "protocol")
    assert functions.without_rates(NOW, None) == NOW
    pooled = PlannedDevice(request="r", pool="p", device="d", pooled=True)
    assert functions.without_rates(NOW, pooled) == msgspec.structs.replace(NOW, min_rate=None, max_rate=None)


def test_only_vf_settings_that_differ_are_restored() -> None:
    before = VF(index=3, vlan=5, qos=1, spoof_check=True)
    assert functions.differing(before, NOW) == VF(index=3, qos=1)
    changed = VF(index=3, vlan=0, qos=0, spoof_check=False, trust=True)
    assert functions.differing(before, changed) == VF(index=3, vlan=5, qos=1, spoof_check=True)
