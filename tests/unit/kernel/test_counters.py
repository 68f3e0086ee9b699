"""Counters of VFs and RDMA ports are read as the kernel writes them; what a driver does not have is left out."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from netdra.kernel import counters, link, rdma_counters, uapi
from netdra.kernel.counters import LinkCounters
from netdra.kernel.netlink import Socket, attribute, nested, u32
from netdra.kernel.sysfs import Sysfs


def vf(index: int, *values: int) -> bytes:
    """A VF in a PF's message: `struct ifla_vf_mac`, then IFLA_VF_STATS without its padding attribute (6)."""
    numbers = (number for number in range(9) if number != 6)
    stats = [attribute(kind, value.to_bytes(8, "little")) for kind, value in zip(numbers, values, strict=False)]
    return nested(1, attribute(1, u32(index) + bytes(32)), nested(8, *stats))


def test_counters_of_vfs_are_those_of_their_pf(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = nested(uapi.IFLA_VFINFO_LIST, vf(0, 1, 2, 3, 4, 5, 6, 7, 8), vf(3), nested(1, attribute(1, bytes(36))))
    monkeypatch.setattr(link, "get_raw", lambda *_: link.header() + listed)
    assert counters.of_vfs(cast(Socket, None), "eth0") == {
        0: LinkCounters(rx_packets=1, tx_packets=2, rx_bytes=3, tx_bytes=4, multicast=6, rx_dropped=7, tx_dropped=8),
        3: LinkCounters(),
    }


def test_counters_of_an_rdma_port_are_numbers_and_data_is_in_bytes(tmp_path: Path) -> None:
    port = tmp_path / "class/infiniband/mlx5_0/ports/1"
    files = {"counters/port_rcv_data": "10", "counters/symbol_error": "2", "counters/link_downed": "N/A (no PMA)"}
    files |= {"hw_counters/out_of_sequence": "7", "hw_counters/lifespan": "10", "hw_counters/symbol_error": "9"}
    for name, text in files.items():
        path = port / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    found = rdma_counters.of_device(Sysfs(str(tmp_path)), "mlx5_0")
    assert found == (("1", "port_rcv_data", 40), ("1", "symbol_error", 2), ("1", "out_of_sequence", 7))
    assert rdma_counters.of_device(Sysfs(str(tmp_path)), "mlx5_9") == ()
