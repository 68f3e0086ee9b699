"""Counters of devices are read where the device is, become faults of the policy, and last for one boot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from netdra.kernel import link
from netdra.kernel.netns import Namespace
from netdra.kernel.sysfs import Sysfs
from netdra.kube.events import Occurrence
from netdra.model.health import HealthRule
from netdra.model.plan import PlannedDevice
from netdra.node.health import service
from netdra.node.health.sampling import SampledDevice, pcie_degraded, read
from netdra.node.health.service import DeviceHealthWatch
from netdra.node.settings import HEALTH_FILE
from netdra.node.traffic.interfaces import SandboxInterface
from netdra.topology.devices import DeviceKey
from tests.kernel.conftest import Machine

KEY = ("pool", "eth1")


@contextmanager
def nowhere(_: object) -> Iterator[Mapping[str, Namespace]]:
    """No namespace of a sandbox."""
    yield {}


def test_flaps_are_counted_on_the_node_and_in_the_pod_that_has_the_device(machine: Machine, other: Machine) -> None:
    @contextmanager
    def opened(sandboxes: Collection[str]) -> Iterator[Mapping[str, Namespace]]:
        yield dict.fromkeys(sandboxes, other.namespace)

    def flaps(sandbox: str) -> int:
        wanted = frozenset({"link_flaps", "rx_crc_errors"})
        device = SampledDevice(key=KEY, if_name="eth1", sandbox=sandbox, wanted=wanted)
        with machine.entered():
            values = read([device], opened, Sysfs("/none"))[KEY]
        assert values["rx_crc_errors"] == 0
        return values["link_flaps"]

    machine.veth("eth1", "far", up=True)
    link.change(machine.sock, "far", up=True)
    machine.at_rest()
    before = flaps("")
    link.change(machine.sock, "far", up=False)
    link.change(machine.sock, "far", up=True)
    assert flaps("") == before + 1
    link.change(machine.sock, "eth1", netns_fd=other.namespace.fd)
    link.change(other.sock, "eth1", up=True)
    moved = flaps("sandbox")
    link.change(machine.sock, "far", up=False)
    assert flaps("sandbox") == moved + 1
    with machine.entered():
        gone = SampledDevice(key=KEY, if_name="none", wanted=frozenset({"link_flaps"}))
        assert read([gone], nowhere, Sysfs("/none")) == {KEY: {}}


@pytest.mark.parametrize(
    ("device", "port", "degraded"),
    [
        (("16.0 GT/s PCIe", "16.0 GT/s PCIe", "16", "16"), ("32.0 GT/s PCIe", "16"), False),
        (("8.0 GT/s PCIe", "16.0 GT/s PCIe", "16", "16"), ("16.0 GT/s PCIe", "16"), True),
        (("16.0 GT/s PCIe", "16.0 GT/s PCIe", "8", "16"), ("16.0 GT/s PCIe", "16"), True),
        # A fast card in a slow slot.
        (("8.0 GT/s PCIe", "16.0 GT/s PCIe", "4", "16"), ("8.0 GT/s PCIe", "4"), False),
        (("Unknown", "16.0 GT/s PCIe", "0", "16"), ("16.0 GT/s PCIe", "16"), None),
        (("Unknown", "Unknown", "0", "255"), ("16.0 GT/s PCIe", "16"), None),
    ],
)
def test_a_pcie_link_is_compared_with_the_limits_of_both_of_its_ends(
    tmp_path: Path, device: tuple[str, ...], port: tuple[str, ...], degraded: bool | None
) -> None:
    folder = tmp_path / "devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    folder.mkdir(parents=True)
    names = ("current_link_speed", "max_link_speed", "current_link_width", "max_link_width")
    for name, text in zip(names, device, strict=True):
        (folder / name).write_text(f"{text}\n")
    for name, text in zip(("max_link_speed", "max_link_width"), port, strict=True):
        (folder.parent / name).write_text(f"{text}\n")
    (tmp_path / "bus/pci/devices").mkdir(parents=True)
    (tmp_path / "bus/pci/devices/0000:01:00.0").symlink_to(folder)
    assert pcie_degraded(Sysfs(str(tmp_path)), "0000:01:00.0") is degraded


@dataclass
class Node:
    """A node whose counters are files, and its clock."""

    folder: Path
    rules: Mapping[str, tuple[HealthRule, ...]] = field(default_factory=dict)
    devices: Mapping[DeviceKey, PlannedDevice] = field(default_factory=dict)
    told: list[Occurrence] = field(default_factory=list)
    changes: int = 0
    ready: bool = True

    @property
    def health_rules(self) -> Mapping[str, tuple[HealthRule, ...]]:
        return self.rules

    def count(self, device: str, value: int) -> None:
        """A device's RDMA port has that many symbol errors."""
        path = self.folder / f"class/infiniband/{device}/ports/1/counters/symbol_error"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")

    def watch(self) -> DeviceHealthWatch:
        def changed() -> None:
            self.changes += 1

        return DeviceHealthWatch(
            *(self, nowhere, _no_pods, self.told.append, "node-a", self.folder),
            sysfs=Sysfs(str(self.folder)),
            on_change=changed,
        )

    @property
    def reasons(self) -> list[str]:
        return [each.reason for each in self.told]


def _no_pods() -> Sequence[SandboxInterface]:
    return ()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node with a NIC for pods, one for management that no policy offers, and a rule of 10 symbol errors."""
    rule = HealthRule(
        name="symbols",
        counter="rdma_symbol_error",
        at_least=10,
        recover_after_seconds=0,
        within_seconds=10,
        effect="NoSchedule",
    )
    devices = {
        KEY: PlannedDevice(request="", pool="pool", device="eth1", rdma_device="mlx5_0", policy="nics"),
        ("pool", "mgmt"): PlannedDevice(request="", pool="pool", device="mgmt", rdma_device="mlx5_9", policy="others"),
    }
    made = Node(tmp_path, {"nics": (rule,)}, devices)
    made.count("mlx5_0", 1000)
    made.count("mlx5_9", 1000)
    return made


def test_a_fault_is_reported_once_with_its_evidence_and_again_when_it_is_over(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _clock(monkeypatch)
    watch = node.watch()
    asyncio.run(watch.sample())
    assert (watch.faults, watch.watched, node.changes) == ((), 1, 1)
    clock(15)
    node.count("mlx5_0", 1025)
    node.count("mlx5_9", 9000)
    asyncio.run(watch.sample())
    (fault,) = watch.faults
    assert (fault.device, fault.increase, fault.effect) == ("eth1", 25, "NoSchedule")
    assert [text.partition(" ")[2] for text in fault.values] == ["1000", "1025"]
    (event,) = node.told
    assert (event.reason, event.regarding.name) == ("DeviceFaulty", "node-a")
    assert "rdma_symbol_error 25 in 10 s" in event.note
    assert 'policy "nics", rule "symbols"' in event.note
    clock(5)
    node.count("mlx5_0", 1026)
    asyncio.run(watch.sample())
    # Neither the report nor the events follow each sample.
    assert (watch.faults, node.changes, node.reasons) == ((fault,), 2, ["DeviceFaulty"])
    clock(15)
    asyncio.run(watch.sample())
    assert (watch.faults, node.reasons) == ((), ["DeviceFaulty", "DeviceRecovered"])


def test_a_fault_outlives_a_restart_of_the_driver_and_no_reboot_of_the_node(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _clock(monkeypatch)
    watch = node.watch()
    for value in (1000, 1025):
        node.count("mlx5_0", value)
        asyncio.run(watch.sample())
        clock(5)
    (fault,) = watch.faults
    restarted = node.watch()
    # Until the devices are known, the report is as before: else the controller would remove the taint for a moment.
    node.ready, devices, node.devices = False, node.devices, {}
    asyncio.run(restarted.sample())
    assert (restarted.faults, restarted.watched) == ((fault,), 1)
    node.ready, node.devices = True, devices
    node.rules = {"nics": tuple(_slower(rule) for rule in node.rules["nics"])}
    asyncio.run(restarted.sample())
    assert (restarted.faults, node.reasons) == ((fault,), ["DeviceFaulty"])
    monkeypatch.setattr(service, "boot_id", lambda: "another boot")
    rebooted = node.watch()
    asyncio.run(rebooted.sample())
    assert rebooted.faults == ()
    (node.folder / HEALTH_FILE).write_text("{")
    assert node.watch().faults == ()


def test_without_rules_nothing_is_read_and_a_policy_that_loses_its_rules_ends_their_faults(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules, node.rules = node.rules, {}
    monkeypatch.setattr(service, "read", _fail)
    watch = node.watch()
    asyncio.run(watch.sample())
    monkeypatch.undo()
    clock = _clock(monkeypatch)
    node.rules = rules
    for value in (1000, 1025):
        node.count("mlx5_0", value)
        asyncio.run(watch.sample())
        clock(5)
    assert watch.faults
    node.rules = {}
    asyncio.run(watch.sample())
    assert (watch.faults, watch.watched) == ((), 0)


def _slower(rule: HealthRule) -> HealthRule:
    """The same rule, with a recovery that takes a minute."""
    return msgspec.structs.replace(rule, recover_after_seconds=60)


def _fail(*_: object) -> dict[DeviceKey, dict[str, int]]:
    raise AssertionError("counters were read")


def _clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A clock, which a call moves on by some seconds."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def go_on(seconds: float) -> None:
        now[0] += seconds

    return go_on
