"""VFs that binaries had: the next pod finds one as this pod did, despite the plugin's remains; and check's findings.

The emulated 82576 (igb) has no link state and no minimum rate, so those are not among the spoiled settings.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from netdra.chain.check import check
from netdra.cni.plugins import PluginPath
from testbed.recorder import Recorder
from tests.hardware.node import PF, ip
from tests.hardware.pods import Pod, allocated, assert_as_before, node_state, of_pf
from tests.plans import plan, step

POD = '"$(basename "$CNI_NETNS")"'
RESULT = """echo '{"interfaces": [{"name": "'"$CNI_IFNAME"'", "sandbox": "'"$CNI_NETNS"'"}]}'"""


@pytest.fixture
def liar(plugins: PluginPath) -> Recorder:
    """A plugin that states on DEL that all is well, and does nothing."""
    plugin = Recorder(Path(plugins.directories[0]), f"liar{len(list(Path(plugins.directories[0]).glob('liar*')))}")
    plugin.succeeds("DEL")
    return plugin


def spoils(plugin: Recorder, pf: PF, index: int) -> None:
    """ADD sets the VF up through its PF and takes it into the pod with another name and MTU."""
    vf, name = f"ip link set {pf.name} vf {index}", pf.vf(index).name
    settings = ("vlan 100 qos 3", "mac 02:00:00:00:00:99", "trust on", "spoofchk off", "max_tx_rate 200")
    through = " && ".join(f"{vf} {each}" for each in settings)
    move = f'ip link set {name} netns {POD} && ip -n {POD} link set {name} name "$CNI_IFNAME" mtu 1400 up'
    plugin.does("ADD", f"{through} && {move} || exit 1; {RESULT}")


@pytest.mark.parametrize("gone", [False, True])
def test_a_vf_that_its_plugin_does_not_reset_is_restored_for_the_next_pod(
    pfs: tuple[PF, ...], new_pod: Callable[[], Pod], liar: Recorder, gone: bool
) -> None:
    vf = pfs[0].vf(1)
    spoils(liar, pfs[0], vf.index)
    before, first = node_state(), new_pod()
    first.attach(plan(step("vf", liar.name, "net1", device=allocated(vf))))
    assert of_pf(vf)["vlan_list"][0]["vlan"] == 100
    if gone:
        ip("netns", "delete", first.netns)
    report = first.detach()
    assert report.is_clean, str(report)
    assert any("has VLAN 100, not 0" in text for text in report.restored)
    assert_as_before(before, first.settings)
    second = new_pod()
    second.attach(plan(step("vf", "sriov", "net1", device=allocated(vf))))
    assert second.detach().is_clean
    assert_as_before(before, second.settings)


def test_sriov_cni_leaves_nothing_on_a_vf_whose_pods_namespace_went_first(pfs: tuple[PF, ...], pod: Pod) -> None:
    vf = pfs[0].vf(2)
    before = node_state()
    pod.attach(plan(step("vf", "sriov", "net1", {"vlan": 100}, device=allocated(vf), binary=True)))
    assert of_pf(vf)["vlan_list"][0]["vlan"] == 100
    ip("netns", "delete", pod.netns)
    report = pod.detach()
    assert report.is_clean, str(report)
    assert_as_before(before, pod.settings)


def test_a_vf_that_its_plugin_bound_to_a_userspace_driver_has_its_own_again(
    pfs: tuple[PF, ...], pod: Pod, liar: Recorder
) -> None:
    vf = pfs[0].vf(3)
    folder, before = f"/sys/bus/pci/devices/{vf.pci}", node_state()
    bind = f"echo vfio-pci >{folder}/driver_override; echo {vf.pci} >{folder}/driver/unbind"
    liar.does("ADD", f"{bind}; echo {vf.pci} >/sys/bus/pci/drivers_probe; {RESULT}")
    pod.attach(plan(step("vf", liar.name, "net1", device=allocated(vf))))
    assert vf.driver == "vfio-pci"
    # The interface that the result tells of is not there, and cannot be: that is neither well nor drift.
    (looked,) = check(pod.netns, pod.settings).steps
    assert (looked.drift, "is bound to driver vfio-pci" in looked.skipped) == ((), True)
    report = pod.detach()
    assert any("has driver vfio-pci, not igbvf" in text for text in report.restored), str(report)
    assert_as_before(before, pod.settings)


def test_a_member_that_was_renamed_or_left_its_bond_is_seen(pfs: tuple[PF, ...], pod: Pod, liar: Recorder) -> None:
    inside = f"ip -n {POD}"
    enslave = [f"{inside} link set {name} down; {inside} link set {name} master bond0" for name in ("net1", "net2")]
    liar.does("ADD", f"{inside} link add bond0 type bond mode active-backup || exit 1; {'; '.join(enslave)}; {RESULT}")
    liar.does("DEL", f"{inside} link del bond0; true")
    pod.attach(
        plan(
            step("a", "sriov", "net1", device=allocated(pfs[0].vf(4))),
            step("b", "sriov", "net2", device=allocated(pfs[1].vf(4))),
            step("bond", liar.name, "bond0", {"links": [{"name": "net1"}, {"name": "net2"}]}, after=["a", "b"]),
        )
    )
    assert check(pod.netns, pod.settings).steps[2].drift == ()
    for name in ("net1", "net2"):
        ip("link", "set", name, "nomaster", netns=pod.netns)
    ip("link", "set", "net2", "down", netns=pod.netns)
    ip("link", "set", "net2", "name", "away", netns=pod.netns)
    assert check(pod.netns, pod.settings).steps[2].drift == (
        'interface "net1" is not in bond "bond0"',
        'interface "net2" of bond "bond0" does not exist',
    )
    assert pod.detach().is_clean


def test_a_vf_that_its_plugin_hid_is_stranded_until_it_is_back_if_it_must_not_be_reset(
    pfs: tuple[PF, ...], pod: Pod, liar: Recorder
) -> None:
    """Where netdra cannot search for it; a reset would bring it back from anywhere."""
    vf = pfs[0].vf(5)
    name, hidden = vf.name, f"{pod.netns}-hidden"
    ip("netns", "add", hidden)
    try:
        liar.does("ADD", f"ip link set {name} netns {hidden}; echo '{{}}'")
        pod.attach(plan(step("vf", liar.name, "net1", device=allocated(vf, reset="Never"))))
        report = pod.detach()
        assert report.is_stranded
        assert "neither in the pod nor on the host" in report.undone[0].message
        subprocess.run(("ip", "-n", hidden, "link", "set", name, "netns", "1"), check=True)
        assert pod.detach().is_clean
    finally:
        ip("netns", "delete", hidden)
