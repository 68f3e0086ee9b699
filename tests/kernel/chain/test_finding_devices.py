"""A device is found on the host, and waited for, without listing all links, and while other links come and go."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from netdra.kernel import link, monitor, netlink, uapi
from netdra.kernel.link import Link
from netdra.kernel.sysfs import Sysfs
from netdra.steps import identity
from netdra.steps.devices import netdev_of, netdevs_at
from tests.kernel.conftest import Machine

ADDRESS = "0000:41:00.0"


def device(root: Path, driver: str, netdevs: dict[str, int]) -> Sysfs:
    """A PCI device in a sysfs tree, with its driver and the indexes of its netdevs."""
    folder = root / "bus/pci/devices" / ADDRESS
    folder.mkdir(parents=True)
    if driver:
        (root / "bus/pci/drivers" / driver).mkdir(parents=True)
        (folder / "driver").symlink_to(f"../../drivers/{driver}")
    for name, index in netdevs.items():
        (folder / "net" / name).mkdir(parents=True)
        (folder / "net" / name / "ifindex").write_text(f"{index}\n")
    return Sysfs(str(root))


@pytest.fixture
def dumps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The dumps of links that are asked for."""
    asked: list[int] = []
    send = netlink.Socket._send

    def sent(sock: netlink.Socket, kind: int, flags: int, body: bytes, doing: str) -> int:
        if kind == uapi.RTM_GETLINK and flags & netlink.NLM_F_DUMP == netlink.NLM_F_DUMP:
            asked.append(kind)
        return send(sock, kind, flags, body, doing)

    monkeypatch.setattr(netlink.Socket, "_send", sent)
    return asked


@pytest.mark.parametrize("driver", ["", "vfio-pci"])
def test_a_device_without_a_driver_of_the_kernel_has_no_netdev(
    machine: Machine, tmp_path: Path, dumps: list[int], driver: str
) -> None:
    sysfs = device(tmp_path, driver, {})
    assert netdevs_at(machine.sock, sysfs, ADDRESS) == []
    assert netdev_of(machine.sock, sysfs, ADDRESS) is None
    assert dumps == []


def test_a_link_that_only_has_the_index_of_a_devices_netdev_is_not_taken(machine: Machine, tmp_path: Path) -> None:
    machine.veth("a", "b")
    sysfs = device(tmp_path, "igb", {"eth0": machine.index("a"), "eth1": 999})
    assert netdevs_at(machine.sock, sysfs, ADDRESS) == []
    assert netdev_of(machine.sock, sysfs, ADDRESS) is None


def test_waiting_for_a_device_survives_lost_events_and_searches_only_when_needed(
    machine: Machine, other: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "_RECEIVE_BUFFER", 32 * 1024)
    other.veth("back", "peer")
    expected = identity.identity_of(link.get(other.sock, "back"), Sysfs())
    looked: list[float] = []

    def find() -> Link | None:
        looked.append(time.monotonic())
        if len(looked) == 1:
            for number in range(60):  # more than the socket holds
                machine.veth(f"a{number}", f"b{number}")
            changing.start()
        return identity.find(machine.sock, Sysfs(), expected, "back")

    def change() -> None:
        with machine.namespace.socket() as sock:
            for number in range(100):
                link.change(sock, "a0", mtu=1300 + number)
                time.sleep(0.002)
            link.change(other.sock, "back", netns_fd=machine.namespace.fd)

    changing = threading.Thread(target=change)
    back = identity.await_return(machine.namespace, Sysfs(), expected, find, time.monotonic() + 60)
    changing.join()
    assert back is not None
    assert back.name == "back"
    assert 3 <= len(looked) < 50, "not for each of the hundred events"
