"""netdra's own kinds at admission: rejected objects, and valid objects with warnings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from netdra.admission.messages import ALLOWED, AdmissionRequest
from netdra.admission.nodes import Nodes
from netdra.admission.requests import is_reshaped, narrowed, verdict_on
from netdra.model import documents
from netdra.model.claim import DeviceClass
from netdra.model.custom_device import CustomDevice
from netdra.model.errors import without_code
from netdra.model.node_network import InterfaceGroup, PublishedDevice
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.networks import shares
from netdra.review import topologies
from netdra.review.world import World
from netdra.topology.classes import device_classes, known_classes
from netdra.vocabulary import added
from tests.builders import OURS, exclude, exclusive, policy, shared
from tests.unit.admission import kept
from tests.unit.networks.builders import network

Request = Callable[..., AdmissionRequest]
Topology = Callable[..., NetworkTopology]
ONE = "- {name: vf0, type: sriov}"
TWO = "- {name: vf0, type: sriov}\n- {name: vf1, type: sriov}"


def schema(name: str, plugin: str, **spec: Any) -> CNIPluginSchema:
    value = {
        "apiVersion": "cni.networking.k8s.io/v1alpha1",
        "kind": "CNIPluginSchema",
        "metadata": {"name": name},
        "spec": {"cniType": plugin, **spec},
    }
    return documents.convert(value, CNIPluginSchema, "test")


def former_versions(found: CNIPluginSchema) -> CNIPluginSchema:
    """As if a former version of netdra had made it."""
    name = found.metadata.name
    return replace(found, metadata=replace(found.metadata, labels={"networking.dra.io/shipped": name}))


def custom(name: str = "c", **spec: Any) -> CustomDevice:
    value = {
        "apiVersion": "networking.dra.io/v1alpha1",
        "kind": "CustomDevice",
        "metadata": {"name": name},
        "spec": {"provider": "bctl", "device": "eth1", **spec},
    }
    return documents.convert(value, CustomDevice, "test")


class TestTopologies:
    def test_a_sound_one_is_let_through(self, request_of: Request, topology: Topology) -> None:
        assert verdict_on(request_of(topology("net", ONE)), World()) == ALLOWED

    def test_a_bond_of_one_interface_is_refused_in_the_known_words(
        self, request_of: Request, topology: Topology
    ) -> None:
        config = "{mode: active-backup, links: [{name: net1}, {name: net2}]}"
        steps = f"{ONE}\n- {{name: bond0, type: bond, dependOn: [vf0], config: {config}}}"
        (error,) = verdict_on(request_of(topology("broken-topology", steps)), World()).errors
        assert without_code(error) == (
            'NetworkTopology "broken-topology", step "bond0": CNIPluginSchema "bond" requires at least 2 interfaces '
            'in prevResult, but step "bond0" depends on [vf0] which produces only 1 interface. '
            "Add another VF step to dependOn."
        )

    def test_a_selector_with_invalid_cel_is_rejected(self, request_of: Request, topology: Topology) -> None:
        steps = '- {name: vf0, type: sriov, selector: {cel: "device.atributes"}}'
        (error,) = verdict_on(request_of(topology("net", steps)), World()).errors
        assert "undefined field" in error

    def test_a_selector_with_a_name_that_is_almost_one_is_refused(
        self, request_of: Request, topology: Topology
    ) -> None:
        steps = f"- {{name: vf0, type: sriov, selector: {{cel: '{OURS}.pfname == \"a\"'}}}}"
        (error,) = verdict_on(request_of(topology("net", steps)), World()).errors
        assert 'step "vf0": selector.cel: CEL expression is wrong at line 1, column 37' in error
        assert 'did you mean "pfName"?' in error

    def test_a_name_is_warned_of_until_a_policy_adds_it(self, request_of: Request, topology: Topology) -> None:
        steps = f"- {{name: vf0, type: sriov, selector: {{cel: '{OURS}.rack == \"a\"'}}}}"
        (warning,) = verdict_on(request_of(topology("net", steps)), World()).warnings
        assert 'attribute "rack" of domain dra.networking is not set on any device yet' in warning
        given = added([exclusive("p", "true", additionalAttributes={"rack": "a"})])
        assert verdict_on(request_of(topology("net", steps)), World(added=given)) == ALLOWED
        given = added([exclusive("p", "true", additionalAttributes={"rack": 7})])
        (error,) = verdict_on(request_of(topology("net", steps)), World(added=given)).errors
        assert 'rack is an int and "a" a string' in error

    def test_a_schema_in_the_cluster_overrides_the_builtin_schema(
        self, request_of: Request, topology: Topology
    ) -> None:
        own = schema("sriov", "sriov", configParameters={"required": [{"name": "level", "type": "integer"}]})
        (error,) = verdict_on(request_of(topology("net", ONE)), World(schemas={"sriov": own})).errors
        assert "level" in error

    def test_a_schema_of_a_former_version_is_ignored(self, request_of: Request, topology: Topology) -> None:
        strict = {"required": [{"name": "level", "type": "integer"}]}
        older = former_versions(schema("sriov", "sriov", configParameters=strict))
        new = request_of(topology("net", ONE))
        assert verdict_on(new, World(schemas={"sriov": older})) == ALLOWED
        vendors = schema("zz", "sriov", configParameters=strict)
        assert verdict_on(new, World(schemas={"sriov": older, "zz": vendors})).errors
        unknown = request_of(topology("net", "- {name: vf0, type: unheard}"))
        (warning,) = verdict_on(
            unknown, World(schemas={"unheard": former_versions(schema("unheard", "unheard"))})
        ).warnings
        assert 'no CNIPluginSchema describes plugin "unheard"' in warning

    def test_a_schema_that_contradicts_itself_counts_for_nothing(self, request_of: Request, topology: Topology) -> None:
        limits = {"prevResult": {"interfaces": {"minItems": 3, "maxItems": 1}}}
        broken = schema("sriov", "sriov", input=limits)
        assert verdict_on(request_of(topology("net", ONE)), World(schemas={"sriov": broken})) == ALLOWED

    def test_two_that_make_a_class_of_the_same_name_clash(self, request_of: Request, topology: Topology) -> None:
        first = topology("a", "- {name: b-c, type: sriov}")
        second = topology("a-b", "- {name: c, type: sriov}")
        (error,) = verdict_on(request_of(second), World(topologies={"a": first})).errors
        assert 'its DeviceClass "a-b-c" has the same name as that of step "b-c" of NetworkTopology "a"' in error

    def test_errors_of_other_objects_are_not_reported(self, request_of: Request, topology: Topology) -> None:
        others = {"a": topology("a", "- {name: b-c, type: sriov}"), "a-b": topology("a-b", "- {name: c, type: sriov}")}
        assert verdict_on(request_of(topology("net", ONE)), World(topologies=others)) == ALLOWED

    @pytest.mark.parametrize("steps", [TWO, "- {name: vf0, type: host-device}"])
    def test_the_steps_of_one_that_is_used_are_fixed(self, request_of: Request, topology: Topology, steps: str) -> None:
        old, new = topology("net", ONE), topology("net", steps)
        users = tuple(f"team/{number}" for number in range(7))
        (error,) = verdict_on(request_of(new, old), World(users=users)).errors
        named = "(team/0, team/1, team/2, team/3, team/4 and 2 more)"
        assert f"by 7 ResourceClaims of attached pods {named}; its steps cannot be changed" in error
        assert verdict_on(request_of(new, old), World()).allowed

    @pytest.mark.parametrize(
        ("steps", "other"),
        [(TWO, True), (ONE, False), ("- {name: vf0, type: sriov, selector: {cel: 'false'}}", False)],
        ids=["another step", "the same", "another selector"],
    )
    def test_users_of_a_topology_matter_only_when_its_steps_change(
        self, request_of: Request, topology: Topology, steps: str, other: bool
    ) -> None:
        old, new = topology("net", ONE), topology("net", steps)
        assert is_reshaped(request_of(new, old)) == other
        assert not is_reshaped(request_of(new))

    def test_the_steps_of_an_unattached_topology_can_be_changed_with_a_warning(
        self, request_of: Request, topology: Topology
    ) -> None:
        new, old = topology("net", ONE.replace("vf", "vg")), topology("net", ONE)
        (warning,) = verdict_on(request_of(new, old), World(waiting=2)).warnings
        assert "2 ResourceClaims that are allocated but not attached will use the new steps" in warning

    def test_a_range_that_another_network_hands_out_too_is_warned_of(
        self, request_of: Request, topology: Topology
    ) -> None:
        local = "- {name: nic, type: host-device, config: {ipam: {type: host-local, subnet: 10.7.0.0/24}}}"
        one, two = topology("one", local), topology("two", local)
        request = request_of(two)
        known = World(topologies={"one": one, "far": topology("far", local.replace("10.7", "10.8"))})
        assert set(narrowed(request, known).topologies) == {"one"}
        for cluster in (known, narrowed(request, known)):
            verdict = verdict_on(request, cluster)
            assert verdict.allowed
            assert 'also assigned by step "nic" of "one"' in "\n".join(verdict.warnings)
        same = topology("two", local.replace("type: host-device", "type: host-device, network: n"))
        assert not verdict_on(request_of(same), World(topologies={"one": same})).warnings

    def test_selectors_of_one_that_is_used_can_be_changed(self, request_of: Request, topology: Topology) -> None:
        new = topology("net", f"- {{name: vf0, type: sriov, selector: {{cel: '{OURS}.rdma == true'}}}}")
        assert verdict_on(request_of(new, topology("net", ONE)), World(users=("team/a",))) == ALLOWED

    def test_a_foreign_class_of_the_name_is_warned_of(self, request_of: Request, topology: Topology) -> None:
        found = documents.convert({"metadata": {"name": "net-vf0"}, "spec": {}}, DeviceClass, "test")
        new = topology("net", ONE)
        cluster = narrowed(request_of(new), World(classes=known_classes([new], [found])))
        (warning,) = verdict_on(request_of(new), cluster).warnings
        assert 'DeviceClass "net-vf0" already exists and is not managed by netdra' in warning

    def test_its_own_classes_are_not_warned_of(self, request_of: Request, topology: Topology) -> None:
        new = topology("net", ONE)
        cluster = narrowed(request_of(new), World(classes=known_classes([new], [])))
        assert verdict_on(request_of(new), cluster) == ALLOWED

    def test_a_plugin_without_a_schema_is_warned_of(self, request_of: Request, topology: Topology) -> None:
        verdict = verdict_on(request_of(topology("net", "- {name: a, type: my-plugin}")), World())
        assert verdict.allowed
        assert 'no CNIPluginSchema describes plugin "my-plugin"' in verdict.warnings[0]

    def test_one_that_cannot_be_read_is_refused_with_the_place(self, request_of: Request, topology: Topology) -> None:
        plain = documents.plain(topology("net", ONE))
        plain["spec"]["steps"][0]["type"] = 7
        (error,) = verdict_on(request_of(plain), World()).errors
        assert error.startswith('NetworkTopology "net", step "vf0": expected text, found an integer')


class TestPolicies:
    def test_an_unusable_policy_is_rejected_with_each_error(self, request_of: Request) -> None:
        wrong = policy("p", "device.driver ==", allowMultipleAllocations=True)
        errors = verdict_on(request_of(wrong), World()).errors
        assert len(errors) == 2
        assert all(error.startswith('DeviceExposurePolicy "p": ') for error in errors)
        assert [error.splitlines()[0].rsplit(" ", 2)[1:] for error in errors] == [
            ["[spec.selector.cel]", "(ND1571)"],
            ["[spec.exposure.capacity]", "(ND1419)"],
        ]

    def test_an_unknown_enum_value_is_rejected_with_the_allowed_values(self, request_of: Request) -> None:
        wrong = documents.plain(exclusive("p", "true"))
        wrong["spec"]["action"] = "expoze"
        (error,) = verdict_on(request_of(wrong), World()).errors
        assert error.startswith('DeviceExposurePolicy "p": ')
        assert error.endswith("[spec.action] (ND1537)")
        assert all(word in error for word in ('"expose"', '"exclude"'))

    def test_consumption_of_an_unknown_capacity_is_refused(self, request_of: Request) -> None:
        wrong = shared("p", "true", supportedCNIPlugins=[{"name": "macvlan", "consumePerAllocation": {"seats": 1}}])
        (error,) = verdict_on(request_of(wrong), World()).errors
        assert '"seats" not found in spec.exposure.capacity [spec.exposure.supportedCNIPlugins[0]' in error

    def test_a_policy_that_can_be_used_is_let_through(self, request_of: Request) -> None:
        assert verdict_on(request_of(exclusive("p", "true")), World()) == ALLOWED
        assert verdict_on(request_of(exclude("p", "true")), World()) == ALLOWED

    @pytest.mark.parametrize("action", ["expose", "exclude"])
    @pytest.mark.parametrize(
        ("cel", "said"),
        [
            (f'{OURS}.ifNmae == "eno1"', 'did you mean "ifName"?'),
            ('device.attributes["dra.network"].ifName == "eno1"', 'did you mean "dra.networking"?'),
            (f'{OURS}.numaNode == "0"', "write 0 without quotes"),
        ],
    )
    def test_a_selector_with_an_evident_mistake_is_rejected_with_a_correction(
        self, request_of: Request, action: str, cel: str, said: str
    ) -> None:
        new = exclude("p", cel) if action == "exclude" else exclusive("p", cel)
        (error,) = verdict_on(request_of(new), World()).errors
        assert error.startswith('DeviceExposurePolicy "p": CEL expression is wrong at line 1, column ')
        assert error.splitlines()[0].endswith(" [spec.selector.cel] (ND1248)")
        assert said in error

    def test_a_policy_cannot_select_by_attributes_that_policies_add(self, request_of: Request) -> None:
        given = added([exclusive("p", "true", additionalAttributes={"rack": "a"})])
        (error,) = verdict_on(request_of(exclude("q", f'{OURS}.rack == "a"')), World(added=given)).errors
        assert "added to devices after policies select interfaces" in error

    def test_a_domain_of_others_is_warned_of_on_one_line(self, request_of: Request) -> None:
        new = exclude("p", 'device.attributes["example.org"].rack == "a"')
        (warning,) = verdict_on(request_of(new), World()).warnings
        assert 'interfaces do not have attributes of domain "example.org"' in warning
        assert "\n" not in warning

    def test_no_plugin_and_the_nodes_uplink_are_warned_of(self, request_of: Request) -> None:
        warnings = verdict_on(request_of(policy("p", "true", allowHostUplink=True)), World()).warnings
        assert [text.split()[-2:] for text in warnings] == [
            ["[spec.exposure.supportedCNIPlugins]", "(ND1461)"],
            ["[spec.exposure.allowHostUplink]", "(ND1463)"],
        ]

    def test_a_policy_of_the_same_rank_is_warned_of(self, request_of: Request) -> None:
        cluster = World(policies={"a": exclusive("a", "true"), "b": exclusive("b", "false"), "p": exclude("p", "true")})
        (warning,) = verdict_on(request_of(exclusive("p", "true ")), cluster).warnings
        assert 'the same selector, priority and suffix as "a", so only "a" is used' in warning


class TestSchemas:
    def test_one_that_contradicts_itself_is_refused(self, request_of: Request) -> None:
        twice = {"required": [{"name": "a", "type": "string"}], "optional": [{"name": "a", "type": "string"}]}
        assert verdict_on(request_of(schema("s", "x", configParameters=twice)), World()).errors

    def test_a_second_one_for_a_plugin_is_warned_of(self, request_of: Request) -> None:
        (warning,) = verdict_on(request_of(schema("s", "x")), World(schemas={"a": schema("a", "x")})).warnings
        assert 'a also describes plugin "x"; "a" counts' in warning

    def test_topologies_that_break_it_are_named(self, request_of: Request, topology: Topology) -> None:
        strict = schema("s", "sriov", configParameters={"required": [{"name": "level", "type": "integer"}]})
        topologies = {"net": topology("net", ONE), "other": topology("other", "- {name: a, type: host-device}")}
        warnings = verdict_on(request_of(strict), World(topologies=topologies)).warnings
        assert "the stored topologies net do not match it" in warnings[-1]

    def test_a_schema_of_a_former_version_is_not_a_duplicate_and_its_author_is_warned(
        self, request_of: Request
    ) -> None:
        former = former_versions(schema("vlan", "vlan"))
        warnings = verdict_on(request_of(schema("a-vlan", "vlan")), World(schemas={"vlan": former})).warnings
        assert [told for told in warnings if "too" in told] == []
        (warning,) = verdict_on(request_of(former), World()).warnings
        assert 'CNIPluginSchema "vlan": the label networking.dra.io/shipped' in warning
        assert "the schema is ignored, and the controller deletes it" in warning

    def test_a_schema_wider_than_the_builtin_one_is_warned_of_by_its_keys(self, request_of: Request) -> None:
        wider = schema("vlan", "vlan", configParameters={"optional": [{"name": "vendorKey", "type": "integer"}]})
        (warning,) = verdict_on(request_of(wider), World()).warnings
        assert 'allows more than netdra\'s built-in schema for plugin "vlan": it accepts vendorKey' in warning


class TestCustomDevices:
    def test_a_publishable_custom_device_is_allowed(self, request_of: Request) -> None:
        right = custom(
            attributes={"rack": {"string": "r1"}, "fw": {"version": "1.2.3-rc.1+b"}, "ids": {"ints": [1, 2]}},
            capacity={"seats": {"value": "10"}},
            selector={"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}},
        )
        assert verdict_on(request_of(right), World()) == ALLOWED

    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            ({}, "is required"),
            ({"provider": "dra.networking", "addIfNotExist": True}, "is reserved"),
            ({"provider": "a.k8s.io", "addIfNotExist": True}, "is reserved"),
            ({"provider": "B", "addIfNotExist": True}, "is not a domain"),
            ({"device": "eth1.5", "addIfNotExist": True}, "is not a valid device name"),
            ({"attributes": {"a-b": {"int": 1}}}, "must have at most 32 letters"),
            ({"attributes": {"a": {}}}, "0 values"),
            ({"attributes": {"a": {"int": 1, "bool": True}}}, "2 values"),
            ({"attributes": {"a": {"string": "x" * 65}}}, "longer than 64 bytes"),
            ({"attributes": {"a": {"version": "1.2"}}}, "not a semantic version"),
            ({"attributes": {"a": {"version": "01.2.3"}}}, "not a semantic version"),
            ({"attributes": {"a": {"strings": []}}}, "must not be empty"),
            ({"attributes": {"a": {"int": 2**63}}}, "not a 64-bit integer"),
            ({"capacity": {"a": {"value": "ten"}}}, "is not a quantity"),
            (
                {
                    "capacity": {f"c{at}": {"value": 1} for at in range(20)},
                    "attributes": {f"a{at}": {"int": 1} for at in range(20)},
                },
                "supports 32",
            ),
            (
                {
                    "addIfNotExist": True,
                    "selector": {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
                },
                "operator In requires values",
            ),
        ],
    )
    def test_an_unpublishable_custom_device_is_rejected(
        self, request_of: Request, spec: dict[str, Any], message: str
    ) -> None:
        plain = documents.plain(custom(addIfNotExist=True))
        plain["spec"] = {"provider": "bctl", "device": "eth1", **spec}
        (error,) = verdict_on(request_of(plain), World()).errors
        assert message in error

    def test_a_second_one_for_a_device_is_warned_of(self, request_of: Request) -> None:
        cluster = World(custom_devices={"a": custom("a", addIfNotExist=True)})
        (warning,) = verdict_on(request_of(custom("b", addIfNotExist=True)), cluster).warnings
        assert "a describes the same device" in warning
        other = custom("b", device="eth2", addIfNotExist=True)
        assert verdict_on(request_of(other), cluster) == ALLOWED


class TestNowhere:
    """A CustomDevice that is for nothing there is: its author may have mistyped, or be early."""

    def nodes(self) -> Nodes:
        nodes = Nodes()
        group = InterfaceGroup(type="nic", count=1, listed=("eth1",), devices=(PublishedDevice(suffix="-shared"),))
        for name, rack in (("n1", "a7"), ("n2", "b1")):
            nodes.nodes.put(name, kept.node(name, rack=rack))
            nodes.reports.put(name, kept.report(name, [group] if name == "n1" else []))
        nodes.reports.advance("1")
        return nodes

    @pytest.mark.parametrize(
        ("device", "rack", "message"),
        [
            ("eth1", "", ""),
            ("eth1-shared", "a7", ""),
            ("eth2", "", 'device or interface "eth2" is not reported by any of the 2 selected nodes'),
            ("eth1", "b1", "not reported by any of the 1 selected nodes"),
            ("eth1", "c3", "the labels do not match any of the 2 nodes"),
        ],
    )
    def test_it_is_warned_of(self, request_of: Request, device: str, rack: str, message: str) -> None:
        chosen: dict[str, Any] = {"selector": {"nodeSelector": {"matchLabels": {"rack": rack}}}} if rack else {}
        new = custom(device=device, attributes={"a": {"int": 1}}, **chosen)
        nowhere = self.nodes().nowhere(new)
        assert message in nowhere
        assert bool(message) is bool(nowhere)
        found = verdict_on(request_of(new), World(nowhere=nowhere))
        assert found.allowed
        assert [message in warning for warning in found.warnings] == ([True] if message else [])

    def test_a_custom_device_without_nodes_or_with_add_if_not_exist_is_not_warned_of(self) -> None:
        assert Nodes().nowhere(custom(attributes={"a": {"int": 1}})) == ""
        assert self.nodes().nowhere(custom(device="wire1", addIfNotExist=True)) == ""


def test_a_cluster_survives_encoding_for_a_worker(topology: Topology) -> None:
    cluster = World(
        topologies={"net": topology("net", ONE)},
        schemas={"s": schema("s", "x")},
        policies={"p": shared("p", "true")},
        custom_devices={"c": custom(capacity={"a": {"value": 1}})},
        classes=known_classes([topology("net", ONE)], []),
        users=("a/b",),
    )
    assert msgspec.json.decode(msgspec.json.encode(cluster), type=World) == cluster


class TestPodNetworks:
    def test_an_invalid_pod_network_is_rejected_and_an_overlapping_range_is_warned_of(
        self, request_of: Request
    ) -> None:
        wrong = verdict_on(request_of(network("10.7.0.0/24", name="a", dns=["x"])), World())
        (error,) = wrong.errors
        assert error == (
            'PodNetwork "a": "x" is not an IP address; write an address, e.g. 10.77.1.5 [spec.dns[0]] (ND1125)'
        )
        near = network("10.7.0.0/16", name="b")
        cluster = narrowed(request_of(network("10.7.0.0/24", name="a")), World(pod_networks={"b": near}))
        (warning,) = verdict_on(request_of(network("10.7.0.0/24", name="a")), cluster).warnings
        assert 'PodNetwork "a": range 10.7.0.0/24 overlaps with PodNetwork "b"' in warning
        assert verdict_on(request_of(network("10.8.0.0/24", name="a")), cluster) == ALLOWED

    def test_a_topology_must_use_the_networks_vlan_and_is_warned_of_networks_that_do_not_exist(
        self, request_of: Request, topology: Topology
    ) -> None:
        made = topology(
            "lan",
            "- {name: nic, type: macvlan}\n"
            "- {name: tag, type: vlan, dependOn: [nic], network: storage, config: {id: 7, ipam: {type: network}}}",
        )
        cluster = World(pod_networks={"storage": network("10.7.0.0/24", vlan=8), "other": network("10.9.0.0/24")})
        (error,) = verdict_on(request_of(made), narrowed(request_of(made), cluster)).errors
        assert 'the step uses VLAN 7, but PodNetwork "storage" is VLAN 8' in error
        verdict = verdict_on(request_of(made), World())
        assert verdict.errors == ()
        assert any('PodNetwork "storage" does not exist' in text for text in verdict.warnings)

    def test_a_topology_with_another_mtu_than_its_network_is_warned_of(
        self, request_of: Request, topology: Topology
    ) -> None:
        made = topology("lan", "- {name: nic, type: macvlan, network: a, config: {mtu: 1400, ipam: {type: network}}}")
        cluster = World(pod_networks={"a": network("10.7.0.0/24", name="a", mtu=1500)})
        verdict = verdict_on(request_of(made), narrowed(request_of(made), cluster))
        assert verdict.errors == ()
        assert any('sets mtu 1400, but PodNetwork "a" has mtu 1500' in text for text in verdict.warnings)

    def test_a_changed_network_is_compared_with_the_topologies_that_use_it(
        self, request_of: Request, topology: Topology
    ) -> None:
        steps = (
            "- {name: nic, type: macvlan}\n"
            "- {name: tag, type: vlan, dependOn: [nic], network: a, config: {id: 7, mtu: 1400, ipam: {type: network}}}"
        )
        users = {name: topology(name, steps) for name in ("one", "two", "three", "four")}
        users["other"] = topology("other", steps.replace("network: a", "network: b"))
        changed = network("10.7.0.0/24", name="a", vlan=8, mtu=1500)
        verdict = verdict_on(request_of(changed), narrowed(request_of(changed), World(topologies=users)))
        assert verdict.errors == ()
        assert len(verdict.warnings) == topologies.SHOWN + 1
        assert verdict.warnings[-1] == "3 more warnings like these are not shown (ND1245)"
        assert 'NetworkTopology "four", step "tag": the step uses VLAN 7, but PodNetwork "a" is VLAN 8' in str(verdict)
        assert 'the step sets mtu 1400, but PodNetwork "a" has mtu 1500' in str(verdict)
        assert '"other"' not in str(verdict)
        same = network("10.7.0.0/24", name="a", vlan=7, mtu=1400)
        assert verdict_on(request_of(same), narrowed(request_of(same), World(topologies=users))) == ALLOWED

    def test_a_claim_is_warned_of_networks_that_do_not_exist(self, request_of: Request) -> None:
        names = {"a": "podnetwork.storage", "b": "podnetwork.lan", "nic": "unknown"}
        requests = [{"name": name, "exactly": {"deviceClassName": of}} for name, of in names.items()]
        metadata, spec = {"name": "c"}, {"devices": {"requests": requests}}
        kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
        asked = request_of({**kind, "metadata": metadata, "spec": spec})
        cluster = narrowed(asked, World(pod_networks={"storage": network("10.7.0.0/24")}))
        found = [text for text in verdict_on(asked, cluster).warnings if "does not exist" in text]
        (text,) = found
        assert text.startswith('ResourceClaim "c", request "b" requests addresses: PodNetwork "lan" does not exist')

    def test_a_request_for_addresses_is_suggested_if_its_class_exists(
        self, request_of: Request, topology: Topology
    ) -> None:
        lan = topology("lan", "- {name: nic, type: macvlan, network: a, config: {ipam: {type: network}}}")
        classes = {entry.metadata.name: entry for entry in device_classes(lan)}
        devices = {"requests": [{"name": "nic", "exactly": {"deviceClassName": "lan-nic"}}]}
        kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
        asked = request_of({**kind, "metadata": {"name": "c"}, "spec": {"devices": devices}})
        without = World(topologies={"lan": lan}, classes=classes)
        assert verdict_on(asked, narrowed(asked, without)).warnings == ()
        network_class = shares.device_class(network("10.7.0.0/24", name="a"))
        full = World(topologies={"lan": lan}, classes={**classes, "podnetwork.a": network_class})
        (warning,) = verdict_on(asked, narrowed(asked, full)).warnings
        assert "add a request of DeviceClass podnetwork.a" in warning
