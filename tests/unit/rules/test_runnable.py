"""The default list of plugins is small: what is on it, who adds to it, and the text about a plugin that is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.model.policy import DeviceExposurePolicy
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import BUILTIN_TYPES
from netdra.rules import runnable, shipped
from netdra.rules.runnable import NamedPlugins, check_topology, is_allowed
from tests import builders
from tests.unit.rules.test_confine import schema

ON_REQUEST = ("bandwidth", "bridge", "firewall", "ipoib", "ipvlan", "macvlan", "ovs", "portmap", "ptp", "sbr")


def allowed(kind: str, *listed: str, named: tuple[str, ...] = (), own: tuple[CNIPluginSchema, ...] = ()) -> bool:
    return is_allowed(kind, runnable.contracts_of_types({kind}, own), frozenset(listed), frozenset(named))


def test_the_default_list_has_programs_of_netdras_own_types_and_four_ipam_plugins() -> None:
    by_default = {kind for kind in shipped.types() if allowed(kind)}
    assert by_default == {"bond", "host-device", "rdma", "sriov", "tuning", "vlan", "vrf", *runnable.IPAM_TYPES}
    assert by_default - runnable.IPAM_TYPES <= BUILTIN_TYPES
    assert not by_default & set(ON_REQUEST)


@pytest.mark.parametrize("kind", ON_REQUEST)
def test_every_other_plugin_is_allowed_by_a_policy_that_names_it_by_an_own_schema_or_on_request(kind: str) -> None:
    assert allowed(kind, named=(kind,))
    assert allowed(kind, own=(schema(kind),))
    assert allowed(kind, "default", kind)
    assert not allowed(kind, "default")
    assert not allowed(kind, named=("other",))


def test_a_list_without_the_default_list_is_exact() -> None:
    assert allowed("firewall", "firewall")
    for kind in ("host-local", "sriov", "macvlan"):
        assert not allowed(kind, "firewall", named=(kind,), own=(schema(kind),))
    assert allowed("anything", "*")


def test_a_policy_alone_allows_no_plugin_that_nothing_describes() -> None:
    assert not allowed("vendor", named=("vendor",))
    assert allowed("vendor", named=("vendor",), own=(schema("vendor"),))


TOPOLOGY = builders.topology(
    "- {name: vf, type: sriov}\n"
    "- {name: fw, type: firewall, dependOn: [vf]}\n"
    "- {name: map, type: portmap, dependOn: [vf]}\n"
    "- {name: again, type: firewall, dependOn: [fw], config: {ipam: {type: host-local}}}"
)


def test_each_plugin_of_a_stored_topology_that_is_not_allowed_is_reported_once_with_the_value_that_allows_it() -> None:
    first, second = check_topology(TOPOLOGY, (), (), ())
    assert first.what == f'plugin "firewall" is not allowed: {runnable.RULE}'
    assert first.hint == (
        "set the chart's value node.allowPlugins to [default, firewall] "
        "(netdra node --allow-plugin default --allow-plugin firewall)"
    )
    assert first.path == ("spec", "steps", 1, "type")
    assert 'plugin "portmap" is not allowed' in second.what
    assert check_topology(TOPOLOGY, (), ("default", "firewall", "portmap"), ()) == ()
    assert check_topology(TOPOLOGY, (schema("firewall"),), (), ("portmap",)) == ()


def test_the_hint_for_a_disallowed_plugin_extends_the_existing_allow_list() -> None:
    (finding,) = check_topology(TOPOLOGY, (), ("portmap", "host-local"), ())
    assert finding.what == 'plugin "firewall" is not allowed: node.allowPlugins only contains host-local, portmap'
    assert "to [host-local, portmap, firewall] (" in finding.hint


def test_an_ipam_plugin_that_is_not_allowed_is_reported_where_it_is_named() -> None:
    found = builders.topology("- {name: vf, type: sriov, config: {ipam: {type: vendor-ipam}}}")
    (finding,) = check_topology(found, (), (), ())
    assert finding.path == ("spec", "steps", 0, "config", "ipam", "type")
    assert "it does not have a CNIPluginSchema" in finding.what


POLICIES = [builders.exclusive(f"p{at}", "true", *plugins) for at, plugins in enumerate(["a", "ab", "b", "c"])]


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([None, *POLICIES])), max_size=12))
def test_the_named_plugins_match_those_of_the_existing_policies(
    changes: list[tuple[int, DeviceExposurePolicy | None]],
) -> None:
    named, present = NamedPlugins(), dict[int, DeviceExposurePolicy | None]()
    for key, new in changes:
        before = named.names
        changed = named.update(present.get(key), new)
        present[key] = new
        assert named.names == NamedPlugins(policy for policy in present.values() if policy is not None).names
        assert changed == (named.names != before)
