"""Programs that have the name of a built-in type: the configuration that they read of a step, and the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from netdra.chain.check import check
from netdra.chain.detach import detach
from netdra.chain.report import AttachError
from netdra.cli.main import cli
from netdra.model import documents
from netdra.model.errors import InvalidInputError
from netdra.model.plan import PlannedDevice
from netdra.model.schema import CNIPluginSchema
from testbed.recorder import Recorder
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.plans import attach, on_devices, plan, step

VF = "0000:03:00.1"
CHAIN = """
- {name: vf0, type: sriov, execution: Binary, config: {vlan: 100, qos: 3, trust: true, linkState: auto, maxTxRate: 9}}
- {name: vf1, type: sriov, execution: Binary, config: {spoofchk: false, vlan: 100, proto: 802.1Q}}
- name: bond0
  type: bond
  execution: Binary
  dependOn: [vf0, vf1]
  config:
    mode: active-backup
    miimon: 100
    failOverMac: active
    allSlavesActive: false
    links: [{name: "{{ vf0.interfaceName }}"}, {name: "{{ vf1.interfaceName }}"}]
- name: data
  type: vlan
  execution: Binary
  dependOn: [bond0]
  config: {id: 200, master: "{{ bond0.interfaceName }}", name: data0, ipam: {type: static}}
- {name: rdma, type: rdma, execution: Binary, dependOn: [data], config: {deviceID: "{{ vf1.pciAddress }}"}}
"""
READ: dict[str, list[dict[str, Any]]] = {
    "sriov": [
        {"vlan": 100, "vlanQoS": 3, "trust": "on", "link_state": "auto", "max_tx_rate": 9, "deviceID": VF},
        {"vlan": 100, "vlanProto": "802.1Q", "spoofchk": "off", "deviceID": "0000:04:00.1"},
    ],
    "bond": [
        {
            "mode": "active-backup",
            "miimon": "100",
            "failOverMac": 1,
            "allSlavesActive": 0,
            "links": [{"name": "net1"}, {"name": "net2"}],
            "linksInContainer": True,
        }
    ],
    "vlan": [{"vlanId": 200, "master": "bond0", "linkInContainer": True, "ipam": {"type": "static"}}],
    "rdma": [{"deviceID": "0000:04:00.1"}],
}
POD = '"$(basename "$CNI_NETNS")"'
MADE = """echo '{"interfaces": [{"name": "'$CNI_IFNAME'", "sandbox": "'$CNI_NETNS'"}]}'"""
MAKE = f'ip -n {POD} link add "$CNI_IFNAME" type bridge || exit 1'
MOVE = (
    f'nic=p$(($(printf %s "$CNI_IFNAME" | tr -d a-z) - 1))v1; ip link set $nic netns {POD} name "$CNI_IFNAME" || exit 1'
)
"""As sriov: p0v1 becomes net1, p1v1 net2; netdra returns them."""
WORK = {"sriov": MOVE, "bond": MAKE, "vlan": MAKE, "rdma": "true"}
OF_THE_PROTOCOL = {"cniVersion", "name", "type", "prevResult", "runtimeConfig"}


def read(plugin: Recorder, verb: str) -> list[dict[str, Any]]:
    """The fields that a plugin read beside those of the protocol."""
    configs = [call.config for call in plugin.calls(verb)]
    return [{key: value for key, value in config.items() if key not in OF_THE_PROTOCOL} for config in configs]


@pytest.fixture
def vfs(bed: Bed) -> dict[str, PlannedDevice]:
    bed.veth("p0v1", "p0", up=True)
    bed.veth("p1v1", "p1", up=True)
    return {
        "vf0": device("p0v1", pci_address=VF),
        "vf1": device("p1v1", pci_address="0000:04:00.1"),
    }


def test_each_program_of_a_chain_reads_its_own_words_on_every_verb(bed: Bed, vfs: dict[str, PlannedDevice]) -> None:
    plugins = {kind: recorder(bed, kind) for kind in READ}
    for kind, each in plugins.items():
        each.does("ADD", f"{WORK[kind]}; {MADE}")
        each.succeeds("DEL")
        each.succeeds("CHECK")
    attach((on_devices(CHAIN, **vfs),), bed.container, bed.pod.path, bed.settings)
    check(bed.container.sandbox, bed.settings)
    assert detach(bed.container.sandbox, bed.settings).is_undone
    for kind, expected in READ.items():
        for verb in ("ADD", "CHECK", "DEL"):
            found = read(plugins[kind], verb)
            assert all(each in found for each in expected), (kind, verb)
            assert len(found) == len(expected)


def test_a_vlan_without_a_master_receives_the_preceding_interface_on_every_verb(bed: Bed) -> None:
    """The step between changes that interface, and has none of its own."""
    bed.veth("eth7", "peer7", up=True)
    plugin = recorder(bed, "vlan")
    plugin.does("ADD", f"{MAKE}; {MADE}")
    plugin.succeeds("DEL")
    plugin.succeeds("CHECK")
    written = """
    - {name: nic, type: host-device, config: {name: data0}}
    - {name: tune, type: tuning, dependOn: [nic], config: {mtu: 1400}}
    - {name: v, type: vlan, execution: Binary, dependOn: [tune], config: {id: 7, ipam: {type: static}}}
    """
    attach((on_devices(written, nic=device("eth7")),), bed.container, bed.pod.path, bed.settings)
    check(bed.container.sandbox, bed.settings)
    assert detach(bed.container.sandbox, bed.settings).is_undone
    told = {"vlanId": 7, "master": "data0", "linkInContainer": True, "ipam": {"type": "static"}}
    assert [read(plugin, verb) for verb in ("ADD", "CHECK", "DEL")] == [[told]] * 3


def test_the_words_of_a_plan_by_hand_are_translated_as_well(bed: Bed, vfs: dict[str, PlannedDevice]) -> None:
    plugin = recorder(bed, "sriov")
    plugin.does("ADD", f"{MOVE}; {MADE}")
    plugin.succeeds("DEL")
    by_hand = plan(step("vf0", "sriov", "net1", {"vlan": 5, "qos": 1, "trust": True}, device=vfs["vf0"], binary=True))
    attach((by_hand,), bed.container, bed.pod.path, bed.settings)
    assert attach((by_hand,), bed.container, bed.pod.path, bed.settings).repeated
    assert read(plugin, "ADD") == [{"vlan": 5, "vlanQoS": 1, "trust": "on", "deviceID": VF}]
    assert detach(bed.container.sandbox, bed.settings).is_clean


def test_a_parameter_that_a_program_ignores_is_rejected_unless_its_own_schema_allows_it(
    bed: Bed, vfs: dict[str, PlannedDevice]
) -> None:
    plugin = recorder(bed, "sriov")
    plugin.does("ADD", f"{MOVE}; {MADE}")
    before = bed.state()
    plans = (plan(step("vf0", "sriov", "net1", {"mtu": 9000}, device=vfs["vf0"], binary=True)),)
    with pytest.raises(InvalidInputError, match='"sriov-binary" does not accept parameter "mtu"'):
        attach(plans, bed.container, bed.pod.path, bed.settings)
    assert plugin.calls() == []
    assert differences(before, bed.state()) == []
    own = {
        "apiVersion": "cni.networking.k8s.io/v1alpha1",
        "kind": "CNIPluginSchema",
        "metadata": {"name": "ours"},
        "spec": {
            "cniType": "sriov",
            "execution": "Binary",
            "configParameters": {"optional": [{"name": "mtu", "type": "integer"}]},
        },
    }
    schema = documents.convert(own, CNIPluginSchema, "test")
    attach(plans, bed.container, bed.pod.path, bed.settings, [schema])
    assert read(plugin, "ADD") == [{"mtu": 9000, "deviceID": VF}]
    plugin.succeeds("DEL")
    assert detach(bed.container.sandbox, bed.settings).is_clean


@pytest.mark.parametrize("lease", [False, True])
def test_a_program_that_changes_only_its_device_is_undone_once_the_device_is_restored(bed: Bed, lease: bool) -> None:
    """As sriov-cni, which cannot undo unrecorded actions; all its remains on the device are restored."""
    bed.veth("p0v1", "p0", up=True)
    before = bed.state()
    sriov = recorder(bed, "sriov")
    sriov.does("ADD", "ip link set p0v1 mtu 1200; exit 1")
    sriov.fails("DEL", message="nothing is written down")
    recorder(bed, "lease").fails("DEL", message="not released")
    config = {"ipam": {"type": "lease"}} if lease else {}
    plans = (plan(step("vf0", "sriov", "net1", config, device=device("p0v1"), binary=True)),)
    with pytest.raises(AttachError):
        attach(plans, bed.container, bed.pod.path, bed.settings)
    report = detach(bed.container.sandbox, bed.settings)
    assert bed.link("p0v1")["mtu"] == 1500
    if lease:
        assert "not released" in str(report)
    else:
        assert not report.found
        assert differences(before, bed.state()) == []


def test_the_stock_programs_produce_the_same_result_as_the_built_in_steps(bed: Bed) -> None:
    """host-device on a device that has no PCI address, which netdra names to it, and tuning."""
    bed.veth("eth7", "peer7", up=True)
    seen = []
    for execution in ("Auto", "Binary"):
        written = f"""
        - {{name: dev, type: host-device, execution: {execution}}}
        - name: tune
          type: tuning
          execution: {execution}
          dependOn: [dev]
          config: {{dev: "{{{{ dev.interfaceName }}}}", mtu: 1400, txqlen: 321, promisc: true, mac: "02:00:00:00:07:07",
                   sysctl: {{net.ipv4.conf.IFNAME.arp_notify: "1"}}}}
        """
        before = bed.state()
        attach((on_devices(written, dev=device("eth7")),), bed.container, bed.pod.path, bed.settings)
        found = bed.link("net1", inside=True)
        kept = ("ifname", "mtu", "txqlen", "promiscuity", "address", "flags", "linkinfo")
        notify = bed.run("cat", "/proc/sys/net/ipv4/conf/net1/arp_notify", inside=True)
        seen.append(({key: found.get(key) for key in kept}, notify))
        assert detach(bed.container.sandbox, bed.settings).is_clean
        assert differences(before, bed.state()) == []
    assert (seen[0][0]["txqlen"], seen[0][1]) == (321, "1\n")
    assert seen[0] == seen[1]


WITH_ITS_SCHEMA = """
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: own}
spec:
  steps:
    - name: nic
      type: host-device
      execution: Binary
      selector: {cel: "true"}
      config: {device: eth7, deviceGroup: 7}
---
apiVersion: cni.networking.k8s.io/v1alpha1
kind: CNIPluginSchema
metadata: {name: ours}
spec:
  cniType: host-device
  execution: Binary
  configParameters:
    optional:
      - {name: device, type: string}
      - {name: deviceGroup, type: integer}
"""


def test_a_schema_next_to_a_topology_defines_the_config_of_a_custom_plugin_build(bed: Bed, tmp_path: Path) -> None:
    bed.veth("eth7", "peer7", up=True)
    (bed.plugins / "host-device").unlink()
    plugin = recorder(bed, "host-device")
    plugin.succeeds("DEL")
    path = tmp_path / "own.yaml"
    shared = ("--state", str(bed.settings.state), "--cni-path", str(bed.plugins))
    attached = ("attach", "--netns", bed.pod.path, "--plan", str(path), "--sandbox", bed.container.sandbox, *shared)
    path.write_text(WITH_ITS_SCHEMA.partition("---")[0])
    refused = CliRunner().invoke(cli, attached)
    assert 'does not accept parameter "deviceGroup"' in str(refused.exception)
    assert plugin.calls() == []
    path.write_text(WITH_ITS_SCHEMA)
    assert CliRunner().invoke(cli, attached).exit_code == 0
    assert read(plugin, "ADD") == [{"device": "eth7", "deviceGroup": 7}]
    assert detach(bed.container.sandbox, bed.settings).is_clean
