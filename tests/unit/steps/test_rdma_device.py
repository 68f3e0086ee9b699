"""An RDMA device's files after the move, and how a device is recognised and compared when it comes back."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Barrier, Lock
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from netdra.kernel import rdma
from netdra.kernel.netlink import attribute, nested, text, u32
from netdra.kernel.rdma import RdmaDevice
from netdra.kernel.sysfs import Sysfs
from netdra.model.errors import PermanentError, TemporaryError
from netdra.model.plan import PlannedDevice
from netdra.model.result import CNIInterface, StepResult
from netdra.steps import rdma_device, rdma_state
from netdra.steps.contract import Order
from netdra.steps.rdma_device import RdmaMoved, RdmaParams
from netdra.steps.rdma_state import RdmaState

OURS = RdmaDevice(index=3, name="mlx5_2", node_guid=7, adaptive=True)
STATE = RdmaState(device=OURS, address="0000:03:00.2", resources={"qp": 1, "cq": 1, "ctx": 0})


class Replies:
    """A socket with the kernel's answer, as include/uapi/rdma/rdma_netlink.h has it."""

    def __init__(self, *bodies: bytes) -> None:
        self.bodies = list(bodies)

    def request(self, _kind: int, _body: bytes, **_: Any) -> list[bytes]:
        return self.bodies

    dump = request


def on_host(root: Path, devices: Mapping[str, str]) -> Sysfs:
    """A sysfs with RDMA devices at PCI addresses."""
    for name, address in devices.items():
        (root / "devices" / address).mkdir(parents=True, exist_ok=True)
        (root / "class/infiniband" / name).mkdir(parents=True)
        (root / "class/infiniband" / name / "device").symlink_to(f"../../../devices/{address}")
    return Sysfs(str(root))


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ([OURS], "mlx5_2"),
        ([RdmaDevice(index=3, name="evil", node_guid=7)], "evil"),
        ([RdmaDevice(index=3, name="mlx5_9", node_guid=8), RdmaDevice(index=9, name="rocep3", node_guid=7)], "rocep3"),
        ([RdmaDevice(index=3, name="mlx5_9", node_guid=8)], ""),
        ([], ""),
    ],
    ids=["as-before", "renamed", "made-anew", "another-of-its-index", "elsewhere"],
)
def test_a_device_is_recognised_under_another_name_and_after_its_driver_made_it_anew(
    tmp_path: Path, listed: list[RdmaDevice], found: str
) -> None:
    sysfs = on_host(tmp_path, {"rocep3": STATE.address, "mlx5_9": "0000:03:00.3"})
    assert rdma_state.name_in(listed, STATE, sysfs) == found


def test_the_files_of_an_exclusive_device_are_those_that_it_has_after_the_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel numbers them again, by the lowest number that is free; another device may have the former number."""

    def show(**owners: str) -> None:
        for file, owner in owners.items():
            group = "infiniband_verbs" if file.startswith("uverbs") else "infiniband_mad"
            (tmp_path / "class" / group / file).mkdir(parents=True, exist_ok=True)
            (tmp_path / "class" / group / file / "ibdev").write_text(owner)

    def move(_sock: object, name: str, _fd: int) -> None:
        show(uverbs2="mlx5_1", umad2="mlx5_1", uverbs0=name, umad0=name)

    show(uverbs2="mlx5_2", umad2="mlx5_2")
    monkeypatch.setattr(rdma, "move", move)
    monkeypatch.setattr(rdma, "open_socket", nullcontext)
    order = Order(topology="t", step="roce", type="rdma", if_name="net1", network="n", config={})
    record = RdmaMoved(rdma_device="mlx5_2", address="", exclusive=True, own=False)
    pod = SimpleNamespace(namespace=SimpleNamespace(fd=-1))
    site: Any = SimpleNamespace(sysfs=Sysfs(str(tmp_path)), inside=pod)
    (device,) = rdma_device._apply(order, RdmaParams(), record, site).devices
    assert device.device_nodes == ("/dev/infiniband/uverbs0", "/dev/infiniband/umad0")


def test_devices_that_move_at_the_same_time_bring_the_files_that_they_have_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both lose their numbers before either gets a new one; the kernel gives the lowest free one under its lock."""
    both_left, lock = Barrier(2), Lock()
    verbs = tmp_path / "class/infiniband_verbs"

    def files() -> dict[str, Path]:
        return {(entry / "ibdev").read_text(): entry for entry in verbs.iterdir()}

    def enter(name: str) -> None:
        number = next(n for n in range(9) if not (verbs / f"uverbs{n}").exists())
        (verbs / f"uverbs{number}").mkdir(parents=True)
        (verbs / f"uverbs{number}" / "ibdev").write_text(name)

    def move(_sock: object, name: str, _fd: int) -> None:
        with lock:
            shutil.rmtree(files()[name])
        both_left.wait(10)
        if name == "mlx5_0":  # the other one is faster
            time.sleep(0.05)
        with lock:
            enter(name)

    for name in ("mlx5_0", "mlx5_1"):
        enter(name)
    monkeypatch.setattr(rdma, "move", move)
    monkeypatch.setattr(rdma, "open_socket", nullcontext)
    pod = SimpleNamespace(namespace=SimpleNamespace(fd=-1))
    site: Any = SimpleNamespace(sysfs=Sysfs(str(tmp_path)), inside=pod)

    def attach(name: str) -> tuple[str, ...]:
        order = Order(topology="t", step="roce", type="rdma", if_name="net1", network="n", config={})
        record = RdmaMoved(rdma_device=name, address="", exclusive=True, own=False)
        return rdma_device._apply(order, RdmaParams(), record, site).devices[0].device_nodes

    with ThreadPoolExecutor(2) as pool:
        given = list(pool.map(attach, ("mlx5_0", "mlx5_1")))
    assert given == [("/dev/infiniband/uverbs1",), ("/dev/infiniband/uverbs0",)]


UPLINK = PlannedDevice(
    request="nic", pool="p", device="ens1", if_name="ens1", pci_address="0000:03:00.0", share_id="s1"
)


@pytest.mark.parametrize(
    ("config", "nodes"),
    [
        ({}, ("uverbs0",)),
        ({"management": ["umad"]}, ("uverbs0", "umad0")),
        ({"management": ["umad", "issm"]}, ("uverbs0", "issm0", "umad0")),
    ],
)
def test_a_step_on_a_child_interface_gets_the_files_of_its_parents_rdma_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    sysfs = on_host(tmp_path, {"mlx5_0": UPLINK.pci_address, "mlx5_1": "0000:04:00.0"})
    for number, owner in enumerate(("mlx5_0", "mlx5_1")):
        for group, kinds in (("infiniband_verbs", ("uverbs",)), ("infiniband_mad", ("umad", "issm"))):
            for kind in kinds:
                file = tmp_path / "class" / group / f"{kind}{number}"
                file.mkdir(parents=True)
                (file / "ibdev").write_text(owner)
    child = StepResult(interfaces=(CNIInterface(name="net1", sandbox="/proc/1/ns/net"),))
    order = Order(
        topology="t", step="roce", type="rdma", if_name="net1", network="n", config={}, below=(UPLINK,), previous=child
    )
    site: Any = SimpleNamespace(sysfs=sysfs)
    params = msgspec.convert(config, RdmaParams)

    monkeypatch.setattr(rdma_device, "is_exclusive", lambda: True)
    with pytest.raises(PermanentError, match=r'RDMA device "mlx5_0" is shared, but .* is exclusive'):
        rdma_device._observe(order, params, site)
    monkeypatch.setattr(rdma_device, "is_exclusive", lambda: False)
    record = rdma_device._observe(order, params, site)
    assert (record.stays, record.holds) == (True, ())
    (device,) = rdma_device._apply(order, params, record, site).devices
    assert (device.rdma_device, device.device_nodes) == ("mlx5_0", tuple(f"/dev/infiniband/{node}" for node in nodes))


def test_the_rdma_device_of_a_function_that_the_pod_has_is_held_and_one_that_pods_share_is_not() -> None:
    order = Order(topology="t", step="roce", type="rdma", if_name="net1", network="n", config={})
    inside = CNIInterface(name="net1", pci_id=STATE.address)
    order = msgspec.structs.replace(order, previous=StepResult(interfaces=(inside,)))
    assert rdma_device._is_of_pod(order, STATE.address)
    assert not rdma_device._is_of_pod(order, "0000:03:00.0")
    record = RdmaMoved(rdma_device="mlx5_2", address=STATE.address, exclusive=False, own=False, state=STATE)
    assert record.holds == ("0000:03:00.2/rdma",)
    shared = msgspec.structs.replace(record, state=msgspec.structs.replace(STATE, resources={}))
    assert shared.holds == ()
    assert msgspec.structs.replace(record, own=True).holds == (STATE.address,)


def test_a_function_whose_rdma_device_another_sandbox_still_uses_is_refused() -> None:
    site: Any = SimpleNamespace(holder={"0000:03:00.2/rdma": "other"}.get)
    with pytest.raises(TemporaryError, match=r"RDMA device of 0000:03:00\.2 is still used by sandbox other"):
        rdma_state.check_released("the step", STATE.address, site)
    rdma_state.check_released("the step", "0000:03:00.3", site)
    rdma_state.check_released("the step", "", site)


def test_additional_objects_of_a_device_are_counted() -> None:
    assert rdma_state._more({"qp": 1, "cq": 3, "ctx": 1, "srq": 0}, STATE) == "2 cq, 1 ctx"
    assert rdma_state._more({"qp": 0, "cq": 1}, STATE) == ""


def test_a_device_and_its_resources_are_read_from_the_kernels_messages() -> None:
    body = attribute(1, u32(3)) + attribute(2, text("mlx5_2")) + attribute(6, (7).to_bytes(8, "little"))
    assert rdma.dump(Replies(body + attribute(84, b"\1"))) == [OURS]  # type: ignore[arg-type]
    assert rdma.dump(Replies(body))[0].adaptive is None  # type: ignore[arg-type]
    entries = (nested(16, attribute(17, text(name)), attribute(18, bytes([count, *[0] * 7]))) for name, count in LIST)
    assert rdma.resources(Replies(nested(15, *entries)), OURS) == dict(LIST)  # type: ignore[arg-type]


LIST = (("pd", 1), ("qp", 2), ("ctx", 0))
