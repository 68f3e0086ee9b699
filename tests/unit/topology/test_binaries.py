"""The programs that have the name of a built-in type are given what they read, and nothing that they skip."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.model import documents
from netdra.model.plan import PlannedDevice
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.rules import shipped
from netdra.rules.config import check_config
from netdra.rules.contract import Shape
from netdra.rules.schemas import check_programs
from netdra.rules.topologies import check_topology
from netdra.steps.builtin import TYPES
from netdra.topology.attachment import completed
from netdra.topology.binaries import translated, translated_plan
from netdra.topology.bind import unbound
from netdra.topology.graph import compile_topology
from testbed import yaml
from tests.plans import plan, step

Topology = Callable[..., NetworkTopology]
READS: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "vlan": {"master": str, "vlanId": int, "mtu": int, "linkInContainer": bool},
    "bond": {
        "mode": str,
        "miimon": str,
        "links": list,
        "linksInContainer": bool,
        "mtu": int,
        "failOverMac": int,
        "allSlavesActive": int,
        "tlbDynamicLb": int,
        "xmitHashPolicy": str,
    },
    "sriov": {
        "vlan": int,
        "vlanQoS": int,
        "vlanProto": str,
        "mac": str,
        "spoofchk": str,
        "trust": str,
        "link_state": str,
        "min_tx_rate": int,
        "max_tx_rate": int,
        "deviceID": str,
        "logLevel": str,
        "logFile": str,
    },
    "host-device": {"device": str, "hwaddr": str, "kernelpath": str, "pciBusID": str},
    "tuning": {
        "mtu": int,
        "mac": str,
        "promisc": bool,
        "allmulti": bool,
        "txQLen": int,
        "sysctl": dict,
        "dataDir": str,
    },
    "rdma": {"deviceID": str},
}
"""By type, the keys that the program decodes and the JSON type of each, as the programs' documentation has them."""
NAMED_BY_NETDRA = {"dev"}
"""What netdra itself heeds when it names the interface to the program."""


WRITTEN = {
    "pciAddress": "0000:3b:00.1",
    "hostMac": "02:00:00:00:00:01",
    "mac": "02:00:00:00:00:01",
    "cidr": "10.0.0.5/24",
    "ip": "10.0.0.1",
}
"""Texts as formats want them."""


def program(kind: str) -> str:
    return f"{kind} (Binary)"


@st.composite
def values(draw: st.DrawFn, shape: Shape) -> Any:
    if shape.enum:
        return draw(st.sampled_from(shape.enum))
    match shape.kind:
        case "either":
            return draw(values(draw(st.sampled_from(shape.parts))))
        case "integer":
            return draw(st.integers(shape.minimum or 0, shape.maximum or 10_000))
        case "boolean":
            return draw(st.booleans())
        case "list":
            least = shape.min_items or 0
            return draw(st.lists(values(shape.parts[0]), min_size=least, max_size=least + 2))
        case "map":
            return draw(st.dictionaries(st.text("abc.", min_size=1, max_size=4), values(shape.parts[0]), max_size=2))
        case "object":
            return {key: draw(values(each)) for key, each in shape.properties.items()}
    if shape.format in WRITTEN:
        return WRITTEN[shape.format]
    return draw(st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True))


@st.composite
def accepted(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    """A config that the program's schema accepts, under any of its names."""
    contract = shipped.contracts([program(kind)])[program(kind)]
    keys = {name: [key for key, meant in contract.names.items() if meant == name] for name in contract.parameters}
    chosen = set(contract.required) | draw(st.sets(st.sampled_from(sorted(contract.parameters))))
    return {draw(st.sampled_from(keys[name])): draw(values(contract.parameters[name])) for name in sorted(chosen)}


@pytest.mark.parametrize("kind", sorted(READS))
@given(data=st.data())
def test_a_config_accepted_by_a_program_schema_is_translated_to_its_keys_and_types(
    kind: str, data: st.DataObject
) -> None:
    config = data.draw(accepted(kind))
    contract = shipped.contracts([program(kind)])[program(kind)]
    assert list(check_config(config, contract)) == []
    found = translated(kind, config)
    for key, value in found.items():
        if key in NAMED_BY_NETDRA:
            continue
        assert key in READS[kind]
        assert isinstance(value, READS[kind][key])
        assert isinstance(value, bool) is (READS[kind][key] is bool)
    assert translated(kind, found) == found
    assert len(found) == len(config)


@pytest.mark.parametrize("kind", sorted(READS))
def test_a_programs_schema_has_every_parameter_that_it_reads(kind: str) -> None:
    contract = shipped.contracts([program(kind)])[program(kind)]
    assert set(contract.parameters) - NAMED_BY_NETDRA == READS[kind].keys()


TRANSLATED = [
    ("vlan", {"id": 100, "master": "x"}, {"vlanId": 100, "master": "x"}),
    ("vlan", {"vlanId": 100, "master": "x"}, {"vlanId": 100, "master": "x"}),
    ("sriov", {"vlan": 5, "qos": 3, "proto": "802.1Q"}, {"vlan": 5, "vlanQoS": 3, "vlanProto": "802.1Q"}),
    ("sriov", {"trust": True, "spoofchk": False}, {"trust": "on", "spoofchk": "off"}),
    ("sriov", {"linkState": "auto", "maxTxRate": 200}, {"link_state": "auto", "max_tx_rate": 200}),
    ("ovs", {"socket_file": "/run/x"}, {"socket_file": "unix:/run/x"}),
    ("ovs", {"socket_file": "unix:/run/x"}, {"socket_file": "unix:/run/x"}),
    ("bond", {"miimon": 100, "failOverMac": "active"}, {"miimon": "100", "failOverMac": 1}),
    ("bond", {"allSlavesActive": True, "tlbDynamicLb": 0}, {"allSlavesActive": 1, "tlbDynamicLb": 0}),
    ("tuning", {"txqlen": 500}, {"txQLen": 500}),
    ("macvlan", {"id": 1, "trust": True}, {"id": 1, "trust": True}),
]


@pytest.mark.parametrize(("kind", "config", "given_to_it"), TRANSLATED, ids=str)
def test_netdras_names_and_values_become_the_programs(
    kind: str, config: dict[str, Any], given_to_it: dict[str, Any]
) -> None:
    assert translated(kind, config) == given_to_it


ROOT = "- {name: vf0, type: sriov, execution: Binary, config: {%s}}"
VLAN = """
- {name: vf0, type: sriov}
- {name: a, type: vlan, execution: Binary, dependOn: [vf0], config: {%s, ipam: {type: static}}}
"""
BOND = """
- {name: vf0, type: sriov}
- {name: vf1, type: sriov}
- name: a
  type: bond
  execution: Binary
  dependOn: [vf0, vf1]
  config: {mode: 802.3ad, links: [{name: x}, {name: y}], %s}
"""
TUNING = "- {name: vf0, type: sriov}\n- {name: a, type: tuning, execution: Binary, dependOn: [vf0], config: {%s}}"
RDMA = "- {name: vf0, type: sriov}\n- {name: a, type: rdma, execution: Binary, dependOn: [vf0], %s}"
PASSED_OVER = [
    (ROOT % "mtu: 9000", "sriov", "mtu"),
    (BOND % "miimon: 100, minLinks: 1", "bond", "minLinks"),
    (BOND % "miimon: 100, lacpRate: fast", "bond", "lacpRate"),
    (BOND % "miimon: 100, updelay: 100", "bond", "updelay"),
    (BOND % "miimon: 100, mac: '02:00:00:00:00:01'", "bond", "mac"),
    (VLAN % "id: 5, master: x, protocol: 802.1ad", "vlan", "protocol"),
    (VLAN % "id: 5, master: x, mac: '02:00:00:00:00:01'", "vlan", "mac"),
    (TUNING % "addresses: [192.0.2.1/24]", "tuning", "addresses"),
    (TUNING % "routes: [{destination: default}]", "tuning", "routes"),
    (TUNING % "ethtool: {features: {gro: true}}", "tuning", "ethtool"),
    ("- {name: a, type: host-device, execution: Binary, config: {mac: '02:00:00:00:00:01'}}", "host-device", "mac"),
    ("- {name: a, type: host-device, execution: Binary, config: {mtu: 9000}}", "host-device", "mtu"),
    (
        RDMA % "config: {rdmaDevice: '{{ vf0.rdmaDevice }}'}",
        "rdma",
        "rdmaDevice",
    ),
]


@pytest.mark.parametrize(("steps", "kind", "key"), PASSED_OVER, ids=lambda value: value if len(value) < 20 else "")
def test_a_parameter_the_program_would_ignore_is_rejected_in_topologies_and_plans(
    topology: Topology, steps: str, kind: str, key: str
) -> None:
    written = topology(steps)
    texts = [each.text for each in check_topology(written) if key in each.path]
    assert any(
        f'CNIPluginSchema "{kind}-binary" does not accept parameter "{key}". The program "{kind}" would ignore it; '
        f"netdra's own step supports it: remove execution or {key}." in text
        for text in texts
    )
    assert {each.text for each in check_programs([unbound(written)])} <= set(texts)
    assert [each.path[-1] for each in check_programs([unbound(written)])] == [key]
    built_in = topology(steps.replace("execution: Binary, ", "").replace("  execution: Binary\n", ""))
    assert not [each for each in check_topology(built_in) if "does not accept" in each.text]


NOT_MEANT = [
    (BOND % "miimon: 100, tlbDynamicLb: 2", 'does not accept 2 for parameter "tlbDynamicLb"'),
    (VLAN % "id: 0, master: x", 'expects parameter "id" to be at least 1'),
    (VLAN % "id: 5, vlanId: 6, master: x", 'accepts "id" and "vlanId" for the same'),
    (ROOT % "trust: 1", 'expects parameter "trust" to be string | boolean'),
]


@pytest.mark.parametrize(("steps", "message"), NOT_MEANT, ids=lambda text: text[-40:])
def test_a_value_the_program_would_not_understand_is_rejected_in_topologies_and_plans(
    topology: Topology, steps: str, message: str
) -> None:
    written = topology(steps)
    assert any(message in each.text for each in check_topology(written))
    in_its_words = message.replace('"id" to be', '"vlanId" to be')
    assert any(in_its_words in each.text for each in check_programs([unbound(written)]))


SOUND = [
    ROOT % "vlan: 100, qos: 3, trust: true, linkState: auto, maxTxRate: 100",
    VLAN % "id: 100, master: '{{ vf0.interfaceName }}', mtu: 1400",
    BOND % "miimon: 100, failOverMac: active, tlbDynamicLb: 0, xmitHashPolicy: layer3+4",
    TUNING % "txqlen: 500, mtu: 1400, dev: '{{ vf0.interfaceName }}', sysctl: {net.ipv4.ip_forward: '1'}",
    "- {name: vf0, type: sriov}\n- {name: a, type: rdma, execution: Binary, dependOn: [vf0]}",
]


@pytest.mark.parametrize("steps", SOUND, ids=lambda text: text[-40:])
def test_a_config_translated_for_a_program_passes_the_program_check(topology: Topology, steps: str) -> None:
    written = topology(steps)
    assert [each.text for each in check_topology(written) if "CNIPluginSchema" in each.text] == []
    planned = unbound(written)
    assert check_programs([planned]) == ()
    binary = planned.steps[-1]
    assert set(binary.config) - {"ipam"} - NAMED_BY_NETDRA <= READS[binary.type].keys()


def own(spec: str) -> CNIPluginSchema:
    return documents.convert(
        {
            "apiVersion": "cni.networking.k8s.io/v1alpha1",
            "kind": "CNIPluginSchema",
            "metadata": {"name": "mine"},
            "spec": yaml.safe_load(spec),
        },
        CNIPluginSchema,
        "test",
    )


def test_a_user_schema_applies_to_a_program_only_if_it_sets_execution_binary(topology: Topology) -> None:
    """Someone's own build of a program may read more; who describes a built-in step reports nothing of the program."""
    written = topology(VLAN % "id: 5, master: x, fancy: 1")
    spec = "cniType: vlan, configParameters: {additionalParameters: true, required: [{name: master, type: string}]}"
    of_steps, of_program = own(f"{{{spec}}}"), own(f"{{execution: Binary, {spec}}}")

    def refused(*schemas: CNIPluginSchema) -> tuple[bool, bool]:
        at_admission = any("fancy" in each.text for each in check_topology(written, schemas))
        return at_admission, bool(check_programs([unbound(written)], schemas))

    assert refused() == refused(of_steps) == (True, True)
    assert refused(of_program) == (False, False)


def test_a_schema_that_contradicts_itself_counts_for_nothing_where_plans_are_run(topology: Topology) -> None:
    wrong = own("{cniType: vlan, execution: Binary, configParameters: {required: [{name: a, type: nonsense}]}}")
    planned = unbound(topology(VLAN % "id: 5, master: x, mac: y"))
    assert check_programs([planned], [wrong]) == check_programs([planned])


VF = PlannedDevice(request="r", pool="p", device="d", if_name="vf0", pci_address="0000:03:00.1")
VIRTUAL = PlannedDevice(request="r", pool="p", device="d", if_name="v0")


@pytest.mark.parametrize(
    ("kind", "config", "device", "given_to_it"),
    [
        ("host-device", {}, VF, {}),  # it has deviceID
        ("host-device", {}, VIRTUAL, {"device": "v0"}),
        ("host-device", {"hwaddr": "02:00:00:00:00:01"}, VIRTUAL, {"hwaddr": "02:00:00:00:00:01"}),
        ("vlan", {"id": 5}, VIRTUAL, {"vlanId": 5, "master": "v0"}),
        ("ovs", {}, VIRTUAL, {"bridge": "v0"}),
        ("ovs", {"vlan": 5}, VF, {"vlan": 5}),
        ("ipoib", {}, VF, {"master": "vf0"}),
    ],
    ids=str,
)
def test_the_program_of_a_root_step_receives_its_device_under_its_own_keys(
    topology: Topology, kind: str, config: dict[str, Any], device: PlannedDevice, given_to_it: dict[str, Any]
) -> None:
    graph = compile_topology(topology(f"- {{name: a, type: {kind}, execution: Binary}}"))
    (only,) = graph.steps
    assert completed(graph, msgspec.structs.replace(only, config=config), device) == given_to_it


@pytest.mark.parametrize(
    ("bandwidth", "config", "given_to_it"),
    [
        ("2500", {}, {"max_tx_rate": 2500}),
        ("2500", {"maxTxRate": 100, "minTxRate": 10}, {"max_tx_rate": 100, "min_tx_rate": 10}),
        ("2500", {"min_tx_rate": 10}, {"max_tx_rate": 2500, "min_tx_rate": 10}),
        ("0", {}, {}),
    ],
)
def test_a_vf_program_receives_the_rate_allocated_to_its_claim(
    topology: Topology, bandwidth: str, config: dict[str, Any], given_to_it: dict[str, Any]
) -> None:
    device = PlannedDevice(
        request="a",
        pool="p",
        device="d",
        pci_address="0000:41:10.0",
        pooled=True,
        consumed_capacity={"bandwidth": bandwidth},
    )
    (only,) = (graph := compile_topology(topology("- {name: a, type: sriov, execution: Binary}"))).steps
    given = completed(graph, msgspec.structs.replace(only, config=config), device)
    assert given == given_to_it
    assert check_programs([plan(step("a", "sriov", "net1", given, device=device, binary=True))]) == ()


def test_a_program_receives_the_device_of_a_preceding_step_if_exactly_one_exists(topology: Topology) -> None:
    rdma = "- {name: a, type: rdma, execution: Binary, dependOn: [%s]%s}"
    one = topology("- {name: vf0, type: sriov}\n- {name: t, type: tuning, dependOn: [vf0]}\n" + rdma % ("t", ""))
    assert unbound(one).steps[-1].config == {"deviceID": "{{ vf0.pciAddress }}"}
    assert unbound(one).steps[-1].if_name == "net1"
    two = "- {name: vf0, type: sriov}\n- {name: vf1, type: sriov}\n"
    (finding,) = check_topology(topology(two + rdma % ("vf0, vf1", "")))
    assert finding.text.endswith('CNIPluginSchema "rdma-binary" requires parameter "deviceID". (ND1037)')
    said = topology(two + rdma % ("vf0, vf1", ", config: {deviceID: '{{ vf1.pciAddress }}'}"))
    assert check_topology(said) == ()
    assert unbound(said).steps[-1].config == {"deviceID": "{{ vf1.pciAddress }}"}


BEFORE = """
- {name: a, type: sriov}
- {name: b, type: sriov}
- name: bond
  type: bond
  dependOn: [a, b]
  config: {mode: 1, links: ["{{ a.interfaceName }}", "{{ b.interfaceName }}"]}
- {name: tune, type: tuning, dependOn: [bond], config: {dev: "{{ a.interfaceName }}", mtu: 1400}}
- {name: vendors, type: vendor, dependOn: [a]}
"""


@pytest.mark.parametrize(
    ("before", "master"),
    [
        ("a", "{{ a.interfaceName }}"),
        ("bond", "{{ bond.interfaceName }}"),
        ("tune", "{{ bond.interfaceName }}"),  # whose result passes on what it was given
        ("a, b", None),
        ("vendors", None),  # nobody knows what it makes
    ],
)
@pytest.mark.parametrize("execution", ["Auto", "Binary"])
def test_a_vlan_master_defaults_to_the_interface_of_its_only_preceding_step(
    topology: Topology, before: str, master: str | None, execution: str
) -> None:
    ipam = "ipam: {type: static, addresses: [{address: 10.0.0.5/24}]}"
    vlan = f"- {{name: v, type: vlan, execution: {execution}, dependOn: [{before}], config: {{id: 5, {ipam}}}}}"
    written = topology(BEFORE + vlan)
    assert unbound(written).steps[-1].config.get("master") == master
    wrong = [each.what for each in check_topology(written) if "master" in each.what]
    assert [text.endswith('requires parameter "master".') for text in wrong] == ([] if master else [True])
    said = topology(BEFORE + vlan.replace("id: 5", "id: 5, master: '{{ a.interfaceName }}'").replace("[b", "[a, b"))
    assert unbound(said).steps[-1].config["master"] == "{{ a.interfaceName }}"


def test_a_vlan_with_a_default_master_is_checked_by_the_same_rules(topology: Topology) -> None:
    on_bond = "- {name: v, type: vlan, dependOn: [tune], config: {id: 5%s}}"
    one = topology(BEFORE + on_bond % "")
    assert check_topology(one) == ()
    twice = BEFORE + on_bond % "" + "\n- {name: w, type: vlan, dependOn: [bond], config: {id: 5}}"
    (finding,) = check_topology(topology(twice))
    assert 'VLAN 5 of "bond0" is already created by step "v"' in finding.text


def test_no_program_of_a_built_in_type_has_a_parameter_that_no_schema_knows() -> None:
    """Each is described twice, and common parameters have one meaning: the words of one are those of the other."""
    for kind in TYPES.keys() - {"vfio-pci", "device-file"}:
        inner, outer = (shipped.contracts([each])[each] for each in (kind, program(kind)))
        shared = set(inner.names) & set(outer.names)
        for first, second in itertools.combinations(sorted(shared), 2):
            assert (inner.names[first] == inner.names[second]) is (outer.names[first] == outer.names[second])


def test_steps_of_a_plan_by_hand_are_held_to_the_same() -> None:
    vlan = step("v", "vlan", "net1", {"vlanId": 5, "master": "x", "cniVersion": "1.0.0"}, after=["a"], binary=True)
    root = step("a", "sriov", "net2")
    assert check_programs([plan(root, vlan)]) == ()
    config = {**vlan.config, "protocol": "802.1ad"}
    (finding,) = check_programs([plan(root, msgspec.structs.replace(vlan, config=config))])
    assert finding.path == ("steps", 1, "config", "protocol")
    bond = step("b", "bond", "bond0", {"mode": "active-backup", "links": [{"name": "a"}, {"name": "b"}]}, binary=True)
    assert 'requires parameter "miimon"' in check_programs([plan(bond)])[0].what


LINK_MONITOR = """
- {{name: vf0, type: sriov}}
- {{name: vf1, type: sriov}}
- name: bond0
  type: bond
  execution: {execution}
  dependOn: [vf0, vf1]
  config: {{mode: active-backup, links: [{{name: net1}}, {{name: net2}}], {config}}}
"""


@pytest.mark.parametrize(
    ("config", "builtin", "program"),
    [
        ("", 100, "100"),
        ("miimon: 50", 50, "50"),
        ("miimon: 0", 0, "0"),
        ("arpInterval: 0", 100, None),  # the program has no ARP monitor
        ("arpInterval: 200, arpIpTarget: [192.0.2.1]", None, None),
    ],
)
def test_a_bond_gets_a_link_monitor_unless_its_config_has_one(
    topology: Topology, config: str, builtin: int | None, program: str | None
) -> None:
    for execution, expected in {"Auto": builtin, **({} if program is None else {"Binary": program})}.items():
        written = topology(LINK_MONITOR.format(execution=execution, config=config))

        assert check_topology(written) == ()
        assert unbound(written).steps[-1].config.get("miimon") == expected


def test_a_plan_of_a_former_version_is_attached_as_it_is_so_that_its_pod_is_not_attached_anew() -> None:
    former = plan(step("b", "bond", "bond0", {"mode": "active-backup", "links": ["net1", "net2"]}))

    assert translated_plan(former) == former
