"""A node's reboot as its programs see it: all processes have ended, /run is empty, and the kernel has a new boot id.

Used by `test_outages`. The kernel itself continues, so what it would lose is taken away: namespaces, and virtual links.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.pods.conftest import Machine

BOOT_ID = "/proc/sys/kernel/random/boot_id"
NEW = "00000000-0000-4000-8000-000000000001"
_FORGET = """
for each in /proc/[0-9]*; do
  pid=${each#/proc/}
  [ "$pid" = 1 ] || [ "$pid" = $$ ] || kill -9 "$pid" 2>/dev/null
done
for each in /run/netns/* /run/ipcns/* /run/utsns/*; do
  [ "$each" = /run/netns/outside ] || ! [ -e "$each" ] || { umount "$each"; rm "$each"; }
done
rm -f /run/cdi/*
"""


@contextmanager
def rebooted(machine: Machine, folder: Path, *interfaces: str) -> Iterator[None]:
    """The node after a reboot, without these interfaces and without its driver; later its boot id is as before."""
    for name in ("netdra", "kubelet", "runtime"):
        machine.node.processes[name].kill()
    # The node's processes only: its first process is 1 in the namespace that this runs in.
    machine.node.run("sh", "-c", _FORGET)
    for name in interfaces:
        machine.node.run("ip", "link", "delete", name)
    shown = folder / "boot_id"
    shown.write_text(f"{NEW}\n")
    machine.node.run("mount", "--bind", str(shown), BOOT_ID)
    try:
        for process in (machine.containerd.process, machine.kubelet.process):
            process.start()
            process.wait_ready()
        machine.kubelet.wait_ready()
        yield
    finally:
        machine.node.run("umount", BOOT_ID)
