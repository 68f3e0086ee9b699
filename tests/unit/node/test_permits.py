"""A node refuses plans with fields that a program would skip, unless the cluster's schema of that program has them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

from netdra.model import documents
from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.model.meta import ObjectMeta
from netdra.model.plan import PlannedDevice
from netdra.model.schema import CNIPluginSchema, CNIPluginSchemaSpec
from netdra.node.permits import NodePermits, permits_of
from netdra.node.publishing import plugins
from netdra.node.settings import NodeSettings
from netdra.rules.confine import Permits
from netdra.rules.plans import permits_digest, restored, schemas_digest
from tests.plans import plan, step

VF = PlannedDevice(request="r", pool="p", device="d", if_name="vf0", pci_address="0000:03:00.1")
PLANS = (plan(step("vf0", "sriov", "net1", {"mtu": 9000}, device=VF, binary=True)),)


def schema(execution: str) -> CNIPluginSchema:
    found = {
        "apiVersion": "cni.networking.k8s.io/v1alpha1",
        "kind": "CNIPluginSchema",
        "metadata": {"name": "ours"},
        "spec": {
            "cniType": "sriov",
            "execution": execution,
            "configParameters": {"optional": [{"name": "mtu", "type": "integer"}]},
        },
    }
    return documents.convert(found, CNIPluginSchema, "test")


def shown(found: CNIPluginSchema) -> CNIPluginSchema:
    """As if netdra shipped it."""
    return replace(found, metadata=ObjectMeta(name="ours", labels={"networking.dra.io/shipped": "ours"}))


@pytest.mark.parametrize("known", [(), (schema("Auto"),)], ids=["none", "of the step"])
def test_a_parameter_the_program_would_ignore_is_rejected_despite_admission(
    known: tuple[CNIPluginSchema, ...],
) -> None:
    with pytest.raises(InvalidInputError, match='"sriov-binary" does not accept parameter "mtu"'):
        NodePermits(schemas=lambda: known).check(PLANS)


def test_a_schema_of_the_program_allows_it_and_is_waited_for() -> None:
    NodePermits(schemas=lambda: (schema("Binary"),)).check(PLANS)
    with pytest.raises(TemporaryError, match="the cluster's CNIPluginSchemas are not read yet"):
        NodePermits(schemas=lambda: None).check(PLANS)


def test_a_program_that_nothing_describes_is_not_run_though_netdra_has_a_step_of_its_name() -> None:
    plans = (plan(step("vf0", "vfio-pci", "net1", device=VF, binary=True)),)
    with pytest.raises(InvalidInputError, match='plugin "vfio-pci" is not allowed: it does not have a CNIPluginSchema'):
        NodePermits().check(plans)
    NodePermits(plugins=("vfio-pci",)).check(plans)
    NodePermits().check((plan(step("vf0", "vfio-pci", "net1", device=VF)),))


def test_a_schema_that_claims_to_be_shipped_by_netdra_allows_nothing() -> None:
    permits = NodePermits(schemas=lambda: (shown(schema("Binary")),))
    with pytest.raises(InvalidInputError, match='"sriov-binary" does not accept parameter "mtu"'):
        permits.check(PLANS)
    program = (plan(step("vf0", "vfio-pci", "net1", device=VF, binary=True)),)
    vfio = replace(schema("Binary"), spec=CNIPluginSchemaSpec(cni_type="vfio-pci", execution="Binary"))
    NodePermits(schemas=lambda: (vfio,)).check(program)
    with pytest.raises(InvalidInputError, match='plugin "vfio-pci" is not allowed: it does not have a CNIPluginSchema'):
        NodePermits(schemas=lambda: (shown(vfio),)).check(program)


MACVLAN = (plan(step("lan", "macvlan", "net1", device=VF)),)


def test_a_plugin_that_a_policy_names_is_allowed_and_the_policies_are_waited_for() -> None:
    NodePermits(named=lambda: frozenset({"macvlan"})).check(MACVLAN)
    with pytest.raises(TemporaryError, match='plugin "macvlan" is not allowed'):
        NodePermits(named=lambda: None).check(MACVLAN)
    with pytest.raises(InvalidInputError, match='plugin "macvlan" is not allowed: the default list contains'):
        NodePermits().check(MACVLAN)


def test_a_prepared_claim_keeps_its_plugins_while_the_options_are_the_same(tmp_path: Path) -> None:
    checked = NodePermits(named=lambda: frozenset({"macvlan"}), folders=(tmp_path,)).check(MACVLAN)
    for without in (NodePermits(folders=(tmp_path,)), NodePermits(folders=(tmp_path,), named=lambda: None)):
        assert without.confirm(checked).plans == checked.plans
    with pytest.raises(InvalidInputError, match=r"node\.allowPlugins only contains sriov"):
        NodePermits(plugins=("sriov",), folders=(tmp_path,)).confirm(checked)


def test_a_claim_that_was_prepared_when_every_described_plugin_was_allowed_keeps_its_plugins() -> None:
    """The record of a netdra before D66: no list had the digest that the default list contains now."""
    assert permits_digest(Permits()) == permits_digest(Permits(plugins=frozenset({"default"})))
    record = restored(MACVLAN, schemas_digest(()), "643d5437104296e2")
    assert NodePermits(plugins=("default",)).confirm(record) is record


def test_a_driver_without_plugins_runs_none_even_if_permits_or_schemas_allow_them() -> None:
    binary = (plan(step("vf0", "sriov", "net1", device=VF, binary=True)),)
    ipam = (plan(step("vf0", "sriov", "net1", {"ipam": {"type": "host-local"}}, device=VF)),)
    for allows in (NodePermits(plugins=("*",)), NodePermits(schemas=lambda: (schema("Binary"),))):
        allows.check(binary)
        without = dataclasses.replace(allows, run_plugins=False)
        for plans in (binary, ipam):
            with pytest.raises(InvalidInputError, match="the node's driver runs no plugins"):
                without.check(plans)
            if plans is binary:
                with pytest.raises(InvalidInputError, match="the node's driver runs no plugins"):
                    without.confirm(allows.check(plans))
        without.check((plan(step("vf0", "sriov", "net1", device=VF)),))
        assert (allows.may_run("sriov"), without.may_run("sriov")) == (True, False)


def test_the_option_leaves_no_folder_to_look_for_plugins_in() -> None:
    assert NodeSettings(node="a").plugins.directories == ("/opt/cni/bin",)
    settings = NodeSettings(node="a", allow_plugins=("*",), run_plugins=False)
    assert settings.plugins.directories == ()
    assert not permits_of(settings, tuple).may_run("bridge")
    assert plugins.missing(settings.plugins) == "the node's driver runs no plugins (--no-plugins)"
