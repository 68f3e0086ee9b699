"""VFs that are dead after a reset: check reports them and repairs them; and the remains of a VF when its pod ends."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.chain.check import check
from netdra.chain.report import AttachError, CheckReport
from netdra.cni.plugins import PluginPath
from testbed.waiting import until
from tests.hardware.node import PATIENCE, PF, VF, ip, links, up
from tests.hardware.pods import Pod, allocated, assert_as_before, node_state, of_pf
from tests.plans import plan, step

ADDRESSES = ["10.1.0.5/24", "2001:db8::5/64"]
ROUTES = [{"destination": "10.7.0.0/16", "gateway": "10.1.0.1"}]


def is_linked(pod: Pod) -> bool:
    return "LOWER_UP" in links(pod.netns)["net1"]["flags"]


def reset(pod: Pod, vf: VF) -> None:
    """Reset the VF of a pod (FLR), after which it is dead."""
    until(lambda: is_linked(pod), "the VF's carrier", seconds=PATIENCE)
    assert check(pod.netns, pod.settings).is_clean
    (vf.folder / "reset").write_text("1")
    until(lambda: not is_linked(pod), "the VF to be dead", seconds=PATIENCE)


def network(pod: Pod) -> Any:
    """The addresses and routes of a pod, but for those that the kernel makes itself."""
    names = sorted(name for name in links(pod.netns) if name != "lo")
    routes = [
        [each.get(key) for key in ("dst", "gateway", "dev")]
        for family in ("-4", "-6")
        for each in json.loads(ip("-j", family, "route", netns=pod.netns))
        if each["dst"] not in ("fe80::/64", "ff00::/8")
    ]
    return {name: pod.addresses(name) for name in names}, sorted(routes, key=str)


def drift(report: CheckReport) -> list[str]:
    assert report.problems == ()
    return [text for each in report.steps for text in each.drift]


def with_networks(pod: Pod, vf: VF) -> None:
    """Addresses and routes on the VF, and on a VLAN on top of it."""
    on_top = {
        "master": "{{ vf.interfaceName }}",
        "id": 7,
        "ipam": {"type": "static", "addresses": [{"address": "10.2.0.5/24"}]},
    }
    pod.attach(
        plan(
            step("vf", "sriov", "net1", {"trust": "on", "mac": "02:00:00:00:77:09"}, device=allocated(vf)),
            step("tune", "tuning", "net1", {"addresses": ADDRESSES, "routes": ROUTES}, after=["vf"]),
            step("data", "vlan", "data0", on_top, after=["vf"]),
            step(
                "more",
                "tuning",
                "data0",
                {"routes": [{"destination": "10.8.0.0/16", "gateway": "10.2.0.1"}]},
                after=["data"],
            ),
        )
    )


def test_a_dead_vf_is_reported_and_repaired_with_all_that_the_pod_has(pfs: tuple[PF, ...], pod: Pod) -> None:
    pf, vf = pfs[0], pfs[0].vf(2)
    with_networks(pod, vf)
    before = network(pod)
    reset(pod, vf)
    ip("link", "set", pf.name, "vf", "2", "trust", "off")
    no_link = f'VF {vf.pci} has no link, though its PF "{pf.name}" has one'
    assert drift(check(pod.netns, pod.settings)) == [f"VF {vf.pci}: trust is False, not True", no_link]

    report = check(pod.netns, pod.settings, repair=True)

    assert drift(report) == []
    assert [text for each in report.steps for text in each.repaired] == [
        f"VF {vf.pci}: trust was set to True",
        f'VF {vf.pci}: interface "net1" was set down and up; it has its link again',
    ]
    assert (is_linked(pod), of_pf(vf)["trust"], of_pf(vf)["address"]) == (True, True, "02:00:00:00:77:09")
    assert network(pod) == before
    assert [text for each in check(pod.netns, pod.settings, repair=True).steps for text in each.repaired] == []


def test_a_vf_whose_pf_was_down_is_repaired_if_it_does_not_come_back_by_itself(pfs: tuple[PF, ...], pod: Pod) -> None:
    pf, vf = pfs[0], pfs[0].vf(2)
    with_networks(pod, vf)
    until(lambda: is_linked(pod), "the VF's carrier", seconds=PATIENCE)
    before = network(pod)
    ip("link", "set", pf.name, "down")
    until(lambda: not is_linked(pod), "the VF to lose its link", seconds=PATIENCE)
    assert drift(check(pod.netns, pod.settings)) == []
    up(pf.name)
    assert drift(check(pod.netns, pod.settings, repair=True)) == []
    assert is_linked(pod)
    assert network(pod)[0] == before[0]


def test_a_vlan_is_refused_with_the_cause_while_the_pf_is_not_up_yet_and_the_next_try_succeeds(
    pfs: tuple[PF, ...], pod: Pod
) -> None:
    before = node_state()
    made = plan(
        step("vf", "sriov", "net1", device=allocated(pfs[0].vf(2))),
        step("data", "vlan", "data0", {"master": "net1", "id": 7}, after=["vf"]),
    )
    ip("link", "set", pfs[0].name, "down")
    ip("link", "set", pfs[0].name, "up")
    with pytest.raises(AttachError, match=r'step "data" .*: VLAN 7 is refused, because VF "net1" has no link .*EINVAL'):
        pod.attach(made)
    up(pfs[0].name)
    pod.attach(made)
    assert pod.link("data0")["linkinfo"]["info_data"]["id"] == 7
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


@pytest.mark.parametrize("kind", ["host-device", "sriov"])
def test_the_dead_vf_of_a_program_is_reported_and_repaired(pfs: tuple[PF, ...], pod: Pod, kind: str) -> None:
    pf, vf = pfs[0], pfs[0].vf(3)
    config = {"ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/24"}]}} | (
        {"vlan": 100} if kind == "sriov" else {}
    )
    pod.attach(plan(step("vf", kind, "net1", config, device=allocated(vf), binary=True)))
    if kind == "host-device":
        ip("link", "set", "net1", "up", netns=pod.netns)
    reset(pod, vf)
    no_link = f'VF {vf.pci} has no link, though its PF "{pf.name}" has one'
    if kind == "sriov":
        ip("link", "set", pf.name, "vf", "3", "vlan", "200")
        assert drift(check(pod.netns, pod.settings)) == [f"VF {vf.pci}: vlan is 200, not 100", no_link]
    else:
        assert drift(check(pod.netns, pod.settings)) == [no_link]
    assert drift(check(pod.netns, pod.settings, repair=True)) == []
    assert pod.addresses("net1") == {"10.1.0.5/24"}


def test_a_pod_that_set_its_interface_down_has_no_dead_vf(pfs: tuple[PF, ...], pod: Pod) -> None:
    vf = pfs[1].vf(2)
    pod.attach(plan(step("vf", "sriov", "net1", device=allocated(vf))))
    ip("link", "set", "net1", "down", netns=pod.netns)
    assert drift(check(pod.netns, pod.settings)) == ['interface "net1" is down']
    assert check(pod.netns, pod.settings, repair=True).steps[0].repaired == ()


def test_a_name_that_a_pod_gave_its_vf_goes_with_its_namespace(pfs: tuple[PF, ...], pod: Pod) -> None:
    vf = pfs[0].vf(4)
    before = node_state()
    pod.attach(plan(step("vf", "sriov", "net1", device=allocated(vf))))
    ip("link", "property", "add", "dev", "net1", "altname", "pods-own", netns=pod.netns)
    ip("netns", "delete", pod.netns)
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


# As sriov-cni since 2.8: it notes which namespace has a VF, and gives the VF to no other one while that is there.
_SRIOV = """#!/bin/sh
note=/var/lib/cni/sriov/pci/{vf}
refuse() {{ printf '{{"code": 999, "msg": "%s"}}' "$1"; exit 1; }}
case $CNI_COMMAND in
ADD)
  [ ! -e $note ] || [ ! -e "$(cat $note)" ] || refuse "pci address {vf} is already allocated"
  {real} || exit 1
  mkdir -p /var/lib/cni/sriov/pci && printf %s "$CNI_NETNS" >$note ;;
DEL) refuse "error obtaining VF ID" ;;
*) exec {real} ;;
esac
"""


def test_a_vf_whose_sriov_cni_failed_on_del_is_free_for_the_next_pod(
    pfs: tuple[PF, ...], new_pod: Callable[[], Pod], plugins: PluginPath, tmp_path: Path
) -> None:
    vf = pfs[1].vf(5)
    program = tmp_path / "first" / "sriov"
    program.parent.mkdir()
    program.write_text(_SRIOV.format(vf=vf.pci, real=Path(plugins.directories[0]) / "sriov"))
    program.chmod(0o755)
    pods = []
    for _ in range(2):
        made = new_pod()
        both = PluginPath(directories=(str(program.parent), *plugins.directories))
        pods.append(Pod(netns=made.netns, settings=msgspec.structs.replace(made.settings, plugins=both)))
    for pod in pods:
        pod.attach(plan(step("vf", "sriov", "net1", device=allocated(vf), binary=True)))
        report = pod.detach()
        assert report.is_undone, str(report)
        assert any("its DEL failed, but its device is unchanged" in note for note in report.notes)
    assert subprocess.run(("ls", "/var/lib/cni/sriov/pci"), capture_output=True, text=True, check=True).stdout == ""
