"""A plugin's schema is compiled, or refused where it contradicts itself."""

import json
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from netdra.model import documents
from netdra.model.errors import InvalidInputError
from netdra.model.kinds import SCHEMA
from netdra.model.schema import CNIPluginSchema
from netdra.rules import shipped
from netdra.rules.contract import Shape, compile_schema
from testbed import yaml
from tests import draws

TYPES = str(SCHEMA.extensions["spec.configParameters.required[].type"]["pattern"])
BUILT_IN = {"sriov", "host-device", "bond", "vlan", "vrf", "tuning", "vfio-pci", "rdma", "device-file"}
PROGRAMS = {f"{each} (Binary)" for each in BUILT_IN - {"vfio-pci", "device-file"}}
STOCK = {
    "bridge",
    "macvlan",
    "ipvlan",
    "ptp",
    "sbr",
    "portmap",
    "bandwidth",
    "firewall",
    "network",
    "slaac",
    "static",
    "host-local",
    "dhcp",
    "ovs",
    "ib-sriov",
    "ipoib",
    "whereabouts",
    "ovn-k8s-cni-overlay",
}


def schema(spec: str) -> CNIPluginSchema:
    return documents.convert(
        {
            "apiVersion": "cni.networking.k8s.io/v1alpha1",
            "kind": "CNIPluginSchema",
            "metadata": {"name": "p"},
            "spec": {"cniType": "p", **yaml.safe_load(spec)},
        },
        CNIPluginSchema,
        "test",
    )


def shape_of(parameter: str) -> Shape:
    return compile_schema(schema(f"configParameters: {{required: [{parameter}]}}")).parameters["a"]


def text(shape: Shape) -> Any:
    if shape.kind in {"list", "map", "either"}:
        return [shape.kind, *(text(part) for part in shape.parts)]
    return {key: text(each) for key, each in shape.properties.items()} if shape.properties else shape.kind


@pytest.mark.parametrize(
    ("parameter", "built"),
    [
        ("{name: a, type: string}", "string"),
        ("{name: a, type: bool}", "boolean"),
        ("{name: a, type: '[]string'}", ["list", "string"]),
        ("{name: a, type: 'map[string]bool'}", ["map", "boolean"]),
        ("{name: a, type: 'map[string][]integer'}", ["map", ["list", "integer"]]),
        ("{name: a, type: 'integer | string'}", ["either", "integer", "string"]),
        ("{name: a, type: '[]object', items: {properties: {n: {type: string}}}}", ["list", {"n": "string"}]),
        ("{name: a, type: '[]object', items: {type: object}}", ["list", "object"]),
        ("{name: a, type: '[](string | integer)'}", ["list", ["either", "string", "integer"]]),
        (
            "{name: a, type: '[](string | object) | bool', items: {properties: {n: {type: any}}}}",
            ["either", ["list", ["either", "string", {"n": "any"}]], "boolean"],
        ),
        ("{name: a, type: '(string)'}", "string"),
        (
            "{name: a, type: '[][]object', items: {items: {properties: {n: {type: any}}}}}",
            ["list", ["list", {"n": "any"}]],
        ),
        ("{name: a, type: object, properties: {f: {type: 'map[string]bool'}}}", {"f": ["map", "boolean"]}),
        ("{name: a, type: 'map[string]object', properties: {n: {type: number}}}", ["map", {"n": "number"}]),
    ],
)
def test_a_type_is_built_from_its_text(parameter: str, built: Any) -> None:
    assert text(shape_of(parameter)) == built


def test_limits_are_those_of_the_list_or_of_its_elements() -> None:
    shape = shape_of("{name: a, type: '[]integer', minItems: 2, items: {minimum: 1, maximum: 9}}")
    assert (shape.min_items, shape.minimum, shape.parts[0].minimum, shape.parts[0].maximum) == (2, None, 1, 9)


def test_an_object_schema_is_closed_only_if_it_lists_properties_and_allows_no_others() -> None:
    assert not shape_of("{name: a, type: object}").closed
    assert shape_of("{name: a, type: object, properties: {n: {type: string}}}").closed
    assert not shape_of("{name: a, type: object, additionalProperties: true, properties: {n: {type: string}}}").closed


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("configParameters: {required: [{name: a, type: strnig}]}", 'a: type "strnig" is unknown'),
        ("configParameters: {required: [{name: a}]}", 'a: type "" is unknown'),
        ("configParameters: {required: [{name: a, type: '[](string | bool'}]}", "is unknown"),
        ("configParameters: {required: [{name: a, type: '(string)(bool)'}]}", "parentheses are only allowed around"),
        ("configParameters: {optional: [{name: a, type: 'string | integer', format: ip}]}", "does not support format"),
        ("configParameters: {optional: [{name: a, type: object, format: ip}]}", "does not support format"),
        ("configParameters: {required: [{name: a, type: '[]'}]}", 'a: type "" is unknown'),
        ("configParameters: {optional: [{name: a, type: object, properties: {b: {type: x}}}]}", 'a.b: type "x"'),
        ("configParameters: {optional: [{name: a, type: object, properties: {b: [1]}}]}", "a.b: Expected `object`"),
        (
            "configParameters: {optional: [{name: a, type: '[]string', items: {type: object}}]}",
            "does not match the type of the list",
        ),
        (
            ("configParameters: {optional: [{name: a, type: string, minimum: 1}]}"),
            'type "string" does not support minimum',
        ),
        (
            ("configParameters: {optional: [{name: a, type: integer, minItems: 1}]}"),
            'type "integer" does not support minItems',
        ),
        ("configParameters: {optional: [{name: a, type: integer, minimum: 5, maximum: 4}]}", "5 is more than"),
        (
            ("configParameters: {optional: [{name: a, type: string, enum: [x], default: y}]}"),
            "not one of the enum's values",
        ),
        ("configParameters: {optional: [{name: a, type: any}, {name: a, type: any}]}", '"a" appears twice'),
        (
            "configParameters: {optional: [{name: a, type: any}, {name: b, type: any, aliases: [a]}]}",
            '"a" appears twice',
        ),
        ("configParameters: {optional: [{name: 'a b', type: any}]}", '"a b" is not a configuration key'),
        ("input: {prevResult: {interfaces: {minItems: 3, maxItems: 2}}}", "minItems 3 is more than maxItems 2"),
    ],
)
def test_a_schema_that_contradicts_itself_is_refused(spec: str, why: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        compile_schema(schema(spec))
    assert 'CNIPluginSchema "p": ' in str(caught.value)
    assert why in str(caught.value)


def test_a_type_in_parentheses_without_end_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="parentheses are only allowed around alternatives"):
        shape_of(f"{{name: a, type: '{'(' * 5000}string{')' * 5000}'}}")


_WRITTEN = ("string", "bool", "object", "any", "[]", "map[string]", "(", ")", " | ", "|", " ", "text")


@given(st.lists(st.sampled_from(_WRITTEN), max_size=8).map("".join))
@example("[](string | object)")
@example("[]map[string](int|[]bool) | string")
@example("(string)")
@example("((string))")
@example("[] string")
@example("map[string] (string | bool)")
@settings(max_examples=draws.count(300, 3000))
def test_the_api_server_takes_the_types_that_can_be_compiled(text: str) -> None:
    try:
        shape_of(f"{{name: a, type: {json.dumps(text)}}}")
    except InvalidInputError:
        return
    assert re.search(TYPES, text.strip()) is not None


def test_the_api_server_takes_the_types_of_all_that_is_shipped() -> None:
    parameters = [
        each
        for one in filter(None, map(shipped.schema, shipped.names()))
        for each in (*one.spec.config_parameters.required, *one.spec.config_parameters.optional)
    ]
    assert [each.type for each in parameters if re.search(TYPES, each.type) is None] == []
    assert parameters


def test_a_schema_nested_without_end_is_refused() -> None:
    nested: Any = {"type": "string"}
    for _ in range(60):
        nested = {"type": "object", "properties": {"a": nested}}
    found = yaml.safe_dump({"configParameters": {"optional": [{"name": "a", **nested}]}})
    with pytest.raises(InvalidInputError, match="nested deeper than 8"):
        compile_schema(schema(found))
    with pytest.raises(InvalidInputError, match="nested deeper than 8"):
        compile_schema(schema(f"configParameters: {{optional: [{{name: a, type: '{'[]' * 1000}string'}}]}}"))


def test_a_misspelled_field_of_a_schema_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="unknown field `minItem`"):
        schema("input: {prevResult: {interfaces: {minItem: 3}}}")


def test_shipped_schemas_cover_built_in_types_programs_and_stock_plugins() -> None:
    assert set(shipped.names()) == BUILT_IN | PROGRAMS | STOCK
    contracts = shipped.contracts(shipped.names())
    assert {plugin: contract.plugin for plugin, contract in contracts.items()} == {each: each for each in contracts}
    assert {contract.cni_type for contract in contracts.values()} == BUILT_IN | STOCK


def test_a_plugin_without_a_schema_has_no_contract() -> None:
    assert shipped.contracts(["calico", "../vlan", "vfio-pci (Binary)", "vlan-binary", ""]) == {}


def test_a_user_schema_overrides_the_shipped_one_and_the_first_name_wins() -> None:
    def named(name: str, key: str) -> CNIPluginSchema:
        found = yaml.safe_load(f"{{cniType: vlan, configParameters: {{optional: [{{name: {key}, type: any}}]}}}}")
        return documents.convert(
            {
                "apiVersion": "cni.networking.k8s.io/v1alpha1",
                "kind": "CNIPluginSchema",
                "metadata": {"name": name},
                "spec": found,
            },
            CNIPluginSchema,
            "test",
        )

    contracts = shipped.contracts(["vlan"], [named("b", "second"), named("a", "first")])
    assert list(contracts["vlan"].parameters) == ["first"]
    shown = named("a", "shown")
    labels = {"networking.dra.io/shipped": "a"}
    shown = replace(shown, metadata=replace(shown.metadata, labels=labels))
    contracts = shipped.contracts(["vlan"], [named("b", "second"), shown])
    assert list(contracts["vlan"].parameters) == ["second"]
    assert shipped.contracts(["vlan"], [shown]) == shipped.contracts(["vlan"])
