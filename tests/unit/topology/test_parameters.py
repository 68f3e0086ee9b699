"""A claim gives values for the parameters that a topology declares, within their bounds, and nothing else."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.model import documents, names
from netdra.model.claim import ResourceClaim, ResourceClaimTemplate
from netdra.model.errors import InvalidInputError
from netdra.model.plan import Plan, PlannedDevice
from netdra.model.topology import DeclaredParameter, NetworkTopology
from netdra.node.sandboxes.tracker import needed
from netdra.rules.claims import check_claim
from netdra.rules.topologies import check_topology
from netdra.topology import parameters
from netdra.topology.bind import bind, unbound
from netdra.topology.classes import known_classes
from testbed import yaml
from tests import builders

ADDRESS = "{name: address, format: cidr, within: [10.77.0.0/24]}"
STATIC = """
- name: nic
  type: host-device
  config: {ipam: {type: static, addresses: [{address: '{{ params.address }}'}]}}
"""


def topology(declared: str = f"[{ADDRESS}]", steps: str = STATIC, name: str = "vnf") -> NetworkTopology:
    made = builders.topology(steps, name=name)
    read = documents.convert(yaml.safe_load(declared), tuple[DeclaredParameter, ...], "test")
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, parameters=read))


def opaque(**said: Any) -> dict[str, Any]:
    whole = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "ParameterValues", **said}
    return {"driver": names.DRIVER, "parameters": whole}


def claim(
    *configs: dict[str, Any], requests: tuple[str, ...] = ("nic",), pod: str = "", of: str = "vnf"
) -> ResourceClaim:
    """A claim as it is written and as it is allocated, with its author's parameters."""
    results = [{"request": each, "driver": names.DRIVER, "pool": "p", "device": each} for each in requests]
    classes = [
        {
            "source": "FromClass",
            "requests": [each],
            "opaque": {
                "driver": names.DRIVER,
                "parameters": {"networkTopologyRef": {"name": of}, "step": each.split("/")[0]},
            },
        }
        for each in requests
    ]
    owner = [{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": "u", "controller": True}] if pod else []
    wanted = [{"name": each, "exactly": {"deviceClassName": f"{of}-{each}"}} for each in requests]
    value = {
        "metadata": {"name": "c", "namespace": "ns", "uid": "uid", "ownerReferences": owner},
        "spec": {"devices": {"requests": wanted, "config": list(configs)}},
        "status": {
            "allocation": {
                "devices": {"results": results, "config": [*classes, *({"source": "FromClaim", **c} for c in configs)]}
            }
        },
    }
    return documents.convert(value, ResourceClaim, "test")


def said(requests: tuple[str, ...] = (), **values: Any) -> dict[str, Any]:
    return {"requests": list(requests), "opaque": opaque(values=values)}


def bound(made: ResourceClaim, *topologies: NetworkTopology) -> tuple[Plan, ...]:
    assert made.status.allocation is not None
    devices = {
        (each.pool, each.device): PlannedDevice(request="", pool=each.pool, device=each.device)
        for each in made.status.allocation.devices.results
    }
    return bind([made], {each.name: each for each in topologies}, devices).plans


def written(made: ResourceClaim | ResourceClaimTemplate, *topologies: NetworkTopology) -> list[str]:
    found = check_claim(made, {each.name: each for each in topologies}, known_classes(topologies, ()))
    return [finding.text for finding in found]


def test_the_parameter_value_of_each_claim_appears_in_its_own_plan_and_is_recorded() -> None:
    shared = topology()
    for address in ("10.77.0.5/24", "10.77.0.6/24"):
        made = claim(said(address=address))
        assert written(made, shared) == []
        (plan,) = bound(made, shared)
        assert plan.steps[0].config["ipam"]["addresses"] == [{"address": address}]
        assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan).parameters == {"address": address}


def test_steps_may_share_one_parameter_and_a_default_applies_without_a_value() -> None:
    two = topology(
        "[{name: mtu, type: integer, minimum: 1280, maximum: 9000, default: 1500}]",
        "- {name: a, type: host-device, config: {mtu: '{{ params.mtu }}'}}\n"
        "- {name: b, type: host-device, config: {mtu: '{{ params.mtu }}'}}",
    )
    (plan,) = bound(claim(said(mtu=9000), requests=("a", "b")), two)
    assert [step.config["mtu"] for step in plan.steps] == [9000, 9000]
    (plan,) = bound(claim(requests=("a", "b")), two)
    assert [step.config["mtu"] for step in plan.steps] == [1500, 1500]


def test_a_list_parameter_remains_a_list_and_text_mixes_with_step_references() -> None:
    listed = topology(
        '[{name: addresses, type: "[]string", format: cidr}, {name: mode, enum: [blue, red]}]',
        "- {name: nic, type: host-device}\n- {name: t, type: tuning, dependOn: [nic], config: "
        "{addresses: '{{ params.addresses }}', sysctl: {net.x.y: '{{ nic.interfaceName }}-{{ params.mode }}'}}}",
    )
    (plan,) = bound(claim(said(addresses=["10.0.0.1/24", "FD00::1/64"], mode="red")), listed)
    assert plan.steps[1].config == {
        "addresses": ["10.0.0.1/24", "fd00::1/64"],
        "sysctl": {"net.x.y": "{{ nic.interfaceName }}-red"},
    }


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, "needs a value for its parameter address; give it in the claim"),
        (
            {"address": "10.77.0.5/24", "gateway": "10.77.0.1"},
            'has no parameter "gateway"; its parameters are address',
        ),
        ({"address": "10.78.0.5/24"}, "does not lie within 10.77.0.0/24"),
        ({"address": "10.77.0.5/16"}, "does not lie within 10.77.0.0/24"),
        ({"address": "10.77.0.5"}, "is not an address with its prefix length, as 10.0.0.5/24"),
        ({"address": "10.77.0.5/255.255.255.0"}, "is not an address with its prefix length"),
        ({"address": "fe80::1%eth0/64"}, "is not an address with its prefix length"),
        ({"address": "{{ nic.mac }}"}, "is not an address with its prefix length"),
        ({"address": "/etc/shadow"}, "is not an address with its prefix length"),
        ({"address": ["10.77.0.5/24"]}, "is not text"),
        ({"address": True}, "is not text"),
        ({"address": None}, "is not text"),
        ({"address": "1" * 5000 + "/24"}, "is not an address with its prefix length"),
    ],
)
def test_a_missing_undeclared_or_invalid_value_is_rejected_at_admission_and_at_binding(
    values: dict[str, Any], why: str
) -> None:
    made = claim(said(**values))
    (told,) = written(made, topology())
    with pytest.raises(InvalidInputError, match=why) as caught:
        bound(made, topology())
    assert caught.value.what.removeprefix('ResourceClaim "ns/c": ') in told


@pytest.mark.parametrize(
    "config",
    [
        {"opaque": opaque(values={"address": "10.77.0.5/24"}, step={"type": "evil"})},
        {"opaque": opaque(values=["10.77.0.5/24"])},
        {"opaque": opaque(values={"address": "10.77.0.5/24"}, perPod={"address": ["10.77.0.6/24"]})},
    ],
)
def test_an_unreadable_parameter_config_is_rejected_at_admission_and_at_binding(config: dict[str, Any]) -> None:
    made = claim(config)
    assert written(made, topology())
    with pytest.raises(InvalidInputError):
        bound(made, topology())


@pytest.mark.parametrize(
    "value", ["[" * 700 + "]" * 700, '{"a":' * 700 + "1" + "}" * 700, str(2**64 - 1), "1e308", '"' + "9" * 9000 + '"']
)
def test_a_huge_parameter_value_is_rejected_with_a_short_message(value: str) -> None:
    read = msgspec.json.decode(value)
    number = "[{name: n, type: integer, minimum: 0, maximum: 9}]"
    for declared, name in ((f"[{ADDRESS}]", "address"), (number, "n"), ("[]", "x")):
        made = topology(declared, "- {name: nic, type: host-device}")
        wrong = claim(said(**{name: read}))
        (told,) = written(wrong, made)
        assert len(told) < 400
        with pytest.raises(InvalidInputError):
            bound(wrong, made)


def test_a_long_list_for_pods_costs_no_compilation_each() -> None:
    many = topology(
        "[{name: n, type: integer, minimum: 0, maximum: 9}]",
        "\n".join(f"- {{name: s{at}, type: host-device, config: {{x: '{{{{ params.n }}}}'}}}}" for at in range(64)),
    )
    spec = msgspec.to_builtins(claim({"opaque": opaque(perPod={"n": [1] * 512})}).spec)
    spec["devices"]["requests"] = [{"name": f"s{at}", "exactly": {"deviceClassName": f"vnf-s{at}"}} for at in range(64)]
    template = documents.convert({"metadata": {"name": "t"}, "spec": {"spec": spec}}, ResourceClaimTemplate, "test")
    classes = known_classes([many], ())
    begun = time.process_time()
    assert check_claim(template, {"vnf": many}, classes) == ()
    assert time.process_time() - begun < 1.0
    spec["devices"]["config"][0]["opaque"]["parameters"]["perPod"]["n"] = [1] * 513
    template = documents.convert({"metadata": {"name": "t"}, "spec": {"spec": spec}}, ResourceClaimTemplate, "test")
    assert check_claim(template, {"vnf": many}, classes)


def test_a_value_given_twice_or_for_nothing_is_refused() -> None:
    twice = claim(said(address="10.77.0.5/24"), said(("nic",), address="10.77.0.6/24"))
    assert "given twice" in written(twice, topology())[0]
    with pytest.raises(InvalidInputError, match="given twice"):
        bound(twice, topology())
    nowhere = claim(said(address="10.77.0.5/24"), said(("gpu",), x=1))
    assert "none of these requests is for a NetworkTopology" in written(nowhere, topology())[0]
    with pytest.raises(InvalidInputError, match="none of these requests is for a NetworkTopology"):
        bound(nowhere, topology())


def test_of_several_topologies_each_gets_the_values_of_its_requests() -> None:
    one, two = topology(name="one"), topology(name="two", steps=STATIC.replace("nic", "port"))
    made = claim(said(("nic",), address="10.77.0.5/24"), said(("port",), address="10.77.0.6/24"), of="one")
    other = claim(requests=("port",), of="two").status.allocation
    assert other is not None
    assert made.status.allocation is not None
    mine = made.status.allocation.devices
    devices = msgspec.structs.replace(
        mine, results=mine.results + other.devices.results, config=mine.config + other.devices.config
    )
    allocation = msgspec.structs.replace(made.status.allocation, devices=devices)
    both = msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, allocation=allocation))
    assert [plan.parameters for plan in bound(both, one, two)] == [
        {"address": "10.77.0.5/24"},
        {"address": "10.77.0.6/24"},
    ]


def test_the_pods_of_a_statefulset_have_addresses_of_their_own_from_one_template() -> None:
    per_pod = {"opaque": opaque(perPod={"address": ["10.77.0.5/24", "10.77.0.6/24"]})}
    for pod, address in (("web-0", "10.77.0.5/24"), ("web-1", "10.77.0.6/24")):
        made = claim(per_pod, pod=pod)
        # The node keeps a part of each claim, and binds that when the pod begins.
        for known in (made, needed(made)):
            (plan,) = bound(known, topology())
            assert plan.parameters == {"address": address}
    for pod, why in (
        ("web-2", "the pod's ordinal is 2"),
        ("web-7x2k4", "does not belong to a pod of a StatefulSet"),
        ("", "not belong to a pod of a Stateful"),
    ):
        with pytest.raises(InvalidInputError, match=why):
            bound(claim(per_pod, pod=pod), topology())


def test_the_values_of_every_pod_in_a_template_are_checked() -> None:
    def template(*addresses: str) -> ResourceClaimTemplate:
        spec = msgspec.to_builtins(claim({"opaque": opaque(perPod={"address": addresses})}).spec)
        return documents.convert({"metadata": {"name": "t"}, "spec": {"spec": spec}}, ResourceClaimTemplate, "test")

    assert written(template("10.77.0.5/24", "10.77.0.6/24"), topology()) == []
    (told,) = written(template("10.77.0.5/24", "10.99.0.6/24"), topology())
    assert told.startswith('ResourceClaimTemplate "t", pod 1: parameter "address"')


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ("[{name: x}]", "is a text without a format or an enum"),
        ("[{name: x, enum: [a], format: ip}]", "both a format and an enum"),
        ("[{name: x, enum: ['{{ nic.mac }}']}]", "is not a valid value"),
        ("[{name: x, enum: ['']}]", "is not a valid value"),
        ("[{name: X-1, format: ip}]", "the name is not valid"),
        ("[{name: x, format: ip}, {name: x, format: ip}]", "the name appears twice"),
        ("[{name: x, type: integer}]", "without bounds"),
        ("[{name: x, type: integer, minimum: 5, maximum: 4}]", "nothing is between"),
        ("[{name: x, type: boolean, format: ip}]", "format does not go with"),
        ("[{name: x, format: mac, within: [10.0.0.0/8]}]", "within does not go with format mac"),
        ("[{name: x, format: ip, within: [10.0.0.1/8]}]", "is not a network"),
        ("[{name: x, format: ip, default: 10.0.0.0/8}]", "the default .* is not an address without"),
        ('[{name: x, type: "[]string", format: ip, maxItems: 65}]', "a list has from minItems"),
    ],
)
def test_a_declaration_without_a_type_and_bounds_is_refused(declared: str, why: str) -> None:
    (finding, *_) = check_topology(topology(declared, "- {name: nic, type: host-device}"))
    assert finding.path[:2] == ("spec", "parameters")
    with pytest.raises(InvalidInputError, match=why):
        raise InvalidInputError(finding.text)


ANY = (
    "[{name: a, enum: [a]}, {name: l, type: '[]string', format: ip}, "
    "{name: n, type: integer, minimum: 0, maximum: 9999}, {name: m, format: mac}]"
)
ROOT = "- {name: nic, type: %s, config: {%s}}"
DERIVED = "- {name: nic, type: host-device}\n- {name: d, type: %s, dependOn: [nic], config: {%s}}"


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        (
            ROOT % ("host-device", "mtu: '{{ params.b }}'"),
            "names no parameter of this topology; its parameters are a, l",
        ),
        (ROOT % ("host-device", "name: '{{ params.a }}'"), "stands where no parameter may"),
        (ROOT % ("host-device", "deviceID: '{{ params.a }}'"), "stands where no parameter may"),
        (ROOT % ("host-device", "runtimeConfig: {mac: '{{ params.a }}'}"), "stands where no parameter may"),
        (ROOT % ("host-device", "ipam: {type: '{{ params.a }}'}"), "stands where no parameter may"),
        (
            ROOT % ("host-device", "device: '{{ params.a }}'"),
            "refers to a device or a path, which a claim must not set",
        ),
        (ROOT % ("host-device", "hwaddr: '{{ params.m }}'"), "refers to a device or a path"),
        (ROOT % ("macvlan", "master: 'x{{ params.a }}'"), "refers to a device or a path"),
        (
            ROOT % ("host-device", ("ipam: {type: host-local, dataDir: '/{{ params.a }}'}")),
            "refers to a device or a path",
        ),
        (DERIVED % ("tuning", "dev: '{{ params.a }}'"), "stands where no parameter may"),
        (DERIVED % ("vlan", "id: 5, master: '{{ params.a }}'"), "refers to a device or a path"),
        (DERIVED % ("vlan", "id: '{{ params.n }}', master: '{{ nic.interfaceName }}'"), "n may be 9999"),
        (DERIVED % ("vlan", "id: '{{ params.a }}', master: '{{ nic.interfaceName }}'"), 'found "a"'),
        (DERIVED % ("tuning", "mac: 'x{{ params.l }}'"), "is a list inside of a text"),
        ("- {name: params, type: host-device}", "the name stands for the topology's parameters"),
    ],
)
def test_a_parameter_cannot_set_a_device_a_path_or_another_reserved_field(steps: str, why: str) -> None:
    told = "\n".join(finding.text for finding in check_topology(topology(ANY, steps)))
    assert why in told


def test_an_extended_resource_topology_requires_defaults_for_its_parameters() -> None:
    steps = STATIC.replace("type: host-device", "type: host-device\n  extendedResourceName: example.com/nic")
    (finding,) = check_topology(topology(steps=steps))
    assert "can give no value for address" in finding.text


def test_a_sound_topology_with_parameters_is_let_through_and_its_defaults_are_shown() -> None:
    sound = topology(
        f"[{ADDRESS}, {{name: vlan, type: integer, minimum: 1, maximum: 4094, default: 7}}]",
        STATIC + "- {name: v, type: vlan, dependOn: [nic], config: {id: '{{ params.vlan }}', "
        "master: '{{ nic.interfaceName }}'}}",
    )
    assert check_topology(sound) == ()
    plan = unbound(sound)
    assert plan.steps[1].config["id"] == 7
    assert plan.steps[0].config["ipam"]["addresses"] == [{"address": "{{ params.address }}"}]


FORMS = [DeclaredParameter(name="x", format=form) for form in ("cidr", "ip", "subnet", "mac")]


@given(st.sampled_from(FORMS), st.text(max_size=60) | st.from_regex(r"[0-9a-f:./%]{1,40}", fullmatch=True))
def test_an_accepted_parameter_value_never_contains_a_reference_or_a_path(form: DeclaredParameter, text: str) -> None:
    try:
        value = parameters.checked(form, text)
    except InvalidInputError:
        return
    assert value
    assert not set(value) - set("0123456789abcdef:./")
    assert not value.startswith("/")
    assert ".." not in value
    assert parameters.checked(form, value) == value


@given(st.sampled_from([*FORMS, DeclaredParameter(name="n", type="integer", minimum=3, maximum=9)]))
def test_examples_are_values(parameter: DeclaredParameter) -> None:
    for value in parameters.examples(parameter):
        assert parameters.checked(parameter, value) == value


_VALUES = st.booleans() | st.integers(-2, 12) | st.sampled_from(["fast", "slow", "other", ""])


@given(st.integers(0, 10), st.integers(0, 10), _VALUES | st.lists(_VALUES, max_size=5))
def test_a_value_is_accepted_unchanged_exactly_if_it_has_the_type_and_lies_within_the_bounds(
    low: int, high: int, value: Any
) -> None:
    choices = ("fast", "slow")
    is_number = isinstance(value, int) and not isinstance(value, bool)
    is_valid = {
        DeclaredParameter(name="x", type="boolean"): isinstance(value, bool),
        DeclaredParameter(name="x", type="integer", minimum=low, maximum=high): is_number and low <= value <= high,
        DeclaredParameter(name="x", enum=choices): isinstance(value, str) and value in choices,
        DeclaredParameter(name="x", type="[]string", enum=choices, min_items=low, max_items=high): (
            isinstance(value, list) and low <= len(value) <= high and all(text in choices for text in value)
        ),
    }
    for parameter, accepted in is_valid.items():
        if accepted:
            found = parameters.checked(parameter, value)
            assert (type(found), found) == (type(value), value)
        else:
            with pytest.raises(InvalidInputError):
                parameters.checked(parameter, value)
