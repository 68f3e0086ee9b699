"""`netdra render` and `netdra schemas`: the plugins' future input, and the facts on them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from netdra.cli.main import cli
from netdra.model import documents
from netdra.rules import shipped
from testbed import yaml
from tests.documents import CLAIMS, DEVICES, TOPOLOGIES
from tests.unit.cli.conftest import CLAIM, SLICES, Run

BONDED = str(TOPOLOGIES / "bonded-vlan-topology.yaml")
LOCALNET = str(DEVICES / "5.9.yaml")
TUNED = str(TOPOLOGIES / "ovnk-localnet-tuned.yaml")


DEVICE = """\
    - name: %s
      attributes:
        dra.networking/supportedCNIs: {string: ",sriov,"}
        dra.networking/pfName: {string: %s}
        dra.networking/rdma: {bool: true}
        dra.networking/ifName: {string: %s}
        dra.networking/pciAddress: {string: "0000:03:00.%d"}
"""


def test_render_prints_the_input_of_each_plugin_with_the_devices_the_claim_would_get(run: Run, tmp_path: Path) -> None:
    claim, slices = tmp_path / "claim.yaml", tmp_path / "slices.yaml"
    claim.write_text(CLAIM)
    devices = [("enp3s0f1v0", "enp3s0f1", "ens1", 4), ("enp3s0f0v2", "enp3s0f0", "ens2", 2)]
    slices.write_text(SLICES + "".join(DEVICE % each for each in devices))
    code, out, _ = run("render", BONDED, "--claim", str(claim), "--slices", str(slices), "-o", "json")
    calls = msgspec.json.decode(out)
    assert code == 0
    assert [(call["step"], call["interface"]) for call in calls][:3] == [
        ("vf0", "net1"),
        ("vf1", "net2"),
        ("bond0", "bond0"),
    ]
    assert calls[0]["claim"] == "ns/mine"
    assert calls[0]["device"]["device"] == "enp3s0f0v2"
    assert calls[0]["stdin"] == {
        "cniVersion": "1.1.0",
        "name": "bonded-vlan-topology-vf0",
        "type": "sriov",
        "vlan": 0,
        "spoofchk": "off",
        "trust": "on",
        "deviceID": "0000:03:00.2",
        "runtimeConfig": {"deviceID": "0000:03:00.2"},
    }
    assert calls[2]["prevResultOf"] == ["vf0", "vf1"]
    assert calls[2]["stdin"]["links"] == [{"name": "{{ vf0.interfaceName }}"}, {"name": "{{ vf1.interfaceName }}"}]


POOLED = """\
    - name: %s-vfs
      allowMultipleAllocations: true
      attributes:
        dra.networking/supportedCNIs: {string: ",sriov,"}
        dra.networking/type: {string: vf}
        dra.networking/pfName: {string: %s}
        dra.networking/rdma: {bool: true}
      capacity:
        dra.networking/vfs: {value: "8", requestPolicy: {default: "1", validRange: {min: "1", max: "1"}}}
        dra.networking/bandwidth: {value: "100000", requestPolicy: {default: "12500", validRange: {min: "100"}}}
"""


def test_a_pooled_device_is_shown_without_a_vf_and_its_plan_is_not_attached(run: Run, tmp_path: Path) -> None:
    claim, slices, plan = tmp_path / "claim.yaml", tmp_path / "slices.yaml", tmp_path / "plan.json"
    claim.write_text(CLAIM)
    slices.write_text(SLICES + "".join(POOLED % (pf, pf) for pf in ("enp3s0f0", "enp3s0f1")))
    arguments = ("render", BONDED, "--claim", str(claim), "--slices", str(slices))
    code, out, err = run(*arguments)
    assert code == 0
    shown = "  device enp3s0f0-vfs of pool n1-sriov (one of its VFs, selected by the node when it prepares the claim)"
    assert shown in out.splitlines()
    assert (
        'NetworkTopology "bonded-vlan-topology", step "vf0": device "enp3s0f0-vfs" represents several VFs; the node '
        "selects one of them when it prepares the claim, and its name and PCI address are not known before"
    ) in " ".join(err.split())
    assert err.count("represents several VFs") == 2

    plan.write_text(run(*arguments, "--output", "plan")[1])
    code, _, err = run("attach", "--netns", "/proc/self/ns/net", "--plan", str(plan))
    assert code != 0
    text = " ".join(err.split())
    assert 'step "vf0": device "enp3s0f0-vfs" represents several VFs, and none of them is selected for the step' in text
    assert "set pciAddress and ifName" in text


def test_render_leaves_devices_open_without_slices_and_claims_out_without_claim(run: Run) -> None:
    topology, claim = str(TOPOLOGIES / "ai-bonded-rdma.yaml"), str(CLAIMS / "ai-gpu-bonded-rdma.yaml")
    code, out, _ = run("render", topology, "--claim", claim)
    assert code == 0
    assert out.startswith(
        "vf0: sriov (builtin) on net1  # ai-bonded-rdma, claim ai-gpu-bonded-rdma\n  device vf0-0\n  {\n"
        '    "cniVersion": "1.1.0",\n    "name": "ai-bonded-rdma-vf0",\n'
    )
    code, out, _ = run("render", TUNED, "-o", "yaml")
    assert [call["step"] for call in yaml.safe_load_all(out)] == ["localnet-port", "tune-localnet"]


def test_render_shows_the_classes_that_the_controller_makes(run: Run) -> None:
    code, out, _ = run("render", BONDED, "--classes")
    classes = list(yaml.safe_load_all(out))
    assert code == 0
    assert [each["metadata"]["name"] for each in classes] == ["bonded-vlan-topology-vf0", "bonded-vlan-topology-vf1"]
    assert {each["kind"] for each in classes} == {"DeviceClass"}
    assert classes[0]["spec"]["config"][0]["opaque"]["parameters"]["step"] == "vf0"
    assert msgspec.json.decode(run("render", BONDED, "--classes", "-o", "json")[1])["items"] == classes


def test_render_puts_a_claim_s_values_where_the_topology_has_parameters(run: Run, tmp_path: Path) -> None:
    topology, claim = tmp_path / "topology.yaml", tmp_path / "claim.yaml"
    topology.write_text("""
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: vnf}
spec:
  parameters: [{name: address, format: cidr}, {name: mtu, type: integer, minimum: 1280, maximum: 9000, default: 1500}]
  steps:
    - name: nic
      type: host-device
      selector: {cel: 'device.attributes["dra.networking"].ifName == "x"'}
      config: {mtu: "{{ params.mtu }}", ipam: {type: static, addresses: [{address: "{{ params.address }}"}]}}
""")
    claim.write_text("""
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: vnf}
spec:
  spec:
    devices:
      requests: [{name: nic, exactly: {deviceClassName: vnf-nic}}]
      config:
        - opaque:
            driver: dra.networking
            parameters:
              apiVersion: networking.dra.io/v1alpha1
              kind: ParameterValues
              perPod: {address: [10.7.0.5/24, 10.7.0.6/24]}
""")
    assert run("validate", str(tmp_path))[:2] == (0, "")
    (plan,) = msgspec.json.decode(run("render", str(topology), "--claim", str(claim), "-o", "plan")[1])
    assert plan["parameters"] == {"address": "10.7.0.5/24", "mtu": 1500}
    assert plan["steps"][0]["config"] == {
        "mtu": 1500,
        "ipam": {"type": "static", "addresses": [{"address": "10.7.0.5/24"}]},
    }
    (plan,) = msgspec.json.decode(run("render", str(topology), "-o", "plan")[1])
    assert plan["steps"][0]["config"]["ipam"]["addresses"] == [{"address": "{{ params.address }}"}]
    code, _, err = run("attach", "--netns", "/run/netns/none", "--plan", str(topology))
    assert (code, "needs a value for its parameter address" in err) == (2, True)
    claim.write_text(claim.read_text().replace("10.7.0.6/24", "10.7.0.6"))
    code, out, _ = run("validate", str(tmp_path))
    assert (code, "pod 1: parameter" in out) == (1, True)


def test_schemas_prints_those_that_are_brought_along(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("schemas")
    assert code == 0
    known = {schema.spec.cni_type for name in shipped.names() if (schema := shipped.schema(name)) is not None}
    assert {line.split()[0] for line in out.splitlines() if not line.startswith(" ")} >= known
    written = tmp_path / "vlan.yaml"
    written.write_text(run("schemas", "vlan", "static")[1])
    assert run("validate", str(written))[0] == 0
    code, _, err = run("schemas", "vlam")
    assert code == 2
    assert 'no built-in schema for plugin "vlam"; did you mean "vlan"?' in err


PROGRAMS = """\
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: programs}
spec:
  steps:
    - name: vf0
      type: sriov
      execution: Binary
      selector: {cel: "true"}
      config: {trust: true, vlan: 5, qos: 1}
    - name: data
      type: vlan
      execution: Binary
      dependOn: [vf0]
      config:
        id: 100
        master: "{{ vf0.interfaceName }}"
        ipam: {type: static}
"""


def test_a_program_step_is_rendered_and_validated_by_the_parameters_it_reads(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "programs.yaml"
    path.write_text(PROGRAMS)
    assert run("validate", str(path))[0] == 0
    code, out, _ = run("render", str(path), "--output", "json")
    read = {each["step"]: each["stdin"] for each in msgspec.json.decode(out)}
    assert code == 0
    assert read["vf0"].items() >= {"trust": "on", "vlan": 5, "vlanQoS": 1}.items()
    assert read["data"].items() >= {"vlanId": 100, "linkInContainer": True}.items()
    assert not {"id", "qos"} & {*read["vf0"], *read["data"]}
    path.write_text(PROGRAMS.replace("qos: 1}", "mtu: 9000}"))
    code, out, err = run("validate", str(path))
    assert code == 1
    assert f"{path}:10: " in out + err
    assert (
        'CNIPluginSchema "sriov-binary" does not accept parameter "mtu". The program "sriov" would ignore'
    ) in out + err


def test_render_refuses_claims_that_do_not_fit(run: Run, tmp_path: Path) -> None:
    claim, slices = tmp_path / "claim.yaml", tmp_path / "slices.yaml"
    claim.write_text(CLAIM.replace("      - {name: vf1", "#"))
    slices.write_text(SLICES + DEVICE % ("enp3s0f1v0", "enp3s0f1", "ens1", 4))
    code, _, err = run("render", BONDED, "--claim", str(claim))
    assert (code, 'must contain a request named "vf1"' in err) == (2, True)
    code, _, err = run("render", BONDED, "--claim", str(claim), "--slices", str(slices))
    assert (code, "cannot be allocated" in err) == (2, True)
    code, _, err = run("render", TUNED, "--claim", str(claim))
    assert (code, 'DeviceClass "bonded-vlan-topology-vf0" is not in the input' in err) == (2, True)
    code, _, err = run("render", BONDED, "--claim", TUNED)
    assert (code, "ResourceClaim or ResourceClaimTemplate not found" in err) == (2, True)


EXACTLY = "exactly: {deviceClassName: bonded-vlan-topology-vf0}"
FIRST = "firstAvailable: [%s]"


def choice(name: str, count: int) -> str:
    return f"{{name: {name}, deviceClassName: bonded-vlan-topology-vf0, count: {count}}}"


@pytest.mark.parametrize(
    ("wish", "least"),
    [
        (EXACTLY.replace("vf0}", "vf0, count: 99999999999}"), 99999999999),
        (EXACTLY.replace("vf0}", "vf0, count: 32}"), 33),
        (FIRST % f"{choice('many', 10**11)}, {choice('fewer', 40)}", 40),
    ],
)
@pytest.mark.parametrize("with_slices", [False, True])
def test_render_refuses_more_devices_than_a_claim_can_have(
    run: Run, tmp_path: Path, wish: str, least: int, with_slices: bool
) -> None:
    claim, slices = tmp_path / "claim.yaml", tmp_path / "slices.yaml"
    claim.write_text(CLAIM.replace(EXACTLY, wish))
    slices.write_text(SLICES + DEVICE % ("enp3s0f1v0", "enp3s0f1", "ens1", 4))
    code, out, err = run("render", BONDED, "--claim", str(claim), *(("--slices", str(slices)) if with_slices else ()))
    assert (code, out) == (2, "")
    assert err.startswith(f"netdra: claim ns/mine requests at least {least} devices; the limit is 32; ")


def test_render_takes_the_first_choice_that_an_allocation_has_room_for(run: Run, tmp_path: Path) -> None:
    claim = tmp_path / "claim.yaml"
    claim.write_text(CLAIM.replace(EXACTLY, FIRST % ", ".join((choice("many", 32), choice("one", 1)))))
    code, out, _ = run("render", BONDED, "--claim", str(claim), "-o", "json")
    assert code == 0
    assert [call["device"]["device"] for call in msgspec.json.decode(out)[:2]] == ["vf0/one-0", "vf1-0"]


def test_a_rendered_plan_can_be_read_as_input_of_attach(tmp_path: Path) -> None:
    text = """
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: t}
spec:
  steps:
    - {name: nic, type: host-device, selector: {cel: "true"}, config: {device: v0}}
    - {name: tune, type: tuning, dependOn: [nic], config: {dev: "{{ nic.interfaceName }}", mtu: 1400}}
"""
    (tmp_path / "t.yaml").write_text(text)
    done = CliRunner().invoke(cli, ["render", str(tmp_path / "t.yaml"), "--output", "plan"])
    assert done.exit_code == 0, done.output
    (plan,) = documents.plans(done.stdout, "stdout")
    assert [(step.name, step.if_name, step.execution) for step in plan.steps] == [
        ("nic", "net1", "Builtin"),
        ("tune", "net1", "Builtin"),
    ]


WITH_PORT = """\
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: ports}
spec:
  steps:
    - name: vf0
      type: sriov
      selector: {cel: 'device.attributes["dra.networking"].physnet == "physnet2"'}
      neutron: {network: blue, fixedIPs: ["{{ params.address }}"], securityGroups: [], assignAddresses: false}
    - name: vf1
      type: sriov
      selector: {cel: 'device.attributes["dra.networking"].physnet == "physnet3"'}
      neutron: {}
  parameters: [{name: address, format: ip, default: 10.20.0.7}]
"""


def test_render_lists_the_fields_that_come_from_neutron(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(WITH_PORT)
    code, out, _ = run("render", str(path))
    assert code == 0
    assert out.startswith(
        "vf0: sriov (builtin) on net1  # ports\n"
        "  Neutron port: network blue, securityGroups none, fixedIPs 10.20.0.7\n"
        "  from the port at Prepare: mac, vlan, mtu, spoofchk, trust, linkState, minTxRate, maxTxRate\n  {\n"
    )
    assert (
        "  Neutron port: of the network for the device's physnet\n"
        "  from the port at Prepare: mac, vlan, mtu, spoofchk, trust, linkState, minTxRate, maxTxRate, addresses, "
        "routes\n"
    ) in out
    code, out, _ = run("render", str(path), "-o", "json")
    first, second = msgspec.json.decode(out)
    assert first["neutron"]["fixedIPs"] == ["10.20.0.7"]
    assert first["neutron"]["assignAddresses"] is False
    assert "addresses" not in first["fromNeutron"]
    assert (second["neutron"], second["fromNeutron"][-1]) == ({}, "routes")
    assert "neutron" not in first["stdin"]


def test_render_reports_that_the_node_selects_a_pooled_vf(tmp_path: Path) -> None:
    folder = Path(__file__).parents[3] / "examples" / "pooled-vfs"
    policy, inventory = str(folder / "policy.yaml"), str(folder / "inventory.yaml")
    planned = CliRunner().invoke(cli, ["plan", "--policies", policy, "--inventory", inventory])
    first = (folder / "claims.yaml").read_text().split("\n---\n")[0]
    claim = tmp_path / "claim.yaml"
    claim.write_text(first)
    arguments = ["render", str(folder / "topology.yaml"), "--claim", str(claim), "--slices", "-"]
    done = CliRunner().invoke(cli, arguments, input=planned.stdout)
    assert done.exit_code == 0, done.output
    assert done.stdout.count("the node selects one of its VFs at Prepare") == 2
