"""The SR-IOV machine as its tests see and change it: by sysfs, `ip -j` and nothing of netdra.

So what the tests expect comes from another reader than the one under test.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from testbed.copies import Copies
from testbed.vm.hardware import PCIE_ROOTS
from testbed.waiting import until, waiting

PCI = Path("/sys/bus/pci/devices")
TOTAL_VFS = 7
PATIENCE = 120.0
"""How long at most is waited, in seconds: emulated, everything takes long."""


@dataclass(frozen=True)
class Function:
    """One PCI function of a NIC."""

    pci: str

    @property
    def folder(self) -> Path:
        return PCI / self.pci

    @property
    def name(self) -> str:
        """The netdev's name in the host's namespace, or "" while it is elsewhere."""
        net = self.folder / "net"
        return next((entry.name for entry in net.iterdir()), "") if net.is_dir() else ""

    @property
    def driver(self) -> str:
        return self._target("driver")

    @property
    def iommu_group(self) -> str:
        return self._target("iommu_group")

    def _target(self, link: str) -> str:
        try:
            return (self.folder / link).readlink().name
        except FileNotFoundError:
            return ""


@dataclass(frozen=True)
class VF(Function):
    """A virtual function: the PF's `virtfn<index>`."""

    index: int


@dataclass(frozen=True)
class PF(Function):
    """A physical function, and where the machine's description puts it."""

    numa_node: int
    pcie_root: str

    @property
    def num_vfs(self) -> int:
        return int((self.folder / "sriov_numvfs").read_text())

    def vf(self, index: int) -> VF:
        return VF((self.folder / f"virtfn{index}").readlink().name, index)

    def vfs(self) -> tuple[VF, ...]:
        return tuple(self.vf(index) for index in range(self.num_vfs))

    def set_num_vfs(self, count: int) -> None:
        """Change the number of VFs; the driver takes a new number only through 0."""
        for number in (0, count) if count else (0,):
            (self.folder / "sriov_numvfs").write_text(str(number))


_OF_ADDRESSES = ("ifindex", "ifname", "link", "master", "flags", "mtu", "qdisc", "operstate", "group", "txqlen")
NAMES = tuple(f"enp3s0f{index}" for index in range(len(PCIE_ROOTS)))
"""Of the PFs, by their slots: testbed/vm/guest.sh gives them, and the documents of the tests have them."""
PFS = tuple(PF(f"0000:{bus + 1:02x}:00.0", node, f"pci0000:{bus:02x}") for bus, node in PCIE_ROOTS.items())


def run(*command: str, check: bool = True, text: str = "") -> str:
    """A command's output; `text` is its standard input.

    Raises:
        AssertionError: it failed (the text has what it stated).
    """
    with waiting(Path(command[0]).name):
        if command[0] == "ip":
            done = _ip().run(*command[1:], text=text, timeout=PATIENCE)
        else:
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0 or not check, f"{' '.join(command)}: {done.stderr or done.stdout}"
    return done.stdout


@cache
def _ip() -> Copies:
    """`ip`, loaded once: that takes ten times as long as its work here."""
    return Copies("ip")


def ip(*arguments: str, netns: str = "") -> str:
    """`ip`, in a named namespace if one is given."""
    return run("ip", *(("-n", netns) if netns else ()), *arguments)


def links(netns: str = "") -> dict[str, dict[str, Any]]:
    """The links of a namespace by name, with all details that `ip` knows."""
    return _by_name(json.loads(ip("-j", "-d", "link", "show", netns=netns)))


def links_and_addresses() -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """The host's links, as `links` has them, and those with IPv4 addresses: by one program, which is slow to start."""
    shown = run("ip", "-j", "-d", "-batch", "-", text="link show\naddress show\n")
    listed, addressed = (json.loads(line) for line in shown.splitlines())
    ipv4 = [
        {key: link.get(key) for key in _OF_ADDRESSES}
        | {"addresses": [each for each in link["addr_info"] if each["family"] == "inet"]}
        for link in addressed
    ]
    return _by_name(listed), [link for link in ipv4 if link["addresses"]]


def _by_name(listed: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {link["ifname"]: link for link in listed}


def up(name: str, netns: str = "") -> None:
    """Bring a link up, and wait until it has a carrier.

    A VF's driver asks the PF for leave then, every two seconds; before that it takes no VLANs.
    """
    ip("link", "set", name, "up", netns=netns)
    until(lambda: "LOWER_UP" in links(netns)[name]["flags"], "a carrier", seconds=PATIENCE, detail=lambda: name)


def bind(function: Function, driver: str) -> None:
    """Give a function to another driver ("" for the one that the kernel would choose)."""
    if function.driver:
        (function.folder / "driver" / "unbind").write_text(function.pci)
    (function.folder / "driver_override").write_text(driver or "\n")
    Path("/sys/bus/pci/drivers_probe").write_text(function.pci)


def unbind(function: Function) -> None:
    """Take a function from its driver."""
    (function.folder / "driver" / "unbind").write_text(function.pci)


def ping(target: str, netns: str) -> None:
    """Wait until a target answers: a link that has just come up loses what is sent before its peer has come up, too."""

    def answers() -> bool:
        command = ("ip", "netns", "exec", netns, "busybox", "ping", "-c", "1", "-W", "2", target)
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    until(answers, f"{target} to answer", seconds=PATIENCE)
