"""A pod with all rights changes everything that the driver of its NIC lets it change: the node sees no difference.

The emulated 82576 has flow rules, an RSS table, link modes, EEE, wake-on-LAN and message levels; its VFs have few.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from tests.hardware.node import PF
from tests.hardware.pods import Pod, allocated, differences
from tests.hostile_pod import NAME, Act, as_called, view
from tests.plans import plan, step

EVERYTHING: Sequence[Act] = (
    ("ethtool", "-s", NAME, "speed", "10", "duplex", "half", "autoneg", "off"),
    ("ethtool", "-s", NAME, "wol", "g"),
    ("ethtool", "-s", NAME, "msglvl", "63"),
    ("ethtool", "--set-eee", NAME, "eee", "off"),
    ("ethtool", "-X", NAME, "weight", "1"),
    ("ethtool", "-N", NAME, "rx-flow-hash", "udp4", "sdfn"),
    ("ethtool", "-N", NAME, "flow-type", "ether", "proto", "0x88b5", "action", "0"),
    ("ethtool", "-C", NAME, "rx-usecs", "9"),
    ("ethtool", "-G", NAME, "rx", "128", "tx", "128"),
    ("ethtool", "-A", NAME, "autoneg", "off", "rx", "off", "tx", "off"),
    ("ethtool", "-K", NAME, "ntuple", "on", "rxhash", "off"),
    ("ip", "link", "set", "dev", NAME, "arp", "off", "multicast", "off"),
    ("sh", "-c", f"for file in /sys/class/net/{NAME}/queues/*/?ps_cpus; do echo 2 >$file; done"),
    ("sh", "-c", f"echo 5000 >/sys/class/net/{NAME}/gro_flush_timeout"),
    ("sh", "-c", f"echo 3 >/sys/class/net/{NAME}/napi_defer_hard_irqs"),
)


def on_node(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=check)


def act_inside(pod: Pod, acts: Sequence[Act]) -> list[Act]:
    """Do what a pod does to its device; return what the driver took."""
    done = [(act, on_node("ip", "netns", "exec", pod.netns, *as_called(act, "net1"), check=False)) for act in acts]
    return [act for act, result in done if result.returncode == 0]


def test_a_pod_that_changes_all_of_a_pf_leaves_nothing_on_it(pfs: tuple[PF, ...], pod: Pod) -> None:
    pf = pfs[1]
    before = view(on_node, pf.name)
    pod.attach(plan(step("nic", "host-device", "net1", device=allocated(pf, allow_host_use=True))))
    taken = act_inside(pod, EVERYTHING)
    # A driver that takes nothing would prove nothing.
    assert len(taken) >= 10, taken
    report = pod.detach()
    assert report.is_clean, str(report)
    assert differences(before, view(on_node, pf.name)) == []


def test_a_pod_that_changes_all_of_a_vf_leaves_nothing_on_it(pfs: tuple[PF, ...], pod: Pod) -> None:
    vf = pfs[0].vf(2)
    before = view(on_node, vf.name)
    pod.attach(plan(step("nic", "sriov", "net1", device=allocated(vf))))
    assert act_inside(pod, EVERYTHING)
    report = pod.detach()
    assert report.is_clean, str(report)
    assert differences(before, view(on_node, vf.name)) == []
