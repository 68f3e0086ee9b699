"""The rdma step on software RDMA (rxe): a device's files, and the unsupported actions.

Software RDMA devices cannot be moved to another namespace, and end when their netdev is.
"""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from netdra.chain import site as sites
from netdra.chain.check import check
from netdra.chain.checkpoint import PodIdentity
from netdra.chain.report import AttachError
from netdra.discovery.scan import scan
from netdra.kernel.rdma import gid_table
from netdra.kernel.sysfs import Sysfs
from netdra.model.plan import PlannedStep
from netdra.steps import rdma_state
from netdra.steps.settings import StrandedError
from testbed.waiting import until
from tests.hardware.node import PATIENCE, PF, ip, run
from tests.hardware.pods import Pod, allocated, assert_as_before, node_state
from tests.plans import plan, step


def rdma_devices(netns: str = "") -> list[str]:
    """The RDMA devices of a namespace, as `rdma` states."""
    inside = ("ip", "netns", "exec", netns) if netns else ()
    return [device["ifname"] for device in json.loads(run(*inside, "rdma", "-j", "dev", "show"))]


@pytest.fixture
def rxe(pfs: tuple[PF, ...]) -> Iterator[str]:
    """A software RDMA device on a PF."""
    run("modprobe", "rdma_ucm")
    run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", pfs[0].name)
    yield "rxe0"
    assert rdma_devices() == ["rxe0"]
    run("rdma", "link", "delete", "rxe0")


@pytest.fixture
def exclusive(rxe: str) -> Iterator[None]:
    """Each RDMA device is in one namespace; the kernel lets the mode change only without other namespaces."""
    run("rdma", "system", "set", "netns", "exclusive")
    yield
    until(_shared_again, "RDMA devices to be shared again", seconds=PATIENCE)


def _shared_again() -> bool:
    run("rdma", "system", "set", "netns", "shared", check=False)
    return "netns shared" in run("rdma", "system", "show")


def chain(pfs: tuple[PF, ...], rxe: str) -> tuple[PlannedStep, ...]:
    """A VF, and the RDMA device beside it."""
    return (
        step("vf", "sriov", "net1", device=allocated(pfs[0].vf(0), rdma_device=rxe)),
        step("roce", "rdma", "net1", {"rdmaDevice": rxe}, after=["vf"]),
    )


def test_shared_devices_are_given_by_their_files(pfs: tuple[PF, ...], rxe: str, pod: Pod) -> None:
    before = node_state()
    report = pod.attach(plan(*chain(pfs, rxe)))

    (device,) = report.steps[1].result.devices
    assert device.rdma_device == rxe
    assert device.device_nodes == ("/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm")
    assert all(stat.S_ISCHR(Path(node).stat().st_mode) for node in device.device_nodes)
    assert [each.name for each in report.steps[1].result.interfaces] == ["net1"]
    # Under emulation a VF that was just set up may take longer to get its link than `check` waits.
    until(
        lambda: check(pod.netns, pod.settings).is_clean,
        "the pod's network to be as it should be",
        seconds=PATIENCE,
        detail=lambda: str([step.drift for step in check(pod.netns, pod.settings).steps]),
    )

    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


# RDMA_USER_CM_CMD_CREATE_ID, _BIND and _QUERY_ROUTE (include/uapi/rdma/rdma_user_cm.h): a process that listens at an
# address of its namespace, and the node GUID of the RDMA device to which the kernel has bound it.
_BIND = """
import ctypes, os, socket, struct, sys
cm = os.open("/dev/infiniband/rdma_cm", os.O_RDWR)
answer = ctypes.create_string_buffer(512)
def ask(command, body, size):
    os.write(cm, struct.pack("=IHH", command, len(body), size) + body)
where = ctypes.addressof(answer)
ask(0, struct.pack("=QQHB5x", 1, where, 0x106, 2), 4)
number, = struct.unpack_from("=I", answer)
address = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(7000), socket.inet_aton(sys.argv[1]))
ask(20, struct.pack("=IHH128s", number, len(address), 0, address), 0)
ask(5, struct.pack("=QII", where, number, 0), 256)
print(answer.raw[:8].hex())
"""


def sharing(pf: PF, rxe: str, number: int, **config: Any) -> tuple[PlannedStep, ...]:
    """A macvlan on a PF that pods share, and the PF's RDMA device."""
    addresses = {"type": "static", "addresses": [{"address": f"10.9.0.{number}/24"}]}
    device = allocated(pf, rdma_device=rxe, share_id=f"s{number}", request="nic")
    nic = step("nic", "macvlan", "net1", {"master": pf.name, "mode": "bridge", "ipam": addresses}, device=device)
    return nic, step("roce", "rdma", "net1", config, after=["nic"])


def gids(rxe: str) -> dict[str, str]:
    """The entries of the GID table, each with the name of its netdev."""
    port = Path(f"/sys/class/infiniband/{rxe}/ports/1")
    read = ((entry.name, entry.read_text().strip()) for entry in sorted((port / "gids").iterdir(), key=_number)[:16])
    return {gid: (port / "gid_attrs/ndevs" / at).read_text().strip() for at, gid in read if set(gid) != {"0", ":"}}


def _number(entry: Path) -> int:
    return int(entry.name)


def test_pods_share_an_rdma_device_each_with_the_gids_of_its_own_interface(
    pfs: tuple[PF, ...], rxe: str, new_pod: Callable[[], Pod]
) -> None:
    """Between them rxe of Linux 6.12 passes no data: it searches routes and listens in the first namespace alone."""
    ip("link", "set", pfs[0].name, "up")
    before = gids(rxe)
    table = gid_table(Sysfs(), rxe)
    pods = [new_pod() for _ in range(3)]
    for number, pod in enumerate(pods, 1):
        report = pod.attach(plan(*sharing(pfs[0], rxe, number)))
        (device,) = report.steps[1].result.devices
        assert (device.rdma_device, device.device_nodes) == (
            rxe,
            ("/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"),
        )
    until(lambda: len(gids(rxe)) >= len(before) + 6, "a GID of each address", seconds=PATIENCE)
    found = gids(rxe)
    # What `exposure` computes for a child: IPv4 and IPv6, for each version of RoCE.
    assert len(found) - len(before) == len(pods) * 2 * table.versions
    assert {f"0000:0000:0000:0000:0000:ffff:0a09:000{number}" for number in (1, 2, 3)} < found.keys()
    guid = Path(f"/sys/class/infiniband/{rxe}/node_guid").read_text().strip().replace(":", "")
    for number, pod in enumerate(pods, 1):
        inside = ("ip", "netns", "exec", pod.netns, sys.executable, "-S", "-c", _BIND)
        assert run(*inside, f"10.9.0.{number}").strip() == guid
        assert run(*inside, f"10.9.0.{number % 3 + 1}", check=False) == ""
        assert check(pod.netns, pod.settings).is_clean
    assert all(pod.detach().is_clean for pod in pods)
    until(lambda: gids(rxe) == before, "the GIDs of the pods to be gone", seconds=PATIENCE)


def test_a_shared_device_of_a_node_in_exclusive_mode_is_rejected_at_the_step(
    pfs: tuple[PF, ...], rxe: str, exclusive: None, pod: Pod
) -> None:
    before = node_state()
    with pytest.raises(AttachError, match='RDMA device "rxe0" is shared, but the RDMA namespace mode of the node'):
        pod.attach(plan(*sharing(pfs[0], rxe, 1)))
    facts = next(each for each in scan().interfaces if each.pci_address == pfs[0].pci)
    assert (facts.rdma_device, facts.rdma_mode, facts.gid_entries, facts.gid_versions) == (rxe, "exclusive", 1024, 1)
    assert_as_before(before, pod.settings)


def test_an_exclusive_device_that_cannot_move_is_an_error_and_all_is_undone(
    pfs: tuple[PF, ...], rxe: str, exclusive: None, pod: Pod
) -> None:
    """Software devices cannot (drivers/infiniband/core/device.c, ib_device_set_netns_put)."""
    before = node_state()
    with pytest.raises(AttachError, match='cannot move RDMA device "rxe0": Operation not supported'):
        pod.attach(plan(*chain(pfs, rxe)))
    assert rdma_devices() == [rxe]
    assert_as_before(before, pod.settings)


def test_a_software_device_whose_netdev_would_move_is_refused_before_it_is_lost(pfs: tuple[PF, ...], pod: Pod) -> None:
    """The kernel ends a software RDMA device when its netdev leaves the namespace."""
    vf = pfs[1].vf(0)
    run("rdma", "link", "add", "rxe1", "type", "rxe", "netdev", vf.name)
    try:
        with pytest.raises(AttachError, match="rxe1"):
            pod.attach(plan(step("roce", "rdma", "net1", device=allocated(vf, rdma_device="rxe1"))))
        assert rdma_devices() == ["rxe1"]
        assert vf.name
    finally:
        run("rdma", "link", "delete", "rxe1", check=False)


# IB_USER_VERBS_CMD_GET_CONTEXT (include/uapi/rdma/ib_user_verbs.h): a process that has a device open.
_OPEN = """
import ctypes, os, struct
answer = ctypes.create_string_buffer(64)
device = os.open("/dev/infiniband/uverbs0", os.O_RDWR)
os.write(device, struct.pack("=IHHQ", 0, 4, 2, ctypes.addressof(answer)))
print("open", flush=True)
input()
"""


def test_an_rdma_device_is_restored_and_held_while_a_process_still_uses_it(rxe: str, pod: Pod) -> None:
    with sites.opened(PodIdentity(sandbox=pod.netns), None, pod.settings, 60.0) as site:
        state = rdma_state.seen(rxe, "")
        assert state is not None
        with subprocess.Popen(
            (sys.executable, "-S", "-c", _OPEN), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as user:
            assert user.stdout is not None
            assert user.stdout.readline() == "open\n"
            run("rdma", "dev", "set", rxe, "name", "evil0")
            assert rdma_state.differences(state, site) == (
                'RDMA device "rxe0" is called "evil0"',
                'RDMA device "rxe0" still has 1 ctx',
            )
            with pytest.raises(StrandedError, match='RDMA device "rxe0" still has 1 ctx'):
                rdma_state.restore(state, site)
            user.kill()
        assert rdma_state.restore(state, site) == ()
        assert (rdma_devices(), rdma_state.differences(state, site)) == ([rxe], ())


def test_the_name_that_a_pod_gave_an_rdma_device_is_undone(pfs: tuple[PF, ...], rxe: str, pod: Pod) -> None:
    pod.attach(plan(*chain(pfs, rxe)))
    run("rdma", "dev", "set", rxe, "name", "evil0")
    report = pod.detach()
    assert report.is_clean, str(report)
    assert rdma_devices() == [rxe]


def test_no_device_of_that_name_is_an_error(pfs: tuple[PF, ...], rxe: str, new_pod: Callable[[], Pod]) -> None:
    with pytest.raises(AttachError, match='no RDMA device "mlx5_0"'):
        new_pod().attach(plan(*chain(pfs, "mlx5_0")))
