"""The schemas that netdra ships are objects of the cluster, as the controller keeps them on the real API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from netdra.controller.schemas import change
from netdra.model import documents
from netdra.model.schema import CNIPluginSchema
from netdra.rules import shipped
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import manifest
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster.daemons import running_controller, start_controller
from tests.cluster.test_controller import SCHEMA, TOPOLOGY, condition, is_gone, is_ready

pytestmark = pytest.mark.usefixtures("leading")

LABEL = "networking.dra.io/shipped"
NAMES = frozenset(shipped.objects())


@pytest.fixture(scope="module")
def leading(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[None]:
    """A controller at work; what it made goes with the tests."""
    with running_controller(control_plane, api):
        yield
    for each in api.list(SCHEMA):
        api.delete(SCHEMA, each["metadata"]["name"])


@pytest.fixture
def listed(api: Api, leading: None) -> dict[str, Object]:
    """The shipped schemas, once the controller has said all of them."""

    def settled() -> bool:
        found = labelled(api)
        return found.keys() == NAMES and all(is_as_shipped(each) and accepted(each)[0] for each in found.values())

    until(settled, "all shipped schemas to be there")
    return labelled(api)


def labelled(api: Api) -> dict[str, Object]:
    found = {each["metadata"]["name"]: each for each in api.list(SCHEMA)}
    return {name: each for name, each in found.items() if each["metadata"].get("labels", {}).get(LABEL) == name}


def is_as_shipped(found: Object | None) -> bool:
    """Whether an object, as the server keeps it, leaves nothing to be done."""
    if found is None:
        return False
    schema = documents.convert(found, CNIPluginSchema, "test")
    return schema.is_shipped and change(schema.metadata.name, schema) is None


def accepted(found: Object | None) -> tuple[str, str]:
    return condition(found, "Accepted")


def vlan(name: str, config: Object, uplink: str = "sriov") -> Object:
    """A topology with a VLAN."""
    first = {"name": "vf0", "type": uplink, "selector": {"cel": "true"}}
    last = {"name": "v", "type": "vlan", "dependOn": ["vf0"], "config": config}
    return manifest(TOPOLOGY, name, spec={"steps": [first, last]})


def test_every_shipped_schema_is_listed_with_whose_it_is(
    listed: dict[str, Object], control_plane: ControlPlane
) -> None:
    assert listed.keys() == NAMES
    assert {each["status"]["source"] for each in listed.values()} == {"netdra"}
    header, *rows = control_plane.kubectl("get", "cnipluginschemas", "-l", LABEL).splitlines()
    assert header.split() == ["NAME", "TYPE", "EXECUTION", "VERSION", "SOURCE", "ACCEPTED", "AGE"]
    assert len(rows) == len(NAMES)
    (row,) = [each.split() for each in rows if each.startswith("vlan-binary ")]
    assert row[:3] == ["vlan-binary", "vlan", "Binary"]
    assert row[4:6] == ["netdra", "True"]


def test_one_that_is_changed_is_put_right_and_one_that_is_deleted_comes_back(
    listed: dict[str, Object], api: Api
) -> None:
    parameters = listed["vlan"]["spec"]["configParameters"]
    more = [*parameters["optional"], {"name": "mine", "type": "string"}]
    patch = {"spec": {"version": "9", "configParameters": {"optional": more}}, "metadata": {"labels": {"team": "a"}}}
    api.patch(SCHEMA, "vlan", patch)
    mended = api.wait_for(SCHEMA, "vlan", is_as_shipped)
    assert mended is not None
    assert mended["spec"] == listed["vlan"]["spec"]
    assert mended["metadata"]["labels"]["team"] == "a"
    api.delete(SCHEMA, "macvlan")
    back = api.wait_for(SCHEMA, "macvlan", is_as_shipped)
    assert back is not None
    assert back["spec"] == listed["macvlan"]["spec"]


def test_a_vendors_schema_of_the_same_plugin_counts_whatever_its_name(
    listed: dict[str, Object], workspace: Workspace
) -> None:
    api, own = workspace.api, f"zz-{workspace.name('vlan')}"
    strict = {"required": [{"name": "level", "type": "integer"}], "optional": [{"name": "master", "type": "string"}]}
    made = workspace.create(manifest(SCHEMA, own, spec={"cniType": "vlan", "configParameters": strict}))
    counts = api.wait_for(SCHEMA, own, lambda found: accepted(found) == ("True", "Valid"))
    assert counts is not None
    assert counts["status"]["source"] == "own"
    assert counts["spec"] == made["spec"]
    api.wait_for(SCHEMA, "vlan", lambda found: accepted(found) == ("False", "Replaced"))
    fits, breaks = workspace.name("fits"), workspace.name("breaks")
    workspace.create(vlan(fits, {"master": "{{ vf0.interfaceName }}", "level": 1}))
    workspace.create(vlan(breaks, {"master": "{{ vf0.interfaceName }}", "id": 100}))
    api.wait_for(TOPOLOGY, fits, is_ready)
    api.wait_for(TOPOLOGY, breaks, lambda found: condition(found, "Compiled") == ("False", "Unsound"))
    api.delete(SCHEMA, own)
    api.wait_for(TOPOLOGY, breaks, is_ready)
    api.wait_for(SCHEMA, "vlan", lambda found: accepted(found) == ("True", "Shipped"))


def test_an_upgrade_brings_what_is_shipped_now_and_leaves_alone_what_is_somebodys_own(
    listed: dict[str, Object], workspace: Workspace, control_plane: ControlPlane
) -> None:
    api, gone, copied = workspace.api, workspace.name("gone"), workspace.name("copied")
    control_plane.processes["netdra-controller"].stop()
    api.patch(SCHEMA, "ptp", {"spec": {"version": "0.1"}})
    for name, label in ((gone, gone), (copied, "ptp")):
        made = manifest(SCHEMA, name, spec={"cniType": name})
        made["metadata"]["labels"] = {LABEL: label}
        workspace.create(made)
    own = {"spec": {"version": "vendor"}, "metadata": {"labels": {LABEL: None}}}
    kept = api.patch(SCHEMA, "bridge", own)
    try:
        start_controller(control_plane, api)
        api.wait_for(SCHEMA, "ptp", is_as_shipped)
        api.wait_for(SCHEMA, gone, is_gone)
        api.wait_for(SCHEMA, copied, lambda found: accepted(found) == ("True", "Valid"))
        found = api.wait_for(SCHEMA, "bridge", lambda found: (found or {}).get("status", {}).get("source") == "own")
        assert found is not None
        assert found["spec"] == kept["spec"]
        assert accepted(found) == ("True", "Valid")
    finally:
        api.delete(SCHEMA, "bridge")
    api.wait_for(SCHEMA, "bridge", is_as_shipped)


def test_a_second_pass_writes_nothing(
    listed: dict[str, Object], workspace: Workspace, control_plane: ControlPlane
) -> None:
    api = workspace.api
    before = labelled(api)
    control_plane.processes["netdra-controller"].stop()
    start_controller(control_plane, api)
    # What is made now is looked at after all that was there before.
    last = workspace.name("last")
    workspace.create(vlan(last, {"master": "{{ vf0.interfaceName }}", "id": 100}))
    api.wait_for(TOPOLOGY, last, is_ready)
    assert labelled(api) == before
