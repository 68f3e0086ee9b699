"""A PF that pods share, with a PCI address: OVN-Kubernetes' localnet, a program that takes it; and refused uses.

OVN-Kubernetes' program is a stand-in (`testbed.ovn`) on a real Open vSwitch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netdra.chain.report import AttachError
from netdra.chain.shares import changed_devices
from netdra.chain.site import ChainSettings
from netdra.cni.plugins import PluginPath
from netdra.model.plan import Plan, PlannedDevice
from testbed import yaml
from testbed.ovn import BRIDGE, OvnKubernetes
from testbed.recorder import Recorder
from tests.documents import TOPOLOGIES
from tests.hardware.conftest import making_pods
from tests.hardware.node import PF, TOTAL_VFS, VF, ip, run, up
from tests.hardware.pods import Pod, allocated, assert_as_before, node_state, of_pf
from tests.plans import on_devices, plan, step


@pytest.fixture
def ovn(plugins: PluginPath, open_vswitch: None) -> Iterator[OvnKubernetes]:
    """OVN-Kubernetes' program, and the bridge that it plugs pods into."""
    run("ovs-vsctl", "add-br", BRIDGE)
    program = OvnKubernetes(Path(plugins.directories[0]))
    yield program
    program.remove()
    run("ovs-vsctl", "del-br", BRIDGE)


@pytest.fixture
def uplink(pfs: tuple[PF, ...]) -> Iterator[PF]:
    """A PF that is a port of the node's bridge and has an address, an MTU and another name."""
    pf = pfs[1]
    name = pf.name
    ip("link", "add", "br-ex", "type", "bridge")
    ip("link", "set", name, "mtu", "1600", "master", "br-ex")
    ip("address", "add", "192.0.2.9/24", "dev", name)
    ip("link", "property", "add", "dev", name, "altname", "wan-port")
    up(name)  # igb begins anew with another MTU
    yield pf
    ip("link", "property", "del", "dev", name, "altname", "wan-port")
    ip("address", "del", "192.0.2.9/24", "dev", name)
    ip("link", "set", name, "nomaster", "mtu", "1500")
    ip("link", "delete", "br-ex")
    up(name)


def planned(name: str, **devices: PlannedDevice) -> Plan:
    steps = yaml.safe_load((TOPOLOGIES / f"{name}.yaml").read_text())["spec"]["steps"]
    return on_devices(yaml.safe_dump(steps), **{key.replace("_", "-"): each for key, each in devices.items()})


def external_id(interface: str, key: str) -> str:
    return run("ovs-vsctl", "get", "interface", interface, f'external_ids:"{key}"').strip().strip('"')


def test_pods_have_localnet_ports_on_a_pf_that_stays_as_it_is(
    uplink: PF, ovn: OvnKubernetes, new_pod: Callable[[], Pod]
) -> None:
    """Use cases B and C."""
    before, pods = node_state(), [new_pod(), new_pod()]
    for number, (pod, name) in enumerate(zip(pods, ("ovnk-localnet", "ovnk-localnet-tuned"), strict=True), 5):
        mac, address = f"0a:58:c0:a8:64:0{number}", f"192.168.100.{number}/24"
        ovn.annotate(f"default/{pod.netns}", "default/localnet-blue", mac, address)
        pod.attach(planned(name, localnet_port=allocated(uplink, share_id=f"s{number}")))
        assert (pod.link("net1")["address"], pod.addresses("net1")) == (mac, {address})
    assert [pod.link("net1")["mtu"] for pod in pods] == [1500, 9000]
    for port in ovn.ports:
        assert external_id(port.interface, "k8s.ovn.org/network") == "localnet-blue"
        assert external_id(port.interface, "k8s.ovn.org/nad") == "default/localnet-blue"
    assert not any("deviceID" in call.config for call in ovn.program.calls("ADD"))
    here = node_state()["links"]
    assert {name: here[name] for name in (uplink.name, "br-ex")} == {
        name: before["links"][name] for name in (uplink.name, "br-ex")
    }
    for pod in pods:
        report = pod.detach()
        assert (report.is_clean, report.restored) == (True, ()), str(report)
    assert_as_before(before, pods[0].settings)


def test_an_accelerated_pod_has_its_vf_and_the_node_has_it_back(
    pfs: tuple[PF, ...], ovn: OvnKubernetes, pod: Pod
) -> None:
    """Use case A. The emulated NIC has no representors: a veth stands for one."""
    vf = pfs[0].vf(3)
    ip("link", "add", "rep3", "type", "veth", "peer", "name", "wire3")
    before = node_state()
    ovn.has_function(vf.pci, representor="rep3")
    ovn.annotate(f"default/{pod.netns}", "default/tenant-blue", "0a:58:ac:1f:00:05", "172.31.0.5/24")
    pod.attach(planned("ovnk-udn-accelerated", ovn_vf=allocated(vf)))
    assert (pod.link("net1")["address"], vf.name) == ("0a:58:ac:1f:00:05", "")
    assert ovn.program.calls("ADD")[-1].config["deviceID"] == vf.pci
    assert external_id("rep3", "k8s.ovn.org/network") == "tenant-blue"
    assert pod.detach().is_undone
    ip("link", "set", "rep3", "down")
    assert_as_before(before, pod.settings)
    ip("link", "delete", "rep3")


def test_a_program_that_takes_the_shared_pf_all_the_same_is_undone(
    uplink: PF, ovn: OvnKubernetes, pod: Pod, plugins: PluginPath
) -> None:
    """As OVN-Kubernetes' program with `deviceID`: ADD fails after the PF has left, DEL brings it back as another."""
    before, real = node_state(), Path(plugins.directories[0]) / "real-ovn"
    ovn.annotate(f"default/{pod.netns}", "default/localnet-blue", "0a:58:c0:a8:64:05", "192.168.100.5/24")
    ovn.program.path.rename(real)
    with_id = f'"deviceID":"{uplink.pci}","topology"'
    ovn.program.path.write_text(f"#!/bin/sh\nsed 's/\"topology\"/{with_id}/' | exec {real}\n")
    ovn.program.path.chmod(0o755)
    with pytest.raises(AttachError) as caught:
        pod.attach(planned("ovnk-localnet", localnet_port=allocated(uplink, share_id="s1")))
    real.unlink()
    (undone,) = caught.value.report.undone
    assert "failed to find the representor" in str(caught.value)
    assert undone.outcome == "undone", str(caught.value.report)
    assert any("is still in the pod" in text for text in undone.restored), str(caught.value.report)
    assert [changed.device for changed in changed_devices(pod.settings.state)] == ["d"]
    (pod.settings.state / "changed/p_d").unlink()
    assert_as_before(before, pod.settings)


@pytest.fixture
def bridged(pfs: tuple[PF, ...]) -> Iterator[VF]:
    """A VF that is a port of a bridge of the node."""
    vf = pfs[0].vf(4)
    name = vf.name
    ip("link", "add", "br9", "type", "bridge")
    ip("link", "set", name, "master", "br9")
    yield vf
    ip("link", "set", name, "nomaster")
    ip("link", "delete", "br9")


@pytest.mark.parametrize("kind", ["sriov", "host-device", "taker"])
def test_no_program_takes_a_vf_that_the_host_uses(
    bridged: VF, new_pod: Callable[[], Pod], plugins: PluginPath, kind: str
) -> None:
    if kind == "taker":  # one that is given deviceID
        Recorder(Path(plugins.directories[0]), kind)
    pod, name = new_pod(), bridged.name
    before = node_state()
    with pytest.raises(AttachError, match=f'the host uses device "{name}": bridge-port br9'):
        pod.attach(plan(step("vf", kind, "net1", device=allocated(bridged), binary=True)))
    assert_as_before(before, pod.settings)


def test_a_vf_comes_home_though_its_pf_refuses_the_rates(
    pfs: tuple[PF, ...], settings: ChainSettings, set_num_vfs: Callable[[PF, int], None]
) -> None:
    """igb refuses rates while the PF has no link (igb_ndo_set_vf_bw), and VFs lose what it held for them: remade."""
    pf, vf = pfs[0], pfs[0].vf(2)
    config = {"maxTxRate": 200, "trust": "on", "spoofchk": "off", "vlan": 100}
    with making_pods(settings) as make:
        pod = make()
        pod.attach(plan(step("vf", "sriov", "net1", config, device=allocated(vf))))
        assert of_pf(vf)["rate"]["max_tx"] == 200
        ip("link", "set", pf.name, "down")
        report = pod.detach()
        assert vf.name, str(report)
        now = of_pf(vf)
        assert (now["trust"], now["spoofchk"], now["vlan_list"][0].get("vlan", 0)) == (False, True, 0)
        assert (now["rate"]["max_tx"], report.is_undone, report.is_stranded) == (200, False, True), str(report)
        assert "cannot set the rates of VF 2" in report.undone[0].message
        up(pf.name)
        assert pod.detach().is_clean
        assert of_pf(vf)["rate"]["max_tx"] == 0
    set_num_vfs(pf, TOTAL_VFS)
