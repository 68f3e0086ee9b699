"""One device is one device from discovery to undo: ports of one function, and devices on every bus."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from netdra.chain import checkpoint, holders
from netdra.chain.checkpoint import PodIdentity
from netdra.chain.detach import detach
from netdra.chain.report import AttachError
from netdra.kernel import netns
from netdra.kernel.liveness import Liveness
from netdra.kernel.netns import Namespace
from netdra.model.plan import PlannedDevice
from netdra.steps import builtin
from tests.kernel.chain.conftest import Bed, differences
from tests.kernel.chain.posing import Hardware, hardware
from tests.plans import attach, plan, step

__all__ = ["hardware"]

FUNCTION = "0000:41:00.0"
NOT_ON_PCI = {
    "virtio-mmio": ("virtio", "virtio7", ""),
    "usb": ("usb", "2-1:1.0", ""),
    "vmbus": ("vmbus", "0f4e1a52-0000-4d3a-9f6b-0e1f2a3b4c5d", ""),
    "subfunction": ("auxiliary", "mlx5_core.sf.4", ""),
}
PLACES = {"pci": ("pci", FUNCTION, ""), "virtio-pci": ("virtio", "virtio2", "0000:00:03.0"), **NOT_ON_PCI}


@pytest.fixture
def other_pod(bed: Bed) -> Iterator[Bed]:
    """Another pod of the same node."""
    name = f"netdra-test-{uuid.uuid4().hex[:8]}"
    pod = Namespace.create(name)
    yield replace(bed, pod=pod, container=PodIdentity(sandbox=f"sb-{name}", name="q", namespace="default", uid="v"))
    netns.delete(name)
    pod.close()


def two_ports(hardware: Hardware) -> None:
    hardware.plug("p0", "pci", FUNCTION)
    hardware.plug("p1", "pci", FUNCTION, port=1)


def give(
    bed: Bed, kind: str, device: PlannedDevice, config: dict[str, str] | None = None, *, binary: bool = False
) -> None:
    """Attach a pod with one device."""
    only = step("dev", kind, "net1", config, device=device, binary=binary)
    attach((plan(only),), bed.container, bed.pod.path, bed.settings)


def held(bed: Bed) -> list[str]:
    folder = bed.settings.state / "devices"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("place", PLACES)
def test_a_published_device_and_its_link_have_one_identity(bed: Bed, hardware: Hardware, place: str) -> None:
    hardware.plug("nic0", *PLACES[place][:2], below=PLACES[place][2])
    device = hardware.allocated("nic0")
    assert device.identity is not None
    give(bed, "host-device", device)
    assert held(bed) == [device.identity.key.replace("/", "_")]
    saved = checkpoint.load(bed.settings.state, bed.container.sandbox)
    (recorded,) = [builtin.written(state.undo)["device"] for state in saved.steps.values()]
    assert recorded["parent"] == device.identity.address
    assert recorded["bus"] == device.identity.bus


def test_two_ports_of_one_function_are_used_by_two_pods_at_once(bed: Bed, other_pod: Bed, hardware: Hardware) -> None:
    two_ports(hardware)
    before = bed.state()
    devices = [hardware.allocated(name) for name in ("p0", "p1")]
    macs = [bed.link(name)["address"] for name in ("p0", "p1")]
    for name, new in (("p0", "x"), ("p1", "p0"), ("x", "p1")):  # names that were swapped since
        bed.run("ip", "link", "set", name, "name", new)
    for pod, device in zip((bed, other_pod), devices, strict=True):
        give(pod, "host-device", device)
    assert [pod.link("net1", inside=True)["address"] for pod in (bed, other_pod)] == macs
    assert held(bed) == [FUNCTION, f"{FUNCTION}_1"]
    assert [holders.holder(bed.settings.state, key) for key in (FUNCTION, f"{FUNCTION}/1")] == [
        bed.container.sandbox,
        other_pod.container.sandbox,
    ]
    for pod in (bed, other_pod):
        assert detach(pod.container.sandbox, bed.settings).is_clean
    for name, new in (("p0", "x"), ("p1", "p0"), ("x", "p1")):
        bed.run("ip", "link", "set", name, "name", new)
    assert not differences(before["host"], bed.state()["host"])


@pytest.mark.parametrize("binary", [False, True], ids=["built in", "program"])
def test_a_port_that_a_pod_has_is_refused_to_another_one_and_the_free_port_stays(
    bed: Bed, other_pod: Bed, hardware: Hardware, binary: bool
) -> None:
    two_ports(hardware)
    device = hardware.allocated("p0")
    give(bed, "host-device", device)
    with pytest.raises(AttachError) as refused:
        give(other_pod, "host-device", device, {"device": "p0"}, binary=binary)
    text = str(refused.value)
    if not binary:
        assert f"device {FUNCTION} is not on the host; sandbox {bed.container.sandbox} has it" in text
    assert "netdra detach" not in text
    assert "p1" in {each["ifname"] for each in bed.ip("link")}
    assert bed.link("net1", inside=True)


def test_vfio_is_refused_while_the_host_uses_another_port_or_a_pod_has_it(
    bed: Bed, other_pod: Bed, hardware: Hardware
) -> None:
    two_ports(hardware)
    (bed.settings.state.parent / "sys/bus/pci/drivers/uio_pci_generic").mkdir()
    first, second = hardware.allocated("p0"), hardware.allocated("p1")
    generic = {"driver": "uio_pci_generic"}
    bed.run("ip", "address", "add", "10.9.0.1/24", "dev", "p1")
    with pytest.raises(AttachError, match='the host uses device "p1"'):
        give(bed, "vfio-pci", first, generic)
    bed.run("ip", "address", "del", "10.9.0.1/24", "dev", "p1")
    give(other_pod, "host-device", second)
    with pytest.raises(AttachError) as refused:
        give(bed, "vfio-pci", first, generic)
    assert f"device {FUNCTION} has a port that sandbox {other_pod.container.sandbox} has" in str(refused.value)
    assert "netdra detach" not in str(refused.value)
    assert held(bed) == [f"{FUNCTION}_1"]
    assert detach(other_pod.container.sandbox, bed.settings).is_clean


@pytest.mark.parametrize("binary", [False, True], ids=["built in", "program"])
@pytest.mark.parametrize("place", PLACES)
def test_a_device_that_is_unplugged_in_a_pod_is_released_and_reported(
    bed: Bed, hardware: Hardware, place: str, binary: bool
) -> None:
    hardware.plug("nic0", *PLACES[place][:2], below=PLACES[place][2])
    device = hardware.allocated("nic0")
    if binary:  # the program looks into this machine's /sys for an address
        device = msgspec.structs.replace(device, pci_address="")
    give(bed, "host-device", device, {"device": "nic0"}, binary=binary)
    hardware.unplug("net1", bed.pod)
    report = detach(bed.container.sandbox, bed.settings)
    assert report.is_undone, str(report)
    assert "is gone from the machine" in str([step.notes for step in report.undone])
    assert held(bed) == []


@pytest.mark.parametrize("place", NOT_ON_PCI)
def test_a_device_with_an_unknown_liveness_stays_held(
    bed: Bed, hardware: Hardware, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    hardware.plug("nic0", *PLACES[place][:2])
    give(bed, "host-device", hardware.allocated("nic0"))
    hardware.unplug("net1", bed.pod)
    with monkeypatch.context() as failing:
        failing.setattr(type(hardware.sysfs), "liveness", lambda *_: Liveness("unknown", "EIO"))
        report = detach(bed.container.sandbox, bed.settings)
        assert not report.is_undone
        assert "unknown" in str(report)
        assert held(bed)
    assert detach(bed.container.sandbox, bed.settings).is_undone
    assert held(bed) == []


def test_a_record_of_an_older_netdra_is_undone(bed: Bed, hardware: Hardware) -> None:
    """It names the parent alone, as netlink has it."""
    hardware.plug("nic0", "virtio", "virtio2", below="0000:00:03.0")
    before = bed.state()["host"]
    give(bed, "host-device", hardware.allocated("nic0"))
    path = checkpoint.path_of(bed.settings.state, bed.container.sandbox)
    text = path.read_text().replace('"bus":"pci","parent":"0000:00:03.0","port":""', '"parent":"virtio2"')
    assert '"parent":"virtio2"' in text
    path.write_text(text)
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert not differences(before, bed.state()["host"])
