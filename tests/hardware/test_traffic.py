"""The traffic of VFs in pods is that of their netdev there; a PF that counts nothing for VFs yields no zeros."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from netdra.chain import checkpoint
from netdra.kernel import counters, wire
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from netdra.node.sandboxes.namespaces import Namespaces
from netdra.node.traffic import reader
from netdra.node.traffic.reader import Traffic
from tests.hardware.node import PATIENCE, PF, VF, ping, run, up
from tests.hardware.pods import Pod, allocated
from tests.kernel.kernel.test_wire import listening
from tests.plans import plan, step

PINGS = 5


@pytest.fixture
def namespaces() -> Iterator[Namespaces]:
    found = Namespaces()
    yield found
    found.close()


def of_pf(vf: VF, pf: PF) -> dict[str, Any]:
    """The facts of a VF that name its PF."""
    return {"type": "vf", "pf_name": pf.name, "vf_index": vf.index}


def packets(page: bytes) -> dict[tuple[str, str], int]:
    """The received packets by pod and interface."""
    lines = re.findall(
        r'^netdra_pod_network_receive_packets_total\{.*pod="([^"]*)".*interface="([^"]*)".*\} (\d+)$',
        page.decode(),
        re.MULTILINE,
    )
    return {(pod, interface): int(count) for pod, interface, count in lines}


def test_vfs_in_pods_are_counted_there_and_a_vf_in_user_space_only_if_its_pf_counts(
    pfs: tuple[PF, ...], new_pod: Callable[[], Pod], namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "FRESH_SECONDS", 0.0)
    pf, pod, other_pod = pfs[0], new_pod(), new_pod()
    for number, each in enumerate((pod, other_pod), start=1):
        vf = pf.vf(number)
        ipam = {"type": "static", "addresses": [{"address": f"10.5.0.{number}/24"}]}
        user_space = pf.vf(number + 2)
        each.attach(
            plan(
                step("net", "sriov", "net1", {"ipam": ipam}, device=allocated(vf, **of_pf(vf, pf))),
                step("user", "vfio-pci", "net2", device=allocated(user_space, **of_pf(user_space, pf))),
            )
        )
        namespaces.hold(each.netns, each.path)
    exported = Traffic(lambda: checkpoint.load_all(pod.settings.state)[0], namespaces.opened, 100)
    ping("10.5.0.2", pod.netns)
    before = packets(exported.page())
    for _ in range(PINGS):
        ping("10.5.0.2", pod.netns)
    after = packets(exported.page())
    ends = {(pod.netns, "net1"), (other_pod.netns, "net1")}
    assert all(after[end] - before[end] >= PINGS for end in ends)
    with Socket() as sock:
        counted = counters.of_vfs(sock, pf.name)
    assert set(counted) == set(range(len(pf.vfs())))
    # The kernel reports zeros for each VF of a driver without counters, such as igb: no series has them.
    has_counters = any(any(link) for link in counted.values())
    assert {end for end in after if not end[1]} == ({(pod.netns, ""), (other_pod.netns, "")} if has_counters else set())


def test_the_loss_and_the_delay_of_a_wire_between_two_vfs_are_measured(
    pfs: tuple[PF, ...], new_pod: Callable[[], Pod]
) -> None:
    here, there = new_pod(), new_pod()
    for number, (pod, pf) in enumerate(zip((here, there), pfs, strict=True), start=1):
        ipam = {"type": "static", "addresses": [{"address": f"10.5.1.{number}/24"}]}
        pod.attach(plan(step("net", "sriov", "net1", {"ipam": ipam}, device=allocated(pf.vf(number)))))
        up("net1", pod.netns)
    run("tc", "-n", here.netns, "qdisc", "add", "dev", "net1", "root", "netem", "loss", "20%", "delay", "30ms")
    with listening(there.netns), Namespace.open(here.path) as space:
        report = space.run(lambda: wire.measure("10.5.1.2", seconds=2.0, rate=2e6, patience=PATIENCE))
    assert report.sent > 200
    assert 0.08 < report.loss < 0.35
    assert report.round_trip > 0.03
