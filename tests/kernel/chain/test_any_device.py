"""Any device, from discovery to undo: discovered, published, allocated, attached, undone; unplugged at any point."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from netdra.chain.checkpoint import PodIdentity
from netdra.chain.detach import detach
from netdra.chain.report import AttachError
from netdra.kernel import netns
from netdra.kernel.netns import Namespace
from netdra.model.plan import PlannedStep
from tests.kernel.chain.conftest import Bed, differences
from tests.kernel.chain.posing import Hardware, hardware
from tests.plans import attach, plan, step

__all__ = ["hardware"]

PLACES: dict[str, tuple[str, str, str]] = {
    "pci": ("pci", "0000:41:00.0", ""),
    "virtio on PCI": ("virtio", "virtio2", "0000:00:03.0"),
    "virtio-mmio": ("virtio", "virtio7", ""),
    "usb": ("usb", "2-1:1.0", ""),
    "vmbus": ("vmbus", "0f4e1a52-0000-4d3a-9f6b-0e1f2a3b4c5d", ""),
    "subfunction": ("auxiliary", "mlx5_core.sf.4", ""),
}
VIRTUAL = {
    "bridge": "type bridge",
    "ifb": "type ifb",
    "vxlan": "type vxlan id 4 dstport 4789",
    "veth": "type veth peer name nic0-peer",
    "macvlan": "link nic0-lower type macvlan",
}
NOT_MOVED = {"bridge"}
"""The kernel moves no bridge into another namespace (NETIF_F_NETNS_LOCAL)."""
Point = Literal["never", "before", "attached", "undone"]


class Life(msgspec.Struct, frozen=True):
    """The life of a device.

    Attributes:
        kind: of the device.
        port: whether it is the second port of its function, whose first one another pod has.
        step: its step: built in, or the program of that name; `tuning` has an interface to change after it.
        unplugged: when it goes from the machine.
    """

    kind: str
    port: bool
    step: Literal["built in", "program"]
    tuning: bool
    unplugged: Point


lives = st.builds(
    Life,
    kind=st.sampled_from([*PLACES, *VIRTUAL]),
    port=st.booleans(),
    step=st.sampled_from(["built in", "program"]),
    tuning=st.booleans(),
    unplugged=st.sampled_from(["never", "before", "attached", "undone"]),
)


def make(bed: Bed, hardware: Hardware, life: Life) -> None:
    """The device on the host, as `nic0`."""
    if life.kind in VIRTUAL:
        if "nic0-lower" in VIRTUAL[life.kind]:
            bed.veth("nic0-lower", "nic0-wire")
        bed.run("ip", "link", "add", "name", "nic0", *VIRTUAL[life.kind].split())
        return
    bus, address, below = PLACES[life.kind]
    if life.port:
        hardware.plug("nic1", bus, address, below=below)
    hardware.plug("nic0", bus, address, below=below, port=int(life.port))


def steps_of(hardware: Hardware, life: Life) -> list[PlannedStep]:
    device = hardware.allocated("nic0")
    config: dict[str, Any] = {}
    if life.step == "program":  # it looks into this machine's /sys for an address
        device, config = msgspec.structs.replace(device, pci_address=""), {"device": "nic0"}
    made = [step("dev", "host-device", "net1", config, device=device, binary=life.step == "program")]
    if life.tuning:
        made.append(step("tune", "tuning", "net1", {"mtu": 1300, "promisc": True}, after=["dev"]))
    return made


def unplug(bed: Bed, hardware: Hardware, life: Life, space: Namespace, name: str) -> None:
    if life.kind in VIRTUAL:
        where = ("-n", space.path.rpartition("/")[2]) if space is not bed.host else ()
        bed.run("ip", *where, "link", "del", name)
        return
    if life.port:
        bed.run("ip", "link", "del", "nic1")  # the function goes with all its ports
    hardware.unplug(name, space)


def live(bed: Bed, hardware: Hardware, life: Life, sandbox: PodIdentity, pod: Namespace) -> None:
    """A device's life; the host is as before it, except for unplugged devices."""
    make(bed, hardware, life)
    steps = steps_of(hardware, life)
    if life.unplugged == "before":
        unplug(bed, hardware, life, bed.host, "nic0")
    before = bed.state()["host"]
    refused = ""
    try:
        attach((plan(*steps),), sandbox, pod.path, bed.settings)
    except AttachError as problem:
        refused = str(problem)
    assert bool(refused) == (life.unplugged == "before" or life.kind in NOT_MOVED), refused
    assert "not undone" not in refused
    if not refused:
        if life.unplugged == "attached":
            unplug(bed, hardware, life, pod, "net1")
        report = detach(sandbox.sandbox, bed.settings)
        assert report.is_undone, str(report)
        if life.unplugged == "attached":
            assert re.search("is gone|is not in the pod any more", str([each.notes for each in report.undone]))
        else:
            assert report.is_clean, str(report)
    if life.unplugged == "undone":
        unplug(bed, hardware, life, bed.host, "nic0")
        assert not detach(sandbox.sandbox, bed.settings).found
    if life.unplugged in {"attached", "undone"} and not (refused and life.unplugged == "attached"):
        # Its links are gone, with the other ends of the veths.
        before["links"] = {name: each for name, each in before["links"].items() if not name.startswith("nic")}
    after = bed.state()["host"]
    after["links"] = {name: each for name, each in after["links"].items() if name in before["links"]}
    assert not differences(before, after)
    assert not list((bed.settings.state / "devices").glob("*"))


def test_a_device_of_any_kind_is_as_it_was_or_reported_as_gone(bed: Bed, hardware: Hardware) -> None:
    number = 0

    @settings(max_examples=30, phases=(Phase.explicit, Phase.generate))
    @example(Life("virtio on PCI", False, "built in", True, "never"))
    @example(Life("virtio on PCI", False, "program", False, "attached"))
    @example(Life("pci", True, "built in", True, "never"))
    @example(Life("pci", True, "program", False, "before"))
    @example(Life("usb", False, "built in", False, "attached"))
    @example(Life("subfunction", False, "program", True, "attached"))
    @example(Life("macvlan", False, "built in", True, "attached"))
    @given(lives)
    def whole(life: Life) -> None:
        nonlocal number
        number += 1
        sandbox = msgspec.structs.replace(bed.container, sandbox=f"{bed.container.sandbox}-{number}")
        name = f"{bed.pod.path.rpartition('/')[2]}-{number}"
        pod = Namespace.create(name)
        try:
            live(bed, hardware, life, sandbox, pod)
        finally:
            netns.delete(name)
            pod.close()
            for link in bed.ip("link"):
                if link["ifname"].startswith("nic"):
                    bed.run("sh", "-c", f"ip link del {link['ifname']} 2>/dev/null; true")
            hardware.clear()

    whole()
