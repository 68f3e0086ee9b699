"""Configs and graphs are checked against the plugins' schemas, and errors are reported in known words."""

from collections.abc import Callable
from pathlib import Path

import pytest

from netdra.model import documents
from netdra.model.errors import without_code
from netdra.model.findings import Finding
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.rules import shipped
from netdra.rules.schemas import check_graph, plugins
from netdra.topology.graph import compile_topology
from tests.documents import SCHEMAS, TOPOLOGIES

Topology = Callable[..., NetworkTopology]
OWN = [
    schema
    for path in sorted(SCHEMAS.glob("*.yaml"))
    for schema in documents.read(path.read_text(), path.name)
    if isinstance(schema, CNIPluginSchema)
]


def found(topology: NetworkTopology, *, own: bool = False) -> tuple[Finding, ...]:
    graph = compile_topology(topology)
    return check_graph(graph, shipped.contracts(plugins(graph.steps), OWN if own else ()))


def texts(topology: NetworkTopology, *, own: bool = False) -> list[str]:
    return [finding.text for finding in found(topology, own=own)]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_recorded_topologies_fit_the_shipped_and_the_recorded_schemas(
    recorded: Topology, path: Path, own: bool
) -> None:
    assert texts(recorded(path.stem), own=own) == []


def test_a_recorded_schema_exists_for_each_of_six_plugins() -> None:
    assert [schema.spec.cni_type for schema in OWN] == ["bond", "rdma", "sriov", "tuning", "vfio-pci", "vlan"]


@pytest.mark.parametrize("own", [False, True])
def test_too_few_interfaces_for_a_bond_are_reported_with_the_dependency_and_advice(
    topology: Topology, own: bool
) -> None:
    broken = topology(
        """
        - {name: vf0, type: sriov}
        - name: bond0
          type: bond
          dependOn: [vf0]
          config: {mode: 802.3ad, links: [{name: "{{ vf0.interfaceName }}"}, {name: net2}]}
        """,
        name="broken-topology",
    )
    assert [*map(without_code, texts(broken, own=own))] == [
        (
            'NetworkTopology "broken-topology", step "bond0": CNIPluginSchema "bond" requires at least 2 interfaces in '
            'prevResult, but step "bond0" depends on [vf0] which produces only 1 interface. '
            "Add another VF step to dependOn."
        )
    ]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("depend_on", ["[dpdk-vf]", "[vf0, dpdk-vf]"])
def test_a_vfio_device_under_a_bond_is_rejected_with_the_dependency_named(
    topology: Topology, own: bool, depend_on: str
) -> None:
    broken = topology(
        f"""
        - {{name: vf0, type: sriov}}
        - {{name: dpdk-vf, type: vfio-pci}}
        - name: bond0
          type: bond
          dependOn: {depend_on}
          config: {{mode: 802.3ad, links: [{{name: a}}, {{name: b}}]}}
        """,
        name="bad-dpdk",
    )
    assert [*map(without_code, texts(broken, own=own))] == [
        (
            'NetworkTopology "bad-dpdk", step "bond0": CNIPluginSchema "bond" requires at least 2 interfaces in '
            'prevResult, but dependency "dpdk-vf" uses plugin "vfio-pci" which produces 0 interfaces. '
            "VFIO devices cannot be bonded — they are userspace-managed."
        )
    ]


def test_a_parameter_unknown_to_the_schema_is_rejected_with_a_suggestion(topology: Topology) -> None:
    config = topology(
        """
        - {name: vf0, type: sriov}
        - {name: vlan100, type: vlan, dependOn: [vf0], config: {id: 1, vlanId: 100, master: x}}
        """,
        name="bad-config",
    )
    (finding,) = found(config, own=True)
    assert without_code(finding.text) == (
        'NetworkTopology "bad-config", step "vlan100": CNIPluginSchema "vlan" does not accept parameter "vlanId". '
        'Did you mean "id"?'
    )
    assert finding.path == ("spec", "steps", 1, "config", "vlanId")


def test_the_shipped_schema_takes_the_well_known_plugin_s_name_instead(topology: Topology) -> None:
    steps = "- {name: vf0, type: sriov}\n- {name: v, type: vlan, dependOn: [vf0], config: {%s, master: x}}"
    assert texts(topology(steps % "vlanId: 100, linkInContainer: true")) == []
    assert texts(topology(steps % "vlanId: 5000"))[0].endswith(
        'expects parameter "vlanId" to be at most 4094, found 5000. (ND1048)'
    )
    assert texts(topology(steps % "id: 1, vlanId: 100"))[0].endswith(
        'CNIPluginSchema "vlan" accepts "id" and "vlanId" for the same setting; only one can be set. (ND1036)'
    )


VLAN = "- {name: vf0, type: sriov}\n- {name: v, type: vlan, dependOn: [vf0], config: {%s}}"
BOND = """
- {name: a, type: sriov}
- {name: b, type: sriov}
- {name: bond, type: bond, dependOn: [a, b], config: {mode: balance-rr, links: [{name: x}, {name: y}], %s}}
"""
TUNING = "- {name: vf0, type: sriov}\n- {name: t, type: tuning, dependOn: [vf0], config: {%s}}"
ROOT = "- {name: vf0, type: %s}"


@pytest.mark.parametrize(
    ("steps", "message", "place"),
    [
        (VLAN % "master: x", 'requires parameter "id".', ()),
        (VLAN % "id: '5', master: x", 'expects parameter "id" to be integer, found "5".', ("id",)),
        (VLAN % "id: true, master: x", 'expects parameter "id" to be integer, found true.', ("id",)),
        (VLAN % "id: 0, master: x", 'expects parameter "id" to be at least 1, found 0.', ("id",)),
        (VLAN % "id: 4095, master: x", 'expects parameter "id" to be at most 4094, found 4095.', ("id",)),
        (VLAN % "id: 5, master: [x]", 'expects parameter "master" to be string, found ["x"].', ("master",)),
        (
            VLAN % "id: '{{ vf0.mac }}', master: x",
            'expects parameter "id" to be integer; a reference is always a string.',
            ("id",),
        ),
        (
            VLAN % "id: 5, master: x, protocl: 802.1ad",
            'does not accept parameter "protocl". Did you mean "protocol"?',
            ("protocl",),
        ),
        (
            VLAN % "id: 5, master: x, zzz: 1",
            'does not accept parameter "zzz". Known: id, linkInContainer, mac, master, mtu, name, protocol, vlanId.',
            ("zzz",),
        ),
        (
            BOND.replace("balance-rr", "'802.3'") % "mtu: 1500",
            'does not accept "802.3" for parameter "mode". Did you mean "802.3ad"?',
            ("mode",),
        ),
        (
            BOND.replace("[{name: x}, {name: y}]", "[{name: x}]") % "mtu: 1500",
            'expects at least 2 items in parameter "links", found 1.',
            ("links",),
        ),
        (
            BOND.replace("{name: y}", "{nme: y}") % "mtu: 1500",
            'does not accept parameter "links[1].nme". Did you mean "name"?',
            ("links", 1, "nme"),
        ),
        (
            BOND.replace("{name: y}", "5") % "mtu: 1500",
            'expects parameter "links[1]" to be string | object, found 5.',
            ("links", 1),
        ),
        (
            VLAN % "id: 5, master: '{{ vf0.interfaces }}'",
            '{{ vf0.interfaces }} is a list of interfaces. Use "{{ vf0.interfaceName }}".',
            ("master",),
        ),
        (
            TUNING % "rules: '{{ vf0.interfaces }}'",
            'expects parameter "rules" to be []object, but {{ vf0.interfaces }} is a list of interfaces.',
            ("rules",),
        ),
        (BOND % "xmit_hash_policy: layer2", 'Did you mean "xmitHashPolicy"?', ("xmit_hash_policy",)),
        (BOND % "miimon: [1]", 'expects parameter "miimon" to be integer | string, found [1].', ("miimon",)),
        (
            BOND % "arpIpTarget: [a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a]",
            'expects at most 16 items in parameter "arpIpTarget", found 17.',
            ("arpIpTarget",),
        ),
        (
            TUNING % "ethtool: {features: {tso: 'yes'}}",
            'expects parameter "ethtool.features.tso" to be bool, found "yes".',
            ("ethtool", "features", "tso"),
        ),
        (
            TUNING % "sysctl: {net.core.somaxconn: 512}",
            'expects parameter "sysctl.net.core.somaxconn" to be string, found 512.',
            ("sysctl", "net.core.somaxconn"),
        ),
        (
            TUNING % "routes: [{destination: 10.0.0.0/8, metric: -1}]",
            'expects parameter "routes[0].metric" to be at least 0, found -1.',
            ("routes", 0, "metric"),
        ),
        (
            BOND % "primary: on",
            'expects parameter "primary" to be string, found true. YAML reads on, off, yes and no as booleans:',
            ("primary",),
        ),
        (
            "- {name: v, type: sriov, config: {trust: maybe}}",
            'does not accept "maybe" for parameter "trust".',
            ("trust",),
        ),
        (
            "- {name: v, type: macvlan, config: {ipam: {type: host-local, rnges: []}}}",
            'CNIPluginSchema "host-local" does not accept parameter "rnges". Did you mean "ranges"?',
            ("ipam", "rnges"),
        ),
        (
            "- {name: v, type: macvlan, config: {ipam: {subnet: x}}}",
            "config.ipam does not have a type. Set an IPAM plugin",
            ("ipam",),
        ),
        (
            "- {name: v, type: macvlan, config: {ipam: {type: ../../bin/sh}}}",
            'type "../../bin/sh" is not a valid CNI plugin name; write the program\'s name alone: sh',
            ("ipam", "type"),
        ),
        ("- {name: v, type: macvlan, config: {ipam: x}}", "config.ipam must be an object", ("ipam",)),
    ],
)
def test_a_config_that_does_not_fit_is_found_with_its_place(
    topology: Topology, steps: str, message: str, place: tuple[str | int, ...]
) -> None:
    written = topology(steps)
    (finding,) = found(written)
    assert message in finding.text
    at = len(written.spec.steps) - 1
    assert finding.path == ("spec", "steps", at, "config", *place)


@pytest.mark.parametrize(
    ("steps", "hint"),
    [
        (BOND % "primary: on", "YAML reads on, off, yes and no as booleans: put the value in quotes."),
        (TUNING % "sysctl: {net.core.somaxconn: 512}", ""),
        (TUNING % "mtu: on", ""),
        (TUNING % "mtu: '9000'", "Remove the quotes of 9000."),
        (TUNING % "mtu: large", ""),
    ],
)
def test_the_hint_for_a_value_of_another_type_fits_both_types(topology: Topology, steps: str, hint: str) -> None:
    assert [finding.hint for finding in found(topology(steps))] == [hint]


@pytest.mark.parametrize(
    ("more", "is_known"),
    [("", True), (", args: {cni: {ips: [10.0.0.6/24]}}", False), (", runtimeConfig: {ips: [10.0.0.6/24]}", False)],
)
def test_the_number_of_addresses_is_unknown_if_a_plugin_may_get_more_of_them_elsewhere(
    topology: Topology, more: str, is_known: bool
) -> None:
    steps = f"""
    - {{name: nic, type: host-device}}
    - {{name: tune, type: tuning, dependOn: [nic], config: {{addresses: [10.0.0.5/24]{more}}}}}
    - {{name: more, type: tuning, dependOn: [tune], config: {{sysctl: {{net.x: "{{{{ tune.ips[1].address }}}}"}}}}}}
    """
    assert any("produces only one address" in finding.what for finding in found(topology(steps))) is is_known


ADD_ATTRIBUTE = "A policy's additionalAttributes can add an attribute of this type to devices."


@pytest.mark.parametrize(
    ("steps", "hint"),
    [
        (VLAN % "id: '{{ device.ifName }}', master: x", ADD_ATTRIBUTE),
        (VLAN % "id: '{{ vf0.mac }}', master: x", ""),
        (
            VLAN % "id: '1{{ pod.ordinal }}', master: x",
            "Use a single reference, to a fact that is integer, as the whole value.",
        ),
    ],
)
def test_the_hint_for_a_text_in_place_of_another_type_fits_the_reference(
    topology: Topology, steps: str, hint: str
) -> None:
    assert [finding.hint for finding in found(topology(steps)) if "to be" in finding.what] == [hint]


@pytest.mark.parametrize(
    "steps",
    [
        BOND % "miimon: '100', linksInContainer: true, failOverMac: 1",
        TUNING % "name: net1, ipam: {}, runtimeConfig: {mac: '02:00:00:00:00:01'}, dns: {nameservers: [1.1.1.1]}",
        TUNING % "mac: '{{ vf0.mac }}', dev: '{{ vf0.interfaceName }}'",
        "- {name: v, type: macvlan, config: {ipam: {type: of-my-own, whatever: 1}}}",
        "- {name: v, type: macvlan, config: {ipam: {type: host-local, ranges: [[{subnet: 10.0.0.0/24}]]}}}",
        "- {name: v, type: bond-of-my-own, config: {whatever: 1}}",
        "- {name: v, type: vfio-pci, config: {driver: igb_uio}}",
        "- {name: v, type: vlan, config: {id: 5}}",
        "- {name: v, type: sriov, config: {trust: on, spoofchk: 'off'}}",
        BOND % "arpIpTarget: 10.0.0.1, allSlavesActive: 1",
        VLAN % "id: 5, master: x, mac: null",
    ],
)
def test_a_config_that_fits_is_left_alone(topology: Topology, steps: str) -> None:
    assert texts(topology(steps)) == []


def test_a_thousand_equal_mistakes_yield_only_fifty_findings(topology: Topology) -> None:
    links = ", ".join(["1"] * 1000)
    assert len(texts(topology(BOND.replace("{name: x}, {name: y}", links) % "mtu: 1500"))) == 50


# --- what flows through the graph


def test_a_bond_takes_all_interfaces_of_a_step_that_has_them(topology: Topology) -> None:
    steps = """
    - {name: a, type: sriov}
    - {name: b, type: sriov}
    - {name: both, type: tuning, dependOn: [a, b]}
    - {name: c, type: bond, dependOn: [both], config: {mode: balance-rr, links: "{{ both.interfaces }}"}}
    """
    assert texts(topology(steps)) == []
    (told,) = texts(topology(steps.replace("dependOn: [both]", "dependOn: [a, b]").replace("both.int", "a.int")))
    assert 'at least 2 items in parameter "links", but {{ a.interfaces }} is of 1 interface. Use a list:' in told


def test_a_step_that_needs_others_cannot_be_a_root(topology: Topology) -> None:
    (finding,) = found(topology("- {name: t, type: tuning}"))
    assert 'CNIPluginSchema "tuning" requires a prevResult, but the step has no dependOn.' in finding.what


def test_interfaces_are_counted_once_along_both_ways_of_a_diamond(topology: Topology) -> None:
    bond = "{name: b, type: bond, dependOn: [v1, v2], config: {mode: balance-rr, links: [{name: x}, {name: y}]}}"
    tuned = f"""
    - {{name: a, type: sriov}}
    - {{name: v1, type: tuning, dependOn: [a]}}
    - {{name: v2, type: tuning, dependOn: [a]}}
    - {bond}
    """
    assert texts(topology(tuned)) == [
        (
            'NetworkTopology "net", step "b": CNIPluginSchema "bond" requires at least 2 interfaces in prevResult, '
            'but step "b" depends on [v1, v2] which produces only 1 interface. '
            "Add another VF step to dependOn. (ND1083)"
        )
    ]
    stacked = tuned.replace("tuning, dependOn: [a]", "macvlan, dependOn: [a]")
    assert texts(topology(stacked)) == []


def test_a_plugin_without_a_schema_may_have_made_anything(topology: Topology) -> None:
    steps = """
    - {name: a, type: mine}
    - {name: t, type: tuning, dependOn: [a], config: {mac: "{{ a.mac }}"}}
    - name: b
      type: bond
      dependOn: [t]
      config: {mode: balance-rr, links: [{name: "{{ a.interfaceName }}"}, {name: "{{ a.rdmaDevice }}"}]}
    """
    assert texts(topology(steps)) == []


def test_an_interface_a_plugin_may_create_for_some_devices_can_be_referenced(topology: Topology) -> None:
    steps = (
        "- {name: ib, type: rdma}\n- {name: t, type: tuning, dependOn: [ib], config: {dev: '{{ ib.interfaceName }}'}}"
    )
    assert texts(topology(steps)) == []


def test_more_interfaces_than_a_plugin_takes_are_refused(topology: Topology) -> None:
    roots = "\n".join(f"- {{name: v{at}, type: sriov}}" for at in range(9))
    named = ", ".join(f"v{at}" for at in range(9))
    config = "{mode: balance-rr, links: [{name: x}, {name: y}]}"
    bond = f"- {{name: b, type: bond, dependOn: [{named}], config: {config}}}"
    (finding,) = found(topology(f"{roots}\n{bond}"), own=True)
    assert 'CNIPluginSchema "bond" accepts at most 8 interfaces in prevResult' in finding.what
    assert "which produces 9 interfaces." in finding.what


@pytest.mark.parametrize(
    ("root", "field", "why"),
    [
        ("vfio-pci", "interfaceName", 'plugin "vfio-pci" of step "r" does not produce interfaces.'),
        ("vfio-pci", "mac", "does not produce interfaces"),
        ("sriov", "ips[0].address", 'plugin "sriov" of step "r" does not produce ips.'),
        ("sriov", "iommuGroup", "does not produce devices with iommuGroup"),
        ("sriov", "rdmaDevice", "does not produce devices with rdmaDevice"),
        ("vfio-pci", "rdmaDevice", "does not produce devices with rdmaDevice"),
        ("vfio-pci", "iommuGroup", ""),
        ("vfio-pci", "deviceNodes", ""),
        ("vfio-pci", "pciAddress", ""),
        ("sriov", "pciAddress", ""),
        ("sriov", "sandbox", ""),
        ("rdma", "rdmaDevice", ""),
        ("rdma", "mac", ""),
    ],
)
def test_a_reference_to_a_field_the_plugin_does_not_produce_is_rejected(
    topology: Topology, root: str, field: str, why: str
) -> None:
    steps = (
        f"- {{name: r, type: {root}}}\n- {{name: d, type: mine, dependOn: [r], config: {{x: ['{{{{ r.{field} }}}}']}}}}"
    )
    findings = found(topology(steps))
    assert [why in finding.what for finding in findings] == ([True] if why else [])
    assert [finding.path for finding in findings] == ([("spec", "steps", 1, "config", "x", 0)] if why else [])


def test_addresses_come_from_an_ipam_plugin_or_from_tuning(topology: Topology) -> None:
    reference = "{name: d, type: mine, dependOn: [t], config: {x: '{{ t.ips[0].address }}'}}"
    ipam = "- {name: t, type: macvlan, config: {ipam: {type: dhcp}}}"
    tuning = "- {name: a, type: sriov}\n- {name: t, type: tuning, dependOn: [a], config: {addresses: [10.0.0.5/24]}}"
    assert texts(topology(f"{ipam}\n- {reference}")) == []
    assert texts(topology(f"{tuning}\n- {reference}")) == []


def test_addresses_that_a_plugin_needs_must_come_from_somewhere(topology: Topology) -> None:
    (own,) = documents.read(
        """
        apiVersion: cni.networking.k8s.io/v1alpha1
        kind: CNIPluginSchema
        metadata: {name: router}
        spec: {cniType: router, input: {prevResult: {required: true, ips: {required: true}}}}
        """,
        "test",
    )
    assert isinstance(own, CNIPluginSchema)
    steps = "- {name: a, type: %s}\n- {name: r, type: router, dependOn: [a]}"

    def said(root: str) -> list[str]:
        graph = compile_topology(topology(steps % root))
        return [finding.what for finding in check_graph(graph, shipped.contracts(plugins(graph.steps), [own]))]

    assert said("mine") == []
    assert said("sriov") == [
        (
            'NetworkTopology "net", step "r": CNIPluginSchema "router" requires ips in prevResult, '
            'but step "r" depends on [a] which produces none.'
        )
    ]
