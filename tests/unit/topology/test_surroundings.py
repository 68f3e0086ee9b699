"""Facts of the device, the node and the pod are parsed, typed, placed and bound as decision D63 states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from netdra.model.claim import ResourceClaim
from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.model.meta import ObjectMeta
from netdra.model.plan import Plan, PlannedDevice
from netdra.model.resource import Device, DeviceAttribute, ResourcePool, ResourceSlice, ResourceSliceSpec
from netdra.model.topology import NetworkTopology
from netdra.topology import facts, graph, references
from netdra.topology.bind import bind, unbound
from netdra.topology.references import BadReferenceError
from netdra.topology.surroundings import ELSEWHERE, Surroundings, device_value
from tests.unit.topology.test_bind import DEVICES, POOL, claim, config, result

Topology = Callable[..., NetworkTopology]
TWO = "- {name: a, type: sriov}\n- {name: b, type: sriov}\n"
PLACE = "stands where no fact may"
RACK = 'node.labels["example.com/rack"]'


def slices(attributes: dict[str, DeviceAttribute], generation: int = 1) -> ResourceSlice:
    pool = ResourcePool(name=POOL, generation=generation, resource_slice_count=1)
    devices = tuple(Device(name=f"vf{index}", attributes=attributes) for index in range(8))
    spec = ResourceSliceSpec(driver="dra.networking", pool=pool, node_name="n1", devices=devices)
    return ResourceSlice(metadata=ObjectMeta(name="s"), spec=spec)


HERE = Surroundings(
    node="n1",
    labels={"example.com/rack": "7", "zone": "a.b"},
    slices=(
        slices(
            {
                "rail": DeviceAttribute(int_=3),
                "mtu": DeviceAttribute(int_=9000),
                "rdma": DeviceAttribute(bool_=True),
                "empty": DeviceAttribute(string=""),
                "vfIndex": DeviceAttribute(int_=-1),
                "listed": DeviceAttribute(strings=("a", "b")),
                "example.com/fabric": DeviceAttribute(string="blue"),
            }
        ),
    ),
    pods=("app-2",),
)


def bound(
    topology: NetworkTopology, place: Surroundings = HERE, devices: Mapping[Any, PlannedDevice] = DEVICES, **more: Any
) -> Plan:
    (plan,) = bind([allocated(**more)], {topology.name: topology}, devices, place=place).plans
    return plan


def allocated(reserved: tuple[str, ...] = (), **metadata: Any) -> ResourceClaim:
    made = claim([result("vf", "vf1")], [config("net", "vf")], **metadata)
    consumers = [{"resource": "pods", "name": name, "uid": name} for name in reserved]
    return replace(
        made, status=msgspec.convert({**msgspec.to_builtins(made.status), "reservedFor": consumers}, type(made.status))
    )


def one(topology: Topology, value: str, key: str = "value") -> NetworkTopology:
    written = msgspec.json.encode({key: value}).decode()
    return topology(f"- {{name: vf, type: far, config: {written}}}")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("{{ device.ifName }}", "pfv1"),
        ("{{ device.name }}", "vf1"),
        ("{{ device.attributes.rail }}", 3),
        ("{{device.attributes.rdma}}", True),
        ('{{ device.attributes["example.com/fabric"] }}', "blue"),
        ("{{ device.attributes['example.com/fabric'] }}", "blue"),
        ('{{ device.attributes["rail"] }}', 3),
        ("{{ node.name }}", "n1"),
        (f"{{{{ {RACK} }}}}", "7"),
        ("{{ node.labels['zone'] }}", "a.b"),
        ("{{ pod.name }}", "app-2"),
        ("{{ pod.namespace }}", "ns"),
        ("{{ pod.ordinal }}", 2),
        (f"10.{{{{ device.attributes.rail }}}}.{{{{ {RACK} }}}}.1{{{{ pod.ordinal }}}}/24", "10.3.7.12/24"),
        ("{{ device.attributes.rdma }}-{{ vf.mac }}", "true-{{ vf.mac }}"),
    ],
)
def test_a_fact_keeps_its_type_alone_and_is_text_inside_of_a_text(topology: Topology, written: str, value: Any) -> None:
    if "vf.mac" in written:
        # What only running shows stays, beside a fact, in a step after it.
        (_, tune) = bound(
            topology(
                f"- {{name: vf, type: far}}\n- {{name: t, type: far, dependOn: [vf], config: {{value: '{written}'}}}}"
            )
        ).steps
        assert tune.config["value"] == value
        return
    assert bound(one(topology, written)).steps[0].config["value"] == value


def test_interfaces_are_named_by_facts_and_numbered_otherwise(topology: Topology) -> None:
    made = topology(
        "- {name: vf, type: sriov, config: {name: 'rail{{ device.attributes.rail }}'}}\n"
        "- {name: t, type: tuning, dependOn: [vf], config: {mtu: '{{ device.attributes.mtu }}'}}\n"
        "- {name: v, type: vlan, dependOn: [vf], config: {id: 5, name: 'v{{ device.attributes.rail }}'}}"
    )
    plan = bound(made)
    assert [step.if_name for step in plan.steps] == ["rail3", "rail3", "v3"]
    assert plan.steps[1].config == {"mtu": 9000}
    assert plan.pod == ""


def test_a_topology_alone_has_the_references_as_names_and_no_two_alike(topology: Topology) -> None:
    name = "config: {name: 'rail{{ device.attributes.rail }}'}"
    steps = (f"- {{name: a, type: sriov, {name}}}", f"- {{name: b, type: sriov, {name}}}")
    made = topology("\n".join([*steps, "- {name: c, type: bond, dependOn: [a, b]}"]))
    names = [step.if_name for step in unbound(made).steps]
    assert names == ["rail{{ device.attributes.rail }}", "rail{{ device.attributes.rail }} (b)", "bond0"]


def test_a_plan_with_a_pods_name_is_that_pods(topology: Topology) -> None:
    assert bound(one(topology, "{{ pod.name }}")).pod == "app-2"
    assert bound(one(topology, "{{ pod.ordinal }}")).pod == "app-2"
    assert bound(one(topology, "{{ pod.namespace }}")).pod == ""


def test_the_pod_is_the_one_that_the_claim_is_reserved_for_or_that_owns_it(topology: Topology) -> None:
    unknown, made = replace(HERE, pods=None), one(topology, "{{ pod.name }}")
    assert bound(made, unknown, reserved=("web-0",)).steps[0].config["value"] == "web-0"
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "db-1", "uid": "u", "controller": True}
    assert bound(made, unknown, ownerReferences=[owner]).steps[0].config["value"] == "db-1"
    with pytest.raises(TemporaryError, match="the pod is not known"):
        bound(made, unknown)


@pytest.mark.parametrize(
    ("written", "place", "text"),
    [
        ("{{ device.attributes.ral }}", {}, 'has no attribute "ral"; did you mean "rail"?'),
        ("{{ device.attributes.empty }}", {}, 'does not apply to device "vf1" of pool "n1/sriov-pf": the value is ""'),
        ("{{ device.attributes.vfIndex }}", {}, "the value is -1"),
        ("{{ device.attributes.listed }}", {}, "a list cannot stand in a config"),
        (
            "{{ node.labels['rak'] }}",
            {},
            'node "n1" does not have a label "rak"; set it: kubectl label node n1 rak=<value>',
        ),
        (
            "{{ node.labels['zone'] }}",
            {"labels": {"zone": ""}},
            'label "zone" of node "n1" does not have a value; set it',
        ),
        ("{{ node.labels['zone'] }}", {"labels": {"zone": "a{{b"}}, '"a{{b" has a character that is not allowed'),
        ("{{ pod.name }}", {"pods": ("a", "b")}, '"ns/c" is shared by pods a, b; give each pod a claim'),
        ("{{ pod.ordinal }}", {"pods": ("web-x7",)}, '"web-x7" does not end with an ordinal; use the'),
        ("{{ pod.ordinal }}", {"pods": ("web-07",)}, "does not end with an ordinal"),
    ],
)
def test_a_fact_that_does_not_exist_names_the_object_the_value_and_the_next_step(
    topology: Topology, written: str, place: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidInputError) as problem:
        bound(one(topology, written), replace(HERE, **place))
    shown = f"{problem.value.what.splitlines()[0]}; {problem.value.hint}"
    assert shown.startswith('NetworkTopology "net", step "vf": config.value: {{ ')
    assert text in shown
    assert problem.value.hint


@pytest.mark.parametrize(
    ("written", "place", "text"),
    [
        ("{{ device.attributes.rail }}", {"slices": ()}, "the attributes of device .* are not published now"),
        ("{{ node.name }}", {"node": ""}, "the node is not known"),
        ("{{ node.labels['zone'] }}", {"labels": None}, "the labels of the node are not known"),
        ("{{ pod.name }}", {"pods": ()}, "the pod is not known"),
    ],
)
def test_a_fact_that_is_not_known_is_waited_for_on_the_node_and_left_elsewhere(
    topology: Topology, written: str, place: dict[str, Any], text: str
) -> None:
    with pytest.raises(TemporaryError, match=text):
        bound(one(topology, written), replace(HERE, **place))
    left = bound(one(topology, written), replace(HERE, is_partial=True, **place))
    assert left.steps[0].config["value"] == written
    assert bound(one(topology, written), ELSEWHERE).steps[0].config["value"] == written


def test_a_fact_that_is_left_is_refused_before_its_step_runs() -> None:
    with pytest.raises(BadReferenceError, match="has no value"):
        references.resolve({"x": "{{ node.name }}"}, {})


def test_the_newest_generation_of_a_pool_counts(topology: Topology) -> None:
    newer = slices({"rail": DeviceAttribute(int_=9)}, 2)
    place = replace(HERE, slices=(*HERE.slices, newer))
    assert bound(one(topology, "{{ device.attributes.rail }}"), place).steps[0].config["value"] == 9


def test_a_pooled_vf_has_the_facts_of_the_vf_that_was_chosen(topology: Topology) -> None:
    pooled = replace(DEVICES[POOL, "vf1"], pooled=True, pci_address="", if_name="")
    made = one(topology, "{{ device.attributes.vfIndex }}-{{ device.ifName }}")
    with pytest.raises(TemporaryError, match=r"stands for several VFs, of which none is chosen|is not known"):
        bound(made, devices={(POOL, "vf1"): pooled})
    chosen = replace(pooled, pci_address="0000:03:00.5", if_name="pfv5", vf_index=5)
    assert bound(made, devices={(POOL, "vf1"): chosen}).steps[0].config["value"] == "5-pfv5"


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ("- {name: vf, type: sriov, config: {deviceID: '{{ device.attributes.pciAddress }}'}}", PLACE),
        ("- {name: vf, type: sriov, config: {runtimeConfig: {mac: '{{ node.name }}'}}}", PLACE),
        ("- {name: vf, type: sriov, config: {args: {cni: {ips: ['{{ node.name }}']}}}}", PLACE),
        ("- {name: vf, type: sriov, config: {capabilities: {mac: '{{ node.name }}'}}}", PLACE),
        ("- {name: vf, type: sriov, config: {ipam: {type: '{{ node.name }}'}}}", PLACE),
        ("- {name: vf, type: sriov, neutron: {network: '{{ pod.namespace }}'}}", "Neutron is asked before"),
        ("- {name: vf, type: sriov, config: {name: '{{ pod.ordinal }}'}}", "an interface's name is text"),
        (f"{TWO}- {{name: c, type: bond, dependOn: [a, b], config: {{mac: '{{{{ device.name }}}}'}}}}", 'of "a", "b"'),
    ],
)
def test_facts_are_rejected_where_they_would_control_the_attachment(topology: Topology, steps: str, text: str) -> None:
    made, findings = graph.examine(topology(steps))
    assert made is None
    assert text in findings[0].text
    assert findings[0].hint


def test_steps_may_be_called_as_the_roots_of_facts(topology: Topology) -> None:
    made = topology(
        "- {name: node, type: sriov}\n- {name: t, type: far, dependOn: [node],"
        " config: {a: '{{ node.interfaceName }}', b: '{{ node.name }}'}}"
    )
    compiled = graph.compile_topology(made)
    assert [entry.field for _, entry in compiled.references["t"]] == ["interfaceName"]
    assert [entry.field for _, entry in compiled.facts["t"]] == ["name"]


@pytest.mark.parametrize(
    "written",
    [
        "{{ device.attributes.a.b }}",
        "{{ device.attributes['a b'] }}",
        "{{ device.attributes[''] }}",
        "{{ device.attributes[rail] }}",
        "{{ node.labels }}",
        "{{ node.labels.rack }}",
        "{{ node.labels['-a'] }}",
        "{{ node.labels['a/b/c'] }}",
        "{{ node.ip }}",
        "{{ pod.uid }}",
        "{{ pod.name.x }}",
        "{{ pod.labels['a'] }}",
        "{{ device }}",
        "{{ device.ifName + 1 }}",
        "{{ pod.ordinal*2 }}",
    ],
)
def test_an_invalid_fact_reference_is_rejected_with_a_hint(written: str) -> None:
    with pytest.raises(BadReferenceError) as problem:
        references.parse(written)
    assert problem.value.hint


@given(st.one_of(st.text(max_size=300), st.integers(), st.booleans(), st.lists(st.text())))
def test_an_accepted_value_is_never_a_reference_an_absolute_or_parent_path_or_several_lines(value: Any) -> None:
    try:
        checked = facts.checked(value)
    except InvalidInputError:
        return
    assert checked == value
    if isinstance(checked, str):
        assert checked.isascii()
        assert checked.isprintable()
        assert not set("{}\\") & set(checked)
        assert ".." not in checked
        assert "/" not in checked or all(part for part in checked.split("/"))
        assert references.parse(checked) == (checked,)


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "a/b", "../x", "a..b", "c:\\x", "10.0.0.0/24/..", "10.0.0.1/x", "fe80::1%eth0/64"]
)
def test_no_value_is_a_path(path: str) -> None:
    with pytest.raises(InvalidInputError, match="could be read as a path"):
        facts.checked(path)


@pytest.mark.parametrize("text", ["10.0.0.5/24", "fd00::5/64", "a b", "02:00:00:00:00:01", "0000:03:00.0", "x" * 253])
def test_addresses_and_plain_texts_are_values(text: str) -> None:
    assert facts.checked(text) == text


def test_the_interface_of_a_device_is_unknown_only_as_long_as_its_attributes_are() -> None:
    (reference,) = references.parse("{{ device.ifName }}")
    assert isinstance(reference, references.Reference)
    named, without = (
        PlannedDevice(request="r", pool="p", device="d", if_name="eth1"),
        PlannedDevice(request="r", pool="p", device="d"),
    )
    assert device_value(reference, named, None) == "eth1"
    with pytest.raises(InvalidInputError, match='does not apply to device "d" of pool "p": the value is ""'):
        device_value(reference, without, {})
    with pytest.raises(TemporaryError, match='the interface of device "d" of pool "p" is not known'):
        device_value(reference, without, None)
