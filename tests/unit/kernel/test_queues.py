"""The settings of a link's queues in sysfs."""

from __future__ import annotations

from pathlib import Path

from netdra.kernel import queues
from netdra.kernel.sysfs import Sysfs

LIMITS = "queues/tx-0/byte_queue_limits"


def link(root: Path, name: str, index: int, files: dict[str, str]) -> None:
    folder = root / "class/net" / name
    for path, value in {"ifindex": str(index), "queues/tx-0/tx_maxrate": "0", **files}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"{value}\n")


def test_the_files_of_one_link_s_queues_are_not_taken_for_those_of_another(tmp_path: Path) -> None:
    """A veth has no limits of bytes, a NIC has: net/core/net-sysfs.c netdev_uses_bql()."""
    link(tmp_path, "veth0", 3, {})
    link(tmp_path, "eth0", 4, {f"{LIMITS}/hold_time": "1000", f"{LIMITS}/inflight": "7", f"{LIMITS}/limit_min": "0"})
    sysfs = Sysfs(str(tmp_path))
    assert queues.read(sysfs, "veth0", 3) == {}
    assert queues.read(sysfs, "eth0", 4) == {f"{LIMITS}/hold_time": "1000"}
    assert queues.read(sysfs, "veth0", 3) == {}


def test_the_queues_of_another_link_of_the_same_name_are_not_read(tmp_path: Path) -> None:
    link(tmp_path, "eth0", 4, {"queues/tx-0/xps_cpus": "3"})
    assert queues.read(Sysfs(str(tmp_path)), "eth0", 5) == {}
