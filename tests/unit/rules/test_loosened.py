"""A schema that counts in place of netdra's names what it permits beyond it, and no more."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.model import documents
from netdra.model.schema import CNIPluginSchema
from netdra.rules import shipped
from netdra.rules.config import check_config
from netdra.rules.contract import Contract, compile_schema
from netdra.rules.loosened import loosened
from testbed import yaml


def contract(text: str) -> Contract:
    return compile_schema(schema(yaml.safe_load(text)))


def schema(spec: dict[str, Any]) -> CNIPluginSchema:
    head = {"apiVersion": "cni.networking.k8s.io/v1alpha1", "kind": "CNIPluginSchema", "metadata": {"name": "own"}}
    return documents.convert({**head, "spec": spec}, CNIPluginSchema, "test")


BOND = """
cniType: bond
configParameters:
  required: [{name: mode, type: string}]
  optional: [{name: links, type: "[]object", minItems: 1}, {name: vendorMode, type: string}]
input: {prevResult: {required: true, interfaces: {minItems: 1, maxItems: 9}}}
"""


def test_each_part_that_permits_more_is_named() -> None:
    text = loosened(contract(BOND))
    assert "it accepts vendorMode" in text
    assert "it accepts further values of mode" in text
    assert "it needs 1 interfaces instead of 2" in text


@pytest.mark.parametrize("plugin", shipped.names())
def test_a_copy_of_netdras_own_permits_nothing_more(plugin: str) -> None:
    own = shipped.schema(plugin)
    assert own is not None
    assert loosened(compile_schema(own)) == ""


def test_a_plugin_that_netdra_does_not_describe_has_nothing_to_be_compared_with() -> None:
    assert loosened(contract("{cniType: vendors, configParameters: {additionalParameters: true}}")) == ""


def test_any_parameter_is_one_clause() -> None:
    text = loosened(contract("{cniType: vlan, configParameters: {additionalParameters: true}}"))
    assert text.startswith("it accepts any parameter; it does not require id")


CONFIG = st.fixed_dictionaries(
    {},
    optional={
        "id": st.one_of(st.integers(-1, 5000), st.text(max_size=3)),
        "master": st.one_of(st.just("net1"), st.integers()),
        "name": st.just("vlan1"),
        "vlanId": st.integers(0, 10),
        "mtu": st.integers(0, 9000),
    },
)
PARAMETER = st.one_of(
    st.builds(
        lambda name, low, high: {"name": name, "type": "integer", "minimum": low, "maximum": low + high},
        st.sampled_from(["id", "mtu", "vlanId"]),
        st.integers(0, 4094),
        st.integers(0, 5000),
    ),
    st.builds(
        lambda name, kind: {"name": name, "type": kind},
        st.sampled_from(["id", "master", "name"]),
        st.sampled_from(["string", "any", "integer", "string | integer"]),
    ),
)


@given(st.lists(PARAMETER, max_size=4, unique_by=lambda each: str(each["name"])), st.booleans(), st.booleans(), CONFIG)
def test_a_config_that_only_the_own_schema_permits_is_never_passed_over(
    parameters: list[dict[str, Any]], required: bool, additional: bool, config: dict[str, Any]
) -> None:
    named = {"required" if required else "optional": parameters, "additionalParameters": additional}
    own = compile_schema(schema({"cniType": "vlan", "configParameters": named}))
    of_netdra = shipped.contracts(["vlan"])["vlan"]
    if not list(check_config(config, own)) and list(check_config(config, of_netdra)):
        assert loosened(own)
