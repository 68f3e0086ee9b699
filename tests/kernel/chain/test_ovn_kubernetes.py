"""OVN-Kubernetes' networks as its program attaches them: accelerated VFs, localnet on a shared uplink, tuning on it.

The program is a stand-in (`testbed.ovn`); the topologies are those of `tests/documents`. That the uplink
has a PCI address, and that the real netdev of one is moved, is tested where there is such hardware: `tests/hardware`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.chain.check import check
from netdra.chain.checkpoint import PodIdentity
from netdra.chain.detach import detach
from netdra.chain.report import AttachError
from netdra.kernel import netns
from netdra.kernel.netns import Namespace
from netdra.model.plan import Plan, PlannedDevice
from testbed import yaml
from testbed.ovn import BRIDGE, TYPE, OvnKubernetes, Port
from tests.documents import TOPOLOGIES
from tests.kernel.chain.conftest import Bed, device, differences
from tests.plans import attach, on_devices

MAC = "0a:58:ac:1f:00:05"


@pytest.fixture
def ovn(bed: Bed) -> OvnKubernetes:
    """OVN-Kubernetes on the node, with its bridge, and an uplink that is a port of another one."""
    for bridge in (BRIDGE, "br-ex"):
        bed.run("ip", "link", "add", bridge, "address", "02:00:00:00:00:01", "type", "bridge")
    bed.veth("enp6s0f0", "wire", mtu=9000, up=True)
    bed.run("ip", "link", "set", "enp6s0f0", "master", "br-ex")
    bed.run("ip", "addr", "add", "192.0.2.9/24", "dev", "enp6s0f0")
    return OvnKubernetes(bed.plugins)


def planned(name: str, **devices: PlannedDevice) -> tuple[Plan, ...]:
    steps = yaml.safe_load((TOPOLOGIES / f"{name}.yaml").read_text())["spec"]["steps"]
    return (on_devices(yaml.safe_dump(steps), **{key.replace("_", "-"): each for key, each in devices.items()}),)


def shared(share: str = "s1", **facts: Any) -> PlannedDevice:
    return device("enp6s0f0", share_id=share, **facts)


def test_a_vf_goes_into_the_pod_with_the_address_that_the_annotation_has(bed: Bed, ovn: OvnKubernetes) -> None:
    """Use case A: a layer 2 network by a VF that the claim has alone."""
    bed.veth("enp5s0f0v3", "rep3")
    ovn.has_function("0000:05:00.5", netdev="enp5s0f0v3", representor="rep3")
    ovn.annotate("default/p", "default/tenant-blue", MAC, "172.31.0.5/24")
    plans = planned("ovnk-udn-accelerated", ovn_vf=device("enp5s0f0v3", pci_address="0000:05:00.5"))
    attach(plans, bed.container, bed.pod.path, bed.settings)
    (call,) = ovn.program.calls("ADD")
    assert (call.config["deviceID"], call.config["name"]) == ("0000:05:00.5", "tenant-blue")
    assert ovn.ports == [Port("rep3", "tenant-blue", "default/tenant-blue")]
    assert (bed.link("net1", inside=True)["address"], bed.link("rep3")["master"]) == (MAC, BRIDGE)
    assert bed.addresses("net1", inside=True) == {"172.31.0.5/24"}
    assert check(bed.container.sandbox, bed.settings).is_clean
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert bed.link("enp5s0f0v3")
    assert ovn.ports == []


def test_pods_share_an_uplink_that_stays_on_the_node_as_it_is(bed: Bed, ovn: OvnKubernetes) -> None:
    """Use case B: a localnet network; each pod has a share of the uplink, and a port of its own."""
    before = bed.state()
    names = [f"{Path(bed.pod.path).name}-{number}" for number in range(3)]
    for number, name in enumerate(names):
        pod = PodIdentity(sandbox=name, namespace="default", name=f"p{number}")
        ovn.annotate(
            f"default/p{number}", "default/localnet-blue", f"0a:58:c0:a8:64:0{number}", f"192.168.100.{number}/24"
        )
        with Namespace.create(name) as space:
            attach(planned("ovnk-localnet", localnet_port=shared(f"s{number}")), pod, space.path, bed.settings)
            assert check(name, bed.settings).is_clean
    assert {(port.network, port.nad) for port in ovn.ports} == {("localnet-blue", "default/localnet-blue")}
    assert len({port.interface for port in ovn.ports}) == 3
    for call in ovn.program.calls("ADD"):
        assert not {"deviceID", "runtimeConfig"} & call.config.keys()
        assert (call.config["topology"], call.config["physicalNetworkName"]) == ("localnet", "localnet1")
    was, now = before["host"]["links"], bed.state()["host"]["links"]
    assert {name: now[name] for name in was} == was
    for name in names:
        report = detach(name, bed.settings)
        assert (report.is_clean, report.restored) == (True, ())
        netns.delete(name)
    assert differences(before["host"], bed.state()["host"]) == []


def test_steps_after_it_change_the_pods_port(bed: Bed, ovn: OvnKubernetes) -> None:
    """Use case C: localnet, and tuning on it."""
    before = bed.state()
    ovn.annotate("default/p", "default/localnet-blue", MAC, "192.168.100.5/24")
    attach(planned("ovnk-localnet-tuned", localnet_port=shared()), bed.container, bed.pod.path, bed.settings)
    assert (bed.link("net1", inside=True)["mtu"], bed.link("enp6s0f0")["mtu"]) == (9000, 9000)
    assert bed.run("sysctl", "-n", "net.core.somaxconn", inside=True).strip() == "512"
    assert check(bed.container.sandbox, bed.settings).is_clean
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert differences(before, bed.state()) == []


def test_the_network_may_have_another_name_than_its_definition(bed: Bed, ovn: OvnKubernetes) -> None:
    ovn.annotate("default/p", "team/blue", MAC, "192.168.100.5/24")
    written = f"""
    - name: port
      type: {TYPE}
      config: {{topology: localnet, netAttachDefName: team/blue, networkName: cluster_udn_blue}}
    """
    attach((on_devices(written, port=shared()),), bed.container, bed.pod.path, bed.settings)
    assert [(port.network, port.nad) for port in ovn.ports] == [("cluster_udn_blue", "team/blue")]
    assert "networkName" not in ovn.program.calls("ADD")[0].config
    assert detach(bed.container.sandbox, bed.settings).is_clean


def test_a_pod_without_the_annotation_is_refused_and_nothing_is_left(bed: Bed, ovn: OvnKubernetes) -> None:
    before = bed.state()
    with pytest.raises(AttachError, match="waiting for the annotation of network default/localnet-blue"):
        attach(planned("ovnk-localnet", localnet_port=shared()), bed.container, bed.pod.path, bed.settings)
    assert differences(before, bed.state()) == []


def test_a_program_that_takes_the_uplink_all_the_same_is_undone_and_the_uplink_tainted(
    bed: Bed, ovn: OvnKubernetes
) -> None:
    """As with a wrapper that gives it `deviceID` by itself."""
    before = bed.state()
    ovn.has_function("0000:06:00.0", netdev="enp6s0f0")
    ovn.annotate("default/p", "default/localnet-blue", MAC, "192.168.100.5/24")
    real = bed.plugins / "real"
    ovn.program.path.rename(real)
    ovn.program.path.write_text(
        f'#!/bin/sh\nsed \'s/"topology"/"deviceID":"0000:06:00.0","topology"/\' | exec {real}\n'
    )
    ovn.program.path.chmod(0o755)
    with pytest.raises(AttachError) as caught:
        attach(planned("ovnk-localnet", localnet_port=shared()), bed.container, bed.pod.path, bed.settings)
    assert "representor" in str(caught.value)
    (undone,) = caught.value.report.undone
    assert (undone.outcome, len(undone.restored)) == ("undone", 1)
    assert differences(before["host"], bed.state()["host"]) == []
    changed = [msgspec.json.decode(path.read_bytes()) for path in (bed.settings.state / "changed").iterdir()]
    assert [(one["device"], TYPE in one["text"]) for one in changed] == [("enp6s0f0", True)]
