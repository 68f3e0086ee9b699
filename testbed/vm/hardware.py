"""The machine's hardware as QEMU arguments: two NUMA nodes, each with a PCIe root of its own and an SR-IOV NIC on it.

Read by `testbed.vm.machine`. The NICs are Intel 82576 (igb, 7 VFs each); their wires meet in one hub, so packets travel
between the two, and to a virtio NIC, as virtual machines have them. There is an IOMMU with interrupt remapping, as vfio
needs. A further, plain NIC leads to the loopback outside, where a control plane may run, and a disk keeps what is
written to it from one boot to the next. All is
emulated: no KVM is asked for.
"""

from __future__ import annotations

from pathlib import Path

from testbed.vm.ingredients import Ingredients

# From 2816 MiB on, QEMU maps a part of it above 4 GiB (hw/i386/pc_q35.c); VFs then never get their PFs' answers.
MEMORY_PER_NODE_MIB = 1376
# QEMU's user-mode network (its documentation, "Using the user mode network stack"): what the guest calls OUTSIDE is the
# loopback of the machine that QEMU runs on.
OUTSIDE = "10.0.2.2"
GUEST = "10.0.2.15"
# The disk's name in the guest, where it is mounted only if a test requires it, and its mount point.
DISK, DISK_FOLDER = "/dev/vda", "/disk"
# Features that are fast on real processors and slow on this one: strings copied byte by byte (erms, fsrm), page tables
# with one more level (la57), a check around each copy from and to programs (smap), and the state that every change of
# programs saves and restores (pku, mpx). Without them programs take a twelfth less of the processor, and copies of
# files a quarter of it.
CPU = "max,-erms,-fsrm,-la57,-smap,-pku,-mpx"
UPLINK_MAC, VIRTIO_MAC = "52:54:00:aa:01:00", "52:54:00:aa:01:01"
# bus number of the PCIe root -> NUMA node; the NIC is the first device on the bus after it
PCIE_ROOTS = {0x40: 0, 0x80: 1}


def command(
    ingredients: Ingredients, initramfs: Path, disk: Path, kernel_arguments: str, results: Path, console: Path
) -> list[str]:
    """QEMU's command line. The guest's output goes to stdout, its kernel's console to `console`."""
    memory = MEMORY_PER_NODE_MIB * len(PCIE_ROOTS)
    # The kernel kills QEMU when the process that started it is gone, however that ended.
    return [
        *("setpriv", "--pdeathsig", "KILL", str(ingredients.qemu)),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-machine", "q35,kernel-irqchip=split", "-accel", "tcg", "-cpu", CPU, "-smp", "1", "-m", f"{memory}M"),
        *("-device", "intel-iommu,intremap=on,caching-mode=on"),
        *("-kernel", str(ingredients.kernel.image), "-initrd", str(initramfs), "-append", kernel_arguments),
        *("-chardev", f"file,id=console,path={_escaped(console)}", "-serial", "chardev:console"),
        *("-chardev", "file,id=output,path=/dev/stdout"),
        *("-device", "virtio-serial-pci", "-device", "virtserialport,chardev=output"),
        # The guest's writes survive a killed QEMU, and are not needed after a failure of the host.
        *("-drive", f"file={_escaped(disk)},format=raw,if=none,id=disk,cache=unsafe"),
        *("-device", "virtio-blk-pci,drive=disk,romfile="),
        *_share("root", Path("/"), "readonly=on,multidevs=remap"),
        *_share("extras", ingredients.extras, "readonly=on"),
        *_share("results", results, "readonly=off"),
        *("-netdev", "user,id=uplink,ipv6=off", "-device", f"virtio-net-pci,netdev=uplink,mac={UPLINK_MAC},romfile="),
        *(argument for bus, node in PCIE_ROOTS.items() for argument in _numa_node(bus, node)),
        *("-netdev", "hubport,id=wire-virtio,hubid=0"),
        *("-device", f"virtio-net-pci,bus=pcie.0,netdev=wire-virtio,mac={VIRTIO_MAC},romfile="),
    ]


def _numa_node(bus: int, node: int) -> tuple[str, ...]:
    """A NUMA node: memory, a PCIe root, and a NIC whose MAC address ends in the node's number."""
    return (
        *("-object", f"memory-backend-ram,id=memory{node},size={MEMORY_PER_NODE_MIB}M"),
        *("-numa", f"node,nodeid={node},memdev=memory{node}"),
        *("-device", f"pxb-pcie,id=root{node},bus_nr={bus},numa_node={node},bus=pcie.0"),
        *("-device", f"pcie-root-port,id=port{node},bus=root{node},chassis={node + 1},slot={node + 1}"),
        *("-netdev", f"hubport,id=wire{node},hubid=0"),
        *("-device", f"igb,bus=port{node},netdev=wire{node},mac=52:54:00:aa:00:{node:02x},romfile="),
    )


def _share(tag: str, folder: Path, options: str) -> tuple[str, ...]:
    return (
        *("-fsdev", f"local,id={tag},path={_escaped(folder)},security_model=none,{options}"),
        *("-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"),
    )


def _escaped(path: Path) -> str:
    """A path inside a comma-separated QEMU option."""
    return str(path).replace(",", ",,")
