"""A driver's settings for a device are afterwards as they were: rings, coalescing, pause frames, flags, features.

Virtual links have none of these, so this is about igb, igbvf and virtio-net. Read with ethtool alone.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from netdra.cni.plugins import PluginPath
from testbed.recorder import Recorder
from testbed.waiting import until
from tests.hardware.node import PATIENCE, PF, ip
from tests.hardware.pods import Pod, allocated, assert_as_before, node_state
from tests.plans import plan, step

POD = '"$(basename "$CNI_NETNS")"'
RESULT = """echo '{"interfaces": [{"name": "'"$CNI_IFNAME"'", "sandbox": "'"$CNI_NETNS"'"}]}'"""
OPTIONS = ("-k", "-g", "-c", "-l", "-a", "--show-priv-flags")
OF_A_VF = (
    "-G net1 rx 512 tx 128",
    "-C net1 rx-usecs 50",
    "-K net1 gro off",
    "-K net1 tx off",
    "-K net1 sg off",
)
OF_A_PF = (
    *OF_A_VF,
    "--set-priv-flags net1 legacy-rx on",
    "-A net1 autoneg off rx off tx off",
    "-K net1 rxvlan off",
    "-K net1 rxhash off",
)


def ethtool(option: str, name: str, netns: str = "") -> tuple[str, ...]:
    """The lines that ethtool prints, or its refusal."""
    inside = ("ip", "netns", "exec", netns) if netns else ()
    done = subprocess.run((*inside, "ethtool", option, name), capture_output=True, text=True, check=False)
    lines = (done.stdout or done.stderr).splitlines()
    # What both ends of the link have agreed on changes with its carrier.
    return tuple(line for line in lines if name not in line and "negotiated" not in line.lower())


def settings_of(name: str, netns: str = "") -> dict[str, tuple[str, ...]]:
    return {option: ethtool(option, name, netns) for option in OPTIONS}


def changed_in(pod: Pod, commands: tuple[str, ...]) -> set[str]:
    """Do what a pod with NET_ADMIN does; return the options of ethtool that show it. The driver refuses some."""
    before = settings_of("net1", pod.netns)
    for command in commands:
        words = ("ip", "netns", "exec", pod.netns, "ethtool", *command.split())
        subprocess.run(words, capture_output=True, check=False)
    now = settings_of("net1", pod.netns)
    return {option for option in OPTIONS if before[option] != now[option]}


def mover(plugins: PluginPath, name: str) -> Recorder:
    """A plugin that takes a link into the pod and returns nothing on DEL."""
    plugin = Recorder(Path(plugins.directories[0]), "driven")
    move = f'ip link set {name} netns {POD} && ip -n {POD} link set {name} name "$CNI_IFNAME" up'
    plugin.does("ADD", f"{move} || exit 1; {RESULT}")
    plugin.succeeds("DEL")
    return plugin


@pytest.mark.parametrize("kind", ["sriov", "host-device", "binary"])
def test_driver_settings_changed_by_a_pod_on_a_vf_are_restored_after_detach(
    pfs: tuple[PF, ...], pod: Pod, plugins: PluginPath, kind: str
) -> None:
    vf = pfs[0].vf(2)
    before, settings, name = node_state(), settings_of(vf.name), vf.name
    used = mover(plugins, name).name if kind == "binary" else kind
    pod.attach(plan(step("vf", used, "net1", device=allocated(vf))))
    assert changed_in(pod, OF_A_VF) >= {"-k", "-g", "-c"}
    report = pod.detach()
    assert report.is_clean, str(report)
    assert settings_of(name) == settings
    assert_as_before(before, pod.settings)


@pytest.mark.parametrize("gone", [False, True])
def test_driver_settings_changed_by_a_pod_on_a_pf_are_restored_after_detach(
    pfs: tuple[PF, ...], set_num_vfs: Callable[[PF, int], None], new_pod: Callable[[], Pod], gone: bool
) -> None:
    pf = pfs[1]
    set_num_vfs(pf, 0)  # its driver resets it: VFs would keep their MACs for good
    pod = new_pod()
    before, settings, name = node_state(), settings_of(pf.name), pf.name
    pod.attach(plan(step("pf", "host-device", "net1", device=allocated(pf, allow_host_use=True))))
    # With the machine's one processor there is nothing else that channels (-l) could be.
    assert changed_in(pod, OF_A_PF) == set(OPTIONS) - {"-l"}
    if gone:
        ip("netns", "delete", pod.netns)
    report = pod.detach()
    assert report.is_clean, str(report)
    until(lambda: settings_of(name) == settings, "the PF to be as it was", seconds=PATIENCE)
    assert_as_before(before, pod.settings)


def test_sysctls_of_the_neighbours_of_a_vf_come_back_with_it(pfs: tuple[PF, ...], new_pod: Callable[[], Pod]) -> None:
    """The kernel forgets them when the link moves; so the node's own must be there again."""
    vf, pod = pfs[0].vf(3), new_pod()
    own = {"ipv4/neigh": ("app_solicit", "7"), "ipv6/neigh": ("gc_stale_time", "77"), "ipv4/conf": ("arp_ignore", "1")}
    values = {Path("/proc/sys/net", folder, vf.name, file): value for folder, (file, value) in own.items()}
    for path, value in values.items():
        path.write_text(value)
    pod.attach(plan(step("vf", "sriov", "net1", device=allocated(vf))))
    assert pod.detach().is_clean
    assert {path: path.read_text().strip() for path in values} == values
    for path in values:
        path.write_text((path.parents[1] / "default" / path.name).read_text())
