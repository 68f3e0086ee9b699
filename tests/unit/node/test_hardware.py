"""The hardware of published devices over boots: an allocated claim never gets other hardware without an error."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.model import names
from netdra.model.claim import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from netdra.model.device import DEFAULT_FEATURES
from netdra.model.errors import PermanentError
from netdra.model.identity import DeviceIdentity
from netdra.model.inventory import Interface
from netdra.model.meta import ObjectMeta
from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.node.claims import checks
from netdra.node.claims.store import KeptDevice, PreparedClaim, PreparedDevice
from netdra.node.hardware import HardwareTable
from netdra.node.publishing.offering import Offering, Slices
from netdra.topology.devices import DeviceKey
from tests.builders import OURS, exclusive, inventory
from tests.unit.node.publishing.scene import NODE, Scene

POLICIES = (exclusive("nics", f'{OURS}.type == "nic"'),)
NICS = tuple(
    Interface(if_name=f"eth{number}", pci_address=f"0000:0{number}:00.0", permanent_mac=f"52:54:00:00:00:0{number}")
    for number in range(3)
)
TIME = 1_700_000_000.0
HOUR = 3600.0


class Node:
    """A node over several boots: the part of `NodeView` that Prepare asks for hardware."""

    def __init__(self, path: Path) -> None:
        self.path, self.now = path, TIME
        self.published: dict[str, Slices] = {}
        self.devices: dict[DeviceKey, PlannedDevice] = {}
        self.hardware = HardwareTable(path)

    def boot(self, *interfaces: Interface) -> None:
        """The machine starts, an hour later, and shows these interfaces."""
        self.now += HOUR
        self.hardware = HardwareTable(self.path, lambda: self.now)
        offering = Offering(NODE, self.published, None, self.hardware)
        offering.follow(POLICIES, DEFAULT_FEATURES)
        offered = offering.update(inventory(*interfaces, node=NODE), {}, (), Scene(), 0.0)
        self.devices = {key: device for pool in offered.devices.values() for key, device in pool.items()}
        self.published = {pool: slices for pool, slices in offered.slices.items() if slices}
        self.hardware.note(self.devices)

    def device(self, name: str) -> PlannedDevice | None:
        return next((device for (_, called), device in self.devices.items() if called == name), None)

    def prepare(self, claim: ResourceClaim, former: PreparedClaim | None = None) -> PlannedDevice | None:
        """The hardware that a claim is given; None where its device is not published."""
        (result,) = checks.ours(claim)
        device = self.devices.get((result.pool, result.device))
        if device is not None:
            checks.check_hardware(claim, [device], former, self)  # type: ignore[arg-type]
        return device


def claim_of(device: PlannedDevice, now: float, *, created: float | None = None) -> ResourceClaim:
    """A claim that was allocated a device; with `created`, by a scheduler that writes no time."""
    result = DeviceRequestAllocationResult(request="r", driver=names.DRIVER, pool=device.pool, device=device.device)
    stamp = None if created is not None else datetime.fromtimestamp(now, UTC).isoformat()
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)), allocation_timestamp=stamp)
    made = datetime.fromtimestamp(now if created is None else created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return ResourceClaim(
        metadata=ObjectMeta(name="c", namespace="ns", uid="u", creation_timestamp=made),
        spec=ResourceClaimSpec(),
        status=ResourceClaimStatus(allocation=allocation),
    )


def record_of(device: PlannedDevice) -> PreparedClaim:
    told = PreparedDevice(requests=("r",), pool=device.pool, device=device.device)
    claim = ClaimReference(namespace="ns", name="c", uid="u")
    return PreparedClaim(boot_id="former", claim=claim, devices=(KeptDevice(told=told, facts=device),))


def renamed(interfaces: Sequence[Interface], *new: str) -> list[Interface]:
    return [msgspec.structs.replace(each, if_name=name) for each, name in zip(interfaces, new, strict=True)]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path / "hardware.json")
    made.boot(*NICS)
    return made


@pytest.mark.parametrize("stamped", [True, False], ids=["with its time", "without"])
def test_after_a_boot_with_swapped_names_an_allocated_claim_is_refused(node: Node, stamped: bool) -> None:
    device = node.device("eth0")
    assert device is not None
    claim = claim_of(device, node.now, created=None if stamped else node.now)
    assert node.prepare(claim) == device
    node.boot(*renamed(NICS, "eth1", "eth0", "eth2"))
    with pytest.raises(PermanentError) as refused:
        node.prepare(claim)
    assert refused.value.what == (
        f'ResourceClaim "ns/c": device "eth0" of pool "{device.pool}" is 0000:01:00.0 now; it was 0000:00:00.0 when '
        "the claim was allocated"
    )
    assert (refused.value.hint or "").startswith("delete the pod")
    node.boot(*renamed(NICS, "eth1", "eth0", "eth2"))
    with pytest.raises(PermanentError):
        node.prepare(claim)  # also after a further boot


def test_a_claim_that_was_prepared_before_the_boot_is_known_by_its_record(node: Node) -> None:
    device = node.device("eth0")
    assert device is not None
    claim = claim_of(device, node.now + 2 * HOUR)  # a clock that is wrong
    node.boot(*renamed(NICS, "eth1", "eth0", "eth2"))
    with pytest.raises(PermanentError, match=r"it was 0000:00:00\.0"):
        node.prepare(claim, record_of(device))
    older = msgspec.structs.replace(device, identity=None)  # as a netdra before wrote it
    with pytest.raises(PermanentError, match=r"it was 0000:00:00\.0"):
        node.prepare(claim, record_of(older))
    now = node.device("eth0")
    assert now is not None
    assert node.prepare(claim, record_of(now)) == now


def test_a_claim_that_is_allocated_afterwards_is_prepared(node: Node) -> None:
    node.boot(*renamed(NICS, "eth1", "eth0", "eth2"))
    device = node.device("eth0")
    assert device is not None
    assert node.prepare(claim_of(device, node.now + 2 * checks.HARDWARE_SECONDS)) == device
    with pytest.raises(PermanentError):
        node.prepare(claim_of(device, node.now + checks.HARDWARE_SECONDS / 2))  # by a slice from before


def test_a_boot_with_the_clock_ahead_refuses_a_device_with_a_new_name_no_longer_than_other_boots(node: Node) -> None:
    swapped = renamed(NICS, "eth1", "eth0", "eth2")
    before = node.now
    node.now += 365 * 24 * HOUR
    node.boot(*swapped)
    node.now = before
    node.boot(*swapped)
    device = node.device("eth0")
    assert device is not None
    with pytest.raises(PermanentError):
        node.prepare(claim_of(device, before))
    assert node.prepare(claim_of(device, node.now + 2 * checks.HARDWARE_SECONDS)) == device


def test_a_card_that_moves_on_its_bus_stays_the_same_device_and_a_new_one_in_its_slot_is_another(node: Node) -> None:
    device, other = node.device("eth0"), node.device("eth1")
    assert device is not None
    assert other is not None
    claim, others = claim_of(device, node.now), claim_of(other, node.now)
    moved = msgspec.structs.replace(NICS[0], pci_address="0000:07:00.0")
    replaced = msgspec.structs.replace(NICS[1], permanent_mac="52:54:00:00:00:99")
    node.boot(moved, replaced, NICS[2])
    given = node.prepare(claim)
    assert given is not None
    assert given.pci_address == "0000:07:00.0"
    with pytest.raises(PermanentError, match=r'device "eth1"'):
        node.prepare(others)


def test_a_name_that_was_away_for_some_boots_is_remembered(node: Node) -> None:
    device = node.device("eth0")
    assert device is not None
    claim = claim_of(device, node.now)
    node.boot(*NICS[1:])
    assert node.prepare(claim) is None
    node.boot(msgspec.structs.replace(NICS[1], if_name="eth0"), NICS[2])
    with pytest.raises(PermanentError):
        node.prepare(claim)


def test_a_table_that_cannot_be_read_or_written_stops_nothing(tmp_path: Path) -> None:
    path = tmp_path / "hardware.json"
    path.write_text("{")
    node = Node(path)
    node.boot(*NICS)
    assert HardwareTable(path).of(next(iter(node.devices))) is not None
    blocked = Node(tmp_path / "hardware.json" / "below")
    blocked.boot(*NICS)
    assert blocked.device("eth0")


def test_identity_fields_missing_in_a_slice_are_read_back_from_the_hardware_table(tmp_path: Path) -> None:
    node = Node(tmp_path / "hardware.json")
    port = msgspec.structs.replace(NICS[0], if_name="p1", dev_port=1)
    usb = Interface(if_name="u0", bus="usb", bus_address="2-1:1.0", permanent_mac="52:54:00:00:01:01")
    node.boot(NICS[0], port, usb)
    last = Offering(NODE, node.published, None, node.hardware)._last
    found = {name: facts.interface.device for (_, name), facts in last.items()}
    assert found == {"eth0": NICS[0].device, "p1": port.device, "u0": usb.device}
    node.boot(NICS[0], port, usb)
    assert not [key for key in node.devices if (entry := node.hardware.of(key)) is None or entry.former is not None]


@given(data=st.data())
def test_no_claim_ever_gets_other_hardware_without_an_error(data: st.DataObject) -> None:
    """Boots with drawn names and cards in drawn slots; claims are allocated in each, prepared or not, and kept."""
    with tempfile.TemporaryDirectory() as folder:
        node = Node(Path(folder) / "hardware.json")
        claims: list[tuple[ResourceClaim, PreparedClaim | None, DeviceIdentity]] = []
        for _ in range(data.draw(st.integers(2, 4))):
            there = data.draw(st.lists(st.sampled_from(NICS), unique=True))
            called = data.draw(st.permutations([nic.if_name for nic in NICS]))
            node.boot(*renamed(there, *called[: len(there)]))
            for claim, record, identity in claims:
                try:
                    given_now = node.prepare(claim, record)
                except PermanentError:
                    continue
                assert given_now is None or (given_now.identity and given_now.identity.is_same(identity))
            for device in node.devices.values():
                assert device.identity is not None
                stamped = data.draw(st.booleans())
                claim = claim_of(device, node.now + HOUR / 2, created=None if stamped else node.now + HOUR / 2)
                assert node.prepare(claim) == device
                record = record_of(device) if data.draw(st.booleans()) else None
                claims.append((claim, record, device.identity))
